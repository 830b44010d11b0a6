"""A private Ray session of few processes, which end with their owner, however it ends.

A process of its own (this module, run as a program) starts Ray's processes and waits for a SIGTERM, or until its
standard input closes because the owner was killed. It adopts every process that Ray leaves orphaned, so that
nothing outlives it. Ray makes its folder readable for everyone; the one around it is its owner's alone.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import psutil
from ray._private.node import Node
from ray._private.parameter import RayParams

from soulsgraph_clusters.sessions.head import PATIENT, describe_end
from soulsgraph_envs.core.access import family_of
from soulsgraph_envs.core.config import to_json
from soulsgraph_envs.core.errors import SoulsGraphError, UnavailableError
from soulsgraph_envs.core.files import temporary_folder
from soulsgraph_envs.core.machine import APART, raise_open_files, usable_memory, usable_processors

#: A start takes two seconds of an idle processor, and as many times longer as others keep it busy.
START_TIMEOUT_S = 120.0
OBJECT_STORE_BYTES = 128 * 2**20
#: The path of a socket must stay below 107 bytes, so not TMPDIR unless this one cannot be written.
FOLDER = Path("/tmp") if os.access("/tmp", os.W_OK | os.X_OK) else None

_END_WITHIN_S = 15.0
_LOOPBACK = "127.0.0.1"
#: Above those of Ray's workers, below those that Linux assigns to whoever asks for any.
_PORTS = range(20_000, 32_768)
_ENVIRONMENT = {
    **PATIENT,
    # By this Ray stays on the loopback, as it does by default on Windows and macOS.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # A module in the working folder by the name of one of ours, Ray's or the standard library's is not executed.
    "PYTHONSAFEPATH": "1",
}
#: Files in which a node's agents report their ports: without one the raylet gives up after 15 s, a fixed limit.
AGENT_PORTS = ("dashboard_agent_listen_port", "metrics_agent_port", "metrics_export_port")
_SYSTEM = {"enable_metrics_collection": False, "enable_worker_prestart": False, "prestart_worker_first_driver": False}
_BECOME_SUBREAPER = 36
#: What Ray says where it only waited too long, and a line of its servers' logs that is an error.
_WAITED = re.compile(r"timed? ?out|took too long|within .* seconds", re.IGNORECASE)
_LOGGED_ERROR = re.compile(r"^\[[^]]*\b[CEF] \d+ \d+[^]]*\] (?:\([^)]*\) )?\S+:\d+: +(.+)$", re.MULTILINE)
_LONGEST_LINE, _SELF_WITHIN_S = 300, 5.0
#: Open files of the raylet, measured: 50, and 3 for each processor that has a worker; a driver that trains has fewer.
_OPEN_FILES, _OPEN_FILES_PER_PROCESSOR = 128, 4
#: Ray's workers are started by this program, which is looked for in PATH.
_SHELL = "bash"


class SessionError(SoulsGraphError):
    """Ray could not be started on this machine, for a reason that stays until somebody removes it."""

    def __init__(self, found: str, remedy: str = "correct that, or join a Ray that runs by its address") -> None:
        super().__init__(f"Ray on this machine: expected it to start, found {found}", remedy)


class FailedSessionError(SessionError, UnavailableError):
    """Ray failed as it started on this machine, which it may not do the next time."""


class SlowSessionError(FailedSessionError):
    """Ray did not start in time on this machine, which may be busy."""

    def __init__(self, found: str) -> None:
        busy = f"its load is {os.getloadavg()[0]:.1f}, its processors for this process are {usable_processors()}"
        super().__init__(
            f"after {START_TIMEOUT_S:g} s that {found}",
            f"try again when the machine is less busy ({busy}), or join a Ray that runs by its address",
        )


def failed_session(error: Exception) -> SessionError:
    """Return why a Ray that was started can't be used, from what Ray raised."""
    if isinstance(error, UnicodeError):
        return SessionError(
            f"a working folder or a variable whose text is not UTF-8 ({os.getcwd()!a})",
            "begin in a folder with another name",
        )
    line = str(error).partition("\n")[0].strip(" .") or repr(error)
    return SlowSessionError(f"it said: {line}") if _WAITED.search(line) else FailedSessionError(line)


@contextmanager
def local_ray(num_cpus: int | None = None, resources: Mapping[str, float] | None = None) -> Iterator[str]:
    """Start Ray and yield its address, host:port; it and its files are removed at the end, or when this process dies.

    It offers `num_cpus` processors, by default those that this process may use, and the resources.

    Raises:
        SessionError: if it does not start, and SlowSessionError if not in time; nothing of it is left then.
    """
    if sys.platform == "win32":
        remedy = "train without env runners and, for a fleet, with one gateway; or join a Ray that runs by its address"
        raise SessionError("Windows, where no private Ray is started", remedy)
    num_cpus = usable_processors() if num_cpus is None else num_cpus
    _check_open_files(num_cpus)
    environment = os.environ | _ENVIRONMENT | {"PATH": _path_with_shell()}
    _check_loopback()
    with temporary_folder("soulsgraph-ray-", FOLDER) as folder:
        with (folder / "errors").open("wb") as errors:
            owned = subprocess.Popen(
                # -P: what lies in the present folder is none of our modules, nor Ray's.
                [sys.executable, "-P", "-m", __name__, str(folder), to_json([num_cpus, dict(resources or {})])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                # Ctrl-C is for the owner, which ends Ray in order.
                **APART,
            )
        with owned:
            try:
                yield _address(owned, folder)
            finally:
                _end(owned)


def _check_open_files(num_cpus: int) -> None:
    """Raise the limit of open files, which Ray's processes inherit, to what the system allows.

    Raises:
        SessionError: if it allows too few: Ray's servers would wait for each other in vain, and say nothing.
    """
    needed, allowed = _OPEN_FILES + _OPEN_FILES_PER_PROCESSOR * num_cpus, raise_open_files()
    # Windows has no such limit (0), and the one of another system may be infinite (-1).
    if 0 < allowed < needed:
        raise SessionError(
            f"that this process may open {allowed} files, where Ray needs at least {needed} for {num_cpus} processors",
            f"raise the hard limit (ulimit -Hn {needed}, or LimitNOFILE= of the service), or train without env runners",
        )


def _path_with_shell() -> str:
    """Return a PATH that leads to the shell by which Ray starts workers: this process's, with the system's if needed.

    Raises:
        SessionError: if there is none: every worker would end as it starts, and Ray would start others without end.
    """
    own = os.environ.get("PATH", os.defpath)
    # An empty entry would be the working folder, whose programs are not executed.
    for path in (own, os.pathsep.join(filter(None, (own, os.defpath)))):
        if shutil.which(_SHELL, path=path):
            return path
    raise SessionError(
        f"no {_SHELL}, by which Ray starts its workers, in PATH ({own}) nor in {os.defpath}",
        f"install {_SHELL}, or add its folder to PATH",
    )


def _check_loopback() -> None:
    """Refuse a machine that does not reach itself: Ray's processes would look for each other in vain.

    Raises:
        SessionError: naming the loopback.
    """
    try:
        with socket.create_server((_LOOPBACK, 0)) as server:
            socket.create_connection(server.getsockname(), _SELF_WITHIN_S).close()
    except OSError as error:
        raise SessionError(
            f"that this machine does not reach itself at {_LOOPBACK} ({error.strerror or error})",
            "bring the loopback up (ip link set lo up), or join a Ray that runs by its address",
        ) from error


def _address(owned: subprocess.Popen[bytes], folder: Path) -> str:
    assert owned.stdout is not None
    ready = bool(select.select([owned.stdout], [], [], START_TIMEOUT_S)[0])
    address = owned.stdout.readline().decode().strip() if ready else ""
    if address:
        return address
    logged = _logged(folder / "ray")
    if not ready:
        raise SlowSessionError(f"it was still starting{logged}")
    lines = (folder / "errors").read_text(encoding="utf-8", errors="replace").split("\n")
    found = next((line.strip(" .") for line in reversed(lines) if line.strip()), "")
    if not found:
        with suppress(subprocess.TimeoutExpired):
            owned.wait(_END_WITHIN_S)
        raise FailedSessionError(f"that it {describe_end(owned.poll() or 0)}{logged}")
    if _WAITED.search(found):
        raise SlowSessionError(f"it said: {found}{logged}")
    raise FailedSessionError(f"{found}{logged}")


def _logged(folder: Path) -> str:
    """Return the last error in the logs of Ray's servers as a phrase; empty if there is none."""
    for name in ("gcs_server", "raylet"):
        for file in folder.glob(f"session_2*/logs/{name}.*"):
            with suppress(OSError):
                text = file.read_text(encoding="utf-8", errors="replace")
                if found := _LOGGED_ERROR.findall(text):
                    return f" (Ray's {name}: {found[-1].strip(' .')[:_LONGEST_LINE]})"
    return ""


def _end(owned: subprocess.Popen[bytes]) -> None:
    owned.terminate()
    try:
        owned.wait(_END_WITHIN_S)
    except subprocess.TimeoutExpired:
        _kill_descendants(psutil.Process(owned.pid))
        owned.kill()


class _Head(Node):
    """Ray's processes without those that are not needed here, and without waiting for its slow agents."""

    def start_api_server(self, *, include_dashboard: bool, raise_on_failure: bool) -> None:
        """Start no dashboard."""

    def start_ray_processes(self) -> None:
        """Start the raylet without agents, which are not needed here."""
        for name in AGENT_PORTS:
            Path(self._session_dir, f"{name}_{self._node_id}").write_text("-1", encoding="ascii")
        super().start_ray_processes()


def _start(folder: str, num_cpus: int | None, resources: dict[str, float]) -> str:
    parameters = RayParams(
        node_ip_address=_LOOPBACK,
        num_cpus=num_cpus,
        resources=resources,
        # Ray itself sees the limit of a container, but of no other cgroup.
        memory=max(usable_memory().available - OBJECT_STORE_BYTES, OBJECT_STORE_BYTES),
        object_store_memory=OBJECT_STORE_BYTES,
        temp_dir=folder,
        include_dashboard=False,
        include_log_monitor=False,
        no_monitor=True,
        dashboard_agent_listen_port=None,
        runtime_env_agent_port=free_port(),
        _system_config=_SYSTEM,
    )
    return str(_Head(parameters, head=True, shutdown_at_exit=False, spawn_reaper=True).gcs_address)


def free_port(host: str = _LOOPBACK) -> int:
    """Return a port that is free, and not one that the system itself may assign before it is bound.

    A raylet whose runtime environment agent finds its port taken ends, seconds after the session has begun.

    Raises:
        OSError: if there is none.
    """
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket(family_of(host)) as probe, suppress(OSError):
            probe.bind((host, port))
            return port
    raise OSError(f"no free port from {_PORTS[0]} to {_PORTS[-1]}")


def _kill_descendants(process: psutil.Process) -> None:
    """Kill every process that a process started or adopted, until none is left."""
    deadline = time.monotonic() + _END_WITHIN_S
    while (children := _descendants(process)) and time.monotonic() < deadline:
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, timeout=0.2)


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    """Return the descendants that still run, zombies left out: native code that waits for Ray does not reap them."""
    found = []
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
    return found


def _stop(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit


def main(folder: str, num_cpus: int | None, resources: dict[str, float]) -> None:
    """Start Ray, print its address, and end it and its files at a SIGTERM or when standard input closes."""
    signal.signal(signal.SIGTERM, _stop)
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_BECOME_SUBREAPER, 1, 0, 0, 0)
    try:
        try:
            address = _start(f"{folder}/ray", num_cpus, resources)
        except Exception:
            # Another program took its port meanwhile, or the processor was busy: the files are in memory now.
            _kill_descendants(psutil.Process())
            address = _start(f"{folder}/ray", num_cpus, resources)
        print(address, flush=True)
        sys.stdin.read()
    finally:
        _kill_descendants(psutil.Process())
    # Only an owner that was killed closes the input; any other removes the folder itself.
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], *json.loads(sys.argv[2]))
