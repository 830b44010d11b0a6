"""Temporary folders that are removed with the process that made them, however it ended."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a folder of mode 0700 with an unguessable name, and remove it at the end.

    Its process holds a lock on it. Folders of the same prefix without one, whose processes were killed, are
    removed first. `parent` is the system's folder for temporary files if not given.
    """
    parent = parent or Path(tempfile.gettempdir())
    for left in parent.glob(f"{prefix}*"):
        # A folder that cannot be locked is in use, another user's, or gone by now.
        with suppress(OSError), _locked(left, fcntl.LOCK_EX | fcntl.LOCK_NB):
            shutil.rmtree(left, ignore_errors=True)
    for left in parent.glob(f".{prefix}*"):
        # Empty as long as it has this name; a process that is about to lock it makes another.
        with suppress(OSError):
            left.rmdir()
    folder, lock = _made(prefix, parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _made(prefix: str, parent: Path) -> tuple[Path, int]:
    """Make a folder, and return it with what holds its lock."""
    while True:
        # A process that removes abandoned folders must not see this one before it is locked.
        hidden = Path(tempfile.mkdtemp(prefix=f".{prefix}", dir=parent))
        with suppress(FileNotFoundError):
            lock = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                # Where the file system has no locks, nobody else removes it either.
                with suppress(OSError):
                    fcntl.flock(lock, fcntl.LOCK_EX)
                return hidden.rename(hidden.with_name(hidden.name.removeprefix("."))), lock
            except BaseException:
                os.close(lock)
                raise


@contextmanager
def _locked(folder: Path, kind: int) -> Iterator[None]:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, kind)
        yield
    finally:
        os.close(lock)
