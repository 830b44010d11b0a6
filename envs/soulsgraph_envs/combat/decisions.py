"""Decisions read back from the controls of a fight: the inverse of the composition, Eq. 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

import numpy as np

from soulsgraph_envs.combat.episodes import Integers
from soulsgraph_envs.core.controls import Control, Controls
from soulsgraph_envs.core.state import Column, StateRows
from soulsgraph_envs.skills.base import Skill


@dataclass(frozen=True)
class ReadBack:
    """One skill's decisions as the controls have them: the ticks in which they begin and end, and actions, (n,) each.

    The tick of an end is the next one that can begin a decision; it may lie behind the end of the fight. `ambiguous`
    counts the ticks in which the skill may have decided, and that do not show what.
    """

    begins: Integers
    ends: Integers
    actions: Integers
    ambiguous: int


def read_back(controls: Controls, rows: StateRows, skills: Sequence[Skill]) -> dict[str, ReadBack]:
    """Return the decisions of each skill in one fight, from its controls (ticks,) and State rows (ticks or more, 25).

    A tick is ambiguous for a skill whose controls another skill takes in it or sends as well, and where no single
    action of the skill sends just what was sent, as when a person turns and tilts the camera at once. An action that a
    person cuts short by another one is ambiguous too. What sends nothing is taken for the action that does nothing.
    """
    others = {skill.name: [other for other in skills if other is not skill] for skill in skills}
    return {skill.name: _of_skill(controls, rows, skill, others[skill.name]) for skill in skills}


def _of_skill(controls: Controls, rows: StateRows, skill: Skill, others: Sequence[Skill]) -> ReadBack:
    own = skill.controls
    rivals = [other for other in others if other.wins_over & own]
    shared = own & reduce(or_, (other.controls for other in others), Control.NONE)
    actions = _by_controls(skill)
    found: list[tuple[int, int, int]] = []
    ambiguous, free, held = 0, 0, 0
    for tick, bits in enumerate(controls.tolist()):
        sent, taken = bits & own, bits & shared or any(bits & rival.controls for rival in rivals)
        if tick < free and (taken or sent == held):
            continue
        if tick < free:
            found.pop()
            ambiguous += 1
        action = None if taken else actions.get(sent)
        if action is None:
            ambiguous, free = ambiguous + 1, tick + 1
            continue
        empty = int(rows[tick, Column.FLASKS] < 1.0)
        free, held = tick + int(skill.step_ticks[action, empty]), int(skill.actions[action].holds)
        found.append((tick, free, action))
    begins, ends, chosen = np.array(found, np.int64).reshape(-1, 3).T
    return ReadBack(begins, ends, chosen, ambiguous)


def _by_controls(skill: Skill) -> dict[int, int | None]:
    """Return the skill's action for what it sends in its first tick; None where two actions send the same."""
    found: dict[int, int | None] = {}
    for index, action in enumerate(skill.actions):
        sent = int(action.holds | action.presses)
        found[sent] = None if sent in found else index
    return found
