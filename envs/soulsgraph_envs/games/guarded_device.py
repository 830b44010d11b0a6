"""The key device of this system, whose keys come up even if the process is killed; and its windows.

Run as a program it is the guard of a process's keys: started with the process's id, and with the module, the class
and the arguments of a device, it opens that device and answers "ready", or one line with the error. Then it reads a
line for every key: `+w` before it goes down, `-w` after it came up. At end of file, or when the process is gone,
however it ended, it releases whatever is down.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.games.keys import KeyDevice, Window
from soulsgraph_envs.games.user32 import DirectInputDevice, find_user32_window
from soulsgraph_envs.games.x11 import XTestDevice, find_x11_window

_READY = "ready"
_INPUT = 0
#: What the dead process sent last may reach the game after the first release.
_AGAIN_AFTER_S = 0.1


class GuardedDevice:
    """Open `kind(*arguments)` here and once more in a guard, a process that releases keys when this one is gone.

    Raises:
        GameError: if the device cannot be opened, here or there.
    """

    def __init__(self, kind: Callable[..., KeyDevice], *arguments: str) -> None:
        self._device = kind(*arguments)
        self._opening = (kind.__module__, kind.__qualname__, *arguments)
        self._down: list[str] = []
        self._closed = False
        try:
            self._guard = _start_guard(self._opening)
        except BaseException:
            self._device.close()
            raise

    def check(self, key: str) -> None:
        """Raise `GameError` if the device has no such key."""
        self._device.check(key)

    def press(self, key: str) -> None:
        """Register the key with the guard, then send the key down."""
        if self._closed:
            raise GameError(f"key {key!r}: expected an open device, found a closed one.")
        self._device.check(key)
        self._down.append(key)
        self._tell(f"+{key}")
        self._device.press(key)

    def release(self, key: str) -> None:
        """Send the key up, then inform the guard; after `close` every key is up."""
        if self._closed:
            return
        self._device.release(key)
        self._down = [other for other in self._down if other != key]
        self._tell(f"-{key}")

    def close(self) -> None:
        """End the guard, which releases keys that are still down; a second call does nothing."""
        if not self._closed:
            self._closed = True
            _end_guard(self._guard)
            self._device.close()

    def _tell(self, line: str) -> None:
        try:
            self._guard.stdin.write(f"{line}\n".encode())
        except OSError:
            # Somebody ended the guard: another one takes over all that is down.
            _end_guard(self._guard)
            self._guard = _start_guard(self._opening)
            self._guard.stdin.write("".join(f"+{key}\n" for key in self._down).encode())


def _start_guard(opening: Sequence[str]) -> Any:
    """Return the guard's process, with pipes to it and from it."""
    guard: Any = subprocess.Popen(
        [sys.executable, "-P", "-m", "soulsgraph_envs.games.guarded_device", str(os.getpid()), *opening],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) | getattr(subprocess, "CREATE_NO_WINDOW", 0),
    )
    answer = guard.stdout.readline().decode().strip()
    if answer != _READY:
        _end_guard(guard)
        raise GameError(f"guard of the keys: expected it to open the device, found: {answer or 'no answer'}")
    if hasattr(os, "fork"):
        # The child of its own that guards lives on.
        guard.wait()
    return guard


def _end_guard(guard: Any) -> None:
    """Close the guard's input and wait until it has released all keys and ended."""
    with suppress(OSError):
        guard.stdin.close()
    guard.stdout.read()
    guard.stdout.close()
    guard.wait()


class HeldKeys:
    """Hold and tap keys of a device; no key stays down after a failure, the end of the context or of Python.

    With a device of `open_key_device` none stays down even if the process is killed.
    """

    def __init__(self, device: KeyDevice, sleep: Callable[[float], None] = time.sleep) -> None:
        self.device = device
        self._sleep = sleep
        self._down: list[str] = []
        weakref.finalize(self, _let_up, device, self._down)

    @property
    def down(self) -> tuple[str, ...]:
        """The keys that are down, in the order they were pressed."""
        return tuple(self._down)

    def hold(self, keys: Collection[str]) -> None:
        """Hold exactly these keys down: others come up first, then new ones go down in the order given."""
        with self._all_up_on_failure():
            for key in [key for key in reversed(self._down) if key not in keys]:
                self._release(key)
            for key in keys:
                self._press(key)

    def tap(self, keys: Sequence[str], for_s: float) -> None:
        """Press keys, wait and release them in the opposite order; a held key is released and pressed again."""
        with self._all_up_on_failure():
            for key in keys:
                self._release(key)
            for key in keys:
                self._press(key)
            if keys:
                self._sleep(for_s)
            for key in reversed(keys):
                self._release(key)

    def release_all(self) -> None:
        """Release every key.

        Raises:
            GameError: if the device failed at a key; the others are up, and it counts as up too.
        """
        failure = _let_up(self.device, self._down)
        if failure is not None:
            raise failure

    def __enter__(self) -> HeldKeys:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release_all()

    def _press(self, key: str) -> None:
        if key not in self._down:
            # Counted first: an interruption in between must not leave the key down.
            self._down.append(key)
            self.device.press(key)

    def _release(self, key: str) -> None:
        if key in self._down:
            self.device.release(key)
            self._down.remove(key)

    @contextmanager
    def _all_up_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            # What went wrong first is what the caller must hear of.
            with suppress(GameError):
                self.release_all()
            raise


def _let_up(device: KeyDevice, down: list[str]) -> GameError | None:
    """Release `down`, the latest first, and empty it; return the last failure."""
    failure = None
    while down:
        try:
            device.release(down[-1])
        except GameError as error:
            failure = error
        down.pop()
    return failure


def open_key_device(display: str = "") -> GuardedDevice:
    """Open the device that reaches games here: Windows' own, elsewhere an X display ("" is the environment's).

    Raises:
        GameError: if a package is missing or the display cannot be reached.
    """
    if sys.platform == "win32":
        return GuardedDevice(DirectInputDevice)
    return GuardedDevice(XTestDevice, display)


def find_window(title: str = "", pid: int = 0, display: str = "") -> Window:
    """Find a window by its whole title, by its process, or by both.

    Raises:
        GameError: if there is none, or more than one; the message names the titles found.
    """
    if sys.platform == "win32":
        return find_user32_window(title, pid)
    return find_x11_window(title, pid, display)


def main() -> None:
    """Guard the keys of one process until it ends."""
    _outlive_signals()
    process, module, name, *arguments = sys.argv[1:]
    # Before "ready": a process that has ended since could no longer be watched.
    watched = _watched(int(process))
    try:
        device: KeyDevice = getattr(import_module(module), name)(*arguments)
    except Exception as error:
        print(" ".join(str(error).split()), flush=True)
        return
    print(_READY, flush=True)
    down = _follow(_lines(watched))
    for _ in range(2 if down else 0):
        # With the game's display gone there is nothing left to let up.
        _let_up(device, list(down))
        time.sleep(_AGAIN_AFTER_S)
    device.close()


def _outlive_signals() -> None:
    """Ignore the signals by which Ctrl-C, a closed terminal or a process manager ends the guarded process."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    # Ray kills the children of a worker that leaves: a grandchild is not among them.
    if hasattr(os, "fork") and os.fork():
        os._exit(0)


def _watched(process: int) -> list[int]:
    """Return what becomes readable with a line, the end of file or the end of `process`.

    The process is watched too, because a child forked from it would hold the pipe open after its death.
    """
    watched = [_INPUT]
    if hasattr(os, "pidfd_open"):
        with suppress(OSError):
            watched.append(os.pidfd_open(process))
    return watched


def _lines(watched: list[int]) -> Iterator[str]:
    """Return the lines that come in until the end of file or of the process."""
    rest = b""
    while True:
        # Windows cannot select on pipes, and has nothing else to watch.
        ready = select.select(watched, [], [])[0] if len(watched) > 1 else watched
        piece = os.read(_INPUT, 4096) if _INPUT in ready else b""
        if not piece:
            return
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line.decode() for line in whole)


def _follow(lines: Iterable[str]) -> list[str]:
    """Return the keys that are down when the lines end."""
    down: list[str] = []
    for line in lines:
        key = line[1:]
        down = [other for other in down if other != key] + [key] * line.startswith("+")
    return down


if __name__ == "__main__":
    main()
