"""Measure, without training, how each skill performs in another domain than the one it was trained in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import scipy

from soulsgraph.evaluate import EVALUATION_SEED, check_evaluation, evaluation_seeds, load_artifacts, was_trained_on
from soulsgraph.files import api_call
from soulsgraph.plan import lasting_name
from soulsgraph.run_folder import RunFolder
from soulsgraph.transfer.effects import Experiments, ValueCheck, check_values, compare_effects, experiments
from soulsgraph.transfer.rule import Evidence, compare_cues
from soulsgraph_envs.combat.episodes import Episodes
from soulsgraph_envs.combat.loop import Actions, Combat
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.game import LaneIndices
from soulsgraph_envs.core.scenario import Scenario, load_scenario
from soulsgraph_envs.core.state import Column
from soulsgraph_envs.core.streams import Seeds, derive_seeds, uniforms
from soulsgraph_envs.drivers.opening import make_game
from soulsgraph_envs.skills import make_skill, practice_ground
from soulsgraph_policies.agent import STAND_INS, Agent, StandIn
from soulsgraph_policies.fused_networks import FusedNetworks
from soulsgraph_policies.hyperparameters import skill_hyperparameters

Doubles = npt.NDArray[np.float64]
OnPlayed = Callable[[str], None]

#: Skills by who stands in for them.
StandIns = Mapping[str, StandIn]
#: Share of a skill's decisions that is drawn at random to see what its actions do; the rest keeps it on its course.
EXPLORATION = 0.5
Flags = npt.NDArray[np.bool_]
_EXPLORATION_STREAM = 21
#: Rows that the energy distance compares: its work grows with their square.
_MOST_ROWS = 1_000


@dataclass(frozen=True)
class TransferOptions:
    """Which scenario a run is taken to, and how it is evaluated there."""

    scenario: str = "iudex-phase2"
    """Scenario to transfer to: a name or a TOML file."""
    home: str | None = None
    """Scenario whose versions play; the run's own, or the last one adapted to for recovery, if not given."""
    episodes: int = 200
    """Episodes of each trial."""
    seed: int = EVALUATION_SEED
    """Seed of the evaluation episodes, the same for every trial."""

    def __post_init__(self) -> None:
        check_evaluation(self.seed, self.episodes)
        object.__setattr__(self, "scenario", lasting_name(self.scenario))
        object.__setattr__(self, "home", self.home and lasting_name(self.home))


@dataclass(frozen=True, kw_only=True)
class Question(TransferOptions):
    """What a transfer is measured for: options whose `home`, the domain the playing versions are of, is known."""

    home: str


@dataclass(frozen=True)
class DomainFigures:
    """One skill's own task in one domain: mean returns trained and replaced, its values, its inputs.

    `value_bias` and `value_error` are predicted minus obtained discounted return, as mean and as root
    mean square; `input_shifts` the mean of each column in deviations from the mean it was trained on.
    """

    trained: float
    replaced: Mapping[str, float]
    value_bias: float
    value_error: float
    input_shifts: Mapping[str, float]


@dataclass(frozen=True)
class SkillFigures:
    """One skill in both domains, and how far its inputs differ between them: a column, and all together."""

    home: DomainFigures
    shifted: DomainFigures
    input_distances: Mapping[str, float]
    input_energy: float


@dataclass(frozen=True)
class Wins:
    """Wins of the whole agent in one domain with one skill replaced, or none."""

    domain: str
    skill: str
    stand_in: str
    wins: int
    episodes: int


@dataclass(frozen=True)
class Measures:
    """Everything measured: figures and the rule's evidence by skill in training order, and the win rates."""

    figures: Mapping[str, SkillFigures]
    evidence: Mapping[str, Evidence]
    wins: tuple[Wins, ...]


@dataclass
class Laboratory:
    """Play the trials of a run in one domain, each once."""

    run: RunFolder
    trained_on: str
    scenario: Scenario
    question: Question
    on_played: OnPlayed
    _played: dict[tuple[str, tuple[tuple[str, StandIn], ...], float], Episodes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        order = self.run.plan.skill_graph.order
        self.skills = {name: make_skill(name, self.run.plan.options) for name in order}
        artifacts = load_artifacts(self.run, self.trained_on, order)
        self.networks = {name: artifacts[name].network(self.skills[name], self.scenario) for name in order}
        self._numbers = self.run.plan.method.hyperparameters(skill_hyperparameters(budget=1))
        self._seeds = evaluation_seeds(self.question.seed, self.question.episodes)

    def play(self, skill: str, stand_ins: StandIns | None = None, exploration: float = 0.0) -> Episodes:
        """Play a skill's own task, with stand-ins for it or for skills upstream of it, or exploring."""
        replaced = stand_ins or {}
        key = (skill, tuple(sorted(replaced.items())), exploration)
        if key not in self._played:
            skills = tuple(self.skills[name] for name in self._players(skill))
            agent = Agent(self.scenario, skills, self.networks, replaced)
            self._played[key] = play_trial(own_task(agent), self._seeds, exploration)
            self.on_played(skill)
        return self._played[key]

    def returns(self, skill: str, stand_ins: StandIns | None = None) -> Doubles:
        """Return the undiscounted returns of `play`, (n,)."""
        returns: Doubles = self.play(skill, stand_ins).terms.sum(axis=1, dtype=np.float64)
        return returns

    def experiments(self, skill: str) -> Experiments:
        """Return the decisions in which the skill explored on its own task."""
        return experiments(self.skills[skill], self.networks[skill], self.play(skill, exploration=EXPLORATION))

    def context(self, skill: str) -> list[Column]:
        """Return the columns that the skill or one upstream of it observes."""
        return sorted({column for name in self._players(skill) for column in self.skills[name].observation.columns})

    def inputs(self, skill: str, played: Episodes) -> Doubles:
        """Return the skill's observations at its decisions, normalised as in its training, (m, size)."""
        return FusedNetworks([self.networks[skill]]).inputs(0, played.taken.rows)

    def values(self, skill: str) -> ValueCheck:
        """Check the trained skill's values on its own task."""
        return check_values(self.networks[skill], self.play(skill), self._numbers)

    def columns(self, skill: str, values: Doubles) -> dict[str, float]:
        """Pair the column names with values, (size,)."""
        names = [name.lower() for name in self.skills[skill].observation.names]
        return dict(zip(names, values.tolist(), strict=True))

    def _players(self, skill: str) -> tuple[str, ...]:
        return (*self.run.plan.skill_graph.upstream(skill), skill)


def trials_of(run: RunFolder) -> int:
    """Return how many trials `measure` plays."""
    graph = run.plan.skill_graph
    own = len(graph.order) * (2 + len(STAND_INS))  # trained, exploring, and each stand-in
    return 2 * (own + len(graph.upstream(graph.order[-1])) * len(STAND_INS))


def measure(run: RunFolder, question: Question, on_played: OnPlayed = lambda skill: None) -> Measures:
    """Play every trial in both domains from the same evaluation seeds.

    Raises:
        LibraryError: if a skill was never trained, or is damaged.
        SoulsGraphError: for an unknown scenario, or a number out of range.
    """
    if question.home != run.plan.scenario and not was_trained_on(run, question.home):
        raise SoulsGraphError(
            f"`home`: expected a scenario that skills of {run.path} were trained on, found {question.home!r}; "
            f"see {api_call('check_library', run=run.path)}."
        )
    home, shifted = (
        Laboratory(run, question.home, load_scenario(name), question, on_played)
        for name in (question.home, question.scenario)
    )
    order = run.plan.skill_graph.order
    return Measures(
        figures={skill: _figures(skill, home, shifted) for skill in order},
        evidence={skill: _evidence(skill, home, shifted) for skill in order},
        wins=(*_wins("home", home), *_wins("shifted", shifted)),
    )


def _figures(skill: str, home: Laboratory, shifted: Laboratory) -> SkillFigures:
    inputs = [laboratory.inputs(skill, laboratory.play(skill)) for laboratory in (home, shifted)]
    return SkillFigures(
        home=_domain_figures(skill, home, inputs[0]),
        shifted=_domain_figures(skill, shifted, inputs[1]),
        input_distances=home.columns(skill, column_distances(*inputs)),
        input_energy=energy_coefficient(*inputs),
    )


def _domain_figures(skill: str, laboratory: Laboratory, inputs: Doubles) -> DomainFigures:
    values = laboratory.values(skill)
    return DomainFigures(
        trained=float(laboratory.returns(skill).mean()),
        replaced={name: float(laboratory.returns(skill, {skill: name}).mean()) for name in STAND_INS},
        value_bias=values.bias,
        value_error=values.error,
        input_shifts=laboratory.columns(skill, inputs.mean(axis=0)),
    )


def _evidence(skill: str, home: Laboratory, shifted: Laboratory) -> Evidence:
    explored = [laboratory.play(skill, exploration=EXPLORATION).taken for laboratory in (home, shifted)]
    return Evidence(
        effect=compare_effects(home.context(skill), home.experiments(skill), shifted.experiments(skill)),
        cues=compare_cues(home.skills[skill], *explored),
    )


def _wins(domain: str, laboratory: Laboratory) -> list[Wins]:
    order = laboratory.run.plan.skill_graph.order
    last = order[-1]
    settings: list[tuple[str, str, StandIns]] = [("none", "trained", {})]
    settings += [(skill, stand_in, {skill: stand_in}) for skill in order for stand_in in STAND_INS]
    return [
        Wins(domain, skill, stand_in, int(played.won.sum()), len(played.won))
        for skill, stand_in, stand_ins in settings
        for played in (laboratory.play(last, stand_ins),)
    ]


class Exploration:
    """Replace a share of the last skill's decisions by uniform random ones, after its controller has acted."""

    def __init__(self, agent: Agent, lanes: int, share: float) -> None:
        self._position, self._choices = len(agent.skills) - 1, len(agent.skills[-1].actions)
        self._streams, self._share = np.zeros(lanes, np.uint64), share
        self._lanes: list[LaneIndices] = []
        self._drawn: list[Flags] = []

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Restart the lanes' streams."""
        self._streams[lanes] = derive_seeds(seeds, _EXPLORATION_STREAM, self._position)

    def act(self, combat: Combat, actions: Actions) -> None:
        """Draw whether to explore in lanes where the skill is due, and an action for those that do."""
        due = np.flatnonzero(combat.due[:, self._position])
        drawn = np.zeros(len(due), np.bool_)
        if self._share:
            whether, which = uniforms(self._streams, due), uniforms(self._streams, due)
            drawn = whether < self._share
            actions[due[drawn], self._position] = (which[drawn] * self._choices).astype(np.int64)
        self._lanes.append(due)
        self._drawn.append(drawn)

    @property
    def explored(self) -> Flags:
        """Whether each decision was explored, lane by lane and in order of time."""
        order = np.argsort(np.concatenate(self._lanes), kind="stable")
        explored: Flags = np.concatenate(self._drawn)[order]
        return explored


def play_trial(agent: Agent, seeds: Seeds, exploration: float = 0.0) -> Episodes:
    """Play one episode a seed (n,), each in a lane of its own, exploring in a share of the last skill's decisions."""
    exploring = Exploration(agent, len(seeds), exploration)
    episodes = agent.rollout(make_game(lanes=len(seeds)), exploring).play(seeds, keep_decisions=True)
    return replace(episodes, decisions=replace(episodes.taken, explored=exploring.explored))


def own_task(agent: Agent) -> Agent:
    """Return the agent in its last skill's practice scenario: the skill's start, HP refilled if it was in training."""
    return replace(agent, scenario=practice_ground(agent.scenario, agent.skills[-1]))


def column_distances(first: npt.ArrayLike, second: npt.ArrayLike) -> Doubles:
    """Return the two-sample Kolmogorov-Smirnov statistic of each column: (n, size), (m, size) -> (size,) in [0, 1]."""
    pairs = zip(np.asarray(first, np.float64).T, np.asarray(second, np.float64).T, strict=True)
    # The p-value, which is not used, is cheapest so.
    return np.array([scipy.stats.ks_2samp(*pair, method="asymp").statistic for pair in pairs])


def energy_coefficient(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Return the energy coefficient of inhomogeneity of (n, size) and (m, size), in [0, 1]; 0 if they are equal.

    H = (2 E|X - Y| - E|X - X'| - E|Y - Y'|) / (2 E|X - Y|), Szekely & Rizzo (2013), "Energy
    statistics: a class of statistics based on distances". Of long samples every nth row is compared.
    """
    a, b = _thinned(first), _thinned(second)
    between = 2.0 * _mean_distance(a, b)
    if between == 0.0:
        return 0.0
    return max(0.0, (between - _mean_distance(a, a) - _mean_distance(b, b)) / between)


def _thinned(values: npt.ArrayLike) -> Doubles:
    rows = np.asarray(values, np.float64)
    return rows[:: -(-len(rows) // _MOST_ROWS)]


def _mean_distance(a: Doubles, b: Doubles) -> float:
    return float(np.mean([np.linalg.norm(b - row, axis=1).mean() for row in a]))
