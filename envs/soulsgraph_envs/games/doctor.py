"""What this machine and a game can do, checked one by one: what a check reports, and its remedy.

A topic is a list of steps. Each is one check, and is skipped where another that it needs has failed.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any, Literal, NamedTuple

from soulsgraph_envs.core.config import Where, read_file, validate
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError, plain_number, plain_range
from soulsgraph_envs.games.address_map import load_address_map
from soulsgraph_envs.games.cycle_timer import CycleTimer
from soulsgraph_envs.games.guarded_device import HeldKeys, find_window, open_key_device
from soulsgraph_envs.games.keys import KeyDevice, load_bindings
from soulsgraph_envs.games.link import DRIVERS, FIELDS, SIMULATOR, GameSettings, Link, Reading
from soulsgraph_envs.games.memory_link import attach_game
from soulsgraph_envs.games.memory_reader import BadAddressError, Reader, open_process
from soulsgraph_envs.games.opening import make_link
from soulsgraph_envs.games.readings import supplied_raws
from soulsgraph_envs.games.user32 import is_key_down
from soulsgraph_envs.games.x11 import XTestDevice
from soulsgraph_envs.skills import SKILL_NAMES, make_skill

Status = Literal["ok", "warn", "fail", "skip"]


@dataclass(frozen=True)
class Check:
    """What was checked, what was found, and the remedy if there is one."""

    topic: str
    name: str
    status: Status
    found: str
    remedy: str = ""

    @property
    def passed(self) -> bool:
        """Return whether nothing fails."""
        return self.status != "fail"


class Checks:
    """The checks of one topic, in the order they were made."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.made: list[Check] = []

    def ok(self, name: str, found: str) -> None:
        """Record a success."""
        self._note(name, "ok", found, "")

    def warn(self, name: str, found: str, remedy: str) -> None:
        """Record a warning."""
        self._note(name, "warn", found, remedy)

    def fail(self, name: str, found: str, remedy: str) -> None:
        """Record a failure."""
        self._note(name, "fail", found, remedy)

    def skip(self, why: str, *names: str) -> None:
        """Record what was not checked."""
        for name in names:
            self._note(name, "skip", why, "")

    def expect(self, name: str, good: bool, found: str, remedy: str, otherwise: Status = "warn") -> None:
        """Record a success, or something else with its remedy."""
        self._note(name, "ok" if good else otherwise, found, "" if good else remedy)

    @contextmanager
    def failing(self, name: str, remedy: str) -> Iterator[None]:
        """Record an error of the block as the failure of a check; `remedy` is used if the error names none."""
        try:
            yield
        except SoulsGraphError as error:
            found, _, named = str(error).rpartition("; ")
            if not found or named.startswith("found "):
                found, named = str(error), remedy
            self.fail(name, found, named)

    def _note(self, name: str, status: Status, found: str, remedy: str) -> None:
        self.made.append(Check(self.topic, name, status, found, remedy))


class Step(NamedTuple):
    """A check: what it does, by method of `Examination`, the remedy of an error that names none, and what it needs."""

    name: str
    make: Callable[[Any, Checks], None]
    remedy: str = ""
    needs: str = ""


#: p99 lateness that a control loop of 10 Hz may have.
_MOST_LATE_MS = 5.0
_CLOCK_HZ, _CLOCK_S = 60.0, 2.0
#: No game binds it by default, and it types nothing; with its virtual-key code of winuser.h.
HARMLESS, _CODE = "right_shift", 0xA1
_HELD_S = 0.05
_TIMED_READS = 50
#: Share of a control tick of 100 ms that reading may take.
_MOST_READ_MS = 20.0
_ATTACH_S = 3.0
_BUSY = "end programs that keep the game's machine busy"
_OFFLINE = "play offline (System, Network Settings, Launch Setting: Play Offline): online, others would be cheated"
_STANDING = "load a character, stand before the boss and run this again; if it stays, the map is not of this version"
_SCREEN = "start it in the session of the game's window, or name its display in the games file"
_BOUNDS_FILE = Where(Path(__file__).parents[1] / "data" / "plausible.toml")
#: What a plausible number lies in, by unit.
_BOUNDS = validate(dict[str, tuple[float, float]], read_file(_BOUNDS_FILE), _BOUNDS_FILE)
_LEVELS = ("player_hp", "player_stamina", "boss_hp", "frost_resistance")


def implausible(name: str, values: Reading) -> str:
    """Return what is wrong with a field's value, given the others; an empty text if nothing is."""
    value = values[name]
    if isinstance(value, str):
        return "" if value.isprintable() and value else f"expected a name, found {value!r}"
    low, high = _BOUNDS.get(FIELDS[name].unit, (-inf, inf))
    if not isfinite(value) or not low <= value <= high:
        return f"expected {FIELDS[name].unit} from {plain_range(low, high)}, found {plain_number(value)}"
    most = values.get(f"{name}_max", inf)
    if name in _LEVELS and isinstance(most, float) and value > most:
        return f"expected at most {name}_max, {plain_number(most)}, found {plain_number(value)}"
    return ""


def _shown(name: str, value: float | str) -> str:
    if isinstance(value, str):
        return repr(value)
    unit, number = FIELDS[name].unit, f"{value:.{0 if value == int(value) else 3}f}"
    return f"{number} ({unit})" if " " in unit else f"{number} {unit}"


class Examination:
    """The checks of one game. What one opens stays open for those that need it, until all are made."""

    steps: tuple[Step, ...]
    fields: frozenset[str]
    device: KeyDevice
    bindings = ""

    def __init__(self, settings: GameSettings) -> None:
        self.settings, self.open = settings, ExitStack()
        self.reading: dict[str, float | str] = {}

    def make(self, topic: str) -> list[Check]:
        """Make all checks in order."""
        checks, lost = Checks(topic), set[str]()
        with self.open:
            for name, make, remedy, needs in self.steps:
                if needs in lost:
                    checks.skip(f"needs the {needs}", name)
                else:
                    with checks.failing(name, remedy):
                        make(self, checks)
                lost |= {one.name for one in checks.made[-1:] if one.name == name and one.status in ("fail", "skip")}
        return checks.made

    def check_skills(self, checks: Checks) -> None:
        """Check which skills can play on what the fields supply."""
        supplied = supplied_raws(self.fields)
        missing = {name: sorted({raw.name for raw in make_skill(name).needs} - supplied) for name in SKILL_NAMES}
        told = "; ".join(f"{name} lacks {', '.join(raws).lower()}" for name, raws in missing.items() if raws)
        remedy = "play by SoulsEnv or EldenGymEnv, or use a map that has these fields"
        checks.expect("skills", not told, told or f"all can play: {', '.join(SKILL_NAMES)}", remedy)

    def check_bindings(self, checks: Checks) -> None:
        """Check that the device has every key of the bindings."""
        if not self.bindings:
            checks.skip("needs the address map", "key bindings")
            return
        loaded = load_bindings(self.bindings)
        for key in loaded.keys:
            self.device.check(key)
        checks.ok("key bindings", f"{loaded.name}: {len(loaded.keys)} keys to be set in the game as well")

    def check_online(self, checks: Checks) -> None:
        """Check that the game is offline, or warn if that cannot be read."""
        if "online" not in self.reading:
            checks.warn("offline mode", "cannot be read by this map", _OFFLINE)
        else:
            found = f"the game is {'online' if self.reading['online'] else 'offline'}"
            checks.expect("offline mode", not self.reading["online"], found, _OFFLINE, "fail")

    def check_read_time(self, checks: Checks) -> None:
        """Time whole readings, and warn of slow ones."""
        times_ms = []
        for _ in range(_TIMED_READS):
            began_s = time.perf_counter()
            self.read()
            times_ms.append(1000 * (time.perf_counter() - began_s))
        median_ms = sorted(times_ms)[_TIMED_READS // 2]
        found = f"median {median_ms:.2f}, longest {max(times_ms):.2f} ms"
        checks.expect("time of a reading", median_ms < _MOST_READ_MS, found, _BUSY)

    def read(self) -> Reading:
        """Read the whole game once."""
        raise NotImplementedError


class MemoryExamination(Examination):
    """The checks of a game on this machine: its keys, its window, and every entry of its map."""

    def __init__(self, settings: GameSettings, open_reader: Callable[[str, int], Reader] = open_process) -> None:
        super().__init__(settings)
        self._open_reader = open_reader

    def check_map(self, checks: Checks) -> None:
        """Check the address map."""
        self.map = load_address_map(self.settings.map)
        self.fields, self.bindings = self.map.readable(), self.settings.bindings or self.map.bindings
        unverified = ", ".join(name for name in sorted(self.fields) if not self.map.entry(name).verified)
        found = f"{f'{self.map.game} {self.map.version}'.strip()}: {len(self.fields)} fields"
        checks.ok("address map", f"{found}, unverified: {unverified}" if unverified else found)

    def check_device(self, checks: Checks) -> None:
        """Check that keys can be pressed."""
        self.device = self.open.enter_context(closing(open_key_device(self.settings.display)))
        checks.ok("key device", "presses keys, and a guard lets them up whatever happens")

    def check_round_trip(self, checks: Checks) -> None:
        """Press a key and see it go down and come up."""
        began_s = time.perf_counter()
        with HeldKeys(self.device) as held:
            held.hold((HARMLESS,))
            pressed_ms = 1000 * (time.perf_counter() - began_s)
            time.sleep(_HELD_S)
            arrived = _is_down(self.settings.display)
        came_up = not _is_down(self.settings.display)
        happened = f"went down, in {pressed_ms:.1f} ms, and came up" if came_up else "stayed down"
        found = f"{HARMLESS} {happened if arrived else 'never went down'}"
        remedy = "let no other program hold the keyboard, and run this in the session of the game's window"
        checks.expect("key round trip", arrived and came_up, found, remedy, "fail")

    def check_game(self, checks: Checks) -> None:
        """Check that the game runs, in which version, and that its bases are found."""
        game = self._game = attach_game(self.settings, self.map, self._open_reader)
        self.open.callback(game.reader.close)
        fits = not game.version or self.map.version in ("", game.version)
        checks.expect("version", fits, game.version or "not in the executable", "use a map of this version")
        for note in game.notes():
            checks.warn("base", note, "watch the entries below: they may be off")
        checks.ok("game", f"process {game.reader.pid}, {game.module.name} at {game.module.base:#x}")

    def check_window(self, checks: Checks) -> None:
        """Check the game's window."""
        title = self.settings.window or self.map.window
        with closing(find_window(title, self._game.reader.pid, self.settings.display)) as window:
            place = window.geometry()
            held = "with" if window.focused() else "without"
            checks.ok("window", f"{title!r}, {place.width} x {place.height}, {held} the keyboard")

    def check_entries(self, checks: Checks) -> None:
        """Read every entry by itself, so that a broken one hides no other."""
        broken, places = dict[str, str](), dict[str, int]()
        for name in self.fields:
            try:
                places[name], self.reading[name] = self._game.memory.look_up(name)
            except BadAddressError as error:
                broken[name] = str(error)
        for name in sorted(self.fields):
            entry, problem = self.map.entry(name), broken.get(name) or implausible(name, self.reading)
            found = problem or f"{_shown(name, self.reading[name])} at {places[name]:#x}"
            if entry.verified:
                checks.expect(name, not problem, found, _STANDING, "fail")
            else:
                advice = "nothing to do," if problem else "compare it with the game;"
                checks.warn(name, f"{found}, unverified", f"{advice} in its place: {entry.fallback}")

    def read(self) -> Reading:
        """Read the whole game once."""
        return self._game.memory.read()

    steps = (
        Step("address map", check_map, "choose a shipped map in the games file"),
        Step("skills", Examination.check_skills, needs="address map"),
        Step("key device", check_device, _SCREEN),
        Step("key bindings", Examination.check_bindings, "choose shipped bindings in the games file", "key device"),
        Step("key round trip", check_round_trip, _SCREEN, "key device"),
        Step("game", check_game, "start the game, or name its process or pid in the games file", "address map"),
        Step("window", check_window, "show the game's window, and name its display in the games file", "game"),
        Step("map entries", check_entries, _STANDING, "game"),
        Step("offline mode", Examination.check_online, needs="game"),
        Step("time of a reading", Examination.check_read_time, "see the entries above", "game"),
    )


class SiphonExamination(Examination):
    """The checks of a game behind a Siphon server."""

    link: Link

    def check_client(self, checks: Checks) -> None:
        """Check the settings and the attribute file."""
        self.link = self.open.enter_context(closing(make_link(self.settings)))
        self.fields, self.bindings, self.device = self.link.supplies, self.link.bindings, self.link.keys
        checks.ok("Siphon client", f"{len(self.fields)} fields of {self.settings.map}")

    def check_server(self, checks: Checks) -> None:
        """Check that the server answers and finds the game."""
        self.link.attach(_ATTACH_S)
        checks.ok(
            "Siphon server", f"answers, with the game's window {'' if self.link.focused() else 'not '}at the front"
        )

    def check_round_trip(self, checks: Checks) -> None:
        """Have the server press a key."""
        with HeldKeys(self.device) as held:
            held.hold((HARMLESS,))
        found = f"the server sent {HARMLESS} down and up; it cannot tell whether that arrived"
        checks.ok("key round trip", found)

    def check_picture(self, checks: Checks) -> None:
        """Check the window's picture."""
        height, width, _ = self.link.capture().shape
        checks.ok("picture", f"{width} x {height}")

    def check_fields(self, checks: Checks) -> None:
        """Check every field of a reading."""
        self.reading |= self.link.read()
        for name in sorted(self.reading):
            problem = implausible(name, self.reading)
            checks.expect(name, not problem, problem or _shown(name, self.reading[name]), _STANDING, "fail")

    def read(self) -> Reading:
        """Read the whole game once."""
        return self.link.read()

    steps = (
        Step("Siphon client", check_client, "correct the games file"),
        Step("skills", Examination.check_skills, needs="Siphon client"),
        Step("key bindings", Examination.check_bindings, "choose shipped bindings", "Siphon client"),
        Step("Siphon server", check_server, "start the server and the game on the game PC", "Siphon client"),
        Step("key round trip", check_round_trip, "run the server in the session of the game's window", "Siphon server"),
        Step("picture", check_picture, "show the game's window on the game PC", "Siphon server"),
        Step("fields", check_fields, _STANDING, "Siphon server"),
        Step("offline mode", Examination.check_online, needs="Siphon server"),
        Step("time of a reading", Examination.check_read_time, _BUSY, "Siphon server"),
    )


def _is_down(display: str) -> bool:
    if sys.platform == "win32":
        return is_key_down(_CODE)
    with closing(XTestDevice(display)) as observer:
        return HARMLESS in observer.down()


def _check_machine() -> list[Check]:
    checks, timer, end_s = Checks("This machine"), CycleTimer(1 / _CLOCK_HZ), time.perf_counter() + _CLOCK_S
    checks.ok("Python", f"{platform.python_version()}, {platform.system()} {platform.release()}")
    while time.perf_counter() < end_s:
        timer.wait()
    report = timer.report()
    good = report.lateness.p99_ms < _MOST_LATE_MS and not report.overruns
    found = f"{report.rate_hz:.1f} of {_CLOCK_HZ:g} Hz, {report.overruns} overruns, late by {report.lateness}"
    remedy = f"end programs that keep the processor busy, until p99 is under {_MOST_LATE_MS:g} ms"
    checks.expect("clock rate", good, found, remedy)
    return checks.made


def examine(games: Sequence[GameSettings]) -> list[Check]:
    """Check this machine, then everything that each game's driver needs.

    Raises:
        UnknownNameError: if no driver has a game's name for it.
    """
    for settings in games:
        if settings.driver not in DRIVERS:
            raise UnknownNameError("game driver", settings.driver, DRIVERS)
    made = _check_machine()
    for number, settings in enumerate(games, start=1):
        prefix = f"Game {number}: " if len(games) > 1 else ""
        made += [replace(check, topic=prefix + check.topic) for check in _EXAMINERS[settings.driver](settings)]
    return made


_EXAMINERS: Mapping[str, Callable[[GameSettings], list[Check]]] = {
    SIMULATOR: lambda _: [Check("The simulator", "fight", "ok", "needs nothing more")],
    "memory": lambda settings: MemoryExamination(settings).make(f"The game, by {settings.map}"),
    "siphon": lambda settings: SiphonExamination(settings).make(f"The game, by Siphon at {settings.host}"),
}
