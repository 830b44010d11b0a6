"""SoulsGym's fights: state, animations, arena and reward as data; what can be done, what is observed, the lock."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain
from math import atan2, dist
from pathlib import Path
from typing import Annotated, Any, Self

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Dict, Discrete, Space

from soulsgraph_envs.core.config import Between, Triple, Where, load
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import Camera, Scenario, Status, load_boss, load_player
from soulsgraph_envs.core.state import Control, wrap_angle

Floats = npt.NDArray[np.float64]


class SoulsGymException(SoulsGraphError):  # noqa: N818 - SoulsGym's own name
    """Anything that goes wrong in an environment of this package."""


class GameStateError(SoulsGymException):
    """The game is not in a state in which the environment can go on."""


class InvalidPlayerStateError(SoulsGymException):
    """The player is not one the environment can show."""


class InvalidBossStateError(SoulsGymException):
    """The boss is not one the environment can show; drivers refuse such a game themselves."""


class ResetNeeded(SoulsGymException, gymnasium.error.ResetNeeded):
    """A member was used that needs an episode under way."""


class LockOnFailure(SoulsGymException):
    """The lock could not be taken at the start of an episode."""


class InjectionFailure(SoulsGymException):
    """The game's speed could not be set; no driver injects anything into a game."""


class InvalidGameSettings(SoulsGymException):
    """The game, its settings or its driver lack something the environment needs."""


class ResetError(SoulsGymException):
    """No episode could be begun, for the reason of the last attempt."""


@dataclass
class GameState:
    """The state of a fight at one moment; without arguments SoulsGym's defaults.

    Poses are (x, y, z, angle), z up and radians in [-pi, pi]; the camera's is (x, y, z) and the unit
    vector of where it looks. HP and stamina are points; stamina may be below 0. Durations are the
    seconds since an animation began. Frost is that of Vordt's blows: the shares of the resistance
    (1 where there is none) and of its effect that are left.
    """

    phase: int = 1
    player_hp: float = 0.0
    player_max_hp: float = 1.0
    player_sp: float = 0.0
    player_max_sp: float = 1.0
    boss_hp: float = 0.0
    boss_max_hp: float = 1.0
    player_pose: Floats = field(default_factory=lambda: np.zeros(4))
    boss_pose: Floats = field(default_factory=lambda: np.zeros(4))
    camera_pose: Floats = field(default_factory=lambda: np.zeros(6))
    player_animation: str = "NoAnimation"
    player_animation_duration: float = 0.0
    boss_animation: str = "NoAnimation"
    boss_animation_duration: float = 0.0
    lock_on: bool = False
    frost_resistance: float = 1.0
    frost_effect: float = 0.0

    def __call__(self) -> Self:
        """Return a copy: `env.game_state()` in newer SoulsGym is what `env.game_state` was in older."""
        return self.copy()

    def copy(self) -> Self:
        """Return an independent copy, arrays included."""
        return deepcopy(self)

    def as_dict(self, deepcopy: bool = True) -> dict[str, Any]:
        """Return the values by name; with `deepcopy=False` the arrays are the state's own."""
        return dict(vars(self.copy() if deepcopy else self))

    def as_json(self) -> dict[str, Any]:
        """Return the values by name, arrays as lists: `json` writes them and `from_dict` takes them back."""
        return {name: value.tolist() if hasattr(value, "tolist") else value for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, data_dict: Mapping[str, Any]) -> Self:
        """Make a state of values by name, lists taken for arrays; what is left out has its default."""
        values: dict[str, Any] = {
            name: np.array(value) if isinstance(value, list) else value for name, value in data_dict.items()
        }
        return cls(**values)


#: The number of an animation that is not in the table.
UNKNOWN = -1

DATA = Path(__file__).parents[2] / "data" / "soulsgym"

Position = Triple[Annotated[float, Between(-1e6, 1e6)]]
Pose = tuple[float, float, float, float]
Times = Triple[Annotated[float, Between(0.0, 60.0)]]


#: Where SoulsGym's boxes end: pi, rounded up.
_HALF_TURN_RAD = 3.1416


@dataclass(frozen=True)
class PlayerTable:
    """The player's animations in the order of their numbers.

    Each keeps the player for some seconds from attacking, rolling and moving; one that is not in the table does not.
    """

    animations: dict[str, Times]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Map each name to its number."""
        return {name: number for number, name in enumerate(self.animations)}

    @cached_property
    def looped(self) -> frozenset[str]:
        """Return the animations that do not bind the player: they play in a loop."""
        return frozenset(name for name, (_, _, move_s) in self.animations.items() if move_s == 0.0)


@dataclass(frozen=True)
class Coordinates:
    """The places of a fight under SoulsGym's names: (x, y, z, angle), z up; a bonfire's angle may be left out."""

    fog_wall: Pose
    post_fog_wall: Pose
    bonfire: tuple[float, ...]
    boss_init_pose: Pose
    player_init_pose: Pose
    player_init_poses_random: tuple[Pose, ...] = ()
    center: tuple[float, ...] = ()


@dataclass(frozen=True)
class AnimationKinds:
    """A boss's animations by SoulsGym's kinds, in the order of their numbers."""

    attacks: tuple[str, ...]
    movement: tuple[str, ...]
    misc: tuple[str, ...]


#: Worth of a victory, and of a metre towards the middle of the arena.
END_REWARD = 0.1
APPROACH_REWARD = 0.01
#: Nothing is gained by coming closer to the middle of the arena than this.
NEAR_M = 4.0


@dataclass(frozen=True)
class BossFight:
    """A boss: where it is fought, from which places, and its numbered animations."""

    name: str
    #: The bonfire that the game is reloaded at, and where the camera looks to pass the fog wall.
    bonfire: str
    camera: Triple[Annotated[float, Between(-1.0, 1.0)]]
    looped: tuple[str, ...]
    #: The box of places within which the fight can be.
    arena_low_m: Position
    arena_high_m: Position
    coordinates: Coordinates
    animations: AnimationKinds
    #: What the reward's term for the place is measured from; without one there is no such term.
    reward_centre_m: tuple[float, float] | None = None
    #: Animations without a number, which the fight does not show as the boss's own.
    unused_animations: tuple[str, ...] = ()
    #: The game's names for animations that the simulator calls otherwise.
    simulated: dict[str, str] = field(default_factory=dict)

    @property
    def limits(self) -> tuple[list[float], list[float]]:
        """Return the lowest and the highest pose (x, y, z, angle) of the arena."""
        return [*self.arena_low_m, -_HALF_TURN_RAD], [*self.arena_high_m, _HALF_TURN_RAD]

    @cached_property
    def boss_numbers(self) -> dict[str, int]:
        """Map each of the boss's animations to its number."""
        return {name: number for number, name in enumerate(chain(*vars(self.animations).values()))}

    def in_game(self, animation: str) -> str:
        """Return the game's name of a boss's animation, which may differ from the simulator's."""
        return self.simulated.get(animation, animation)

    def reward(self, before: GameState, after: GameState) -> float:
        """Reward HP taken and kept, victory and, while the fight lasts, standing near the centre if there is one.

        HP counts as a share of its maximum, about -1 to 1 over a fight; the end is worth 0.1 more, or less
        (source: SoulsGym's Iudex environments).
        """
        taken = (before.boss_hp - after.boss_hp) / after.boss_max_hp
        kept = (after.player_hp - before.player_hp) / after.player_max_hp
        if after.boss_hp <= 0:
            return taken + kept + END_REWARD
        if after.player_hp <= 0:
            return taken + kept - END_REWARD
        if self.reward_centre_m is None:
            return taken + kept
        was_m, is_m = (dist(state.player_pose[:2], self.reward_centre_m) for state in (before, after))
        return taken + kept + (APPROACH_REWARD * (was_m - is_m) if is_m > NEAR_M else 0.0)


@cache
def player_table() -> PlayerTable:
    """Load the player's animations (source: SoulsGym's measured table)."""
    return load(PlayerTable, Where(DATA / "player.toml"))


@cache
def load_fight(name: str) -> BossFight:
    """Load a fight of `data/soulsgym/fights`.

    Raises:
        DataError: for a missing, misspelt or mistyped value.
    """
    return load(BossFight, Where(DATA / "fights" / f"{name}.toml"))


@dataclass(frozen=True)
class Static:
    """The file `data/soulsgym/static.toml`; what its tables mean stands there."""

    presses: dict[str, Control]
    actions: tuple[str, ...]
    critical_player_animations: dict[str, tuple[float, ...]]
    player_stats: dict[str, tuple[int, ...]]
    bonfires: dict[str, int]


STATIC = load(Static, Where(DATA / "static.toml"))


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
    """Choose the camera and lock keys of the next step, by how a player's keys turn the camera."""

    def __init__(self, camera: Camera) -> None:
        self._camera, self._wait = camera, 0

    def begin(self) -> None:
        """Note that an episode begins: the key may be pressed at once."""
        self._wait = 0

    def keys(self, camera_pose: Floats, target: Floats) -> Control:
        """Return the keys that turn the camera (x, y, z, direction) to a target (x, y, z, ...)."""
        looks, towards = camera_pose[3:], target[:3] - camera_pose[:3]
        towards = towards / max(float(np.linalg.norm(towards)), 1e-6)
        if self._wait <= 0 and float(looks @ towards) > _IN_VIEW:
            self._wait = _PATIENCE
            return Control.LOCK_ON
        self._wait -= 1
        return _turn(self._camera, looks, towards)


def _turn(camera: Camera, looks: Floats, towards: Floats) -> Control:
    aside = wrap_angle(_heading(towards) - _heading(looks))
    upward = float(towards[2] - looks[2])
    keys = Control.NONE
    if abs(aside) > _CLOSE:
        keys |= Control.CAMERA_RIGHT if camera.right_key_turns(aside) else Control.CAMERA_LEFT
    if abs(upward) > _CLOSE:
        keys |= Control.CAMERA_UP if upward > 0 else Control.CAMERA_DOWN
    return keys


def _heading(direction: Floats) -> float:
    """Return the game's angle of a direction: angle a faces (-sin a, -cos a)."""
    return atan2(-float(direction[0]), -float(direction[1]))
