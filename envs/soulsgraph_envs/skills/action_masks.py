"""Which actions of a skill would do something now: what Gymnasium and sb3-contrib call an action mask."""

from __future__ import annotations

import numpy as np

from soulsgraph_envs.core.scenario import Scenario, load_player, supported_controls
from soulsgraph_envs.core.state import STATE_SIZE, Column, Control, StateRows
from soulsgraph_envs.skills.skill import Booleans, Skill

_LOOKS = Control.CAMERA_UP | Control.CAMERA_DOWN | Control.CAMERA_LEFT | Control.CAMERA_RIGHT
_EFFORTS = (
    Control.ROLL | Control.LIGHT_ATTACK | Control.HEAVY_ATTACK | Control.PARRY | Control.JUMP | Control.WEAPON_ART
)


class ActionMasks:
    """The actions of a skill that would do something, by what the State shows.

    An action is what it presses, or else what it holds. These controls do nothing: those that the player's character
    does not have, a flask where none is left (the character reaches for it in vain), the camera's under a lock, and
    what needs stamina while there is none. An action without controls is always allowed.

    Raises:
        DataError: as `load_player`.
    """

    def __init__(self, skill: Skill, scenario: Scenario) -> None:
        self._sent = np.array([action.presses or action.holds for action in skill.actions], np.uint32)
        self._missing = np.uint32(~supported_controls(load_player(scenario.player)) & 0xFFFFFFFF)

    def __call__(self, rows: StateRows) -> Booleans:
        """Return whether each action would do something, (n, actions), in States (n, 25).

        Where none would, all are allowed: an agent has to choose one.
        """
        assert rows.shape[1:] == (STATE_SIZE,), rows.shape
        idle = np.full(len(rows), self._missing, np.uint32)
        idle |= np.where(rows[:, Column.FLASKS] < 1.0, np.uint32(Control.USE_ITEM), np.uint32(0))
        idle |= np.where(rows[:, Column.LOCKED] == 1.0, np.uint32(_LOOKS), np.uint32(0))
        idle |= np.where(rows[:, Column.STAMINA] <= 0.0, np.uint32(_EFFORTS), np.uint32(0))
        allowed: Booleans = (self._sent == 0) | ((self._sent & ~idle[:, None]) != 0)
        allowed[~allowed.any(axis=1)] = True
        return allowed
