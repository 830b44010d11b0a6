"""A game whose memory is read on this machine: its map, process, window and every entry of the map."""

from __future__ import annotations

from soulsgraph_envs.doctor.check import Check, Checks
from soulsgraph_envs.doctor.reading import (
    check_entry,
    check_online,
    check_read_time,
    check_resolution,
    check_skills,
)
from soulsgraph_envs.keys.windows import find_window
from soulsgraph_envs.live.settings import GameSettings
from soulsgraph_envs.memory.address_map import AddressMap, load_address_map
from soulsgraph_envs.memory.attaching import AttachedGame, OpenReader, attach_game
from soulsgraph_envs.memory.bases import notes
from soulsgraph_envs.memory.map_report import inspect_map

_MAP, _GAME, _WINDOW, _READING = "address map", "game", "window", "time of a reading"
_START = "start the game, or name its process or pid in the games file"


def check_memory_game(settings: GameSettings, open_reader: OpenReader | None = None) -> list[Check]:
    """Check the game of the settings; what hangs on something that fails is passed over."""
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
    told = game.version or "not told by the executable"
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
