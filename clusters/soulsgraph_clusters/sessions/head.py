"""A Ray head: whether it answers, and how a process of it ended."""

from __future__ import annotations

import socket
import subprocess
import sys
from importlib.metadata import version
from signal import Signals

from soulsgraph_envs.core.access import split_address
from soulsgraph_envs.core.errors import SoulsGraphError, UnavailableError

PROBE_TIMEOUT_S = 5.0
#: Ray's own wait for a cluster that refuses the token is longer than anyone wants to look at it.
HEALTH_CHECK_TIMEOUT_S = 30.0


class ClusterError(SoulsGraphError):
    """A cluster could not be joined, or lacks resources."""


class ClusterAwayError(ClusterError, UnavailableError):
    """A cluster does not answer, or has no free place: both may be over by themselves."""


def check_cluster(address: str, source: str = "`address`") -> None:
    """Check that a cluster of this Ray version answers within seconds and accepts our token.

    `source` is what an error asks to correct.

    Raises:
        ClusterError: otherwise, with the check that failed.
    """
    if address != "auto":
        _probe(address, source)
    command = [sys.executable, "-P", "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=HEALTH_CHECK_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise ClusterAwayError(
            f"{address}: expected a Ray cluster to answer within {HEALTH_CHECK_TIMEOUT_S:g} s, found silence; "
            "check that the port is that of `ray start --head`."
        ) from error
    if answer.returncode:
        raise _refusal(address, answer.stderr, source)


def _probe(address: str, source: str = "`address`") -> None:
    try:
        place = split_address(address, least_port=1)
    except ValueError as error:
        raise ClusterError(
            f"Ray address: expected host:port, 'auto' or 'local', found {address!r}; correct {source}."
        ) from error
    try:
        socket.create_connection(place, PROBE_TIMEOUT_S).close()
    # A host that cannot be encoded is a UnicodeError.
    except (OSError, UnicodeError) as error:
        raise ClusterAwayError(
            f"{address}: expected a Ray cluster to answer within {PROBE_TIMEOUT_S:g} s, found: {error}; "
            f"start it with `ray start --head` or correct {source}."
        ) from error


def _refusal(address: str, output: str, source: str) -> ClusterError:
    if "AuthenticationError" in output:
        return ClusterError(
            f"{address}: expected the cluster to take our token, found that it is missing or another; set "
            "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH to the file the cluster was started with."
        )
    lines = [line for line in output.splitlines() if line.strip()]
    return ClusterAwayError(
        f"{address}: expected a healthy cluster of Ray {version('ray')}, found: "
        f"{lines[-1].strip() if lines else 'no answer'}; start one with `ray start --head` or correct {source}."
    )


def describe_end(code: int) -> str:
    """Return how a process ended in words: by its exit code, negative for a signal."""
    # Real-time signals have no name.
    names = {one.value: one.name for one in Signals}
    return f"was ended by {names.get(-code, f'signal {-code}')}" if code < 0 else f"ended with code {code}"
