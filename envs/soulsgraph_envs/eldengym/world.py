"""The world contract of EldenGym's environments: what they ask of a game, simulated or real."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

#: (height, width, 3) uint8, red, green, blue.
Frame = npt.NDArray[np.uint8]


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
        """Let the player's clock run on so long; the game's runs `set_speed` times as far."""
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
        """Release every key and let go of the game; a second call does nothing."""
        ...
