"""What a skill is: an observation map, an action set with step durations, reward terms, a horizon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.controls import Control
from soulsgraph_envs.scenario import Scenario
from soulsgraph_envs.state import Column, StateRows

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Action:
    """One discrete action: what it holds, what it taps in its first tick, how many ticks it occupies."""

    name: str
    ticks: int = 1
    holds: Control = Control.NONE
    presses: Control = Control.NONE
    #: Ticks when no flask is left; None where flasks do not matter.
    ticks_when_empty: int | None = None

    @property
    def moves_sideways(self) -> bool:
        """Whether the action walks to the left or right, diagonals included."""
        return bool(self.holds & (Control.LEFT | Control.RIGHT))


@dataclass(frozen=True)
class BoundObservation:
    """An observation map for one scenario: columns (size,), and an affine map of each, (size,) float32."""

    columns: Integers
    offset: Floats
    scale: Floats

    def __call__(self, rows: StateRows) -> Floats:
        """Map State rows (n, 25) to observations (n, size) float32."""
        return (rows[:, self.columns] - self.offset) * self.scale


@dataclass(frozen=True)
class ObservationMap:
    """The skill's phi_k: a selection of State columns, raw as Table 2 has them.

    With `hp_window` the boss HP column is rescaled to the scenario's HP window, so that it runs
    from 1 to 0 over every fight whatever part of the bar the fight takes.
    """

    columns: tuple[Column, ...]
    hp_window: bool = True

    @property
    def size(self) -> int:
        """Number of observed values."""
        return len(self.columns)

    def affine(self, scenario: Scenario) -> tuple[Floats, Floats]:
        """Give (offset, scale), each (size,): an observation is (column - offset) * scale."""
        offset, scale = np.zeros(self.size, np.float32), np.ones(self.size, np.float32)
        if self.hp_window and Column.BOSS_HP in self.columns:
            start, end = scenario.boss_hp_ratios
            index = self.columns.index(Column.BOSS_HP)
            offset[index], scale[index] = end, 1.0 / (start - end)
        return offset, scale

    def bind(self, scenario: Scenario) -> BoundObservation:
        """Give the map with the scenario's HP window filled in."""
        return BoundObservation(np.array(self.columns, np.int64), *self.affine(scenario))

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
        """Give the column's change over the whole decision, (n,)."""
        return self.after[:, column] - self.before[:, column]


@dataclass(frozen=True)
class RewardTerm:
    """One named, weighted term; `value` maps finished decisions to (n,) floats."""

    name: str
    weight: float
    value: Callable[[Decisions], Floats | Booleans]


@dataclass(frozen=True)
class Reward:
    """A sum of named terms, evaluated once per decision."""

    terms: tuple[RewardTerm, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The terms' names, in the order of `evaluate`'s columns."""
        return tuple(term.name for term in self.terms)

    def evaluate(self, decisions: Decisions) -> Floats:
        """Give the weighted terms, (n, terms) float32; the reward is their sum over a row."""
        out = np.empty((len(decisions.actions), len(self.terms)), np.float32)
        for index, term in enumerate(self.terms):
            out[:, index] = term.weight * term.value(decisions)
        return out


@dataclass(frozen=True)
class Practice:
    """The ground a skill trains on: the start of its episodes, and whether HP is refilled (nobody dies)."""

    start: str
    refill: bool


@dataclass(frozen=True)
class Skill:
    """One node of the graph as a task; horizon in decisions of the skill."""

    name: str
    symbol: str
    observation: ObservationMap
    actions: tuple[Action, ...]
    reward: Reward
    horizon: int
    practice: Practice

    @property
    def longest_ticks(self) -> int:
        """Ticks of the longest step the skill can take."""
        return max(max(action.ticks, action.ticks_when_empty or 0) for action in self.actions)
