"""Evaluate the skills of a run, the rows of the paper's Table 1 among the settings."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from soulsgraph.domains import cards_of, training_call, version_in_play
from soulsgraph.files import source_commit, write_json
from soulsgraph.plan import Plan, check_range, scenario_digest
from soulsgraph.run_folder import RunFolder
from soulsgraph.tables import WinRate, write_episodes, write_rows
from soulsgraph_envs.combat.episodes import Episodes
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.scenario import Scenario, load_scenario
from soulsgraph_envs.core.streams import Seeds, derive_seeds, episode_seeds
from soulsgraph_envs.drivers.opening import check_games, make_game, open_live_game
from soulsgraph_envs.drivers.realtime.cycle_timer import CycleReport, stoppable
from soulsgraph_envs.drivers.realtime.link import GameSettings
from soulsgraph_envs.skills import END_TO_END, Skill, make_skill
from soulsgraph_policies.agent import Agent
from soulsgraph_policies.inference import FrozenNetwork
from soulsgraph_policies.library import Artifact, SkillCard


@dataclass(frozen=True)
class Setting:
    """What is evaluated: a scenario and start, the skill versions that play, the skills randomised.

    The versions are those in play after training on `trained_on`; where that is not `scenario`, it is zero-shot
    transfer.
    """

    scenario: str
    trained_on: str
    start: str | None = None
    randomize: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row(Setting):
    """A setting of a table of win rates, and what the paper reports of it."""

    start: str = "mid"
    label: str = ""
    part: str = ""
    paper_percent: float = math.nan
    skill: str = "heal_attack"
    #: Skills that must have been adapted to `trained_on` for the row to mean what it says.
    adapted: tuple[str, ...] = ()


_PHASE_1, _PHASE_2 = "iudex-phase1", "iudex-phase2"

TABLE_1 = (
    Row(_PHASE_1, _PHASE_1, "mid", ("heal_attack", "dodge"), "heal-attack random, dodge random", "a", 0.0),
    Row(_PHASE_1, _PHASE_1, "mid", ("heal_attack",), "heal-attack random, dodge trained", "a", 4.0),
    Row(_PHASE_1, _PHASE_1, "mid", ("dodge",), "heal-attack trained, dodge random", "a", 16.0),
    Row(_PHASE_1, _PHASE_1, "mid", (), "heal-attack trained, dodge trained", "a", 44.0),
    Row(_PHASE_1, _PHASE_1, "mid", (), "single end-to-end agent", "a", 0.0, skill=END_TO_END),
    Row(_PHASE_2, _PHASE_1, "mid", (), "zero-shot, mid-range start", "b", 33.3),
    Row(_PHASE_2, _PHASE_1, "long", (), "zero-shot, long-range start", "b", 12.5),
    Row(_PHASE_2, _PHASE_2, "mid", (), "dodge and heal-attack fine-tuned", "b", 52.0, adapted=("dodge", "heal_attack")),
)


#: Seed of the evaluation episodes unless asked otherwise: the same for every row and every run.
EVALUATION_SEED = 1_000_000
#: Called with the number of episodes that ended since its last call.
OnFinished = Callable[[int], None]
#: Lanes played at once: more gain nothing, the simulator and the networks are compiled.
LANES = 256
_EVALUATION_STREAM = 20


def check_evaluation(seed: int, episodes: int) -> None:
    """Refuse a seed or a number of evaluation episodes out of range.

    Raises:
        SoulsGraphError: naming the option, the range and the value.
    """
    check_range("episodes", episodes, 1, 1_000_000)
    check_range("seed", seed, 0, 2**63 - 1)


def evaluation_seeds(seed: int, episodes: int) -> Seeds:
    """Return the seeds of `episodes` evaluation episodes, disjoint from every training stream.

    Raises:
        SoulsGraphError: if there is no episode, or the seed is out of range.
    """
    check_evaluation(seed, episodes)
    return episode_seeds(int(derive_seeds(seed, _EVALUATION_STREAM)[0]), 0, np.arange(episodes))


def play(
    agent: Agent, seeds: Seeds, on_finished: OnFinished | None = None, *, keep_decisions: bool = False
) -> Episodes:
    """Play one episode a seed in the simulator and return them in the order of the seeds."""
    rollout = agent.rollout(make_game(lanes=min(LANES, len(seeds))))
    return rollout.play(seeds, on_finished, keep_decisions=keep_decisions)


def play_variants(agent: Agent, seeds: Seeds, variants: int) -> Episodes:
    """Play each of an agent's variants on the same seeds, all in one batch of lanes, and return them in this order."""
    return agent.rollout(make_game(lanes=variants * len(seeds))).play(np.tile(seeds, variants))


@dataclass(frozen=True)
class PlayedGame:
    """How one game ran: its timing, episodes that were lost and played again, animations that no data file names."""

    timing: CycleReport
    replays: int
    unknown_animations: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return asdict(self) | {"timing": self.timing.to_dict()}

    def __str__(self) -> str:
        unknown = ", ".join(f"{name} ({ticks} ticks)" for name, ticks in self.unknown_animations.items())
        return f"{self.timing}\n{self.replays} episodes lost and played again; unknown animations: {unknown or 'none'}"


def play_in_games(
    agent: Agent, seeds: Seeds, games: Sequence[GameSettings], on_finished: OnFinished | None = None
) -> tuple[Episodes, tuple[PlayedGame, ...]]:
    """Play one episode per seed on the games, a thread each; return the episodes in seed order, and how each game ran.

    Raises:
        GameError: if a game cannot be reached or reset, and the other games stop; if two games share a screen.
    """
    check_games(games)
    # Play a tick of the simulator, so that no compilation delays a running fight.
    agent.rollout(make_game()).play(np.zeros(1, np.uint64), most_ticks=1)
    stop, lock = threading.Event(), threading.Lock()

    def finished(count: int) -> None:
        with lock:
            if on_finished:
                on_finished(count)

    def play_share(share: Seeds, settings: GameSettings) -> tuple[Episodes, PlayedGame]:
        with closing(open_live_game(settings, stoppable(stop))) as game:
            rollout = agent.rollout(game)
            episodes = rollout.play(share, finished)
            return episodes, PlayedGame(game.report(), rollout.replays, game.unknown_animations())

    shares = [share for share in np.array_split(seeds, len(games)) if len(share)]
    with ThreadPoolExecutor(len(shares)) as pool:
        playing = [pool.submit(play_share, share, settings) for share, settings in zip(shares, games, strict=False)]
        try:
            for future in as_completed(playing):
                future.result()
        finally:
            stop.set()
    parts, reports = zip(*(future.result() for future in playing), strict=True)
    return Episodes.join(parts), reports


def was_trained_on(run: RunFolder, scenario: str, skills: Sequence[str] | None = None) -> bool:
    """Return whether the run has a version of one of the skills, by default of any, trained on the scenario."""
    return any(card.training.scenario == scenario for card in cards_of(run, skills))


def load_artifacts(run: RunFolder, trained_on: str, skills: Sequence[str]) -> dict[str, Artifact]:
    """Load the versions that play after training on a scenario."""
    return {name: _load(run, name, version_in_play(run, name, trained_on)) for name in skills}


def load_networks(
    run: RunFolder, trained_on: str, skills: Sequence[Skill], scenario: Scenario
) -> dict[str, FrozenNetwork]:
    """Load the networks by which skills play in a scenario after training on `trained_on`."""
    artifacts = load_artifacts(run, trained_on, [skill.name for skill in skills])
    return {skill.name: artifacts[skill.name].network(skill, scenario) for skill in skills}


def _load(run: RunFolder, skill: str, version: int) -> Artifact:
    artifact = run.library.load(skill, version)
    run.library.check_upstream(artifact.card)
    return artifact


def check_library(run: RunFolder) -> list[SkillCard]:
    """Check every version of every skill as for playing, and return their cards in training order.

    Raises:
        SoulsGraphError: if one is damaged, cannot be read or does not fit the run.
    """
    scenario = load_scenario(run.plan.scenario)
    artifacts = [_load(run, card.skill, card.version) for card in cards_of(run)]
    for artifact in artifacts:
        artifact.network(make_skill(artifact.card.skill, run.plan.options), scenario)
    return [artifact.card for artifact in artifacts]


def started_at(scenario: Scenario, start: str | None) -> Scenario:
    """Return the scenario with another one of its starts.

    Raises:
        UnknownNameError: if the scenario has no start of that name.
    """
    if start is None:
        return scenario
    if start not in scenario.starts:
        raise UnknownNameError("start", start, scenario.starts)
    return replace(scenario, start=start)


def make_agent(run: RunFolder, setting: Setting) -> Agent:
    """Build a setting's agent from the run's library.

    Raises:
        SoulsGraphError: if a skill is missing or damaged, or a name unknown.
    """
    scenario = started_at(load_scenario(setting.scenario), setting.start)
    skills = tuple(make_skill(name, run.plan.options) for name in run.plan.skill_graph.order)
    trained = [skill for skill in skills if skill.name not in setting.randomize]
    networks = load_networks(run, setting.trained_on, trained, scenario)
    return Agent(scenario, skills, networks, dict.fromkeys(setting.randomize, "random"))


@dataclass(frozen=True)
class Evaluation:
    """One setting as it was evaluated: what played on which seeds, and how every episode ended.

    `origin` says what was evaluated, as plain values; `terms` names the columns of the episodes' reward terms.
    """

    origin: Mapping[str, Any]
    terms: tuple[str, ...]
    seeds: Seeds
    episodes: Episodes
    games: tuple[PlayedGame, ...] = ()

    @property
    def win_rate(self) -> WinRate:
        """The setting's row of a table of win rates."""
        origin = self.origin
        setting = f"{origin['scenario']} ({origin['start']}), skills of {origin['trained_on']}"
        setting += f", random: {', '.join(origin['randomized'])}" if origin["randomized"] else ""
        return WinRate(setting, int(self.episodes.won.sum()), len(self.episodes))

    @property
    def means(self) -> dict[str, float]:
        """Means over the episodes: of returns, lengths in decisions, and seconds of game time."""
        played = self.episodes
        means = played.returns.mean(), played.lengths.mean(), played.seconds.mean()
        return dict(zip(("mean_return", "mean_length", "mean_seconds"), map(float, means), strict=True))

    def lines(self) -> tuple[str, ...]:
        """Return what was evaluated, as lines for a reader."""
        origin = self.origin
        versions = ", ".join(f"{name} v{version}" for name, version in origin["versions"].items())
        trained = f"preset {origin['preset']}, training seed {origin['training_seed']}"
        return (
            f"{origin['run']}: {trained}, {versions or 'no skill of it'}",
            f"{len(self.seeds)} episodes of seed {origin['seed']}, start {origin['start']}, in {origin['played_in']}; "
            f"commit {origin['commit'] or 'unknown'}",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what was evaluated and its results as plain values; rates are ratios."""
        games = {"games": [game.to_dict() for game in self.games]} if self.games else {}
        return {**self.origin, **self.win_rate.to_dict(), **self.means, **games}

    def save(self, folder: Path) -> None:
        """Write `evaluation.json`, `evaluation.parquet` (the same in one row) and `episodes.parquet` (one row each).

        Raises:
            WriteError: if the place cannot be written.
        """
        row = {
            key: value if isinstance(value, str | int | float | None) else json.dumps(value)
            for key, value in self.to_dict().items()
        }
        write_episodes(folder / "episodes.parquet", {self.win_rate.setting: self.episodes}, self.terms, self.seeds)
        write_rows(folder / "evaluation.parquet", [row])
        write_json(folder / "evaluation.json", self.to_dict())


def evaluate(
    run: RunFolder,
    setting: Setting,
    episodes: int,
    seed: int = EVALUATION_SEED,
    games: Sequence[GameSettings] = (),
    on_finished: OnFinished | None = None,
) -> Evaluation:
    """Play a setting's evaluation episodes, in real-time games if any are given, and return what was played.

    Raises:
        SoulsGraphError: if a skill is missing or damaged, a name unknown, or a number out of range.
        GameError: if a game cannot be reached or reset.
    """
    seeds, agent = evaluation_seeds(seed, episodes), make_agent(run, setting)
    origin = {
        "run": str(run.path),
        "scenario": setting.scenario,
        "scenario_digest": scenario_digest(setting.scenario),
        "start": agent.scenario.start,
        "trained_on": setting.trained_on,
        "randomized": list(setting.randomize),
        "versions": {name: version_in_play(run, name, setting.trained_on) for name in agent.networks},
        "preset": run.plan.preset,
        "training_seed": run.plan.seed,
        "seed": seed,
        "played_in": f"{len(games)} real-time game{'s' * (len(games) > 1)}" if games else "the simulator",
        "commit": source_commit(),
    }
    if games:
        played, reports = play_in_games(agent, seeds, games, on_finished)
    else:
        played, reports = play(agent, seeds, on_finished), ()
    return Evaluation(origin, agent.skills[-1].reward.names, seeds, played, reports)


def allowed_rows(run: RunFolder) -> tuple[Row, ...]:
    """Return the rows of Table 1 that the run's skills allow, in the run's own scenario.

    A run on another scenario than the paper's first gets the ablations of part (a) only.
    """
    plan = run.plan
    order = plan.skill_graph.order
    missing = [name for name in order if not run.library.versions(name)]
    if missing:
        raise SoulsGraphError(
            f"{run.path}: expected every skill trained, found no {', '.join(missing)}; "
            f"train them first: {training_call(run, missing[0])}."
        )
    rows = [row for row in TABLE_1 if row.skill == order[-1]]
    if plan.scenario != TABLE_1[0].scenario:
        own = [row for row in rows if row.part == "a"]
        return tuple(replace(row, scenario=plan.scenario, trained_on=plan.scenario) for row in own)
    return tuple(row for row in rows if all(was_trained_on(run, row.trained_on, (name,)) for name in row.adapted))


def evaluate_rows(
    run: RunFolder, episodes: int, seed: int = EVALUATION_SEED, on_finished: OnFinished | None = None
) -> Mapping[Row, Episodes]:
    """Evaluate every row that the run allows, each on the same evaluation seeds."""
    return {row: evaluate(run, row, episodes, seed, on_finished=on_finished).episodes for row in allowed_rows(run)}


def win_rate(row: Row, episodes: Episodes, plan: Plan) -> WinRate:
    """Return an evaluated row for the table; the paper's figure stands beside it on the paper's scenario only."""
    papers = row.paper_percent if plan.scenario == TABLE_1[0].scenario else None
    return WinRate(row.label, int(episodes.won.sum()), len(episodes), papers)
