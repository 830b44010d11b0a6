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
    FORWARD, BACK, LEFT, RIGHT = 1 << 0, 1 << 1, 1 << 2, 1 << 3
    ROLL, LIGHT_ATTACK, USE_ITEM, LOCK_ON = 1 << 4, 1 << 5, 1 << 6, 1 << 7
    CAMERA_UP, CAMERA_DOWN, CAMERA_LEFT, CAMERA_RIGHT = 1 << 8, 1 << 9, 1 << 10, 1 << 11
    HEAVY_ATTACK, PARRY, JUMP, WEAPON_ART, INTERACT = 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16


#: Every control there is: a game is never sent a bit outside this set.
ALL_CONTROLS = Control(sum(Control))
