"""How SoulsGym's agents fight: actions and which of them can begin, observations, and turning the camera to lock on."""

from __future__ import annotations

from functools import cache
from math import atan2
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space

from soulsgraph_envs.compat.soulsgym.core.fights import STATIC, UNKNOWN, BossFight, player_table
from soulsgraph_envs.compat.soulsgym.core.game_state import Floats, GameState
from soulsgraph_envs.compat.soulsgym.exception import InvalidPlayerStateError
from soulsgraph_envs.core.fighters import Status
from soulsgraph_envs.core.scenario import Scenario, load_boss, load_player
from soulsgraph_envs.core.state import Control, wrap_angle

#: What each action presses and holds.
ACTIONS = tuple(Control(sum(STATIC.presses[name] for name in action.split())) for action in STATIC.actions)
MOVES, ROLLS, BLOWS = range(8), range(8, 16), range(16, 19)
NOTHING = 19


@cache
def frost_of(boss: str) -> Status | None:
    """Return the frost that a boss's blows build up, None if they build up none."""
    status = load_boss(boss).status
    return status if status.name == "frost" else None


def valid_actions(state: GameState) -> list[int]:
    """List the actions that the player can begin in a state, in rising order."""
    played_s, able = state.player_animation_duration, state.player_sp > 0
    attack_s, roll_s, move_s = player_table().animations.get(state.player_animation, (0.0, 0.0, 0.0))
    valid = [NOTHING]
    if able and played_s >= attack_s:
        valid[:0] = BLOWS
    if able and played_s >= roll_s:
        valid[:0] = ROLLS
    if played_s >= move_s:
        valid[:0] = MOVES
    return valid


#: The longest duration of an animation that is shown, in seconds; longer ones are cut.
_LONGEST_S = 10.0
Observation = dict[str, Any]


class Observer:
    """Make the observations of one fight; they always lie in `space`, whatever a game reads.

    Levels are (1,) and poses (4,), the camera's (6,), all float32; the rest are whole numbers. Frost
    is shown of a boss that has it.
    """

    def __init__(self, fight: BossFight, scenario: Scenario) -> None:
        self._fight = fight
        self._body = body = load_player(scenario.player).body
        low, high = fight.limits
        pose, camera = _box(low, high), _box([*low[:3], -1.0, -1.0, -1.0], [*high[:3], 1.0, 1.0, 1.0])
        frost = {"frost_resistance": _level(1.0), "frost_effect": _level(1.0)} if frost_of(scenario.boss) else {}
        self.space = Dict(
            {
                "phase": Discrete(2, start=1),
                "player_max_hp": Discrete(1, start=int(body.hp)),
                "player_max_sp": Discrete(1, start=int(body.stamina)),
                "boss_max_hp": Discrete(1, start=int(scenario.boss_hp_full)),
                "player_animation": Discrete(len(player_table().animations) + 1, start=UNKNOWN),
                "boss_animation": Discrete(len(fight.boss_numbers) + 1, start=UNKNOWN),
                "lock_on": Discrete(2),
                "player_hp": _level(body.hp),
                "player_sp": _level(body.stamina),
                "boss_hp": _level(scenario.boss_hp_full),
                "player_animation_duration": _level(_LONGEST_S),
                "boss_animation_duration": _level(_LONGEST_S),
                **frost,
                "player_pose": pose,
                "boss_pose": pose,
                "camera_pose": camera,
            }
        )

    def check(self, state: GameState) -> None:
        """Refuse a player other than the scenario's, whose levels the spaces contain.

        Raises:
            InvalidPlayerStateError: if the greatest HP or stamina is another.
        """
        expected, found = (self._body.hp, self._body.stamina), (state.player_max_hp, state.player_max_sp)
        if found != expected:
            raise InvalidPlayerStateError(
                "expected a player of {:g} HP and {:g} stamina, found {:g} and {:g}: ".format(*expected, *found)
                + "load the Knight as he begins."
            )

    def observe(self, state: GameState) -> Observation:
        """Return the observation of a state."""
        values = {
            **vars(state),
            "player_animation": player_table().numbers.get(state.player_animation, UNKNOWN),
            "boss_animation": self._fight.boss_numbers.get(state.boss_animation, UNKNOWN),
        }
        return {name: _shown(space, values[name]) for name, space in self.space.items()}


def _box(low: list[float], high: list[float]) -> Box:
    return Box(np.array(low, np.float32), np.array(high, np.float32))


def _level(most: float) -> Box:
    return Box(0.0, most, (1,), np.float32)


def _shown(space: Space[Any], value: Any) -> Any:
    """Return a value as its space has it, clipped to a box: stamina may fall below 0, a camera may pass a wall."""
    if not isinstance(space, Box):
        return np.int64(value)
    return np.minimum(np.maximum(np.asarray(value, np.float32), space.low), space.high)


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
