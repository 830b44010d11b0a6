"""Evaluate the skills of a run, the rows of the paper's Table 1 among the settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from soulsgraph.results.files import describe_origin
from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import write_episodes, write_rows
from soulsgraph.runs import lineage
from soulsgraph.runs.identity import Key
from soulsgraph.runs.plan import Plan, check_range, scenario_digest
from soulsgraph.runs.real_time import OnFinished, PlayedGame, play_in_games
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.worker_process import WorkerLostError, WorkerProcess
from soulsgraph_envs.combat.rollout import Episodes
from soulsgraph_envs.core.config import to_json
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import write_json
from soulsgraph_envs.core.scenario import Scenario, load_scenario, started_at
from soulsgraph_envs.core.seeds import Seeds, derive_seeds, episode_seeds
from soulsgraph_envs.games.link import GameSettings
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.skills import END_TO_END, Skill, make_skill
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.inference import FrozenNetwork
from soulsgraph_policies.agents.library import Artifact, SkillCard
from soulsgraph_policies.agents.projects import LoadedProject, loaded_projects, take_over

if TYPE_CHECKING:
    from soulsgraph_clusters.fleet.learner.evaluation import FleetFights, FleetGame
    from soulsgraph_clusters.fleet.protocol.settings import Fleet

    #: Where episodes are played: games of this machine, or a fleet's; the simulator if there are none.
    Place = Sequence[GameSettings] | Fleet


@dataclass(frozen=True)
class Setting:
    """What is evaluated: a scenario and start, the skill versions that play, the skills ablated (by random play).

    The versions are those in play after training on `trained_on`; where that is not `scenario`, it is zero-shot
    transfer.
    """

    scenario: str
    trained_on: str
    start: str | None = None
    ablated: tuple[str, ...] = ()


@dataclass(frozen=True)
class WinRateRow(Setting):
    """A setting of a table of win rates, and what the paper reports of it."""

    start: str = "mid"
    label: str = ""
    part: str = ""
    #: None where the paper reports nothing.
    paper_percent: float | None = None
    skill: str = "heal_attack"
    #: Skills that must have been adapted to `trained_on` for the row to mean what it says.
    adapted: tuple[str, ...] = ()


_PHASE_1, _PHASE_2 = "iudex-phase1", "iudex-phase2"

TABLE_1 = (
    WinRateRow(_PHASE_1, _PHASE_1, "mid", ("heal_attack", "dodge"), "heal-attack random, dodge random", "a", 0.0),
    WinRateRow(_PHASE_1, _PHASE_1, "mid", ("heal_attack",), "heal-attack random, dodge trained", "a", 4.0),
    WinRateRow(_PHASE_1, _PHASE_1, "mid", ("dodge",), "heal-attack trained, dodge random", "a", 16.0),
    WinRateRow(_PHASE_1, _PHASE_1, "mid", (), "heal-attack trained, dodge trained", "a", 44.0),
    WinRateRow(_PHASE_1, _PHASE_1, "mid", (), "single end-to-end agent", "a", 0.0, skill=END_TO_END),
    WinRateRow(_PHASE_2, _PHASE_1, "mid", (), "zero-shot, mid-range start", "b", 33.3),
    WinRateRow(_PHASE_2, _PHASE_1, "long", (), "zero-shot, long-range start", "b", 12.5),
    WinRateRow(
        _PHASE_2, _PHASE_2, "mid", (), "dodge and heal-attack fine-tuned", "b", 52.0, adapted=("dodge", "heal_attack")
    ),
)


#: Seed of the evaluation episodes unless asked otherwise: the same for every row and every run.
EVALUATION_SEED = 1_000_000
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
    """Return the seeds of that many episodes, disjoint from training's; raises as `check_evaluation` does."""
    check_evaluation(seed, episodes)
    return episode_seeds(int(derive_seeds(seed, _EVALUATION_STREAM)[0]), 0, np.arange(episodes))


def play(
    agent: Agent, seeds: Seeds, on_finished: OnFinished | None = None, *, keep_decisions: bool = False
) -> Episodes:
    """Play one episode for each of `seeds` (n,) in the simulator and return them in the order of the seeds."""
    rollout = agent.rollout(make_game(lanes=min(LANES, len(seeds))))
    return rollout.play(seeds, on_finished, keep_decisions=keep_decisions)


def play_variants(agent: Agent, seeds: Seeds, variants: int) -> Episodes:
    """Play each of an agent's variants on the same `seeds` (n,), all in one batch; return them in this order."""
    return agent.rollout(make_game(lanes=variants * len(seeds))).play(np.tile(seeds, variants))


def was_trained_on(run: RunFolder, scenario: str, skills: Sequence[str] | None = None) -> bool:
    """Return whether the run has a version of one of the skills, by default of any, trained in a scenario's fight."""
    return any(skills is None or card.skill in skills for card in lineage.cards_trained_on(run, scenario))


def source_of(run: RunFolder, scenario: str) -> str:
    """Return the scenario whose versions play in `scenario`: itself if trained on it, else the run's own.

    Raises:
        SoulsGraphError: if versions were trained by its name in another fight than it is now.
    """
    if was_trained_on(run, scenario):
        return scenario
    lineage.expect_unchanged(run, scenario)
    return run.plan.scenario


def load_artifacts(run: RunFolder, trained_on: str, skills: Sequence[str]) -> dict[str, Artifact]:
    """Load the versions that play after training on a scenario."""
    return {name: _load(run, name, lineage.version_in_play(run, name, trained_on)) for name in skills}


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
    artifacts = [_load(run, card.skill, card.version) for card in lineage.cards_of(run)]
    for artifact in artifacts:
        artifact.network(make_skill(artifact.card.skill, run.plan.options), scenario)
    return [artifact.card for artifact in artifacts]


def make_agent(run: RunFolder, setting: Setting) -> Agent:
    """Build a setting's agent from the run's library.

    Raises:
        SoulsGraphError: if a skill is missing or damaged, or a name unknown.
    """
    scenario = started_at(load_scenario(setting.scenario), setting.start)
    run.plan.check_fight(setting.scenario)
    if setting.scenario.endswith(".toml"):
        # It may have been edited since the run was opened.
        lineage.expect_own_fight(run, setting.scenario)
    skills = tuple(make_skill(name, run.plan.options) for name in run.plan.skill_graph.order)
    trained = [skill for skill in skills if skill.name not in setting.ablated]
    networks = load_networks(run, setting.trained_on, trained, scenario)
    return Agent(scenario, skills, networks, dict.fromkeys(setting.ablated, "random"))


@dataclass(frozen=True)
class Evaluation:
    """One setting as it was evaluated: what played, and how every episode ended.

    `origin` says what was evaluated, as plain values; `terms` names the columns of the episodes' reward terms,
    `origins` has columns of where each episode came from: its seed, or its game and lane of a fleet.
    """

    origin: Mapping[str, Any]
    terms: tuple[str, ...]
    origins: Mapping[str, Iterable[Any]]
    episodes: Episodes
    games: tuple[PlayedGame | FleetGame, ...] = ()

    @property
    def win_rate(self) -> WinRate:
        """The setting's row of a table of win rates."""
        origin = self.origin
        setting = f"{origin['scenario']} ({origin['start']}), skills of {origin['trained_on']}"
        setting += f", random: {', '.join(origin['ablated'])}" if origin["ablated"] else ""
        return WinRate.of(self.episodes.won, setting)

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
            f"{len(self.episodes)} episodes{self._chosen}, start {origin['start']}, in {origin['played_in']}; "
            f"commit {origin['commit'] or 'unknown'}",
        )

    @property
    def _chosen(self) -> str:
        """How the episodes were chosen."""
        origin = self.origin
        if origin["seed"] is not None:
            return f" of seed {origin['seed']}"
        lost = f" ({origin['lost']} of these were lost with their games)" if origin["lost"] else ""
        return f", {origin['asked']} asked for and those under way when they had ended{lost}, seeds of the games' own"

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
            key: value if isinstance(value, str | int | float | None) else to_json(value)
            for key, value in self.to_dict().items()
        }
        write_episodes(folder / "episodes.parquet", {self.win_rate.setting: self.episodes}, self.terms, self.origins)
        write_rows(folder / "evaluation.parquet", [row])
        write_json(folder / "evaluation.json", self.to_dict())


def evaluate(
    run: RunFolder,
    setting: Setting,
    episodes: int,
    seed: int = EVALUATION_SEED,
    place: Place = (),
    on_finished: OnFinished | None = None,
) -> Evaluation:
    """Play a setting's evaluation episodes, in real-time games if any are given, and return what was played.

    A fleet's games play by seeds of their own, and every fight counts that began before the last of them had ended.

    Raises:
        SoulsGraphError: if a skill is missing or damaged, a name unknown, or a number out of range.
        GameError: if a game cannot be reached or reset.
    """
    seeds, agent, here = evaluation_seeds(seed, episodes), make_agent(run, setting), describe_origin()
    origin = {
        "run": str(run.path),
        "scenario": setting.scenario,
        "scenario_digest": scenario_digest(setting.scenario),
        "start": agent.scenario.start,
        "trained_on": setting.trained_on,
        "ablated": list(setting.ablated),
        "versions": {name: lineage.version_in_play(run, name, setting.trained_on) for name in agent.networks},
        "preset": run.plan.preset,
        "training_seed": run.plan.seed,
        "seed": seed,
        "played_in": "the simulator",
        "commit": here["commit"],
        # `versions` are those of the skills.
        "packages": here["versions"],
        "machine": here["machine"],
    }
    terms, origins = agent.skills[-1].reward.names, {"seed": seeds}
    if not place:
        return Evaluation(origin, terms, origins, play(agent, seeds, on_finished))
    if isinstance(place, Sequence):
        played, reports = play_in_games(agent, seeds, place, on_finished)
        origin["played_in"] = f"{len(place)} real-time game{'s' * (len(place) > 1)}"
        return Evaluation(origin, terms, origins, played, reports)
    found = _play_in_fleet(run, setting, agent, episodes, seed, place, on_finished)
    origin |= {"seed": None, "played_in": ", ".join(game.title for game in found.games)}
    origin |= {"asked": episodes, "lost": found.lost}
    by_game = {"game": found.names, "lane": found.episodes.lanes.tolist()}
    return Evaluation(origin, terms, by_game, found.episodes, found.games)


def _play_in_fleet(
    run: RunFolder,
    setting: Setting,
    agent: Agent,
    episodes: int,
    seed: int,
    fleet: Fleet,
    on_finished: OnFinished | None,
) -> FleetFights:
    # Imported here: nothing else of this needs a fleet's libraries.
    from soulsgraph_clusters.fleet.learner.evaluation import play_in_fleet
    from soulsgraph_clusters.fleet.protocol.settings import sole_head
    from soulsgraph_clusters.fleet.protocol.task import StageTask, digests_of_skills

    artifacts = load_artifacts(run, setting.trained_on, tuple(agent.networks))
    clips = {name: artifact.card.observation_clip for name, artifact in artifacts.items()}
    plays = {skill.name: skill.name for skill in agent.skills}
    start, drawn = agent.scenario.start, setting.ablated
    projects = digests_of_skills(plays)
    task = StageTask(setting.scenario, plays, {}, 1.0, run.plan.options, start, drawn, projects, clips)
    weights = {name: artifact.playing for name, artifact in artifacts.items()}
    with sole_head(fleet):
        return play_in_fleet(fleet, task, weights, episodes, on_finished, seed)


def allowed_rows(run: RunFolder) -> tuple[WinRateRow, ...]:
    """Return the rows of Table 1 that the run's skills allow, in the run's own scenario.

    Another scenario than the paper's first has the ablations of part (a) only; a project's graph has its own rows.
    """
    plan = run.plan
    order = plan.skill_graph.order
    missing = [name for name in order if not run.library.versions(name)]
    if missing:
        raise SoulsGraphError(
            f"{run.path}: expected every skill trained, found no {', '.join(missing)}",
            lineage.train_first(run, missing[0], "them"),
        )
    if settings := plan.own_settings:
        home = plan.scenario
        return tuple(
            WinRateRow(home, home, "mid", names, label, "a", skill=order[-1]) for label, names in settings.items()
        )
    rows = [row for row in TABLE_1 if row.skill == order[-1]]
    if plan.scenario != TABLE_1[0].scenario:
        own = [row for row in rows if row.part == "a"]
        return tuple(replace(row, scenario=plan.scenario, trained_on=plan.scenario) for row in own)
    return tuple(row for row in rows if all(was_trained_on(run, row.trained_on, (name,)) for name in row.adapted))


def table_key(run: RunFolder) -> Key:
    """Return what determines the rows of a run's table: the fights, and the versions that play in them."""
    rows = allowed_rows(run)
    played = {row.trained_on: load_artifacts(run, row.trained_on, run.plan.skill_graph.order) for row in rows}
    return Key(
        {
            "fights": {row.scenario: scenario_digest(row.scenario) for row in rows},
            "versions": {
                home: {name: one.card.digest for name, one in artifacts.items()} for home, artifacts in played.items()
            },
        }
    )


def evaluate_rows(
    run: RunFolder,
    episodes: int,
    seed: int = EVALUATION_SEED,
    on_finished: OnFinished | None = None,
    worker: WorkerProcess | None = None,
) -> Mapping[WinRateRow, Episodes]:
    """Evaluate every row that the run allows, each on the same evaluation seeds; a `worker` that runs plays half."""
    rows, on_finished = allowed_rows(run), on_finished or (lambda _: None)
    played: dict[WinRateRow, Episodes] = {}
    if worker is not None and worker.running:
        worker.forget()
        theirs, projects = [*rows[1::2]], tuple(loaded_projects().values())
        for row in theirs:
            worker.submit(_play_row_elsewhere, projects, run, row, episodes, seed)
        try:
            for row in rows[::2]:
                played[row] = _play_row(run, row, episodes, seed, on_finished)
                # A pipe holds few answers.
                while theirs and worker.answered:
                    _take(played, theirs, worker, on_finished)
            while theirs:
                _take(played, theirs, worker, on_finished)
        except WorkerLostError:
            pass
        finally:
            worker.forget()
    missing = [row for row in rows if row not in played]
    played |= {row: _play_row(run, row, episodes, seed, on_finished) for row in missing}
    return {row: played[row] for row in rows}


def _take(
    played: dict[WinRateRow, Episodes], theirs: list[WinRateRow], worker: WorkerProcess, on_finished: OnFinished
) -> None:
    """Take the worker's next answer, that of the first of its rows."""
    played[theirs[0]] = worker.result()
    on_finished(len(played[theirs.pop(0)]))


def _play_row_elsewhere(projects: Sequence[LoadedProject], run: RunFolder, *words: Any) -> Episodes:
    """Play a row in a process that has not imported the code of projects."""
    take_over(projects)
    return _play_row(run, *words)


def _play_row(
    run: RunFolder, row: WinRateRow, episodes: int, seed: int, on_finished: OnFinished | None = None
) -> Episodes:
    return evaluate(run, row, episodes, seed, on_finished=on_finished).episodes


def win_rate(row: WinRateRow, episodes: Episodes, plan: Plan) -> WinRate:
    """Return an evaluated row for the table; the paper's figure stands beside it on the paper's scenario only."""
    papers = row.paper_percent if plan.scenario == TABLE_1[0].scenario else None
    return WinRate.of(episodes.won, row.label, papers)
