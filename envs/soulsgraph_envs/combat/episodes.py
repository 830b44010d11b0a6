"""Played decisions and episodes, in columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.core.state import Column, StateRows

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
#: How a fight ended; one that is not seen to its end is "cut".
Outcome = Literal["won", "died", "time over", "cut"]
Table = TypeVar("Table", bound=Any)


def outcome_of(died: bool, won: bool, truncated: bool = True) -> Outcome:
    """Return how a fight ended by its last tick; one that nothing ended is "cut"."""
    if died or won:
        return "died" if died else "won"
    return "time over" if truncated else "cut"


def in_order(table: Table, by: Integers) -> Table:
    """Return a dataclass of columns with its rows in the order of `by` (n,); equal ones keep theirs."""
    order = np.argsort(by, kind="stable")
    columns = {name: column[order] for name, column in vars(table).items() if isinstance(column, np.ndarray)}
    sorted_table: Table = replace(table, **columns)
    return sorted_table


@dataclass(frozen=True)
class DecisionColumns:
    """Every decision of the episodes' skill, in order of episode and time, one row each.

    `episodes` numbers the episode, `rows` (m, 25) is the State at the decision's start, `ticks` what it occupies
    if no end cuts it, `explored` is whether the controller drew it at random.
    """

    episodes: Integers
    rows: StateRows
    actions: Integers
    rewards: Doubles
    ticks: Integers
    explored: Flags

    @classmethod
    def join(cls, parts: Sequence[DecisionColumns]) -> DecisionColumns:
        """Join parts, ordered by episode and within an episode by part."""
        whole = cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))
        return in_order(whole, whole.episodes)

    def without(self, episodes: Integers) -> DecisionColumns:
        """Return the columns without the decisions of some `episodes` (n,)."""
        kept = ~np.isin(self.episodes, episodes)
        return DecisionColumns(*(column[kept] for column in vars(self).values()))


@dataclass(frozen=True)
class Episodes:
    """Finished episodes of one skill; every field has one row an episode.

    `lengths` counts decisions of the skill, `seconds` game time; `rows` (n, 25) is the State at the end, `terms`
    (n, terms) sums each reward term.
    """

    lanes: Integers
    lengths: Integers
    seconds: Doubles
    won: Flags
    died: Flags
    rows: StateRows
    terms: Floats
    decisions: DecisionColumns | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def returns(self) -> Floats:
        """Undiscounted returns, (n,)."""
        returns: Floats = self.terms.sum(axis=1)
        return returns

    @property
    def cut(self) -> Flags:
        """Whether the horizon ended an episode, (n,)."""
        return ~(self.won | self.died)

    @property
    def taken(self) -> DecisionColumns:
        """The decisions of episodes that were played with `keep_decisions`."""
        assert self.decisions is not None, "these episodes were played without keep_decisions"
        return self.decisions

    @property
    def win_rate(self) -> float:
        """The share of episodes won."""
        return float(self.won.mean())

    @property
    def boss_hp(self) -> Floats:
        """The boss's HP at the end as a share of the first phase's, (n,)."""
        return self.rows[:, Column.BOSS_HP]

    @property
    def player_hp(self) -> Floats:
        """The player's HP at the end as a share of its maximum, (n,)."""
        return self.rows[:, Column.PLAYER_HP]

    @classmethod
    def join(cls, parts: Sequence[Episodes]) -> Episodes:
        """Join episodes in their order, without their decisions."""
        names = [field.name for field in fields(cls) if field.name != "decisions"]
        columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        return cls(**columns)
