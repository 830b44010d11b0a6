"""Finished decisions of one skill, gathered tick after tick, so that they are judged many at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from soulsgraph_envs.combat import Combat
from soulsgraph_envs.composition import Actions, Flags
from soulsgraph_envs.errors import GameError
from soulsgraph_envs.skills.skill import Decisions
from soulsgraph_envs.state import STATE_SIZE, StateRows

Integers = npt.NDArray[np.int64]
Ends = tuple[Flags, Flags, Flags]


@njit(cache=True)
def _append(
    skill: int,
    fight: tuple[Flags, Actions, StateRows, StateRows],
    ends: Ends,
    count: int,
    log: tuple[tuple[Integers, Integers], tuple[StateRows, StateRows], Ends],
) -> int:
    completed, latest, starts, rows = fight
    (lanes, actions), (before, after), marks = log
    for lane in range(rows.shape[0]):
        if completed[lane, skill]:
            lanes[count], actions[count] = lane, latest[lane, skill]
            before[count, :], after[count, :] = starts[lane, :], rows[lane, :]
            for i in range(len(marks)):
                marks[i][count] = ends[i][lane]
            count += 1
    return count


class DecisionLog:
    """Gather the finished decisions of a combat's skill; `count` of them lie in it."""

    def __init__(self, combat: Combat, skill: int) -> None:
        self._skill = skill
        self._fight = (combat.completed, combat.latest, combat.starts(skill), combat.rows)
        self._ends = (combat.died, combat.won, combat.terminated)
        self.count = 0
        self._allocate(combat.lanes)

    def _allocate(self, capacity: int) -> None:
        self.capacity = capacity
        self._log = (
            (np.empty(capacity, np.int64), np.empty(capacity, np.int64)),
            (np.empty((capacity, STATE_SIZE), np.float32), np.empty((capacity, STATE_SIZE), np.float32)),
            (np.empty(capacity, np.bool_), np.empty(capacity, np.bool_), np.empty(capacity, np.bool_)),
        )

    def reserve(self, decisions: int) -> None:
        """Make room for so many decisions in an empty log."""
        if self.capacity < decisions:
            self._allocate(decisions)

    def append(self) -> int:
        """Take what ended with the last tick, lane by lane; give how many decisions that were.

        Raises:
            GameError: if there is no room for as many as there are lanes.
        """
        before = self.count
        if before + len(self._ends[0]) > self.capacity:
            raise GameError(
                f"decision log: expected room for {before + len(self._ends[0])} decisions, found {self.capacity}; "
                "reserve more, or drain the log before."
            )
        self.count = _append(self._skill, self._fight, self._ends, before, self._log)
        return self.count - before

    def drain(self) -> tuple[Integers, Decisions, Flags]:
        """Give lanes (n,), decisions, and whether each terminated its episode (n,): views until the next `append`."""
        part, self.count = slice(0, self.count), 0
        (lanes, actions), (before, after), (died, won, terminated) = self._log
        decisions = Decisions(before[part], after[part], actions[part], died[part], won[part])
        return lanes[part], decisions, terminated[part]
