"""EldenGym's environment as its version 0.6.0 has it: keys held bit by bit, memory attributes by name."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import chain
from math import hypot
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Dict, MultiBinary

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.eldengym.env import FRAME_SIZE, LEVELS, FightEnv, Info, frame_space
from soulsgraph_envs.eldengym.errors import (
    OptionError,
    SimulatedGameWarning,
    UnknownOptionError,
    check_at_least,
    check_choice,
)
from soulsgraph_envs.eldengym.keys import load_keys, read_bindings
from soulsgraph_envs.eldengym.open_world import open_world
from soulsgraph_envs.eldengym.rewards import RewardFunction, ScoreDeltaReward
from soulsgraph_envs.eldengym.world import WorldOptions, axes

Observation = dict[str, npt.NDArray[Any]]

_PLAYER, _BOSS = (tuple(f"{who}_{axis}" for axis in "xyz") for who in ("player", "boss"))
_DERIVED = (*_PLAYER, *_BOSS, "dist_to_boss", "boss_z_relative")
#: Where the player is in the frame of the whole map, and where both are in that of its part.
_PLACES = (axes("HeroGlobal"), axes("HeroLocal"), axes("NpcGlobal"))
_BY_HAND = "nothing is started or copied on the game PC, do that by hand"
#: Options of version 0.6.0 that have one value here, and why.
_FIXED: Mapping[str, tuple[object, str]] = {
    "launch_game": (False, _BY_HAND),
    "save_file_name": (None, _BY_HAND),
    "save_file_dir": (None, _BY_HAND),
    "frame_format": ("jpeg", "pictures come as JPEG"),
    "frame_quality": (85, "pictures come at this quality"),
    "use_device": ("key", "actions are bound to keys; keybinds_filepath binds them to others"),
}
#: One frame of the game between the keys and the look.
_STEP_S = 1 / 60


class AttributeEnv(FightEnv):
    """Hold down any of the chosen `actions`, one bit each, and observe the frame and the chosen attributes.

    A step sends the keys down or up that change, waits one frame and looks. The observation holds
    `frame`, each of `memory_attributes` under its Siphon name, the places of player and boss, their
    distance in the plane (`dist_to_boss`) and how much higher the boss stands; numbers are float32 of
    `number_shape`, EldenGym's () or (1,) for stable-baselines3. EldenGym's other options (`fixed`) are
    known, but have one value: another is refused, or in a simulated fight ignored with a
    warning.

    Raises:
        OptionError, RewardTypeError: for a value that is not offered.
        UnknownNameError: for an action, attribute, driver or scenario that is not there.
        DataError: for a file of key bindings that cannot be understood.
    """

    def __init__(
        self,
        scenario_name: str = "margit",
        keybinds_filepath: str | Path | None = None,
        siphon_config_filepath: str | None = None,
        memory_attributes: Sequence[str] | None = None,
        actions: Sequence[str] | None = None,
        host: str = "localhost:50051",
        reward_function: RewardFunction | None = None,
        *,
        max_steps: int | None = None,
        max_step: int | None = None,
        driver: str = "auto",
        frame_size: tuple[int, int] = FRAME_SIZE,
        number_shape: tuple[int, ...] = (),
        render_mode: str | None = "rgb_array",
        dry_run: bool = False,
        **fixed: object,
    ) -> None:
        reward = ScoreDeltaReward() if reward_function is None else reward_function
        super().__init__(reward, (max_steps, max_step), render_mode)
        bindings = load_keys().toggled if keybinds_filepath is None else read_bindings(Path(keybinds_filepath))
        self.scenario_name = scenario_name
        self.action_keys = list(bindings if actions is None else actions)
        self.memory_attributes = list(LEVELS if memory_attributes is None else memory_attributes)
        for action in self.action_keys:
            if action not in bindings:
                raise UnknownOptionError("action", action, bindings)
        check_at_least("actions, how many of them", len(self.action_keys), 1)
        check_choice("number_shape", number_shape, ((), (1,)))
        self._keys = [bindings[action] for action in self.action_keys]
        self._shape = number_shape
        self.action_space = MultiBinary(len(self._keys))
        number = Box(-np.inf, np.inf, number_shape, np.float32)
        numbers = {name: number for name in (*self.memory_attributes, *_DERIVED)}
        self.observation_space = Dict({"frame": frame_space(frame_size), **numbers})
        options = WorldOptions(driver, scenario_name, host, siphon_config_filepath, frame_size, dry_run)
        self.world = open_world(options, self._keys)
        try:
            self._check_offered(fixed)
        except SoulsGraphError:
            self.world.close()
            raise
        self._read = tuple(dict.fromkeys((*self.memory_attributes, *LEVELS, *chain(*_PLACES))))

    def _check_offered(self, fixed: Mapping[str, object]) -> None:
        for name in self.memory_attributes:
            if name not in self.world.attributes:
                raise UnknownOptionError("memory attribute", name, sorted(self.world.attributes))
        for name, value in fixed.items():
            if name not in _FIXED:
                raise UnknownOptionError("option", name, _FIXED)
            only, why = _FIXED[name]
            told = f"{name}: expected {only!r}, found {value!r}: {why}."
            if value != only and not self.world.simulated:
                raise OptionError(told)
            if value != only:
                # Two calls up: whoever made the environment.
                warnings.warn(f"{told} It has no effect in a simulated fight.", SimulatedGameWarning, stacklevel=3)

    def _play(self, action: Any) -> None:
        for key, bit in zip(self._keys, action, strict=True):
            self.world.input_key_toggle(key, bool(bit))
        self.world.wait(_STEP_S)

    def _look(self) -> tuple[Observation, Info]:
        values = self.world.read(self._read)
        player, local, near = (tuple(values[name] for name in place) for place in _PLACES)
        boss = tuple(at + whole - part for at, whole, part in zip(near, player, local, strict=True))
        numbers = {name: values[name] for name in self.memory_attributes}
        numbers |= dict(zip((*_PLAYER, *_BOSS), (*player, *boss), strict=True))
        numbers["dist_to_boss"] = hypot(boss[0] - player[0], boss[1] - player[1])
        numbers["boss_z_relative"] = boss[2] - player[2]
        info = {
            "player_animation": values["HeroAnimId"],
            "boss_animation": values["NpcAnimId"],
            "player_xyz": player,
            "boss_xyz": boss,
            **self._shared_info(values),
        }
        shown = {name: np.full(self._shape, value, np.float32) for name, value in numbers.items()}
        return {"frame": self._seen(), **shown}, info
