"""The Python interface: train, open and load runs; evaluate, adapt and watch them, in a script or a notebook.

The commands of the same names are these functions: `soulsgraph.cli` makes their parameters options, and prints what
they return.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, fields, replace
from functools import cache, cached_property
from pathlib import Path
from re import fullmatch
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import gymnasium
from rich.console import Console, RenderableType

from soulsgraph.api.playing import FightFilm, FightPage, SkillPolicy, TrainedAgent, check_film, show_fights
from soulsgraph.paper.study import ADAPTED, SHIFTED
from soulsgraph.results.tables import OutputConsole, Printed, WinRateTable, frame_of, text_table
from soulsgraph.runs import evaluate as evaluating
from soulsgraph.runs import lineage
from soulsgraph.runs.evaluate import EVALUATION_SEED, EpisodeCount, FightResults, FightSeed
from soulsgraph.runs.places import TrainingPlace
from soulsgraph.runs.plan import Plan, Stage, check_learns, lasting_name, overrides_for
from soulsgraph.runs.progress import resumable, silence_advice, stage_progress
from soulsgraph.runs.run_folder import RunFolder, RunFolderError, check_given
from soulsgraph.runs.workers import WorkerProcess, load_playing, precompile
from soulsgraph.tracking.board import USUAL, make_trackers, names_in
from soulsgraph.tracking.contract import Tracker
from soulsgraph.tracking.metrics import FINAL_WIN_RATE
from soulsgraph.tracking.wandb_tracker import PROJECT
from soulsgraph.zoo import AGENTS, agent_names, copy_agent, is_agent, open_agent, open_run, refuse_agent
from soulsgraph_envs.core.config import EACH_ONCE, AnyPath, Between, Keywords, check_arguments, listed
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.extras import check_extra
from soulsgraph_envs.core.files import check_writable, slug, temporary_folder
from soulsgraph_envs.core.scenario import load_boss, load_scenario, scenario_names
from soulsgraph_envs.core.terminal import uninterrupted
from soulsgraph_envs.games.link import load_games
from soulsgraph_envs.skills import END_TO_END, SKILL_NAMES, load_skill_options
from soulsgraph_policies.agents.projects import load_installed, load_project
from soulsgraph_policies.learning.hyperparameters import OPTION_NAMES, PRESETS

if TYPE_CHECKING:
    from soulsgraph.tracking.board import Board
    from soulsgraph.watch.watching import Fight
    from soulsgraph_policies.learning.own_learner import LearnerFactory

T = TypeVar("T")
_TICK_S, _LONGEST_S = 0.1, 120.0
_Names = str | Annotated[Sequence[str], EACH_ONCE]
_Learners = Mapping[str, Callable[..., Any]]
_Trackers = str | Tracker | Sequence[str | Tracker]
#: Fields of a plan that tell a run from others.
_SHOWN = ("scenario", "preset", "graph", "seed")
_VERSIONS = ("skill", "version", "trained on", "decisions", "upstream")
#: What further keywords of a training are.
OPTIONS = "Options of the learner to change: gamma=0.98 n_step=3; of one skill alone dodge.gamma=0.99."
_NAMESPACE, _WHOLE = "soulsgraph/", "EndToEnd-v0"


@check_arguments
@resumable()
def train(
    skill: str | None = None,
    *,
    run: AnyPath = "runs/curriculum",
    project: AnyPath | None = None,
    learners: _Learners | None = None,
    track: _Trackers = USUAL,
    quiet: bool = False,
    **options: Annotated[Any, Keywords((TrainingPlace, Plan), ("learners", "overrides"), OPTIONS)],
) -> Run:
    """Train all skills of a graph, in graph order, and evaluate them; or one skill, on top of the run's library.

    The same call again goes on: what is finished stays, what was interrupted resumes from its checkpoint. A bar shows
    how far it is.

    Args:
        skill: Skill to train alone; the skills upstream of it must be in the run's library.
        run: Run folder, begun if it does not exist.
        project: Folder of a project with skills of your own; not needed for installed projects.
        learners: Learners of your own, each by the skill that it trains (`SkillLearner`); the others learn as usual.
        track: Trackers of the run, separated by commas: tensorboard, wandb, mlflow, or none; from Python also objects
            of your own, ["mlflow", MyTracker()].
        quiet: Print nothing.
        options: Fields of `Plan` (preset, scenario, graph, seed, scale ...), where it takes place (env_runners,
            address, games, fleet ...), and options of the learner: gamma=0.98, or those of one skill as
            dodge={"gamma": 0.99}.

    Raises:
        SoulsGraphError: for a name, value or folder that cannot be used, before anything is begun.
        Interruption: if a stop was asked for (Ctrl-C, a notebook's stop button); a checkpoint to go on from is saved.

    Example:
        run = soulsgraph.train(preset="best", scenario="vordt", seed=1, run="runs/vordt", gamma=0.98)
    """
    check_extra("train", "train")
    know_projects(project)
    place, planned = parted(TrainingPlace, options)
    own, trackers, console = dict(learners or {}), make_trackers(track), OutputConsole(quiet=quiet)
    folder = open_or_plan(Path(run), planned | ({"learners": _names_of(own)} if own else {}))
    stages = lineage.own_stages(folder) if skill is None else (lineage.own_stage(folder, skill),)
    # Before the run is begun, and anything starts.
    check_learns(folder.plan, lineage.unfinished(folder, stages))
    if skill is None:
        told = [watched_in(name, folder) for name in (names_in(track) if isinstance(track, str) else ())]
        console.print("; ".join([f"run folder {folder.path}", *told]))
    elif folder.begun:
        lineage.frozen_versions(folder, stages[0])
    elif upstream := folder.plan.skill_graph.upstream(skill):
        found = f"expected a run with {', '.join(upstream)} trained, found no run; train {upstream[0]} first."
        raise SoulsGraphError(f"{run}: {found}")
    _train_stages(folder, stages, place, console, trackers, own, evaluated=skill is None)
    return Run(folder)


@check_arguments
def open(run: AnyPath, project: AnyPath | None = None) -> Run:
    """Open a run folder, in training or finished; `project` is the folder of skills of your own that it has.

    Raises:
        SoulsGraphError: if it is no run, or one that cannot be read.

    Example:
        soulsgraph.open("runs/curriculum").evaluate()
    """
    know_projects(project)
    return Run(open_run(Path(run)))


@check_arguments
def load(name: str) -> Run:
    """Load a trained agent of the zoo; `agents()` names them.

    Raises:
        UnknownNameError: if there is no agent of that name.

    Example:
        agent = soulsgraph.load("iudex-phase1-best-0")
        agent.skills["dodge"].q(observation)
    """
    return Run(open_agent(name))


@check_arguments
def make(name: str = "dodge", num_envs: Annotated[int, Between(1, 100_000)] | None = None, **options: Any) -> Any:
    """Make a Gymnasium environment of a skill (dodge), of the whole fight (end-to-end), or by its id.

    With `num_envs` it is a vector environment of that many lanes of one simulator. `options` are the environment's own:
    scenario, render_mode.

    Raises:
        UnknownNameError: for a name that is neither a skill nor an environment.

    Example:
        environment = soulsgraph.make("heal_attack", scenario="vordt", render_mode="rgb_array")
    """
    known = [id.removeprefix(_NAMESPACE) for id in gymnasium.registry if id.startswith(_NAMESPACE)]
    own: dict[str, Any] = {"skill": name} if name in SKILL_NAMES else {}
    id = "Skill-v0" if own else _WHOLE if name in ("end-to-end", END_TO_END) else name.removeprefix(_NAMESPACE)
    if own.keys() & options:
        raise SoulsGraphError("soulsgraph.make: expected no `skill` beside its name, found one; leave it out.")
    if id not in known:
        raise UnknownNameError("skill or environment", name, (*SKILL_NAMES, "end-to-end", *known))
    if num_envs is None:
        return gymnasium.make(f"{_NAMESPACE}{id}", **own, **options)
    return gymnasium.make_vec(f"{_NAMESPACE}{id}", num_envs, **own, **options)


def agents() -> tuple[str, ...]:
    """Return the names of the trained agents that `load` takes."""
    return agent_names()


def presets() -> tuple[str, ...]:
    """Return the names of the ways to learn that `train` takes."""
    return tuple(PRESETS)


def scenarios() -> tuple[str, ...]:
    """Return the names of the fights that come with the package."""
    return tuple(scenario_names())


class Run(Printed):
    """A run folder, or an agent of the zoo: what was trained, and how it plays.

    Example:
        run = soulsgraph.open("runs/curriculum")
        run.evaluate(scenario="vordt").win_rate
    """

    def __init__(
        self,
        folder: RunFolder,
        selection_decisions: int | None = None,
        versions: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        #: `versions` of some skills play in place of the present ones where it is watched.
        self.folder, self.versions = folder, versions
        #: Decisions in the new fight that it took `adapt` to find the skills worth adapting; None where none was asked.
        self.selection_decisions = selection_decisions

    @property
    def path(self) -> Path:
        """Its folder."""
        return self.folder.path

    @property
    def name(self) -> str:
        """The name of its folder, or of the agent."""
        return self.path.name

    @property
    def plan(self) -> Plan:
        """What it trains and how."""
        return self.folder.plan

    @property
    def in_zoo(self) -> bool:
        """Whether it is an agent that comes with the package, which stays as it is."""
        return self.path.parent == AGENTS

    @check_arguments
    def agent(self, scenario: AnyPath | None = None, start: str | None = None) -> TrainedAgent:
        """Return its skills as they play in a scenario, by default its own; raises as `evaluate`."""
        setting = self._setting(scenario, start, ())
        agent = evaluating.make_agent(self.folder, setting)
        versions = {name: lineage.version_in_play(self.folder, name, setting.trained_on) for name in agent.networks}
        return TrainedAgent(self.name, agent, versions)

    @cached_property
    def _own_agent(self) -> TrainedAgent:
        return self.agent()

    @property
    def skills(self) -> Mapping[str, SkillPolicy]:
        """Its trained skills by name, as they play in its own scenario."""
        return self._own_agent.skills

    def act(self, observation: Any) -> dict[str, Any]:
        """Return the action of each skill by its number, of a State row or of observations by skill.

        `TrainedAgent.act` says more; `agent(scenario)` acts in another scenario.
        """
        return self._own_agent.act(observation)

    @check_arguments
    def make(
        self, name: str = "dodge", num_envs: Annotated[int, Between(1, 100_000)] | None = None, **options: Any
    ) -> Any:
        """Make an environment as `soulsgraph.make`, in its scenario and with what its skills observe.

        The skills before `name` play as the run trained them; scripts play them where one was not trained yet.
        """
        scenario, graph = options.get("scenario", self.plan.scenario), self.plan.skill_graph
        chain = graph.upstream(name) if name in graph.order else ()
        usual: dict[str, Any] = {"scenario": scenario, "options": self.plan.options}
        if chain and all(map(self.folder.library.versions, chain)):
            usual |= {"controller": evaluating.make_upstream(self.folder, chain, str(scenario)), "upstream": chain}
        return make(name, num_envs, **{**usual, **options})

    @check_arguments
    def evaluate(
        self,
        scenario: AnyPath | None = None,
        *,
        episodes: EpisodeCount = Plan.episodes,
        seed: FightSeed = EVALUATION_SEED,
        start: str | None = None,
        random: _Names = (),
        games: AnyPath | None = None,
        fleet: AnyPath | None = None,
        out: AnyPath | None = None,
        quiet: bool = False,
    ) -> FightResults:
        """Play fights greedily, in its own scenario or another one, and return how they ended.

        Args:
            scenario: Scenario to fight in, a name or a TOML file; the run's own if not given.
            episodes: How many fights.
            seed: Seed of the fights: the same for every run by default.
            start: How episodes begin: mid, long or scattered; the scenario's own if not given.
            random: Skills to replace by uniform random actions, separated by commas or a list.
            games: TOML file of real-time games to fight in, side by side; the simulator if not given.
            fleet: TOML file of a fleet whose game PCs fight, each with `soulsgraph fleet host`. Every fight counts that
                began before the episodes had ended, so there are a few more; the games draw seeds of their own.
            out: Folder for the results as JSON and Parquet; earlier ones are replaced.
            quiet: Print nothing.

        Raises:
            UnknownNameError: for an unknown scenario or skill.
            SoulsGraphError: if a skill was not trained yet or is damaged.
            GameError: if a game cannot be reached.
        """
        place, setting = _fought_in(games, fleet, seed), self._setting(scenario, start, random)
        if out is not None:
            check_extra("evaluate --out", "data")
            check_writable(Path(out))
        console = OutputConsole(quiet=quiet)
        if unseen := unseen_moves(setting.trained_on, setting.scenario):
            where = f"its skills were trained in {setting.trained_on}, where no move has the id of"
            console.print(f"warning: {where}: {', '.join(unseen)}")
        precompile(console, training=False)
        # In the simulator they take a moment.
        with stage_progress("evaluate", episodes, OutputConsole(quiet=quiet or not place), unit="episodes") as progress:
            results = evaluating.evaluate(self.folder, setting, episodes, seed, place, progress.advance)
        if out is not None:
            results.save(out)
            console.print(f"results in {out}")
        return results

    def _setting(self, scenario: AnyPath | None, start: str | None, random: _Names) -> evaluating.Setting:
        fought = lasting_name(str(scenario or self.plan.scenario))
        return evaluating.Setting(fought, evaluating.source_of(self.folder, fought), start, listed(random))

    @check_arguments
    @resumable()
    def adapt(
        self,
        scenario: AnyPath = SHIFTED,
        skills: _Names = ADAPTED,
        *,
        budget: Annotated[int, Between(1, 100_000_000)] | None = None,
        after: AnyPath | None = None,
        jointly: bool = False,
        run: AnyPath | None = None,
        learners: _Learners | None = None,
        track: _Trackers = USUAL,
        quiet: bool = False,
        **options: Annotated[Any, Keywords((TrainingPlace,), (), OPTIONS)],
    ) -> Run:
        """Fine-tune some skills in another scenario, everything else frozen, and return the run that has them.

        Earlier versions stay, and play in the scenarios before. The same call resumes what was interrupted.

        Args:
            scenario: Scenario to adapt to: a name or a TOML file.
            skills: Skills to adapt, separated by commas or a list; all; or auto: those for which the new fight is
                another one, by at most 8,000 decisions in it.
            budget: Decisions of each; 40,000 times the run's scale if not given.
            after: Scenario whose versions are continued; the last one the run was adapted to if not given.
            jointly: Adapt them in the same fights, each for its own decisions, instead of one after another.
            run: Folder for a copy, which is adapted: needed for an agent of the zoo.
            learners: The run's own learners by skill, as in `train`: needed where their module is not imported.
            track: Trackers of the run, as of `train`.
            quiet: Print nothing.
            options: Where it takes place, as of `train`, and options of the learner to change beside the run's:
                lr=1e-4, or those of one skill as dodge={"gamma": 0.99}.

        Raises:
            SoulsGraphError: for a scenario, skill, learner or folder that cannot be used, before anything is begun.
            Interruption: as `train`.
        """
        check_extra("adapt", "train")
        own, trackers, console = dict(learners or {}), make_trackers(track), OutputConsole(quiet=quiet)
        place, changes = parted(TrainingPlace, options)
        for skill, learner in _names_of(own).items() if own else ():
            if learner != (planned := self.plan.learners.get(skill, "no learner")):
                raise RunFolderError(self.path, f"{planned} of {skill}", learner, "pass the one that trained it")
        changed_run(self.folder, changes)  # Refused before anything is copied.
        target, continued = lasting_name(str(scenario)), None if after is None else lasting_name(str(after))
        kept = self._own_folder(run)
        folder, decisions = changed_run(kept, changes), None
        home = lineage.check_target(folder, target, continued)
        if (chosen := lineage.named_skills(folder, skills)) is None:
            # Imported here: they load Ray and scipy.
            with uninterrupted():
                from soulsgraph.continual.selecting import select_for_run
                from soulsgraph_clusters.sessions.session import check_session

            check_session(place.address)
            if place.games is not None:
                load_games(Path(place.games))
            precompile(console, training=False)
            selection = select_for_run(folder, home, target)
            console.print("\n".join(selection.lines()))
            chosen, decisions = selection.skills, selection.decisions
            if not chosen:
                return Run(kept, decisions)
        stages = lineage.adaptation_stages(folder, target, chosen, budget, home, jointly)
        check_learns(folder.plan, lineage.unfinished(folder, stages))
        _train_stages(folder, stages, place, console, trackers, own)
        return Run(kept, decisions)

    def _own_folder(self, run: AnyPath | None) -> RunFolder:
        """Return the folder to write into: the run's own, or the one of a copy."""
        if self.in_zoo:
            return refuse_agent(self.name) if run is None else copy_agent(self.name, Path(run))
        if run is not None:
            raise RunFolderError(Path(run), "no `run`, but for an agent of the zoo", str(run), "leave it out")
        return self.folder

    @check_arguments
    def table(
        self, episodes: EpisodeCount | None = None, *, seed: FightSeed = EVALUATION_SEED, quiet: bool = False
    ) -> WinRateTable:
        """Return the win rates of every row of the paper's Table 1 that its skills allow.

        Rows of the same versions, fights, episodes and seed are read from the run folder; else they are evaluated, and
        written into it, unless it is an agent of the zoo.

        Args:
            episodes: Fights of each row; the plan's number if not given.
            seed: Seed of the fights.
            quiet: Print nothing.

        Raises:
            SoulsGraphError: if a skill was not trained yet or is damaged.
        """
        check_extra("evaluate --what table", "data")
        from soulsgraph.runs.table import win_rates

        asked = self.folder, self.plan.episodes if episodes is None else episodes, seed
        precompile(console := OutputConsole(quiet=quiet), training=False)
        with nullcontext() if self.in_zoo else self.folder.locked():
            return win_rates(*asked, console, write=not self.in_zoo)

    def curves(self) -> Any:
        """Return the learning curves as a data frame: a row a checkpoint, by stage, skill and step.

        Columns are those of greedy play at it: return with its 95 % interval, length, seconds, win_rate.

        Raises:
            SoulsGraphError: if there are none.
        """
        return self._results("curves")

    def training(self) -> Any:
        """Return what was logged while skills learned as a data frame: a row an iteration, with each reward term.

        Raises:
            SoulsGraphError: if there is nothing.
        """
        return self._results("training")

    def _results(self, name: str) -> Any:
        check_extra(name, "train")
        from soulsgraph.results.tables import read_arrow

        return frame_of(read_arrow(self.folder.results(name)))

    @check_arguments
    def watch(
        self,
        seed: FightSeed = EVALUATION_SEED,
        *,
        scenario: AnyPath | None = None,
        start: str | None = None,
        random: _Names = (),
        side_by_side: AnyPath | None = None,
        file: AnyPath | None = None,
        episodes: EpisodeCount | None = None,
        seconds: Annotated[float, Between(_TICK_S, 3600.0)] = _LONGEST_S,
        only_fight: bool = False,
        quiet: bool = False,
    ) -> FightFilm:
        """Play fights and show them: inside a notebook, in a `file` (GIF, MP4, PNG), else in a window.

        A run that is still training fights by its newest weights, loaded again for every fight.

        Args:
            seed: Seed of the fights: those that `evaluate` plays with it.
            scenario: As of `evaluate`.
            start: As of `evaluate`.
            random: As of `evaluate`.
            side_by_side: Another run folder or agent, or the same with other versions (RUN@dodge=v1), beside it in
                fights of the same seeds.
            file: File to write, by its ending: mp4, gif, png (of the last moment).
            episodes: Fights to show, one after another; if not given, until the window is closed, or one elsewhere.
            seconds: Show at most this many seconds of the game of each fight.
            only_fight: Show the fights alone, without the skills.
            quiet: Print nothing.

        Raises:
            GameError: if a window is needed, and pygame is not installed or there is no display.
        """
        from soulsgraph.watch.watching import AgentSource, play_fights

        setting = None if scenario is None else lasting_name(str(scenario)), start, listed(random)
        sides = [self] if side_by_side is None else [self, run_of(str(side_by_side))]
        sources = [AgentSource(run.folder, *setting, run.versions) for run in sides]
        for source in sources:
            source.agent()  # What cannot play is refused before anything opens.
        path, console = None if file is None else Path(file), OutputConsole(quiet=quiet)
        shown = path is None and not Console().is_jupyter
        if episodes is None and not shown:
            episodes = 1
        film = FightFilm([], only_fight)
        if path is not None:
            check_film(path)

        def played() -> Iterator[tuple[Fight, ...]]:
            precompile(console, training=False)
            for fights in play_fights(sources, seed, episodes, round(seconds / _TICK_S)):
                film.fights.append(fights)
                console.print("\n".join(map(str, fights)))
                yield fights

        if shown:
            show_fights(played(), len(sides), only_fight)
        else:
            for _ in played():
                pass
        if path is not None:
            film.save(path)
            console.print(f"written: {path}")
        return film

    @check_arguments
    def replay(
        self,
        seed: FightSeed = EVALUATION_SEED,
        *,
        scenario: AnyPath | None = None,
        start: str | None = None,
        file: AnyPath | None = None,
    ) -> FightPage:
        """Play a fight and write its page: tick by tick, with what every skill saw, valued and chose.

        Args:
            seed: Seed of the fight: the first that `evaluate` plays with it.
            scenario: As of `evaluate`.
            start: As of `evaluate`.
            file: HTML file to write; replay-RUN-SEED.html in the working folder if not given.

        Raises:
            WriteError: if the file cannot be written.
        """
        check_extra("replay", "data")
        from soulsgraph.recordings.recording import Fighter, record

        path, written = Path(f"replay-{self.name}-{seed}.html") if file is None else Path(file), list[Path]()
        check_writable(path.parent)
        precompile(OutputConsole(), training=False)
        fighter = Fighter.of_run(self.folder, self._setting(scenario, start, ()))
        with temporary_folder("soulsgraph-replay-") as folder:
            record(fighter, evaluating.evaluation_seeds(seed, 1), folder, written.append)
            return fight_page(written[0], path, self.folder)

    def to_dict(self) -> dict[str, Any]:
        """Return its plan in short, the card of every version, and the rows of its table, as plain values."""
        plain = {"run": str(self.path)} | {name: getattr(self.plan, name) for name in _SHOWN}
        plain["skills"] = [card.to_dict() | {"digest": card.digest} for card in lineage.cards_of(self.folder)]
        if self.selection_decisions is not None:
            plain["selection_decisions"] = self.selection_decisions
        return plain if (table := self._kept) is None else plain | {"rows": table.to_dict()["rows"]}

    def to_rich(self) -> list[RenderableType]:
        """Return every version, where it was trained, for how long, on top of what; and the table of win rates."""
        plan, rows = self.plan, []
        for name in plan.skill_graph.order:
            for card in lineage.cards_of(self.folder, (name,)):
                above = ", ".join(f"{one.skill} v{one.version}" for one in card.upstream)
                budget = f"{card.training.steps:,}"
                rows.append((name, f"v{card.version}", slug(card.training.scenario), budget, above))
            if not self.folder.library.versions(name):
                rows.append((name, "not trained yet", "", "", ""))
        where = f"agent {self.name}" if self.in_zoo else f"run {self.path}"
        title = f"{where}: {plan.scenario}, graph {plan.graph}, preset {plan.preset}, seed {plan.seed}"
        # A line of its own: a table's title is broken at the table's width.
        shown: list[RenderableType] = [title, text_table("", _VERSIONS, rows)]
        if (table := self._kept) is not None:
            shown += [*table.to_rich(), f"results in {self.path / 'results'}"]
        return [*shown, plan.budget_note] if plan.budget_note else shown

    @property
    def _kept(self) -> WinRateTable | None:
        """The table of win rates that is in its folder, of its present versions; None where there is none."""
        from soulsgraph.runs.table import kept_rates

        if not all(map(self.folder.library.versions, self.plan.skill_graph.order)):
            return None
        return kept_rates(self.folder, evaluating.table_inputs(self.folder, self.plan.episodes, EVALUATION_SEED))


@cache
def _installed_projects() -> None:
    for error in load_installed():
        warnings.warn(str(error), stacklevel=3)


def know_projects(project: AnyPath | None) -> None:
    """Load a project from its folder, and those that are installed; raises SoulsGraphError."""
    _installed_projects()
    if project is not None:
        load_project(Path(project))


def run_of(text: str) -> Run:
    """Open a run folder or an agent, or one with the versions that it is watched by, as `RUN@dodge=v1,movement=v2`.

    Raises:
        SoulsGraphError: if what follows the @ is anything else.
    """
    name, at, chosen = text.rpartition("@")
    if not at or Path(text).exists():
        return Run(open_run(Path(text)))
    parts = [fullmatch(r"(\w+)=v([1-9]\d{0,8})", part) for part in listed(chosen)]
    versions = {part[1]: int(part[2]) for part in parts if part}
    if not versions or len(versions) < len(parts):
        raise SoulsGraphError(
            f"{text}: expected a version of each skill after the @, each once; "
            f"write it as {name}@dodge=v1,movement=v2, or the run alone for the versions in play."
        )
    return Run(open_run(Path(name)), versions=versions)


def parted(kind: type[T], given: Mapping[str, Any]) -> tuple[T, dict[str, Any]]:
    """Return a dataclass by those keywords that are its fields, and the others."""
    names = {field.name for field in fields(kind)} & given.keys()  # type: ignore[arg-type]
    rest = {name: value for name, value in given.items() if name not in names}
    return kind(**{name: given[name] for name in names}), rest


def plan_values(given: Mapping[str, Any], graph: str = Plan.graph) -> dict[str, Any]:
    """Return the fields of a plan that keywords set: its own, and options of the learner or of one skill's.

    Raises:
        SoulsGraphError: if a file of skill options does not hold, or a scenario's path cannot be one.
    """
    own = ({field.name for field in fields(Plan)} - {"overrides"}) & given.keys()
    values, overrides = {name: given[name] for name in own}, dict[str, Any]()
    for name, value in ((name, value) for name, value in given.items() if name not in own):
        of_skill = isinstance(value, Mapping)
        overrides |= {f"{name}.{option}": one for option, one in value.items()} if of_skill else {name: value}
    if overrides:
        values["overrides"] = overrides_for(str(values.get("graph", graph)), overrides)
    if isinstance(file := values.get("skill_options"), str | Path):
        values["skill_options"] = load_skill_options(Path(file))
    if isinstance(scenario := values.get("scenario"), str | Path):
        values["scenario"] = lasting_name(str(scenario))
    return values


def open_or_plan(path: Path, given: Mapping[str, Any]) -> RunFolder:
    """Open a run to go on with it as it was begun, or plan one by what is given.

    Raises:
        SoulsGraphError: if something else is in the folder, or what is given contradicts the run's plan.
    """
    if is_agent(path):
        refuse_agent(str(path))
    if not (path / RunFolder.plan_file).exists():
        return RunFolder.planned(path, Plan(**plan_values(given)))
    run = RunFolder.open(path)
    check_given(path, run.plan, plan_values(given, run.plan.graph))
    return run


def changed_run(run: RunFolder, options: Mapping[str, Any]) -> RunFolder:
    """Return a run whose stages learn by some options beside its own; what is in its folder stays.

    Raises:
        SoulsGraphError: for an unknown option, or a value out of its range.
    """
    changed = plan_values(options, run.plan.graph)
    overrides = changed.pop("overrides", {})
    if changed:
        raise UnknownNameError("option", next(iter(changed)), OPTION_NAMES)
    plan = replace(run.plan, overrides={**run.plan.overrides, **overrides})
    return RunFolder(run.path, plan, run.fight)


def watched_in(tracker: str, folder: RunFolder) -> str:
    """Return how a run is watched in a tracker; what W&B prints itself, its address too, is silenced."""
    project = f"project {os.environ.get('WANDB_PROJECT', PROJECT)}"
    offline = os.environ.get("WANDB_MODE") == "offline"
    store = f"MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {folder.path.parent / 'mlruns'}"
    known = {
        "tensorboard": f"watch with: tensorboard --logdir {folder.tensorboard}",
        "wandb": f"in W&B: {f'wandb sync {folder.path}/wandb/offline-run-*' if offline else project}",
        "mlflow": f"in MLflow: {os.environ.get('MLFLOW_TRACKING_URI') or store}",
    }
    return known.get(tracker, f"tracked by {tracker}")


def unseen_moves(source: str, evaluated: str) -> list[str]:
    """Return the titles of a fight's moves whose ids are no moves of the fight that skills were trained in."""
    before, now = (
        [move for phase in load_scenario(name).phases() for move in load_boss(phase.boss).moves]
        for name in (source, evaluated)
    )
    return [move.title for move in now if move.id not in {one.id for one in before}]


def _fought_in(games: AnyPath | None, fleet: AnyPath | None, seed: int) -> evaluating.Place:
    """Return where an evaluation's episodes are played."""
    if fleet is None:
        return () if games is None else load_games(Path(games))
    if games is not None:
        raise SoulsGraphError("expected `games` or `fleet`, found both; leave one out.")
    if seed != EVALUATION_SEED:
        raise SoulsGraphError("seed: expected none, for a fleet's games draw seeds of their own; leave it out.")
    check_extra("evaluate --fleet", "train")
    # Imported here: nothing else of this needs a fleet's libraries.
    from soulsgraph_clusters.fleet.protocol.settings import load_fleet

    return load_fleet(Path(fleet))


def fight_page(recorded: Path, file: Path, run: RunFolder | None) -> FightPage:
    """Write the page of a recorded fight; with its run other actions are tried where it was lost."""
    check_extra("watch", "data")
    from soulsgraph.pages.fight_page import last_decision, write_fight_page
    from soulsgraph.recordings.files import read_recording

    recording = read_recording(recorded)
    check_writable(file.parent)
    search = last_decision(recording, run)
    write_fight_page(file, recording, search)
    return FightPage(file, recording, search)


def _names_of(learners: Mapping[str, LearnerFactory]) -> dict[str, str]:
    # Imported here: it takes seconds.
    with uninterrupted():
        from soulsgraph_policies.learning.own_learner import learner_name

    return {skill: learner_name(factory) for skill, factory in learners.items()}


def _train_stages(
    folder: RunFolder,
    stages: tuple[Stage, ...],
    place: TrainingPlace,
    console: OutputConsole,
    trackers: tuple[Tracker, ...],
    learners: Mapping[str, LearnerFactory] = MappingProxyType({}),
    evaluated: bool = False,
) -> None:
    """Train stages, and evaluate the run where that is asked for; raises as `train`."""
    with warnings.catch_warnings(), WorkerProcess() as worker:
        silence_advice()
        unfinished = lineage.unfinished(folder, stages)
        if any(stage.steps >= evaluating.CHECKPOINT_INTERVAL for stage in unfinished):
            worker.start(load_playing)
        # Imported beside the worker's start: it takes seconds. Torch is imported whole, or never again in this process.
        with uninterrupted():
            from soulsgraph.pages.run_report import show_fight
            from soulsgraph.runs.table import win_rates
            from soulsgraph.runs.train import train_stages
            from soulsgraph.runs.workplace import training_workplace

        with training_workplace(folder, place, console, trackers, learners, worker=worker) as workplace:
            train_stages(workplace, stages)
            if evaluated:
                table = win_rates(folder, folder.plan.episodes, EVALUATION_SEED, console)
                _track_table(folder, table, workplace.board)
                if unfinished:
                    _say_what_chance_plays_better(folder, console)
            show_fight(workplace)


def _say_what_chance_plays_better(folder: RunFolder, console: OutputConsole) -> None:
    from soulsgraph.runs.ablations import worse_than_chance

    home = folder.plan.scenario
    agent = evaluating.make_agent(folder, evaluating.Setting(home, home))
    for skill, (chance, trained) in worse_than_chance(agent, folder.plan.episodes, console).items():
        won = f"{chance.wins} of {chance.episodes} fights are won with it at random, {trained.wins} as trained"
        line = f"{skill}: chance plays it better in {home}: {won}; another training seed may lead to a better one"
        console.print(line)


def _track_table(run: RunFolder, table: WinRateTable, board: Board) -> None:
    """Let trackers have a run's table, and what it was trained with: of its plan, and of its last skill's learner."""
    rows, markdown, plan = [row.to_dict() for row in table.rows], table.table.to_markdown(), run.plan
    board.call(lambda tracker: tracker.table("win rates", rows, markdown))
    final = {f"{FINAL_WIN_RATE}{slug(row.setting)}": row.rate for row in table.rows}
    names = (*_SHOWN, "scale", "lanes", "env_runners")
    learned = {name: getattr(plan, name) for name in names} | asdict(plan.hyperparameters(plan.stages()[-1]))
    plain = {name: value if isinstance(value, float) else str(value) for name, value in learned.items()}
    board.call(lambda tracker: tracker.results(plain, final))
