"""Regain the lock on the boss: turn the camera to it, and press the lock key once it is in view.

Thresholds and patience are SoulsGym's.
"""

from __future__ import annotations

from math import atan2

import numpy as np

from soulsgraph_envs.controls import Control
from soulsgraph_envs.soulsgym.core.game_state import Floats
from soulsgraph_envs.state import wrap_angle

#: The camera looks at the target well enough to lock on when the cosine between them is above this.
_IN_VIEW = 0.8
#: What is left of the way to turn, in radians aside and in units of the direction's height.
_CLOSE = 0.3
#: So many steps pass before the next press: the game needs a moment to show the lock.
_PATIENCE = 3


class LockOn:
    """Choose the camera and lock keys of the next step."""

    def __init__(self) -> None:
        self._wait = 0

    def keys(self, camera_pose: Floats, target: Floats) -> Control:
        """Return the keys that turn the camera (x, y, z, direction) to a target (x, y, z, ...)."""
        looks, towards = camera_pose[3:], target[:3] - camera_pose[:3]
        towards = towards / max(float(np.linalg.norm(towards)), 1e-6)
        if self._wait <= 0 and float(looks @ towards) > _IN_VIEW:
            self._wait = _PATIENCE
            return Control.LOCK_ON
        self._wait -= 1
        return _turn(looks, towards)


def _turn(looks: Floats, towards: Floats) -> Control:
    aside = wrap_angle(_heading(towards) - _heading(looks))
    upward = float(towards[2] - looks[2])
    keys = Control.NONE
    if abs(aside) > _CLOSE:
        keys |= Control.CAMERA_RIGHT if aside > 0 else Control.CAMERA_LEFT
    if abs(upward) > _CLOSE:
        keys |= Control.CAMERA_UP if upward > 0 else Control.CAMERA_DOWN
    return keys


def _heading(direction: Floats) -> float:
    """Return the game's angle of a direction: angle a faces (-sin a, -cos a)."""
    return atan2(-float(direction[0]), -float(direction[1]))
