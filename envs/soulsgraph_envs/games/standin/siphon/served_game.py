"""The one process that a Siphon server serves: attributes found in it, read and written; keys and mouse held for it."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from urllib.parse import unquote

import psutil

from soulsgraph_envs.core.access import plain_host, split_address
from soulsgraph_envs.core.config import Where
from soulsgraph_envs.core.errors import GameError, UnknownNameError
from soulsgraph_envs.games.keyboard.device import MOUSE_BUTTONS, KeyDevice
from soulsgraph_envs.games.keyboard.x11 import XTestDevice
from soulsgraph_envs.games.memory.address_map import compile_pattern
from soulsgraph_envs.games.memory.reader import LinuxReader, Module, Reader
from soulsgraph_envs.games.realtime.link import LinkError
from soulsgraph_envs.games.siphon.attributes import Attribute, check_attribute, displacement_at
from soulsgraph_envs.games.siphon.link import to_siphon

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
            if not self.process_name:
                raise LinkError("Siphon: expected a configuration first, found none; send SetProcessConfig.")
            pid, reader = self._find(), self._reader
            if reader is None or reader.pid != pid or not reader.running():
                self._module = Module("", 0, 0)
                self._reader = reader = self._open_reader(pid)
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
        attribute, reader, address = self._find_attribute(name)
        data = reader.read(address, attribute.size)
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
        attribute, reader, address = self._find_attribute(name)
        if type(value) is not {"int": int, "float": float, "bool": bool, "array": bytes}[attribute.type]:
            found = type(value).__name__
            raise GameError(f"{name}: expected a value of type {attribute.type}, found {found}; send that.")
        if isinstance(value, bytes):
            if len(value) > attribute.length:
                raise GameError(f"{name}: expected at most {attribute.length} bytes, found {len(value)}; send fewer.")
            data = value
        elif isinstance(value, bool):
            mask = attribute.mask
            # Siphon writes 1 for a whole byte; of a part of it, every bit.
            bits = (1 if mask == 0xFF else mask) if value else 0
            data = bytes([reader.read(address, 1)[0] & ~mask & 0xFF | bits])
        else:
            data = struct.pack("<i" if isinstance(value, int) else "<f", value)
        reader.write(address, data)

    def close(self) -> None:
        """Let go of the process; a second call does nothing."""
        if self._reader is not None:
            self._reader.close()

    def _find_attribute(self, name: str) -> tuple[Attribute, Reader, int]:
        """Return an attribute, the reader, and the address that the attribute's chain leads to now."""
        attribute, reader = self._attributes.get(name), self._reader
        if attribute is None:
            raise UnknownNameError("attribute", name, self._attributes)
        if reader is None:
            raise LinkError("Siphon: expected the memory to be initialized, found it not; send InitializeMemory.")
        return attribute, reader, reader.follow(self._start(name, attribute, reader), attribute.offsets)

    def _start(self, name: str, attribute: Attribute, reader: Reader) -> int:
        """Return the address that an attribute's chain starts from, read each time."""
        if attribute.method == "module":
            return self._module.base
        matches = self._matches.get(attribute.pattern)
        if not matches:
            raise LinkError(f"{name}: expected its pattern in the game, found it nowhere; is that another version?")
        if attribute.method != "dll":
            displacement = int(reader.read_value(matches[0] + displacement_at(attribute.pattern), "i32"))
            pointer = reader.read_pointer(matches[0] + _LENGTH + displacement)
        elif self._captured_slots:
            pointer = reader.read_pointer(matches[0] + _SLOT_AT)
        else:
            raise LinkError(
                f"{name}: expected a method that only reads, found 'dll'; this server injects no code into a game: "
                "use Siphon's own on Windows."
            )
        if not pointer:
            raise LinkError(f"{name}: expected a pointer, found none; is the game loading, or nothing locked on?")
        return pointer


_STEP_S = 0.01


class DesktopInput:
    """Move the mouse and report what is down, whoever pressed it; thread-safe.

    Raises:
        GameError: if python-xlib is not installed, or the display cannot be reached.
    """

    def __init__(self, display: str = "") -> None:
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._device = XTestDevice(display)

    def move_mouse(self, right: int, down: int, steps: int) -> None:
        """Move the mouse by pixels in a number of steps, 10 ms apart; `close` ends it."""
        x = y = 0
        for step in range(1, steps + 1):
            if self._ending.wait(_STEP_S if step > 1 else 0.0):
                return
            to_x, to_y = right * step // steps, down * step // steps
            with self._lock:
                self._device.move_mouse(to_x - x, to_y - y)
            x, y = to_x, to_y

    def down(self) -> list[str]:
        """Return the keys and mouse buttons that are down, by the names of Siphon's recordings."""
        with self._lock:
            down = self._device.down()
        return [("MOUSE_" if key in MOUSE_BUTTONS else "") + to_siphon(key) for key in down]

    def close(self) -> None:
        """Disconnect from the display; a second call does nothing."""
        self._ending.set()
        with self._lock:
            self._device.close()


_WATCH_S = 0.2


class ServedKeys:
    """Press keys for clients; `connected` returns those still connected, and keys of others are released.

    A key that two clients hold comes up when the last of them releases it.
    """

    def __init__(self, device: KeyDevice, connected: Callable[[], Collection[str]]) -> None:
        self._device, self._connected = device, connected
        self._lock = threading.Lock()
        self._held: dict[str, set[str]] = {}
        self._ending = threading.Event()
        self._watch = threading.Thread(target=self._release_the_gone, name="siphon keys", daemon=True)
        self._watch.start()

    def press(self, client: str, key: str) -> None:
        """Send a key down for a client; raises `GameError` if there is no such key."""
        with self._lock:
            self._device.check(key)
            self._wait(0.0)
            # Counted first: what fails halfway must come up too.
            holders = self._held.setdefault(key, set())
            holders.add(client)
            if len(holders) == 1:
                self._device.press(key)

    def release(self, client: str, key: str) -> None:
        """Send a key up for a client, unless another one holds it."""
        with self._lock:
            if not self._ending.is_set():
                self._device.check(key)
                self._let_go(client, key)

    def tap(self, client: str, keys: Sequence[str], hold_s: float, delay_s: float) -> None:
        """Press keys in turn, `delay_s` apart, hold them, and release them the other way round.

        Raises:
            GameError: if there is no such key, or the server ends meanwhile.
        """
        pressed: list[str] = []
        try:
            for key in keys:
                self._wait(delay_s if pressed else 0.0)
                self.press(client, key)
                pressed.append(key)
            self._wait(hold_s)
        finally:
            for number, key in enumerate(reversed(pressed)):
                self._ending.wait(delay_s if number else 0.0)
                self.release(client, key)

    def close(self) -> None:
        """Release every key and close the device; a second call does nothing."""
        self._ending.set()
        self._watch.join()
        with self._lock:
            self._let_go_but_for(())
            self._device.close()

    def _wait(self, seconds: float) -> None:
        if self._ending.wait(seconds):
            raise GameError("keys: expected a server that runs, found it ending.")

    def _let_go(self, client: str, key: str) -> None:
        holders = self._held.get(key, set())
        holders.discard(client)
        if not holders:
            self._held.pop(key, None)
            self._device.release(key)

    def _let_go_but_for(self, clients: Collection[str]) -> None:
        for key, holders in list(self._held.items()):
            for client in holders.difference(clients):
                with suppress(GameError):
                    self._let_go(client, key)

    def _release_the_gone(self) -> None:
        while not self._ending.wait(_WATCH_S):
            with self._lock:
                # Asked under the lock: who comes after the answer must not count as gone.
                self._let_go_but_for(self._connected() if self._held else ())


def connected_clients(port: int) -> frozenset[str]:
    """Return (address, port) of every client connected to a port of this process, in the form of `client_name`."""
    found = psutil.Process().net_connections("tcp")
    ends = [one.raddr for one in found if one.status == psutil.CONN_ESTABLISHED and one.laddr.port == port]
    return frozenset(_spell(end.ip, end.port) for end in ends)


def client_name(peer: str) -> str:
    """Return the (address, port) of a peer in gRPC's form, such as "ipv4:127.0.0.1:40122" or "ipv6:%5B::1%5D:40122"."""
    return _spell(*split_address(unquote(peer).partition(":")[2]))


def _spell(host: str, port: int) -> str:
    return f"{plain_host(host.partition('%')[0])} {port}"
