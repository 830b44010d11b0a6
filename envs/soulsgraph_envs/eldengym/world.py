"""The world contract of EldenGym's environments: what they need of a game, simulated or real."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.core.config import Between, Where, read_file, read_table
from soulsgraph_envs.core.errors import UnknownNameError
from soulsgraph_envs.eldengym.keys import Tap

#: (height, width, 3) uint8, red, green, blue.
Frame = npt.NDArray[np.uint8]
_FILE = Path(__file__).parents[1] / "data" / "eldengym" / "fights.toml"
_SECONDS = Between(0.0, 60.0)


@runtime_checkable
class World(Protocol):
    """One game, its clock and its keys; attributes go by the names of EldenGym's Siphon configuration.

    Keys go by Siphon's names ("W", "LEFT_SHIFT", "LEFT" for the left mouse button). Time is the
    game's: nothing moves on in a simulated world but by `tap` and `wait`.
    """

    simulated: bool
    #: What can be read, with its type: "int", "float", "bool" or "array".
    attributes: Mapping[str, str]

    def begin(self, seed: int) -> None:
        """Begin a fight, every key up, locked on to the boss."""
        ...

    def tap(self, keys: Sequence[str], hold_ms: int, delay_ms: int) -> None:
        """Press keys `delay_ms` apart, hold them, release them in reverse order; returns when all are up."""
        ...

    def set_key(self, key: str, down: bool) -> None:
        """Send one key down or up."""
        ...

    def move_mouse(self, right: int, down: int, steps: int = 1) -> None:
        """Move the mouse by pixels; raises `GameError` where there is none."""
        ...

    def wait(self, seconds: float) -> None:
        """Let the player's clock run for this time; the game's runs `set_speed` times as far."""
        ...

    def set_speed(self, factor: float) -> None:
        """Set the speed of the game's clock against the player's."""
        ...

    def read(self, names: Sequence[str]) -> dict[str, float]:
        """Read attributes.

        Raises:
            UnknownNameError: for a name outside `attributes`.
            GameError: if the game cannot be read.
        """
        ...

    def write(self, values: Mapping[str, float]) -> None:
        """Write attributes; raises as `read` does, also for one that cannot be written."""
        ...

    def frame(self) -> Frame:
        """Return the latest picture, always of the same shape."""
        ...

    def close(self) -> None:
        """Release every key and disconnect from the game; a second call does nothing."""
        ...


@dataclass(frozen=True)
class FightStart:
    """The fog wall, in global coordinates, and what to press before and behind it."""

    fog_wall_m: Annotated[tuple[float, float, float], Between(-1e6, 1e6)]
    mouse_pixels: Annotated[int, Between(-10_000, 10_000)]
    settle_s: Annotated[float, _SECONDS]
    enter: Tap
    #: A player who passed the wall is so far from it at least.
    passed_m: Annotated[float, Between(0.0, 100.0)]
    #: Player and boss who are nearer than this are fighting; a player farther from the wall is somewhere else.
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
    where, name = Where(_FILE), fight_name(scenario)
    values = read_file(where)
    if name not in values:
        raise UnknownNameError("fight of Elden Ring", scenario, values)
    return read_table(FightStart, values[name], where.at(name))
