"""What a sweep trains, and its folder: the plan in `sweep.json`, a run folder for each setting and seed, results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from soulsgraph.paper.study import CHOOSING
from soulsgraph.runs.plan import Plan, check_learns, overrides_for, scenario_digest
from soulsgraph.runs.run_folder import PlannedFolder, RunFolder, RunFolderError
from soulsgraph.tune.space import MOST_SETTINGS, Search, SearchSpace
from soulsgraph_envs.core.config import Between, Where, check_fields, digest_of, read_file, read_table
from soulsgraph_envs.core.errors import Remedy, SoulsGraphError, shown
from soulsgraph_policies.agents.projects import ProjectDigest

Scheduler = Literal["none", "asha"]
Setting = Mapping[str, Any]
_FORMAT, _VERSION = "soulsgraph-sweep", 1
#: Digits of a setting's digest in the names of its runs.
_DIGITS = 8


@dataclass(frozen=True)
class Sweep:
    """What is searched, and by what: each setting is trained on every seed. A folder that exists keeps its own.

    It is checked on construction, each value of an option beside the plan's.

    Raises:
        UnknownNameError: for an unknown option or skill.
        SoulsGraphError: for a value of another type or out of its range, or a range in a grid.
    """

    plan: Plan
    """What every trial trains; its seed counts nothing."""
    space: SearchSpace
    """Values of options of the learner."""
    seeds: tuple[Annotated[int, Between(0, 2**31 - 1)], ...] = tuple(CHOOSING[:3])
    """Training seeds, the same for each setting."""
    search: Search = "grid"
    """grid: every combination of the lists; random: samples of lists and ranges, the same in every call."""
    samples: Annotated[int, Between(1, MOST_SETTINGS)] = 10
    """Settings that a random search draws."""
    scheduler: Scheduler = "none"
    """asha: stop trials early whose win rates at checkpoints of the last skill are behind (Li et al. 2020)."""

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
        for setting in settings:
            self.plan_of(setting, self.seeds[0])

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
            check_learns(plan, plan.stages())


@dataclass(frozen=True)
class _SweepFile:
    """What `sweep.json` holds."""

    format: str
    format_version: int
    created: str
    scenario_digest: str
    #: Where the graph is a project's.
    project: ProjectDigest | None
    plan: Sweep = field(metadata={"key": "sweep"})


class SweepFolder(PlannedFolder[Sweep]):
    """Paths of a sweep.

    Layout: `sweep.json`, `runs/<digest of the setting>-<seed>/` (run folders), `tune/` (what Ray Tune goes on from) and
    `results/`.
    """

    kind, plan_file, opening = "sweep", "sweep.json", "SweepFolder.open"

    def check_memory(self) -> None:
        """Refuse a plan that needs more memory than this machine may spare; raises DataError."""
        self.plan.plan.check_memory()

    def description(self) -> _SweepFile:
        """Return what `sweep.json` holds when it is begun."""
        plan, now = self.plan.plan, datetime.now(UTC).isoformat()
        fight, project = scenario_digest(plan.scenario), ProjectDigest.of(plan.graph)
        return _SweepFile(_FORMAT, _VERSION, now, fight, project, self.plan)

    @classmethod
    def open(cls, path: Path) -> SweepFolder:
        """Open a sweep that `create` began.

        Raises:
            SoulsGraphError: if it is no sweep, its plan does not hold, or its fight changed since it was begun.
        """
        file = path / cls.plan_file
        if not file.is_file():
            begin = Remedy("begin one with: ", "SweepFolder.create", path=path)
            raise RunFolderError(path, "the folder of a sweep", f"no {cls.plan_file} in it", begin)
        where = Where(file, remedy="begin another sweep with `path`", saved=True)
        values = read_file(where)
        found = [values.get(name) for name in ("format", "format_version")] if isinstance(values, dict) else []
        where.demand(found == [_FORMAT, _VERSION], f"format {_FORMAT} {_VERSION}", shown(found))
        if (project := values.get("project")) is not None:
            read_table(ProjectDigest, project, where.at("project")).check(path)
        begun = read_table(_SweepFile, values, where)
        if begun.scenario_digest != scenario_digest(begun.plan.plan.scenario):
            raise RunFolderError(file, "the fight that it was begun with", "that it changed", "restore it")
        return cls(path, begun.plan)

    def run_path(self, setting: Setting, seed: int) -> Path:
        """Return the folder of a trial's run."""
        return self.path / "runs" / f"{digest_of(dict(setting))[:_DIGITS]}-{seed}"

    def run(self, setting: Setting, seed: int) -> RunFolder:
        """Open a trial's run, begun if it is not there.

        Raises:
            RunFolderError: if another run is in its folder.
        """
        path, plan = self.run_path(setting, seed), self.plan.plan_of(setting, seed)
        if not (path / RunFolder.plan_file).exists():
            return RunFolder.create(path, plan)
        run = RunFolder.open(path)
        if run.plan != plan:
            raise RunFolderError(path, "the run of this trial", "one by another plan", "remove it")
        return run

    @property
    def tune(self) -> Path:
        """The folder in which Ray Tune keeps what it goes on from."""
        return self.path / "tune"
