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
from soulsgraph_envs.live.plausibility import same_moment
from soulsgraph_envs.live.settings import GameSettings

_POLL_S = 0.02
#: A game whose values stand still for so long, in the machine's time, hangs.
_HANGING_S = 2.0


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
        """Return the first reading that meets a condition; after each that does not, `act` on it.

        Raises:
            NotReachedError: after `limit_s`, or earlier for a game that hangs, with what was waited for.
            LinkError: if the game cannot be reached.
        """
        changed_s = self.clock.now()
        end_s, last = changed_s + limit_s / self.settings.speed, self.link.read()
        reading = last
        while not met(reading):
            now_s = self.clock.now()
            if not same_moment(reading, last):
                last, changed_s = reading, now_s
            if now_s > end_s or now_s - changed_s > _HANGING_S:
                raise NotReachedError(f"expected {what} within {limit_s:g} s, and it did not come; look at the game.")
            act(reading)
            self.wait(_POLL_S)
            reading = self.link.read()
        return reading

    def until_reachable(self, what: str, met: Callable[[Reading], bool], limit_s: float) -> Reading:
        """Wait as `until` does, through times in which the game cannot be reached or stands still: a loading screen."""
        end_s = self.clock.now() + limit_s / self.settings.speed
        while True:
            trouble = "it did not come"
            try:
                reading = self.link.read()
                if met(reading):
                    return reading
            except LinkError as error:
                trouble = str(error)
            if self.clock.now() > end_s:
                raise NotReachedError(f"expected {what} within {limit_s:g} s, found: {trouble}")
            self.wait(_POLL_S)
