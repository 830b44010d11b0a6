"""Where the parts of a stage run: env runners on game PCs, everything else beside the driver."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from soulsgraph_clusters.session import ClusterError, Session

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
    count = next((count for count in range(min(wanted, _places(one, offered)), 0, -1) if _answer(one, count)), 0)
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


def _places(one: Mapping[str, float], offered: Mapping[str, float]) -> int:
    return min(int(offered.get(name, 0.0) // amount) for name, amount in one.items())


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


def beside_driver() -> dict[str, Any]:
    """Return the options of a Ray task for the driver: it runs on the driver's node, so that game PCs only play."""
    node = ray.get_runtime_context().get_node_id()
    return {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=True)}
