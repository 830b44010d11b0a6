"""The fixed composition operator of Eq. 1: the skills' latest actions become one tick's controls.

The skills occupy distinct control subspaces, so their actions are merged by union: what an action
holds lasts for its whole step, what it presses is tapped in its first tick. Two rules are left. A
dodge takes its direction from movement, because both end up in the same tick's controls; and a
roll wins over an attack or a drink of the same tick.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from soulsgraph_envs.controls import Control, Controls
from soulsgraph_envs.skills.skill import Skill

#: (lanes, skills) int64: an action index, or -1 for a skill that has not decided yet.
Actions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_ROLL = np.uint32(Control.ROLL)
_BELOW_ROLL = np.uint32(~(Control.LIGHT_ATTACK | Control.USE_ITEM) & 0xFFFFFFFF)


@dataclass(frozen=True)
class ActionTables:
    """The skills' actions as arrays (skills, most actions): control bits and step durations in ticks."""

    holds: npt.NDArray[np.uint32]
    presses: npt.NDArray[np.uint32]
    ticks: npt.NDArray[np.int64]
    ticks_when_empty: npt.NDArray[np.int64]
    #: (skills,): how many actions each skill has.
    counts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, skills: Sequence[Skill]) -> ActionTables:
        """Pack the action sets of `skills`, in their order."""
        shape = (len(skills), max(len(skill.actions) for skill in skills))
        tables = cls(
            np.zeros(shape, np.uint32),
            np.zeros(shape, np.uint32),
            np.ones(shape, np.int64),
            np.ones(shape, np.int64),
            np.array([len(skill.actions) for skill in skills], np.int64),
        )
        for row, skill in enumerate(skills):
            for index, action in enumerate(skill.actions):
                tables.holds[row, index] = action.holds
                tables.presses[row, index] = action.presses
                tables.ticks[row, index] = action.ticks
                tables.ticks_when_empty[row, index] = action.ticks_when_empty or action.ticks
        return tables


@njit(cache=True)
def merge_controls(
    latest: Actions, fresh: Flags, holds: npt.NDArray[np.uint32], presses: npt.NDArray[np.uint32], out: Controls
) -> None:
    """Merge the latest actions (lanes, skills) into `out` (lanes,); `fresh` marks actions decided this tick."""
    for lane in range(latest.shape[0]):
        bits = np.uint32(0)
        for skill in range(latest.shape[1]):
            action = latest[lane, skill]
            if action < 0:
                continue
            bits |= holds[skill, action]
            if fresh[lane, skill]:
                bits |= presses[skill, action]
        out[lane] = bits & _BELOW_ROLL if bits & _ROLL else bits
