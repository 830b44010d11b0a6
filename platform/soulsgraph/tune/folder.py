"""What a sweep trains, and its folder: the plan in `sweep.json`, a run folder for each setting and seed, results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from soulsgraph.paper.study import CHOOSING
from soulsgraph.runs import lineage
from soulsgraph.runs.plan import Plan, Stage, check_learns, lasting_name, overrides_for, scenario_digest
from soulsgraph.runs.run_folder import PlannedFolder, RunFolder, RunFolderError
from soulsgraph.tune.space import MOST_SETTINGS, Search, SearchSpace
from soulsgraph.zoo import open_run
from soulsgraph_envs.core.config import EACH_ONCE, Between, NonEmpty, check_fields, digest_of
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.extras import pip_install
from soulsgraph_policies.agents.projects import ProjectDigest

Scheduler = Literal["none", "asha", "pbt"]
Setting = Mapping[str, Any]
#: By which trials are compared: the share of fights won, or where one skill is trained its mean return.
WIN_RATE, RETURN = "win_rate", "return"
#: Of a member of a population: its mean return while it learns, in other fights than those that it is reported on.
TRAINING_RETURN = "training_return"
#: Digits of a setting's digest in the names of its runs.
_DIGITS = 8


@dataclass(frozen=True)
class SweptAdaptation:
    """Skills of a trained run that each trial adapts to another scenario, one after another.

    Raises:
        SoulsGraphError: if a number is out of its range.
    """

    run: str
    """Run folder, or an agent of the zoo; a sweep that is begun has a copy of it."""
    scenario: str
    """Scenario to adapt to."""
    skills: Annotated[NonEmpty[str], EACH_ONCE]
    """Skills to adapt."""
    budget: Annotated[int, Between(1, 100_000_000)] | None = None
    """Decisions for each; as of `adapt` if not given."""

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "scenario", lasting_name(self.scenario))

    @property
    def source(self) -> RunFolder:
        """The run whose skills are adapted, for reading."""
        return open_run(Path(self.run))

    def stages(self, run: RunFolder) -> tuple[Stage, ...]:
        """Return the stages of a copy of the run."""
        return lineage.adaptation_stages(run, self.scenario, self.skills, self.budget)


@dataclass(frozen=True)
class Sweep:
    """What is searched, and by what: each setting is trained on every seed. A folder that exists keeps its own.

    It is checked on construction, each value of an option beside the plan's.

    Raises:
        UnknownNameError: for an unknown option or skill.
        SoulsGraphError: for a value of another type or out of its range, or a range in a grid.
    """

    plan: Plan
    """What every trial trains; its seed counts nothing. Of an adaptation the plan of the run that is adapted."""
    space: SearchSpace
    """Values of options of the learner."""
    seeds: Annotated[NonEmpty[Annotated[int, Between(0, 2**31 - 1)]], EACH_ONCE] = tuple(CHOOSING[:3])
    """Training seeds, the same for each setting."""
    search: Search = "grid"
    """grid: every combination of the lists; random: samples of lists and ranges, the same in every call; optuna: each
    chosen by the mean result over seeds of the settings before it (TPE)."""
    samples: Annotated[int, Between(1, MOST_SETTINGS)] = 10
    """Settings that a random search draws, and optuna tries."""
    scheduler: Scheduler = "none"
    """asha: stop trials early that are behind at checkpoints of the last skill (Li et al. 2020); pbt: of one stage, let
    those behind copy the weights and replay of those ahead, with changed options (Jaderberg et al. 2017)."""
    stage: str | None = None
    """Skill that trials train alone, compared by its mean return; skills upstream are trained once for each seed."""
    adaptation: SweptAdaptation | None = None
    """What trials adapt, in the place of a curriculum."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.search == "grid" and self.space.ranges:
            raise SoulsGraphError(
                f"search: expected lists of values for a grid, found a range of {', '.join(self.space.ranges)}; search "
                "at random, or write lists."
            )
        settings = [*islice(self.space.grid() if self.search == "grid" else self.space.corners(), MOST_SETTINGS + 1)]
        if len(settings) > MOST_SETTINGS:
            raise SoulsGraphError(f"search: expected at most {MOST_SETTINGS:,} settings, found more; search at random.")
        self._check_kind()
        for setting in settings:
            self.plan_of(setting, self.seeds[0])

    def _check_kind(self) -> None:
        """Refuse parts that do not go together; raises SoulsGraphError."""
        if self.stage is not None and self.stage not in (order := self.plan.skill_graph.order):
            raise UnknownNameError("skill", self.stage, order)
        for joint in (stage for stage in self.plan.stages() if stage.jointly and self.stage in stage.skills):
            raise SoulsGraphError(
                f"sweep: expected a stage of one skill, found {joint.name}, which preset {self.plan.preset} trains "
                "jointly; leave the stage out, or name another preset."
            )
        if self.stage is not None and self.adaptation is not None:
            raise SoulsGraphError("sweep: expected a stage or an adaptation, found both; leave one of them out.")
        if self.search == "optuna":
            _check_optuna()
            if self.scheduler != "none":
                raise SoulsGraphError(
                    f"scheduler: expected none with optuna, which goes by settings trained to the end on every seed, "
                    f"found {self.scheduler}; leave it out, or search at random."
                )
        if self.scheduler == "pbt":
            self._check_population()

    def _check_population(self) -> None:
        if self.stage is None:
            raise SoulsGraphError(
                "scheduler: expected with pbt the stage of one skill, found none; name it with `stage`."
            )
        own = overrides_for(self.plan.graph, dict.fromkeys(self.space.names))
        if common := [name for name in own if not name.startswith(f"{self.stage}.")]:
            raise SoulsGraphError(
                f"scheduler: expected with pbt options of {self.stage} alone, for they change while it learns, found "
                f"{', '.join(common)}; put them into a table [{self.stage}]."
            )

    @property
    def metric(self) -> str:
        """By what trials are compared."""
        return WIN_RATE if self.stage is None else RETURN

    @property
    def scenario(self) -> str:
        """The fight by which trials are compared."""
        return self.plan.scenario if self.adaptation is None else self.adaptation.scenario

    def stages(self, run: RunFolder) -> tuple[Stage, ...]:
        """Return the stages of a trial's run, of which the last is what its scheduler goes by."""
        if (adapted := self.adaptation) is not None:
            return adapted.stages(run)
        return self._until(lineage.own_stages(run))

    def _until(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        """Return stages up to the one by which trials are compared."""
        skills = [stage.skill for stage in stages]
        return stages if self.stage is None else stages[: skills.index(self.stage) + 1]

    @property
    def budget(self) -> int:
        """Decisions of the last stage."""
        return self._planned(self.plan)[-1].steps

    @property
    def trials(self) -> int:
        """The number of trials in all."""
        settings = sum(1 for _ in self.space.grid()) if self.search == "grid" else self.samples
        return settings * len(self.seeds)

    def plan_of(self, setting: Setting, seed: int) -> Plan:
        """Return the plan of a trial's run; raises as the sweep itself."""
        own = overrides_for(self.plan.graph, setting)
        return replace(self.plan, seed=seed, overrides={**self.plan.overrides, **own})

    def check_learns(self) -> None:
        """Refuse a scale by which a skill would take no update; raises SoulsGraphError."""
        settings = self.space.grid() if self.search == "grid" else self.space.corners()
        for plan in (self.plan_of(setting, self.seeds[0]) for setting in settings):
            check_learns(plan, self._planned(plan))

    def _planned(self, plan: Plan) -> tuple[Stage, ...]:
        """Return the stages of a trial's plan, but for the versions that they continue."""
        if (adapted := self.adaptation) is None:
            return self._until(plan.stages())
        skills = [name for name in plan.skill_graph.order if name in adapted.skills]
        stages = (plan.stage(name, adapted.scenario, 1) for name in skills)
        return tuple(replace(stage, budget=adapted.budget or stage.budget) for stage in stages)


def _check_optuna() -> None:
    if find_spec("optuna") is None:
        raise SoulsGraphError(
            f"search: expected optuna to be installed, found none; install it: {pip_install('tune')}."
        )


def _fights(sweep: Sweep) -> dict[str, str]:
    return {name: scenario_digest(name) for name in (sweep.plan.scenario, sweep.scenario)}


def _versions(run: RunFolder) -> dict[str, str]:
    return {f"{card.skill} v{card.version}": card.digest for card in lineage.cards_of(run)}


def _by(plan: Plan, run: RunFolder) -> RunFolder:
    """Return a run whose stages learn by another plan; what is in its folder stays."""
    return RunFolder(run.path, plan, run.fight)


@dataclass(frozen=True)
class _SweepFile:
    """What `sweep.json` holds."""

    #: Digests of the fights that trials learn and are evaluated in.
    fights: Mapping[str, str]
    #: Those of the versions that trials adapt, by skill and version.
    source: Mapping[str, str]
    #: Where the graph is a project's.
    project: ProjectDigest | None
    plan: Sweep


class SweepFolder(PlannedFolder[Sweep]):
    """Paths of a sweep.

    Layout: `sweep.json`, `runs/<digest of the setting>-<seed>/` (run folders; `runs/member-<number>-<seed>/` of a
    population), `shared/` (stages that trials have in common), `source/` (the run that is adapted), `tune/` (what Ray
    Tune goes on from) and `results/`.
    """

    kind, plan_file, holds = "sweep", "sweep.json", _SweepFile
    #: Digests of the versions that trials adapt, of a folder that was opened.
    versions: Mapping[str, str] = MappingProxyType({})

    def check_source(self) -> None:
        """Refuse to go on by the copy of a run that has other versions by now; where it is gone the copy does.

        Raises:
            RunFolderError: naming the run.
        """
        adapted = self.plan.adaptation
        if adapted is not None and Path(adapted.run).exists() and _versions(adapted.source) != self.versions:
            expected, remedy = f"the versions of {adapted.run} that it was created with", "name another folder"
            raise RunFolderError(self.path, expected, "others there", remedy)

    def check_memory(self) -> None:
        """Refuse a plan that needs more memory than this machine may spare; raises DataError."""
        self.plan.plan.check_memory()

    def description(self) -> _SweepFile:
        """Return what `sweep.json` holds when it is begun."""
        project = ProjectDigest.of(self.plan.plan.graph)
        source = {} if self.plan.adaptation is None else _versions(self.plan.adaptation.source)
        return _SweepFile(_fights(self.plan), source, project, self.plan)

    @classmethod
    def open(cls, path: Path) -> SweepFolder:
        """Open a sweep that `create` began.

        Raises:
            SoulsGraphError: if it is no sweep, its plan does not hold, or a fight changed since it was begun.
        """
        file, begun = path / cls.plan_file, cls.read(path)
        if begun.fights != _fights(begun.plan):
            raise RunFolderError(file, "the fights that it was created with", "that they changed", "restore them")
        folder = cls(path, begun.plan)
        folder.versions = begun.source
        return folder

    def run_path(self, setting: Setting, seed: int) -> Path:
        """Return the folder of a trial's run."""
        return self.path / "runs" / f"{digest_of(dict(setting))[:_DIGITS]}-{seed}"

    def run(self, setting: Setting, seed: int) -> RunFolder:
        """Open a trial's run, begun if it is not there.

        Raises:
            RunFolderError: if another run is in its folder.
        """
        path, plan = self.run_path(setting, seed), self.plan.plan_of(setting, seed)
        if self.plan.adaptation is not None:
            return self._adapted(path, plan)
        if not (path / RunFolder.plan_file).exists():
            return RunFolder.create(path, plan)
        run = RunFolder.open(path)
        if run.plan != plan:
            raise RunFolderError(path, "the run of this trial", "one by another plan", "remove it")
        return run

    def _adapted(self, path: Path, plan: Plan) -> RunFolder:
        """Open a copy of the run that trials adapt, by a trial's plan."""
        if not (path / RunFolder.plan_file).exists():
            source = RunFolder.open(self.source)
            lineage.branch(source, path, lineage.domain_chain(source)[-1])
        return _by(plan, RunFolder.open(path))

    def copy_source(self) -> None:
        """Copy the run that trials adapt, which may change later, into the folder.

        Raises:
            RunFolderError: if it changed already, since the sweep was begun.
            WriteError: if it cannot be written.
        """
        if (adapted := self.plan.adaptation) is not None and not self.source.exists():
            if self.versions:
                self.check_source()
            lineage.branch(adapted.source, self.source, lineage.domain_chain(adapted.source)[-1])

    def member_path(self, number: int, seed: int) -> Path:
        """Return the folder of the run of a member of a population."""
        return self.path / "runs" / f"member-{number:05}-{seed}"

    def member(self, number: int, setting: Setting, seed: int) -> RunFolder:
        """Open the run of a member of a population, whose options change: its stages learn by those it has now."""
        path, plan = self.member_path(number, seed), replace(self.plan.plan, seed=seed)
        begun = (path / RunFolder.plan_file).exists()
        run = RunFolder.open(path) if begun else RunFolder.create(path, plan)
        return _by(self.plan.plan_of(setting, seed), run)

    @property
    def source(self) -> Path:
        """The folder of the run that trials adapt, as it was when the sweep was begun."""
        return self.path / "source"

    @property
    def shared(self) -> Path:
        """The folder of the stages that trials have in common."""
        return self.path / "shared"

    @property
    def tune(self) -> Path:
        """The folder of what Ray Tune, or a population, goes on from."""
        return self.path / "tune"
