"""Run inside a Ray session, a small local one or a cluster joined by its address; place env runners there."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

# A driver that imports torch only after ray.init() may die in the loader of oneMKL.
import torch  # noqa: F401
from ray._private import ray_constants
from ray._private.authentication.authentication_token_setup import _enable_token_auth
from ray.util.placement_group import placement_group, remove_placement_group

from soulsgraph_clusters.local_ray import SessionError, local_ray
from soulsgraph_envs.core.errors import SoulsGraphError

#: The address that means a session of one's own, whatever RAY_ADDRESS says.
LOCAL = "local"
PROBE_TIMEOUT_S = 5.0
#: Ray's own wait for a cluster that refuses the token is longer than anyone wants to look at it.
HEALTH_CHECK_TIMEOUT_S = 30.0

_MODE, _TOKEN = "RAY_AUTH_MODE", ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
_MODES = ("token", "disabled")
_CERTIFICATES = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")


class ClusterError(SoulsGraphError):
    """A cluster could not be joined, or lacks resources."""


@dataclass(frozen=True)
class Session:
    """Where Ray runs, or would run if it were needed."""

    local: bool

    @property
    def resources(self) -> dict[str, float]:
        """The present resources by name; a cluster's nodes come and go."""
        return dict(ray.cluster_resources())


@contextmanager
def connect(
    address: str | None = None,
    num_cpus: int | None = None,
    resources: Mapping[str, float] | None = None,
    needed: bool = True,
) -> Iterator[Session]:
    """Join or start Ray, and leave or stop it at the end.

    Args:
        address: `host:port` or `auto` joins a cluster; `local` starts a private session, and so
            does None unless RAY_ADDRESS names a cluster, as it does inside a Ray job.
        num_cpus: Processors the local session offers; a cluster knows its own.
        resources: Further resources of the local session, such as `game_pc`.
        needed: Whether a private session is started: training without remote env runners works without Ray.

    Raises:
        ClusterError: as `check_session`.
        SessionError: if a private session does not start; nothing of it is left then.
    """
    if ray.is_initialized():
        yield Session(local=False)
        return
    check_session(address)
    chosen = chosen_address(address)
    if chosen == LOCAL and not needed:
        yield Session(local=True)
        return
    with ExitStack() as stack:
        if local := chosen == LOCAL:
            _make_token()
            chosen = stack.enter_context(local_ray(num_cpus, resources))
        stack.callback(ray.shutdown)
        # `ray.init` would replace the loopback address of a private session by another one of this machine.
        clusters = ray_constants.ENABLE_RAY_CLUSTER
        ray_constants.ENABLE_RAY_CLUSTER = clusters and not local
        try:
            ray.init(chosen, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:
            if not local:
                raise
            raise SessionError(str(error).partition("\n")[0].strip(" .") or repr(error)) from error
        finally:
            ray_constants.ENABLE_RAY_CLUSTER = clusters
        yield Session(local)


def chosen_address(address: str | None) -> str:
    """Return where Ray runs: at the address, else at RAY_ADDRESS, else in a private session."""
    return address or os.environ.get("RAY_ADDRESS") or LOCAL


def check_session(address: str | None = None) -> None:
    """Check that `connect` can use the address, token and certificates it would get.

    Raises:
        ClusterError: if the cluster does not answer within seconds or refuses the token, or a file of the
            environment's cannot be used.
    """
    _check_token()
    _check_certificates()
    if (chosen := chosen_address(address)) != LOCAL:
        check_cluster(chosen, "`address`" if address else "RAY_ADDRESS")


def _make_token() -> None:
    if not any(os.environ.get(name) for name in _TOKEN):
        # Ray would leave a token in the home folder, readable by everyone; this one dies with us.
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    if _MODE not in os.environ:
        _enable_token_auth()


def _check_token() -> None:
    mode, path = os.environ.get(_MODE, "token"), os.environ.get("RAY_AUTH_TOKEN_PATH")
    if mode.lower() not in _MODES:
        raise ClusterError(
            f"{_MODE}: expected {' or '.join(_MODES)}, found {mode!r}, with which Ray demands no token; "
            "set it to token."
        )
    if mode.lower() == "disabled" or not path or os.environ.get("RAY_AUTH_TOKEN"):
        return
    try:
        found = "" if Path(path).read_text(encoding="utf-8").strip() else "an empty file"
    except (OSError, UnicodeDecodeError) as error:
        found = str(error)
    if found:
        raise ClusterError(
            f"RAY_AUTH_TOKEN_PATH: expected the file of a token, found {found}; copy the cluster's there, "
            "or unset it for a Ray on this machine alone."
        )


def _check_certificates() -> None:
    if os.environ.get("RAY_USE_TLS", "").lower() not in ("1", "true"):
        return
    certificate, key, authority = paths = [os.environ.get(name, "") for name in _CERTIFICATES]
    found = ", ".join(f"{name}={path or 'nothing'}" for name, path in zip(_CERTIFICATES, paths, strict=True))
    try:
        if not all(paths):
            raise FileNotFoundError("too few of them")
        # Without a password OpenSSL would ask for that of an encrypted key, which Ray cannot use.
        ssl.create_default_context(cafile=authority).load_cert_chain(certificate, key, password="")
    except OSError as error:
        raise ClusterError(
            f"RAY_USE_TLS: expected a certificate, its key and its authority as PEM files, found {error} ({found}); "
            "correct them or unset RAY_USE_TLS."
        ) from error


def check_cluster(address: str, source: str = "`address`") -> None:
    """Check that a cluster of this Ray version answers within seconds and accepts our token.

    `source` is what an error asks to correct.

    Raises:
        ClusterError: otherwise, with the check that failed.
    """
    if address != "auto":
        _probe(address, source)
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=HEALTH_CHECK_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise ClusterError(
            f"{address}: expected a Ray cluster to answer within {HEALTH_CHECK_TIMEOUT_S:g} s, found silence; "
            "check that the port is that of `ray start --head`."
        ) from error
    if answer.returncode:
        raise ClusterError(_refusal(address, answer.stderr, source))


def _probe(address: str, source: str) -> None:
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ClusterError(f"Ray address: expected host:port, 'auto' or 'local', found {address!r}; correct {source}.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), PROBE_TIMEOUT_S).close()
    # A host that cannot be encoded is a UnicodeError.
    except (OSError, UnicodeError) as error:
        raise ClusterError(
            f"{address}: expected a Ray cluster to answer within {PROBE_TIMEOUT_S:g} s, found: {error}; "
            f"start it with `ray start --head` or correct {source}."
        ) from error


def _refusal(address: str, output: str, source: str) -> str:
    if "AuthenticationError" in output:
        return (
            f"{address}: expected the cluster to take our token, found that it is missing or another; "
            "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH to the file the cluster was started with."
        )
    lines = [line for line in output.splitlines() if line.strip()]
    return (
        f"{address}: expected a healthy cluster of Ray {ray.__version__}, found: "
        f"{lines[-1].strip() if lines else 'no answer'}; start one with `ray start --head` or correct {source}."
    )


#: The resource a worker joins with (`ray start --resources '{"game_pc": 1}'`): one game, one runner.
GAME_PC = "game_pc"
#: Whole seconds. A node that is alive grants a place at once; one that died may stay on Ray's list for a minute.
RESERVATION_TIMEOUT_S = 30

_PROCESSOR = {"CPU": 1.0}

_logger = logging.getLogger("soulsgraph")


def place_env_runners(wanted: int, session: Session) -> dict[str, Any]:
    """Return the keyword arguments of RLlib's `AlgorithmConfig.env_runners` that place remote runners.

    With fewer places than `wanted` a stage continues with those available, so that a run survives the
    loss of a game PC. Without remote runners the driver samples itself; the learner always runs there.

    Raises:
        ClusterError: if there is no place at all.
    """
    if not wanted:
        return {"num_env_runners": 0}
    offered = session.resources
    one = _PROCESSOR | ({GAME_PC: 1.0} if offered.get(GAME_PC, 0.0) else {})
    most = min(wanted, *(int(offered.get(name, 0.0)) for name in one))
    count = next((count for count in range(most, 0, -1) if _answer(one, count)), 0)
    if not count:
        raise ClusterError(
            f"env runners: expected a free place that offers {_describe(one)}, found none among {_describe(offered)}; "
            "join a worker that offers it and go on with the run, or begin another without `env_runners` and `games`."
        )
    if count < wanted:
        _logger.warning("env runners: %d of %d have a place now; the stage goes on with those", count, wanted)
    return {
        "num_env_runners": count,
        "num_cpus_per_env_runner": 1,
        "custom_resources_per_env_runner": {GAME_PC: 1} if GAME_PC in one else {},
    }


def _answer(one: Mapping[str, float], count: int) -> bool:
    """Return whether `count` places are free now: RLlib would wait for a missing one forever."""
    reservation = placement_group([dict(one)] * count)
    try:
        return bool(reservation.wait(RESERVATION_TIMEOUT_S))
    finally:
        remove_placement_group(reservation)


def _describe(resources: Mapping[str, float]) -> str:
    shown = {name: amount for name, amount in resources.items() if name in (GAME_PC, *_PROCESSOR)}
    return ", ".join(f"{name} {amount:g}" for name, amount in shown.items()) or "nothing"
