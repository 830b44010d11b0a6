"""The base of EldenGym's two environments: one fight in a world, rewarded by a reward function."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from soulsgraph_envs.eldengym.client import GameClient
from soulsgraph_envs.eldengym.errors import OptionError, check_action, check_at_least, check_choice, check_reward
from soulsgraph_envs.eldengym.rewards import RewardFunction
from soulsgraph_envs.eldengym.world import Frame, World
from soulsgraph_envs.errors import ResetNeededError
from soulsgraph_envs.simulator.render import is_size
from soulsgraph_envs.streams import checked_seed

Info = dict[str, Any]
Observed = TypeVar("Observed")

#: 16:9 like the game's window, and large enough for the usual convolutional networks.
FRAME_SIZE = (90, 160)
#: What both environments read at every step, beside places.
LEVELS = ("HeroHp", "HeroMaxHp", "NpcHp", "NpcMaxHp", "HeroAnimId", "NpcAnimId")


class FightEnv(gymnasium.Env[Observed, Any], Generic[Observed]):
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
        self._frame: Frame | None = None
        self._info: Info = {}

    @property
    def client(self) -> GameClient:
        """Return the game itself, by EldenGym's names for what is read and written."""
        return GameClient(self.world)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observed, Info]:
        """Begin a fight; on the simulator the same seed gives the same sequence of fights.

        Raises:
            SeedError: for anything but a non-negative integer or None.
        """
        super().reset(seed=checked_seed(seed))
        self.step_count = 0
        self._begin(int(self.np_random.integers(2**63)))
        self._frame = self.world.frame()
        observation, info = self._look()
        self._info = info.copy()
        return observation, info

    def step(self, action: Any) -> tuple[Observed, float, bool, bool, Info]:
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
        self._frame = self.world.frame()
        observation, info = self._look()
        reward = float(self.reward_function.calculate(observation, info, self._info))
        terminated = bool(self.reward_function.is_done(observation, info))
        truncated = self.max_steps is not None and self.step_count >= self.max_steps
        # A copy: the caller may change what it is given.
        self._info = info.copy()
        return observation, reward, terminated, truncated, info

    def render(self) -> Frame:  # type: ignore[override]
        """Return the picture of the last observation, (height, width, 3) uint8.

        Raises:
            ResetNeededError: before the first reset.
        """
        return self._seen()

    def close(self) -> None:
        """Release every key and disconnect from the game."""
        self.world.close()

    def _seen(self) -> Frame:
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
        self.world.set_speed(1.0)
        self.world.begin(seed)

    @abstractmethod
    def _play(self, action: Any) -> None:
        """Send the action's keys and let the game continue."""

    @abstractmethod
    def _look(self) -> tuple[Observed, Info]:
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
