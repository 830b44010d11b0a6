"""The link contract: the fields of a running game, its settings file, and how it is found, read, written and played.

What plays over a link is here too: the keys, the only place that writes to a game, and the waiting for it.
"""

from __future__ import annotations

import logging
import os
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Protocol, TypeVar, get_args, runtime_checkable

from soulsgraph_envs.core.config import (
    Between,
    NonEmpty,
    Where,
    find,
    load,
    read_file,
    require,
    to_json,
    to_table,
    validate,
)
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.files import write_text
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.core.state import Control
from soulsgraph_envs.games.cycle_timer import Clock, PhaseClock
from soulsgraph_envs.games.guarded_device import HeldKeys
from soulsgraph_envs.games.keys import Bindings, KeyDevice, load_bindings

_T = TypeVar("_T")
#: One look at the game: a number, or a text for the fields of kind "text".
Reading = Mapping[str, float | str]
#: Fields that run on whether or not the fight does.
_OUTSIDE_THE_FIGHT = {"play_time_s", "game_speed"}


@dataclass(frozen=True)
class Field:
    """One value: its unit, and whether an operation may write it."""

    unit: str
    writable: bool = False
    kind: Literal["number", "text"] = "number"


_FIELDS_FILE = Where(Path(__file__).parents[1] / "data" / "fields.toml")
FIELDS: Mapping[str, Field] = validate(dict[str, Field], read_file(_FIELDS_FILE), _FIELDS_FILE)


#: The fastest that a running game is played.
_MOST_SPEED = 3.0


#: How a real-time driver reaches its game: module and class of its link.
LINKS = {
    "memory": ("soulsgraph_envs.games.memory_link", "MemoryLink"),
    "siphon": ("soulsgraph_envs.games.siphon_link", "SiphonLink"),
}
SIMULATOR: Literal["simulator"] = "simulator"
Driver = Literal["simulator", "memory", "siphon"]
DRIVERS: tuple[Driver, ...] = get_args(Driver)


@dataclass(frozen=True)
class GameSettings:
    """One game: its address map, process, window and bindings.

    An empty text means the default: `process` and `window` are the address map's, `bindings` too;
    `display` is the environment's. `launch` starts the game again when it is gone.
    """

    driver: Driver = "memory"
    #: Name or path of an address map; with Siphon of an attribute file, which has no default.
    map: str = "dark-souls-3-1.15.2"
    process: str = ""
    #: Process id; 0 finds the process by its name.
    pid: Annotated[int, Between(0, 2**31)] = 0
    window: str = ""
    #: X display, such as ":99"; Linux only.
    display: str = ""
    bindings: str = ""
    #: Of a running game at most 3.
    speed: Annotated[float, Between(0.1, 100.0)] = 1.0
    #: Fights beside each other; of a running game one.
    lanes: Annotated[int, Between(1, 256)] = 1
    launch: tuple[str, ...] = ()
    #: Reload the game's world after this many seconds, as SoulsGym does: input lag grows over hours; 0: never.
    reload_after_s: Annotated[float, Between(0.0, 1e6)] = 900.0
    #: Show what would be written to the game instead of writing it.
    dry_run: bool = False
    #: Siphon server, as HOST:PORT.
    host: str = "localhost:50051"

    def __post_init__(self) -> None:
        if self.driver == SIMULATOR:
            return
        for name, most in (("speed", _MOST_SPEED), ("lanes", 1)):
            require(getattr(self, name) <= most, name, f"be at most {most:g} for a running game")


@dataclass(frozen=True)
class _Games:
    games: NonEmpty[GameSettings]


def load_games(path: Path) -> tuple[GameSettings, ...]:
    """Load the tables `[[games]]` of a file, a game each.

    Raises:
        DataError: for a missing, misspelt or mistyped value, or a driver that is none.
    """
    where, games = Where(path), load(_Games, Where(path)).games
    for place, game in enumerate(games):
        for field, kind in (("map", "attribute file" if game.driver == "siphon" else "address map"), ("bindings",) * 2):
            if name := getattr(game, field):
                with where.at("games", place, field).referring():
                    find(kind, name)
    return games


def check_side_by_side(games: Sequence[GameSettings]) -> None:
    """Refuse games that cannot be played from one machine at once.

    Raises:
        GameError: if two share a display or a server, where keys reach the window in front alone.
    """
    screen = os.environ.get("DISPLAY", "")
    places = [one.host if one.driver == "siphon" else f"display {one.display or screen}".strip() for one in games]
    for place in places:
        if (count := places.count(place)) > 1:
            raise GameError(
                f"games: expected a display or a server for each, as only the window in front gets keys; found {count} "
                f"at {place}; give each a display of its own, such as Xvfb's."
            )


def save_game(path: Path, settings: GameSettings) -> None:
    """Write a file of one game for `load_games`, whole or not at all: driver, map, and what is not the default.

    Raises:
        WriteError: if it cannot be written.
    """
    default = to_table(GameSettings())
    lines = [
        f"{name} = {to_json(value, ensure_ascii=False)}\n"
        for name, value in to_table(settings).items()
        if name in ("driver", "map") or value != default[name]
    ]
    write_text(path, "[[games]]\n" + "".join(lines))


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

    @property
    def version(self) -> str:
        """Version of the game that is attached, such as "1.15.2.0"; empty for none, or where it cannot be read."""

    def attach(self, timeout_s: float, process_id: int = 0) -> None:
        """Find the game and resolve its addresses; a second call searches again.

        `process_id` is that of a game just launched, which replaces the settings' own; 0 for none.
        """

    def read(self) -> Reading:
        """Return every field of `supplies`, read in one go."""

    def write(self, values: Mapping[str, float]) -> None:
        """Write fields of `writes`; adjacent ones in one piece."""

    def focus(self) -> None:
        """Bring the game's window to the front, so that keys reach it; nothing if it is there already."""

    def focused(self) -> bool:
        """Return whether keys reach the game's window."""

    def capture(self) -> Picture:
        """Photograph the inside of the game's window, (height, width, 3), as the game last drew it."""

    def close(self) -> None:
        """Release every key and disconnect from the game; a second call does nothing."""


#: The pause after the first try to attach, how much longer each is than the one before, and the longest.
_FIRST_PAUSE_S, _PAUSE_GROWTH, _LONGEST_PAUSE_S = 0.1, 1.6, 2.0


def attach_within(
    timeout_s: float,
    attach: Callable[[], _T],
    hopeless: type[LinkError] = RefusedError,
    sleep: Callable[[float], None] = time.sleep,
) -> _T:
    """Return what `attach` returns; while it raises `LinkError`, retry with exponential back-off.

    Raises:
        LinkError: the last one, if the time is over; a `hopeless` one at once.
    """
    give_up_s, pause_s = time.monotonic() + timeout_s, _FIRST_PAUSE_S
    while True:
        try:
            return attach()
        except LinkError as error:
            if isinstance(error, hopeless) or time.monotonic() + pause_s > give_up_s:
                raise
        sleep(pause_s)
        pause_s = min(pause_s * _PAUSE_GROWTH, _LONGEST_PAUSE_S)


def same_moment(one: Reading, other: Reading) -> bool:
    """Return whether two readings show the same moment: even a fighter at rest is animated."""
    pairs = ((value, other[name]) for name, value in one.items() if name not in _OUTSIDE_THE_FIGHT)
    # A field that cannot be read is NaN in both.
    return all(a == b or (a != a and b != b) for a, b in pairs)


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


_FILE = Where(Path(__file__).parents[1] / "data" / "operations.toml")
_ALL: dict[str, dict[str, Operation]] = validate(dict[str, dict[str, Operation]], read_file(_FILE), _FILE)
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
        #: That of the game's clock.
        self.speed = speed
        self._keys = HeldKeys(device, clock.sleep)

    def check(self) -> None:
        """Raise `GameError` if the device lacks a key of the bindings."""
        for key in self.bindings.keys:
            self._keys.device.check(key)

    def play(self, controls: Control) -> None:
        """Hold what a tick holds, then tap what it taps; what is held stays down."""
        keys = self.bindings.keys_for(controls)
        self._keys.hold(keys.held)
        self._keys.tap(keys.tapped, self.bindings.tap_s / self.speed)

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
#: Waited beyond it, so that what is measured is long enough whatever is rounded.
_HAIR_S = 0.001
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


class DriverState:
    """The state that the parts of a driver share. Timeouts count game time: at speed 3 they elapse 3 times faster."""

    def __init__(self, link: Link, settings: GameSettings, clock: Clock) -> None:
        self.link, self.settings, self.clock = link, settings, clock
        self.reset_clock = PhaseClock(clock.now)
        self.operations = Operations(link, settings.dry_run)
        self.speed = settings.speed
        self.pad = Pad(load_bindings(link.bindings), link.keys, clock, settings.speed)

    def wait(self, game_s: float) -> None:
        """Wait for this much game time."""
        self.clock.sleep(game_s / self.speed)

    def until(
        self,
        what: str,
        met: Callable[[Reading], bool],
        limit_s: float,
        act: Callable[[Reading], None] = lambda _: None,
        *,
        loading: bool = False,
    ) -> Reading:
        """Return the first reading that meets a condition; call `act` on each one that does not.

        A game that is `loading` may stand still or be out of reach meanwhile.

        Raises:
            NotReachedError: after `limit_s`, or earlier for a game that hangs, naming the expected state and what the
            game was like at last.
            LinkError: if the game cannot be reached.
        """
        last, changed_s = None, self.clock.now()
        end_s = changed_s + limit_s / self.speed
        while True:
            hangs, trouble = False, "it did not come"
            try:
                reading = self.link.read()
                if met(reading):
                    return reading
                if loading or last is None or not same_moment(reading, last):
                    last, changed_s = reading, self.clock.now()
                hangs = self.clock.now() - changed_s > _HANGING_S
                if hangs:
                    trouble = f"a game that stood still for {_HANGING_S:g} s, as while it loads"
                else:
                    act(reading)
            except LinkError as error:
                if not loading:
                    raise
                trouble = str(error)
            if hangs or self.clock.now() > end_s:
                raise NotReachedError(f"expected {what} within {limit_s:g} s, found: {trouble}; look at the game.")
            self.wait(_POLL_S)

    def set_speed(self, speed: float) -> bool:
        """Set the speed of the game's clock, 0 to stop it, by memory or SoulsGym's pipe; return whether it was."""
        if "game_speed" in self.link.writes:
            self.operations.run("set_speed", game_speed=speed, game_speed_on=1.0)
            return not self.operations.dry_run
        if sys.platform == "win32" and not self.operations.dry_run:
            try:
                with open(_PIPE, "wb", buffering=0) as pipe:
                    pipe.write(struct.pack("<f", speed))
                return True
            except OSError:
                # No library, no pipe: `check_speed` sees what the clock really does.
                return False
        return False

    def moment(self, reading: Reading) -> Moment:
        """Return the time of a reading just made."""
        return Moment(self.clock.now(), float(reading.get("play_time_s", nan)))

    def runs_at_speed(self, before: Moment, after: Moment) -> bool:
        """Return whether the game's clock ran at `speed` between two moments, as far as it can be measured."""
        here_s = after.here_s - before.here_s
        too_short = here_s < _SHORTEST_S / self.speed
        # A clock that cannot be read, which is NaN, counts as running at it.
        return too_short or not abs((after.game_s - before.game_s) / here_s / self.speed - 1.0) > _TOLERANCE

    def check_speed(self, before: Moment) -> None:
        """Refuse a game whose clock runs at another speed than it should since a moment, if it can be measured.

        Raises:
            GameError: with the speed found.
            NotReachedError: if the speed differed only for a moment, as on a busy machine.
        """
        speed = self.speed
        lacking_s = _SHORTEST_S / speed - (self.clock.now() - before.here_s)
        if lacking_s > 0.0 and isfinite(before.game_s):
            self.clock.sleep(lacking_s + _HAIR_S)
        after = self.moment(self.link.read())
        if self.runs_at_speed(before, after):
            return
        self.clock.sleep(_SHORTEST_S + _HAIR_S)
        again = self.moment(self.link.read())
        if self.runs_at_speed(after, again):
            raise NotReachedError(f"expected the game's clock at {speed:g} times this machine's, found it faltering.")
        found = (again.game_s - after.game_s) / (again.here_s - after.here_s)
        raise GameError(
            f"speed: expected the game's clock at {speed:g} times this machine's, found {found:.2f} times; correct "
            "speed in the settings, or the game's."
        )
