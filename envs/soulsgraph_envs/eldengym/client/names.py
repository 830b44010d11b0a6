"""The game by the names of EldenGym's client, behind an environment or a server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import ceil, dist
from typing import Any

import numpy as np
from PIL import Image

from soulsgraph_envs.eldengym.world import Frame, World, load_fight

#: What a call of Siphon's client returns: "success", "message" and its values.
Answer = dict[str, Any]
Coordinates = tuple[float, float, float]
#: By Siphon's types; who has a part of a point of HP left is alive.
_CONVERTED: Mapping[str, Callable[[float], float]] = {"int": ceil, "bool": bool}


def axes(who: str) -> tuple[str, str, str]:
    """Return the names of a place's x, y and z, such as those of "HeroLocal".

    What EldenGym calls NpcGlobal lies in the local frame of HeroLocal: the difference of HeroGlobal and HeroLocal
    leads from one frame to the other (source: version 0.6.0's environment).
    """
    return f"{who}PosX", f"{who}PosY", f"{who}PosZ"


class GameNames(ABC):
    """EldenGym's names for what is read, written and pressed, those of its version 0.6.0 and of its documentation."""

    @abstractmethod
    def _read(self, names: Sequence[str]) -> list[float]:
        """Read attributes by their Siphon names; raises `GameError` for a reading that fails."""

    @abstractmethod
    def _write(self, values: Mapping[str, float]) -> None:
        """Write attributes; raises `GameError` for a write that fails."""

    @abstractmethod
    def _wait(self, seconds: float) -> None:
        """Let time pass."""

    @abstractmethod
    def input_key_tap(self, keys: Sequence[str], hold_ms: int = 50, delay_ms: int = 0) -> Answer:
        """Press keys `delay_ms` apart, hold them, and release them."""

    @abstractmethod
    def move_mouse(self, delta_x: int, delta_y: int, steps: int = 1) -> Answer:
        """Move the mouse by pixels."""

    @abstractmethod
    def get_frame(self) -> Frame:
        """Return the newest picture, (height, width, 3) RGB."""

    @property
    def player_hp(self) -> int:
        """The player's HP, in points; above 0 while alive."""
        return ceil(self._read(["HeroHp"])[0])

    @property
    def player_max_hp(self) -> int:
        """The player's full HP, in points."""
        return ceil(self._read(["HeroMaxHp"])[0])

    @property
    def player_animation_id(self) -> int:
        """The player's animation."""
        return int(self._read(["HeroAnimId"])[0])

    @property
    def target_hp(self) -> int:
        """The boss's HP, in points; above 0 while alive."""
        return ceil(self._read(["NpcHp"])[0])

    @property
    def target_max_hp(self) -> int:
        """The boss's full HP, in points."""
        return ceil(self._read(["NpcMaxHp"])[0])

    @property
    def target_animation_id(self) -> int:
        """The boss's animation."""
        return int(self._read(["NpcAnimId"])[0])

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
        values = self._read([*axes("HeroLocal"), *axes("NpcGlobal")])
        return dist(values[:3], values[3:])

    def set_player_hp(self, hp: float) -> None:
        """Set the player's HP, in points."""
        self._write({"HeroHp": int(hp)})

    def set_target_hp(self, hp: float) -> None:
        """Set the boss's HP, in points."""
        self._write({"NpcHp": int(hp)})

    def set_game_speed(self, speed: float) -> None:
        """Set the speed of the game's clock."""
        self._write({"gameSpeedFlag": True, "gameSpeedVal": float(speed)})

    def teleport(self, x: float, y: float, z: float) -> None:
        """Move the player to a place in global coordinates; the game takes local ones."""
        local, here = self.local_player_coords, self.global_player_coords
        there = (old + new - now for old, new, now in zip(local, (x, y, z), here, strict=True))
        self._write(dict(zip(axes("HeroLocal"), there, strict=True)))

    def teleport_to(self, x: float, y: float, z: float) -> None:
        """Do as `teleport` does."""
        self.teleport(x, y, z)

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
        self._wait(start.settle_s)
        self.input_key_tap(start.enter.keys, start.enter.hold_ms, start.enter.delay_ms)
        self._wait(start.inside_s)
        self.input_key_tap(start.lock_on.keys, start.lock_on.hold_ms, start.lock_on.delay_ms)

    def send_key(self, keys: Sequence[str], hold_ms: int = 50, delay_ms: int = 0) -> Answer:
        """Do as `input_key_tap` does."""
        return self.input_key_tap(keys, hold_ms, delay_ms)

    def _place(self, who: str) -> Coordinates:
        x, y, z = self._read(axes(who))
        return x, y, z


class GameClient(GameNames):
    """The game behind an environment; failures that pysiphon reports as success False are raised as errors."""

    def __init__(self, world: World) -> None:
        self._world = world

    def get(self, name: str) -> float:
        """Read one attribute by its Siphon name."""
        return self._read([name])[0]

    def get_attribute(self, name: str) -> Answer:
        """Read one attribute as pysiphon does: "value" and "value_type" beside "success" and "message"."""
        value, kind = self.get(name), self._world.attributes[name]
        return _done("read", value=_CONVERTED.get(kind, float)(value), value_type=kind)

    def set_attribute(self, name: str, value: float, value_type: str = "int") -> Answer:
        """Write one attribute by its Siphon name; the world knows its type."""
        self._write({name: value})
        return _done("written")

    def set_game_speed(self, speed: float) -> None:
        """Set the speed of the game's clock."""
        self._world.set_speed(speed)

    def input_key_tap(self, keys: Sequence[str], hold_ms: int = 50, delay_ms: int = 0) -> Answer:
        """Press keys `delay_ms` apart, hold them, and release them; a simulated fight goes on meanwhile."""
        self._world.tap(keys, hold_ms, delay_ms)
        return _done("tapped")

    def input_key_toggle(self, key: str, toggle: bool) -> Answer:
        """Send one key down or up."""
        self._world.set_key(key, toggle)
        return _done("sent")

    def move_mouse(self, delta_x: int, delta_y: int, steps: int = 1) -> Answer:
        """Move the mouse by pixels; raises `GameError` in a simulated fight, which has none."""
        self._world.move_mouse(delta_x, delta_y, steps)
        return _done("moved")

    def get_frame(self) -> Frame:
        """Return the newest picture, (height, width, 3) RGB, of the environment's frame size."""
        return self._world.frame()

    def capture_frame(self, as_image: bool = True) -> Image.Image | Answer:
        """Return the newest picture as pysiphon does: an RGBA image, or BGRA bytes with their width and height."""
        frame = self.get_frame()
        rgba = np.dstack((frame, np.full(frame.shape[:2], 255, np.uint8)))
        if as_image:
            return Image.fromarray(rgba)
        height, width = frame.shape[:2]
        return _done("captured", pixels=rgba[:, :, [2, 1, 0, 3]].tobytes(), width=width, height=height)

    def _read(self, names: Sequence[str]) -> list[float]:
        return list(self._world.read(names).values())

    def _write(self, values: Mapping[str, float]) -> None:
        self._world.write(values)

    def _wait(self, seconds: float) -> None:
        self._world.wait(seconds)


def _done(message: str, **values: Any) -> Answer:
    return {"success": True, "message": message, **values}
