"""Write files and folders whole or not at all, and on the disk: a temporary neighbour first, then a rename.

A temporary neighbour is a hidden folder that its writer locks. One whose writer was killed is removed, or what its
writer had begun to replace is replaced, by the next writer beside it (`settle`). Temporary folders of a process are
locked and removed in the same way.

One process at a time holds a lock file, and its end releases it, however it ends.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from soulsgraph_envs.core.config import to_json
from soulsgraph_envs.core.errors import SoulsGraphError, UnavailableError
from soulsgraph_envs.core.terminal import uninterrupted

_WRITE_REMEDIES = {
    errno.ENOSPC: "free some disk space and try again",
    errno.EDQUOT: "free some of your disk quota and try again",
    errno.EFBIG: "raise the file size limit (ulimit -f) and try again",
    errno.EROFS: "choose a folder on a writable disk",
    errno.EACCES: "choose another folder, or allow writing to it",
    errno.EPERM: "choose another folder, or allow writing to it",
    errno.ENOTDIR: "choose a path that leads through folders only",
}
_UNFINISHED = ".unfinished-"
#: In a temporary folder: its writer's lock; that it replaces what is beside it; what was there before.
_OWNER, _REPLACES, _BEFORE = ".owner", ".replaces", ".before"
#: What versions up to 0.2 left, which locked nothing.
_EARLIER = re.compile(r"\.(.+)\.[a-z0-9_]{8}")
#: Of a file system on which a folder is not opened, or not synced.
_NOT_SYNCED = {errno.EINVAL, errno.EIO, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EACCES}
_NOT_SYNCED |= {errno.EPERM, errno.EISDIR}
#: The file that `locked` locks; it goes with the lock.
_TURN = ".turn"
#: Behind a temporary folder's name: the file that its process locks.
_LOCKED = ".lock"
#: On Windows nothing is renamed or replaced that any program has open, as a scanner of viruses what was just written.
_OPEN_FOR_S, _TRY_EVERY_S = 5.0, 0.05
#: Of renameat2: paths from the working folder on; what it is to do.
_HERE, _NO_REPLACE, _EXCHANGE = -100, 1, 2


class WriteError(SoulsGraphError):
    """A file or folder could not be written; nothing of it was left behind."""

    def __init__(self, path: object, error: OSError) -> None:
        remedy = _WRITE_REMEDIES.get(error.errno or 0, "check the path and the disk, and try again")
        super().__init__(f"{path}: expected a place to write to, found: {error.strerror or error}", remedy)


class FullDiskError(WriteError, UnavailableError):
    """No space is left to write something now, which may be over by itself."""


class EncodingError(SoulsGraphError):
    """A path has bytes that are no text, which Arrow, TensorBoard and Ray take for none."""

    def __init__(self, path: object) -> None:
        encoding = sys.getfilesystemencoding().upper()
        remedy = (
            "rename it, or name another place" if encoding == "UTF-8" else "set PYTHONUTF8=1, or name another place"
        )
        super().__init__(f"{path}: expected a path whose names are text ({encoding}), found other bytes", remedy)


def check_text(path: Path) -> None:
    """Refuse a path that only Python itself can name; raises EncodingError."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError as error:
        raise EncodingError(path) from error


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
def whole_file(path: Path, replace: bool = True) -> Iterator[Path]:
    """Yield a temporary path to write; at the end it becomes `path`, on any error it is removed.

    Raises:
        WriteError: if the disk is full, the folder read-only, or the path cannot be made; also if something is there by
            then and is not to be replaced.
    """
    with _beside(path) as temporary:
        yield temporary
        sync_file(temporary)
        if not replace and not _renamed(temporary, path, _NO_REPLACE) and path.exists():
            raise _never_overwritten()
        if temporary.exists():
            _rename(temporary, path)
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
    """Yield a temporary folder to fill; at the end it becomes `path`.

    `path` must be missing or empty, unless it is to be replaced: it is exchanged for the new one. Where the file
    system cannot exchange two folders, `path` is missing between two renames, and a writer that is killed there leaves
    the second one to `settle`.

    Raises:
        WriteError: if something is at `path` by then, or it cannot be written.
    """
    with _beside(path) as temporary:
        temporary.mkdir()
        yield temporary
        for file in temporary.rglob("*"):
            sync_folder(file) if file.is_dir() else sync_file(file)
        sync_folder(temporary)
        if not (replace and path.exists()):
            _rename_to_empty(temporary, path)
        elif not _renamed(temporary, path, _EXCHANGE):
            _replace_in_two(temporary, path)
        sync_folder(path.parent)


@contextmanager
def whole_files(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; at the end all of its files are in `folder`, or none.

    A writer that is killed between two of them leaves the others to `settle`.

    Raises:
        WriteError: if a file is there by then, or cannot be written.
    """
    with writing(folder):
        make_folder(folder)
        settle(folder)
        with _unfinished(folder) as temporary:
            yield temporary
            names = sorted(path.name for path in temporary.iterdir() if path.name != _OWNER)
            for name in names:
                sync_file(temporary / name)
            if any((folder / name).exists() for name in names):
                raise _never_overwritten()
            (temporary / _REPLACES).touch()
            sync_folder(temporary)
            sync_folder(folder)
            with uninterrupted():
                for name in names:
                    _rename(temporary / name, folder / name)
            sync_folder(folder)


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


def _rename_to_empty(folder: Path, path: Path) -> None:
    try:
        if os.name == "nt" and path.is_dir():
            path.rmdir()  # There an empty folder is in the way as well.
        _rename(folder, path)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR) or not path.exists():
            raise
        raise _never_overwritten() from error


def _never_overwritten() -> FileExistsError:
    return FileExistsError(errno.EEXIST, "something of that name, which is never overwritten")


def _renamed(one: Path, other: Path, how: int) -> bool:
    """Exchange two paths, or rename the one where the other is missing; return whether that was done in one step."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    return not rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), how)


def _replace_in_two(folder: Path, path: Path) -> None:
    """Replace a folder by two renames, and note before what `settle` is to finish."""
    before, note = folder.with_name(_BEFORE), folder.with_name(_REPLACES)
    note.touch()
    for each in (folder.parent, path.parent):
        sync_folder(each)
    _rename(path, before)
    try:
        _rename(folder, path)
    except OSError:
        _rename(before, path)
        raise


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Yield a path of the same name in a temporary folder beside it, which is removed at the end."""
    with writing(path):
        make_folder(path.parent)
        settle(path.parent)
        with _unfinished(path.parent) as folder:
            yield folder / path.name


@contextmanager
def _unfinished(parent: Path) -> Iterator[Path]:
    owner = None
    while owner is None:
        folder = Path(tempfile.mkdtemp(dir=parent, prefix=_UNFINISHED))
        # Another writer, that takes it for one that was left, has removed it before it was locked.
        with suppress(FileNotFoundError, HeldError):
            owner = _own(folder / _OWNER)
    try:
        yield folder
    finally:
        _remove(folder)
        owner.close()
        if os.name == "nt":  # There a file that is open cannot be removed.
            _remove(folder)


def _own(path: Path) -> FileLock:
    try:
        return FileLock(path, mode=0o600)
    except LockError:
        # Without locks nobody else removes what it stands for either.
        owner = FileLock.__new__(FileLock)
        owner.path, owner.handle = path, -1
        return owner


def _remove(folder: Path) -> None:
    """Remove a temporary folder, its lock last: without one it is nobody's."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name == _OWNER:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        (folder / _OWNER).unlink(missing_ok=True)
        folder.rmdir()


def is_unfinished(path: Path) -> bool:
    """Return whether a path is what a writer uses for a while, or left when it was killed."""
    return path.name.startswith(_UNFINISHED) or _is_earlier(path)


def _is_earlier(path: Path) -> bool:
    found = _EARLIER.fullmatch(path.name)
    return found is not None and path.is_dir() and {file.name for file in path.iterdir()} <= {found[1]}


def settle(folder: Path) -> None:
    """Remove what killed writers left in a folder, or finish what they had begun to replace; living ones are left."""
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(_UNFINISHED):
                with suppress(OSError):
                    _settle_one(folder / name)


def _settle_one(left: Path) -> None:
    if not (names := os.listdir(left)):
        # A writer that is about to lock it makes another.
        left.rmdir()
        return
    if _OWNER not in names and not (left / _OWNER).exists():
        # A writer makes the lock before all else and removes it last: what lies there without one is nobody's.
        _remove(left)
        return
    # Held by its writer, or on a file system without locks, it stays.
    with suppress(HeldError, LockError), FileLock(left / _OWNER, make=False):
        if (left / _REPLACES).exists():
            for new in left.iterdir():
                if new.name not in (_OWNER, _REPLACES, _BEFORE) and not (target := left.parent / new.name).exists():
                    _rename(new, target)
                    sync_folder(target.parent)
        _remove(left)


def settle_all(folder: Path) -> None:
    """`settle` a folder and all below it, for whoever alone writes there."""
    for name, _, _ in os.walk(folder):
        if not Path(name).name.startswith(_UNFINISHED):
            settle(Path(name))
    with suppress(OSError):
        for path in folder.iterdir():
            if _is_earlier(path):
                shutil.rmtree(path, ignore_errors=True)


def remove_folder(path: Path) -> None:
    """Remove a folder in one step: whoever is killed meanwhile leaves all of it or, to `settle`, what nobody sees.

    Raises:
        WriteError: if it cannot be removed; a missing one is removed already.
    """
    if path.exists():
        with _beside(path) as temporary:
            _rename(path, temporary)
            sync_folder(path.parent)


def check_writable(folder: Path) -> None:
    """Check, before long work, that its results can be written into a folder; nothing is left there.

    Raises:
        WriteError: if they cannot.
    """
    with writing(folder):
        parent = next(place for place in (folder, *folder.parents) if place.exists())
        with _unfinished(parent):
            pass


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait for every other process that changes files of a folder after it read them, and keep them away meanwhile.

    Raises:
        LockError: if its file system has no locks.
        WriteError: if the folder cannot be written.
    """
    with writing(folder):
        make_folder(folder)
        turn = FileLock(folder / _TURN, wait=True, mode=0o600)
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
    """Wait until the names in a folder are on the disk, where its file system can do that; raises OSError.

    Those of networks and of users' programs often cannot (SMB, FUSE, WSL), and their files are there all the same.
    """
    if os.name == "nt":
        return  # There a folder cannot be opened, and a rename is journaled.
    try:
        sync_file(path)
    except OSError as error:
        if error.errno not in _NOT_SYNCED:
            raise


@contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a folder of mode 0700 with an unguessable name, and remove it at the end.

    Its process locks a hidden file beside it. Folders of the same prefix whose processes were killed are removed
    first. `parent` is the system's folder for temporary files if not given.
    """
    parent = parent or Path(tempfile.gettempdir())
    for left in parent.glob(f".{prefix}*{_LOCKED}"):
        # What cannot be locked is in use, another user's, or gone by now.
        with suppress(OSError, HeldError, LockError), FileLock(left, make=False) as owner:
            shutil.rmtree(parent / left.name[1 : -len(_LOCKED)], ignore_errors=True)
            owner.remove()
    folder, owner = _owned(parent, prefix)
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        owner.remove()


def _owned(parent: Path, prefix: str) -> tuple[Path, FileLock]:
    """Return a new folder's path, and the lock beside it."""
    while True:
        folder = parent / f"{prefix}{secrets.token_hex(8)}"
        # Another process may look at the new file, as one that was left, before it is locked.
        with suppress(HeldError):
            return folder, _own(lock_beside(folder))


def lock_beside(folder: Path) -> Path:
    """Return the file that the owner of a temporary folder locks."""
    return folder.with_name(f".{folder.name}{_LOCKED}")


_RETRY_AFTER_S = 0.02
#: Of a file system without locks, or whose server of locks does not answer; others are the disk's.
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.EBADF)


class HeldError(SoulsGraphError):
    """Another process holds a lock."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path}: expected that no other process holds this lock, found one; wait for its end.")


class LockError(SoulsGraphError):
    """The file system cannot lock a file, which says nothing of other processes or of the disk."""

    def __init__(self, path: Path, error: OSError) -> None:
        found, remedy = f"{error.strerror or error}", "check the disk, and try again"
        if error.errno in _WITHOUT_LOCKS:
            found = f"that this one cannot: {found}"
            remedy = (
                "name a folder on a local disk, or mount this one with locks (NFS: start rpc.statd, or mount it with "
                "local_lock=flock; Lustre: mount it with flock)"
            )
        super().__init__(f"{path}: expected a file system that locks files, found {found}", remedy)


class FileLock:
    """Hold a lock file, made where it is missing, until it is closed; `wait` for another process that holds it.

    Nothing is written into it: on Windows nobody else could read what is locked.

    Raises:
        HeldError: if another process holds it, unless that is waited for.
        LockError: if the file system cannot lock it.
        OSError: if the file cannot be made or opened.
    """

    def __init__(self, path: Path, *, wait: bool = False, mode: int = 0o644, make: bool = True) -> None:
        self.path, self.handle = path, -1
        while self.handle < 0:
            handle = os.open(path, os.O_RDWR | (os.O_CREAT if make else 0), mode)
            try:
                lock(handle, path, wait)
                # Whoever held it may have removed the file: others lock the one that is there now.
                if _is_at(handle, path):
                    self.handle, handle = handle, -1
            finally:
                if handle >= 0:
                    os.close(handle)

    def close(self) -> None:
        """Release the lock; a second call does nothing."""
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1

    def remove(self) -> None:
        """Remove the file while it is held, and release the lock: who waits for it makes another."""
        if os.name == "nt":  # There a file that is open cannot be removed.
            self.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _is_at(handle: int, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), path.stat())
    return False


def lock(handle: int, path: Path, wait: bool = False) -> None:
    """Lock an open file until it is closed; raises as `FileLock`."""
    # Imported here: most processes lock nothing.
    from filelock import lock_descriptor

    try:
        if not lock_descriptor(handle, blocking=wait, poll_interval=_RETRY_AFTER_S):
            raise HeldError(path)
    except OSError as error:
        raise LockError(path, error) from error
