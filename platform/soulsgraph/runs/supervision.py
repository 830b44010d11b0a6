"""Who holds a run folder's lock; a training whose supervisor is gone is ended before its successor begins."""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

#: The process that begins a training again, as `soulsgraph supervise` names itself to it.
SUPERVISOR = "SOULSGRAPH_SUPERVISOR"
#: Set by Ray for the command of a job, whose parent is the process of Ray's for that job.
_RAY_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
#: A training that was asked to stop has this time to leave a checkpoint; one that was killed ends within the other.
STOP_WITHIN_S, _KILLED_WITHIN_S = 120.0, 60.0
_logger = logging.getLogger("soulsgraph")


def lock_owner() -> str:
    """Return what is said of this process beside a lock that it holds: its id, and its supervisor's if it has one."""
    # Imported here: a game PC needs nothing of it.
    import psutil

    supervisor = os.environ.get(SUPERVISOR, "")
    if supervisor in (str(one.pid) for one in psutil.Process().parents()):
        return f"{os.getpid()} {supervisor}"
    return f"{os.getpid()} {os.getppid()}" if _RAY_JOB in os.environ else f"{os.getpid()}"


def owner_file(lock: Path) -> Path:
    """Return the file beside a lock that says who holds it."""
    return lock.with_name(f"{lock.name}-owner")


def end_orphan(lock: Path, owner: str, within_s: float = STOP_WITHIN_S) -> bool:
    """End the process that holds a lock file, if it is a training whose supervisor is gone; return whether it ended.

    `owner` is what the file beside it says (`lock_owner`). The process is asked to stop, on Windows ended at once, and
    killed after a while. Nothing is done to any other process.
    """
    import psutil

    match = re.fullmatch(r"(\d+) (\d+)", owner)
    if match is None:
        return False
    holder, supervisor = map(int, match.groups())
    try:
        process = psutil.Process(holder)
        # A process whose parent ended has another, on Windows none.
        if not _holds(process, lock) or supervisor in (one.pid for one in process.parents()):
            return False
        _logger.warning("process %d trains in %s, and its supervisor is gone: it is ended first", holder, lock.parent)
        # psutil refuses to signal another process that got the same id meanwhile.
        process.terminate()
        if not _ends(process, within_s):
            _logger.warning("process %d did not stop within %g s: it is killed", holder, within_s)
            process.kill()
        return _ends(process, _KILLED_WITHIN_S)
    except (psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
        return True
    except psutil.AccessDenied:
        return False


def _ends(process: psutil.Process, within_s: float) -> bool:
    """Wait for a process's end; where nobody collects it, it stays on the system's list as a zombie."""
    until_s = time.monotonic() + within_s
    while process.is_running() and process.status() != "zombie":
        if time.monotonic() > until_s:
            return False
        time.sleep(0.1)
    return True


def _holds(process: psutil.Process, lock: Path) -> bool:
    """Return whether a process has a lock file open, by the file and not by its name."""
    if not sys.platform.startswith("linux"):
        # Whoever got the id of a holder that ended began after that one had written who it is.
        return process.create_time() < owner_file(lock).stat().st_mtime
    for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(OSError):
            if descriptor.samefile(lock):
                return True
    return False
