"""A training and the process that supervises it: the one ends with the other, and is ended before its successor."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from soulsgraph_envs.core.machine import boot_id

if TYPE_CHECKING:
    import psutil

#: A training that was asked to stop has this time to leave a checkpoint.
STOP_WITHIN_S = 120.0
#: One that was killed ends within this time, however large it is.
_KILLED_WITHIN_S = 60.0
#: Exit codes: what was needed is not there now, and may come by itself; a stop that was asked for.
UNAVAILABLE, INTERRUPTED = 69, 130
#: A process's begin by the clock; two that differ by no more seconds are the same.
_CLOCKED, _CLOCK_S = re.compile(r"\d+\.\d+"), 5.0
_BEGIN = "from soulsgraph.runs.supervision import begin; begin({}); from soulsgraph.cli import main; main()"
_supervisor: int | None = None
_logger = logging.getLogger("soulsgraph")


def supervised_command(words: Sequence[str]) -> list[str]:
    """Return the command line of a training under this process, which holds its standard input open."""
    # -P: what lies in the present folder is none of our modules.
    return [sys.executable, "-P", "-c", _BEGIN.format(os.getpid()), *words]


def present_supervisor() -> int | None:
    """Return the id of the process that this one is a training under, its parent; None without supervision."""
    return _supervisor


def describe_process() -> str:
    """Return what names this process among all of all machines, for `has_ended`."""
    return f"{socket.gethostname()} {os.getpid()} {_began(os.getpid())}"


def has_ended(description: str) -> bool:
    """Return whether a process described by `describe_process` has ended; False if it ran on another machine."""
    found = re.fullmatch(r"(\S+) (\d+) (\S+)", description)
    if found is None or found[1] != socket.gethostname():
        return False
    began = _began(int(found[2]))
    if began and _CLOCKED.fullmatch(found[3]) and _CLOCKED.fullmatch(began):
        return abs(float(began) - float(found[3])) > _CLOCK_S
    # An earlier version of ours noted the clock's time: what may be that process lives.
    return not began if _CLOCKED.fullmatch(found[3]) else began != found[3]


def _began(pid: int) -> str:
    """Return when a process began; empty if there is none.

    Linux counts it from the boot, and so it stays when the clock is set; elsewhere it is the clock's time.
    """
    import psutil

    with suppress(OSError):
        # The name in parentheses may hold anything; the begin is the twentieth word behind it (proc(5)).
        words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return f"{boot_id()}/{words[19]}"
    with suppress(psutil.NoSuchProcess):
        return f"{psutil.Process(pid).create_time():.2f}"
    return ""


def begin_job() -> None:
    """Note that this process is a supervised training in a Ray job; its parent is the process of Ray's for that job.

    Ray ends it with that process.
    """
    global _supervisor
    _supervisor = os.getppid()


def begin(supervisor: int) -> None:
    """Stop this process, in order, when its supervisor ends: when standard input closes.

    `supervisor` is that process's id.
    """
    global _supervisor
    _supervisor = supervisor
    threading.Thread(target=_await_supervisors_end, name=f"supervisor {supervisor}", daemon=True).start()


def _await_supervisors_end() -> None:
    while os.read(0, 4096):
        pass
    # The supervisor passed on what this process prints as errors: to print on would be an error itself.
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.kill(os.getpid(), signal.SIGTERM)


def lock_owner() -> str:
    """Return what a lock file says of this process: its id, and its supervisor's if it has one."""
    return f"{os.getpid()}" if _supervisor is None else f"{os.getpid()} {_supervisor}"


def end_orphan(lock: Path, owner: str, within_s: float = STOP_WITHIN_S) -> bool:
    """End the process that holds a lock file, if it is a training whose supervisor is gone; return whether it ended.

    `owner` is what the file says (`lock_owner`). The process is asked to stop, and killed after a while. Nothing is
    done to any other process, nor if this one is under no supervision itself.
    """
    # Imported here: a game PC needs nothing of it.
    import psutil

    found = re.fullmatch(r"(\d+) (\d+)", owner)
    if _supervisor is None or found is None:
        return False
    holder, supervisor = map(int, found.groups())
    try:
        process = psutil.Process(holder)
        # A process whose parent ended has another.
        if not _holds(process, lock) or process.ppid() == supervisor:
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
        return any(Path(file.path).resolve() == lock.resolve() for file in process.open_files())
    for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(OSError):
            if descriptor.samefile(lock):
                return True
    return False
