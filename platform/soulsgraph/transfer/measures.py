"""Measure, without training, how each skill performs in another domain than the one it was trained in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from soulsgraph.results.tables import WinRate
from soulsgraph.runs.evaluate import EVALUATION_SEED, check_evaluation, evaluation_seeds, load_networks
from soulsgraph.runs.plan import lasting_name
from soulsgraph.runs.real_time import OnFinished
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.transfer.rule import Evidence, Experiments, compare_cues, compare_effects, experiments
from soulsgraph_envs.combat.loop import Actions, Combat
from soulsgraph_envs.combat.rollout import Doubles, Episodes, Flags, Integers
from soulsgraph_envs.core.compiling import cached
from soulsgraph_envs.core.game import LaneIndices
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import Seeds, derive_seeds, uniforms
from soulsgraph_envs.core.state import Column
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.skills import make_skill, training_scenario
from soulsgraph_policies.agents.agent import STAND_INS, Agent, StandIn
from soulsgraph_policies.agents.inference import FusedNetworks
from soulsgraph_policies.learning.hyperparameters import skill_hyperparameters

#: Share of a skill's decisions that is drawn at random to see what its actions do; the rest keeps it on its course.
EXPLORATION = 0.5
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


@dataclass
class Laboratory:
    """Play the trials of a run in one domain, each once; `on_played` is called with 1 after each."""

    run: RunFolder
    question: Question
    domain: str
    on_played: OnFinished = lambda count: None
    _played: dict[tuple[tuple[str, ...], tuple[tuple[str, StandIn], ...], float], Episodes] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        self.scenario = load_scenario(self.domain)
        self.skills = {name: make_skill(name, self.run.plan.options) for name in self.run.plan.skill_graph.order}
        self.networks = load_networks(self.run, self.question.home, [*self.skills.values()], self.scenario)
        self._seeds = evaluation_seeds(self.question.seed, self.question.episodes)

    def play(self, skill: str, stand_ins: Mapping[str, StandIn] | None = None, exploration: float = 0.0) -> Episodes:
        """Play a skill's own task, with stand-ins for it or for skills upstream of it, or exploring."""
        return self._play(self._players(skill), stand_ins or {}, exploration)

    def _play(self, players: tuple[str, ...], replaced: Mapping[str, StandIn], exploration: float) -> Episodes:
        """Play the last one's task with all of these skills."""
        key = (players, tuple(sorted(replaced.items())), exploration)
        if key not in self._played:
            skills = tuple(self.skills[name] for name in players)
            agent = Agent(training_scenario(self.scenario, skills[-1]), skills, self.networks, replaced)
            self._played[key] = play_trial(agent, self._seeds, exploration)
            self.on_played(1)
        return self._played[key]

    def experiments(self, skill: str) -> Experiments:
        """Return the decisions in which the skill explored on its own task."""
        return experiments(self.skills[skill], self.networks[skill], self.play(skill, exploration=EXPLORATION))

    def context(self, skill: str) -> list[Column]:
        """Return the columns that the skill or one upstream of it observes."""
        return sorted({column for name in self._players(skill) for column in self.skills[name].observation.columns})

    def inputs(self, skill: str) -> Doubles:
        """Return the skill's observations at its decisions, normalised as in its training, (m, size)."""
        return FusedNetworks([self.networks[skill]]).inputs(0, self.play(skill).taken.rows).astype(np.float64)

    def figures(self, skill: str) -> dict[str, Any]:
        """Measure the skill's own task: mean returns trained and replaced, its values, its inputs.

        `input_shifts` is the mean of each column in deviations from the mean it was trained on.
        """
        return {
            "trained": self._mean_return(skill),
            "replaced": {name: self._mean_return(skill, name) for name in STAND_INS},
            **self.values(skill),
            "input_shifts": self.columns(skill, self.inputs(skill).mean(axis=0)),
        }

    def values(self, skill: str) -> dict[str, float]:
        """Compare the largest Q-value at each decision with the discounted return from there on.

        `value_bias` is the mean over episodes of predicted minus obtained, above 0 the values are too optimistic,
        `value_error` the root mean square over all decisions. After a truncation the rest is estimated by the largest
        Q-value at the end, as in training.
        """
        numbers = self.run.plan.method.hyperparameters(skill_hyperparameters(budget=1))
        networks, played = FusedNetworks([self.networks[skill]]), self.play(skill)
        taken = played.taken
        promised = networks.q_values(0, taken.rows).max(axis=1).astype(np.float64)
        beyond = np.where(played.cut, networks.q_values(0, played.rows).max(axis=1), 0.0)
        ticks = taken.ticks if numbers.semi_markov else np.ones(len(taken.ticks))
        discounts = np.asarray(numbers.gamma**ticks, np.float64)
        difference = promised - discounted_returns(taken.episodes, taken.rewards, discounts, beyond)
        biases = np.bincount(taken.episodes, difference, len(played)) / np.maximum(played.lengths, 1)
        return {"value_bias": float(biases.mean()), "value_error": float(np.sqrt(np.mean(difference**2)))}

    def win_rates(self, name: str) -> list[dict[str, Any]]:
        """Return the whole agent's wins with each skill replaced, and with none; `name` is that of the domain."""
        order, rows = self.run.plan.skill_graph.order, []
        replaced: list[dict[str, StandIn]] = [{}, *({skill: stand_in} for skill in order for stand_in in STAND_INS)]
        for stand_ins in replaced:
            # Of a graph with several leaves, the last one does not build on all others.
            won = self._play(order, stand_ins, 0.0).won
            skill, stand_in = next(iter(stand_ins.items()), ("none", "trained"))
            row = {"setting": f"{name}: {skill} {stand_in}", **win_row(int(won.sum()), len(won))}
            rows.append(row | {"domain": name, "replaced": skill, "stand_in": stand_in})
        return rows

    def columns(self, skill: str, values: Doubles) -> dict[str, float]:
        """Pair the column names with values, (size,)."""
        names = [name.lower() for name in self.skills[skill].observation.names]
        return dict(zip(names, values.tolist(), strict=True))

    def _mean_return(self, skill: str, stand_in: StandIn | None = None) -> float:
        played = self.play(skill, {skill: stand_in} if stand_in else None)
        return float(played.terms.sum(axis=1, dtype=np.float64).mean())

    def _players(self, skill: str) -> tuple[str, ...]:
        return (*self.run.plan.skill_graph.upstream(skill), skill)


def win_row(wins: int, episodes: int) -> dict[str, Any]:
    """Return wins, their rate and its Wilson interval as plain values."""
    row = WinRate("", wins, episodes).to_dict()
    return {name: value for name, value in row.items() if name not in ("setting", "paper_percent")}


def figures_of(skill: str, home: Laboratory, shifted: Laboratory) -> dict[str, Any]:
    """Measure a skill in both domains, and how far its inputs differ between them: a column, and all together."""
    inputs = home.inputs(skill), shifted.inputs(skill)
    return {
        "home": home.figures(skill),
        "shifted": shifted.figures(skill),
        "input_distances": home.columns(skill, column_distances(*inputs)),
        "input_energy": energy_coefficient(*inputs),
    }


def evidence_of(skill: str, home: Laboratory, shifted: Laboratory) -> Evidence:
    """Return what the rule needs to know of a skill."""
    explored = [laboratory.play(skill, exploration=EXPLORATION).taken for laboratory in (home, shifted)]
    return Evidence(
        effect=compare_effects(home.context(skill), home.experiments(skill), shifted.experiments(skill)),
        cues=compare_cues(home.skills[skill], *explored),
    )


def trials_of(run: RunFolder) -> int:
    """Return how many trials a transfer plays."""
    graph = run.plan.skill_graph
    own = len(graph.order) * (2 + len(STAND_INS))  # trained, exploring, and each stand-in
    others = len(graph.order) - 1
    # The whole agent plays the last skill's task; where that builds on all others, it has played it.
    again = 0 if len(graph.upstream(graph.order[-1])) == others else 1 + len(STAND_INS)
    return 2 * (own + others * len(STAND_INS) + again)


@cached()
def discounted_returns(episodes: Integers, rewards: Doubles, discounts: Doubles, beyond: Doubles) -> Doubles:
    """Return the discounted return from each decision (m,) to the end of its episode.

    Decisions are in order of episode and time; `beyond` (episodes,) is the value after an episode's end.
    """
    out = np.empty(len(rewards))
    for i in range(len(rewards) - 1, -1, -1):
        last = i == len(rewards) - 1 or episodes[i + 1] != episodes[i]
        following = beyond[episodes[i]] if last else out[i + 1]
        out[i] = rewards[i] + discounts[i] * following
    return out


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
        whether, which = uniforms(self._streams, due), uniforms(self._streams, due)
        drawn = whether < self._share
        actions[due[drawn], self._position] = (which[drawn] * self._choices).astype(np.int64)
        self._lanes.append(due)
        self._drawn.append(drawn)

    @property
    def explored(self) -> Flags:
        """Whether each decision was explored, lane by lane and in order of time."""
        order = np.argsort(np.concatenate(self._lanes), kind="stable")
        return np.asarray(np.concatenate(self._drawn)[order])


def play_trial(agent: Agent, seeds: Seeds, exploration: float = 0.0) -> Episodes:
    """Play one episode a seed (n,), each in a lane of its own, exploring in a share of the last skill's decisions."""
    exploring = Exploration(agent, len(seeds), exploration)
    episodes = agent.rollout(make_game(lanes=len(seeds)), exploring).play(seeds, keep_decisions=True)
    return replace(episodes, decisions=replace(episodes.taken, explored=exploring.explored))


def column_distances(first: npt.ArrayLike, second: npt.ArrayLike) -> Doubles:
    """Return the two-sample Kolmogorov-Smirnov statistic of each column: (n, size), (m, size) -> (size,) in [0, 1]."""
    # The p-value, which is not used, is cheapest so.
    from scipy import stats  # Imported here: options of commands are in this module, and the core has no scipy.

    return np.asarray(stats.ks_2samp(first, second, axis=0, method="asymp").statistic)


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
