"""EldenGym's environments: one fight in a world under a reward function; taps of keys, frames, a few numbers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from math import ceil, dist
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from soulsgraph_envs.core.errors import ResetNeededError
from soulsgraph_envs.core.pictures import Picture
from soulsgraph_envs.core.streams import checked_seed
from soulsgraph_envs.eldengym.errors import (
    OptionError,
    check_action,
    check_at_least,
    check_between,
    check_choice,
    check_reward,
)
from soulsgraph_envs.eldengym.keys import Tap, load_keys
from soulsgraph_envs.eldengym.open_world import open_world
from soulsgraph_envs.eldengym.rewards import RewardFunction, ScoreDeltaReward
from soulsgraph_envs.eldengym.world import World, WorldOptions, axes
from soulsgraph_envs.simulator.render import is_size

Info = dict[str, Any]

#: 16:9 like the game's window, and large enough for the usual convolutional networks.
FRAME_SIZE = (90, 160)
#: What both environments read at every step, beside places.
LEVELS = ("HeroHp", "HeroMaxHp", "NpcHp", "NpcMaxHp", "HeroAnimId", "NpcAnimId")


class FightEnv(gymnasium.Env[Any, Any]):
    """Reset, step, reward, render and close; a subclass says how an action is played and what is observed.

    The most steps of an episode have two names, `max_step` and `max_steps`: both are taken, None is no limit.

    Raises:
        OptionError: if a limit is below 1, the two differ, or `render_mode` is not offered.
        RewardTypeError: if `reward_function` lacks a method of `RewardFunction`.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 60}  # noqa: RUF012 - Gymnasium's own attribute
    world: World

    def __init__(
        self, reward_function: RewardFunction, limits: tuple[int | None, int | None], render_mode: str | None
    ) -> None:
        check_reward(reward_function)
        first, second = limits
        max_steps = second if first is None else first
        check_at_least("max_steps", max_steps, 1)
        check_choice("max_steps", second, (None, max_steps))
        check_choice("render_mode", render_mode, (*self.metadata["render_modes"], None))
        self.reward_function, self.render_mode = reward_function, render_mode
        self.max_step = self.max_steps = max_steps
        self.step_count = 0
        self._frame: Picture | None = None
        self._info: Info = {}

    @property
    def client(self) -> World:
        """Return the game itself, by EldenGym's names for what is read and written."""
        return self.world

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Begin a fight; on the simulator the same seed gives the same sequence of fights.

        Raises:
            SeedError: for anything but a non-negative integer or None.
        """
        super().reset(seed=checked_seed(seed))
        self.step_count = 0
        self._begin(int(self.np_random.integers(2**63)))
        self._frame = self.world.get_frame()
        observation, info = self._look()
        self._info = info.copy()
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """Play the action, read the game and compute the reward; truncated after exactly `max_steps` steps.

        Raises:
            OptionError: for an action outside the action space.
            ResetNeededError: before the first reset; after its end a fight goes on, as in EldenGym.
        """
        # Else the keys would go to whatever the game is doing.
        self._seen()
        assert self.action_space is not None
        check_action(self.action_space, action)
        self._play(action)
        self.step_count += 1
        self._frame = self.world.get_frame()
        observation, info = self._look()
        reward = float(self.reward_function.calculate(observation, info, self._info))
        terminated = bool(self.reward_function.is_done(observation, info))
        truncated = self.max_steps is not None and self.step_count >= self.max_steps
        # A copy: the caller may change what it is given.
        self._info = info.copy()
        return observation, reward, terminated, truncated, info

    def render(self) -> Picture:  # type: ignore[override]
        """Return the picture of the last observation, (height, width, 3) uint8.

        Raises:
            ResetNeededError: before the first reset.
        """
        return self._seen()

    def close(self) -> None:
        """Release every key and disconnect from the game."""
        self.world.close()

    def _seen(self) -> Picture:
        if self._frame is None:
            raise ResetNeededError
        return self._frame

    def _shared_info(self, values: Mapping[str, float]) -> Info:
        """Return what both environments' info has, by the `LEVELS` among the values."""
        return {
            "player_hp_normalized": _share_of(values["HeroHp"], values["HeroMaxHp"]),
            "boss_hp_normalized": _share_of(values["NpcHp"], values["NpcMaxHp"]),
            "simulated": self.world.simulated,
        }

    def _begin(self, seed: int) -> None:
        self.world.set_game_speed(1.0)
        self.world.begin(seed)

    @abstractmethod
    def _play(self, action: Any) -> None:
        """Send the action's keys and let the game continue."""

    @abstractmethod
    def _look(self) -> tuple[Any, Info]:
        """Read the game: the observation, with the picture taken just before, and the info."""


def frame_space(size: tuple[int, int]) -> Box:
    """Return the space of pictures of (height, width).

    Raises:
        OptionError: for an invalid size.
    """
    if not is_size(size):
        raise OptionError(f"frame_size: expected (height, width) in pixels, found {size!r}.")
    return Box(0, 255, (*size, 3), np.uint8)


def _share_of(points: float, most: float) -> float:
    """Return HP as a share of the full bar, in [0, 1]; 0 where there is no bar."""
    return min(max(points / most, 0.0), 1.0) if most > 0 else 0.0


Observation = Picture | dict[str, npt.NDArray[Any]]

ACTION_MODES = ("discrete", "multi_binary")
OBSERVATION_MODES = ("dict", "rgb")
#: The documentation asks for 0.1 to 1; the game takes more.
SPEEDS = (0.1, 3.0)
#: The speed at which a frozen game stands.
FROZEN_SPEED = 1e-5
_PLAYER, _TARGET = axes("HeroLocal"), axes("NpcGlobal")
_IDS = np.iinfo(np.int32)


class EldenGymEnv(FightEnv):
    """Fight an Elden Ring boss through its screen, its memory and its keys.

    One step taps the action's keys, which takes as long as they are held, and then waits
    `frame_skip` frames of `game_fps`. Without a Siphon server at `host` the boss is a simulated one:
    a `SimulatedGameWarning` and `info["simulated"]` say so. `docs/eldengym.md` lists what differs from
    the original.

    Raises:
        OptionError, RewardTypeError: for a value that is not offered.
        UnknownNameError: for a driver or scenario that is not there.
        GameError: if a Siphon server answers and its game does not.
    """

    def __init__(
        self,
        scenario_name: str = "margit",
        host: str = "localhost:50051",
        action_mode: str = "discrete",
        reward_function: RewardFunction | None = None,
        frame_skip: int = 4,
        game_speed: float = 1.0,
        freeze_game: bool = False,
        game_fps: int = 60,
        max_step: int | None = None,
        config_filepath: str | None = None,
        *,
        observation_mode: str = "dict",
        max_steps: int | None = None,
        driver: str = "auto",
        frame_size: tuple[int, int] = FRAME_SIZE,
        render_mode: str | None = "rgb_array",
        dry_run: bool = False,
    ) -> None:
        reward = ScoreDeltaReward("player_hp") if reward_function is None else reward_function
        super().__init__(reward, (max_step, max_steps), render_mode)
        check_choice("action_mode", action_mode, ACTION_MODES)
        check_choice("observation_mode", observation_mode, OBSERVATION_MODES)
        check_at_least("frame_skip", frame_skip, 1)
        check_at_least("game_fps", game_fps, 1)
        check_between("game_speed", game_speed, *SPEEDS)
        self.scenario_name, self.action_mode = scenario_name, action_mode
        self.frame_skip, self.game_fps = frame_skip, game_fps
        self.game_speed, self.freeze_game = game_speed, freeze_game
        self._taps, self._rgb = list(load_keys().discrete.values()), observation_mode == "rgb"
        every = load_keys().multi_binary
        self._every = every if action_mode == "multi_binary" else None
        self.action_space = MultiBinary(len(every.keys)) if self._every else Discrete(len(self._taps))
        self.observation_space = _observation_space(observation_mode, frame_size)
        keys = [key for tap in (self._taps if self._every is None else [every]) for key in tap.keys]
        self.world = open_world(WorldOptions(driver, scenario_name, host, config_filepath, frame_size, dry_run), keys)
        self._player_animation_id = 0

    def _begin(self, seed: int) -> None:
        self.world.set_game_speed(self.game_speed)
        self.world.begin(seed)
        self._player_animation_id = int(self.world.read(["HeroAnimId"])["HeroAnimId"])
        self._freeze()

    def _play(self, action: Any) -> None:
        if self.freeze_game:
            self.world.set_game_speed(self.game_speed)
        tap = self._tap(action)
        if tap.keys:
            self.world.input_key_tap(tap.keys, tap.hold_ms, tap.delay_ms)
        self.world.wait(self.frame_skip / self.game_fps)
        self._freeze()

    def _tap(self, action: Any) -> Tap:
        if self._every is None:
            return self._taps[int(action)]
        pressed = zip(self._every.keys, action, strict=True)
        return replace(self._every, keys=tuple(key for key, bit in pressed if bit))

    def _freeze(self) -> None:
        if self.freeze_game:
            self.world.set_game_speed(FROZEN_SPEED)

    def _look(self) -> tuple[Observation, Info]:
        values = self.world.read((*LEVELS, *_PLAYER, *_TARGET))
        player_hp, player_most, boss_hp, boss_most, player_id, boss_id = (ceil(values[name]) for name in LEVELS)
        last_id, self._player_animation_id = self._player_animation_id, player_id
        info = {
            "player_hp": player_hp,
            "player_max_hp": player_most,
            "boss_hp": boss_hp,
            "target_hp": boss_hp,
            "target_max_hp": boss_most,
            "distance": dist([values[name] for name in _PLAYER], [values[name] for name in _TARGET]),
            "player_animation_id": player_id,
            "target_animation_id": boss_id,
            "step_count": self.step_count,
            **self._shared_info(values),
        }
        return (self._seen() if self._rgb else self._numbers(info, last_id)), info

    def _numbers(self, info: Info, last_id: int) -> dict[str, npt.NDArray[Any]]:
        return {
            "frame": self._seen(),
            "boss_hp": np.array([info["boss_hp_normalized"]], np.float32),
            "player_hp": np.array([info["player_hp_normalized"]], np.float32),
            "distance": np.array([info["distance"]], np.float32),
            "boss_animation_id": np.array([info["target_animation_id"]], np.int64),
            "player_animation_id": np.array([info["player_animation_id"]], np.int64),
            "last_animation_id": np.array([last_id], np.int64),
        }


def _observation_space(mode: str, frame_size: tuple[int, int]) -> Box | Dict:
    frame = frame_space(frame_size)
    if mode == "rgb":
        return frame
    share, distance = Box(0.0, 1.0, (1,), np.float32), Box(0.0, np.inf, (1,), np.float32)
    # Whole numbers: the game's ids are beyond what float32 tells apart.
    ids = Box(_IDS.min, _IDS.max, (1,), np.int64)
    numbers = {"boss_hp": share, "player_hp": share, "distance": distance}
    return Dict({"frame": frame, **numbers, **{f"{who}_animation_id": ids for who in ("boss", "player", "last")}})
