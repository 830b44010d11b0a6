"""Evaluate the skills of a run: in one setting, in every row of the paper's Table 1, and along their learning curves.

The curves are those of Figures 2 and 3: training drops the trained skill's weights as small files about every 1,000
decisions; a process beside it plays many of them in one batch of lanes, each lane with its own weights.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from rich.console import RenderableType
from safetensors.numpy import save

from soulsgraph.results.origin import describe_origin
from soulsgraph.results.statistics import Interval, WinRate, mean_interval
from soulsgraph.results.tables import Printed, WinRateTable, episode_rows, frame_of, write_episodes, write_rows
from soulsgraph.runs import lineage
from soulsgraph.runs.plan import lasting_name, scenario_digest
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.workers import WorkerLostError, WorkerProcess
from soulsgraph_envs.combat.rollout import Episodes, Rollout
from soulsgraph_envs.core.config import AnyPath, Between, check_arguments, to_json
from soulsgraph_envs.core.errors import reading
from soulsgraph_envs.core.extras import check_extra
from soulsgraph_envs.core.files import check_writable, whole_file, write_json
from soulsgraph_envs.core.game import Game
from soulsgraph_envs.core.scenario import Scenario, load_scenario, started_at
from soulsgraph_envs.core.seeds import Seeds, derive_seeds
from soulsgraph_envs.games.cycle_timer import CycleReport, stoppable
from soulsgraph_envs.games.link import GameSettings
from soulsgraph_envs.games.opening import check_games, make_game, open_live_game
from soulsgraph_envs.skills import END_TO_END, SKILL_NAMES, Skill, make_skill
from soulsgraph_policies.agents.agent import Agent, NetworkController
from soulsgraph_policies.agents.inference import FrozenNetwork, Weights
from soulsgraph_policies.agents.library import Artifact, SkillCard, read_tensors
from soulsgraph_policies.agents.projects import project_of

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
    #: The skills that were adapted to `trained_on`, and no others, for the row to mean what it says.
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
#: A number of evaluation episodes, and the seed of some.
EpisodeCount = Annotated[int, Between(1, 1_000_000)]
FightSeed = Annotated[int, Between(0, 2**63 - 1)]
#: Seed of the evaluation episodes unless asked otherwise: the same for every row and every run.
EVALUATION_SEED = 1_000_000
#: Lanes played at once: more gain nothing, the simulator and the networks are compiled.
LANES = 256
_EVALUATION_STREAM = 20
#: Called with the number of episodes that ended since its last call.
OnFinished = Callable[[int], None]


def evaluation_seeds(seed: int, episodes: int) -> Seeds:
    """Return the seeds of that many episodes, disjoint from training's."""
    return derive_seeds(int(derive_seeds(seed, _EVALUATION_STREAM)[0]), 0, np.arange(episodes))


def episode_means(episodes: Episodes, rows: slice = slice(None)) -> dict[str, float]:
    """Return means over some of the episodes by the names that a run's curves have for them; lengths in decisions."""
    columns = {"return": "returns", "length": "lengths", "seconds": "seconds", "win_rate": "won"}
    return {name: float(getattr(episodes, column)[rows].mean()) for name, column in columns.items()}


def source_of(run: RunFolder, scenario: str) -> str:
    """Return the scenario whose versions play in `scenario`: itself if trained on it, else the run's own.

    Raises:
        SoulsGraphError: if versions were trained by its name in another fight than it is now.
    """
    lineage.expect_unchanged(run, scenario)
    return scenario if lineage.cards_trained_on(run, scenario) else run.plan.scenario


def load_artifacts(run: RunFolder, trained_on: str, skills: Sequence[str]) -> dict[str, Artifact]:
    """Load the versions that play after training on a scenario."""
    return {name: run.library.load(name, lineage.version_in_play(run, name, trained_on)) for name in skills}


def load_networks(
    run: RunFolder, trained_on: str, skills: Sequence[Skill], scenario: Scenario
) -> dict[str, FrozenNetwork]:
    """Load the networks by which skills play in a scenario after training on `trained_on`."""
    artifacts = load_artifacts(run, trained_on, [skill.name for skill in skills])
    return {skill.name: artifacts[skill.name].network(skill, scenario) for skill in skills}


def check_library(run: RunFolder) -> list[SkillCard]:
    """Check every version of every skill as for playing, and return their cards in training order.

    Raises:
        SoulsGraphError: if one is damaged, cannot be read or does not fit the run.
    """
    scenario = load_scenario(run.plan.scenario)
    cards = lineage.cards_of(run)
    for card in cards:
        run.library.load(card.skill, card.version).network(make_skill(card.skill, run.plan.options), scenario)
    return cards


def make_agent(run: RunFolder, setting: Setting) -> Agent:
    """Build a setting's agent from the run's library.

    Raises:
        SoulsGraphError: if a skill is missing or damaged, or a name unknown.
    """
    scenario = started_at(load_scenario(setting.scenario), setting.start)
    run.plan.check_fight(setting.scenario)
    if setting.scenario == setting.trained_on:
        # It may have been edited since it was trained.
        lineage.expect_unchanged(run, setting.scenario)
    skills = tuple(make_skill(name, run.plan.options) for name in run.plan.skill_graph.order)
    trained = [skill for skill in skills if skill.name not in setting.ablated]
    networks = load_networks(run, setting.trained_on, trained, scenario)
    return Agent(scenario, skills, networks, dict.fromkeys(setting.ablated, "random"))


def make_upstream(run: RunFolder, names: Sequence[str], scenario: str | Scenario) -> NetworkController:
    """Return what plays the skills before a further one, in this order, as the run's versions do in a scenario.

    Raises:
        SoulsGraphError: if a skill is missing or damaged, or the name unknown.
    """
    trained_on = source_of(run, lasting_name(scenario)) if isinstance(scenario, str) else run.plan.scenario
    skills = [make_skill(name, run.plan.options) for name in names]
    fight = load_scenario(scenario) if isinstance(scenario, str) else scenario
    return NetworkController.upstream([*load_networks(run, trained_on, skills, fight).values()])


def play(
    agent: Agent, seeds: Seeds, on_finished: OnFinished | None = None, *, keep_decisions: bool = False
) -> Episodes:
    """Play one episode for each of `seeds` (n,) in the simulator and return them in the order of the seeds."""
    rollout = agent.rollout(make_game(lanes=min(LANES, len(seeds))))
    return rollout.play(seeds, on_finished, keep_decisions=keep_decisions)


def play_variants(agent: Agent, seeds: Seeds, variants: int) -> Episodes:
    """Play each of an agent's variants on the same `seeds` (n,), all in one batch; return them in this order."""
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
    agent: Agent,
    seeds: Seeds,
    games: Sequence[GameSettings],
    on_finished: OnFinished | None = None,
    rollout: Callable[[Game, GameSettings], Rollout] | None = None,
) -> tuple[Episodes, tuple[PlayedGame, ...]]:
    """Play one episode per seed on the games, a thread each; return the episodes in seed order, and how each game ran.

    `rollout` makes the rollout of each game, by default the agent's own.

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
            rolled = agent.rollout(game) if rollout is None else rollout(game, settings)
            episodes = rolled.play(share, finished)
            return episodes, PlayedGame(game.report(), rolled.replays, game.unknown_animations())

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


@dataclass(frozen=True, repr=False)
class FightResults(Printed):
    """The fights of an evaluation: how many were won, and every one as a row.

    `origin` says what was evaluated, as plain values; `terms` names the columns of the episodes' reward terms,
    `origins` has columns of where each episode came from: its seed, or its game and lane of a fleet.

    Example:
        results = soulsgraph.load("iudex-phase1-best-0").evaluate(episodes=400)
        results.win_rate, results.interval  # shares, with Wilson's 95 % interval
    """

    origin: Mapping[str, Any]
    terms: tuple[str, ...]
    origins: Mapping[str, Iterable[Any]]
    episodes: Episodes
    games: tuple[PlayedGame | FleetGame, ...] = ()

    @property
    def wins(self) -> WinRate:
        """The setting's row of a table of win rates."""
        origin = self.origin
        setting = f"{origin['scenario']} ({origin['start']}), skills of {origin['trained_on']}"
        setting += f", random: {', '.join(origin['ablated'])}" if origin["ablated"] else ""
        return WinRate.of(self.episodes.won, setting)

    @property
    def win_rate(self) -> float:
        """Share of the fights won."""
        return self.wins.rate

    @property
    def interval(self) -> Interval:
        """Wilson's 95 % interval of the win rate, as shares."""
        return self.wins.interval

    @cached_property
    def frame(self) -> Any:
        """A data frame with a row a fight: seed, won, died, length in decisions, seconds, HP left, return, terms."""
        return frame_of(episode_rows(self.wins.setting, self.episodes, self.terms, self.origins))

    @property
    def means(self) -> dict[str, float]:
        """Means over the episodes: of returns, lengths in decisions, and seconds of game time."""
        means = episode_means(self.episodes)
        return {f"mean_{name}": means[name] for name in ("return", "length", "seconds")}

    def to_dict(self) -> dict[str, Any]:
        """Return what was evaluated and its results as plain values; rates are ratios."""
        games = {"games": [game.to_dict() for game in self.games]} if self.games else {}
        return {**self.origin, **self.wins.to_dict(), **self.means, **games}

    def to_rich(self) -> list[RenderableType]:
        """Return what was evaluated, the share of fights won, and means."""
        origin, means = self.origin, self.means
        versions = ", ".join(f"{name} v{version}" for name, version in origin["versions"].items())
        trained = f"preset {origin['preset']}, training seed {origin['training_seed']}"
        chosen = f" of seed {origin['seed']}"
        if origin["seed"] is None:
            lost = f" ({origin['lost']} of these were lost with their games)" if origin["lost"] else ""
            chosen = f", {origin['asked']} asked for and those under way when they had ended{lost}, "
            chosen += "seeds of the games' own"
        return [
            f"{origin['run']}: {trained}, {versions or 'no skill of it'}",
            f"{len(self.episodes)} episodes{chosen}, start {origin['start']}, in {origin['played_in']}; "
            f"commit {origin['commit'] or 'unknown'}",
            *WinRateTable("", (self.wins,)).to_rich(),
            f"mean return {means['mean_return']:.2f}, mean length {means['mean_length']:.0f} decisions, "
            f"{means['mean_seconds']:.1f} s",
            *(f"game {number}: {report}" for number, report in enumerate(self.games, 1)),
        ]

    @check_arguments
    def save(self, folder: AnyPath) -> Path:
        """Write `evaluation.json`, `evaluation.parquet` (the same in one row) and `episodes.parquet` (one row each).

        Return the folder; raises WriteError if the place cannot be written.
        """
        check_extra("results in files", "data")
        check_writable(path := Path(folder))
        plain = self.to_dict()
        row = {name: value if isinstance(value, str | int | float | None) else to_json(value)
               for name, value in plain.items()}  # fmt: skip
        write_episodes(path / "episodes.parquet", {self.wins.setting: self.episodes}, self.terms, self.origins)
        write_rows(path / "evaluation.parquet", [row])
        write_json(path / "evaluation.json", plain)
        return path


def evaluate(
    run: RunFolder,
    setting: Setting,
    episodes: int,
    seed: int = EVALUATION_SEED,
    place: Place = (),
    on_finished: OnFinished | None = None,
) -> FightResults:
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
        return FightResults(origin, terms, origins, play(agent, seeds, on_finished))
    if isinstance(place, Sequence):
        played, reports = play_in_games(agent, seeds, place, on_finished)
        origin["played_in"] = f"{len(place)} real-time game{'s' * (len(place) > 1)}"
        return FightResults(origin, terms, origins, played, reports)
    fleet = _play_in_fleet(run, setting, agent, episodes, seed, place, on_finished)
    origin |= {"seed": None, "played_in": ", ".join(game.title for game in fleet.games)}
    origin |= {"asked": episodes, "lost": fleet.lost}
    by_game = {"game": fleet.names, "lane": fleet.episodes.lanes.tolist()}
    return FightResults(origin, terms, by_game, fleet.episodes, fleet.games)


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
    weights = {name: artifact.weights for name, artifact in artifacts.items()}
    with sole_head(fleet):
        return play_in_fleet(fleet, task, weights, episodes, on_finished, seed)


def allowed_rows(run: RunFolder) -> tuple[WinRateRow, ...]:
    """Return the rows of Table 1 that the run's skills allow, in the run's own scenario.

    Another scenario than the paper's first has the ablations of part (a) only; a project's graph has its own rows.
    """
    home, graph = run.plan.scenario, run.plan.skill_graph
    if project_of(run.plan.graph):
        # Each skill of the project's, and each that nothing is built on, in turn at random.
        random = [name for name in graph.order if name in graph.leaves or name not in SKILL_NAMES]
        settings = {"every skill trained": (), **{f"{name} random": (name,) for name in random}}
        return tuple(WinRateRow(home, home, "mid", names, label, "a") for label, names in settings.items())
    rows = [row for row in TABLE_1 if row.skill == graph.order[-1]]
    if home != TABLE_1[0].scenario:
        own = [row for row in rows if row.part == "a"]
        return tuple(replace(row, scenario=home, trained_on=home, paper_percent=None) for row in own)
    return tuple(filter(None, (_as_adapted(run, row) for row in rows)))


def _as_adapted(run: RunFolder, row: WinRateRow) -> WinRateRow | None:
    """Return the row by the skills that were adapted: the paper's where they are its own, None where none was."""
    adapted = lineage.cards_trained_on(run, row.trained_on) if row.adapted else []
    found = tuple(dict.fromkeys(card.skill for card in adapted))
    if found == row.adapted:
        return row
    named = " and ".join(name.replace("_", "-") for name in found)
    return replace(row, label=f"{named} fine-tuned", paper_percent=None, adapted=found) if found else None


def table_inputs(run: RunFolder, episodes: int, seed: int) -> dict[str, Any]:
    """Return what determines the rows of a run's table: the fights, the versions that play in them, the episodes."""
    rows, order = allowed_rows(run), run.plan.skill_graph.order
    fights, homes = dict.fromkeys(row.scenario for row in rows), dict.fromkeys(row.trained_on for row in rows)
    return {
        "episodes": episodes,
        "seed": seed,
        "rows": [row.label for row in rows],
        "fights": {fight: scenario_digest(fight) for fight in fights},
        "versions": {
            home: {name: run.library.card(name, lineage.version_in_play(run, name, home)).digest for name in order}
            for home in homes
        },
    }


#: Decisions between two checkpoints, and episodes each is played for (Figures 2 and 3).
CHECKPOINT_INTERVAL = 1_000
EPISODES = 5
#: The same evaluation episodes for every checkpoint of every run.
CURVE_SEED = 5_000_000
_BATCH = 20
_PREFIX = "step-"


class CurvePoint(NamedTuple):
    """One checkpoint on its learning curve: metrics by the names that a run's curves have for them.

    `low` and `high` are the ends of the 95 % t interval of the mean return over episodes.
    """

    step: int
    metrics: dict[str, float]


def curve_metrics(episodes: Episodes, rows: slice = slice(None)) -> dict[str, float]:
    """Return the metrics of a point on a learning curve, of some of the episodes."""
    means = episode_means(episodes, rows)
    return {"return": means["return"], **mean_interval(episodes.returns[rows]).columns(), **means}


#: Steps, each with the weights of the skills that learned by their names.
Checkpoints = Sequence[tuple[int, Mapping[str, Weights]]]


def evaluate_checkpoints(agent: Agent, clip: float, checkpoints: Checkpoints) -> list[CurvePoint]:
    """Play every checkpoint greedily, all in one batch of lanes; `clip` bounds what their networks see."""
    agent = with_variants(agent, clip, [weights for _, weights in checkpoints])
    played = play_variants(agent, evaluation_seeds(CURVE_SEED, EPISODES), len(checkpoints))
    points = []
    for index, (step, _) in enumerate(checkpoints):
        rows = slice(index * EPISODES, (index + 1) * EPISODES)
        points.append(CurvePoint(step, curve_metrics(played, rows)))
    return points


def with_variants(agent: Agent, clip: float, learned: Sequence[Mapping[str, Weights]]) -> Agent:
    """Return the agent in several variants, each with weights of its own of the skills that learned."""
    networks = {
        skill.name: [FrozenNetwork.of(skill, agent.scenario, weights[skill.name], clip) for weights in learned]
        for skill in agent.skills
        if skill.name in learned[0]
    }
    return agent.playing(networks)


class CurveEvaluator:
    """Keep a stage's checkpoints on disk and evaluate them, by a `worker` while training goes on.

    A stage that is itself one of many tasks evaluates them in its own process, as the other cores are busy.
    Pass the steps whose points are known to `take_up`: a resumed stage evaluates only the others.
    """

    def __init__(self, folder: Path, agent: Agent, clip: float, worker: WorkerProcess | None = None) -> None:
        self._folder, self._agent, self._clip, self._worker = folder, agent, clip, worker
        if worker is not None:
            worker.forget()
        #: Checkpoints that nobody plays yet, and those that are played.
        self._waiting: list[tuple[int, Mapping[str, Weights]]] = []
        self._playing: Checkpoints = ()
        self._ready: list[CurvePoint] = []

    def take_up(self, known: set[int], reached: int) -> None:
        """Continue from a stage's checkpoints on disk: delete those beyond `reached`, evaluate those not yet `known`.

        Raises:
            SoulsGraphError: if one is damaged.
        """
        for step, path in checkpoint_files(self._folder).items():
            if step > reached:
                path.unlink()
            elif step not in known:
                self._waiting.append((step, load_checkpoint(path)))

    def add(self, step: int, weights: Mapping[str, Weights]) -> None:
        """Keep a checkpoint, weights by skill, and evaluate it once a batch is full and the one before is done.

        Raises:
            WriteError: if the folder cannot be written.
        """
        kept = {skill: {name: np.array(values) for name, values in own.items()} for skill, own in weights.items()}
        save_checkpoint(self._folder, step, kept)
        self._waiting.append((step, kept))
        if self._worker is not None:
            self._worker.start()
        if len(self._waiting) >= _BATCH and not self._playing:
            self._submit()

    def collect(self) -> list[CurvePoint]:
        """Return the points that are ready, without waiting."""
        if self._playing and (self._worker is None or self._worker.answered):
            self._receive()
        points, self._ready = self._ready, []
        return points

    def finish(self) -> list[CurvePoint]:
        """Wait for every outstanding point and return them."""
        while self._playing or self._waiting:
            if not self._playing:
                self._submit()
            self._receive()
        return self.collect()

    def _submit(self) -> None:
        self._playing, self._waiting = self._waiting, []
        if self._worker is not None:
            self._worker.submit(evaluate_checkpoints, self._agent, self._clip, self._playing)

    def _receive(self) -> None:
        """Take the points from the worker; without one, and where it is lost, play them here."""
        points: list[CurvePoint] | None = None
        if self._worker is not None:
            with suppress(WorkerLostError):
                points = self._worker.result()
        self._ready += evaluate_checkpoints(self._agent, self._clip, self._playing) if points is None else points
        self._playing = ()


def checkpoint_files(folder: Path) -> dict[int, Path]:
    """Return the files of a stage's checkpoints by their step, in order; none where the folder is missing."""
    return {int(path.stem.removeprefix(_PREFIX)): path for path in sorted(folder.glob(f"{_PREFIX}*.safetensors"))}


def save_checkpoint(folder: Path, step: int, weights: Mapping[str, Weights]) -> None:
    """Write the checkpoint of a step, weights by skill.

    Raises:
        WriteError: if the folder cannot be written.
    """
    with whole_file(folder / f"{_PREFIX}{step:09d}.safetensors") as temporary:
        named = {f"{skill}/{name}": values for skill, own in weights.items() for name, values in own.items()}
        temporary.write_bytes(save(named))


def load_checkpoint(path: Path) -> dict[str, Weights]:
    """Read one checkpoint, weights by skill.

    Raises:
        SoulsGraphError: if it is damaged or cannot be read.
    """
    with reading(path):
        content = path.read_bytes()
    weights: dict[str, Weights] = {}
    for name, values in read_tensors(content, path, "remove it: its point leaves the curve").items():
        skill, _, plain = name.partition("/")
        weights.setdefault(skill, {})[plain] = values
    return weights
