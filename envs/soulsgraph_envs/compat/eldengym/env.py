"""EldenGym's environments, one fight in a world under a reward function: its documentation's, and version 0.6.0's.

Also its reward functions, and its own registry beside Gymnasium's, by which version 0.6.0 makes its fights.
"""

from __future__ import annotations

import socket
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import chain
from math import ceil, dist, hypot
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from soulsgraph_envs.compat.eldengym.world import SimulatedFight, World, WorldOptions, axes, load_keys, read_bindings
from soulsgraph_envs.core.access import split_address
from soulsgraph_envs.core.config import Between, Pair, check_arguments
from soulsgraph_envs.core.errors import ActionError, ResetNeededError, UnknownNameError, shown
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.core.seeds import checked_seed


class SimulatedGameWarning(UserWarning):
    """A simulated fight stands in for Elden Ring."""


FightInfo = Mapping[str, Any]


@runtime_checkable
class RewardFunction(Protocol):
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
        return bool(info["player_hp_normalized"] <= 0 or info["boss_hp_normalized"] <= 0)


@dataclass(eq=False)
class ScoreDeltaReward(_FightReward):
    """Reward the change of one number of the info, and the end of the fight."""

    score_key: str = "player_hp_normalized"
    win_bonus: float = 100.0
    loss_penalty: float = -100.0

    def calculate(self, obs: Any, info: FightInfo, prev_info: FightInfo | None = None) -> float:
        """Return the change of the score; an info without it is an error, which EldenGym 0.6.0 takes for 0."""
        if prev_info is None:
            return 0.0
        change = float(info[self.score_key] - prev_info[self.score_key])
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
        healed = info["player_hp_normalized"] - prev_info["player_hp_normalized"]
        dealt = prev_info["boss_hp_normalized"] - info["boss_hp_normalized"]
        alive = self.survival_bonus if info["player_hp_normalized"] > 0 else 0.0
        end = _end(info, self.win_bonus, self.loss_penalty)
        return float(self.hp_delta_weight * healed + self.boss_damage_weight * dealt + alive + end)


def _end(info: FightInfo, victory: float, defeat: float) -> float:
    if info["boss_hp_normalized"] <= 0:
        return victory
    return defeat if info["player_hp_normalized"] <= 0 else 0.0


Info = dict[str, Any]
Numbers = dict[str, float]

#: 16:9 like the game's window, and large enough for the usual convolutional networks.
FRAME_SIZE = (90, 160)
#: What both environments read at every step, beside places.
LEVELS = ("HeroHp", "HeroMaxHp", "NpcHp", "NpcMaxHp", "HeroAnimId", "NpcAnimId")
#: The speed at which a frozen game stands.
FROZEN_SPEED = 1e-5


#: "auto" asks whether a server answers; the other two insist.
Driver = Literal["auto", "simulator", "siphon"]
Steps = Annotated[int, Between(1, 10**9)]
Size = Pair[Annotated[int, Between(1, 10_000)]]
_ANSWER_S = 1.0


def open_world(options: WorldOptions) -> World:
    """Open the world for an environment.

    Raises:
        UnknownNameError: for a scenario that is not there.
        GameError: with "siphon", if no server answers.
    """
    if options.driver == "siphon" or (options.driver == "auto" and _answers(options.host)):
        # Imported here: whoever simulates needs no Siphon client.
        from soulsgraph_envs.compat.eldengym.client import SiphonWorld

        return SiphonWorld(options)
    if options.driver == "auto":
        _warn(
            f"no Siphon server answers at {options.host}: a simulated boss of our own invention "
            f"({options.scenario}) stands in for Elden Ring's; driver='simulator' chooses it, driver='siphon' insists"
        )
    return SimulatedFight(options.scenario, options.frame_size)


def _warn(told: str) -> None:
    # Whoever made the environment: beyond its constructor and what checks the arguments.
    warnings.warn(told, SimulatedGameWarning, stacklevel=5)


def _answers(host: str) -> bool:
    try:
        with socket.create_connection(split_address(host), timeout=_ANSWER_S):
            return True
    except (OSError, ValueError):
        return False


class FightEnv(gymnasium.Env[Any, Any]):
    """Reset, step, reward, render and close; a subclass says how an action is played and what is observed.

    The most steps of an episode have two names, `max_step` and `max_steps`: both are taken, None is no limit.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 60}  # noqa: RUF012 - Gymnasium's own attribute
    world: World
    #: In a fight; a frozen game stands still between steps.
    game_speed, freeze_game = 1.0, False

    def __init__(
        self, reward_function: RewardFunction, limits: tuple[int | None, int | None], render_mode: str | None
    ) -> None:
        max_steps = limits[1] if limits[0] is None else limits[0]
        # Gymnasium's vectorizers write into it.
        self.metadata = dict(self.metadata)
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
            ActionError: for an action outside the action space.
            ResetNeededError: before the first reset; after its end a fight goes on, as in EldenGym.
        """
        if self._frame is None:
            # Else the keys would go to whatever the game is doing.
            raise ResetNeededError
        assert self.action_space is not None
        if not self.action_space.contains(action):
            raise ActionError(f"action: expected one of {self.action_space}, found {shown(action)}.")
        self._play(action)
        self.step_count += 1
        observation, info = self._observe()
        reward = float(self.reward_function.calculate(observation, info, self._info))
        terminated = bool(self.reward_function.is_done(observation, info))
        truncated = self.max_steps is not None and self.step_count >= self.max_steps
        self._info = info.copy()
        return observation, reward, terminated, truncated, info

    def render(self) -> Picture:  # type: ignore[override]
        """Return the picture of the last observation, (height, width, 3) uint8.

        Raises:
            ResetNeededError: before the first reset.
        """
        if self._frame is None:
            raise ResetNeededError
        return self._frame

    def close(self) -> None:
        """Release every key and disconnect from the game."""
        self.world.close()

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
        """Define what is observed: a picture of (height, width) and the numbers in `boxes`; without any, it alone."""
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
        DataError: for a value that is not offered.
        UnknownNameError: for a scenario that is not there.
        GameError: if a Siphon server answers and its game does not.
    """

    @check_arguments
    def __init__(
        self,
        scenario_name: str = "margit",
        host: str = "localhost:50051",
        action_mode: Literal["discrete", "multi_binary"] = "discrete",
        reward_function: RewardFunction | None = None,
        frame_skip: Steps = 4,
        # The documentation asks for 0.1 to 1; the game takes more.
        game_speed: Annotated[float, Between(0.1, 3.0)] = 1.0,
        freeze_game: bool = False,
        game_fps: Steps = 60,
        max_step: Steps | None = None,
        config_filepath: str | None = None,
        *,
        observation_mode: Literal["dict", "rgb"] = "dict",
        max_steps: Steps | None = None,
        driver: Driver = "auto",
        frame_size: Size = FRAME_SIZE,
        render_mode: Literal["rgb_array"] | None = "rgb_array",
        dry_run: bool = False,
    ) -> None:
        reward = ScoreDeltaReward("player_hp") if reward_function is None else reward_function
        super().__init__(reward, (max_step, max_steps), render_mode)
        self.scenario_name, self.action_mode = scenario_name, action_mode
        self.frame_skip, self.game_fps = frame_skip, game_fps
        self.game_speed, self.freeze_game = game_speed, freeze_game
        self._taps = list(load_keys().discrete.values())
        every = load_keys().multi_binary
        self._every = every if action_mode == "multi_binary" else None
        self.action_space = MultiBinary(len(every.keys)) if self._every else Discrete(len(self._taps))
        self._define_observation(frame_size, _boxes() if observation_mode == "dict" else {})
        self.world = open_world(WorldOptions(driver, scenario_name, host, config_filepath, frame_size, dry_run))
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
#: Options of version 0.6.0 that have one value here: nothing is started or copied on the game PC, pictures come as
#: JPEG at this quality, and actions are bound to keys.
_FIXED: Mapping[str, object] = {
    **{"launch_game": False, "save_file_name": None, "save_file_dir": None},
    **{"frame_format": "jpeg", "frame_quality": 85, "use_device": "key"},
}
#: One frame of the game between the keys and the look.
_STEP_S = 1 / 60


class AttributeEnv(FightEnv):
    """Hold down any of the chosen `actions`, one bit each, and observe the frame and the chosen attributes.

    A step sends the keys down or up that change, waits one frame and looks. The observation holds
    `frame`, each of `memory_attributes` under its Siphon name, the places of player and boss, their
    distance in the plane (`dist_to_boss`) and how much higher the boss stands; numbers are float32 of
    `number_shape`, EldenGym's () or (1,) for stable-baselines3. EldenGym's other options (`fixed`) are
    known, but have one value: a warning says that another has no effect.

    Raises:
        DataError: for a value that is not offered, or a file of key bindings that cannot be understood.
        UnknownNameError: for a scenario or an option that is not there.
    """

    @check_arguments
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
        max_steps: Steps | None = None,
        max_step: Steps | None = None,
        driver: Driver = "auto",
        frame_size: Size = FRAME_SIZE,
        number_shape: tuple[int, ...] = (),
        render_mode: Literal["rgb_array"] | None = "rgb_array",
        dry_run: bool = False,
        **fixed: object,
    ) -> None:
        reward = ScoreDeltaReward() if reward_function is None else reward_function
        super().__init__(reward, (max_steps, max_step), render_mode)
        bindings = load_keys().toggled if keybinds_filepath is None else read_bindings(Path(keybinds_filepath))
        self.scenario_name = scenario_name
        self.action_keys = list(bindings if actions is None else actions)
        self.memory_attributes = list(LEVELS if memory_attributes is None else memory_attributes)
        self._keys = [bindings[action] for action in self.action_keys]
        self.action_space = MultiBinary(len(self._keys))
        number = Box(-np.inf, np.inf, number_shape, np.float32)
        numbers = {name: number for name in (*self.memory_attributes, *_COORDINATES, *_DIFFERENCES)}
        self._define_observation(frame_size, numbers)
        options = WorldOptions(driver, scenario_name, host, siphon_config_filepath, frame_size, dry_run)
        for name, value in fixed.items():
            if name not in _FIXED:
                raise UnknownNameError("option", name, _FIXED)
            if value != _FIXED[name]:
                _warn(f"{name}: it has no effect here, other than {_FIXED[name]!r}")
        self.world = open_world(options)
        self._read = tuple(dict.fromkeys((*self.memory_attributes, *LEVELS, *chain(*_PLACES))))

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

    def make(self, **kwargs: Any) -> Any:
        """Make the environment, then call the hook with it.

        `kwargs` come before those of the specification; `max_episode_steps` is passed on as `max_step`, unless
        another limit is.
        """
        options = {**deepcopy(dict(self.kwargs or {})), **kwargs}
        if self.max_episode_steps is not None and not {"max_step", "max_steps"} & options.keys():
            options["max_step"] = self.max_episode_steps
        env = (resolve_name(self.entry_point) if isinstance(self.entry_point, str) else self.entry_point)(**options)
        if self.setup_hook is not None:
            self.setup_hook(env)
        return env


class EnvRegistry:
    """Environments by their ids, in the order in which they were registered."""

    def __init__(self) -> None:
        self.env_specs: dict[str, EnvSpec] = {}

    def register(self, id: str, entry_point: EntryPoint, *spec: Any, force: bool = False, **options: Any) -> None:
        """Register an environment under `id`, by what else `EnvSpec` takes.

        Raises:
            ValueError: if the id is taken and `force` is not given.
        """
        if id in self.env_specs and not force:
            raise ValueError(f"register: {id!r} is taken: choose another id or give force=True")
        self.env_specs[id] = EnvSpec(id, entry_point, *spec, **options)

    def make(self, id: str, **kwargs: Any) -> Any:
        """Make an environment as `EnvSpec.make` does.

        Raises:
            UnknownNameError: if nothing is registered under `id`.
        """
        if id not in self.env_specs:
            raise UnknownNameError("environment", id, self.env_specs)
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
