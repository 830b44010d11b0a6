"""What heads keep beside a fleet's file: a lock, for one head at a time, and the PCs that are drained.

Two heads would take turns on the port, and share the PCs. A running gateway looks at the file of drained PCs, which it
lets play no longer.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetError, check_name, split_address
from soulsgraph_envs.core.config import Where, load, to_json, to_table
from soulsgraph_envs.core.files import locked, whole_file, writing
from soulsgraph_envs.core.locks import FileLock, HeldError

_LOCK = "head.lock"
#: What a head that was killed listened on is free after so long at most.
HELD_FOR_S = 20.0
_RETRY_AFTER_S = 0.2


@contextmanager
def sole_head(fleet: Fleet) -> Iterator[None]:
    """Keep other heads away from a fleet's file meanwhile; what it listens on must be free, and this machine's.

    Raises:
        FleetError: if another head uses the file, or its addresses cannot be listened on.
        WriteError: if the file's folder cannot be written.
    """
    try:
        with writing(fleet.folder / _LOCK):
            lock = FileLock(fleet.folder / _LOCK, mode=0o600)
    except HeldError as error:
        raise FleetError(
            f"{fleet.folder}: expected no other head that uses this fleet's file, found one that trains or "
            "evaluates; wait for its end, or use a file with another `listen` in another folder."
        ) from error
    with lock:
        for name, address in (("listen", fleet.settings.listen), ("metrics", fleet.settings.metrics)):
            if address:
                _await_free(name, *split_address(address, name))
        yield


def _await_free(name: str, host: str, port: int) -> None:
    until_s = time.monotonic() + HELD_FOR_S
    while True:
        try:
            _bind(host, port)
            return
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise FleetError(
                    f"fleet: expected `{name}` as an address of this machine, found {host}, which is none; correct the "
                    "fleet's file."
                ) from error
            if time.monotonic() > until_s:
                raise FleetError(
                    f"fleet: expected port {port} of {host} free for `{name}`, found that another program listens "
                    "there; end that program, or choose another port."
                ) from error
        time.sleep(_RETRY_AFTER_S)


def _bind(host: str, port: int) -> None:
    family, kind, *_, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    with socket.socket(family, kind) as probe:
        with suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(where)


#: The reason in the stop that a drained PC's games get.
DRAINED_REASON = "the head drained this PC"
_DRAINED_FILE = "drained.json"


@dataclass(frozen=True)
class _DrainList:
    """The PCs by name."""

    pcs: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in self.pcs:
            check_name(name)


def read_drained(folder: Path) -> frozenset[str]:
    """Return the PCs that play no longer.

    Raises:
        DataError: if the file is damaged.
        FleetError: if it has a name that no PC can have.
    """
    file = folder / _DRAINED_FILE
    return frozenset(load(_DrainList, Where(file)).pcs) if file.exists() else frozenset()


def set_drained(folder: Path, pc: str, drained: bool) -> None:
    """Let a PC play no longer, or again.

    Raises:
        FleetError: for a name that no PC can have.
        WriteError: if the file cannot be written.
    """
    check_name(pc)
    with locked(folder):
        names = read_drained(folder) | {pc} if drained else read_drained(folder) - {pc}
        if not names:
            with writing(folder / _DRAINED_FILE):
                (folder / _DRAINED_FILE).unlink(missing_ok=True)
            return
        text = to_json(to_table(_DrainList(tuple(sorted(names)))), indent=1)
        with whole_file(folder / _DRAINED_FILE) as temporary:
            temporary.write_text(f"{text}\n", encoding="utf-8")
