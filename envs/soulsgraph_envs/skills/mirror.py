"""The mirrored fight: a skill's observations and actions with left and right exchanged.

An arena is a disc, and neither fighter's moves prefer a side, so a fight reflected about the line of
constant x through the arena's centre is as likely as the fight itself. A heading faces
(-sin a, -cos a): the reflection changes the sign of headings and of x.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from soulsgraph_envs.controls import Control
from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_envs.scenario import Scenario
from soulsgraph_envs.skills.skill import Action, Floats, Integers, Skill
from soulsgraph_envs.state import Column

_DIRECTIONS = (Column.DIRECTION_X, Column.CAMERA_X, Column.PLAYER_ANGLE, Column.BOSS_ANGLE)
_PLACES = (Column.PLAYER_X, Column.BOSS_X)
_SWAPPED = ((Control.LEFT, Control.RIGHT), (Control.CAMERA_LEFT, Control.CAMERA_RIGHT))


@dataclass(frozen=True)
class Mirror:
    """A skill's reflection in one scenario: observations become sign * value + shift, (size,) each.

    `actions` (actions,) maps each action to its mirrored one.
    """

    sign: Floats
    shift: Floats
    actions: Integers

    @classmethod
    def of(cls, skill: Skill, scenario: Scenario) -> Mirror:
        """Reflect a skill about the arena's centre.

        Raises:
            SoulsGraphError: if an action has no counterpart.
        """
        bound = skill.observation.bind(scenario)
        directions, places = np.isin(bound.columns, _DIRECTIONS), np.isin(bound.columns, _PLACES)
        across = 2.0 * (scenario.arena.centre_m[0] - bound.offset) * bound.scale
        return cls(
            sign=np.where(directions | places, -1.0, 1.0).astype(np.float32),
            shift=np.where(places, across, 0.0).astype(np.float32),
            actions=np.array([_counterpart(skill, action) for action in skill.actions], np.int64),
        )

    def observations(self, observations: Floats) -> Floats:
        """Reflect raw observations (n, size)."""
        reflected: Floats = self.sign * observations + self.shift
        return reflected


def mirrored_controls(controls: Control) -> Control:
    """Return controls with left and right exchanged."""
    reflected = controls
    for left, right in _SWAPPED:
        if (left in controls) != (right in controls):
            reflected ^= left | right
    return reflected


def _counterpart(skill: Skill, action: Action) -> int:
    reflected = replace(action, holds=mirrored_controls(action.holds), presses=mirrored_controls(action.presses))
    for index, other in enumerate(skill.actions):
        if replace(other, name=action.name) == reflected:
            return index
    raise SoulsGraphError(
        f"{skill.name}: expected an action that mirrors {action.name}, found none; "
        "give the skill one, or train it without mirrored transitions."
    )
