"""Iudex Gundyr: the training environment, its image version, and the demonstration of the whole fight."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from gymnasium.spaces import Box

from soulsgraph_envs.compat.soulsgym.core.fights import load_fight
from soulsgraph_envs.compat.soulsgym.core.game_state import GameState
from soulsgraph_envs.compat.soulsgym.envs.soulsenv import BossEnv, Options, SoulsEnvDemo
from soulsgraph_envs.compat.soulsgym.exception import InvalidGameSettings
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.render.pictures import is_size

_FIGHT = load_fight("iudex")
#: What SoulsGym calls the state of this fight.
IudexState = GameState


class _Iudex(BossEnv):
    """What every environment of Iudex shares."""

    ENV_ID = "iudex"
    BONFIRE, CAM_SETUP_POSE = _FIGHT.bonfire, list(_FIGHT.camera)
    ARENA_LIM_LOW, ARENA_LIM_HIGH = _FIGHT.limits
    IUDEX_MAX_HP = 1037
    #: Seconds between reloads of a running game; another number goes into `reload_after_s` of the games file.
    HARD_RESET_INTERVAL = 900


class IudexEnv(_Iudex):
    """One phase of Iudex from his full HP to nothing.

    `random_player_pose` begins at any of 11 places around the boss; `init_pose_randomization` is what
    SoulsGym 1.1.0 calls it.

    Raises:
        InvalidGameSettings: for a phase other than 1 and 2, and as `SoulsEnv`.
    """

    def __init__(
        self,
        game_speed: float = 1.0,
        phase: int = 1,
        random_player_pose: bool = False,
        skip_steps: bool = False,
        init_pose_randomization: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(game_speed, phase, skip_steps, **options)
        self.random_player_pose = random_player_pose or init_pose_randomization


class IudexImgEnv(IudexEnv):
    """One phase of Iudex, seen as a picture (height, width, 3) of red, green and blue, uint8.

    Raises:
        InvalidGameSettings: for a `resolution` other than two whole numbers above 0, a running game whose
            link takes no pictures, and as `IudexEnv`.
    """

    def __init__(
        self,
        game_speed: float = 1.0,
        phase: int = 1,
        random_player_pose: bool = False,
        skip_steps: bool = False,
        resolution: tuple[int, int] = (90, 160),
        **options: Unpack[Options],
    ) -> None:
        if not is_size(resolution):
            raise InvalidGameSettings(
                f"resolution: expected (height, width) in pixels, found {resolution!r}: try (90, 160)."
            )
        super().__init__(game_speed, phase, random_player_pose, skip_steps, **options)
        self._demand_frames()
        self.resolution = resolution
        self.observation_space = Box(0, 255, (*resolution, 3), np.uint8)

    @property
    def obs(self) -> Picture:
        """Draw the present state in the environment's resolution."""
        return self._frame(self.resolution)

    @property
    def info(self) -> dict[str, Any]:
        """Return the actions the player can begin, and `boss_hp`, which a picture hardly shows."""
        return {**super().info, "boss_hp": self._present.boss_hp}


class IudexEnvDemo(SoulsEnvDemo, _Iudex):
    """The whole fight with Iudex, his change of phase included."""

    def __init__(self, game_speed: float = 1.0, random_player_pose: bool = False, **options: Unpack[Options]) -> None:
        super().__init__(game_speed, **options)
        self.random_player_pose = random_player_pose

    @property
    def info(self) -> dict[str, Any]:
        """Return the actions the player can begin, and `boss_hp`, which SoulsAI's evaluation counts victories by."""
        return {**super().info, "boss_hp": self._present.boss_hp}
