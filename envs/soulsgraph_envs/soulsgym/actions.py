"""SoulsGym's 20 actions: eight ways to walk, the same eight with a roll, three blows, nothing."""

from __future__ import annotations

from soulsgraph_envs.controls import Control

#: SoulsGym's names of what can be pressed.
PRESSES = {
    "forward": Control.FORWARD,
    "backward": Control.BACK,
    "left": Control.LEFT,
    "right": Control.RIGHT,
    "roll": Control.ROLL,
    "lightattack": Control.LIGHT_ATTACK,
    "heavyattack": Control.HEAVY_ATTACK,
    "parry": Control.PARRY,
    "useitem": Control.USE_ITEM,
    "lock_on": Control.LOCK_ON,
    "interact": Control.INTERACT,
    **{f"camera{way}": Control[f"CAMERA_{way.upper()}"] for way in ("up", "down", "left", "right")},
}
_WAYS = (
    *(("forward",), ("forward", "right"), ("right",), ("right", "backward")),
    *(("backward",), ("backward", "left"), ("left",), ("left", "forward")),
)
#: What each action presses and holds, by SoulsGym's names and as controls.
NAMED_ACTIONS = (*_WAYS, *((*way, "roll") for way in _WAYS), ("lightattack",), ("heavyattack",), ("parry",), ())
ACTIONS = tuple(Control(sum(PRESSES[name] for name in names)) for names in NAMED_ACTIONS)
MOVES, ROLLS, BLOWS = range(8), range(8, 16), range(16, 19)
NOTHING = 19
