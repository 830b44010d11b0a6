"""The one process that a Siphon server serves: attributes found in it, read and written."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Mapping

from soulsgraph_envs.core.config import Where
from soulsgraph_envs.core.errors import GameError, UnknownNameError
from soulsgraph_envs.drivers.memory.address_map import compile_pattern
from soulsgraph_envs.drivers.memory.reader import LinuxReader, Module, Reader
from soulsgraph_envs.drivers.realtime.link import LinkError
from soulsgraph_envs.drivers.siphon.attributes import Attribute, check_attribute, displacement_at

#: Siphon counts every displacement from here.
_LENGTH = 7
#: Where the stand-in keeps what a hook at a pattern would capture: right before it.
_SLOT_AT = -8
#: Attributes of all clients together.
_MOST_ATTRIBUTES = 4096

Value = int | float | bytes | bool


class ServedGame:
    """Read and write the attributes of one process, from all clients' configurations.

    `find` returns the process's id, or raises `LinkError` while it does not run. `captured_slots` says that
    the process is the stand-in, which keeps captured pointers of the method "dll" in its memory; in any
    other process that method would need injected code, and is refused.
    """

    def __init__(
        self, find: Callable[[], int], captured_slots: bool = False, open_reader: Callable[[int], Reader] = LinuxReader
    ) -> None:
        self._find, self._captured_slots, self._open_reader = find, captured_slots, open_reader
        self._lock = threading.Lock()
        self._attributes: dict[str, Attribute] = {}
        self._reader: Reader | None = None
        self._matches: dict[str, list[int]] = {}
        self._module = Module("", 0, 0)
        self.process_name = ""

    @property
    def configured(self) -> bool:
        """Return whether a client has configured the process."""
        return bool(self.process_name)

    @property
    def pid(self) -> int:
        """Return the id of the process that is read; 0 before `attach`, and when it has ended."""
        return self._reader.pid if self._reader is not None and self._reader.running() else 0

    def configure(self, process_name: str, attributes: Mapping[str, Attribute]) -> None:
        """Add a client's attributes to those of others; the latest of a name counts.

        Raises:
            GameError: for a process without a name or another than is served already, an attribute that no
                server can find, or too many.
        """
        if not process_name:
            raise GameError("Siphon: expected the name of the process in the configuration, found none; give it.")
        for name, attribute in attributes.items():
            check_attribute(attribute, Where("the configuration", f"attributes.{name}"))
        with self._lock:
            if process_name.lower() != self.process_name.lower():
                if self._module.size:
                    raise GameError(f"Siphon: expected {self.process_name}, served here, found {process_name!r}.")
                self._attributes = {}
            if len(self._attributes.keys() | attributes.keys()) > _MOST_ATTRIBUTES:
                raise GameError(f"Siphon: expected at most {_MOST_ATTRIBUTES} attributes, found more; name fewer.")
            self.process_name = process_name
            self._attributes |= attributes

    def attach(self) -> int:
        """Find the process and every pattern in it; return its id.

        Raises:
            LinkError: if it does not run, is another than the configured one, or reading is not permitted.
        """
        with self._lock:
            if not self.configured:
                raise LinkError("Siphon: expected a configuration first, found none; send SetProcessConfig.")
            reader = self._open(self._find())
            module = reader.module(self.process_name)
            if module != self._module:
                self._matches, self._module = {}, module
            wanted = {each.pattern for each in self._attributes.values() if each.pattern} - self._matches.keys()
            self._matches |= reader.scan(module, {pattern: compile_pattern(pattern) for pattern in wanted})
            return reader.pid

    def read(self, name: str) -> Value:
        """Read an attribute as its type says.

        Raises:
            UnknownNameError: if no client configured it.
            LinkError: if it cannot be reached.
        """
        attribute, reader = self._attribute(name), self._attached()
        data = reader.read(self._address(name, attribute, reader), attribute.size)
        if attribute.type == "int":
            return int.from_bytes(data, "little", signed=True)
        if attribute.type == "float":
            return float(struct.unpack("<f", data)[0])
        return bool(data[0] & attribute.mask) if attribute.type == "bool" else data

    def write(self, name: str, value: Value) -> None:
        """Write an attribute: a "bool" the bits of its mask alone, an array as many bytes as are given.

        Raises:
            UnknownNameError: if no client configured it.
            GameError: for a value of another type, or an array longer than the attribute.
            LinkError: if it cannot be reached.
        """
        attribute, reader = self._attribute(name), self._attached()
        if type(value) is not {"int": int, "float": float, "bool": bool, "array": bytes}[attribute.type]:
            found = type(value).__name__
            raise GameError(f"{name}: expected a value of type {attribute.type}, found {found}; send that.")
        address = self._address(name, attribute, reader)
        reader.write(address, self._encode(name, attribute, value, reader, address))

    def close(self) -> None:
        """Let go of the process; a second call does nothing."""
        if self._reader is not None:
            self._reader.close()

    def _open(self, pid: int) -> Reader:
        if self._reader is None or self._reader.pid != pid or not self._reader.running():
            self._module = Module("", 0, 0)
            self._reader = self._open_reader(pid)
        return self._reader

    def _attached(self) -> Reader:
        if self._reader is None:
            raise LinkError("Siphon: expected the memory to be initialized, found it not; send InitializeMemory.")
        return self._reader

    def _attribute(self, name: str) -> Attribute:
        attribute = self._attributes.get(name)
        if attribute is None:
            raise UnknownNameError("attribute", name, self._attributes)
        return attribute

    def _address(self, name: str, attribute: Attribute, reader: Reader) -> int:
        return reader.follow(self._start(name, attribute, reader), attribute.offsets)

    def _start(self, name: str, attribute: Attribute, reader: Reader) -> int:
        """Return the address that an attribute's chain starts from, read each time."""
        if attribute.method == "module":
            return self._module.base
        matches = self._matches.get(attribute.pattern)
        if not matches:
            raise LinkError(f"{name}: expected its pattern in the game, found it nowhere; is that another version?")
        match = matches[0]
        if attribute.method == "dll":
            return self._captured(name, reader, match)
        displacement = int(reader.read_value(match + displacement_at(attribute.pattern), "i32"))
        return _not_null(name, reader.read_pointer(match + _LENGTH + displacement))

    def _captured(self, name: str, reader: Reader, match: int) -> int:
        if not self._captured_slots:
            raise LinkError(
                f"{name}: expected a method that only reads, found 'dll'; this server injects no code into a game: "
                "use Siphon's own on Windows."
            )
        return _not_null(name, reader.read_pointer(match + _SLOT_AT))

    @staticmethod
    def _encode(name: str, attribute: Attribute, value: Value, reader: Reader, address: int) -> bytes:
        if isinstance(value, bytes):
            if len(value) > attribute.length:
                raise GameError(f"{name}: expected at most {attribute.length} bytes, found {len(value)}; send fewer.")
            return value
        if isinstance(value, bool):
            mask = attribute.mask
            # Siphon writes 1 for a whole byte; of a part of it, every bit.
            bits = (1 if mask == 0xFF else mask) if value else 0
            return bytes([reader.read(address, 1)[0] & ~mask & 0xFF | bits])
        return struct.pack("<i" if isinstance(value, int) else "<f", value)


def _not_null(name: str, pointer: int) -> int:
    if not pointer:
        raise LinkError(f"{name}: expected a pointer, found none; is the game loading, or nothing locked on?")
    return pointer
