"""What an author says of a skill, and the table of the skills that are known: the paper's, and those of projects."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from soulsgraph_envs.core.config import Between, Where, check_fields
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError, shown
from soulsgraph_envs.core.scenario import START_NAMES
from soulsgraph_envs.core.state import Column, Control
from soulsgraph_envs.skills.base import Action, RewardWeights, TrainingScenario

#: How many ids the one-hot animation columns hold: those of Iudex, Vordt and the Knight.
ANIMATION_COUNTS = {Column.BOSS_ANIMATION: 18, Column.PLAYER_ANIMATION: 12}
#: What a skill or a project is named by is also a folder, a module of RLlib and a row of tables.
NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


@dataclass(frozen=True)
class Task:
    """A skill but for its reward; `horizon` and `budget` count its decisions.

    With `observations = "extended"` the `extended` columns come behind `columns`. Where animations are observed as
    indicators, those of ids below `boss_animations` and `player_animations` are: the counts are part of a trained
    policy's shape, so data added later never widens them. In a tick in which the skill sends any control, those that
    it has `precedence_over` are taken from the other skills.
    """

    symbol: str
    horizon: Annotated[int, Between(1, 1_000_000)]
    budget: Annotated[int, Between(1, 100_000_000)]
    training_scenario: TrainingScenario
    columns: tuple[Column, ...]
    actions: tuple[Action, ...]
    extended: Sequence[Column] = ()
    precedence_over: Control = Control.NONE
    boss_animations: Annotated[int, Between(1, 1000)] = ANIMATION_COUNTS[Column.BOSS_ANIMATION]
    player_animations: Annotated[int, Between(1, 1000)] = ANIMATION_COUNTS[Column.PLAYER_ANIMATION]


@dataclass(frozen=True)
class SkillDefinition:
    """A skill as declared: its task, and the weights of its reward.

    `options` names the field of `SkillOptions` that replaces the weights, where there is one.

    Raises:
        SoulsGraphError: for a name that cannot be one, and for a task that contradicts itself.
    """

    name: str
    task: Task
    rewards: RewardWeights
    options: str = ""

    def __post_init__(self) -> None:
        where = Where(f"skill {shown(self.name)}", remedy="correct the skill")
        named = isinstance(self.name, str) and bool(NAME.fullmatch(self.name))
        where.at("name").demand(named, "at most 40 small letters, digits and underscores", shown(self.name))
        where.at("task").demand(isinstance(self.task, Task), "a Task", shown(self.task))
        check_fields(self.task, where)
        _check_task(self.task, where)


def _check_task(task: Task, where: Where) -> None:
    names = [action.name for action in task.actions]
    where.at("actions").demand(len(names) > 1, "two actions or more", len(names))
    for kind, found in (("actions", names), ("columns", [*task.columns, *task.extended])):
        where.at(kind).demand(len(set(found)) == len(found), "each once", ", ".join(map(str, found)))
    for index, action in enumerate(task.actions):
        for key in ("ticks", "ticks_when_empty"):
            ticks = getattr(action, key)
            fits = 1 <= ticks <= 1000 if ticks is not None else key != "ticks"
            where.at("actions").at(index).at(key).demand(fits, "1 to 1000 ticks", ticks)
    start = task.training_scenario.start
    where.at("training_scenario").at("start").demand(
        start in START_NAMES, f"one of {', '.join(START_NAMES)}", shown(start)
    )


_DEFINITIONS: dict[str, SkillDefinition] = {}


def register(definition: SkillDefinition) -> None:
    """Make a skill known by its name.

    Raises:
        SoulsGraphError: if another skill has that name.
    """
    if _DEFINITIONS.setdefault(definition.name, definition) is not definition:
        raise SoulsGraphError(
            f"skill {definition.name}: expected a name of its own, found a skill of that name; rename it."
        )


def forget(name: str) -> None:
    """Make a skill unknown again."""
    _DEFINITIONS.pop(name, None)


def skill_names() -> tuple[str, ...]:
    """Name every skill that is known, the paper's first."""
    return tuple(_DEFINITIONS)


def definition_of(name: str) -> SkillDefinition:
    """Return how a skill is declared.

    Raises:
        UnknownNameError: if no skill has that name.
    """
    if name not in _DEFINITIONS:
        raise UnknownNameError("skill", name, _DEFINITIONS)
    return _DEFINITIONS[name]


def budget_of(name: str) -> int:
    """Return how many decisions a skill trains for; raises as `definition_of`."""
    return definition_of(name).task.budget
