"""A separate program that releases keys when the process that pressed them is gone, however it ended.

It is started with that process's id, reads one line of JSON, `[module, class, arguments]`, opens a
device of its own and answers "ready", or one line with the error. Then it reads a line for every
key: `+w` before it goes down, `-w` after it came up. At end of file, or when the process is gone,
it releases whatever is down.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterable, Iterator

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.drivers.keyboard.device import KeyDevice

READY = "ready"
_INPUT = 0
#: What the dead process sent last may reach the game after the first release.
_AGAIN_AFTER_S = 0.1


def main() -> None:
    """Guard the keys of one process until it ends."""
    _outlive_signals()
    lines = _lines(int(sys.argv[1]))
    try:
        device = _open_device(next(lines, ""))
    except Exception as error:
        print(" ".join(str(error).split()), flush=True)
        return
    print(READY, flush=True)
    down = _follow(lines)
    for _ in range(2 if down else 0):
        _release(device, down)
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


def _lines(process: int) -> Iterator[str]:
    """Return the lines that come in until the end of file or of `process`.

    The process is watched too, because a child forked from it would hold the pipe open after its death.
    """
    watched = [_INPUT]
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            watched.append(os.pidfd_open(process))
    rest = b""
    while True:
        # Windows cannot select on pipes, and has nothing else to watch.
        ready = select.select(watched, [], [])[0] if len(watched) > 1 else watched
        piece = os.read(_INPUT, 4096) if _INPUT in ready else b""
        if not piece:
            return
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line.decode() for line in whole)


def _open_device(line: str) -> KeyDevice:
    module, name, arguments = json.loads(line)
    device = getattr(importlib.import_module(module), name)(*arguments)
    if not isinstance(device, KeyDevice):
        raise GameError(f"expected a key device, found {name} of {module}.")
    return device


def _follow(lines: Iterable[str]) -> list[str]:
    """Return the keys that are down when the lines end."""
    down: list[str] = []
    for line in lines:
        key = line[1:]
        if line.startswith("+"):
            down.append(key)
        else:
            down = [other for other in down if other != key]
    return down


def _release(device: KeyDevice, keys: list[str]) -> None:
    for key in reversed(keys):
        # With the game's display gone there is nothing left to let up.
        with contextlib.suppress(GameError):
            device.release(key)


if __name__ == "__main__":
    main()
