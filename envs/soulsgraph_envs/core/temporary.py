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
    # A process that removes abandoned folders must not see this one before it is locked.
    hidden = Path(tempfile.mkdtemp(prefix=f".{prefix}", dir=parent))
    with _locked(hidden, fcntl.LOCK_EX):
        folder = hidden.rename(hidden.with_name(hidden.name.removeprefix(".")))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path, kind: int) -> Iterator[None]:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, kind)
        yield
    finally:
        os.close(lock)
