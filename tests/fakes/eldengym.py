"""For tests: a world that stands still, checks its caller and records its calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from soulsgraph_envs.compat.eldengym.world import Answer, World, done
from soulsgraph_envs.core.errors import UnknownNameError
from soulsgraph_envs.core.game import Picture

_LEVELS = {
    "HeroHp": 100.0,
    "HeroMaxHp": 100.0,
    "NpcHp": 1000.0,
    "NpcMaxHp": 1000.0,
    "HeroAnimId": 1.0,
    "NpcAnimId": 2.0,
}
_PLACES = {f"{who}{frame}Pos{axis}": 0.0 for who in ("Hero", "Npc") for frame in ("Local", "Global") for axis in "XYZ"}


class FakeWorld(World):
    """A `World` whose attributes stay as they are set; `asked` keeps every call that changes something."""

    simulated = True
    attributes: Mapping[str, str] = dict.fromkeys(_LEVELS, "int") | dict.fromkeys(_PLACES, "float")

    def __init__(self, frame_size: tuple[int, int] = (36, 36)) -> None:
        self.values = {**_LEVELS, **_PLACES}
        self.asked: list[tuple[object, ...]] = []
        self._size = frame_size

    def begin(self, seed: int) -> None:
        """Record the seed."""
        self.asked.append(("begin", seed))

    def input_key_tap(self, keys: Sequence[str], hold_ms: int = 50, delay_ms: int = 0) -> Answer:
        """Record a tap."""
        return self._ask("tap", tuple(keys), hold_ms, delay_ms)

    def input_key_toggle(self, key: str, toggle: bool) -> Answer:
        """Record a key."""
        return self._ask("key", key, toggle)

    def move_mouse(self, delta_x: int, delta_y: int, steps: int = 1) -> Answer:
        """Record a move of the mouse."""
        return self._ask("mouse", delta_x, delta_y, steps)

    def wait(self, seconds: float) -> None:
        """Record a wait."""
        self._ask("wait", seconds)

    def set_game_speed(self, speed: float) -> None:
        """Record a speed."""
        self.asked.append(("speed", speed))

    def read(self, names: Sequence[str]) -> dict[str, float]:
        """Return the values as set."""
        for name in names:
            if name not in self.values:
                raise UnknownNameError("attribute of the fake world", name, self.values)
        return {name: self.values[name] for name in names}

    def write(self, values: Mapping[str, float]) -> None:
        """Set values and record the call."""
        self.read(list(values))
        self.values.update(values)
        self.asked.append(("write", dict(values)))

    def get_frame(self) -> Picture:
        """Return a picture as bright as the boss has HP."""
        return np.full((*self._size, 3), int(255 * self.values["NpcHp"] / self.values["NpcMaxHp"]), np.uint8)

    def close(self) -> None:
        """Do nothing."""

    def _ask(self, *call: object) -> Answer:
        self.asked.append(call)
        return done("recorded")


def faked(env: Any) -> FakeWorld:
    """Put a fake world behind an environment, and return it."""
    world = env.world = FakeWorld(env.observation_space["frame"].shape[:2])
    return world
