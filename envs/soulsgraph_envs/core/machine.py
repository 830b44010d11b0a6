"""What this process may use: memory and processors, within its cgroups and its affinity; and its user's folders.

Also the one rule of how many threads it computes on. On some machines the user has no name and no home.

A container, a batch job or a systemd unit is limited by control groups (the kernel's
admin-guide/cgroup-v1/memory.rst, scheduler/sched-bwc.rst and admin-guide/cgroup-v2.rst), of which
`/proc/meminfo` and `os.cpu_count()` know nothing.
"""

from __future__ import annotations

import ctypes
import getpass
import os
import re
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal

_KIB = 1024
_VERSION_1, _VERSION_2 = "cgroup", "cgroup2"
#: Files of a limit, of what is in use, and of the memory.stat line that names files' pages the kernel can take back.
_MEMORY = {
    _VERSION_1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    _VERSION_2: ("memory.max", "memory.current", "inactive_file"),
}


@dataclass(frozen=True)
class Memory:
    """Bytes that this process may use: the limit, and what of it nobody uses now."""

    limit: int
    available: int


def usable_memory(root: Path = Path("/")) -> Memory:
    """Return the memory that this process may use: the least of the machine's and every cgroup's around it.

    `root` is the folder in which `/proc` and `/sys` are looked for. What the kernel can take back from
    files counts as available.
    """
    memory = _machine_memory(root)
    for version, folder in _cgroups(root, "memory"):
        limit_file, usage_file, inactive = _MEMORY[version]
        limit, usage = _number(folder / limit_file), _number(folder / usage_file)
        # What limits nothing is the largest number of pages, or "max".
        if limit is not None and limit < memory.limit:
            memory = Memory(limit, min(memory.available, limit))
        if limit is not None and usage is not None:
            free = max(limit - usage + _statistic(folder / "memory.stat", inactive), 0)
            memory = Memory(memory.limit, min(memory.available, free))
    return memory


def usable_processors(root: Path = Path("/")) -> int:
    """Return the number of processors that this process may use: its affinity and every cgroup's quota, rounded up.

    `root` is the folder in which `/proc` and `/sys` are looked for.
    """
    affine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [_quota(version, folder) for version, folder in _cgroups(root, "cpu")]
    return max(1, min([affine, *(ceil(quota) for quota in quotas if quota is not None)]))


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
#: Names of OpenBLAS's function that sets its threads later, as numpy and scipy bring it and as systems do.
_OPENBLAS_SETTERS = [f"{vendor}openblas_set_num_threads{size}" for vendor in ("scipy_", "") for size in ("64_", "")]


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
    for library in _loaded_openblas():
        for name in _OPENBLAS_SETTERS:
            if (setter := getattr(library, name, None)) is not None:
                setter(1)


def _loaded_openblas() -> list[ctypes.CDLL]:
    """Return the copies of OpenBLAS that are loaded, numpy's and scipy's; none where the system does not list them."""
    maps = _text(Path("/proc/self/maps"))
    paths = sorted(set(re.findall(r"/\S*openblas\S*\.so\S*", maps)))
    found = []
    for path in paths:
        with suppress(OSError):
            found.append(ctypes.CDLL(path))
    return found


def _machine_memory(root: Path) -> Memory:
    lines = re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE)
    sizes: dict[str, str] = dict(lines)
    if "MemTotal" not in sizes:
        # Only where there is no such file: elsewhere a game PC starts without it.
        import psutil

        machine = psutil.virtual_memory()
        return Memory(machine.total, machine.available)
    total = _KIB * int(sizes["MemTotal"])
    available = _KIB * int(sizes["MemAvailable"]) if "MemAvailable" in sizes else total
    return Memory(total, min(total, available))


def _cgroups(root: Path, controller: str) -> Iterator[tuple[str, Path]]:
    """Yield the version and folder of this process's cgroup and of every one around it that is mounted here."""
    paths = dict(_own_paths(root, controller))
    for version, within, mount in _mounts(root, controller):
        if version not in paths:
            continue
        own = PurePosixPath(paths[version])
        # In a container without a namespace of its own the mount shows a part of the tree, from `within` on; a path
        # that leads elsewhere is of a tree that cannot be seen here, of which the mount is the nearest.
        below = own.relative_to(within) if own.is_relative_to(within) and ".." not in own.parts else PurePosixPath()
        folder = mount / below
        yield version, folder
        for _ in below.parts:
            folder = folder.parent
            yield version, folder


def _own_paths(root: Path, controller: str) -> Iterator[tuple[str, str]]:
    """Yield the version and path of this process's cgroup of a controller, from lines as `4:memory:/docker/1`."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controller in controllers.split(","):
            yield _VERSION_1, path
        elif number == "0" and not controllers:
            yield _VERSION_2, path


def _mounts(root: Path, controller: str) -> Iterator[tuple[str, str, Path]]:
    """Yield the version of each mounted tree of a controller, the part of the tree that it shows, and its folder.

    A line is `36 35 98:0 /part /sys/fs/cgroup/memory rw,noatime shared:1 - cgroup cgroup rw,memory` (proc(5)).
    """
    for line in _text(root / "proc/self/mountinfo").splitlines():
        mounted, _, what = line.partition(" - ")
        columns, kinds = mounted.split(), what.split()
        if len(columns) < 5 or len(kinds) < 3:
            continue
        if kinds[0] == _VERSION_2 or (kinds[0] == _VERSION_1 and controller in kinds[2].split(",")):
            within, mount = (re.sub(r"\\([0-7]{3})", _octal, column) for column in columns[3:5])
            yield kinds[0], within, root / mount.lstrip("/")


def _octal(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 8))


def _quota(version: str, folder: Path) -> float | None:
    """Return the processors that a cgroup may keep busy, None for all."""
    if version == _VERSION_2:
        quota, period = [*_text(folder / "cpu.max").split(), "", ""][:2]
    else:
        quota, period = (_text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    # Without a limit the quota is "max" or -1.
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else None


def _statistic(file: Path, name: str) -> int:
    found = re.search(rf"^{name} (\d+)$", _text(file), re.MULTILINE)
    return int(found[1]) if found else 0


def _number(file: Path) -> int | None:
    text = _text(file).strip()
    return int(text) if text.isdecimal() else None


def _text(file: Path) -> str:
    """Return a file's text, "" where there is none or it may not be read."""
    with suppress(OSError):
        return file.read_text(encoding="utf-8", errors="replace")
    return ""


def recent_load() -> float | None:
    """Return how many processes wanted a processor in the last minute, on average; None on Windows, which counts none.

    One that waits for the disk counts on Linux as well.
    """
    return os.getloadavg()[0] if sys.platform != "win32" else None


#: Arguments of `subprocess.Popen` for a process that Ctrl-C at the terminal does not reach: its parent ends it.
APART: dict[str, Any] = {"start_new_session": True}
if sys.platform == "win32":
    APART = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}


def boot_id() -> str:
    """Return what distinguishes this machine's present run from all others; empty where the system does not say it."""
    return _text(Path("/proc/sys/kernel/random/boot_id")).strip()


def uptime_s() -> float:
    """Return the seconds since the machine was started, by a monotonic clock; comparable within a `boot_id`."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


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
    # An empty HOME would be the working folder.
    if "HOME" in os.environ and not os.path.isabs(os.environ["HOME"]):
        return None
    with suppress(RuntimeError):
        home = Path.home()
        return None if home.name.startswith(_STAND_IN) else home
    return None


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

    None where the user has no home; the folder need not exist, nor be writable.
    """
    name, below = _FOLDERS[purpose]
    chosen = os.environ.get("LOCALAPPDATA" if os.name == "nt" else name, "")
    # A relative path means nothing here, as the standard says.
    if os.path.isabs(chosen):
        return Path(chosen)
    home = home_folder()
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


def is_writable(folder: Path) -> bool:
    """Return whether files can be made in a folder, which is made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True
