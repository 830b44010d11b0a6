"""The game behind an environment or a server, by the names of EldenGym's client: simulated, or Elden Ring itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, dist
from typing import Any

import numpy as np
from PIL import Image

from soulsgraph_envs.compat.eldengym.client.keys import load_fight
from soulsgraph_envs.core.game import Picture

#: What a call of Siphon's client returns: "success", "message" and its values.
Answer = dict[str, Any]
Coordinates = tuple[float, float, float]
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

    @property
    def player_hp(self) -> int:
        """The player's HP, in points; above 0 while alive."""
        return ceil(self.get("HeroHp"))

    @property
    def player_max_hp(self) -> int:
        """The player's full HP, in points."""
        return ceil(self.get("HeroMaxHp"))

    @property
    def player_animation_id(self) -> int:
        """The player's animation."""
        return int(self.get("HeroAnimId"))

    @property
    def target_hp(self) -> int:
        """The boss's HP, in points; above 0 while alive."""
        return ceil(self.get("NpcHp"))

    @property
    def target_max_hp(self) -> int:
        """The boss's full HP, in points."""
        return ceil(self.get("NpcMaxHp"))

    @property
    def target_animation_id(self) -> int:
        """The boss's animation."""
        return int(self.get("NpcAnimId"))

    @property
    def local_player_coords(self) -> Coordinates:
        """The player's place in the frame of its part of the map, (x, y, z) in metres."""
        return self._place("HeroLocal")

    @property
    def global_player_coords(self) -> Coordinates:
        """The player's place in the frame of the whole map, (x, y, z) in metres."""
        return self._place("HeroGlobal")

    @property
    def local_target_coords(self) -> Coordinates:
        """The boss's place as NpcLocal has it, (x, y, z) in metres."""
        return self._place("NpcLocal")

    @property
    def global_target_coords(self) -> Coordinates:
        """The boss's place as NpcGlobal has it, (x, y, z) in metres; see `axes` for its frame."""
        return self._place("NpcGlobal")

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

    def _place(self, who: str) -> Coordinates:
        x, y, z = self.read(axes(who)).values()
        return x, y, z


class World(GameNames):
    """The game behind an environment, its clock and its keys; failures of a call are raised as errors.

    Time is the game's: nothing moves on in a simulated world but by `input_key_tap` and `wait`. Reading and writing
    raise `UnknownNameError` for a name outside `attributes`, or one that cannot be written.
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
