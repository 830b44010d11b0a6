"""The link of the memory driver: read and write a game's process here, press its keys, focus its window.

Fields are read and written by name: a game's characters are found by theirs, its items counted.
"""

from __future__ import annotations

import logging
import re
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf, nan
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from soulsgraph_envs.core.errors import GameError, UnknownNameError
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.games.address_map import (
    AddressMap,
    Base,
    Chain,
    Entry,
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


#: Most bytes between two neighbours that are read in one piece.
_GAP = 256
_POINTER, _POINTER_SIZE = "Q", 8
#: A character that was never found is looked for again after this time.
_SEARCH_EVERY_S = 1.0
_A_NAME = re.compile(r"c\d{4}")
#: Longer lists are none of characters in one block, and none of items.
_MOST_ENTRIES, _MOST_ITEMS = 4096, 1 << 16


Values = dict[str, Any]
#: The address that a chain of pointers starts from, and its offsets.
Way = tuple[int, tuple[int, ...]]


class ResolvedBase(NamedTuple):
    """The address of a base and how it was found: by "pattern" or "rva", with a note on anything unusual."""

    address: int
    dereference: bool
    found_by: str
    note: str = ""


class Leaf(NamedTuple):
    """A value at the end of a chain of pointers: where the chain starts, its offsets, the value's name and format.

    `missing` is its value if the chain breaks; None if that ends the reading.
    """

    start: int
    offsets: tuple[int, ...]
    name: str
    format: str
    convert: Callable[[Any], float | str]
    missing: float | str | None = None


class Layout:
    """Leaves read by walking their chains, and then in one call while no pointer changes."""

    def __init__(self, reader: Reader, leaves: Iterable[Leaf]) -> None:
        self._reader, self._leaves = reader, list(leaves)
        self._again: Callable[[], Values | None] = lambda: None

    def read(self) -> Values:
        """Return all values by name.

        Raises:
            LinkError: as the reader does; `BadAddressError` for a null pointer.
        """
        values = self._again()
        return self._walk() if values is None else values

    def _walk(self, at_once: bool = True) -> Values:
        """Follow every chain, then read all ends in one call; one by one if that fails."""
        values, pointers, places = Values(), dict[int, int](), list[tuple[int, Leaf]]()
        for leaf in self._leaves:
            try:
                address = self._reader.follow(leaf.start, leaf.offsets, pointers)
                if not at_once:
                    data = self._reader.read(address, struct.calcsize("<" + leaf.format))
                    values[leaf.name] = leaf.convert(*struct.unpack("<" + leaf.format, data))
                places.append((address, leaf))
            except BadAddressError:
                if leaf.missing is None:
                    raise
                values[leaf.name] = leaf.missing
        again = self._repeat(pointers, places)
        self._again = again if len(places) == len(self._leaves) else lambda: None
        found = again() if at_once else values
        return self._walk(at_once=False) if found is None else values | found

    def _repeat(self, pointers: Mapping[int, int], places: list[tuple[int, Leaf]]) -> Callable[[], Values | None]:
        """Return a function that reads all again, neighbours together; it returns None if a pointer has changed."""
        parts: list[tuple[int, str, Leaf | None]] = [(address, _POINTER, None) for address in pointers]
        parts += [(address, leaf.format, leaf) for address, leaf in places]
        parts.sort(key=lambda part: part[:2])
        spans, text, end = list[tuple[int, int]](), "<", 0
        for address, code, _ in parts:
            start = address
            # What overlaps its neighbour begins a piece of its own.
            if spans and end <= address <= end + _GAP:
                start, _ = spans.pop()
                text += f"{address - end}x"
            text, end = text + code, address + struct.calcsize("<" + code)
            spans.append((start, end - start))
        layout, gather = struct.Struct(text), self._reader.gatherer(spans)
        leaves = [(at, leaf.name, leaf.convert) for at, (_, _, leaf) in enumerate(parts) if leaf]
        expected = [(at, pointers[address]) for at, (address, _, leaf) in enumerate(parts) if not leaf]

        def again() -> Values | None:
            try:
                found = layout.unpack(gather())
            except BadAddressError:
                return None
            if any(found[at] != pointer for at, pointer in expected):
                return None
            return {name: convert(found[at]) for at, name, convert in leaves}

        return again


class Characters:
    """The addresses of a map's characters: by name once that has worked, until then by the map's own chain.

    `leaves` are the names to read along with the fields and to pass to `check`, so that another character
    in the same place is never mistaken for this one.
    """

    def __init__(
        self, reader: Reader, address_map: AddressMap, bases: Mapping[str, ResolvedBase], clock_s: Callable[[], float]
    ) -> None:
        self._reader, self._map, self._bases, self._clock_s = reader, address_map, bases, clock_s
        self._walks = {name: one.walk for name, one in address_map.characters.items() if one.walk.name}
        self._searched_at_s = -inf
        self.found: dict[str, Chain] = {}

    def way(self, base: str, offsets: tuple[int, ...]) -> Way:
        """Return the address that a chain of the map starts from, and its offsets from there."""
        found = self.found.get(base)
        chain = Chain(found.base, found.offsets + offsets) if found else self._map.absolute(base, offsets)
        start = self._bases[chain.base]
        # The base's own address may hold the pointer to its object.
        return start.address, (0, *chain.offsets) if start.dereference else chain.offsets

    def due(self) -> bool:
        """Return whether to search for a character that was never found."""
        return len(self.found) < len(self._walks) and self._clock_s() - self._searched_at_s >= _SEARCH_EVERY_S

    def search(self) -> bool:
        """Search for all characters; return whether one has moved.

        Raises:
            LinkError: if one that was found before is gone.
        """
        self._searched_at_s = self._clock_s()
        before = dict(self.found)
        for name, walk in self._walks.items():
            start = self._reader.follow(*self.way(walk.base, (0,)))
            chain = find_character(self._reader, start, walk)
            if chain is not None:
                self.found[name] = chain
            elif name in before:
                raise BadAddressError(start, f"the character {walk.name} among those loaded")
        return self.found != before

    def leaves(self) -> Iterator[Leaf]:
        """Return the leaves that read the characters' names."""
        for name, walk in self._walks.items():
            way, missing = self.way(name, walk.name_offsets), None if name in self.found else ""
            yield Leaf(*way, f"{name}.name", f"{walk.name_bytes}s", decode_text, missing)

    def check(self, values: Values) -> bool:
        """Remove the names from the values read; return whether the characters found are still there.

        Raises:
            LinkError: if the chain of one not found by name leads to another character.
        """
        return all([self._is_at(name, values.pop(f"{name}.name")) for name in self._walks])

    def confirm(self, name: str) -> bool:
        """Return False if a base is a character found by name that is no longer there; raises as `check`."""
        walk = self._walks.get(name)
        return walk is None or self._is_at(name, _name(self._reader, *self.way(name, walk.name_offsets), walk))

    def _is_at(self, name: str, text: str) -> bool:
        wanted = self._walks[name].name
        if name not in self.found and text != wanted and _A_NAME.fullmatch(text):
            raise LinkError(f"{name}: expected the character {wanted} at its chain, found {text}; is it another fight?")
        return name not in self.found or text == wanted


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


class ItemCounter:
    """Count one item: in the entries known to hold it, and in whole lists once it has left one."""

    def __init__(self, name: str, inventory: Inventory) -> None:
        self._keys = [(f"{name}[{at}].capacity", f"{name}[{at}].entries") for at in range(len(inventory.lists))]
        self._inventory = inventory
        self._lists: list[tuple[int, int]] = []
        self._known: list[int] = []

    def leaves(self, way: Callable[[str, tuple[int, ...]], Way]) -> Iterator[Leaf]:
        """Return the leaves that read capacity and entries of each list."""
        base, offsets, missing = self._inventory.base, self._inventory.offsets, None if self._inventory.verified else 0
        for (capacity, entries), one in zip(self._keys, self._inventory.lists, strict=True):
            yield Leaf(*way(base, (*offsets, one.capacity_at)), capacity, "I", int, missing)
            yield Leaf(*way(base, (*offsets, one.entries_at)), entries, _POINTER, int, missing)

    def lists(self, values: Values) -> list[tuple[int, int]]:
        """Return capacity and address of each list, taken from the values read."""
        return [(values.pop(capacity), values.pop(entries)) for capacity, entries in self._keys]

    def count(self, reader: Reader, values: Values) -> float:
        """Return the sum of the item's quantities, taking its lists from `values`; NaN if there are none.

        Raises:
            BadAddressError: if a list is not there and the inventory is verified.
        """
        lists = self.lists(values)
        try:
            return float(sum(self.find(reader, lists).values())) if any(entries for _, entries in lists) else nan
        except BadAddressError:
            if self._inventory.verified:
                raise
            return nan

    def find(self, reader: Reader, lists: list[tuple[int, int]]) -> dict[int, int]:
        """Return the item's quantities by the addresses of their entries; a list is its capacity and its address."""
        size, found = self._inventory.entry_size, dict[int, int]()
        if self._known and lists == self._lists:
            held = ((address, self._inventory.quantity(reader.read(address, size))) for address in self._known)
            known = {address: quantity for address, quantity in held if quantity is not None}
            if len(known) == len(self._known):
                return known
        for capacity, start in lists:
            if start and 0 < capacity <= _MOST_ITEMS:
                quantities = self._inventory.quantities(reader.read(start, capacity * size))
                found |= {start + entry * size: quantity for entry, quantity in quantities.items()}
        self._lists, self._known = lists, list(found)
        return found


class GameMemory:
    """The fields of a running game.

    No pointer is trusted: each reading and each write walks the chains again, or re-reads and compares
    every pointer of the last walk.
    """

    def __init__(
        self,
        reader: Reader,
        address_map: AddressMap,
        bases: Mapping[str, ResolvedBase],
        clock_s: Callable[[], float] = monotonic,
    ) -> None:
        self._reader, self.address_map, self.bases = reader, address_map, bases
        self._characters = Characters(reader, address_map, bases, clock_s)
        #: The characters that were found by name; the others are where their chain leads.
        self.found_by_name = self._characters.found.keys()
        self._counters = {name: ItemCounter(name, one) for name, one in address_map.inventories.items()}
        self._layout = Layout(reader, self._leaves())

    def read(self) -> Reading:
        """Return every readable field in one go.

        An unverified field that cannot be read is NaN, or an empty text.

        Raises:
            LinkError: if another cannot be read.
        """
        values = None if self._characters.due() else self._read()
        if values is None:
            self._search()
            values = self._read()
        if values is None:
            raise LinkError("the boss: expected it to stay where it was found, found it moving; is the game loading?")
        for name, counter in self._counters.items():
            values[name] = counter.count(self._reader, values)
        return values

    def address(self, name: str) -> int:
        """Return where a field lies now, of an item its first quantity; raises `LinkError` if its chain is broken."""
        self._confirm({self.address_map.entry(name).base})
        return self._address(name)

    def look_up(self, name: str) -> tuple[int, float | str]:
        """Read one field by itself; return its address and its value.

        Raises:
            LinkError: if its chain is broken.
        """
        address = self.address(name)
        if name in self._counters:
            return address, self._reader.read_value(address, "u32")
        entry = self.address_map.fields[name]
        return address, entry.decode(self._reader.read(address, entry.size))

    def write(self, values: Mapping[str, float]) -> None:
        """Write fields by name, those that touch in one piece.

        Raises:
            GameError: if a value does not fit its field; nothing is written then.
            LinkError: if a field cannot be reached.
        """
        self._confirm({self.address_map.entry(name).base for name in values})
        parts: dict[int, bytes] = {}
        for name, value in values.items():
            address = self._address(name)
            parts[address] = self._packed(name, value, parts.get(address, b""), address)
        self._reader.write_parts(parts)

    def _packed(self, name: str, value: float, before: bytes, address: int) -> bytes:
        """Return a value's bytes; for a bit, the byte with its other bits as read now or in `before`."""
        if name in self._counters:
            return pack("u32", value)
        entry = self.address_map.fields[name]
        if entry.type == "bit" and not before:
            before = self._reader.read(address, 1)
        return entry.encode(value, before)

    def _address(self, name: str) -> int:
        entry = self.address_map.entry(name)
        if isinstance(entry, Entry):
            return self._reader.follow(*self._characters.way(entry.base, entry.offsets))
        counter = self._counters[name]
        lists = counter.lists(Layout(self._reader, counter.leaves(self._characters.way)).read())
        for address in counter.find(self._reader, lists):
            return address + entry.quantity_at
        raise BadAddressError(lists[0][1], f"{name} in the inventory here")

    def _read(self) -> Values | None:
        """Read all fields; None if a character is no longer where it was found."""
        try:
            values = self._layout.read()
        except BadAddressError:
            if not self._characters.found:
                raise
            return None
        return values if self._characters.check(values) else None

    def _confirm(self, bases: Iterable[str]) -> None:
        """Check that characters are where they were found, before their memory is touched."""
        if self._characters.due() or not all(self._characters.confirm(base) for base in bases):
            self._search()

    def _search(self) -> None:
        """Search for the characters found by name, and lay the chains out again if one has moved."""
        if self._characters.search():
            self._layout = Layout(self._reader, self._leaves())

    def _leaves(self) -> Iterator[Leaf]:
        for name in self.address_map.readable() - self._counters.keys():
            entry = self.address_map.fields[name]
            missing = None if entry.verified else "" if entry.type == "utf16" else nan
            way = self._characters.way(entry.base, entry.offsets)
            yield Leaf(*way, name, entry.format, entry.converter(), missing)
        yield from self._characters.leaves()
        for counter in self._counters.values():
            yield from counter.leaves(self._characters.way)
