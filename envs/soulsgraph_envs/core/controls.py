"""The controls that one tick holds and presses, named by meaning; key bindings map them to keys."""

from __future__ import annotations

from enum import IntFlag

import numpy as np
import numpy.typing as npt

#: One tick's controls of every lane, (lanes,): a bit set of `Control`.
Controls = npt.NDArray[np.uint32]


class Control(IntFlag):
    """One button or stick direction, by what it means in the game."""

    NONE = 0
    FORWARD = 1 << 0
    BACK = 1 << 1
    LEFT = 1 << 2
    RIGHT = 1 << 3
    ROLL = 1 << 4
    LIGHT_ATTACK = 1 << 5
    USE_ITEM = 1 << 6
    LOCK_ON = 1 << 7
    CAMERA_UP = 1 << 8
    CAMERA_DOWN = 1 << 9
    CAMERA_LEFT = 1 << 10
    CAMERA_RIGHT = 1 << 11
    HEAVY_ATTACK = 1 << 12
    PARRY = 1 << 13
    JUMP = 1 << 14
    WEAPON_ART = 1 << 15
    INTERACT = 1 << 16


#: Every control there is: a game is never sent a bit outside this set.
ALL_CONTROLS = Control(sum(Control))
