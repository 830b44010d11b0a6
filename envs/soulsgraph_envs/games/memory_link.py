"""The link of the memory driver: read and write a game's process here, press its keys, focus its window.

Fields are read and written by name: a game's characters are found by theirs, its items counted.
"""

from __future__ import annotations

import logging
import re
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf, nan
from time import monotonic
from typing import NamedTuple, TypeVar

from soulsgraph_envs.core.errors import GameError, UnknownNameError
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.games.address_map import (
    AddressMap,
    Base,
    Chain,
    Entry,
    FieldEncoding,
    Inventory,
    Walk,
    compile_pattern,
    decode_text,
    load_address_map,
    pack,
)
from soulsgraph_envs.games.guarded_device import find_window, open_key_device
from soulsgraph_envs.games.keys import KeyDevice, Window
from soulsgraph_envs.games.link import GameSettings, LinkError, Reading, RefusedError, attach_within
from soulsgraph_envs.games.memory_reader import BadAddressError, Module, NoPermissionError, Reader, open_process

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
#: Signature and structure version of VS_FIXEDFILEINFO, by which an executable's resources hold its version.
_FIXED_INFO = struct.pack("<2I", 0xFEEF04BD, 0x10000)


def file_version(resources: bytes) -> str:
    """Return the file version, such as "1.15.2.0", of a resource section; empty if it has none."""
    at = resources.find(_FIXED_INFO)
    if not 0 <= at <= len(resources) - 16:
        return ""
    minor, major, revision, build = struct.unpack_from("<4H", resources, at + len(_FIXED_INFO))
    return ".".join(map(str, (major, minor, build, revision)))


def read_version(reader: Reader, module: Module) -> str:
    """Return the file version of a module, such as "1.15.2.0"; empty if it has none that can be read."""
    header = reader.header(module)
    if header is None or not header.resources[1]:
        return ""
    rva, size = header.resources
    try:
        return file_version(reader.read(module.base + rva, size))
    except BadAddressError:
        return ""


def resolve_bases(reader: Reader, module: Module, address_map: AddressMap) -> dict[str, ResolvedBase]:
    """Find every base.

    Raises:
        RefusedError: naming the bases that were not found, and the game's version if it is another one.
    """
    version = read_version(reader, module)
    other = bool(version and address_map.version) and version != address_map.version
    patterns = {name: compile_pattern(base.pattern) for name, base in address_map.bases.items() if base.pattern}
    matches = reader.scan(module, patterns)
    found = {
        name: _resolve(reader, module, base, matches.get(name, []), other) for name, base in address_map.bases.items()
    }
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
    """Reach a game on this machine through its memory and keys; see `link.Link`."""

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
        attach = partial(attach_game, self._settings, self.address_map)
        self._game = attach_within(timeout_s, attach, NoPermissionError, self._sleep)
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

    @property
    def version(self) -> str:
        """File version of the game that is attached, such as "1.15.2.0"; empty for none, or where it has none."""
        return self._game.version if self._game else ""

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


_POINTER_SIZE = 8
#: A character that was never found is looked for again after this time.
_SEARCH_EVERY_S = 1.0
_A_NAME = re.compile(r"c\d{4}")
#: Longer lists are none of characters in one block, and none of items.
_MOST_ENTRIES, _MOST_ITEMS = 4096, 1 << 16


Values = dict[str, float | str]


class ResolvedBase(NamedTuple):
    """The address of a base and how it was found: by "pattern" or "rva", with a note on anything unusual."""

    address: int
    dereference: bool
    found_by: str
    note: str = ""


def find_character(reader: Reader, start: int, walk: Walk) -> Chain | None:
    """Walk the loaded blocks from the object at `start`; return the chain to the pointer of the first of that name.

    Broken blocks and characters are skipped (layout: fromsoftware-rs, darksouls3).

    Raises:
        LinkError: as the reader does.
    """
    try:
        loaded = int(reader.read_value(start + walk.count_at, "i32"))
        blocks = _pointers(reader, start + walk.blocks_at, walk.most_blocks, _POINTER_SIZE)
    except BadAddressError:
        return None
    for number, block in enumerate(blocks[: max(loaded, 0)]):
        for entry, one in enumerate(_loaded_in(reader, block, walk)):
            if one and _name(reader, one, walk.name_offsets, walk) == walk.name:
                place = walk.blocks_at + _POINTER_SIZE * number
                return Chain(walk.base, (place, walk.entries_at, entry * walk.entry_size))
    return None


def _loaded_in(reader: Reader, block: int, walk: Walk) -> list[int]:
    with suppress(BadAddressError):
        capacity = int(reader.read_value(block + walk.capacity_at, "u32"))
        entries = reader.read_pointer(block + walk.entries_at)
        if entries and 0 < capacity <= _MOST_ENTRIES:
            return _pointers(reader, entries, capacity, walk.entry_size)
    return []


def _name(reader: Reader, start: int, offsets: tuple[int, ...], walk: Walk) -> str:
    try:
        return decode_text(reader.read(reader.follow(start, offsets), walk.name_bytes))
    except BadAddressError:
        return ""


def _pointers(reader: Reader, address: int, count: int, stride: int) -> list[int]:
    data = reader.read(address, count * stride)
    return [int.from_bytes(data[at : at + _POINTER_SIZE], "little") for at in range(0, len(data), stride)]


class GameMemory:
    """The fields of a running game.

    No pointer is trusted: each reading and each write walks the chains, or reads the pointers of the last walk again in
    the same call as the values, and compares them. `found` has the chains of the characters that were found by name;
    the others are where the map's chain leads.
    """

    def __init__(
        self,
        reader: Reader,
        address_map: AddressMap,
        bases: Mapping[str, ResolvedBase],
        clock_s: Callable[[], float] = monotonic,
    ) -> None:
        self._reader, self.address_map, self.bases, self._clock_s = reader, address_map, bases, clock_s
        self._walks = {name: one.walk for name, one in address_map.characters.items() if one.walk.name}
        self._searched_at_s = -inf
        self.found: dict[str, Chain] = {}
        #: The pointers that the last reading went by.
        self._pointers: dict[int, int] = {}
        #: Reads everything again where it was, and returns None where a pointer or a character is another.
        self._again: Callable[[], Values | None] = lambda: None

    def read(self) -> Reading:
        """Return every readable field in one go.

        An unverified field that cannot be read is NaN, or an empty text.

        Raises:
            LinkError: if another cannot be read.
        """
        values = self._again() if self.found.keys() == self._walks.keys() else None
        if values is None:
            self._find(self._walks)
            values = self._walk()
        for name, inventory in self.address_map.inventories.items():
            try:
                values[name] = float(sum(self._items(name, inventory, self._pointers).values()))
            except BadAddressError:
                if inventory.verified:
                    raise
                values[name] = nan
        return values

    def _walk(self) -> Values:
        """Follow the chain of every field."""
        values, places = Values(), list[tuple[int, str, FieldEncoding]]()
        pointers = self._pointers = {}
        for name, entry in self.address_map.fields.items():
            try:
                address = self._reader.follow(*self._way(entry.base, entry.offsets), pointers)
                values[name] = entry.decode(self._reader.read(address, entry.size))
                places.append((address, name, entry))
            except BadAddressError:
                if entry.verified:
                    raise
                values[name] = "" if entry.type == "utf16" else nan
        for name, walk in self._walks.items():
            address = self._reader.follow(*self._way(name, walk.name_offsets), pointers)
            places.append((address, name, FieldEncoding(type="utf16", room=walk.name_bytes)))
        for name, inventory in self.address_map.inventories.items():
            with suppress(BadAddressError):
                self._items(name, inventory, pointers)
        if len(places) == len(values) + len(self._walks):
            self._again = self._repeat(pointers, places)
        return values

    def _repeat(
        self, pointers: Mapping[int, int], places: list[tuple[int, str, FieldEncoding]]
    ) -> Callable[[], Values | None]:
        """Return a function that reads all places in one call, None if a pointer or a character differs."""
        gather = self._reader.gatherer([*((at, 8) for at in pointers), *((at, one.size) for at, _, one in places)])
        layout = struct.Struct(f"<{len(pointers)}Q" + "".join(f"{one.size}s" for _, _, one in places))
        expected = tuple(pointers.values())

        def again() -> Values | None:
            try:
                data = layout.unpack(gather())
            except BadAddressError:
                return None
            parts = zip(places, data[len(expected) :], strict=True)
            values = {name: one.decode(part) for (_, name, one), part in parts}
            there = [values.pop(name) == walk.name for name, walk in self._walks.items()]
            return values if all(there) and data[: len(expected)] == expected else None

        return again

    def address(self, name: str) -> int:
        """Return where a field lies now, of an item its first quantity; raises `LinkError` if its chain is broken."""
        self._find([self.address_map.entry(name).base])
        return self._address(name)

    def look_up(self, name: str) -> tuple[int, float | str]:
        """Read one field by itself; return its address and its value.

        Raises:
            LinkError: if its chain is broken.
        """
        address, entry = self.address(name), self.address_map.entry(name)
        if isinstance(entry, Inventory):
            return address, self._reader.read_value(address, "u32")
        return address, entry.decode(self._reader.read(address, entry.size))

    def write(self, values: Mapping[str, float]) -> None:
        """Write fields by name, those that touch in one piece.

        Raises:
            GameError: if a value does not fit its field; nothing is written then.
            LinkError: if a field cannot be reached.
        """
        self._find([self.address_map.entry(name).base for name in values])
        parts: dict[int, bytes] = {}
        for name, value in values.items():
            entry, address = self.address_map.entry(name), self._address(name)
            if isinstance(entry, Inventory):
                parts[address] = pack("u32", value)
            else:
                # A bit leaves the others as they are now, or as they are about to be written.
                before = parts.get(address) or (self._reader.read(address, 1) if entry.type == "bit" else b"")
                parts[address] = entry.encode(value, before)
        self._reader.write_parts(parts)

    def _address(self, name: str) -> int:
        entry = self.address_map.entry(name)
        if isinstance(entry, Entry):
            return self._reader.follow(*self._way(entry.base, entry.offsets))
        for address in self._items(name, entry, {}):
            return address + entry.quantity_at
        raise BadAddressError(0, f"{name} in the inventory")

    def _items(self, name: str, inventory: Inventory, pointers: dict[int, int]) -> dict[int, int]:
        """Return an item's quantities by the addresses of the entries that hold it.

        Raises:
            BadAddressError: if no list of the inventory is there.
        """
        found, lists, size = dict[int, int](), 0, inventory.entry_size
        for one in inventory.lists:
            way = self._way(inventory.base, (*inventory.offsets, one.entries_at, 0))
            capacity_at = self._way(inventory.base, (*inventory.offsets, one.capacity_at))
            capacity = int(self._reader.read_value(self._reader.follow(*capacity_at, pointers), "u32"))
            with suppress(BadAddressError):
                start = self._reader.follow(*way, pointers)
                if 0 < capacity <= _MOST_ITEMS:
                    quantities = inventory.quantities(self._reader.read(start, capacity * size))
                    found |= {start + entry * size: quantity for entry, quantity in quantities.items()}
                    lists += 1
        if not lists:
            raise BadAddressError(0, f"the lists of {name}")
        return found

    def _find(self, bases: Iterable[str]) -> None:
        """Find those of some bases that are characters with a name, again where they no longer are.

        Raises:
            LinkError: if one found before is gone, or the chain of one never found leads to another.
        """
        for name in self._walks.keys() & bases:
            walk = self._walks[name]
            text = _name(self._reader, *self._way(name, walk.name_offsets), walk)
            due = name in self.found or self._clock_s() - self._searched_at_s >= _SEARCH_EVERY_S
            if due and not (name in self.found and text == walk.name):
                self._searched_at_s = self._clock_s()
                start = self._reader.follow(*self._way(walk.base, (0,)))
                chain = find_character(self._reader, start, walk)
                if chain is not None:
                    self.found[name] = chain
                elif name in self.found:
                    raise BadAddressError(start, f"the character {walk.name} among those loaded")
            if name not in self.found and text != walk.name and _A_NAME.fullmatch(text):
                raise LinkError(
                    f"{name}: expected the character {walk.name} at its chain, found {text}; is it another fight?"
                )

    def _way(self, base: str, offsets: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        """Return the address that a chain of the map starts from, and its offsets from there."""
        found = self.found.get(base)
        chain = Chain(found.base, found.offsets + offsets) if found else self.address_map.absolute(base, offsets)
        start = self.bases[chain.base]
        # The base's own address may hold the pointer to its object.
        return start.address, (0, *chain.offsets) if start.dereference else chain.offsets
