"""What a sweep trains, and its folder: the plan in `sweep.json`, a run folder for each setting and seed, results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from soulsgraph.paper.study import CHOOSING
from soulsgraph.runs import lineage
from soulsgraph.runs.plan import Plan, Stage, check_learns, lasting_name, overrides_for, scenario_digest
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.study_folder import StudyFile, StudyFolder, Unit
from soulsgraph.tune.space import MOST_SETTINGS, Search, SearchSpace
from soulsgraph.zoo import open_run
from soulsgraph_envs.core.config import EACH_ONCE, Between, NonEmpty, check_fields, digest_of, to_json
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.extras import pip_install

Scheduler = Literal["none", "asha", "pbt"]
Setting = Mapping[str, Any]
#: By which trials are compared: the share of fights won, or where one skill is trained its mean return.
WIN_RATE, RETURN = "win_rate", "return"
#: Names in trials' configurations and rows. Tune varies what comes first in the alphabet fastest: seeds.
OPTIONS, SEED, STEP, WINS, EPISODES, LOW, HIGH = "setting", "seed", "step", "wins", "episodes", "low", "high"
NODE = "node"
#: Of a member of a population: its mean return while it learns, in other fights than those that it is reported on.
TRAINING_RETURN = "training_return"
#: How a trial ended, as its row has it, and the table of these.
FINISHED, STOPPED, FAILED, INTERRUPTED = "finished", "stopped early", "failed", "interrupted"
TRIALS = "trials"
#: Digits of a setting's digest in the names of its runs.
_DIGITS = 8
_WORK = "soulsgraph.tune.trial:do_trial"


@dataclass(frozen=True)
class SweptRun:
    """A trained run, of which each trial adapts skills to another scenario, or trains one anew on those upstream.

    Raises:
        SoulsGraphError: if a number is out of its range.
    """

    run: str
    """Run folder, or an agent of the zoo; a sweep that is begun has a copy of it."""
    scenario: str
    """Scenario to adapt to; where one skill is trained that of the run."""
    skills: Annotated[NonEmpty[str], EACH_ONCE]
    """Skills to adapt, or the one to train."""
    budget: Annotated[int, Between(1, 100_000_000)] | None = None
    """Decisions for each; as of `adapt` if not given."""

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "scenario", lasting_name(self.scenario))

    @property
    def folder(self) -> RunFolder:
        """The run, for reading."""
        return open_run(Path(self.run))


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
    """Skill that trials train anew, on those upstream of the run that `adapt` names; compared by its mean return."""
    source: SweptRun | None = None
    """What trials adapt, or train one skill of, in the place of a curriculum."""

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
        if self.stage is not None and self.source is None:
            raise SoulsGraphError(
                f"sweep: expected with a stage the trained run on whose skills {self.stage} is trained, found none; "
                "name it with `adapt`."
            )
        for joint in (stage for stage in self.plan.stages() if stage.jointly and self.stage in stage.skills):
            raise SoulsGraphError(
                f"sweep: expected a stage of one skill, found {joint.name}, which preset {self.plan.preset} trains "
                "jointly; leave the stage out, or name another preset."
            )
        if self.search == "optuna":
            if find_spec("optuna") is None:
                raise SoulsGraphError(
                    f"search: expected optuna to be installed, found none; install it: {pip_install('tune')}."
                )
            if self.scheduler != "none":
                raise SoulsGraphError(
                    f"scheduler: expected none with optuna, which goes by settings trained to the end on every seed, "
                    f"found {self.scheduler}; leave it out, or search at random."
                )
        if self.scheduler != "pbt":
            return
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
        return self.plan.scenario if self.source is None else self.source.scenario

    def stages(self, run: RunFolder) -> tuple[Stage, ...]:
        """Return the stages of a trial's run, of which the last is what its scheduler goes by."""
        if (source := self.source) is None:
            return lineage.own_stages(run)
        if self.stage is None:
            return lineage.adaptation_stages(run, source.scenario, source.skills, source.budget)
        stage = lineage.own_stage(run, self.stage)
        return (replace(stage, budget=source.budget or stage.budget),)

    @property
    def budget(self) -> int:
        """Decisions of the last stage."""
        return self._planned(self.plan)[-1].steps

    @property
    def searched(self) -> bool:
        """Whether Ray Tune chooses settings, or stops or changes trials; if not, all are known before."""
        return self.search == "optuna" or self.scheduler != "none"

    def settings(self) -> list[dict[str, Any]]:
        """Return the settings that are known before: of the grid, or drawn by the first seed, each once."""
        settings = [*self.space.grid()]
        if self.search == "random":
            domains, drawn = self.space.domains(self.search), np.random.default_rng(self.seeds[0])
            samples = range(self.samples)
            settings = [{name: one.sample(random_state=drawn) for name, one in domains.items()} for _ in samples]
        return list({digest_of(setting): setting for setting in settings}.values())

    @property
    def trials(self) -> int:
        """The number of trials in all."""
        by_samples = self.searched and self.search != "grid"
        return (self.samples if by_samples else len(self.settings())) * len(self.seeds)

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
        if (source := self.source) is None:
            return plan.stages()
        skills, parent = [name for name in plan.skill_graph.order if name in source.skills], None if self.stage else 1
        stages = (plan.stage(name, source.scenario, parent) for name in skills)
        return tuple(replace(stage, budget=source.budget or stage.budget) for stage in stages)


def named(setting: Setting) -> str:
    """Return a setting in words."""
    return ", ".join(f"{name}={value}" for name, value in setting.items())


class SweepFolder(StudyFolder[Sweep]):
    """Paths of a sweep.

    Layout: `sweep.json`, `runs/<digest of the setting>-<seed>/` (run folders; of a population `runs/<trial>-<seed>/`),
    `source/` (the run that is adapted), `tune/` (what Ray Tune goes on from) and `results/`.
    """

    kind, plan_file, holds = "sweep", "sweep.json", StudyFile[Sweep]

    @staticmethod
    def fights(plan: Sweep) -> dict[str, str]:
        """Return the digests of the fights that trials learn and are evaluated in."""
        return {name: scenario_digest(name) for name in (plan.plan.scenario, plan.scenario)}

    @property
    def graph(self) -> str:
        """The skill graph of all trials."""
        return self.plan.plan.graph

    def check_memory(self) -> None:
        """Refuse a plan that needs more memory than this machine may spare; raises DataError."""
        self.plan.plan.check_memory()

    @property
    def units(self) -> tuple[Unit, ...]:
        """The trials that are known before."""
        sweep = self.plan
        known = ((setting, seed) for setting in ([] if sweep.searched else sweep.settings()) for seed in sweep.seeds)
        return tuple(Unit(f"{named(setting)}, seed {seed}", _WORK, (setting, seed)) for setting, seed in known)

    def row(
        self, setting: Setting, seed: int, state: str, reported: Mapping[str, Any], error: str = "", trial: str = ""
    ) -> dict[str, Any]:
        """Return a trial as a row: its setting and seed, how it ended, its last figures and its run."""
        row = {name: to_json(value) if isinstance(value, list | tuple) else value for name, value in setting.items()}
        names = (STEP, self.plan.metric, RETURN, *([TRAINING_RETURN] if self.plan.scheduler == "pbt" else []))
        row |= {SEED: seed, "state": state, **{name: reported.get(name) for name in names}}
        row |= {name: reported.get(name) if state == FINISHED else None for name in (WINS, EPISODES, LOW, HIGH, NODE)}
        return row | {"error": error, "run": self.run_path(setting, seed, trial).relative_to(self.path).as_posix()}

    def run_path(self, setting: Setting, seed: int, trial: str = "") -> Path:
        """Return the folder of a trial's run: by its setting, or of a population, whose settings change, by its id."""
        name = trial if self.plan.scheduler == "pbt" else digest_of(dict(setting))[:_DIGITS]
        return self.path / "runs" / f"{name}-{seed}"

    def run(self, path: Path, setting: Setting, seed: int) -> RunFolder:
        """Open a trial's run in a folder, begun if it is not there.

        Raises:
            SoulsGraphError: if another run is in its folder.
        """
        plan = self.plan.plan_of(setting, seed)
        if self.plan.source is None:
            return RunFolder.of_plan(path, plan)
        # A copy of the run, whose stages learn by the trial's plan.
        begun = (path / RunFolder.plan_file).exists()
        run = RunFolder.open(path) if begun else self._copied(RunFolder.open(self.source), path)
        return RunFolder(run.path, plan, run.fight)

    def prepare(self) -> None:
        """Copy the run that trials begin with, which may change later, into the folder; raises WriteError."""
        if self.plan.source is not None and not self.source.exists():
            self._copied(self.plan.source.folder, self.source)

    def _copied(self, run: RunFolder, path: Path) -> RunFolder:
        """Copy what a trial begins with: the skills upstream of the one that it trains, or all of the last domain."""
        if self.plan.stage is None:
            return lineage.branch(run, path, lineage.domain_chain(run)[-1])
        return lineage.branch(run, path, run.plan.scenario, run.plan.skill_graph.upstream(self.plan.stage))

    @property
    def source(self) -> Path:
        """The folder of the run that trials begin with, as it was when the sweep was begun."""
        return self.path / "source"

    @property
    def tune(self) -> Path:
        """The folder of what Ray Tune goes on from."""
        return self.path / "tune"
