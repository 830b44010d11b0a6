"""The fleet's file, on the head: where it listens, which PCs it has, and what it tolerates; and what lies beside it.

That is a lock, for one head at a time (two would take turns on the port, and share the PCs), and the PCs that are
drained: a running gateway looks at that file, and lets them play no longer.
"""

from __future__ import annotations

import errno
import hashlib
import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated

import soulsgraph_envs
from soulsgraph_envs.core import access
from soulsgraph_envs.core.access import is_loopback
from soulsgraph_envs.core.config import Between, Where, load, to_json, to_table
from soulsgraph_envs.core.errors import SoulsGraphError, shown
from soulsgraph_envs.core.files import FileLock, HeldError, locked, write_text, writing
from soulsgraph_envs.core.meaning import meaning

#: The version of the messages between a PC and the head.
PROTOCOL = 1
SERVICE, METHOD = "soulsgraph.fleet.v1.Fleet", "Play"
#: A chunk or a message of weights is a few tens of kilobytes; whatever is larger is refused unread.
MOST_MESSAGE_BYTES = 4 * 2**20
#: After this silence a PC counts as lost.
SILENT_AFTER_S = 5.0
#: How the names of a game's metrics begin that have a phase of its resets, or a reason, behind.
RESET_S, LOST_EPISODES = "reset_s/", "lost_episodes/"


class State:
    """States of a game, as its health says, and of what is not connected."""

    OPENING, WAITING = "opening the game", "waiting for a task"
    PLAYING, LAST_FIGHT = "playing", "playing its last fight"
    BROKEN, CANNOT_PLAY, PAUSED, DRAINED = "broken", "cannot play", "paused", "drained"
    REFUSED = "refused"
    #: A game that was connected, and a PC that never was in the stage.
    LOST, NOT_SEEN = "lost", "not seen"
    #: A game that was connected when its stage was over, in the last status of that.
    ENDED = "stage over"
    #: In these people may be needed.
    OUT_OF_PLAY = (BROKEN, CANNOT_PLAY, PAUSED, DRAINED)
    #: Those that a person brought about and ends: they are waited for, however long.
    PUT_ASIDE = (PAUSED, DRAINED)


class FleetError(SoulsGraphError):
    """A fleet's file, token, certificate or message cannot be used."""


_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")


def check_name(name: str) -> str:
    """Return a PC's name.

    Raises:
        FleetError: unless it has 1 to 40 letters, digits, `-` and `_`.
    """
    if not _NAME.fullmatch(name):
        found = shown(name)
        raise FleetError(f"PC: expected a name of 1 to 40 letters, digits, - and _, found {found}; choose another.")
    return name


def split_address(address: str, name: str = "metrics") -> tuple[str, int]:
    """Return the host and the port of HOST:PORT, a value of the fleet's file; an IPv6 host without its brackets.

    Raises:
        FleetError: if it is none.
    """
    try:
        return access.split_address(address)
    except ValueError as error:
        raise FleetError(
            f"fleet: expected `{name}` as HOST:PORT, found {address!r}; correct the fleet's file, with brackets around "
            "an IPv6 address, as [::1]:7443."
        ) from error


@dataclass(frozen=True)
class PC:
    """What one game PC is allowed."""

    #: At most this part of what is learned from may come from it while other PCs play.
    share: Annotated[float, Between(0.01, 1.0)] = 1.0
    #: The fastest that its games may run; their own file may say less.
    most_speed: Annotated[float, Between(0.1, 100.0)] = 100.0


@dataclass(frozen=True)
class FleetSettings:
    """A fleet as its file says; paths are relative to the file.

    Raises:
        FleetError: if it listens to other machines without a certificate, or for a PC's name that is none.
    """

    #: Host and port that PCs dial; a port of 0 is any free one.
    listen: str = "127.0.0.1:7443"
    #: Hashes of the PCs' tokens.
    tokens: str = "tokens.json"
    #: PEM files of the head's certificate and its key; without them the head listens on the loopback only.
    certificate: str = ""
    key: str = ""
    #: Host and port of the metrics for Prometheus; nowhere by default.
    metrics: str = ""
    #: Chunks of older weights are refused: control ticks, at the game's own pace.
    most_stale_ticks: Annotated[int, Between(1, 10**6)] = 1200
    #: The largest that a stage's journal may be; less is no use for the head's groups of chunks.
    journal_mb: Annotated[float, Between(256.0, 1e6)] = 1000.0
    #: A stage fails after this time without a game that could play.
    alone_for_s: Annotated[float, Between(1.0, 1e6)] = 300.0
    pcs: Mapping[str, PC] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.pcs:
            check_name(name)
        if bool(self.certificate) != bool(self.key):
            raise FleetError("fleet: expected `certificate` and `key` together, found one of them; name both or none.")
        for name, address in (("listen", self.listen), ("metrics", self.metrics or "127.0.0.1:0")):
            host, _ = split_address(address, name)
            if not self.certificate and not is_loopback(host):
                raise FleetError(
                    f"fleet: expected a certificate and its key to listen on {host}, found none; make them, or listen "
                    "on 127.0.0.1."
                )

    @property
    def journal_bytes(self) -> int:
        """`journal_mb` in bytes."""
        return int(self.journal_mb * 10**6)


@dataclass(frozen=True)
class Fleet:
    """A fleet's settings, and the folder of its file, where its tokens and certificates are."""

    settings: FleetSettings
    folder: Path


def load_fleet(path: Path) -> Fleet:
    """Read a fleet's file.

    Raises:
        DataError: for a missing, misspelt or mistyped value.
        FleetError: as `FleetSettings`.
    """
    return Fleet(load(FleetSettings, Where(path)), path.absolute().parent)


#: The Python files that decide a transition, below the folder of each package. Of the world all but what only shows or
#: serves it to others; of the mind and of the fleet what a game's process plays by.
_DECIDING: Mapping[str, Sequence[str]] = {
    "soulsgraph_envs": ("*.py", "combat/**/*.py", "core/**/*.py", "games/*.py", "simulator/**/*.py"),
    "soulsgraph_policies": (
        *("agents/inference.py", "agents/library.py", "agents/projects.py"),
        *("learning/hyperparameters.py", "learning/sampler.py", "learning/real_time.py"),
    ),
    "soulsgraph_clusters": (
        *("fleet/protocol/messages.py", "fleet/protocol/task.py", "fleet/actor/player.py", "fleet/actor/spool.py"),
    ),
}


@cache
def digests() -> dict[str, str]:
    """Return hashes of what play depends on: the shipped data, the skills' code, and all code that decides with it."""
    package = Path(soulsgraph_envs.__file__).parent
    # Line ends differ where git checks files out on Windows.
    data = {
        name: file.read_bytes().replace(b"\r\n", b"\n") for name, file in _below(package / "data", "*.toml").items()
    }
    return {
        "data": _digest(data),
        "skills": _digest_of_code(_below(package / "skills", "*.py")),
        "code": _digest_of_code(deciding_files()),
    }


def deciding_files() -> dict[str, Path]:
    """Return the Python files that decide a transition, by package and path."""
    folders = {name: Path(str(import_module(name).__file__)).parent for name in _DECIDING}
    files = [(name, file) for name in _DECIDING for pattern in _DECIDING[name] for file in folders[name].glob(pattern)]
    return {f"{name}/{file.relative_to(folders[name]).as_posix()}": file for name, file in files}


def _below(folder: Path, pattern: str) -> dict[str, Path]:
    return {file.relative_to(folder).as_posix(): file for file in folder.rglob(pattern)}


def _digest_of_code(files: Mapping[str, Path]) -> str:
    return _digest({name: meaning(file.read_bytes()).encode() for name, file in files.items()})


def _digest(contents: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in sorted(contents.items()):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


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
            lock = FileLock(fleet.folder / _LOCK)
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
        write_text(folder / _DRAINED_FILE, f"{text}\n")
