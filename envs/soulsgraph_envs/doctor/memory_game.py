"""Checks of a game: map, process, window and every entry of its memory, or what its Siphon server reports."""

from __future__ import annotations

from soulsgraph_envs.doctor.check import Check, Checks
from soulsgraph_envs.doctor.machine import HARMLESS, check_bindings
from soulsgraph_envs.doctor.reading import (
    check_entry,
    check_online,
    check_read_time,
    check_resolution,
    check_skills,
    unaddressed,
)
from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_envs.games import make_link
from soulsgraph_envs.keys.guarded_device import HeldKeys
from soulsgraph_envs.keys.windows import find_window
from soulsgraph_envs.live.link import Link
from soulsgraph_envs.live.settings import GameSettings
from soulsgraph_envs.memory.address_map import AddressMap, load_address_map
from soulsgraph_envs.memory.attaching import AttachedGame, OpenReader, attach_game
from soulsgraph_envs.memory.bases import notes
from soulsgraph_envs.memory.map_report import inspect_map

_MAP, _GAME, _WINDOW, _READING = "address map", "game", "window", "time of a reading"
_START = "start the game, or name its process or pid in the games file"
_ATTACH_S = 3.0
_CLIENT, _WAY, _SERVER, _PICTURE = "Siphon client", "way to the server", "Siphon server", "picture"
_TUNNEL = "go through a tunnel (ssh -L 50051:localhost:50051 GAME-PC), or set token_file and certificate"


def check_memory_game(settings: GameSettings, open_reader: OpenReader | None = None) -> list[Check]:
    """Check the game of the settings; checks that depend on a failed one are skipped."""
    checks = Checks(f"The game, by {settings.map}")
    with checks.failing(_MAP, "choose a shipped map in the games file"):
        address_map = load_address_map(settings.map)
        _note_map(checks, address_map)
        with checks.failing(_GAME, _START):
            game = attach_game(settings, address_map, open_reader)
            try:
                return checks.made + _check_game(settings, address_map, game)
            finally:
                game.reader.close()
    for name in (_WINDOW, "offline mode", "map entries"):
        checks.skip(name, f"needs the {_GAME}")
    return checks.made


def _note_map(checks: Checks, address_map: AddressMap) -> None:
    names = sorted(address_map.readable())
    unverified = [name for name in names if not address_map.entry(name).verified]
    found = f"{' '.join(filter(None, (address_map.game, address_map.version)))}: {len(names)} fields"
    checks.ok(_MAP, found + (f", unverified: {', '.join(unverified)}" if unverified else ""))
    check_skills(checks, address_map.readable())


def _check_game(settings: GameSettings, address_map: AddressMap, game: AttachedGame) -> list[Check]:
    checks = Checks(f"The game, by {settings.map}")
    found = f"process {game.reader.pid}, {game.module.name} at {game.module.base:#x}"
    checks.ok(_GAME, found)
    told = game.version or "not in the executable"
    fits = not (game.version and address_map.version) or game.version == address_map.version
    checks.judge("version", fits, told, "use a map of this version")
    for note in notes(game.memory.bases):
        checks.warn("base", note, "watch the entries below: they may be off")
    with checks.failing(_WINDOW, "show the game's window, and name its display in the games file"):
        _check_window(checks, settings.window or address_map.window, game.reader.pid, settings.display)
    entries = Checks("Map entries")
    with entries.failing("map entries", _START):
        reports = inspect_map(game.memory)
        check_online(checks, {report.name: report.value for report in reports if report.value is not None})
        for report in reports:
            check_entry(entries, report)
        with checks.failing(_READING, "see the entries below"):
            check_read_time(checks, game.memory.read)
    return checks.made + entries.made


def _check_window(checks: Checks, title: str, pid: int, display: str) -> None:
    window = find_window(title, pid, display)
    try:
        place = window.geometry()
        checks.ok(_WINDOW, f"{title!r}, {'with' if window.focused() else 'without'} the keyboard")
        check_resolution(checks, place.width, place.height)
    finally:
        window.close()


def check_siphon_game(settings: GameSettings) -> list[Check]:
    """Check the server of the settings; checks that depend on a failed one are skipped."""
    checks = Checks(f"The game, by Siphon at {settings.host}")
    with checks.failing(_CLIENT, "correct the games file"):
        link = make_link(settings)
        try:
            checks.ok(_CLIENT, f"{len(link.supplies)} fields of {settings.map}")
            check_skills(checks, link.supplies)
            check_bindings(checks, link.keys, link.bindings)
            _check_way(checks, settings)
            with checks.failing(_SERVER, "start the server and the game on the game PC"):
                link.attach(_ATTACH_S)
                return checks.made + _check_served(settings, checks.topic, link)
        finally:
            link.close()
    for name in ("key round trip", "offline mode", "fields"):
        checks.skip(name, "needs the server")
    return checks.made


def _check_way(checks: Checks, settings: GameSettings) -> None:
    from soulsgraph_envs.siphon.calls import is_loopback, split_address

    if is_loopback(split_address(settings.host)[0]):
        checks.ok(_WAY, "within this machine, or through a tunnel")
        return
    missing = [
        what for what, given in (("token", settings.token_file), ("certificate", settings.certificate)) if not given
    ]
    found = f"over the network without a {' and a '.join(missing)}" if missing else "encrypted, with a token"
    checks.judge(_WAY, not missing, found, _TUNNEL)


def _check_served(settings: GameSettings, topic: str, link: Link) -> list[Check]:
    from soulsgraph_envs.siphon.link import SiphonLink

    checks, entries = Checks(topic), Checks("Fields")
    checks.ok(_SERVER, f"answers, with the game's window {'' if link.focused() else 'not '}at the front")
    with checks.failing("key round trip", "run the server in the session of the game's window"):
        with HeldKeys(link.keys) as held:
            held.hold((HARMLESS,))
        checks.ok("key round trip", f"the server sent {HARMLESS} down and up; it cannot tell whether that arrived")
    if isinstance(link, SiphonLink):
        with checks.failing(_PICTURE, "show the game's window on the game PC"):
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
    """Return the address map behind the attributes; an attribute file of one's own has none."""
    try:
        return load_address_map(settings.map)
    except SoulsGraphError:
        return None
