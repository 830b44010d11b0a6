"""Attach to a running game: open its process, find its bases, lay out its fields."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from soulsgraph_envs.errors import GameError
from soulsgraph_envs.live.settings import GameSettings
from soulsgraph_envs.memory.address_map import AddressMap
from soulsgraph_envs.memory.bases import read_version, resolve_bases
from soulsgraph_envs.memory.game_memory import GameMemory
from soulsgraph_envs.memory.reader import Module, Reader

#: Opens a process by its name, or by its id if that is not 0.
OpenReader = Callable[[str, int], Reader]


@dataclass(frozen=True)
class AttachedGame:
    """A game that can be read: its process and module, its file version ("" if it has none), its fields."""

    reader: Reader
    module: Module
    version: str
    memory: GameMemory


def attach_game(settings: GameSettings, address_map: AddressMap, open_reader: OpenReader | None = None) -> AttachedGame:
    """Find the game of the settings and resolve its map; an empty process name is the map's.

    Raises:
        LinkError: if it does not run, may not be read, or is another version.
    """
    process = settings.process or address_map.process
    reader = (open_reader or open_process)(process, settings.pid)
    try:
        module = reader.module(process)
        bases = resolve_bases(reader, module, address_map)
        return AttachedGame(reader, module, read_version(reader, module), GameMemory(reader, address_map, bases))
    except BaseException:
        reader.close()
        raise


def open_process(name: str, pid: int = 0) -> Reader:
    """Open a process with this system's reader, by its id if that is not 0.

    Raises:
        LinkError: if it does not run or may not be read.
        GameError: if this system has no reader, or its package is missing.
    """
    if sys.platform == "linux":
        from soulsgraph_envs.memory.linux_reader import LinuxReader

        return LinuxReader(pid) if pid else LinuxReader.named(name)
    if sys.platform == "win32":
        from soulsgraph_envs.memory.pymeow_reader import PymeowReader

        return PymeowReader(pid or name)
    raise GameError(
        f"a game's memory: expected Linux or Windows, found {sys.platform}; run there, or use the driver siphon."
    )
