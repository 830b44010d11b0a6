"""The link contract: how a running game is found, read, written and played, through memory or Siphon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from soulsgraph_envs.errors import GameError
from soulsgraph_envs.keys.device import KeyDevice
from soulsgraph_envs.live.fields import Reading
from soulsgraph_envs.pictures import Picture


class LinkError(GameError):
    """The game cannot be reached now: not running, loading, its process gone, its server away."""


class RefusedError(LinkError):
    """The game runs but cannot be played like this: starting it again would not help."""


@runtime_checkable
class Link(Protocol):
    """Reach one running game.

    `supplies` names the fields that `read` returns, `writes` those that `write` takes; both are known
    before `attach`, and so is `bindings`, the name or path of the key bindings: those of the settings, else
    of the map. Every method but `close` raises `LinkError` when the game cannot be reached, at
    once and never after more than a second; only `attach` waits, up to its timeout.
    """

    supplies: frozenset[str]
    writes: frozenset[str]
    bindings: str

    @property
    def keys(self) -> KeyDevice:
        """The device that presses the game's keys."""
        ...

    def attach(self, timeout_s: float, process_id: int = 0) -> None:
        """Find the game and resolve its addresses; a second call searches again.

        `process_id` is that of a game just launched, which replaces the settings' own; 0 for none.
        """
        ...

    def read(self) -> Reading:
        """Return every field of `supplies`, read in one go."""
        ...

    def write(self, values: Mapping[str, float]) -> None:
        """Write fields of `writes`; adjacent ones in one piece."""
        ...

    def focus(self) -> None:
        """Bring the game's window to the front, so that keys reach it; nothing if it is there already."""
        ...

    def focused(self) -> bool:
        """Return whether keys reach the game's window."""
        ...

    def close(self) -> None:
        """Release every key and disconnect from the game; a second call does nothing."""
        ...


@runtime_checkable
class PicturedLink(Link, Protocol):
    """A link that can capture the game's window too."""

    def capture(self) -> Picture:
        """Photograph the inside of the game's window, (height, width, 3), as the game last drew it."""
        ...
