"""The Python interface: train, open and load runs; evaluate, adapt and watch them, in a script or a notebook."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from functools import cache, cached_property
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import gymnasium
from rich.console import Console

from soulsgraph.playing import FightFilm, FightPage, FightResults, SkillPolicy, TrainedAgent, frame_of
from soulsgraph.results.tables import OutputConsole
from soulsgraph.runs import evaluate as evaluating
from soulsgraph.runs import lineage
from soulsgraph.runs.plan import Plan, Stage, check_learns, lasting_name, overrides_for
from soulsgraph.runs.progress import resumable, silence_advice
from soulsgraph.runs.run_folder import RunFolder, RunFolderError, check_same
from soulsgraph.runs.workers import precompile_playing
from soulsgraph.tracking.board import USUAL, make_trackers
from soulsgraph.tracking.contract import Tracker
from soulsgraph.zoo import agent_names, open_agent, open_own_run, open_run, own_copy
from soulsgraph_envs.core.config import EACH_ONCE, AnyPath, Between, check_arguments
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.extras import check_extra
from soulsgraph_envs.core.files import check_writable, slug, temporary_folder
from soulsgraph_envs.core.scenario import scenario_names
from soulsgraph_envs.core.terminal import uninterrupted
from soulsgraph_envs.skills import END_TO_END, SKILL_NAMES, load_skill_options
from soulsgraph_policies.agents.library import SkillCard
from soulsgraph_policies.agents.projects import load_installed, load_project
from soulsgraph_policies.learning.hyperparameters import PRESETS

if TYPE_CHECKING:
    from soulsgraph_policies.learning.own_learner import LearnerFactory

#: Fields of a plan that `train` takes by their names beside options of the preset.
_PLANNED = frozenset(field.name for field in fields(Plan)) - {"overrides", "learners"}
_TICK_S, _LONGEST_S = 0.1, 120.0
_Seed = Annotated[int, Between(0, 2**63 - 1)]
_Episodes = Annotated[int, Between(1, 1_000_000)]
_NAMESPACE, _WHOLE = "soulsgraph/", "EndToEnd-v0"


@check_arguments
@resumable()
def train(
    preset: str = Plan.preset,
    *,
    scenario: AnyPath = Plan.scenario,
    graph: str = Plan.graph,
    seed: int = Plan.seed,
    run: AnyPath = "runs/curriculum",
    project: AnyPath | None = None,
    address: str | None = None,
    quiet: bool = False,
    learners: Mapping[str, Callable[..., Any]] | None = None,
    track: str | Tracker | Sequence[str | Tracker] = USUAL,
    **overrides: Any,
) -> Run:
    """Train every skill of a graph, in graph order, and return the run; a bar shows how far it is.

    The same call resumes a run that was interrupted, and returns one that is finished as it is.

    Args:
        preset: How skills learn: `presets()` names them.
        scenario: Fight to train in: a name (`scenarios()`) or the path of a TOML file.
        graph: Skill graph: paper, end-to-end, or one of a project as PROJECT/GRAPH.
        seed: Seed of everything random.
        run: Folder of the run, begun if it does not exist.
        project: Folder of a project with skills of your own; not needed for installed projects.
        address: Ray cluster to join, where `env_runners` play on it.
        quiet: Print nothing.
        learners: Learners of your own, each by the skill that it trains (`SkillLearner`); the others learn as usual.
        track: Trackers by name, "tensorboard,wandb" or "none", or objects of your own, ["mlflow", MyTracker()].
        overrides: Fields of `Plan` (scale, lanes, env_runners ...), and options of the learner: gamma=0.98, or those
            of one skill as dodge={"gamma": 0.99}.

    Raises:
        SoulsGraphError: for a name, value or folder that cannot be used, before anything is begun.
        Interruption: if a stop was asked for (Ctrl-C, a notebook's stop button); a checkpoint to go on from is saved.

    Example:
        run = soulsgraph.train("best", scenario="vordt", seed=1, run="runs/vordt", gamma=0.98)
    """
    check_extra("soulsgraph.train", "train")
    know_projects(project)
    own = dict(learners or {})
    asked = {"preset": preset, "scenario": str(scenario), "graph": graph, "seed": seed, **overrides}
    plan = replace(plan_of(asked), learners={name: _name_of(factory) for name, factory in own.items()})
    folder = _planned_or_begun(Path(run), plan)
    _train_stages(folder, lineage.own_stages(folder), address, quiet, track, own)
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


class Run:
    """A run folder, or an agent of the zoo: what was trained, and how it plays.

    Example:
        run = soulsgraph.open("runs/curriculum")
        run.evaluate(scenario="vordt").win_rate
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

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
        return self.name in agent_names() and open_agent(self.name).path == self.path

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
        episodes: _Episodes = Plan.episodes,
        seed: _Seed = evaluating.EVALUATION_SEED,
        start: str | None = None,
        random: str | Annotated[Sequence[str], EACH_ONCE] = (),
    ) -> FightResults:
        """Play fights greedily, in its own scenario or another one, and return how they ended.

        Args:
            scenario: A name or the path of a TOML file.
            episodes: How many fights.
            seed: Seed of the fights: the same for every run by default.
            start: How they begin: mid, long or scattered; the scenario's own if not given.
            random: Skills that act at random instead.

        Raises:
            UnknownNameError: for an unknown scenario or skill.
            SoulsGraphError: if a skill was not trained yet or is damaged.
        """
        precompile_playing(OutputConsole())
        setting = self._setting(scenario, start, random)
        return FightResults(evaluating.evaluate(self.folder, setting, episodes, seed))

    def _setting(self, scenario: AnyPath | None, start: str | None, random: str | Sequence[str]) -> evaluating.Setting:
        fought = lasting_name(str(scenario or self.plan.scenario))
        names = (random,) if isinstance(random, str) else tuple(random)
        return evaluating.Setting(fought, evaluating.source_of(self.folder, fought), start, names)

    @check_arguments
    @resumable()
    def adapt(
        self,
        scenario: AnyPath,
        skills: str | Annotated[Sequence[str], EACH_ONCE] = ("dodge", "heal_attack"),
        *,
        budget: Annotated[int, Between(1, 100_000_000)] | None = None,
        jointly: bool = False,
        run: AnyPath | None = None,
        address: str | None = None,
        quiet: bool = False,
        learners: Mapping[str, Callable[..., Any]] | None = None,
        track: str | Tracker | Sequence[str | Tracker] = USUAL,
    ) -> Run:
        """Fine-tune some skills in another scenario, everything else frozen, and return the run that has them.

        Earlier versions stay, and play in the scenarios before. The same call resumes what was interrupted.

        Args:
            scenario: Fight to adapt to.
            skills: Skills to adapt; all; or auto: those that at most 8,000 decisions in the new fight select.
            budget: Decisions of each; 40,000 times the run's scale if not given.
            jointly: Adapt them in the same fights instead of one after another.
            run: Folder for a copy, which is adapted: needed for an agent of the zoo.
            address: As of `train`, as is `track`.
            quiet: Print nothing.
            learners: The run's own learners by skill, as in `train`: needed where their module is not imported.

        Raises:
            SoulsGraphError: for a scenario, skill, learner or folder that cannot be used, before anything is begun.
            Interruption: as `train`.
        """
        check_extra("adapt", "train")
        own = dict(learners or {})
        _check_learners(self.folder, own)
        folder = self._own_folder(run)
        names = skills if isinstance(skills, str) else ",".join(skills)
        target = lasting_name(str(scenario))
        if (chosen := lineage.named_skills(folder, names)) is None:
            # Imported here: they load Ray and scipy.
            with uninterrupted():
                from soulsgraph.continual.selecting import select_and_show
                from soulsgraph_clusters.sessions.session import check_session

            home = lineage.check_target(folder, target, None)
            check_session(address)
            precompile_playing(OutputConsole(quiet=quiet))
            chosen = select_and_show(folder, home, target, OutputConsole(quiet=quiet), 'skills="all"').skills
            if not chosen:
                return Run(folder)
        stages = lineage.adaptation_stages(folder, target, chosen, budget, None, jointly)
        _train_stages(folder, stages, address, quiet, track, own)
        return Run(folder)

    def _own_folder(self, run: AnyPath | None) -> RunFolder:
        """Return the folder to write into: the run's own, or the one of a copy."""
        if run is None:
            return open_own_run(Path(self.name)) if self.in_zoo else self.folder
        if not self.in_zoo:
            raise RunFolderError(Path(run), "no `run`, but for an agent of the zoo", str(run), "leave it out")
        return own_copy(self.name, Path(run))

    @check_arguments
    def table(
        self, episodes: _Episodes | None = None, *, seed: _Seed = evaluating.EVALUATION_SEED, quiet: bool = False
    ) -> Any:
        """Return the win rates of every row of the paper's Table 1 that its skills allow, as a data frame.

        Rows of the same versions, fights, episodes and seed are read from the run folder; else they are evaluated, and
        written into it.

        Args:
            episodes: Fights of each row; the plan's number if not given.
            seed: Seed of the fights.
            quiet: Print nothing.

        Raises:
            SoulsGraphError: if a skill was not trained yet or is damaged.
        """
        check_extra("table", "train")
        from soulsgraph.runs.table import win_rates

        episodes = self.plan.episodes if episodes is None else episodes
        precompile_playing(OutputConsole(quiet=quiet))
        with nullcontext() if self.in_zoo else self.folder.locked():
            table = win_rates(self.folder, episodes, seed, "silent" if quiet else "auto", write=not self.in_zoo)
        return frame_of([row.to_dict() for row in table.rows])

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
        seed: _Seed = evaluating.EVALUATION_SEED,
        *,
        scenario: AnyPath | None = None,
        start: str | None = None,
        file: AnyPath | None = None,
        seconds: Annotated[float, Between(_TICK_S, 3600.0)] = _LONGEST_S,
        only_fight: bool = False,
    ) -> FightFilm:
        """Play a fight and show it: inside a notebook, in a `file` (GIF, MP4, PNG), else in a window.

        A run that is still training fights by its newest checkpoint.

        Args:
            seed: Seed of the fight: the first that `evaluate` plays with it.
            scenario: As of `evaluate`.
            start: As of `evaluate`.
            file: File to write, by its ending.
            seconds: Seconds of the game to show at most.
            only_fight: Show the fight alone, without the skills.

        Raises:
            GameError: if a window is needed, and pygame is not installed or there is no display.
        """
        from soulsgraph.watch.watching import AgentSource, play_fights

        precompile_playing(OutputConsole())
        source = AgentSource(self.folder, None if scenario is None else lasting_name(str(scenario)), start)
        ((fight,),) = play_fights([source], seed, 1, round(seconds / _TICK_S))
        film = FightFilm(fight, only_fight)
        if file is not None:
            film.save(Path(file))
        elif not Console().is_jupyter:
            film.show()
        return film

    @check_arguments
    def replay(
        self,
        seed: _Seed = evaluating.EVALUATION_SEED,
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
        from soulsgraph.pages.fight_page import last_decision, write_fight_page
        from soulsgraph.recordings.files import read_recording
        from soulsgraph.recordings.recording import Fighter, record

        path = Path(f"replay-{self.name}-{seed}.html") if file is None else Path(file)
        check_writable(path.parent)
        precompile_playing(OutputConsole())
        fighter, written = Fighter.of_run(self.folder, self._setting(scenario, start, ())), list[Path]()
        with temporary_folder("soulsgraph-replay-") as folder:
            record(fighter, evaluating.evaluation_seeds(seed, 1), folder, written.append)
            recording = read_recording(written[0])
            write_fight_page(path, recording, last_decision(recording, self.folder))
        result = recording.header.result
        return FightPage(path, f"{self.name}: {result.outcome} after {result.seconds:.1f} s")

    def __repr__(self) -> str:
        return "\n".join([self._title, *(f"  {line}" for line in self._versions)])

    @property
    def _title(self) -> str:
        plan, kind = self.plan, "agent" if self.in_zoo else "run"
        where = self.name if self.in_zoo else self.path
        return f"{kind} {where}: {plan.scenario}, graph {plan.graph}, preset {plan.preset}, seed {plan.seed}"

    @property
    def _versions(self) -> list[str]:
        cards = {card.skill: card for card in lineage.cards_of(self.folder)}
        return [
            f"{name}: {_described(cards[name])}" if name in cards else f"{name}: not trained yet"
            for name in self.plan.skill_graph.order
        ]

    def _repr_html_(self) -> str:
        lines = "".join(f"<li>{escape(line)}</li>" for line in self._versions)
        return f"<div><b>{escape(self._title)}</b><ul>{lines}</ul></div>"


def _described(card: SkillCard) -> str:
    return f"v{card.version}, {card.training.steps:,} decisions in {slug(card.training.scenario)}"


@cache
def _installed_projects() -> None:
    for error in load_installed():
        warnings.warn(str(error), stacklevel=3)


def know_projects(project: AnyPath | None) -> None:
    """Load a project from its folder, and those that are installed; raises SoulsGraphError."""
    _installed_projects()
    if project is not None:
        load_project(Path(project))


def plan_of(asked: Mapping[str, Any]) -> Plan:
    """Return the plan of some fields and options: a field's name is the plan's, any other an option or a skill."""
    planned = {name: value for name, value in asked.items() if name in _PLANNED}
    if isinstance(file := planned.get("skill_options"), str | Path):
        planned["skill_options"] = load_skill_options(Path(file))
    options: dict[str, Any] = {}
    for name, value in asked.items():
        if name not in planned:
            own = isinstance(value, Mapping)
            options |= {f"{name}.{option}": one for option, one in value.items()} if own else {name: value}
    return Plan(**planned, overrides=overrides_for(str(asked["graph"]), options))


def _planned_or_begun(path: Path, plan: Plan) -> RunFolder:
    """Plan a run, or open the one that was created with the same plan.

    Raises:
        RunFolderError: if something else is in the folder, or a run with another plan.
    """
    if not (path / RunFolder.plan_file).exists():
        return RunFolder.planned(path, plan)
    folder = open_own_run(path)
    check_same(folder, plan)
    return folder


def _name_of(factory: LearnerFactory) -> str:
    # Imported here: it takes seconds.
    with uninterrupted():
        from soulsgraph_policies.learning.own_learner import learner_name

    return learner_name(factory)


def _check_learners(folder: RunFolder, own: Mapping[str, LearnerFactory]) -> None:
    """Refuse learners that are not those of the run's plan; raises RunFolderError."""
    planned, found = folder.plan.learners, {name: _name_of(factory) for name, factory in own.items()}
    for name, learner in found.items():
        if learner != planned.get(name):
            expected = f"{planned[name]} as the learner of {name}" if name in planned else f"no learner of {name}"
            remedy = "pass the one that trained it" if name in planned else "leave it out: the run trained it without"
            raise RunFolderError(folder.path, expected, learner, remedy)


def _train_stages(
    folder: RunFolder,
    stages: tuple[Stage, ...],
    address: str | None,
    quiet: bool,
    track: str | Tracker | Sequence[str | Tracker],
    learners: Mapping[str, LearnerFactory] = MappingProxyType({}),
) -> None:
    """Train stages, shown in a terminal or notebook unless `quiet`; raises as `train`."""
    trackers = make_trackers(track)
    check_learns(folder.plan, lineage.unfinished(folder, stages))
    with warnings.catch_warnings():
        silence_advice()
        # Imported here: it takes seconds. Torch is imported whole, or never again in this process.
        with uninterrupted():
            from soulsgraph.pages.run_report import show_fight
            from soulsgraph.runs.train import train_stages
            from soulsgraph.runs.workplace import simulator_workplace

        console = OutputConsole(quiet=quiet)
        with simulator_workplace(folder, console, address, learners, trackers) as place:
            train_stages(place, stages, console)
            show_fight(place, console)
