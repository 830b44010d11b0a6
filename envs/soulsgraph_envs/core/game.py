"""The driver contract: the methods of every game, whatever runs behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.core.state import ALL_CONTROLS, Control, Controls, RawValues

LaneIndices = npt.NDArray[np.int64]
#: A picture of a game: (height, width, 3) of uint8.
Picture = npt.NDArray[np.uint8]
ActiveLanes = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Capabilities:
    """What a driver can do; the loop depends on this and never on the driver's name."""

    #: Raw values the driver supplies; a skill that needs another is refused.
    supplies: frozenset[str]
    #: Controls the driver can carry out; it refuses others.
    controls: Control = ALL_CONTROLS
    can_pause: bool = False
    can_seed: bool = False
    can_set_speed: bool = False
    #: It is a `RenderableGame`.
    can_render: bool = False


@runtime_checkable
class Game(Protocol):
    """Drive `lanes` fights at a fixed control tick.

    `raw` is the driver's own array, overwritten by `reset` and `step`: copy what must last.
    """

    lanes: int
    tick_s: float
    capabilities: Capabilities

    def reset(self, lanes: LaneIndices, scenario: Scenario, seeds: Seeds) -> RawValues:
        """Begin a new episode in `lanes` (n,), each from its own seed (n,); return raw (all lanes, 25)."""

    def step(self, controls: Controls, active: ActiveLanes | None = None) -> RawValues:
        """Apply one tick's controls (lanes,) and return the raw values (lanes, 25) at its end.

        Lanes that are not `active` (lanes,) stand still for this tick, which is only requested of
        games that can pause; None means every lane.
        """

    def close(self) -> None:
        """Release every key and resource; a second call does nothing."""


@runtime_checkable
class RenderableGame(Game, Protocol):
    """A game that can be seen."""

    def render(self, lane: int = 0, size: tuple[int, int] = ...) -> Picture:
        """Draw a lane's present state as a picture of `size` (height, width)."""


@runtime_checkable
class SavableGame(Game, Protocol):
    """A game whose state can be saved and restored exactly: the simulator, never a real one."""

    def get_state(self) -> dict[str, Any]:
        """Return everything the next tick depends on, as arrays and plain values."""

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state` of a game with as many lanes."""
