"""A driver's dealings with one running game: its link, keys, clock and writes, and waiting for it, bounded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from soulsgraph_envs.errors import GameError
from soulsgraph_envs.live.clock import Clock
from soulsgraph_envs.live.fields import Reading
from soulsgraph_envs.live.link import Link, LinkError
from soulsgraph_envs.live.operations import Operations
from soulsgraph_envs.live.pad import Pad
from soulsgraph_envs.live.settings import GameSettings

_POLL_S = 0.02


class NotReachedError(GameError):
    """The game did not come into the state waited for, in the time allowed."""


class UnansweredError(NotReachedError):
    """The game did not answer to a key."""


@dataclass(frozen=True)
class Session:
    """What the parts of a driver share. Time limits are of game time: a faster game has less."""

    link: Link
    settings: GameSettings
    clock: Clock
    operations: Operations
    pad: Pad

    def wait(self, game_s: float) -> None:
        """Let so much game time pass."""
        self.clock.sleep(game_s / self.settings.speed)

    def until(
        self,
        what: str,
        met: Callable[[Reading], bool],
        limit_s: float,
        act: Callable[[Reading], None] = lambda _: None,
    ) -> Reading:
        """Give the first reading that meets a condition; after each that does not, `act` on it.

        Raises:
            NotReachedError: after `limit_s`, with what was waited for.
            LinkError: if the game cannot be reached.
        """
        end_s = self.clock.now() + limit_s / self.settings.speed
        while True:
            reading = self.link.read()
            if met(reading):
                return reading
            if self.clock.now() > end_s:
                raise NotReachedError(f"expected {what} within {limit_s:g} s, and it did not come; look at the game.")
            act(reading)
            self.wait(_POLL_S)

    def until_reachable(self, what: str, met: Callable[[Reading], bool], limit_s: float) -> Reading:
        """Wait as `until` does, through times in which the game cannot be reached: a loading screen."""
        end_s = self.clock.now() + limit_s / self.settings.speed
        while True:
            left_s = (end_s - self.clock.now()) * self.settings.speed
            try:
                return self.until(what, met, max(left_s, 0.0))
            except LinkError as error:
                if left_s <= 0.0:
                    raise NotReachedError(f"expected {what} within {limit_s:g} s, found: {error}") from error
                self.wait(_POLL_S)
