"""A session with a game: its clock and speed; brought up, recovered from a crash or a loading screen."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.drivers.realtime.cycle_timer import Clock
from soulsgraph_envs.drivers.realtime.link import GameSettings, Link, LinkError, Reading, RefusedError
from soulsgraph_envs.drivers.realtime.operations import Operations, Pad
from soulsgraph_envs.drivers.realtime.plausibility import same_moment

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


_ATTACHING_S, _LAUNCHING_S, _LOADING_S, _FOCUSING_S = 3.0, 180.0, 60.0, 3.0
#: Values that stand still for the first time are a hang; the second is for a look at them from anew.
_STOPPED_S, _STILL_HANGING_S = 3.0, 1.0
_LOOK_S = 0.05


class Recovery:
    """Reach a game again after any failure; with a launch command, start it when it is gone or hangs.

    `interruptions` counts how often it was out of reach: its world may have been reloaded. Time limits
    are in the machine's time.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._process: subprocess.Popen[bytes] | None = None
        self.interruptions = 0

    def reach(self) -> Reading:
        """Return a reading of a game that can be played.

        Raises:
            GameError: with the reason, if it cannot be fixed from here.
        """
        self._attach()
        self._wait(self._readable, _LOADING_S, "the game's world loaded")
        if self._session.link.read().get("online", 0) == 1:
            raise GameError("expected the game in offline mode, found it online; switch over, then try again.")
        # Before the game is judged by its clock, which may have been stopped on purpose.
        set_speed(self._session, self._session.settings.speed)
        if not self._moves(_STOPPED_S):
            self._attach_anew()
            if not self._moves(_STILL_HANGING_S):
                self._restart()
        self._focus()
        return self._session.link.read()

    def _attach(self) -> None:
        if not self._readable():
            self._attach_anew()

    def _attach_anew(self) -> None:
        session = self._session
        try:
            session.link.attach(_ATTACHING_S)
        except RefusedError as error:
            raise GameError(str(error)) from error
        except LinkError as error:
            if not session.settings.launch:
                raise GameError(f"{error} A launch command in the settings would start it again.") from error
            self._launch()
        self.interruptions += 1
        session.pad.check()

    def _launch(self) -> None:
        """Start the game and wait until its world is there."""
        session = self._session
        command = session.settings.launch
        try:
            self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        except OSError as error:
            raise GameError(f"launch: expected a command that runs, found {command[0]}: {error}.") from error
        # A launcher may end long before its game, which outlives this program: somebody has to notice.
        threading.Thread(target=self._process.wait, name="launched game", daemon=True).start()
        self._find_launched(self._process)
        self._wait(self._readable, _LAUNCHING_S, "the world of the game just launched")

    def _find_launched(self, process: subprocess.Popen[bytes]) -> None:
        """Attach to the game of a launched process, or to one that it starts before it ends."""
        session = self._session
        # Only a game that was named by its process is looked for by its process.
        process_id = process.pid if session.settings.pid else 0
        end_s = session.clock.now() + _LAUNCHING_S
        while True:
            try:
                session.link.attach(_ATTACHING_S, process_id)
                return
            except LinkError as error:
                if code := process.poll():
                    command = " ".join(session.settings.launch)
                    raise GameError(
                        f"launch: expected a game, found that its command ended with {code}; run it by hand: {command}"
                    ) from error
                if session.clock.now() > end_s:
                    raise GameError(str(error)) from error
                session.clock.sleep(_LOOK_S)

    def _restart(self) -> None:
        """End a game that hangs, and launch it again."""
        settings = self._session.settings
        if not settings.launch or not settings.pid:
            raise GameError(
                f"expected a running game, found one whose values have not changed for {_STOPPED_S:g} s; end it and "
                "start it again, or name launch and pid in the settings so that it can be done from here."
            )
        with suppress(ProcessLookupError):
            os.kill(self._process.pid if self._process else settings.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        if self._process:
            self._process.wait()
        self._launch()

    def _moves(self, limit_s: float) -> bool:
        """Return whether the values change within a time."""
        first = self._session.link.read()
        return self._soon(lambda: not same_moment(first, self._session.link.read()), limit_s)

    def _focus(self) -> None:
        link = self._session.link
        if not link.focused():
            link.focus()
            self._wait(link.focused, _FOCUSING_S, "the game's window in front")

    def _readable(self) -> bool:
        try:
            self._session.link.read()
        except LinkError:
            return False
        return True

    def _wait(self, met: Callable[[], bool], limit_s: float, what: str) -> None:
        if not self._soon(met, limit_s):
            raise GameError(f"expected {what} within {limit_s:g} s, and it did not come; look at the game.")

    def _soon(self, met: Callable[[], bool], limit_s: float) -> bool:
        clock = self._session.clock
        end_s = clock.now() + limit_s
        while not met():
            if clock.now() > end_s:
                return False
            clock.sleep(_LOOK_S)
        return True
