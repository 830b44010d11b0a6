"""Examine one game's settings: map, process, window and every entry of its memory, or its Siphon server's answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path

import numpy as np

from soulsgraph_envs.core.config import Where, read_file, read_value
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.games.doctor.machine import HARMLESS, Check, Checks, check_bindings, check_keyboard, check_machine
from soulsgraph_envs.games.keyboard.guarded_device import HeldKeys, find_window
from soulsgraph_envs.games.memory.address_map import AddressMap, load_address_map
from soulsgraph_envs.games.memory.game_memory import GameMemory
from soulsgraph_envs.games.memory.link import AttachedGame, attach_game, open_process
from soulsgraph_envs.games.memory.reader import BadAddressError, Reader
from soulsgraph_envs.games.opening import make_link
from soulsgraph_envs.games.realtime.link import DRIVERS, FIELDS, SIMULATOR, GameSettings, Link, Reading
from soulsgraph_envs.games.realtime.readings import supplied_raws
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.skills import SKILL_NAMES, make_skill

_BOUNDS_FILE = Where(Path(__file__).parents[2] / "data" / "plausible.toml")
#: What a plausible number lies in, by unit.
_BOUNDS = read_value(dict[str, tuple[float, float]], read_file(_BOUNDS_FILE), _BOUNDS_FILE)
_LEVELS = ("player_hp", "player_stamina", "boss_hp", "frost_resistance")


@dataclass(frozen=True)
class EntryReport:
    """One entry, read once: its address and value, or the reason why it cannot be read.

    An entry that is not `verified` names in `fallback` what is used if it is wrong.
    """

    name: str
    address: int | None
    value: float | str | None
    problem: str
    verified: bool
    fallback: str

    @property
    def plausible(self) -> bool:
        """Return whether nothing is wrong with the value."""
        return not self.problem


def inspect_map(memory: GameMemory) -> list[EntryReport]:
    """Read every readable entry by itself, so that a broken one hides no other.

    Raises:
        ProcessGoneError: if the game has ended.
    """
    found: dict[str, tuple[int, float | str]] = {}
    broken: dict[str, str] = {}
    for name in memory.address_map.readable():
        try:
            found[name] = memory.look_up(name)
        except BadAddressError as error:
            broken[name] = str(error)
    values = {name: value for name, (_, value) in found.items()}
    addresses = {name: address for name, (address, _) in found.items()}
    return _reports(values, memory.address_map, addresses, broken)


def unaddressed(reading: Reading, address_map: AddressMap | None) -> list[EntryReport]:
    """Return the entries of a reading over the network, which has no addresses; its map says which are verified."""
    return _reports(reading, address_map, {}, {})


def _reports(
    values: Reading, address_map: AddressMap | None, addresses: Mapping[str, int], broken: Mapping[str, str]
) -> list[EntryReport]:
    reports = []
    for name in sorted({*values, *broken}):
        entry, problem = address_map and address_map.entry(name), broken.get(name) or implausible(name, values)
        verified, fallback = (entry.verified, entry.fallback) if entry else (True, "")
        reports.append(EntryReport(name, addresses.get(name), values.get(name), problem, verified, fallback))
    return reports


def implausible(name: str, values: Reading) -> str:
    """Return what is wrong with a field's value, given the others; an empty text if nothing is."""
    value = values[name]
    if isinstance(value, str):
        return "" if value.isprintable() and value else f"expected a name, found {value!r}"
    low, high = _BOUNDS.get(FIELDS[name].unit, (-inf, inf))
    if not isfinite(value) or not low <= value <= high:
        return f"expected {FIELDS[name].unit} from {low:g} to {high:g}, found {value:g}"
    most = values.get(f"{name}_max", inf)
    if name in _LEVELS and isinstance(most, float) and value > most:
        return f"expected at most {name}_max, {most:g}, found {value:g}"
    return ""


_TIMED_READS = 50
#: Share of a control tick of 100 ms that reading may take.
_MOST_READ_MS = 20.0
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
    if not entry.verified:
        advice = "compare it with the game;" if entry.plausible else "nothing to do,"
        checks.warn(entry.name, f"{found}, unverified", f"{advice} in its place: {entry.fallback}")
    else:
        checks.expect(entry.name, entry.plausible, found, _STANDING, "fail")


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


def check_read_time(checks: Checks, read: Callable[[], Reading]) -> None:
    """Time whole readings; a failing one raises as `read` does."""
    times_ms = []
    for _ in range(_TIMED_READS):
        began_s = time.perf_counter()
        read()
        times_ms.append(1000 * (time.perf_counter() - began_s))
    median_ms = sorted(times_ms)[_TIMED_READS // 2]
    found = f"median {median_ms:.2f}, longest {max(times_ms):.2f} ms"
    remedy = "use a faster way to the game PC, such as a cable, and end programs that keep this one busy"
    checks.expect("time of a reading", median_ms < _MOST_READ_MS, found, remedy)


_GAME, _WINDOW = "game", "window"
_START = "start the game, or name its process or pid in the games file"
_ATTACH_S = 3.0
_WAY, _SERVER = "way to the server", "Siphon server"
_TUNNEL = "go through a tunnel (ssh -L 50051:localhost:50051 GAME-PC), or set token_file and certificate"


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
            check_read_time(checks, game.memory.read)
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
    from soulsgraph_envs.games.siphon.calls import is_local, unprotected

    if is_local(settings):
        checks.ok(_WAY, "within this machine, or through a tunnel")
    elif missing := unprotected(settings):
        checks.warn(_WAY, f"over the network without {' and without '.join(missing)}", _TUNNEL)
    else:
        checks.ok(_WAY, "encrypted, with a token")


def _check_served(settings: GameSettings, topic: str, link: Link) -> list[Check]:
    from soulsgraph_envs.games.siphon.link import SiphonLink

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
        for entry in unaddressed(reading, _map_of(settings)):
            check_entry(entries, entry)
        check_read_time(checks, link.read)
    return checks.made + entries.made


def _map_of(settings: GameSettings) -> AddressMap | None:
    """Return the settings' address map; None if it cannot be read, or for an attribute file of one's own."""
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
    address_map = _map_of(settings)
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
