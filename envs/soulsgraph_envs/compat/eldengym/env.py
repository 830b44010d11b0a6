"""EldenGym's environments, one fight in a world under a reward function: its documentation's, and version 0.6.0's.

Also its reward functions, and its own registry beside Gymnasium's, by which version 0.6.0 makes its fights.
"""

from __future__ import annotations

import math
import socket
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import chain
from math import ceil, dist, hypot
from numbers import Real
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from soulsgraph_envs.compat import is_action
from soulsgraph_envs.compat.eldengym.world import (
    SimulatedFight,
    World,
    WorldOptions,
    axes,
    load_keys,
    read_bindings,
    without_effect,
)
from soulsgraph_envs.core.access import split_address
from soulsgraph_envs.core.errors import ResetNeededError, SoulsGraphError, UnknownNameError, plain_range, shown
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.core.seeds import checked_seed
from soulsgraph_envs.render.pictures import PictureWindow, is_size, possible_here, scaled


class OptionError(SoulsGraphError, ValueError):
    """An option that is not offered; EldenGym raises a `ValueError` for its own."""


class UnknownOptionError(UnknownNameError, OptionError):
    """A name that is not offered; EldenGym raises a `ValueError` for its own."""


class RewardTypeError(SoulsGraphError, TypeError):
    """A reward without the methods of a `RewardFunction`; EldenGym raises a `TypeError`."""


class SimulatedGameWarning(UserWarning):
    """A simulated fight stands in for Elden Ring."""


_REWARD_METHODS = ("calculate", "is_done")


def check_reward(reward: object) -> None:
    """Raise `RewardTypeError` for anything but an object with the methods of `RewardFunction`, of whatever class."""
    missing = [name for name in _REWARD_METHODS if not callable(getattr(reward, name, None))]
    if missing or isinstance(reward, type):
        lacks = f" without {' and '.join(missing)}" if missing else ", a class: make an object of it"
        raise RewardTypeError(
            f"reward_function: expected an object with the methods {' and '.join(_REWARD_METHODS)}, such as one of a "
            f"class derived from RewardFunction; found {shown(reward)}{lacks}."
        )


def check_action(space: Space[Any], action: object) -> None:
    """Raise `OptionError` for an action outside its space."""
    if not is_action(space, action):
        raise OptionError(f"action: expected one of {space}, found {shown(action)}.")


def check_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Raise `OptionError` for a value that is not among the choices."""
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        listed = ", ".join(map(str, choices))
        raise OptionError(f"{name}: expected one of {listed}; found {shown(value)}, which is not offered.")


def check_between(name: str, value: float, low: float, high: float) -> None:
    """Raise `OptionError` for a number outside [low, high]."""
    if not (isinstance(value, Real) and low <= value <= high):
        raise OptionError(f"{name}: expected a number from {plain_range(low, high)}, found {shown(value)}.")


def check_at_least(name: str, value: float | None, low: float) -> None:
    """Raise `OptionError` for anything but a number of at least `low`; None passes."""
    if value is not None and not (isinstance(value, Real) and low <= value < math.inf):
        raise OptionError(f"{name}: expected at least {low}, found {shown(value)}.")


FightInfo = Mapping[str, Any]


class RewardFunction(ABC):
    """Reward one step by its observation and info; `prev_info` is that of the step before, None at first."""

    @abstractmethod
    def calculate(self, obs: Any, info: FightInfo, prev_info: FightInfo | None = None) -> float:
        """Return the step's reward."""

    @abstractmethod
    def is_done(self, obs: Any, info: FightInfo) -> bool:
        """Return whether the fight is over."""


class _FightReward(RewardFunction):
    """A fight that is over when the player or the boss is dead."""

    def is_done(self, obs: Any, info: FightInfo) -> bool:
        """Return whether the player or the boss is dead."""
        return bool(_of(info, "player_hp_normalized") <= 0 or _of(info, "boss_hp_normalized") <= 0)


@dataclass(eq=False)
class ScoreDeltaReward(_FightReward):
    """Reward the change of one number of the info, and the end of the fight."""

    score_key: str = "player_hp_normalized"
    win_bonus: float = 100.0
    loss_penalty: float = -100.0

    def calculate(self, obs: Any, info: FightInfo, prev_info: FightInfo | None = None) -> float:
        """Return the change of the score.

        Raises:
            OptionError: if the info has no such number; EldenGym 0.6.0 takes it for 0 in silence.
        """
        if prev_info is None:
            return 0.0
        change = _of(info, self.score_key) - _of(prev_info, self.score_key)
        return change + _end(info, self.win_bonus, self.loss_penalty)


@dataclass(eq=False)
class BossDefeatReward(_FightReward):
    """Reward only the end of the fight, with a small penalty for every step."""

    boss_defeat_reward: float = 1.0
    player_death_penalty: float = -1.0
    time_penalty: float = -0.001

    def calculate(self, obs: Any, info: FightInfo, prev_info: FightInfo | None = None) -> float:
        """Return the time penalty and, at the end, the bonus of the end."""
        return self.time_penalty + _end(info, self.boss_defeat_reward, self.player_death_penalty)


@dataclass(eq=False)
class CustomReward(_FightReward):
    """Reward the player's HP, damage to the boss, staying alive and the end of the fight, weighted."""

    hp_delta_weight: float = 1.0
    boss_damage_weight: float = 0.5
    survival_bonus: float = 0.01
    win_bonus: float = 100.0
    loss_penalty: float = -100.0

    def calculate(self, obs: Any, info: FightInfo, prev_info: FightInfo | None = None) -> float:
        """Return the weighted sum; HP as shares of the full bars."""
        if prev_info is None:
            return 0.0
        healed = _of(info, "player_hp_normalized") - _of(prev_info, "player_hp_normalized")
        dealt = _of(prev_info, "boss_hp_normalized") - _of(info, "boss_hp_normalized")
        alive = self.survival_bonus if _of(info, "player_hp_normalized") > 0 else 0.0
        end = _end(info, self.win_bonus, self.loss_penalty)
        return self.hp_delta_weight * healed + self.boss_damage_weight * dealt + alive + end


def _end(info: FightInfo, victory: float, defeat: float) -> float:
    if _of(info, "boss_hp_normalized") <= 0:
        return victory
    return defeat if _of(info, "player_hp_normalized") <= 0 else 0.0


def _of(info: FightInfo, key: str) -> float:
    if key not in info:
        raise OptionError(
            f"reward: expected {key!r} in the info, found {', '.join(sorted(info))}: use one of these, or "
            "read the attributes it is made of."
        )
    return float(info[key])


Info = dict[str, Any]
Numbers = dict[str, float]

#: 16:9 like the game's window, and large enough for the usual convolutional networks.
FRAME_SIZE = (90, 160)
#: Height and width of the window.
_WINDOW_SIZE = (360, 640)
#: What both environments read at every step, beside places.
LEVELS = ("HeroHp", "HeroMaxHp", "NpcHp", "NpcMaxHp", "HeroAnimId", "NpcAnimId")
#: The speed at which a frozen game stands.
FROZEN_SPEED = 1e-5


#: "auto" asks whether a server answers; the other two insist.
DRIVERS = ("auto", "simulator", "siphon")
_ANSWER_S = 1.0


def open_world(options: WorldOptions, keys: Iterable[str]) -> World:
    """Open the world for an environment that uses these keys.

    Raises:
        UnknownNameError: for a driver or a scenario that is not there.
        GameError: with "siphon", if no server answers.
    """
    if options.driver not in DRIVERS:
        raise UnknownNameError("driver", options.driver, DRIVERS)
    if options.driver == "siphon" or (options.driver == "auto" and _answers(options.host)):
        # Imported here: whoever simulates needs no Siphon client.
        from soulsgraph_envs.compat.eldengym.client import SiphonWorld

        return SiphonWorld(options)
    world = SimulatedFight(options.scenario, options.frame_size)
    if options.driver == "auto":
        _warn(
            f"no Siphon server answers at {options.host}: a simulated boss of our own invention "
            f"({options.scenario}) stands in for Elden Ring's; driver='simulator' chooses it, driver='siphon' insists"
        )
    idle = without_effect(keys, world.supported)
    if idle:
        told = ", ".join(f"{key} ({meaning})" for key, meaning in idle.items())
        _warn(f"the simulated fight has nothing for some keys, which do nothing: {told}")
    return world


def _warn(told: str) -> None:
    # The caller's caller: whoever made the environment.
    warnings.warn(told, SimulatedGameWarning, stacklevel=4)


def _answers(host: str) -> bool:
    try:
        with socket.create_connection(split_address(host), timeout=_ANSWER_S):
            return True
    except (OSError, ValueError):
        return False


class FightEnv(gymnasium.Env[Any, Any]):
    """Reset, step, reward, render and close; a subclass says how an action is played and what is observed.

    The most steps of an episode have two names, `max_step` and `max_steps`: both are taken, None is no limit.
    `render_mode` "human" shows the picture of every observation in a window.

    Raises:
        GameError: for "human" without pygame or a display.
        OptionError: if a limit is below 1, the two differ, or `render_mode` is not offered.
        RewardTypeError: if `reward_function` lacks a method of `RewardFunction`.
    """

    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": 60}  # noqa: RUF012 - Gymnasium's own attribute
    world: World
    #: In a fight; a frozen game stands still between steps.
    game_speed, freeze_game = 1.0, False

    def __init__(
        self, reward_function: RewardFunction, limits: tuple[int | None, int | None], render_mode: str | None
    ) -> None:
        check_reward(reward_function)
        max_steps = limits[1] if limits[0] is None else limits[0]
        check_at_least("max_steps", max_steps, 1)
        check_choice("max_steps", limits[1], (None, max_steps))
        check_choice("render_mode", render_mode, (*self.metadata["render_modes"], None))
        self.metadata = possible_here(self.metadata, render_mode)
        self.reward_function, self.render_mode = reward_function, render_mode
        self.max_step = self.max_steps = max_steps
        self.step_count = 0
        self._frame: Picture | None = None
        self._info: Info = {}
        self._window: PictureWindow | None = None
        if render_mode == "human":
            fps = self.metadata["render_fps"]
            self._window = PictureWindow(f"soulsgraph: {type(self).__name__}", _WINDOW_SIZE, float(str(fps)))

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
        self.world.set_game_speed(self.game_speed)
        self.world.begin(int(self.np_random.integers(2**63)))
        self._freeze()
        observation, info = self._observe()
        # A copy: the caller may change what it is given.
        self._info = info.copy()
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """Play the action, read the game and compute the reward; truncated after exactly `max_steps` steps.

        Raises:
            OptionError: for an action outside the action space.
            ResetNeededError: before the first reset; after its end a fight goes on, as in EldenGym.
        """
        if self._frame is None:
            # Else the keys would go to whatever the game is doing.
            raise ResetNeededError
        assert self.action_space is not None
        check_action(self.action_space, action)
        self._play(action)
        self.step_count += 1
        observation, info = self._observe()
        reward = float(self.reward_function.calculate(observation, info, self._info))
        terminated = bool(self.reward_function.is_done(observation, info))
        truncated = self.max_steps is not None and self.step_count >= self.max_steps
        self._info = info.copy()
        return observation, reward, terminated, truncated, info

    def render(self) -> Picture | None:  # type: ignore[override]
        """Return the picture of the last observation, (height, width, 3) uint8; None where a window shows it.

        Raises:
            ResetNeededError: before the first reset.
        """
        if self._frame is None:
            raise ResetNeededError
        return self._frame if self._window is None else None

    def close(self) -> None:
        """Release every key, disconnect from the game and close the window."""
        self.world.close()
        if self._window is not None:
            self._window.close()

    def _shared_info(self, values: Mapping[str, float]) -> Info:
        """Return what both environments' info has, by the `LEVELS` among the values."""
        return {
            "player_hp_normalized": _share_of(values["HeroHp"], values["HeroMaxHp"]),
            "boss_hp_normalized": _share_of(values["NpcHp"], values["NpcMaxHp"]),
            "simulated": self.world.simulated,
        }

    def _freeze(self) -> None:
        if self.freeze_game:
            self.world.set_game_speed(FROZEN_SPEED)

    def _define_observation(self, frame_size: tuple[int, int], boxes: Mapping[str, Box]) -> None:
        """Define what is observed: a picture of (height, width) and the numbers in `boxes`; without any, it alone.

        Raises:
            OptionError: for an invalid size.
        """
        if not is_size(frame_size):
            raise OptionError(f"frame_size: expected (height, width) in pixels, found {frame_size!r}.")
        picture = Box(0, 255, (*frame_size, 3), np.uint8)
        self._boxes = boxes
        self.observation_space = Dict({"frame": picture, **boxes}) if boxes else picture

    @abstractmethod
    def _play(self, action: Any) -> None:
        """Send the action's keys and let the game continue."""

    @abstractmethod
    def _look(self) -> tuple[Numbers, Info]:
        """Read the game: the numbers to observe, among others, and the info."""

    def _observe(self) -> tuple[Any, Info]:
        """Take a picture and read the game; return the observation, which may be the picture alone, and the info."""
        self._frame = self.world.get_frame()
        if self._window is not None:
            self._window.show(scaled(self._frame, _WINDOW_SIZE))
        numbers, info = self._look()
        shown = {name: np.full(box.shape, numbers[name], box.dtype) for name, box in self._boxes.items()}
        return {"frame": self._frame, **shown} if shown else self._frame, info


def _share_of(points: float, most: float) -> float:
    """Return HP as a share of the full bar, in [0, 1]; 0 where there is no bar."""
    return min(max(points / most, 0.0), 1.0) if most > 0 else 0.0


_PLAYER, _TARGET = axes("HeroLocal"), axes("NpcGlobal")
_IDS = np.iinfo(np.int32)


def _boxes() -> dict[str, Box]:
    share, distance = Box(0.0, 1.0, (1,), np.float32), Box(0.0, np.inf, (1,), np.float32)
    # Whole numbers: the game's ids are beyond what float32 tells apart.
    ids = Box(_IDS.min, _IDS.max, (1,), np.int64)
    numbers = {"boss_hp": share, "player_hp": share, "distance": distance}
    return {**numbers, **{f"{who}_animation_id": ids for who in ("boss", "player", "last")}}


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
        check_choice("action_mode", action_mode, ("discrete", "multi_binary"))
        check_choice("observation_mode", observation_mode, ("dict", "rgb"))
        check_at_least("frame_skip", frame_skip, 1)
        check_at_least("game_fps", game_fps, 1)
        # The documentation asks for 0.1 to 1; the game takes more.
        check_between("game_speed", game_speed, 0.1, 3.0)
        self.scenario_name, self.action_mode = scenario_name, action_mode
        self.frame_skip, self.game_fps = frame_skip, game_fps
        self.game_speed, self.freeze_game = game_speed, freeze_game
        self._taps = list(load_keys().discrete.values())
        every = load_keys().multi_binary
        self._every = every if action_mode == "multi_binary" else None
        self.action_space = MultiBinary(len(every.keys)) if self._every else Discrete(len(self._taps))
        self._define_observation(frame_size, _boxes() if observation_mode == "dict" else {})
        keys = [key for tap in ([every] if self._every else self._taps) for key in tap.keys]
        self.world = open_world(WorldOptions(driver, scenario_name, host, config_filepath, frame_size, dry_run), keys)
        self._player_animation_id = 0

    def _play(self, action: Any) -> None:
        if self.freeze_game:
            self.world.set_game_speed(self.game_speed)
        if self._every is None:
            tap = self._taps[int(action)]
        else:
            pressed = zip(self._every.keys, action, strict=True)
            tap = replace(self._every, keys=tuple(key for key, bit in pressed if bit))
        if tap.keys:
            self.world.input_key_tap(tap.keys, tap.hold_ms, tap.delay_ms)
        self.world.wait(self.frame_skip / self.game_fps)
        self._freeze()

    def _look(self) -> tuple[Numbers, Info]:
        values = self.world.read((*LEVELS, *_PLAYER, *_TARGET))
        player_hp, player_most, boss_hp, boss_most, player_id, boss_id = (ceil(values[name]) for name in LEVELS)
        last_id = self._player_animation_id if self.step_count else player_id
        self._player_animation_id = player_id
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
        shares = {"player_hp": info["player_hp_normalized"], "boss_hp": info["boss_hp_normalized"]}
        return {**info, **shares, "boss_animation_id": boss_id, "last_animation_id": last_id}, info


_COORDINATES = tuple(f"{who}_{axis}" for who in ("player", "boss") for axis in "xyz")
_DIFFERENCES = ("dist_to_boss", "boss_z_relative")
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
        self.action_space = MultiBinary(len(self._keys))
        number = Box(-np.inf, np.inf, number_shape, np.float32)
        numbers = {name: number for name in (*self.memory_attributes, *_COORDINATES, *_DIFFERENCES)}
        self._define_observation(frame_size, numbers)
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
                told += " It has no effect in a simulated fight."
                warnings.warn(told, SimulatedGameWarning, stacklevel=3)

    def _play(self, action: Any) -> None:
        for key, bit in zip(self._keys, action, strict=True):
            self.world.input_key_toggle(key, bool(bit))
        self.world.wait(_STEP_S)

    def _look(self) -> tuple[Numbers, Info]:
        values = self.world.read(self._read)
        player, local, near = (tuple(values[name] for name in place) for place in _PLACES)
        boss = tuple(at + whole - part for at, whole, part in zip(near, player, local, strict=True))
        differences = hypot(boss[0] - player[0], boss[1] - player[1]), boss[2] - player[2]
        numbers = values | dict(zip((*_COORDINATES, *_DIFFERENCES), (*player, *boss, *differences), strict=True))
        info = {
            "player_animation": values["HeroAnimId"],
            "boss_animation": values["NpcAnimId"],
            "player_xyz": player,
            "boss_xyz": boss,
            **self._shared_info(values),
        }
        return numbers, info


Names = list[str]
EntryPoint = str | Callable[..., Any]
SetupHook = Callable[[Any], object]


@dataclass(eq=False)
class EnvSpec:
    """How one environment is made; `entry_point` is a class, a function or "module:name"."""

    id: str
    entry_point: EntryPoint
    kwargs: Mapping[str, Any] | None = None
    max_episode_steps: int | None = None
    setup_hook: SetupHook | None = None

    def __post_init__(self) -> None:
        self.kwargs = dict(self.kwargs or {})

    def make(self, **kwargs: Any) -> Any:
        """Make the environment, then call the hook with it.

        `kwargs` come before those of the specification; `max_episode_steps` is passed on as `max_step`, unless
        another limit is.
        """
        options = {**deepcopy(self.kwargs or {}), **kwargs}
        if self.max_episode_steps is not None and not {"max_step", "max_steps"} & options.keys():
            options["max_step"] = self.max_episode_steps
        made = resolve_name(self.entry_point) if isinstance(self.entry_point, str) else self.entry_point
        env = made(**options)
        if self.setup_hook is not None:
            self.setup_hook(env)
        return env


class EnvRegistry:
    """Environments by their ids, in the order in which they were registered."""

    def __init__(self) -> None:
        self.env_specs: dict[str, EnvSpec] = {}

    def register(
        self,
        id: str,
        entry_point: EntryPoint,
        kwargs: Mapping[str, Any] | None = None,
        max_episode_steps: int | None = None,
        setup_hook: SetupHook | None = None,
        force: bool = False,
    ) -> None:
        """Register an environment under `id`; see `EnvSpec`.

        Raises:
            OptionError: if the id is taken and `force` is not given.
        """
        if id in self.env_specs and not force:
            raise OptionError(f"register: expected a free id, found {id!r} taken: choose another or give force=True.")
        self.env_specs[id] = EnvSpec(id, entry_point, kwargs, max_episode_steps, setup_hook)

    def make(self, id: str, **kwargs: Any) -> Any:
        """Make an environment as `EnvSpec.make` does.

        Raises:
            UnknownOptionError: if nothing is registered under `id`.
        """
        if id not in self.env_specs:
            raise UnknownOptionError("environment", id, self.env_specs)
        return self.env_specs[id].make(**kwargs)

    def list(self) -> Names:
        """Return the ids that `make` knows."""
        return [*self.env_specs]


#: The registry of this process.
registry = EnvRegistry()
register, make, list_envs = registry.register, registry.make, registry.list
register("Margit-v0", "soulsgraph_envs.compat.eldengym.env:AttributeEnv", {"scenario_name": "Margit-v0"})


def resolve_file_path(filepath: str | Path, relative_to_package: bool = True) -> Path:
    """Return an absolute path: of a relative one below this package's folder, or below the working directory."""
    return (Path(__file__).parent if relative_to_package else Path()).joinpath(filepath).resolve()
