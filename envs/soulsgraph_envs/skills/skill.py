"""What a skill is: an observation map, an action set with step durations, reward terms, a horizon.

A `Skill` is what is played; a `SkillDefinition` is what its author declares, of which `make_skill` makes one, and by
whose name it is known: the paper's skills and those of projects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from annotated_types import MinLen
from numba import njit

from soulsgraph_envs.core.compiling import cached, checksum
from soulsgraph_envs.core.config import Between, Holds, NonEmpty, Where, check_fields, require
from soulsgraph_envs.core.errors import ActionError, SoulsGraphError, UnknownNameError, shown
from soulsgraph_envs.core.scenario import Scenario, StartName
from soulsgraph_envs.core.state import MADE_OF, STATE_SIZE, Column, Control, Raw, StateRows

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

#: Checksum of the code that maps, normalises and clips; compiled functions that call it enclose it.
PREPROCESSING = checksum([Path(__file__)])
Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Action:
    """One discrete action: what it holds, what it taps in its first tick, how many ticks it occupies."""

    name: str
    ticks: Annotated[int, Between(1, 1000)] = 1
    holds: Control = Control.NONE
    presses: Control = Control.NONE
    #: Ticks when no flask is left; None where flasks do not matter.
    ticks_when_empty: Annotated[int, Between(1, 1000)] | None = None


@njit
def observed(value: np.float32, offset: np.float32, scale: np.float32, indicated: np.float32) -> np.float32:
    """Map a State value: (value - offset) * scale, or whether it is the id `indicated` where that is 0 or more."""
    if indicated >= np.float32(0.0):
        return np.float32(value == indicated)
    return (value - offset) * scale


@njit(error_model="numpy")
def normalized(value: float, mean: float, inverse: float, clip: float) -> float:
    """Normalise one observed value by the mean and 1 / deviation in float64, clipped at plus and minus `clip`."""
    return min(max((value - mean) * inverse, -clip), clip)


@cached()
def _observe(rows: StateRows, columns: Integers, affine: tuple[Floats, Floats], ids: Floats, out: Floats) -> None:
    offset, scale = affine
    for row in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[row, i] = observed(rows[row, columns[i]], offset[i], scale[i], ids[i])


@dataclass(frozen=True)
class BoundObservation:
    """An observation map for one scenario: columns (size,), and each one's offset and scale, (size,) float32.

    A value with an id of at least 0 is 1 if its column holds that id, else 0; any other is
    (column - offset) * scale.
    """

    columns: Integers
    offset: Floats
    scale: Floats
    ids: Floats

    def __call__(self, rows: StateRows) -> Floats:
        """Map State rows (n, 25) to observations (n, size) float32."""
        assert rows.shape[1:] == (STATE_SIZE,), rows.shape
        out = np.empty((len(rows), len(self.columns)), np.float32)
        _observe(rows, self.columns, (self.offset, self.scale), self.ids, out)
        return out


@dataclass(frozen=True)
class ObservationMap:
    """The skill's phi_k: a selection of State columns, raw as Table 2 has them.

    With `hp_window` the boss HP column is rescaled to the scenario's HP window, so that it runs
    from 1 to 0 over every fight whatever part of the bar the fight takes. A column named in `one_hot`
    becomes an indicator for each of these ids; any other id sets none.
    """

    columns: tuple[Column, ...]
    hp_window: bool = True
    one_hot: Mapping[Column, Sequence[int]] = field(default_factory=dict)

    @cached_property
    def values(self) -> tuple[tuple[Column, int], ...]:
        """Every observed value: its column and the id it indicates, -1 for the column itself."""
        return tuple((column, index) for column in self.columns for index in self.one_hot.get(column, (-1,)))

    @property
    def size(self) -> int:
        """Number of observed values."""
        return len(self.values)

    @property
    def names(self) -> tuple[str, ...]:
        """Name every observed value by its State column, an indicator with its id behind."""
        return tuple(column.name if index < 0 else f"{column.name}={index}" for column, index in self.values)

    @property
    def indicators(self) -> Booleans:
        """Whether each observed value is an indicator, (size,): it is 0 or 1 and needs no normalising."""
        return np.array([index >= 0 for _, index in self.values], np.bool_)

    def bind(self, scenario: Scenario) -> BoundObservation:
        """Return the map with the scenario's HP window filled in."""
        columns, ids = zip(*self.values, strict=True)
        offset, scale = np.zeros(self.size, np.float32), np.ones(self.size, np.float32)
        if self.hp_window and Column.BOSS_HP in columns:
            start, end = scenario.boss_hp_ratios
            index = columns.index(Column.BOSS_HP)
            offset[index], scale[index] = end, 1.0 / (start - end)
        return BoundObservation(np.array(columns, np.int64), offset, scale, np.array(ids, np.float32))

    def __call__(self, rows: StateRows, scenario: Scenario) -> Floats:
        """Map State rows (n, 25) to observations (n, size) float32."""
        return self.bind(scenario)(rows)


@dataclass(frozen=True)
class Decisions:
    """Finished decisions of one skill: State rows at their start and end, and the action really sent.

    `before` and `after` are (n, 25), `actions` (n,) indices, `died` and `won` (n,) booleans; a
    decision that ends in both is a death.
    """

    before: StateRows
    after: StateRows
    actions: Integers
    died: Booleans
    won: Booleans

    def change(self, column: Column) -> Floats:
        """Return the column's change over the whole decision, (n,)."""
        return self.after[:, column] - self.before[:, column]


@dataclass(frozen=True)
class RewardTerm:
    """One named, weighted term; `value` maps finished decisions to (n,) floats, `formula` says how, with its source."""

    name: str
    weight: float
    value: Callable[[Decisions], Floats | Booleans]
    formula: str = ""


@runtime_checkable
class RewardWeights(Protocol):
    """The weights of a reward: a frozen dataclass whose `terms` are made of its fields."""

    def terms(self) -> tuple[RewardTerm, ...]:
        """Make the terms."""


@dataclass(frozen=True)
class Reward:
    """A sum of named terms, evaluated once per decision.

    Terms are functions without names: a copy in another process is made of the `weights` that they were made of.
    """

    terms: tuple[RewardTerm, ...]
    weights: RewardWeights | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, weights: RewardWeights) -> Reward:
        """Return the reward of some weights."""
        return cls(weights.terms(), weights)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Reward, (self.terms,)) if self.weights is None else (Reward.of, (self.weights,))

    @property
    def names(self) -> tuple[str, ...]:
        """The terms' names, in the order of `evaluate`'s columns."""
        return tuple(term.name for term in self.terms)

    def evaluate(self, decisions: Decisions) -> Floats:
        """Return the weighted terms, (n, terms) float32; the reward is their sum over a row."""
        shape = (len(decisions.actions), STATE_SIZE)
        assert decisions.before.shape == decisions.after.shape == shape, (decisions.before.shape, decisions.after.shape)
        out = np.empty((len(decisions.actions), len(self.terms)), np.float32)
        for index, term in enumerate(self.terms):
            out[:, index] = term.weight * term.value(decisions)
        return out


@dataclass(frozen=True)
class TrainingScenario:
    """What a skill's training scenario has of its own: the start of its episodes, and whether HP is refilled."""

    start: StartName
    refill: bool


@cached()
def _first_outside(indices: Integers, count: int) -> int:
    """Return the position of the first index that is negative or not below `count`, or -1."""
    for position in range(len(indices)):
        if not 0 <= indices[position] < count:
            return position
    return -1


@dataclass(frozen=True)
class Skill:
    """One node of the graph as a task; horizon in decisions of the skill.

    In a tick in which it sends any control, those that it has `precedence_over` are taken from
    the other skills.
    """

    name: str
    symbol: str
    observation: ObservationMap
    actions: tuple[Action, ...]
    reward: Reward
    horizon: int
    training_scenario: TrainingScenario
    precedence_over: Control = Control.NONE

    @property
    def controls(self) -> Control:
        """Every control that one of its actions sends."""
        return reduce(or_, (action.holds | action.presses for action in self.actions), Control.NONE)

    def checked(self, actions: npt.ArrayLike, lanes: int | None = None) -> Integers:
        """Return actions (lanes,) as indices into `self.actions`, (lanes,); a single action as (1,).

        Raises:
            ActionError: for anything but one integer per lane, Python's or numpy's, in range.
        """
        try:
            array = np.asarray(actions)
        except Exception:  # A ragged list, or whatever an object's own conversion raises.
            array = np.asarray(None)
        wanted = "an action" if lanes is None else f"{lanes} actions"
        if array.dtype.kind not in "iu" or array.shape != (() if lanes is None else (lanes,)):
            raise self.refused(shown(actions), wanted)
        indices = np.ascontiguousarray(array, np.int64)
        wrong = _first_outside(indices, len(self.actions))
        if wrong >= 0:
            raise self.refused(shown(actions) if lanes is None else f"{array[wrong]} of environment {wrong}", wanted)
        return indices

    def refused(self, value: str, wanted: str = "an action") -> ActionError:
        """Return the error that names the skill's action space and the invalid action."""
        most = len(self.actions) - 1
        return ActionError(
            f"{self.name}: expected {wanted} of Discrete({most + 1}), integers from 0 to {most}, found {value}."
        )

    @property
    def longest_ticks(self) -> int:
        """Ticks of the longest step the skill can take."""
        return int(self.step_ticks.max())

    @cached_property
    def needs(self) -> frozenset[Raw]:
        """The raw values that the skill's observations, rewards and step durations depend on."""
        counted = {Raw.FLASKS} if any(action.ticks_when_empty for action in self.actions) else set()
        return frozenset(counted.union(*(MADE_OF[column] for column in self.observation.columns)))

    @cached_property
    def step_ticks(self) -> Integers:
        """Ticks of every action (actions, 2): with a flask and without."""
        return np.array([(action.ticks, action.ticks_when_empty or action.ticks) for action in self.actions], np.int64)

    def ticks(self, decisions: Decisions) -> Integers:
        """Return the control ticks that decisions occupy if no end cuts them, (n,)."""
        empty = (decisions.before[:, Column.FLASKS] < 1.0).astype(np.int64)
        ticks: Integers = self.step_ticks[decisions.actions, empty]
        return ticks

    def expect_finite(self, terms: Floats) -> None:
        """Refuse rewards of which one is no number, or infinite: `terms` (n, terms) are values or sums of each term.

        Raises:
            SoulsGraphError: naming the skill, the first such term, and where that is written.
        """
        assert terms.shape[1:] == (len(self.reward.terms),), terms.shape
        if (finite := np.isfinite(terms)).all():
            return
        row, column = np.argwhere(~finite)[0]
        term = self.reward.terms[column]
        code = getattr(term.value, "__code__", None)
        line = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
        raise SoulsGraphError(
            f"{self.name}: expected finite rewards, found {terms[row, column]} of its term {shown(term.name)}{line}; "
            "correct the term."
        )


def training_scenario(scenario: Scenario, skill: Skill) -> Scenario:
    """Return the scenario as the skill trains on it: its start, and HP refilled where nobody may die."""
    return replace(scenario, start=skill.training_scenario.start, refill=skill.training_scenario.refill)


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
    columns: NonEmpty[Column]
    actions: Annotated[tuple[Action, ...], MinLen(2)]
    extended: tuple[Column, ...] = ()
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

    name: Annotated[str, Holds(NAME.fullmatch, "be at most 40 small letters, digits and underscores")]
    task: Task
    rewards: RewardWeights
    options: str = ""

    def __post_init__(self) -> None:
        check_fields(self, Where(f"skill {shown(self.name)}", remedy="correct the skill"))
        names = [action.name for action in self.task.actions]
        require(len({*names}) == len(names), "task.actions", "have each name once")
        columns = (*self.task.columns, *self.task.extended)
        require(len({*columns}) == len(columns), "task.columns", "be there once, extended ones too")


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
