"""SoulsGym's 20 actions: eight ways to walk, the same eight with a roll, three blows, nothing."""

from __future__ import annotations

from soulsgraph_envs.controls import Control

_AHEAD, _BACK, _LEFT, _RIGHT = Control.FORWARD, Control.BACK, Control.LEFT, Control.RIGHT
_WAYS = (_AHEAD, _AHEAD | _RIGHT, _RIGHT, _RIGHT | _BACK, _BACK, _BACK | _LEFT, _LEFT, _LEFT | _AHEAD)
_BLOWS = (Control.LIGHT_ATTACK, Control.HEAVY_ATTACK, Control.PARRY)

#: What each action presses and holds.
ACTIONS = (*_WAYS, *(way | Control.ROLL for way in _WAYS), *_BLOWS, Control.NONE)
MOVES, ROLLS, BLOWS = range(8), range(8, 16), range(16, 19)
NOTHING = 19
