"""A Ray of this machine alone: on the loopback, with a token of its own, and gone with the process that started it."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import ray

# The address of this machine is a constant of that module, whatever is asked for: on Windows and macOS the loopback, on
# Linux one that others reach.
from ray._private import ray_constants
from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]

from soulsgraph_envs.core.access import family_of
from soulsgraph_envs.core.errors import UnavailableError
from soulsgraph_envs.core.files import temporary_folder
from soulsgraph_envs.core.machine import raise_open_files, usable_processors

OBJECT_STORE_BYTES = 128 * 2**20
#: The path of a socket must stay below 107 bytes, so not TMPDIR unless this one cannot be written.
FOLDER = Path("/tmp") if os.access("/tmp", os.W_OK | os.X_OK) else None

_ENVIRONMENT = {
    # Of Ray's own limits those that can be set: a busy machine exceeds the defaults.
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_gcs_server_port_wait_time_s": "60",
    # Ray's processes stay on the loopback by this.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # A module in the working folder by the name of one of Ray's is not executed.
    "PYTHONSAFEPATH": "1",
}
_SYSTEM = {"enable_metrics_collection": False, "enable_worker_prestart": False, "prestart_worker_first_driver": False}


class SessionError(UnavailableError):
    """Ray could not be started on this machine."""


@contextmanager
def local_ray(num_cpus: int | None = None, resources: Mapping[str, float] | None = None) -> Iterator[None]:
    """Start Ray, and stop it at the end; its processes also end when this one is killed.

    It offers `num_cpus` processors, by default those that this process may use, and the resources.

    Raises:
        SessionError: if it does not start.
    """
    if sys.platform == "win32":
        raise SessionError(
            "Ray: expected Linux or macOS for a Ray of this machine, found Windows; train without env runners and, for "
            "a fleet, with `no_ray`, or join a Ray that runs by its address."
        )
    raise_open_files()
    if not (os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")):
        # Ray would leave a token in the home folder, readable by everyone; this one dies with us.
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    forget_token()
    clusters = ray_constants.ENABLE_RAY_CLUSTER
    with temporary_folder("soulsgraph-ray-", FOLDER) as folder:
        before = {name: os.environ.get(name) for name in _ENVIRONMENT}
        os.environ.update(_ENVIRONMENT)
        ray_constants.ENABLE_RAY_CLUSTER = False
        try:
            _start(folder / "ray", num_cpus, resources or {})
        except Exception as error:
            found = str(error).partition("\n")[0].strip(" .") or repr(error)
            raise SessionError(
                f"Ray on this machine: expected it to start, found: {found}; try again when the machine is less busy, "
                "or join a Ray that runs by its address."
            ) from error
        finally:
            ray_constants.ENABLE_RAY_CLUSTER = clusters
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
        try:
            yield
        finally:
            ray.shutdown()


def _start(folder: Path, num_cpus: int | None, resources: Mapping[str, float], tries: int = 3) -> None:
    try:
        ray.init(
            "local",
            num_cpus=num_cpus or usable_processors(),
            resources=dict(resources),
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=str(folder),
            _system_config=_SYSTEM,
        )
    except Exception:
        ray.shutdown()
        if tries == 1:
            raise
        # Ray ends a node whose agents took over 15 s, a fixed limit; its files are in memory now.
        _start(folder, num_cpus, resources, tries - 1)


def forget_token() -> None:
    """Let Ray read its token again: it keeps the first of a process, though the environment may name another by now."""
    AuthenticationTokenLoader.instance().reset_cache()


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that is free now."""
    with socket.socket(family_of(host)) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
