"""A continual study: its plan, its folder, and its units, of which each is one method and seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Annotated, Literal

from soulsgraph.continual.files import SCRATCH
from soulsgraph.continual.methods import METHODS
from soulsgraph.continual.methods.learning import TaskWorld
from soulsgraph.continual.methods.method import MethodOptions
from soulsgraph.runs.plan import Plan, check_learns
from soulsgraph.runs.study_folder import StudyFile, StudyFolder, Unit
from soulsgraph_envs.continual.sequences import ContinualSequence, fight_digest, load_sequence
from soulsgraph_envs.core.config import (
    EACH_ONCE,
    Between,
    NonEmpty,
    Where,
    check_fields,
    digest_of,
    read_file,
    to_table,
)
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.files import remove_folder, slug
from soulsgraph_envs.skills import budget_of, make_skill

#: Beside the methods: trains the first task once for all methods that learn it alike.
FIRST = "first"
#: The numbers of tasks after which held-out bosses are learned.
HELD_OUT_AFTER = (0, 1, 5, 10, 20, 50, 100)
#: How skills are chosen that adapt to a task: all of them, those named, or by the cheap rule.
AUTO = "auto"
#: The states that a unit goes on from, as a pattern below its folder; their names sort by time.
STATES = "task-*"
_WORK = "soulsgraph.continual.unit:do_unit"


def shares(skills: Sequence[str], budget: int, whole: bool) -> dict[str, int]:
    """Return how many decisions of a task's budget each skill learns from: equal parts, or those of a `whole` run."""
    weights = {skill: budget_of(skill) if whole else 1 for skill in skills}
    return {skill: max(round(budget * weight / sum(weights.values())), 1) for skill, weight in weights.items()}


@dataclass(frozen=True)
class ContinualStudy:
    """What a new study trains and evaluates. One that exists keeps its own plan.

    It is checked on construction.

    Raises:
        UnknownNameError: for an unknown sequence, method or preset.
        SoulsGraphError: for a value of another type or out of its range.
    """

    sequence: str = "S8"
    """Sequence of tasks: a name or a TOML file."""
    methods: Annotated[NonEmpty[str], EACH_ONCE] = tuple(METHODS)
    """Continual methods, in this order."""
    seeds: Annotated[NonEmpty[Annotated[int, Between(0, 2**31 - 1)]], EACH_ONCE] = tuple(range(10))
    """Training seeds."""
    graph: Literal["paper", "end-to-end"] = "paper"
    """Skill graph to train: paper, or end-to-end for one policy over all actions."""
    preset: str = "best"
    """How skills learn: paper, fast or best."""
    scale: Annotated[float, Between(1e-3, 1e2)] = 1.0
    """Multiplies every budget."""
    skills: Annotated[NonEmpty[str], EACH_ONCE] = (AUTO,)
    """Skills that adapt to every task but the first, or auto: those that the rule selects, which is charged."""
    episodes: Annotated[int, Between(1, 100_000)] = 200
    """Evaluation fights of each win rate, the same for all."""
    rows_every: Annotated[int, Between(1, 10_000)] = 1
    """Evaluate all earlier tasks after every this many tasks; a task itself is always evaluated when it ends."""
    held_out: Annotated[int, Between(0, 12)] = 0
    """Bosses outside all sequences on which plasticity is measured, after 1, 5, 10, 20, 50 and 100 tasks."""
    options: MethodOptions = field(default_factory=MethodOptions)
    """The methods' coefficients."""

    def __post_init__(self) -> None:
        check_fields(self)
        for name in self.methods:
            if name not in METHODS:
                raise UnknownNameError("continual method", name, METHODS)
        order = self.plan(0).skill_graph.order
        if AUTO in self.skills and not self.selects:
            raise SoulsGraphError(
                f"skills: expected {AUTO} alone or names of skills, found {', '.join(self.skills)}; leave {AUTO} out."
            )
        for name in self.skills:
            if name not in order and not self.selects:
                raise UnknownNameError("skill", name, (*order, AUTO))

    @cached_property
    def tasks(self) -> ContinualSequence:
        """The sequence itself."""
        return load_sequence(self.sequence)

    @property
    def selects(self) -> bool:
        """Whether the rule selects the skills that adapt."""
        return self.skills == (AUTO,)

    def named(self, order: Sequence[str]) -> tuple[str, ...]:
        """Return the skills that adapt where they are named, in graph order."""
        return tuple(skill for skill in order if skill in self.skills)

    def plan(self, seed: int) -> Plan:
        """Return by what plan the skills of a seed learn."""
        first = self.tasks.tasks[0].scenario
        return Plan(scenario=first, graph=self.graph, preset=self.preset, seed=seed, scale=self.scale)

    def budget(self, position: int) -> int:
        """Return the decisions that a task may take, of all skills that learn and of their selection."""
        return max(1, round(self.tasks.budget_at(position) * self.scale))

    def check_learns(self) -> None:
        """Refuse a scale by which a skill would take no update in a task, or could not be looked at to be selected.

        Raises:
            SoulsGraphError: naming the least scale.
        """
        # Imported here: it loads pandas.
        from soulsgraph.continual.selecting import MOST_DECISIONS, SELECTED_PART, least_decisions

        plan, selects = self.plan(0), self.selects
        order, budget = plan.skill_graph.order, self.budget(1)
        every = selects or any(not METHODS[name].selects for name in self.methods)
        adapting = order if every else self.skills
        first = shares(order, self.budget(0), True)
        # Whatever is selected, a part of the budget may go into that.
        later = shares(adapting, budget - (budget // SELECTED_PART if selects else 0), False)
        stages = [replace(plan.stage(skill), budget=share) for skill, share in first.items()]
        stages += [replace(plan.stage(skill, plan.scenario, 1), budget=share) for skill, share in later.items()]
        check_learns(plan, stages)
        if not selects or not any(METHODS[name].selects for name in self.methods):
            return
        least = least_decisions([make_skill(name, plan.options) for name in order])
        if min(MOST_DECISIONS, budget // SELECTED_PART) < least:
            scale = ceil(100 * least * SELECTED_PART / self.tasks.budget) / 100
            raise SoulsGraphError(
                f"`skills`: expected a scale of {scale:g} or more, by which skills can be selected in a tenth of "
                f"a task, found {self.scale:g}; raise `scale` or name the skills."
            )

    def worlds(self, plan: Plan) -> list[TaskWorld]:
        """Return the tasks as skills that learn by a plan meet them."""
        animations = self.tasks.boss_animations
        return [TaskWorld(plan, position, name, animations) for position, name in enumerate(self.tasks.scenarios)]

    def units(self) -> tuple[ContinualUnit, ...]:
        """Return the units: the first tasks of the seeds, then the methods, the longest first."""
        methods = sorted(self.methods, key=lambda name: name != SCRATCH)
        first = [FIRST] if any(METHODS[name].shares_first for name in methods) else []
        return (
            *(ContinualUnit(name, seed) for name in first for seed in self.seeds),
            *(ContinualUnit(name, seed) for seed in self.seeds for name in methods),
        )


@dataclass(frozen=True, order=True)
class ContinualUnit:
    """One method and seed."""

    method: str
    seed: int

    @property
    def name(self) -> str:
        """Identify the unit for readers."""
        return f"{self.method} {self.seed}"


class ContinualFolder(StudyFolder[ContinualStudy]):
    """Paths of a continual study: beside a study's, `units/<method>-<seed>/` with what each goes on from."""

    kind, plan_file, holds = "continual study", "continual.json", StudyFile[ContinualStudy]

    @staticmethod
    def fights(plan: ContinualStudy) -> dict[str, str]:
        """Return a digest of the sequence, in its order, with budgets and all that the files of its fights say."""
        sequence = plan.tasks
        digest = digest_of([to_table(sequence), [fight_digest(task.scenario) for task in sequence.tasks]])
        return {f"the sequence {slug(plan.sequence)}": digest}

    def check_memory(self) -> None:
        """Refuse a study whose replay would fill more than half of the memory; raises DataError."""
        self.plan.plan(0).check_memory()

    @property
    def units(self) -> tuple[Unit, ...]:
        """The first tasks of the seeds, then the methods."""
        return tuple(Unit(unit.name, _WORK, (unit,), first=unit.method == FIRST) for unit in self.plan.units())

    def unit_path(self, unit: ContinualUnit) -> Path:
        """Return the folder of what a unit goes on from."""
        return self.path / "units" / f"{unit.method}-{unit.seed}"

    def first(self, seed: int) -> Path:
        """Return the state that a seed's first task led to, for all methods that learn it alike."""
        return self.states(ContinualUnit(FIRST, seed))[-1]

    def states(self, unit: ContinualUnit) -> list[Path]:
        """Return the states that a unit can go on from, the newest last."""
        return sorted(self.unit_path(unit).glob(STATES))

    def assemble(self) -> None:
        """Write the tables of all units that are done, and remove the states that no unit needs; raises WriteError."""
        super().assemble()
        left = [unit.name for unit in self.left]
        for unit in self.plan.units():
            for state in self.states(unit) if unit.method != FIRST and unit.name not in left else ():
                remove_folder(state)


def planned_units(folder: Path) -> list[ContinualUnit]:
    """Return the methods and seeds of the study in a folder, whether its fights changed or not; none without a study.

    Raises:
        DataError: if the file that names them cannot be read.
    """
    where = Where(folder / ContinualFolder.plan_file, remedy="restore the file from a copy or begin another with `run`")
    if not (folder / ContinualFolder.plan_file).is_file():
        return []
    plan = read_file(where)["plan"]
    return [ContinualUnit(method, seed) for method in plan["methods"] for seed in plan["seeds"]]
