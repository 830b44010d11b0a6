"""Where env runners sit: on nodes that offer `game_pc` where a cluster has them, else on plain processors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from soulsgraph_clusters.session import ClusterError

#: The resource a worker joins with (`ray start --resources '{"game_pc": 1}'`): one game, one runner.
GAME_PC = "game_pc"


def env_runner_placement(num_env_runners: int, resources: Mapping[str, float]) -> dict[str, Any]:
    """Give the keyword arguments of RLlib's `AlgorithmConfig.env_runners` that place remote runners.

    `resources` is what the session offers, name to amount. Without remote runners the driver
    samples itself; the learner always stays with the driver.

    Raises:
        ClusterError: if there are fewer places than runners: RLlib would wait for them for ever.
    """
    if not num_env_runners:
        return {"num_env_runners": 0}
    on_game_pcs = resources.get(GAME_PC, 0.0) > 0.0
    resource = GAME_PC if on_game_pcs else "CPU"
    places = int(resources.get(resource, 0.0))
    if num_env_runners > places:
        raise ClusterError(
            f"env runners: expected at most {places}, one for each {resource} the session offers, "
            f"found {num_env_runners}; join more workers or ask for fewer with --env-runners."
        )
    return {
        "num_env_runners": num_env_runners,
        "num_cpus_per_env_runner": 1,
        "custom_resources_per_env_runner": {GAME_PC: 1} if on_game_pcs else {},
    }
