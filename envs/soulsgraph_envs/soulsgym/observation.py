"""An agent's observation: SoulsGym's dictionary, with spaces known before a fight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Dict, Discrete, Space

from soulsgraph_envs.catalogue import load_player
from soulsgraph_envs.scenario import Scenario
from soulsgraph_envs.soulsgym.core.game_state import GameState
from soulsgraph_envs.soulsgym.data import UNKNOWN, Fight, frost_of, player_table
from soulsgraph_envs.soulsgym.exception import InvalidPlayerStateError

#: The longest duration of an animation that is shown, in seconds; longer ones are cut.
_LONGEST_S = 10.0
Observation = dict[str, Any]


class Observer:
    """Make the observations of one fight; they always lie in `space`, whatever a game reads.

    Levels are (1,) and poses (4,), the camera's (6,), all float32; the rest are whole numbers. Frost
    is shown of a boss that has it.
    """

    def __init__(self, fight: Fight, scenario: Scenario) -> None:
        self._fight = fight
        self._body = body = load_player(scenario.player).body
        low, high = fight.limits
        self._levels = {
            "player_hp": _level(body.hp),
            "player_sp": _level(body.stamina),
            "boss_hp": _level(scenario.boss_hp_full),
            "player_animation_duration": _level(_LONGEST_S),
            "boss_animation_duration": _level(_LONGEST_S),
        }
        if frost_of(scenario.boss):
            self._levels |= {"frost_resistance": _level(1.0), "frost_effect": _level(1.0)}
        pose = _box(low, high)
        camera = _box((*low[:3], -1.0, -1.0, -1.0), (*high[:3], 1.0, 1.0, 1.0))
        self._poses = {"player_pose": pose, "boss_pose": pose, "camera_pose": camera}
        numbers: dict[str, Space[Any]] = {
            "phase": Discrete(2, start=1),
            "player_max_hp": Discrete(1, start=int(body.hp)),
            "player_max_sp": Discrete(1, start=int(body.stamina)),
            "boss_max_hp": Discrete(1, start=int(scenario.boss_hp_full)),
            "player_animation": Discrete(len(player_table().animations) + 1, start=UNKNOWN),
            "boss_animation": Discrete(len(fight.boss_numbers) + 1, start=UNKNOWN),
            "lock_on": Discrete(2),
        }
        self.space = Dict({**numbers, **self._levels, **self._poses})

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
        shown: Observation = {
            "phase": np.int64(state.phase),
            "player_max_hp": np.int64(state.player_max_hp),
            "player_max_sp": np.int64(state.player_max_sp),
            "boss_max_hp": np.int64(state.boss_max_hp),
            "player_animation": np.int64(player_table().numbers.get(state.player_animation, UNKNOWN)),
            "boss_animation": np.int64(self._fight.boss_numbers.get(state.boss_animation, UNKNOWN)),
            "lock_on": np.int64(state.lock_on),
        }
        for name, box in self._levels.items():
            shown[name] = _within(box, [getattr(state, name)])
        for name, box in self._poses.items():
            shown[name] = _within(box, getattr(state, name))
        return shown


def _box(low: Sequence[float], high: Sequence[float]) -> Box:
    return Box(np.array(low, np.float32), np.array(high, np.float32))


def _level(most: float) -> Box:
    return Box(0.0, most, (1,), np.float32)


def _within(box: Box, values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Clip to the box: stamina may fall below 0, a camera may pass a wall."""
    shown: npt.NDArray[np.float32] = np.minimum(np.maximum(np.asarray(values, np.float32), box.low), box.high)
    return shown
