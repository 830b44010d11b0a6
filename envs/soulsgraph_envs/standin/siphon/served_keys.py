"""Keys and mouse that clients of a server hold, released when the client is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from urllib.parse import unquote

import psutil

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.drivers.keyboard.device import MOUSE_BUTTONS, KeyDevice
from soulsgraph_envs.drivers.keyboard.x11 import XTestDevice, open_display, raised_as
from soulsgraph_envs.drivers.siphon.link import to_siphon

_STEP_S = 0.01


class DesktopInput:
    """Move the mouse and report what is down, whoever pressed it; thread-safe.

    Raises:
        GameError: if python-xlib is not installed, or the display cannot be reached.
    """

    def __init__(self, display: str = "") -> None:
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._display = open_display(display)
        self._device = XTestDevice(display)

    def move_mouse(self, right: int, down: int, steps: int) -> None:
        """Move the mouse by pixels in a number of steps, 10 ms apart; `close` ends it."""
        from Xlib import X
        from Xlib.ext.xtest import fake_input

        x = y = 0
        for step in range(1, steps + 1):
            if self._ending.wait(_STEP_S if step > 1 else 0.0):
                return
            to_x, to_y = right * step // steps, down * step // steps
            with self._lock, raised_as("mouse"):
                # Detail 1: relative to where it is.
                fake_input(self._display, X.MotionNotify, 1, x=to_x - x, y=to_y - y)
                self._display.sync()
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
            self._display.close()


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
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return _spell(host.strip("[]"), int(port))


def _spell(host: str, port: int) -> str:
    address = ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return f"{mapped or address} {port}"
