"""The link of the memory driver: read and write a game's process here, press its keys, focus its window."""

from __future__ import annotations

import logging
import struct
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from soulsgraph_envs.core.errors import GameError, UnknownNameError
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.games.keyboard.device import KeyDevice, Window
from soulsgraph_envs.games.keyboard.guarded_device import find_window, open_key_device
from soulsgraph_envs.games.memory.address_map import AddressMap, Base, compile_pattern, load_address_map
from soulsgraph_envs.games.memory.game_memory import GameMemory, ResolvedBase
from soulsgraph_envs.games.memory.reader import BadAddressError, LinuxReader, Module, NoPermissionError, Reader
from soulsgraph_envs.games.realtime.link import GameSettings, LinkError, Reading, RefusedError

_LOG = logging.getLogger(__name__)
#: Between two tries to attach.
_RETRY_S = 0.25
_T = TypeVar("_T")
#: Of an executable's resources: the type of a version, and the mark of a folder.
_VERSION_TYPE = 16
_SUBFOLDER = 1 << 31
#: Signature and structure version of VS_FIXEDFILEINFO.
_FIXED_INFO = struct.pack("<2I", 0xFEEF04BD, 0x10000)


def file_version(resources: bytes, rva: int) -> str:
    """Return the file version, such as "1.15.2.0", of a resource section that lies at `rva`; empty if it has none."""
    try:
        at = 0
        # Folders of types, names and languages lie within each other.
        for wanted in (_VERSION_TYPE, None, None):
            at = _entry(resources, at & ~_SUBFOLDER, wanted)
        place, size = struct.unpack_from("<2I", resources, at)
        info = resources[place - rva : place - rva + size]
        high, low = struct.unpack_from("<2I", info, info.index(_FIXED_INFO) + len(_FIXED_INFO))
    except (struct.error, ValueError, LookupError):
        return ""
    return ".".join(str(part) for part in (high >> 16, high & 0xFFFF, low >> 16, low & 0xFFFF))


def _entry(resources: bytes, at: int, wanted: int | None) -> int:
    """Return the target of an entry of a resource folder: the one with an id, or the first."""
    named, numbered = struct.unpack_from("<12x2H", resources, at)
    for number in range(named + numbered):
        key, target = struct.unpack_from("<2I", resources, at + 16 + 8 * number)
        if wanted is None or key == wanted:
            return int(target)
    raise LookupError(wanted)


def read_version(reader: Reader, module: Module) -> str:
    """Return the file version of a module, such as "1.15.2.0"; empty if it has none that can be read."""
    header = reader.header(module)
    if header is None or not header.resources[1]:
        return ""
    rva, size = header.resources
    try:
        return file_version(reader.read(module.base + rva, size), rva)
    except BadAddressError:
        return ""


def resolve_bases(reader: Reader, module: Module, address_map: AddressMap) -> dict[str, ResolvedBase]:
    """Find every base that needs no injected code.

    Raises:
        RefusedError: naming the bases that were not found, and the game's version if it is another one.
    """
    version = read_version(reader, module)
    other = bool(version and address_map.version) and version != address_map.version
    bases = {name: base for name, base in address_map.bases.items() if not base.hook}
    patterns = {name: compile_pattern(base.pattern) for name, base in bases.items() if base.pattern}
    matches = reader.scan(module, patterns)
    found = {name: _resolve(reader, module, base, matches.get(name, []), other) for name, base in bases.items()}
    if lost := [name for name, resolved in found.items() if resolved is None]:
        found_version = f" in version {version}" if version else ""
        raise RefusedError(
            f"{address_map.name}: expected {address_map.game} {address_map.version}, found no {', '.join(lost)}"
            f"{found_version}; use that version of the game, or a map of this one."
        )
    return {name: resolved for name, resolved in found.items() if resolved}


def _resolve(reader: Reader, module: Module, base: Base, matches: list[int], other: bool) -> ResolvedBase | None:
    targets = {match + base.length + int(reader.read_value(match + base.displacement_at, "i32")) for match in matches}
    inside = {target for target in targets if module.base <= target < module.base + module.size}
    fixed = module.base + base.rva if base.rva else 0
    if fixed in inside or len(inside) == 1:
        address = fixed if fixed in inside else inside.pop()
        note = f"its rva is {address - module.base:#x} here" if fixed not in (0, address) else ""
        return ResolvedBase(address, base.dereference, "pattern", note)
    if not fixed or (other and base.pattern):
        return None
    note = "the game's version is another" if other else ""
    if base.pattern:
        note = f"its pattern was found {len(matches)} times"
    return ResolvedBase(fixed, base.dereference, "rva", note)


@dataclass(frozen=True)
class AttachedGame:
    """A game that can be read: its process and module, its file version ("" if it has none), its fields."""

    reader: Reader
    module: Module
    version: str
    memory: GameMemory

    def notes(self) -> list[str]:
        """Return what is unusual about its bases, one sentence each."""
        bases = self.memory.bases.items()
        return [f"{name}: by {base.found_by}, {base.note}" for name, base in bases if base.note]


def open_process(name: str, pid: int = 0) -> Reader:
    """Open a process with this system's reader, by its id if that is not 0.

    Raises:
        LinkError: if it does not run or may not be read.
        GameError: if this system has no reader, or its package is missing.
    """
    if sys.platform == "linux":
        return LinuxReader(pid or name)
    if sys.platform == "win32":
        from soulsgraph_envs.games.memory.pymeow_reader import PymeowReader

        return PymeowReader(pid or name)
    raise GameError(
        f"a game's memory: expected Linux or Windows, found {sys.platform}; run there, or use the driver siphon."
    )


def attach_game(
    settings: GameSettings, address_map: AddressMap, open_reader: Callable[[str, int], Reader] = open_process
) -> AttachedGame:
    """Find the game of the settings and resolve its map; an empty process name is the map's.

    Raises:
        LinkError: if it does not run, may not be read, or is another version.
    """
    process = settings.process or address_map.process
    reader = open_reader(process, settings.pid)
    try:
        module = reader.module(process)
        bases = resolve_bases(reader, module, address_map)
        return AttachedGame(reader, module, read_version(reader, module), GameMemory(reader, address_map, bases))
    except BaseException:
        reader.close()
        raise


class MemoryLink:
    """Reach a game on this machine through its memory and keys; see `realtime.link.Link`."""

    def __init__(
        self,
        settings: GameSettings,
        open_device: Callable[[str], KeyDevice] = open_key_device,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Load the settings' address map and open the key device; the game is sought by `attach`.

        Raises:
            SoulsGraphError: for a faulty map, or a key device that cannot be opened.
        """
        self.address_map = load_address_map(settings.map)
        self.supplies = self.address_map.readable()
        self.writes = self.address_map.writable()
        self._settings, self._sleep = settings, sleep
        self.bindings = settings.bindings or self.address_map.bindings
        self.keys: KeyDevice = open_device(settings.display)
        self._game: AttachedGame | None = None
        self._window: Window | None = None

    def attach(self, timeout_s: float, process_id: int = 0) -> None:
        """Find the game and resolve its addresses; a second call searches again.

        `process_id` is that of a game just launched, which replaces the settings' own; 0 for none.

        Raises:
            LinkError: with the last reason, if it was not found in time; at once if reading is not permitted.
        """
        self._let_go()
        if process_id:
            self._settings = replace(self._settings, pid=process_id)
        end_s = time.monotonic() + timeout_s
        while True:
            try:
                self._game = attach_game(self._settings, self.address_map)
                break
            except LinkError as error:
                if isinstance(error, NoPermissionError) or time.monotonic() >= end_s:
                    raise
                self._sleep(_RETRY_S)
        for note in self._game.notes():
            _LOG.warning("%s: %s", self.address_map.name, note)

    @property
    def game(self) -> AttachedGame:
        """Return the game that is attached.

        Raises:
            LinkError: if none is.
        """
        if self._game is None:
            raise LinkError("the game: expected it attached, found it was not; call attach first.")
        return self._game

    def read(self) -> Reading:
        """Return every field of `supplies`; an unverified one may be NaN or an empty text."""
        return self.game.memory.read()

    def write(self, values: Mapping[str, float]) -> None:
        """Write fields of `writes`; those that touch in one piece."""
        for name in values:
            if name not in self.writes:
                raise UnknownNameError("field to write", name, sorted(self.writes))
        self.game.memory.write(values)

    def focus(self) -> None:
        """Bring the game's window to the front; nothing if it is there already."""
        if not self.focused():
            self._on_window(lambda window: window.focus())

    def focused(self) -> bool:
        """Return whether keys reach the game's window."""
        return self._on_window(lambda window: window.focused())

    def capture(self) -> Picture:
        """Capture the game's window, which must lie wholly on the screen with nothing before it."""
        return self._on_window(lambda window: window.capture())

    def close(self) -> None:
        """Disconnect from the game and close its keys; a second call does nothing."""
        self._let_go()
        self.keys.close()

    def _on_window(self, ask: Callable[[Window], _T]) -> _T:
        """Call a method of the window, which is searched again if it has been replaced."""
        try:
            if self._window is not None:
                with suppress(GameError):
                    return ask(self._window)
                self._close_window()
            title = self._settings.window or self.address_map.window
            self._window = find_window(title, self.game.reader.pid, self._settings.display)
            return ask(self._window)
        except GameError as error:
            raise LinkError(str(error)) from error

    def _close_window(self) -> None:
        if self._window is not None:
            self._window.close()
            self._window = None

    def _let_go(self) -> None:
        self._close_window()
        if self._game is not None:
            self._game.reader.close()
            self._game = None
