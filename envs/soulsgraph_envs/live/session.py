"""A session with a game, and the speed of its clock: set where that is possible, measured against this machine's."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from soulsgraph_envs.errors import GameError
from soulsgraph_envs.live.cycle_timer import Clock
from soulsgraph_envs.live.fields import Reading
from soulsgraph_envs.live.key_effects import Pad
from soulsgraph_envs.live.link import Link, LinkError
from soulsgraph_envs.live.operations import Operations
from soulsgraph_envs.live.plausibility import same_moment
from soulsgraph_envs.live.settings import GameSettings

#: The pipe of SoulsGym's speed library, which must be in the game already: one little-endian float a message.
#: Not verified in a running game.
_PIPE = r"\\.\pipe\SoulsGymSpeedHackPipe"
#: A shorter measurement is worth nothing; a rate further off is another speed.
_SHORTEST_S, _TOLERANCE = 0.4, 0.3
_POLL_S = 0.02
#: A game whose values are unchanged for this long, in the machine's time, hangs.
_HANGING_S = 2.0


class Moment(NamedTuple):
    """The time of a reading by this machine's clock and by the game's (NaN if it cannot be read)."""

    here_s: float
    game_s: float


def moment(session: Session, reading: Reading) -> Moment:
    """Return the time of a reading just made."""
    return Moment(session.clock.now(), float(reading.get("play_time_s", float("nan"))))


def set_speed(session: Session, speed: float) -> None:
    """Set the speed of the game's clock, 0 to stop it: by memory, else through SoulsGym's pipe if there is one."""
    if "game_speed" in session.link.writes:
        session.operations.run("set_speed", game_speed=speed, game_speed_on=1.0)
    elif sys.platform == "win32" and not session.operations.dry_run:
        try:
            with open(_PIPE, "wb", buffering=0) as pipe:
                pipe.write(struct.pack("<f", speed))
        except OSError:
            # No library, no pipe: `check_speed` sees what the clock really does.
            return


def check_speed(session: Session, before: Moment, after: Moment) -> None:
    """Refuse a game whose clock runs at another speed than in the settings, if it can be measured.

    Raises:
        GameError: with the speed found.
        NotReachedError: if the speed differed only for a moment, as on a busy machine.
    """
    if not _is_another(session, before, after):
        return
    session.clock.sleep(_SHORTEST_S)
    again, speed = moment(session, session.link.read()), session.settings.speed
    if not _is_another(session, after, again):
        raise NotReachedError(f"expected the game's clock at {speed:g} times this machine's, found it faltering.")
    found = (again.game_s - after.game_s) / (again.here_s - after.here_s)
    raise GameError(
        f"speed: expected the game's clock at {speed:g} times this machine's, found {found:.2f} times; correct "
        "speed in the settings, or the game's."
    )


def _is_another(session: Session, before: Moment, after: Moment) -> bool:
    """Return whether the game's clock ran at another speed between two moments; never for too short a time."""
    here_s, speed = after.here_s - before.here_s, session.settings.speed
    return here_s >= _SHORTEST_S / speed and abs((after.game_s - before.game_s) / here_s / speed - 1.0) > _TOLERANCE


class NotReachedError(GameError):
    """The game did not reach an expected state in time."""


class UnansweredError(NotReachedError):
    """The game did not answer to a key."""


@dataclass(frozen=True)
class Session:
    """The state that the parts of a driver share. Timeouts count game time: at speed 3 they elapse 3 times faster."""

    link: Link
    settings: GameSettings
    clock: Clock
    operations: Operations
    pad: Pad

    def wait(self, game_s: float) -> None:
        """Wait for this much game time."""
        self.clock.sleep(game_s / self.settings.speed)

    def until(
        self,
        what: str,
        met: Callable[[Reading], bool],
        limit_s: float,
        act: Callable[[Reading], None] = lambda _: None,
    ) -> Reading:
        """Return the first reading that meets a condition; call `act` on each one that does not.

        Raises:
            NotReachedError: after `limit_s`, or earlier for a game that hangs, naming the expected state.
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
        """Wait as `until` does, but tolerate a game that cannot be reached or stands still, as at a loading screen."""
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
