"""The fleet's file, on the head: where it listens, which PCs it has, and what it tolerates.

A lock lies beside it, for one head at a time: two would take turns on the port, and share the PCs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated

from soulsgraph_envs.core import access
from soulsgraph_envs.core.access import is_loopback
from soulsgraph_envs.core.config import Between, Where, load
from soulsgraph_envs.core.errors import SoulsGraphError, shown
from soulsgraph_envs.core.files import FileLock, HeldError, writing
from soulsgraph_envs.core.meaning import meaning

#: The version of the messages between a PC and the head.
PROTOCOL = 1
SERVICE, METHOD = "soulsgraph.fleet.v1.Fleet", "Play"
#: A chunk or a message of weights is a few tens of kilobytes; whatever is larger is refused unread.
MOST_MESSAGE_BYTES = 4 * 2**20
#: After this silence a PC counts as lost.
SILENT_AFTER_S = 5.0
#: The reason in the stop that a drained PC's games get.
DRAINED_REASON = "the head drained this PC"
#: How the names of a game's metrics begin that have a phase of its resets, or a reason, behind.
RESET_S, LOST_EPISODES = "reset_s/", "lost_episodes/"


class State:
    """States of a game, as its health says, and of what is not connected."""

    WAITING = "waiting for a task"
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


class InUseError(FleetError):
    """Another process has what is to be used: one that was killed may have it for a moment more."""


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
    #: The PCs that may play; without any every PC with a token may.
    pcs: tuple[str, ...] = ()

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


#: The files that decide a transition, below the folder of each package. Of the world all but what only shows or serves
#: it to others, and its data; of the mind and of the fleet what a game's process plays by.
_DECIDING: Mapping[str, Sequence[str]] = {
    "soulsgraph_envs": (
        *("*.py", "combat/**/*.py", "core/**/*.py", "games/*.py", "simulator/**/*.py", "skills/**/*.py"),
        "data/**/*.toml",
    ),
    "soulsgraph_policies": (
        *("agents/inference.py", "agents/library.py", "agents/projects.py"),
        *("learning/hyperparameters.py", "learning/sampler.py", "learning/real_time.py"),
    ),
    "soulsgraph_clusters": (
        *("fleet/protocol/messages.py", "fleet/protocol/task.py", "fleet/actor/player.py", "fleet/actor/spool.py"),
    ),
}


@cache
def play_digest() -> str:
    """Return a hash of what play depends on: the shipped data, and the meaning of all code that decides with it."""
    digest = hashlib.sha256()
    for name, file in sorted(deciding_files().items()):
        # Line ends differ where git checks files out on Windows.
        content = file.read_bytes().replace(b"\r\n", b"\n")
        content = meaning(content).encode() if file.suffix == ".py" else content
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def deciding_files() -> dict[str, Path]:
    """Return the files that decide a transition, by package and path."""
    folders = {name: Path(str(import_module(name).__file__)).parent for name in _DECIDING}
    files = [(name, file) for name in _DECIDING for pattern in _DECIDING[name] for file in folders[name].glob(pattern)]
    return {f"{name}/{file.relative_to(folders[name]).as_posix()}": file for name, file in files}


_LOCK = "head.lock"
#: What a head that was killed listened on is free after so long at most.
HELD_FOR_S = 20.0


@contextmanager
def sole_head(fleet: Fleet) -> Iterator[None]:
    """Keep other heads away from a fleet's file meanwhile.

    Raises:
        FleetError: if another head uses the file.
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
        yield
