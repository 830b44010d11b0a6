"""What this machine and a game can do, checked one by one: what a check reports, and its remedy.

Of the machine: keys, windows, the right to read memory, the port. Of a game's settings: map, process, window and every
entry of its memory, or its Siphon server's answers.
"""

from __future__ import annotations

import platform
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from soulsgraph_envs.core.config import Where, read_file, validate
from soulsgraph_envs.core.errors import GameError, SoulsGraphError, UnknownNameError, plain_number, plain_range
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.games.address_map import AddressMap, load_address_map
from soulsgraph_envs.games.cycle_timer import CycleTimer
from soulsgraph_envs.games.guarded_device import HeldKeys, find_window, keyboard_layout, open_key_device
from soulsgraph_envs.games.keys import KeyDevice, load_bindings
from soulsgraph_envs.games.link import DRIVERS, FIELDS, SIMULATOR, GameSettings, Link, Reading
from soulsgraph_envs.games.memory_link import AttachedGame, GameMemory, attach_game
from soulsgraph_envs.games.memory_reader import BadAddressError, Reader, open_process
from soulsgraph_envs.games.opening import make_link
from soulsgraph_envs.games.readings import supplied_raws
from soulsgraph_envs.games.user32 import is_administrator, is_key_down
from soulsgraph_envs.games.x11 import XTestDevice
from soulsgraph_envs.simulator import Simulator
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


_STATUS = Path("/proc/self/status")
_PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
#: The value of ptrace_scope that allows nobody, until the next start of the machine.
_NOBODY = 3
_RIGHTS = "rights to read memory"
#: Bit of CAP_SYS_PTRACE in a process's capabilities, linux/capability.h.
_CAP_SYS_PTRACE = 19
#: p99 lateness that a control loop of 10 Hz may have.
_MOST_LATE_MS = 5.0
_CLOCK_HZ, _CLOCK_S = 60.0, 2.0
#: Run in a process of its own: on a bad day the import ends it without a word.
_PROBE = "from soulsgraph_envs.games.memory_reader import load_pymeow; load_pymeow()"
_PYMEOW_REMEDY = "install the archive of github.com/qb-0/pyMeow/releases with pip; PyPI's pymeow is another package"
#: No game binds it by default, and it types nothing; with its virtual-key code of winuser.h.
HARMLESS, _CODE = "right_shift", 0xA1
_HELD_S = 0.05
_SCREEN_REMEDY = "start it in the session of the game's window, or name its display in the games file"
_BINDINGS, _ROUND_TRIP, _LAYOUT = "key bindings", "key round trip", "keyboard layout"


def check_machine(reads_memory: bool) -> list[Check]:
    """Check what every driver needs, and what reading another program's memory takes."""
    checks = Checks("This machine")
    bits = 8 * struct.calcsize("P")
    found = f"{platform.python_version()}, {bits} bits, {platform.system()} {platform.release()}"
    fits = bits == 64 and sys.version_info >= (3, 11)
    checks.expect("Python", fits, found, "install Python 3.11 or newer of 64 bits, the games' own width", "fail")
    _check_clock(checks)
    if reads_memory:
        _check_rights(checks)
        _check_pymeow(checks)
        _say_how_tried(checks, "how memory was tried", "by the description of pyMeow's calls, never on Windows")
    return checks.made


def _say_how_tried(checks: Checks, name: str, found: str) -> None:
    """Warn on Windows that a check itself was only tried elsewhere."""
    if sys.platform == "win32":
        checks.warn(name, found, "work through the checklist of docs/game_pc_checklist.md before an agent plays")


def _check_clock(checks: Checks) -> None:
    timer, end_s = CycleTimer(1 / _CLOCK_HZ), time.perf_counter() + _CLOCK_S
    while time.perf_counter() < end_s:
        timer.wait()
    report = timer.report()
    checks.expect(
        "clock rate",
        report.lateness.p99_ms < _MOST_LATE_MS and not report.overruns,
        f"{report.rate_hz:.1f} of {_CLOCK_HZ:g} Hz, {report.overruns} overruns, late by {report.lateness}",
        f"end programs that keep the processor busy, until p99 is under {_MOST_LATE_MS:g} ms",
    )


def _check_rights(checks: Checks) -> None:
    if sys.platform == "linux":
        status = dict(line.split(":\t", 1) for line in _STATUS.read_text().splitlines() if ":\t" in line)
        scope = int(_PTRACE_SCOPE.read_text()) if _PTRACE_SCOPE.exists() else 0
        check_rights(checks, scope, int(status["CapEff"], 16))
    elif sys.platform == "win32":
        found = "administrator" if is_administrator() else "an ordinary user"
        remedy = "enough unless the game runs as administrator; then start this terminal as administrator too"
        checks.expect(_RIGHTS, is_administrator(), found, remedy)
    else:
        checks.fail(_RIGHTS, f"{sys.platform}: no reader", "use Windows or Linux, or the driver siphon")


def check_rights(checks: Checks, scope: int, capabilities: int) -> None:
    """Check by Yama's ptrace_scope, 0 to 3, which processes may be read besides own children."""
    if capabilities >> _CAP_SYS_PTRACE & 1 and scope < _NOBODY:
        checks.ok(_RIGHTS, "every process (CAP_SYS_PTRACE)")
    elif scope == 0:
        checks.ok(_RIGHTS, "every process of this user (ptrace_scope 0)")
    elif scope < _NOBODY:
        remedy = "allow more until the next start: sudo sysctl kernel.yama.ptrace_scope=0"
        checks.warn(_RIGHTS, f"own child processes, and those that allow it (ptrace_scope {scope})", remedy)
    else:
        remedy = "set kernel.yama.ptrace_scope = 0 in /etc/sysctl.d and start the machine anew"
        checks.fail(_RIGHTS, f"none (ptrace_scope {scope})", remedy)


def _check_pymeow(checks: Checks) -> None:
    if sys.platform != "win32":
        checks.skip("not needed here: Linux itself shows a process's memory", "pyMeow")
        return
    probe = subprocess.run([sys.executable, "-P", "-c", _PROBE], capture_output=True, text=True)
    with checks.failing("pyMeow", _PYMEOW_REMEDY):
        if probe.returncode:
            last = (probe.stderr.strip().splitlines() or ["without a word"])[-1]
            kind, _, told = last.partition(": ")
            ours = kind.endswith(f".{GameError.__name__}")
            raise GameError(told if ours else f"pyMeow: expected its import to succeed, found it ended: {last}")
        checks.ok("pyMeow", "the one that reads memory")


def check_keyboard(display: str, bindings: str) -> list[Check]:
    """Check the keys of a display ("" is the environment's) against bindings by name or path."""
    checks = Checks("Keys")
    with checks.failing("key device", _SCREEN_REMEDY), closing(open_key_device(display)) as device:
        checks.ok("key device", "presses keys, and a guard lets them up whatever happens")
        check_bindings(checks, device, bindings)
        with checks.failing(_ROUND_TRIP, _SCREEN_REMEDY):
            _check_round_trip(checks, device, display)
        with checks.failing(_LAYOUT, _SCREEN_REMEDY):
            layout = keyboard_layout(display)
            named = ", ".join(layout.names) or "not told"
            remedy = "keys are pressed by their place; if the game takes others, make an English layout the only one"
            checks.expect(_LAYOUT, layout.english, named, remedy)
        _say_how_tried(checks, "how keys were tried", "pressed and seen under Wine, never on Windows")
        return checks.made
    checks.skip("needs the key device", _BINDINGS, _ROUND_TRIP, _LAYOUT)
    return checks.made


def check_bindings(checks: Checks, device: KeyDevice, bindings: str) -> None:
    """Check that a device has every key of bindings, and name the controls without one; "" stands for no bindings."""
    if not bindings:
        checks.skip("needs the address map", _BINDINGS)
        return
    with checks.failing(_BINDINGS, "choose shipped bindings in the games file"):
        loaded = load_bindings(bindings)
        for key in loaded.keys:
            device.check(key)
        unbound = ", ".join(str(control.name).lower() for control in loaded.unbound)
        found = f"{loaded.name}: {len(loaded.keys)} keys to be set in the game as well"
        checks.ok(_BINDINGS, f"{found}; none for {unbound}" if unbound else found)


def _check_round_trip(checks: Checks, device: KeyDevice, display: str) -> None:
    began_s = time.perf_counter()
    with HeldKeys(device) as held:
        held.hold((HARMLESS,))
        pressed_ms = 1000 * (time.perf_counter() - began_s)
        time.sleep(_HELD_S)
        arrived = _is_down(display)
    came_up = not _is_down(display)
    happened = f"went down, in {pressed_ms:.1f} ms, and came up" if came_up else "stayed down"
    found = f"{HARMLESS} {happened if arrived else 'never went down'}"
    remedy = "let no other program hold the keyboard, and run this in the session of the game's window"
    checks.expect(_ROUND_TRIP, arrived and came_up, found, remedy, "fail")


def _is_down(display: str) -> bool:
    if sys.platform == "win32":
        return is_key_down(_CODE)
    with closing(XTestDevice(display)) as observer:
        return HARMLESS in observer.down()


_BOUNDS_FILE = Where(Path(__file__).parents[1] / "data" / "plausible.toml")
#: What a plausible number lies in, by unit.
_BOUNDS = validate(dict[str, tuple[float, float]], read_file(_BOUNDS_FILE), _BOUNDS_FILE)
_LEVELS = ("player_hp", "player_stamina", "boss_hp", "frost_resistance")


class EntryReport(NamedTuple):
    """One entry, read once: its address and value, or the problem with it.

    The map names in `fallback` what is used in place of an entry that is not verified; empty for a verified one.
    """

    name: str
    address: int | None
    value: float | str | None
    problem: str
    fallback: str


def inspect_map(memory: GameMemory) -> list[EntryReport]:
    """Read every readable entry by itself, so that a broken one hides no other.

    Raises:
        ProcessGoneError: if the game has ended.
    """
    addresses, values, broken = dict[str, int](), dict[str, float | str](), dict[str, str]()
    for name in memory.address_map.readable():
        try:
            addresses[name], values[name] = memory.look_up(name)
        except BadAddressError as error:
            broken[name] = str(error)
    return report_entries(values, memory.address_map, addresses, broken)


def report_entries(
    values: Reading, address_map: AddressMap | None, addresses: Mapping[str, int] = {}, broken: Mapping[str, str] = {}
) -> list[EntryReport]:
    """Return the entries of a reading, which over the network has no addresses; its map says which are verified."""
    reports = []
    for name in sorted({*values, *broken}):
        entry, problem = address_map and address_map.entry(name), broken.get(name) or implausible(name, values)
        fallback = entry.fallback if entry and not entry.verified else ""
        reports.append(EntryReport(name, addresses.get(name), values.get(name), problem, fallback))
    return reports


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


_TIMED_READS = 50
#: Share of a control tick of 100 ms that reading may take.
_MOST_READ_MS = 20.0
_BUSY = "end programs that keep the game's machine busy"
#: SoulsGym's windows have this size, and its pictures are made of them.
_RESOLUTION = (800, 450)
_OFFLINE = "play offline (System, Network Settings, Launch Setting: Play Offline): online, others would be cheated"
_STANDING = "load a character, stand before the boss and run this again; if it stays, the map is not of this version"


def check_skills(checks: Checks, fields: frozenset[str]) -> None:
    """Check which skills can play on what the fields supply."""
    supplied = supplied_raws(fields)
    missing = {name: sorted({raw.name for raw in make_skill(name).needs} - supplied) for name in SKILL_NAMES}
    lacking = {name: raws for name, raws in missing.items() if raws}
    told = "; ".join(f"{name} lacks {', '.join(raws).lower()}" for name, raws in lacking.items())
    remedy = "play by SoulsEnv or EldenGymEnv, or use a map that has these fields"
    checks.expect("skills", not lacking, told or f"all can play: {', '.join(SKILL_NAMES)}", remedy)


def check_entry(checks: Checks, entry: EntryReport) -> None:
    """Check one field that was read."""
    found = entry.problem or _shown(entry)
    if entry.fallback:
        advice = "nothing to do," if entry.problem else "compare it with the game;"
        checks.warn(entry.name, f"{found}, unverified", f"{advice} in its place: {entry.fallback}")
    else:
        checks.expect(entry.name, not entry.problem, found, _STANDING, "fail")


def _shown(entry: EntryReport) -> str:
    shown = repr(entry.value)
    if isinstance(entry.value, float | int):
        unit = FIELDS[entry.name].unit
        number = f"{entry.value:.{0 if entry.value == int(entry.value) else 3}f}"
        shown = f"{number} ({unit})" if " " in unit else f"{number} {unit}"
    return shown if entry.address is None else f"{shown} at {entry.address:#x}"


def check_online(checks: Checks, reading: Reading) -> None:
    """Check that the game is offline, or warn if that cannot be read."""
    if "online" not in reading:
        checks.warn("offline mode", "cannot be read by this map", _OFFLINE)
    else:
        found = f"the game is {'online' if reading['online'] else 'offline'}"
        checks.expect("offline mode", not reading["online"], found, _OFFLINE, "fail")


def check_resolution(checks: Checks, width: int, height: int) -> None:
    """Check the size of the game's window."""
    remedy = "for pictures like SoulsGym's choose 800 x 450, windowed; states are not affected"
    checks.expect("resolution", (width, height) == _RESOLUTION, f"{width} x {height}", remedy)


def check_read_time(checks: Checks, read: Callable[[], Reading], remedy: str) -> None:
    """Time whole readings, and warn of slow ones with a remedy; a failing one raises as `read` does."""
    times_ms = []
    for _ in range(_TIMED_READS):
        began_s = time.perf_counter()
        read()
        times_ms.append(1000 * (time.perf_counter() - began_s))
    median_ms = sorted(times_ms)[_TIMED_READS // 2]
    found = f"median {median_ms:.2f}, longest {max(times_ms):.2f} ms"
    checks.expect("time of a reading", median_ms < _MOST_READ_MS, found, remedy)


_GAME, _WINDOW = "game", "window"
_START = "start the game, or name its process or pid in the games file"
_ATTACH_S = 3.0
_WAY, _SERVER = "way to the server", "Siphon server"


def check_memory_game(settings: GameSettings, open_reader: Callable[[str, int], Reader] = open_process) -> list[Check]:
    """Check the game of the settings; checks that depend on a failed one are skipped."""
    checks = Checks(f"The game, by {settings.map}")
    with checks.failing("address map", "choose a shipped map in the games file"):
        address_map = load_address_map(settings.map)
        fields = address_map.readable()
        unverified = ", ".join(name for name in sorted(fields) if not address_map.entry(name).verified)
        found = f"{f'{address_map.game} {address_map.version}'.strip()}: {len(fields)} fields"
        checks.ok("address map", f"{found}, unverified: {unverified}" if unverified else found)
        check_skills(checks, fields)
        with checks.failing(_GAME, _START):
            game = attach_game(settings, address_map, open_reader)
            with closing(game.reader):
                return checks.made + _check_game(settings, address_map, game)
    checks.skip(f"needs the {_GAME}", _WINDOW, "offline mode", "map entries")
    return checks.made


def _check_game(settings: GameSettings, address_map: AddressMap, game: AttachedGame) -> list[Check]:
    checks = Checks(f"The game, by {settings.map}")
    checks.ok(_GAME, f"process {game.reader.pid}, {game.module.name} at {game.module.base:#x}")
    fits = not game.version or address_map.version in ("", game.version)
    checks.expect("version", fits, game.version or "not in the executable", "use a map of this version")
    for note in game.notes():
        checks.warn("base", note, "watch the entries below: they may be off")
    with checks.failing(_WINDOW, "show the game's window, and name its display in the games file"):
        title = settings.window or address_map.window
        with closing(find_window(title, game.reader.pid, settings.display)) as window:
            place = window.geometry()
            checks.ok(_WINDOW, f"{title!r}, {'with' if window.focused() else 'without'} the keyboard")
            check_resolution(checks, place.width, place.height)
    entries = Checks("Map entries")
    with entries.failing("map entries", _START):
        reports = inspect_map(game.memory)
        check_online(checks, {report.name: report.value for report in reports if report.value is not None})
        for report in reports:
            check_entry(entries, report)
        with checks.failing("time of a reading", "see the entries below"):
            check_read_time(checks, game.memory.read, _BUSY)
    return checks.made + entries.made


def check_siphon_game(settings: GameSettings) -> list[Check]:
    """Check the server of the settings; checks that depend on a failed one are skipped."""
    checks = Checks(f"The game, by Siphon at {settings.host}")
    with checks.failing("Siphon client", "correct the games file"), closing(make_link(settings)) as link:
        checks.ok("Siphon client", f"{len(link.supplies)} fields of {settings.map}")
        check_skills(checks, link.supplies)
        check_bindings(checks, link.keys, link.bindings)
        _check_way(checks, settings)
        with checks.failing(_SERVER, "start the server and the game on the game PC"):
            link.attach(_ATTACH_S)
            return checks.made + _check_served(settings, checks.topic, link)
    checks.skip("needs the server", "key round trip", "offline mode", "fields")
    return checks.made


def _check_way(checks: Checks, settings: GameSettings) -> None:
    from soulsgraph_envs.games.siphon_link import is_local

    local = is_local(settings.host)
    found = "within this machine, or through a tunnel" if local else "over the network, without encryption"
    checks.expect(_WAY, local, found, "go through a tunnel: ssh -L 50051:localhost:50051 GAME-PC")


def _check_served(settings: GameSettings, topic: str, link: Link) -> list[Check]:
    from soulsgraph_envs.games.siphon_link import SiphonLink

    checks, entries = Checks(topic), Checks("Fields")
    checks.ok(_SERVER, f"answers, with the game's window {'' if link.focused() else 'not '}at the front")
    with checks.failing("key round trip", "run the server in the session of the game's window"):
        with HeldKeys(link.keys) as held:
            held.hold((HARMLESS,))
        checks.ok("key round trip", f"the server sent {HARMLESS} down and up; it cannot tell whether that arrived")
    if isinstance(link, SiphonLink):
        with checks.failing("picture", "show the game's window on the game PC"):
            height, width, _ = link.capture().shape
            check_resolution(checks, width, height)
    with entries.failing("fields", "load a character and stand before the boss"):
        reading = link.read()
        check_online(checks, reading)
        for entry in report_entries(reading, map_of(settings)):
            check_entry(entries, entry)
        check_read_time(checks, link.read, f"{_BUSY}; to a game on another PC use a faster way, such as a cable")
    return checks.made + entries.made


def map_of(settings: GameSettings) -> AddressMap | None:
    """Return the settings' address map; None if it cannot be read, or for an attribute file of your own."""
    try:
        return load_address_map(settings.map)
    except SoulsGraphError:
        return None


_SCENARIO, _TICKS = "iudex-phase1", 1000


def examine(games: Sequence[GameSettings]) -> list[Check]:
    """Check this machine, then everything that each game's driver needs.

    Raises:
        UnknownNameError: if no driver has a game's name for it.
    """
    for settings in games:
        if settings.driver not in DRIVERS:
            raise UnknownNameError("game driver", settings.driver, DRIVERS)
    made = check_machine(reads_memory=any(settings.driver == "memory" for settings in games))
    for number, settings in enumerate(games, start=1):
        prefix = f"Game {number}: " if len(games) > 1 else ""
        made += [replace(check, topic=prefix + check.topic) for check in _EXAMINERS[settings.driver](settings)]
    return made


def _examine_memory(settings: GameSettings) -> list[Check]:
    address_map = map_of(settings)
    bindings = settings.bindings or (address_map.bindings if address_map else "")
    return check_keyboard(settings.display, bindings) + check_memory_game(settings)


def _examine_simulator(settings: GameSettings) -> list[Check]:
    checks = Checks("The simulator")
    began_s = time.perf_counter()
    game = Simulator(1)
    game.reset(np.arange(1), load_scenario(_SCENARIO), derive_seeds(0, 1))
    game.step(np.zeros(1, np.uint32))
    compiled_s = time.perf_counter() - began_s
    began_s = time.perf_counter()
    for _ in range(_TICKS):
        game.step(np.zeros(1, np.uint32))
    rate = _TICKS / (time.perf_counter() - began_s)
    game.close()
    checks.ok("fight", f"{_SCENARIO}: ready in {compiled_s:.1f} s, {rate:,.0f} ticks a second of one lane")
    return checks.made


_EXAMINERS: Mapping[str, Callable[[GameSettings], list[Check]]] = {
    SIMULATOR: _examine_simulator,
    "memory": _examine_memory,
    "siphon": check_siphon_game,
}
