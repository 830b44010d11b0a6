"""Play a running game: its keys, and the only place that writes to it; waiting for it, and recovering it."""

from __future__ import annotations

import logging
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path
from typing import NamedTuple, Protocol

from soulsgraph_envs.core.config import Where, read_file, read_value
from soulsgraph_envs.core.controls import Control
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.drivers.keyboard.device import Bindings, KeyDevice, load_bindings
from soulsgraph_envs.drivers.keyboard.guarded_device import HeldKeys
from soulsgraph_envs.drivers.realtime.cycle_timer import Clock
from soulsgraph_envs.drivers.realtime.link import GameSettings, Link, LinkError, Reading, RefusedError
from soulsgraph_envs.drivers.realtime.readings import same_moment

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Operation:
    """An operation: its purpose, the fields it writes, and whether a map that cannot write them may omit it."""

    purpose: str
    fields: tuple[str, ...]
    optional: bool = False


class Writable(Protocol):
    """A game whose fields are written by name, such as a `Link`."""

    writes: frozenset[str]

    def write(self, values: Mapping[str, float]) -> None:
        """Write fields of `writes`."""


_FILE = Where(Path(__file__).parents[2] / "data" / "operations.toml")
_ALL: dict[str, dict[str, Operation]] = read_value(dict[str, dict[str, Operation]], read_file(_FILE), _FILE)
#: Every write of the drivers, and every one of EldenGym's environments into Elden Ring.
OPERATIONS, ELDENGYM_OPERATIONS = _ALL["drivers"], _ALL["eldengym"]


class Operations:
    """Carry out operations on a link, or with `dry_run` only log what they would write."""

    def __init__(self, link: Writable, dry_run: bool = False, operations: Mapping[str, Operation] = OPERATIONS) -> None:
        self._link, self.dry_run, self._operations = link, dry_run, operations

    def missing(self) -> dict[str, tuple[str, ...]]:
        """Return the fields that the map cannot write, by operation."""
        writes, operations = self._link.writes, self._operations
        found = {name: tuple(field for field in op.fields if field not in writes) for name, op in operations.items()}
        return {name: fields for name, fields in found.items() if fields}

    def check(self) -> None:
        """Refuse a map that cannot write a required field; log the missing optional ones.

        Raises:
            GameError: naming what must be written and cannot.
        """
        missing = self.missing()
        lacking = {field for name, fields in missing.items() if not self._operations[name].optional for field in fields}
        if lacking:
            raise GameError(
                f"expected a map that writes {', '.join(sorted(lacking))}, found one that does not: episodes cannot be "
                "begun with it; take another map."
            )
        for name, fields in missing.items():
            _LOG.info("operation %s does without %s", name, ", ".join(fields))

    def can(self, name: str) -> bool:
        """Return whether the map can write all fields of an operation."""
        return name not in self.missing()

    def run(self, name: str, **values: float) -> None:
        """Carry out one operation; an optional one leaves out the fields that the map lacks.

        Raises:
            GameError: for a field that is not the operation's, or a value that is no number.
            LinkError: if the game cannot be reached.
        """
        operation = self._operations[name]
        if stray := sorted(set(values) - set(operation.fields)):
            raise GameError(f"operation {name}: expected fields of {', '.join(operation.fields)}; found {stray}.")
        writes = {field: value for field, value in values.items() if field in self._link.writes}
        if not all(map(isfinite, writes.values())):
            raise GameError(f"operation {name}: expected numbers, found {writes}.")
        if self.dry_run:
            _LOG.warning("dry run: %s (%s) would write %s", name, operation.purpose, writes)
        elif writes:
            self._link.write(writes)


class Pad:
    """Hold and tap controls on a key device by its bindings; taps last equally long in game time at any speed."""

    def __init__(self, bindings: Bindings, device: KeyDevice, clock: Clock, speed: float) -> None:
        self.bindings = bindings
        self._keys = HeldKeys(device, clock.sleep)
        self._tap_s = bindings.tap_s / speed

    def check(self) -> None:
        """Raise `GameError` if the device lacks a key of the bindings."""
        for key in self.bindings.keys:
            self._keys.device.check(key)

    def play(self, controls: Control) -> None:
        """Hold what a tick holds, then tap what it taps; what is held stays down."""
        keys = self.bindings.keys_for(controls)
        self._keys.hold(keys.held)
        self._keys.tap(keys.tapped, self._tap_s)

    def loosen(self) -> None:
        """Press and release every key that is held: the game may have missed it coming up, and hold it still."""
        for keys in self.bindings.hold.values():
            self._keys.tap(keys, 0.0)

    def release(self) -> None:
        """Release every key."""
        self._keys.release_all()


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


class NotReachedError(GameError):
    """The game did not reach an expected state in time."""


class UnansweredError(NotReachedError):
    """The game did not answer to a key."""


class Session:
    """The state that the parts of a driver share. Timeouts count game time: at speed 3 they elapse 3 times faster."""

    def __init__(self, link: Link, settings: GameSettings, clock: Clock) -> None:
        self.link, self.settings, self.clock = link, settings, clock
        self.operations = Operations(link, settings.dry_run)
        self.pad = Pad(load_bindings(link.bindings), link.keys, clock, settings.speed)

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

    def until_reachable(self, what: str, met: Callable[[Reading], bool], limit_s: float) -> None:
        """Wait as `until` does, but tolerate a game that cannot be reached or stands still, as at a loading screen."""
        end_s = self.clock.now() + limit_s / self.settings.speed
        while True:
            trouble = "it did not come"
            try:
                if met(self.link.read()):
                    return
            except LinkError as error:
                trouble = str(error)
            if self.clock.now() > end_s:
                raise NotReachedError(f"expected {what} within {limit_s:g} s, found: {trouble}")
            self.wait(_POLL_S)

    def set_speed(self, speed: float) -> None:
        """Set the speed of the game's clock, 0 to stop it: by memory, else through SoulsGym's pipe if there is one."""
        if "game_speed" in self.link.writes:
            self.operations.run("set_speed", game_speed=speed, game_speed_on=1.0)
        elif sys.platform == "win32" and not self.operations.dry_run:
            try:
                with open(_PIPE, "wb", buffering=0) as pipe:
                    pipe.write(struct.pack("<f", speed))
            except OSError:
                # No library, no pipe: `check_speed` sees what the clock really does.
                return

    def moment(self, reading: Reading) -> Moment:
        """Return the time of a reading just made."""
        return Moment(self.clock.now(), float(reading.get("play_time_s", nan)))

    def check_speed(self, before: Moment, after: Moment) -> None:
        """Refuse a game whose clock runs at another speed than in the settings, if it can be measured.

        Raises:
            GameError: with the speed found.
            NotReachedError: if the speed differed only for a moment, as on a busy machine.
        """
        speed = self.settings.speed
        if not _is_another(speed, before, after):
            return
        self.clock.sleep(_SHORTEST_S)
        again = self.moment(self.link.read())
        if not _is_another(speed, after, again):
            raise NotReachedError(f"expected the game's clock at {speed:g} times this machine's, found it faltering.")
        found = (again.game_s - after.game_s) / (again.here_s - after.here_s)
        raise GameError(
            f"speed: expected the game's clock at {speed:g} times this machine's, found {found:.2f} times; correct "
            "speed in the settings, or the game's."
        )


def _is_another(speed: float, before: Moment, after: Moment) -> bool:
    """Return whether the game's clock ran at another speed between two moments; never for too short a time."""
    here_s = after.here_s - before.here_s
    return here_s >= _SHORTEST_S / speed and abs((after.game_s - before.game_s) / here_s / speed - 1.0) > _TOLERANCE


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
        link = self._session.link
        if not self._readable():
            self._attach_anew()
        self._wait(self._readable, _LOADING_S, "the game's world loaded")
        if link.read().get("online", 0) == 1:
            raise GameError("expected the game in offline mode, found it online; switch over, then try again.")
        # Before the game is judged by its clock, which may have been stopped on purpose.
        self._session.set_speed(self._session.settings.speed)
        if not self._moves(_STOPPED_S):
            self._attach_anew()
            if not self._moves(_STILL_HANGING_S):
                self._restart()
        if not link.focused():
            link.focus()
            self._wait(link.focused, _FOCUSING_S, "the game's window in front")
        return link.read()

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
        self._attach_launched(self._process)
        self._wait(self._readable, _LAUNCHING_S, "the world of the game just launched")

    def _attach_launched(self, process: subprocess.Popen[bytes]) -> None:
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
