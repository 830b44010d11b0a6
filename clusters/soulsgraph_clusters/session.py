"""Run inside a Ray session: a small local one by default, or a cluster that is joined by its address."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import ray

# A driver that imports torch only after ray.init() may die in the loader of oneMKL.
import torch  # noqa: F401

from soulsgraph_envs.errors import SoulsGraphError

#: The address that means a session of one's own, whatever RAY_ADDRESS says.
LOCAL = "local"
OBJECT_STORE_BYTES = 128 * 2**20
PROBE_TIMEOUT_S = 5.0
#: Ray's own wait for a cluster that refuses the token is longer than anyone wants to look at it.
HEALTH_CHECK_TIMEOUT_S = 30.0

_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
_AUTHENTICATION = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
_SYSTEM = {"enable_metrics_collection": False, "enable_worker_prestart": False, "prestart_worker_first_driver": False}


class ClusterError(SoulsGraphError):
    """A cluster could not be joined, or offers too little."""


@dataclass(frozen=True)
class Session:
    """Where Ray runs."""

    local: bool

    @property
    def resources(self) -> dict[str, float]:
        """What it offers now, resource name to amount; a cluster's nodes come and go."""
        return dict(ray.cluster_resources())


@contextmanager
def connect(address: str | None = None, num_cpus: int | None = None) -> Iterator[Session]:
    """Give a Ray session and leave it at the end.

    Args:
        address: `host:port` or `auto` joins a cluster; `local` starts a session of one's own, and so
            does None unless RAY_ADDRESS names a cluster, as it does inside a Ray job.
        num_cpus: Processors the local session offers; a cluster knows its own.

    Raises:
        ClusterError: if the cluster does not answer within seconds, or refuses the token.
    """
    if ray.is_initialized():
        yield Session(local=False)
        return
    chosen = address or os.environ.get("RAY_ADDRESS") or LOCAL
    try:
        with _local(num_cpus) if chosen == LOCAL else _joined(chosen):
            yield Session(local=chosen == LOCAL)
    finally:
        ray.shutdown()


@contextmanager
def _local(num_cpus: int | None) -> Iterator[None]:
    if not any(name in os.environ for name in _AUTHENTICATION):
        # Ray would leave a token in the home folder, readable by everyone; this one dies with us.
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    ray.init(
        LOCAL,
        num_cpus=num_cpus,
        object_store_memory=OBJECT_STORE_BYTES,
        include_dashboard=False,
        _temp_dir=_session_folder(),
        _system_config=_SYSTEM,
        **_QUIET,
    )
    yield


@cache
def _session_folder() -> str:
    """Make the folder of Ray's logs and sockets; it goes with the process, for Ray writes to it late."""
    # Not TMPDIR: the path of a socket in it must stay below 107 bytes.
    folder = tempfile.mkdtemp(prefix="soulsgraph-", dir="/tmp" if os.path.isdir("/tmp") else None)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextmanager
def _joined(address: str) -> Iterator[None]:
    check_cluster(address)
    ray.init(address, **_QUIET)
    yield


def check_cluster(address: str) -> None:
    """Make sure that a cluster of this Ray version answers and takes our token, within seconds.

    Raises:
        ClusterError: otherwise, telling which of it failed.
    """
    if address != "auto":
        _probe(address)
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=HEALTH_CHECK_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise ClusterError(
            f"{address}: expected a Ray cluster to answer within {HEALTH_CHECK_TIMEOUT_S:g} s, found silence; "
            "check that the port is that of `ray start --head`."
        ) from error
    if answer.returncode:
        raise ClusterError(_refusal(address, answer.stderr))


def _probe(address: str) -> None:
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit() or not 0 < int(port) < 65536:
        raise ClusterError(f"Ray address: expected host:port, 'auto' or 'local', found {address!r}; correct --address.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), PROBE_TIMEOUT_S).close()
    except OSError as error:
        raise ClusterError(
            f"{address}: expected a Ray cluster to answer within {PROBE_TIMEOUT_S:g} s, found: {error}; "
            "start it with `ray start --head` or correct --address."
        ) from error


def _refusal(address: str, output: str) -> str:
    if "AuthenticationError" in output:
        return (
            f"{address}: expected the cluster to take our token, found that it is missing or another; "
            "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH to the file the cluster was started with."
        )
    lines = [line for line in output.splitlines() if line.strip()]
    return (
        f"{address}: expected a healthy cluster of Ray {ray.__version__}, found: "
        f"{lines[-1].strip() if lines else 'no answer'}; start one with `ray start --head` or correct --address."
    )
