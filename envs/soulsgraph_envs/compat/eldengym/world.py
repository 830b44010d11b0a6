"""The game behind an environment or a server, by the names of EldenGym's client: simulated, or Elden Ring itself.

Keys, actions and fights are data, of which a key's meaning to the simulated fight is one. An environment's world is a
Siphon server if there is one (`client`), else the simulator in Elden Ring's place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, dist
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from PIL import Image

from soulsgraph_envs.core.config import Between, Triple, Where, load, read_file, validate
from soulsgraph_envs.core.errors import GameError, UnknownNameError
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.core.scenario import load_player, load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Control, Raw, RawValues
from soulsgraph_envs.simulator.driver import Simulator

#: What a call of Siphon's client returns: "success", "message" and its values.
Answer = dict[str, Any]
#: By Siphon's types; who has a part of a point of HP left is alive.
_CONVERTED: Mapping[str, Callable[[float], float]] = {"int": ceil, "bool": bool}


def done(message: str, **values: Any) -> Answer:
    """Return the answer of a call that succeeded."""
    return {"success": True, "message": message, **values}


def axes(who: str) -> tuple[str, str, str]:
    """Return the names of a place's x, y and z, such as those of "HeroLocal".

    What EldenGym calls NpcGlobal lies in the local frame of HeroLocal: the difference of HeroGlobal and HeroLocal
    leads from one frame to the other (source: version 0.6.0's environment).
    """
    return f"{who}PosX", f"{who}PosY", f"{who}PosZ"


def _whole(name: str) -> property:
    """Return the property of one attribute as a whole number, which is above 0 where the attribute is."""
    return property(lambda game: ceil(game.get(name)))


def _place(who: str) -> property:
    """Return the property of a place, (x, y, z)."""
    return property(lambda game: tuple(game.read(axes(who)).values()))


class GameNames(ABC):
    """EldenGym's names for what is read, written and pressed, those of its version 0.6.0 and of its documentation.

    Attributes go by the names of EldenGym's Siphon configuration, keys by Siphon's ("W", "LEFT_SHIFT", "LEFT" for
    the left mouse button).
    """

    @abstractmethod
    def read(self, names: Sequence[str]) -> dict[str, float]:
        """Read attributes; raises `GameError` for a reading that fails."""

    @abstractmethod
    def write(self, values: Mapping[str, float]) -> None:
        """Write attributes; raises `GameError` for a write that fails."""

    @abstractmethod
    def wait(self, seconds: float) -> None:
        """Let the player's clock run for this time; the game's runs as much faster as its speed says."""

    @abstractmethod
    def input_key_tap(self, keys: Sequence[str], hold_ms: int = 50, delay_ms: int = 0) -> Answer:
        """Press keys `delay_ms` apart, hold them, release them in reverse order; returns when all are up."""

    @abstractmethod
    def move_mouse(self, delta_x: int, delta_y: int, steps: int = 1) -> Answer:
        """Move the mouse by pixels; raises `GameError` where there is none."""

    @abstractmethod
    def get_frame(self) -> Picture:
        """Return the newest picture, (height, width, 3) RGB."""

    def get(self, name: str) -> float:
        """Read one attribute by its Siphon name."""
        return self.read([name])[name]

    #: HP in points; above 0 while alive.
    player_hp, target_hp = _whole("HeroHp"), _whole("NpcHp")
    player_max_hp, target_max_hp = _whole("HeroMaxHp"), _whole("NpcMaxHp")
    player_animation_id, target_animation_id = _whole("HeroAnimId"), _whole("NpcAnimId")
    #: Places, (x, y, z) in metres: in the frame of the player's part of the map, and in that of the whole map.
    local_player_coords, global_player_coords = _place("HeroLocal"), _place("HeroGlobal")
    #: The boss's as the attributes of these names have it; see `axes` for the frame of the second.
    local_target_coords, global_target_coords = _place("NpcLocal"), _place("NpcGlobal")

    @property
    def target_player_distance(self) -> float:
        """The distance from the player to the boss, in metres."""
        values = [*self.read([*axes("HeroLocal"), *axes("NpcGlobal")]).values()]
        return dist(values[:3], values[3:])

    def set_player_hp(self, hp: float) -> None:
        """Set the player's HP, in points."""
        self.write({"HeroHp": int(hp)})

    def set_target_hp(self, hp: float) -> None:
        """Set the boss's HP, in points."""
        self.write({"NpcHp": int(hp)})

    def set_game_speed(self, speed: float) -> None:
        """Set the speed of the game's clock against the player's."""
        self.write({"gameSpeedFlag": True, "gameSpeedVal": float(speed)})

    def teleport(self, x: float, y: float, z: float) -> None:
        """Move the player to a place in global coordinates; the game takes local ones."""
        local, here = self.local_player_coords, self.global_player_coords
        there = (old + new - now for old, new, now in zip(local, (x, y, z), here, strict=True))
        self.write(dict(zip(axes("HeroLocal"), there, strict=True)))

    #: EldenGym has both names.
    teleport_to = teleport

    def reset_game(self) -> None:
        """Let the player die, after which the world is reloaded."""
        self.set_player_hp(0)

    def start_scenario(self, scenario_name: str = "margit") -> None:
        """Go through the fog wall and lock on to the boss; check the readings for success.

        Raises:
            UnknownNameError: if it is not known how the scenario's fight begins.
        """
        start = load_fight(scenario_name)
        self.teleport(*start.fog_wall_m)
        self.move_mouse(start.mouse_pixels, 0)
        self.wait(start.settle_s)
        self.input_key_tap(start.enter.keys, start.enter.hold_ms, start.enter.delay_ms)
        self.wait(start.inside_s)
        self.input_key_tap(start.lock_on.keys, start.lock_on.hold_ms, start.lock_on.delay_ms)

    def send_key(self, keys: Sequence[str], hold_ms: int = 50, delay_ms: int = 0) -> Answer:
        """Do as `input_key_tap` does."""
        return self.input_key_tap(keys, hold_ms, delay_ms)


class World(GameNames):
    """The game behind an environment, its clock and its keys; failures of a call are raised as errors.

    Time is the game's: nothing moves on in a simulated world but by `input_key_tap` and `wait`.
    """

    simulated: bool
    #: What can be read, with its type: "int", "float", "bool" or "array".
    attributes: Mapping[str, str]

    @abstractmethod
    def begin(self, seed: int) -> None:
        """Begin a fight, every key up, locked on to the boss."""

    @abstractmethod
    def input_key_toggle(self, key: str, toggle: bool) -> Answer:
        """Send one key down or up; nothing happens if it is in that state already."""

    @abstractmethod
    def close(self) -> None:
        """Release every key and disconnect from the game; a second call does nothing."""

    def get_attribute(self, name: str) -> Answer:
        """Read one attribute as pysiphon does: "value" and "value_type" beside "success" and "message"."""
        value, kind = self.get(name), self.attributes[name]
        return done("read", value=_CONVERTED.get(kind, float)(value), value_type=kind)

    def set_attribute(self, name: str, value: float, value_type: str = "int") -> Answer:
        """Write one attribute by its Siphon name; the world knows its type."""
        self.write({name: value})
        return done("written")

    def capture_frame(self, as_image: bool = True) -> Image.Image | Answer:
        """Return the newest picture as pysiphon does: an RGBA image, or BGRA bytes with their width and height."""
        frame = self.get_frame()
        rgba = np.dstack((frame, np.full(frame.shape[:2], 255, np.uint8)))
        if as_image:
            return Image.fromarray(rgba)
        height, width = frame.shape[:2]
        return done("captured", pixels=rgba[:, :, [2, 1, 0, 3]].tobytes(), width=width, height=height)


@dataclass(frozen=True)
class WorldOptions:
    """The world and its options; with `dry_run` writes to a game are logged instead of done.

    `host` is HOST:PORT, `config` a file of Siphon attributes.
    """

    driver: str
    scenario: str
    host: str
    config: str | None
    frame_size: tuple[int, int]
    dry_run: bool = False


DATA = Path(__file__).parents[2] / "data" / "eldengym"
_SECONDS = Between(0.0, 60.0)


@dataclass(frozen=True)
class Tap:
    """Keys going down one after the other, staying down together, coming up in reverse order."""

    keys: tuple[str, ...] = ()
    hold_ms: Annotated[int, Between(0, 10_000)] = 0
    delay_ms: Annotated[int, Between(0, 10_000)] = 0


@dataclass(frozen=True)
class MenuWay:
    """Keys tapped one after the other to get through a menu, and how long the game takes afterwards."""

    keys: tuple[str, ...]
    hold_ms: Annotated[int, Between(0, 10_000)]
    pause_s: Annotated[float, _SECONDS]
    then_s: Annotated[float, _SECONDS]


@dataclass(frozen=True)
class KeyData:
    """The file `data/eldengym/keys.toml`; what its tables mean stands there."""

    keys: dict[str, Control]
    modified: dict[str, dict[str, Control]]
    without_effect: dict[str, str]
    multi_binary: Tap
    discrete: dict[str, Tap]
    toggled: dict[str, str]
    menu: dict[str, MenuWay]


@cache
def load_keys() -> KeyData:
    """Load the shipped keys and actions.

    Raises:
        DataError: for a value of another type, or a control or key that does not exist.
    """
    return load(KeyData, Where(DATA / "keys.toml"))


def read_bindings(path: Path) -> dict[str, str]:
    """Read a file of key bindings as version 0.6.0 ships them: JSON, `{"actions": {name: {"index", "key"}}}`.

    Returns the key of every action, in the order of their indices.

    Raises:
        DataError: if the file is not of that kind.
    """
    where = Where(path)
    values = validate(dict[str, Any], read_file(where, "JSON"), where)
    actions = validate(dict[str, dict[str, Any]], values.get("actions"), where.at("actions"))
    return {name: actions[name]["key"] for name in sorted(actions, key=lambda name: int(actions[name]["index"]))}


@dataclass(frozen=True)
class FightStart:
    """The fog wall, in global coordinates, and what to press before and behind it."""

    fog_wall_m: Triple[Annotated[float, Between(-1e6, 1e6)]]
    mouse_pixels: Annotated[int, Between(-10_000, 10_000)]
    settle_s: Annotated[float, _SECONDS]
    enter: Tap
    #: A player who passed the wall is so far from it at least.
    passed_m: Annotated[float, Between(0.0, 100.0)]
    #: Player and boss who are nearer than this are fighting.
    fight_m: Annotated[float, Between(0.0, 1000.0)]
    inside_s: Annotated[float, _SECONDS]
    lock_on: Tap


def fight_name(scenario: str) -> str:
    """Return a scenario's own name, "margit" for Margit and version 0.6.0's Margit-v0."""
    return scenario.lower().removesuffix("-v0")


def load_fight(scenario: str) -> FightStart:
    """Load how a scenario's fight begins.

    Raises:
        UnknownNameError: if that is not known.
        DataError: for a missing or mistyped value.
    """
    where, name = Where(DATA / "fights.toml"), fight_name(scenario)
    values = read_file(where)
    if name not in values:
        raise UnknownNameError("fight of Elden Ring", scenario, values)
    return validate(FightStart, values[name], where.at(name))


_DIRECTIONS = Control.FORWARD | Control.BACK | Control.LEFT | Control.RIGHT


class KeyTranslator:
    """The keys that are down, and the controls they mean frame by frame."""

    def __init__(self) -> None:
        self._down: list[str] = []
        self._fresh = Control.NONE

    def set(self, key: str, down: bool) -> None:
        """Send a key down or up; nothing happens if it is in that state already."""
        if down and key not in self._down:
            self._fresh |= self._meaning(key) & ~_DIRECTIONS
            self._down.append(key)
        elif not down and key in self._down:
            self._down.remove(key)

    def controls(self) -> Control:
        """Return the controls of the next frame: what is held, and what was pressed since the last one."""
        taken, self._fresh = self._fresh, Control.NONE
        for key in self._down:
            taken |= self._meaning(key) & _DIRECTIONS
        return taken

    def _meaning(self, key: str) -> Control:
        data = load_keys()
        tables = [data.modified[other] for other in self._down if other in data.modified]
        return next((table[key] for table in (*tables, data.keys) if key in table), Control.NONE)


_FRAMES_PER_S = 60


@dataclass(frozen=True)
class Attributes:
    """The file `data/eldengym/attributes.toml`; what its tables mean stands there."""

    shown: dict[str, Raw]
    writable: dict[str, str]


_SHOWN, _WRITABLE = vars(load(Attributes, Where(DATA / "attributes.toml"))).values()
#: What no raw value shows.
_OTHERS = ("HeroFp", "HeroMaxFp", "gameSpeedVal")


class SimulatedFight(World):
    """One simulated fight, always the same before `begin`: a game that runs can be read at any time.

    Raises:
        UnknownNameError: if no scenario has that name; see `keys.fight_name`.
    """

    simulated = True
    attributes: Mapping[str, str] = {
        name: "int" if name.endswith(("Hp", "Fp", "Sp", "AnimId")) else "float" for name in (*_SHOWN, *_OTHERS)
    }

    def __init__(self, scenario: str, frame_size: tuple[int, int]) -> None:
        self._scenario = load_scenario(fight_name(scenario))
        self._fp_max = load_player(self._scenario.player).body.fp
        self._simulator = Simulator(1, tick_s=1 / _FRAMES_PER_S)
        self._keyboard = KeyTranslator()
        self._size = frame_size
        self._speed, self._owed_frames = 1.0, 0.0
        self._raw: RawValues | None = None

    def begin(self, seed: int) -> None:
        """Begin a fight from its own seed and lock on to the boss."""
        self._keyboard = KeyTranslator()
        self._owed_frames = 0.0
        self._raw = self._simulator.reset(np.zeros(1, np.int64), self._scenario, derive_seeds(seed))
        self._advance(Control.LOCK_ON)

    def input_key_tap(self, keys: Sequence[str], hold_ms: int = 50, delay_ms: int = 0) -> Answer:
        """Press, hold and release keys while the fight goes on."""
        for number, key in enumerate(keys):
            self.wait(delay_ms / 1000 if number else 0.0)
            self._keyboard.set(key, True)
        self.wait(hold_ms / 1000)
        for number, key in enumerate(reversed(keys)):
            self.wait(delay_ms / 1000 if number else 0.0)
            self._keyboard.set(key, False)
        return done("tapped")

    def input_key_toggle(self, key: str, toggle: bool) -> Answer:
        """Send one key down or up, from the next frame on."""
        self._keyboard.set(key, toggle)
        return done("sent")

    def move_mouse(self, delta_x: int, delta_y: int, steps: int = 1) -> Answer:
        """Refuse: the boss is locked on to, and the mouse does not turn the camera."""
        raise GameError("the simulated game: expected keys, found a move of the mouse; leave it out.")

    def wait(self, seconds: float) -> None:
        """Play the frames of this much of the player's time; the fraction of a frame is kept for the next call."""
        self._owed_frames += seconds * self._speed * _FRAMES_PER_S
        # A sum of thirds may fall a hair short of a whole frame.
        while self._owed_frames > 1.0 - 1e-9:
            self._owed_frames -= 1.0
            self._advance(self._keyboard.controls())

    def set_game_speed(self, speed: float) -> None:
        """Set the seconds of the fight that pass in one second of the player's."""
        self._speed = speed

    def read(self, names: Sequence[str]) -> dict[str, float]:
        """Read attributes of the fight."""
        raw, fp = self._begun()[0], self._simulator.values(0)["fp"]
        values = {name: raw[column] for name, column in _SHOWN.items()}
        values |= dict(zip(_OTHERS, (fp, self._fp_max, self._speed), strict=True))
        return {name: float(values[name]) for name in names}

    def write(self, values: Mapping[str, float]) -> None:
        """Write HP, stamina or places; the floor is flat, so heights stay what they are."""
        self._begun()
        written = {_WRITABLE[name]: value for name, value in values.items()}
        written.pop("", None)
        self._simulator.override(0, **written)

    def get_frame(self) -> Picture:
        """Draw the fight."""
        self._begun()
        return self._simulator.render(0, self._size)

    def close(self) -> None:
        """Close the simulator."""
        self._simulator.close()

    def _advance(self, controls: Control) -> None:
        self._begun()
        self._raw = self._simulator.step(np.array([controls], np.uint32))

    def _begun(self) -> RawValues:
        if self._raw is None:
            self.begin(0)
        assert self._raw is not None
        return self._raw
