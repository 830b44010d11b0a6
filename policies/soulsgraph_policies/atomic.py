"""Write files and folders whole or not at all: a temporary neighbour first, then a rename."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from soulsgraph_envs.core.errors import SoulsGraphError, UnavailableError

_WRITE_REMEDIES = {
    errno.ENOSPC: "free some disk space and try again",
    errno.EDQUOT: "free some of your disk quota and try again",
    errno.EFBIG: "raise the file size limit (ulimit -f) and try again",
    errno.EROFS: "choose a folder on a writable disk",
    errno.EACCES: "choose another folder, or allow writing to it",
    errno.EPERM: "choose another folder, or allow writing to it",
    errno.ENOTDIR: "choose a path that leads through folders only",
}


class WriteError(SoulsGraphError):
    """A file or folder could not be written; nothing of it was left behind."""

    def __init__(self, path: object, error: OSError) -> None:
        remedy = _WRITE_REMEDIES.get(error.errno or 0, "check the path and the disk, and try again")
        super().__init__(f"{path}: expected a place to write to, found: {error.strerror or error}; {remedy}.")


class FullDiskError(WriteError, UnavailableError):
    """No space is left to write something now, which may be over by itself."""


class AccessError(SoulsGraphError):
    """The operating system refused access, and it is not known whether for reading or writing."""

    def __init__(self, path: object, error: OSError) -> None:
        super().__init__(
            f"{path}: expected to read or write it, found: {error.strerror or error}; allow it, or name another place."
        )


@contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Raise the operating system's errors of writing as a `WriteError` that names `path`."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise (FullDiskError if full else WriteError)(path, error) from error


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write; at the end it becomes `path`, on any error it is removed.

    Raises:
        WriteError: if the disk is full, the folder read-only, or the path cannot be made.
    """
    with _beside(path) as temporary:
        yield temporary
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)


@contextmanager
def whole_folder(path: Path, replace: bool = False) -> Iterator[Path]:
    """Yield a temporary folder to fill; at the end it becomes `path`.

    `path` must not exist before, unless it is to be replaced: then it stays whole until the new one is.

    Raises:
        WriteError: if `path` exists by then, or cannot be written.
    """
    with _beside(path) as temporary, _beside(path) as replaced:
        temporary.mkdir()
        yield temporary
        for file in temporary.rglob("*"):
            _sync(file)
        if path.exists():
            if not replace:
                raise FileExistsError(errno.EEXIST, "something of that name, which is never overwritten")
            path.rename(replaced)
        try:
            temporary.rename(path)
        except OSError:
            if replaced.exists():
                replaced.rename(path)
            raise
        _sync(path.parent)


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Yield a path of the same name in a temporary folder beside it, which is removed at the end."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.", ignore_cleanup_errors=True) as folder:
            yield Path(folder) / path.name


def check_writable(folder: Path) -> None:
    """Check, before long work, that its results can be written into a folder; nothing is left there.

    Raises:
        WriteError: if they cannot.
    """
    with writing(folder):
        TemporaryFile(dir=next(place for place in (folder, *folder.parents) if place.exists())).close()


def _sync(path: Path) -> None:
    windows = os.name == "nt"
    if windows and path.is_dir():
        return  # There a folder cannot be opened, and a rename is journaled.
    # Windows flushes only what is open for writing.
    handle = os.open(path, os.O_RDWR if windows else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
