"""Run inside a Ray session, a small local one or a cluster joined by its address; place runners and actors there."""

from __future__ import annotations

import logging
import os
import secrets
import ssl
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import ray
import torch  # noqa: F401
from ray import cloudpickle
from ray._private import ray_constants
from ray._private.authentication.authentication_token_setup import _enable_token_auth
from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]
from ray.exceptions import RayError
from ray.job_config import JobConfig
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group

from soulsgraph_clusters.sessions.head import ClusterAwayError, ClusterError, check_cluster
from soulsgraph_clusters.sessions.local_ray import failed_session, local_ray
from soulsgraph_clusters.sessions.nodes import check_nodes
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.terminal import open_streams
from soulsgraph_policies.agents.projects import carried_by_value

# A driver that imports torch only after ray.init() may die in the loader of oneMKL.


T = TypeVar("T")

#: The address that means a session of your own, whatever RAY_ADDRESS says.
LOCAL = "local"

_MODE, _TOKEN = "RAY_AUTH_MODE", ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
_MODES = ("token", "disabled")
_UV = "RAY_ENABLE_UV_RUN_RUNTIME_ENV"
_CERTIFICATES = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")


@dataclass(frozen=True)
class Session:
    """Where Ray runs, or would run if it were needed."""

    local: bool
    #: For how long a stage waits for all the places that it wants, those that nobody offers yet included; 0 waits for
    #: those alone that are offered.
    places_within_s: float = 0.0
    #: Nodes whose packages were found to be those that run here.
    examined: set[str] = field(default_factory=set, compare=False)

    @property
    def resources(self) -> dict[str, float]:
        """The present resources by name; a cluster's nodes come and go."""
        return dict(ray.cluster_resources())

    def check_nodes(self) -> None:
        """Check that every node of a cluster has the files that run here; raises as `nodes.check_nodes`."""
        if not self.local:
            check_nodes(self.examined)


@contextmanager
def connect(
    address: str | None = None,
    num_cpus: int | None = None,
    resources: Mapping[str, float] | None = None,
    needed: bool = True,
    places_within_s: float = 0.0,
) -> Iterator[Session]:
    """Join or start Ray, and leave or stop it at the end.

    Args:
        address: `host:port` or `auto` joins a cluster; `local` starts a private session, and so
            does None unless RAY_ADDRESS names a cluster, as it does inside a Ray job.
        num_cpus: Processors the local session offers; a cluster knows its own.
        resources: Further resources of the local session, such as `game_pc`.
        needed: Whether a private session is started: training without remote env runners works without Ray.
        places_within_s: The session's, for a cluster whose autoscaler starts machines.

    Raises:
        ClusterError: as `check_session`.
        SessionError: if a private session does not start; nothing of it is left then.
    """
    if ray.is_initialized():
        yield Session(False, places_within_s)
        return
    open_streams()
    check_session(address)
    chosen = chosen_address(address)
    if chosen == LOCAL and not needed:
        yield Session(local=True)
        return
    with ExitStack() as stack:
        if local := chosen == LOCAL:
            _make_token()
            chosen = stack.enter_context(local_ray(num_cpus, resources))
        # Ray keeps the token that this process read first, though the environment may name another one now.
        AuthenticationTokenLoader.instance().reset_cache()
        stack.callback(ray.shutdown)
        # `ray.init` would replace the loopback address of a private session by another one of this machine.
        clusters, uv = ray_constants.ENABLE_RAY_CLUSTER, ray_constants.RAY_ENABLE_UV_RUN_RUNTIME_ENV
        ray_constants.ENABLE_RAY_CLUSTER = clusters and not local
        # Under `uv run` it would upload the working folder, runs included, and build another environment of it.
        ray_constants.RAY_ENABLE_UV_RUN_RUNTIME_ENV = uv and _UV in os.environ
        try:
            job_config = _SafePath() if local else None
            ray.init(chosen, log_to_driver=False, logging_level=logging.ERROR, job_config=job_config)
        except Exception as error:
            if not local:
                raise
            raise failed_session(error) from error
        finally:
            ray_constants.ENABLE_RAY_CLUSTER, ray_constants.RAY_ENABLE_UV_RUN_RUNTIME_ENV = clusters, uv
        with carried_by_value(cloudpickle):
            yield Session(local, 0.0 if local else places_within_s)


class _SafePath(JobConfig):
    """Pass to workers no path that this process does not import from: Ray adds the working folder to theirs."""

    def _serialize(self) -> bytes:
        here = os.path.abspath(os.curdir)
        paths: list[str] = self._py_driver_sys_path
        paths[:] = [path for path in paths if path != here or here in sys.path]
        serialized: bytes = super()._serialize()
        return serialized


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


#: The resource a worker joins with (`ray start --resources '{"game_pc": 1}'`): one game, or one env runner.
GAME_PC = "game_pc"
#: Whole seconds. A node that is alive grants a place at once; one that died may stay on Ray's list for a minute.
RESERVATION_TIMEOUT_S = 30
#: Whole seconds after which a line says who holds the place that is waited for.
_AT_ONCE_S = 2
#: Seconds between two looks at what was asked for.
_LOOK_EVERY_S = 0.2
#: The name of what is reserved only to see whether it is free.
_RESERVATION = "soulsgraph looks for a place"
#: What Ray is asked about holders: the most of each kind, the most whole seconds, and what is shown of them.
_MOST_ASKED, _STATE_WITHIN_S, _MOST_SHOWN, _LONGEST_ENTRY = 1000, 5, 5, 80

_PROCESSOR = {"CPU": 1.0}

_logger = logging.getLogger("soulsgraph")


def place_env_runners(wanted: int, session: Session) -> dict[str, Any]:
    """Return the keyword arguments of RLlib's `AlgorithmConfig.env_runners` that place remote runners.

    With fewer places than `wanted` a stage continues with those available, so that a run survives the
    loss of a machine. Without remote runners the driver samples itself; the learner always runs there.

    Raises:
        ClusterError: as `find_places`.
    """
    if not wanted:
        return {"num_env_runners": 0}
    count, resources = find_places(wanted, session)
    if count < wanted:
        _logger.warning("env runners: %d of %d have a place now; the stage goes on with those", count, wanted)
    return {"num_env_runners": count, "num_cpus_per_env_runner": 1, "custom_resources_per_env_runner": resources}


def find_places(wanted: int, session: Session) -> tuple[int, dict[str, float]]:
    """Return how many of `wanted` places are free, and what each takes beside a processor: a game PC if there are any.

    Raises:
        ClusterError: if there is no place at all, or as `check_nodes`.
    """
    session.check_nodes()
    offered = session.resources
    game_pc = {GAME_PC: 1.0} if offered.get(GAME_PC, 0.0) else {}
    one = _PROCESSOR | game_pc
    count = _free_places(one, wanted, min(int(offered.get(name, 0.0)) for name in one), session)
    if not count:
        held = f", held by {holders}" if (holders := describe_holders(one)) else ""
        raise ClusterAwayError(
            f"env runners: expected a free place that offers {_describe(one)}, found none among {_describe(offered)}"
            f"{held}; join a worker that offers it and resume the run, or begin another without `env_runners` and "
            "`games`."
        )
    return count, game_pc


def place_gateway() -> dict[str, Any]:
    """Return the options of a Ray actor that is a gateway beside the driver."""
    # It waits for the network most of the time: a processor of its own would be kept from others.
    return {"num_cpus": 0, "resources": {f"node:{ray.util.get_node_ip_address()}": 0.001}}


def _free_places(one: Mapping[str, float], wanted: int, offered: int, session: Session) -> int:
    """Return how many of the `wanted` places are free within the session's time, and report at once who holds them.

    Each is asked for by itself: Ray's autoscaler sees them all, those included that no node offers yet.
    """
    sought = wanted if session.places_within_s else min(wanted, offered)
    # Names are unique within a job.
    names = [f"{_RESERVATION}, {number}" for number in range(sought if session.local else wanted)]
    reservations = [placement_group([dict(one)], name=name) for name in names]

    def free(within_s: float) -> int:
        until_s = time.monotonic() + within_s
        while (count := sum(map(_is_reserved, reservations))) < sought and time.monotonic() < until_s:
            time.sleep(_LOOK_EVERY_S)
        return min(count, wanted)

    try:
        if (count := free(_AT_ONCE_S)) < sought:
            _report_wait([one] * sought)
            count = free(session.places_within_s or RESERVATION_TIMEOUT_S)
        return count
    finally:
        for reservation in reservations:
            remove_placement_group(reservation)


def _is_reserved(reservation: PlacementGroup) -> bool:
    return bool(placement_group_table(reservation)["state"] == "CREATED")


def _report_wait(bundles: Sequence[Mapping[str, float]]) -> None:
    wanted = max(bundles, key=len)
    held = describe_holders(wanted) or "nobody that Ray knows: a node may have been lost"
    number = f"{len(bundles)} places that offer" if len(bundles) > 1 else "a place that offers"
    _logger.warning("Ray: waiting for %s %s, held by %s", number, _describe(wanted), held)


def describe_wait(one: Mapping[str, float]) -> str:
    """Return for what work waits and who holds it; empty if one place with these resources is free."""
    free = ray.available_resources()
    if all(free.get(name, 0.0) >= amount for name, amount in one.items()):
        return ""
    return f"waiting for a place that offers {_describe(one)}, held by {describe_holders(one) or 'others'}"


def describe_holders(wanted: Mapping[str, float]) -> str:
    """Return which jobs hold these resources, and by what: actors, tasks or placement groups; empty if none is known.

    Ray's own state is asked, which only a cluster with a dashboard has.
    """
    # Imported here: it takes a moment, and only who waits needs it.
    from ray.util.state import list_actors, list_jobs, list_placement_groups, list_tasks

    holders = list[str]()
    asked: dict[str, Any] = {"detail": True, "limit": _MOST_ASKED, "timeout": _STATE_WITHIN_S}
    asked |= {"raise_on_missing_output": False}
    with suppress(Exception):  # Of many kinds, where no dashboard answers: then nothing is known.
        jobs = {job.job_id: job for job in list_jobs(**asked)}

        def job_of(number: str | None) -> str:
            job = jobs.get(number)
            name = (job and job.submission_id) or f"driver {number}"
            entry = " ".join(((job and job.entrypoint) or "").split())[:_LONGEST_ENTRY]
            return f"job {name} ({entry})" if entry else f"job {name}"

        for group in list_placement_groups(filters=[("state", "=", "CREATED")], **asked):
            if not group.name.startswith(_RESERVATION) and _holds(
                wanted, *(one["unit_resources"] for one in group.bundles or ())
            ):
                holders.append(f"placement group {group.placement_group_id[:8]} of {job_of(group.creator_job_id)}")
        for actor in list_actors(filters=[("state", "=", "ALIVE")], **asked):
            if _holds(wanted, actor.required_resources or {}):
                where = f"{actor.class_name} (process {actor.pid})"
                holders.append(f"actor {where} of {job_of(actor.job_id)}")
        for task in list_tasks(filters=[("state", "=", "RUNNING")], **asked):
            if task.type == "NORMAL_TASK" and _holds(wanted, task.required_resources or {}):
                holders.append(f"task {task.name} of {job_of(task.job_id)}")
    return _shown([*dict.fromkeys(holders)])


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    return ", ".join(names[:_MOST_SHOWN]) + more


def _holds(wanted: Mapping[str, float], *held: Mapping[str, float]) -> bool:
    """Return whether resources, as Ray names them, have any of those wanted; within a group they have its id behind."""
    return any(one.get(name, 0.0) > 0.0 for one in held for name in wanted)


def _describe(resources: Mapping[str, float]) -> str:
    shown = {name: amount for name, amount in resources.items() if name in (GAME_PC, *_PROCESSOR)}
    return ", ".join(f"{name} {amount:g}" for name, amount in shown.items()) or "nothing"


class RestartingActor:
    """Keep an actor's `play` under way; why it ended is reported once, and it is called again after `try_every_s`.

    The actor has `is_placed`, which returns once it runs, `play`, which gets `words` and returns after `stop`, and
    `stop`.
    """

    def __init__(
        self, name: str, actor: ray.actor.ActorHandle, try_every_s: float, end_within_s: float, *words: Any
    ) -> None:
        self._name, self._actor, self._words, self._over = name, actor, words, threading.Event()
        self._try_every_s, self._end_within_s = try_every_s, end_within_s
        self._placed = actor.is_placed.remote()
        self._thread = threading.Thread(target=self._keep, name=name, daemon=True)
        self._thread.start()

    def _keep(self) -> None:
        said = ""
        while not self._over.is_set():
            began_s = time.monotonic()
            try:
                ray.get(self._actor.play.remote(*self._words))
            except (RayError, SoulsGraphError) as error:
                # Of an error of ours Ray's own has the trace beside it.
                reason = str(getattr(error, "cause", error)).partition("\n")[0]
                played = time.monotonic() - began_s > self._try_every_s
                if not self._over.is_set() and (played or reason != said):
                    _logger.warning("%s: %s; it is tried again every %g s", self._name, reason, self._try_every_s)
                said = reason
                self._over.wait(self._try_every_s)

    def end(self) -> None:
        """End its work and the actor; one that still waits for a place has none."""
        self._over.set()
        with suppress(RayError):
            if ray.wait([self._placed], timeout=0.0)[0]:
                ray.get(self._actor.stop.remote(), timeout=self._end_within_s)
                self._thread.join(self._end_within_s)
        ray.kill(self._actor)
