"""The RLlib env runner: many lanes, fused networks, columnar transitions."""

from __future__ import annotations

from typing import Any

import gymnasium
from ray.rllib.env.env_runner import EnvRunner

from soulsgraph_envs.skill_env import action_space, observation_space
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.inference import FrozenNetwork
from soulsgraph_policies.sampler import Sampler, SamplingTask
from soulsgraph_policies.transitions import Chunk


class SkillGraphEnvRunner(EnvRunner):
    """Sample one stage's task; one chunk of transitions of the trained skill a call.

    All of it is one tick loop over a `Sampler`, which knows nothing of Ray or of learning: a
    real-time game can run the same loop in a thread of its own that `sample` drains.
    """

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        self.task: SamplingTask = config.env_config["task"]
        self.sampler: Sampler = self.task.make_sampler(worker=self.worker_index or 0)
        self._networks = {network.skill: network for network in self.task.upstream}

    def set_network(self, network: FrozenNetwork, decisions: int) -> None:
        """Play the trained skill by this network from now on, `decisions` received so far."""
        self._networks[network.skill] = network
        self.sampler.decisions = decisions
        self.sampler.set_networks([self._networks[name] for name in self.task.skills])

    def sample(self, **_: Any) -> list[Chunk]:
        """Give one chunk, in a list because RLlib concatenates the lists of its runners."""
        return [self.sampler.sample(self.task.max_transitions)]
