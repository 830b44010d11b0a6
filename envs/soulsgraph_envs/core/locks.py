"""Lock files: one process at a time holds one, and its end releases it, however it ends."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from soulsgraph_envs.core.errors import SoulsGraphError

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
    """Lock an open file, or elsewhere than on Windows a folder, until it is closed; raises as `FileLock`."""
    # Imported here: most processes lock nothing.
    from filelock import lock_descriptor

    try:
        if not lock_descriptor(handle, blocking=wait, poll_interval=_RETRY_AFTER_S):
            raise HeldError(path)
    except OSError as error:
        raise LockError(path, error) from error
