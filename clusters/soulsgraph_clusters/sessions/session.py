"""Run inside a Ray session, a small local one or a cluster joined by its address; place runners and actors there."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import ray

# A driver that imports torch only after ray.init() may die in the loader of oneMKL.
import torch  # noqa: F401
from ray import cloudpickle

# Under `uv run` Ray would upload the working folder, runs included, and build another environment of it, unless a
# variable says otherwise before Ray is imported.
from ray._private import ray_constants
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from soulsgraph_clusters.sessions.head import ClusterAwayError, check_cluster
from soulsgraph_clusters.sessions.local_ray import forget_token, local_ray
from soulsgraph_clusters.sessions.nodes import check_nodes
from soulsgraph_envs.core.terminal import open_streams
from soulsgraph_policies.agents.projects import carried_by_value

#: The address that means a session of your own, whatever RAY_ADDRESS says.
LOCAL = "local"

_UV = "RAY_ENABLE_UV_RUN_RUNTIME_ENV"


@dataclass(frozen=True)
class Session:
    """Where Ray runs, or would run if it were needed."""

    local: bool
    #: For how long a stage waits for all the places that it wants, those that nobody offers yet included; 0 waits for
    #: those alone that are offered.
    places_within_s: float = 0.0
    #: Nodes that run the code of this machine.
    examined: set[str] = field(default_factory=set, compare=False)
    #: Places that are kept from stage to stage: between two of them no other job takes one.
    places: list[PlacementGroup] = field(default_factory=list, compare=False)

    @property
    def resources(self) -> dict[str, float]:
        """The present resources by name; a cluster's nodes come and go."""
        return dict(ray.cluster_resources())

    def check_nodes(self) -> None:
        """Check that every node of a cluster runs the code of this machine; raises as `nodes.check_nodes`."""
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
        joined = Session(False, places_within_s)
        try:
            yield joined
        finally:
            # Ray itself frees those of a driver that ends.
            for place in joined.places:
                remove_placement_group(place)
        return
    open_streams()
    check_session(address)
    chosen = chosen_address(address)
    local = chosen == LOCAL
    if local and not needed:
        yield Session(local=True)
        return
    ray_constants.RAY_ENABLE_UV_RUN_RUNTIME_ENV &= _UV in os.environ
    with ExitStack() as stack:
        if local:
            stack.enter_context(local_ray(num_cpus, resources))
        else:
            forget_token()
            ray.init(chosen, log_to_driver=False, logging_level=logging.ERROR)
            stack.callback(ray.shutdown)
        stack.enter_context(carried_by_value(cloudpickle))
        yield Session(local, 0.0 if local else places_within_s)


def chosen_address(address: str | None) -> str:
    """Return where Ray runs: at the address, else at RAY_ADDRESS, else in a private session."""
    return address or os.environ.get("RAY_ADDRESS") or LOCAL


def check_session(address: str | None = None) -> None:
    """Check that `connect` can use the address; raises ClusterError as `check_cluster`."""
    if (chosen := chosen_address(address)) != LOCAL:
        check_cluster(chosen, "`address`" if address else "RAY_ADDRESS")


#: The resource a worker joins with (`ray start --resources '{"game_pc": 1}'`): one game, or one env runner.
GAME_PC = "game_pc"
#: Seconds. A node that is alive grants a place at once; one that died may stay on Ray's list for a minute.
PLACED_WITHIN_S = 30.0
#: Seconds after which a line says that places are waited for, and between two looks at them.
_AT_ONCE_S, _LOOK_EVERY_S = 2.0, 0.2

_logger = logging.getLogger("soulsgraph")


def find_places(wanted: int, session: Session) -> list[PlacementGroup]:
    """Return at most `wanted` places, which the session keeps to its end: a processor each, and a game PC if any is.

    Each is asked for by itself: Ray's autoscaler sees them all, those included that no node offers yet. With fewer a
    stage goes on with those there are, so that a run survives the loss of a machine.

    Raises:
        ClusterError: if there is no place at all, or as `check_nodes`.
    """
    session.check_nodes()
    offered = session.resources
    one = {"CPU": 1.0} | ({GAME_PC: 1.0} if offered.get(GAME_PC) else {})
    most = min(int(offered.get(name, 0.0)) for name in one)
    sought = wanted if session.places_within_s else min(wanted, most)
    places = session.places
    places += [placement_group([one]) for _ in range(len(places), wanted)]
    began_s, reported = time.monotonic(), False
    while sum(map(_is_there, places)) < sought:
        waited_s = time.monotonic() - began_s
        if waited_s > (session.places_within_s or PLACED_WITHIN_S):
            break
        if waited_s > _AT_ONCE_S and not reported:
            reported = True
            _logger.warning("Ray: waiting for places; %s", _describe_use(one))
        time.sleep(_LOOK_EVERY_S)
    # One that never was, or was lost with its node: the next stage asks for another.
    for place in (missing := [place for place in places if not _is_there(place)]):
        remove_placement_group(place)
    places[:] = [place for place in places if place not in missing]
    if not places:
        raise ClusterAwayError(
            f"env runners: expected a free place, found {_describe_use(one)}; join a worker that offers it "
            "and resume the run, or begin another without `env_runners` and `games`."
        )
    if len(places) < wanted:
        _logger.warning("Ray: %d of %d places are there now; the stage goes on with those", len(places), wanted)
    return places[:wanted]


def _is_there(place: PlacementGroup) -> bool:
    return bool(placement_group_table(place)["state"] == "CREATED")


def describe_wait(one: Mapping[str, float]) -> str:
    """Return for what work waits; empty if one place with these resources is free."""
    free = ray.available_resources()
    waits = any(free.get(name, 0.0) < amount for name, amount in one.items())
    return f"waiting for a place; {_describe_use(one)}" if waits else ""


def _describe_use(names: Iterable[str]) -> str:
    free, offered = ray.available_resources(), ray.cluster_resources()
    used = {name: offered.get(name, 0.0) - free.get(name, 0.0) for name in names}
    counts = " and ".join(f"{count:g} of {offered.get(name, 0.0):g} {name}" for name, count in used.items())
    return f"{counts} in use, as `ray status` shows"


def place_gateway() -> dict[str, Any]:
    """Return the options of a Ray actor that is a gateway beside the driver."""
    # It waits for the network most of the time: a processor of its own would be kept from others.
    own = ray.get_runtime_context().get_node_id()
    return {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(own, soft=False)}
