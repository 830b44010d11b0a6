"""One head at a time for a fleet's file: two would take turns on its port, and share its PCs."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from soulsgraph_clusters.fleet.settings import Fleet, FleetError, split_address
from soulsgraph_policies.atomic import writing

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
    with writing(fleet.folder / _LOCK):
        handle = os.open(fleet.folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FleetError(
                f"{fleet.folder}: expected no other head that uses this fleet's file, found one that trains or "
                "evaluates; wait for its end, or use a file with another `listen` in another folder."
            ) from error
        for name, address in (("listen", fleet.settings.listen), ("metrics", fleet.settings.metrics)):
            if address:
                _await_free(name, *split_address(address, name))
        yield
    finally:
        os.close(handle)


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
