"""What this process may use: memory and processors, within its control groups and its affinity; and its user's folders.

Also the one rule of how many threads it computes on. On some machines the user has no name and no home.

A container, a batch job or a systemd unit is limited by control groups (the kernel's admin-guide/cgroup-v2.rst), which
neither the machine's memory nor `os.cpu_count()` shows.
"""

from __future__ import annotations

import getpass
import os
import re
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal


@dataclass(frozen=True)
class Memory:
    """Bytes that this process may use: the limit, and what of it nobody uses now."""

    limit: int
    available: int


def usable_memory(root: Path = Path("/")) -> Memory:
    """Return the memory that this process may use: the least of the machine's and every control group's around it.

    `root` is the folder in which `/proc` and `/sys` are looked for. What the kernel can take back from
    files counts as available.
    """
    # Only here: a game PC starts without it.
    import psutil

    machine = psutil.virtual_memory()
    memory = Memory(machine.total, machine.available)
    for group in _control_groups(root):
        limit, used = (_text(group / name).strip() for name in ("memory.max", "memory.current"))
        if limit.isdecimal() and used.isdecimal():
            inactive = re.search(r"^inactive_file (\d+)$", _text(group / "memory.stat"), re.MULTILINE)
            free = max(int(limit) - int(used) + (int(inactive[1]) if inactive else 0), 0)
            memory = Memory(min(memory.limit, int(limit)), min(memory.available, free))
    return memory


def usable_processors(root: Path = Path("/")) -> int:
    """Return the number of processors that this process may use: its affinity and every group's quota, rounded up.

    `root` is the folder in which `/proc` and `/sys` are looked for.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for group in _control_groups(root):
        quota, _, period = _text(group / "cpu.max").partition(" ")
        if quota.isdecimal():  # Without a limit it is "max".
            usable = min(usable, ceil(int(quota) / int(period)))
    return max(usable, 1)


def _control_groups(root: Path) -> list[Path]:
    """Return the folders of this process's control group and of those around it, as far as they are seen here."""
    own = re.search(r"^0::/(.*)$", _text(root / "proc/self/cgroup"), re.MULTILINE)
    parts = PurePosixPath(own[1]).parts if own else ()
    # A container may see its own part of the tree alone, and the path of another one.
    shown = () if ".." in parts else parts
    return [root.joinpath("sys/fs/cgroup", *shown[:depth]) for depth in range(len(shown) + 1)]


def take_input() -> IO[bytes]:
    """Return this process's standard input as a file of its own, and leave an empty one in its place.

    A thread may wait in it: on Windows libraries look at standard input while they are loaded, and that look waits as
    long as somebody reads there.
    """
    taken = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return taken


#: What OpenMP, OpenBLAS and oneMKL read as they are loaded.
_THREADS_OF = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def compute_on_one_thread(later: bool = False) -> None:
    """Let torch and BLAS, where they are loaded, compute on one thread; with `later` also what is loaded from now on.

    Networks this small gain nothing from more: on a busy machine the threads wait for each other, forty times longer
    than one takes. Results do not depend on their number. `later` reaches the processes that this one starts as well:
    it is for a command, whose process is its own.
    """
    if later:
        os.environ |= dict.fromkeys(_THREADS_OF, "1")
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
    if "numpy" in sys.modules:
        from threadpoolctl import threadpool_limits

        threadpool_limits(1)


def _text(file: Path) -> str:
    """Return a file's text, "" where there is none or it may not be read."""
    with suppress(OSError):
        return file.read_text(encoding="utf-8", errors="replace")
    return ""


#: Arguments of `subprocess.Popen` for a process that Ctrl-C at the terminal does not reach: its parent ends it.
APART: dict[str, Any] = {"start_new_session": True}
if sys.platform == "win32":
    APART = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}


def raise_open_files() -> int:
    """Raise the limit of this process's open files to what the system allows it, and return that; 0 on Windows.

    Each connection is an open file, and a shell's limit of 1,024 is one for programs that use `select`.
    """
    if sys.platform == "win32":
        return 0
    # Windows has no such module.
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A system may allow less than it says; then the limit stays.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    return soft


#: What a folder is for: the variable that names it, and where it lies below the home folder.
_FOLDERS = {"cache": ("XDG_CACHE_HOME", ".cache"), "state": ("XDG_STATE_HOME", ".local/state")}
#: The folder that others' libraries take for the home of a user who has none.
_STAND_IN = "soulsgraph-home"


def home_folder() -> Path | None:
    """Return the user's home folder; None where neither the environment nor the system knows one."""
    # An empty or relative one would be the working folder; "~" is what is not known.
    home = Path(os.environ["HOME"] if "HOME" in os.environ else os.path.expanduser("~"))
    return home if home.is_absolute() and not home.name.startswith(_STAND_IN) else None


def stand_in_for_home() -> None:
    """Let others' libraries, as Ray and RLlib, be imported by a user without a home or a name.

    They look for both while they are imported, and fail. The home is a private temporary folder, for this process and
    those it starts; `home_folder` does not return it.
    """
    if os.name != "posix":
        return
    if home_folder() is None and (folder := private_temporary_folder(_STAND_IN)) is not None:
        os.environ["HOME"] = str(folder)
    try:
        getpass.getuser()
    except (KeyError, OSError):  # OSError from Python 3.13 on.
        os.environ["USER"] = f"uid-{os.getuid()}"


def user_folder(purpose: Literal["cache", "state"]) -> Path | None:
    """Return where a user's programs keep what can be made again (cache) or must outlive them (state).

    None where the user has no home; a cache is in a temporary folder then. It need not exist, nor be writable.
    """
    name, below = _FOLDERS[purpose]
    chosen = os.environ.get("LOCALAPPDATA" if os.name == "nt" else name, "")
    # A relative path means nothing here, as the standard says.
    if os.path.isabs(chosen):
        return Path(chosen)
    # What can be made again may be lost with a temporary folder.
    home = home_folder() or (private_temporary_folder(_STAND_IN) if purpose == "cache" else None)
    return None if home is None else home / below


def private_temporary_folder(name: str) -> Path | None:
    """Return a folder for temporary files that this user's processes share and no other user can write.

    It is made if need be, of mode 0700; None where that fails, or somebody else made it.
    """
    owner = os.geteuid() if hasattr(os, "geteuid") else None
    with suppress(OSError):
        folder = Path(tempfile.gettempdir()) / (name if owner is None else f"{name}-{owner}")
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if owner is None or (stat.S_ISDIR(found.st_mode) and found.st_uid == owner and not found.st_mode & 0o022):
            return folder
    return None


#: File systems of other machines, beside all that a user's program serves (FUSE), as /proc/self/mountinfo calls them.
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "lustre", "gpfs", "afs", "beegfs", "glusterfs")
_DRIVE_REMOTE = 4


def is_remote(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Return whether a folder is on another machine's disk, as far as the system says."""
    if sys.platform == "win32":
        import ctypes

        drive = folder.absolute().drive
        return drive.startswith("\\\\") or ctypes.windll.kernel32.GetDriveTypeW(f"{drive}\\") == _DRIVE_REMOTE
    device = os.stat(folder).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in _text(mounts).splitlines():
        before, _, after = line.partition(" - ")
        kind = after.partition(" ")[0]
        if before.split()[2] == number:
            return kind in _REMOTE or kind.startswith("fuse.")
    return False


def is_writable(folder: Path) -> bool:
    """Return whether files can be made in a folder, which is made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True
