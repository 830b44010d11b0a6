"""Write files and folders whole or not at all, and on the disk: written beside, synced, then renamed.

What is written beside lies in a hidden folder that its writer locks. One whose writer was killed is removed by the next
writer there (`settle`), which first finishes what that one had begun to move. Temporary folders of a process are locked
and removed in the same way.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from soulsgraph_envs.core.config import to_json
from soulsgraph_envs.core.errors import SoulsGraphError, UnavailableError

_UNFINISHED = ".unfinished-"
#: In a temporary folder: its writer's lock; that what else is in it is complete; what that replaces.
_OWNER, _COMPLETE, _BEFORE = ".owner", ".complete", ".before"
#: The file that `locked` locks; it goes with the lock.
_TURN = ".turn"
#: On Windows nothing is renamed or replaced that any program has open, as a scanner of viruses what was just written.
_OPEN_FOR_S, _TRY_EVERY_S = 5.0, 0.05
_RETRY_AFTER_S = 0.02
#: Of a file system without locks, or whose server of locks does not answer; others are the disk's.
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.EBADF)


class WriteError(SoulsGraphError):
    """A file or folder could not be written; nothing of it was left behind."""

    def __init__(self, path: object, error: OSError) -> None:
        super().__init__(f"{path}: it cannot be written: {error.strerror or error}.")


class FullDiskError(WriteError, UnavailableError):
    """No space is left to write something now, which may be over by itself."""


@contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Raise the operating system's errors of writing as a `WriteError` that names `path`."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise (FullDiskError if full else WriteError)(path, error) from error


@contextmanager
def whole_file(path: Path, replace: bool = True) -> Iterator[Path]:
    """Yield a temporary path to write; at the end it becomes `path`, on any error it is removed.

    Raises:
        WriteError: if the disk is full, the folder read-only, or the path cannot be made; also if something is there by
            then and is not to be replaced.
    """
    with _inside(path.parent, path) as folder:
        yield folder / path.name
        sync_file(folder / path.name)
        if path.exists() and not replace:
            raise _never_overwritten()
        _rename(folder / path.name, path)
        sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file.

    Raises:
        WriteError: if the place cannot be written; what was there before stays.
    """
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write plain values as indented JSON.

    Raises:
        WriteError: as `write_text`.
    """
    write_text(path, to_json(value, indent=2) + "\n")


@contextmanager
def whole_folder(path: Path, replace: bool = False) -> Iterator[Path]:
    """Yield a temporary folder to fill; at the end it becomes `path`, which must be missing or empty, or is replaced.

    One that is replaced is missing between two renames; a writer that is killed there leaves the second to `settle`.

    Raises:
        WriteError: if something is at `path` by then, or it cannot be written.
    """
    with _inside(path.parent, path) as folder:
        (new := folder / path.name).mkdir()
        yield new
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
        if path.exists() and not replace:
            raise _never_overwritten()
        for inner in folder.rglob("*"):
            sync_folder(inner) if inner.is_dir() else sync_file(inner)
        (folder / _COMPLETE).touch()
        sync_folder(folder)
        sync_folder(path.parent)
        if replace and path.exists():
            _rename(path, folder / _BEFORE)
        _rename(new, path)
        sync_folder(path.parent)


def _clear(temporary: Path) -> None:
    """Remove a temporary folder, once what was begun to be moved from it is moved; an interruption leaves that too."""
    if (temporary / _COMPLETE).exists():
        for new in temporary.iterdir():
            if new.name not in (_OWNER, _COMPLETE, _BEFORE) and not (target := temporary.parent / new.name).exists():
                _rename(new, target)
        sync_folder(temporary.parent)
    shutil.rmtree(temporary, ignore_errors=True)


def _never_overwritten() -> FileExistsError:
    return FileExistsError(errno.EEXIST, "something of that name is there, which is never overwritten")


def _rename(path: Path, target: Path) -> None:
    """Rename, and replace the target where it is a file; on Windows wait for whoever has one of the two open."""
    until_s = time.monotonic() + _OPEN_FOR_S
    while True:
        try:
            path.replace(target)
            return
        except PermissionError:
            if os.name != "nt" or time.monotonic() > until_s:
                raise
        time.sleep(_TRY_EVERY_S)


@contextmanager
def _inside(folder: Path, path: Path) -> Iterator[Path]:
    """Yield a temporary folder in a folder, which is removed at the end; errors name a path."""
    with writing(path):
        make_folder(folder)
        settle(folder)
        with _temporary(folder, _UNFINISHED) as temporary:
            yield temporary


@contextmanager
def _temporary(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield a new folder of mode 0700 with a lock in it; remove it at the end."""
    owner = None
    while owner is None:
        folder = Path(tempfile.mkdtemp(dir=parent, prefix=prefix))
        # Another writer, that takes it for one that was left, has locked or removed it before.
        with suppress(FileNotFoundError, FileExistsError, HeldError):
            try:
                held = FileLock(folder / _OWNER)
                # It may have been removed between the file's opening and its lock.
                if (folder / _OWNER).exists():
                    owner = held
                else:
                    held.close()
            except LockError:
                break  # Without locks nobody else removes it either.
    try:
        yield folder
    finally:
        _clear(folder)
        if owner is not None:
            owner.close()
        # Windows removes no file that is open.
        shutil.rmtree(folder, ignore_errors=True)


def is_unfinished(path: Path) -> bool:
    """Return whether a path is what a writer uses for a while, or left when it was killed."""
    return path.name.startswith(_UNFINISHED)


def settle(folder: Path, prefix: str = _UNFINISHED) -> None:
    """Remove what killed writers left in a folder, once what they had begun to move is moved; living ones are left."""
    for left in folder.glob(f"{prefix}*"):
        # Another user's may not even be looked into.
        with suppress(OSError, HeldError, LockError):
            # What is not hidden and has no lock in it only looks like one of ours.
            if left.is_symlink() or not left.is_dir() or (prefix != _UNFINISHED and not (left / _OWNER).exists()):
                continue
            with FileLock(left / _OWNER):
                _clear(left)
            # Windows removes no file that is open, NFS no folder with one. By now it may be a new writer's, with files.
            if os.name == "nt":
                (left / _OWNER).unlink()
            left.rmdir()


def settle_all(folder: Path) -> None:
    """`settle` a folder and all below it, for whoever alone writes there."""
    for name, _, _ in os.walk(folder):
        if not is_unfinished(Path(name)):
            settle(Path(name))


def remove_folder(path: Path) -> None:
    """Remove a folder in one step: whoever is killed meanwhile leaves all of it or, to `settle`, what nobody sees.

    Raises:
        WriteError: if it cannot be removed; a missing one is removed already.
    """
    if path.exists():
        with _inside(path.parent, path) as folder:
            _rename(path, folder / path.name)
            sync_folder(path.parent)


def check_writable(folder: Path) -> None:
    """Check, before long work, that its results can be written into a folder; nothing is left there.

    Raises:
        WriteError: if they cannot.
    """
    with writing(folder), _temporary(next(one for one in (folder, *folder.parents) if one.exists()), _UNFINISHED):
        pass


@contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a folder of mode 0700 with an unguessable name, and remove it at the end.

    Folders of the same prefix whose processes were killed are removed first. `parent` is the system's folder for
    temporary files if not given.
    """
    parent = parent or Path(tempfile.gettempdir())
    settle(parent, prefix)
    with _temporary(parent, prefix) as folder:
        yield folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait for every other process that changes files of a folder after it read them, and keep them away meanwhile.

    Raises:
        LockError: if its file system has no locks.
        WriteError: if the folder cannot be written.
    """
    with writing(folder):
        make_folder(folder)
        turn = FileLock(folder / _TURN, wait=True)
    try:
        yield
    finally:
        turn.remove()


def slug(name: str) -> str:
    """Return a name, or the stem of a TOML file's path, as a part of a file's name."""
    stem = Path(name).stem if name.endswith(".toml") else name
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem)


def make_folder(path: Path) -> None:
    """Make a folder and those that it lies in, with their names on the disk; raises OSError."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def sync_file(path: Path) -> None:
    """Wait until a file's content is on the disk; raises OSError."""
    # Windows flushes only what is open for writing.
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk, where its file system can do that.

    Those of networks and of users' programs often cannot (SMB, FUSE, WSL), nor can Windows, which journals renames.
    """
    with suppress(OSError):
        sync_file(path)


class HeldError(SoulsGraphError):
    """Another process holds a lock."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path}: expected that no other process holds this lock, found one; wait for its end.")


class LockError(SoulsGraphError):
    """The file system cannot lock a file, which says nothing of other processes or of the disk."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(
            f"{path}: its file system cannot lock files ({error.strerror or error})",
            "name a folder on a local disk, or mount this one with locks (NFS: start rpc.statd, or mount it with "
            "local_lock=flock; Lustre: mount it with flock)",
        )


class FileLock:
    """Hold a lock file, made where it is missing, until it is closed; `wait` for another process that holds it.

    Its end releases it too, however it ends. Nothing is written into it: on Windows nobody else could read that.

    Raises:
        HeldError: if another process holds it, unless that is waited for.
        LockError: if the file system cannot lock it.
        OSError: if the file cannot be made or opened.
    """

    def __init__(self, path: Path, *, wait: bool = False) -> None:
        # Imported here: most processes lock nothing.
        import filelock

        self.path = path
        self._lock = filelock.FileLock(
            path, mode=0o600, thread_local=False, poll_interval=_RETRY_AFTER_S, fallback_to_soft=False
        )
        try:
            self._lock.acquire(blocking=wait)
        except filelock.Timeout as error:
            raise HeldError(path) from error
        except OSError as error:
            if error.errno not in _WITHOUT_LOCKS:
                raise
            raise LockError(path, error) from error

    def close(self) -> None:
        """Release the lock; a second call does nothing."""
        self._lock.release()

    def remove(self) -> None:
        """Remove the file while it is held, and release the lock: who waits for it makes another."""
        if os.name == "nt":  # There a file that is open cannot be removed.
            self.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
