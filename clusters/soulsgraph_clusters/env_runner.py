"""The RLlib env runner of the skill graph: many lanes, fused networks, columnar transitions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from soulsgraph_envs.combat import Combat, Horizon
from soulsgraph_envs.games import make_game
from soulsgraph_envs.scenario import Scenario
from soulsgraph_envs.skills import Skill
from soulsgraph_envs.streams import derive_seeds
from soulsgraph_policies.chunk_runner import ChunkRunner
from soulsgraph_policies.inference import FrozenNetwork
from soulsgraph_policies.sampler import Sampler
from soulsgraph_policies.transitions import Chunk


@dataclass(frozen=True)
class SamplingTask:
    """What every runner of a stage samples: a scenario, in so many lanes of a game driver."""

    scenario: Scenario
    lanes: int
    driver: str = "simulator"


class SkillGraphEnvRunner(ChunkRunner):
    """Sample one stage; `env_config["task"]` is its `SamplingTask`.

    The tick loop is `Sampler.sample`, which knows nothing of Ray or of learning: a real-time game can
    run the same loop in a thread of its own, which `sample` then drains.
    """

    def make_env(self) -> None:
        """Open the game; each runner has random streams of its own."""
        task: SamplingTask = self.config.env_config["task"]
        skills = self.config.skills
        horizon = Horizon(skills[-1].name, skills[-1].horizon)
        combat = Combat(make_game(task.driver, task.lanes), skills, task.scenario, horizon)
        seed = int(derive_seeds(np.uint64(self.config.seed or 0), self.worker_index or 0)[0])
        first_lane = (self.worker_index or 0) * task.lanes
        self._sampler = Sampler(combat, seed, self.config.hyperparameters.exploration_rate, first_lane)
        self._scenario = task.scenario

    def weights_changed(self, skills: Collection[str]) -> None:
        """Play `skills` by their modules' weights from now on."""
        self._sampler.decisions = self.decisions
        self._sampler.set_networks([self._network(skill) for skill in self.config.skills if skill.name in skills])

    def _network(self, skill: Skill) -> FrozenNetwork:
        clip = self.config.hyperparameters.observation_clip
        return FrozenNetwork.of(skill, self._scenario, self.weights(skill.name), clip)

    def sample(self, **_: Any) -> list[Chunk]:
        """Give one chunk, in a list because RLlib concatenates the lists of its runners."""
        return [self._sampler.sample(self.config.decisions_per_sample)]

    def get_training_state(self) -> dict[str, Any]:
        """Give lanes, clocks, episode sums and random state."""
        return self._sampler.get_state()

    def set_training_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_training_state`."""
        self._sampler.set_state(state)

    def stop(self) -> None:
        """Close the game."""
        if hasattr(self, "_sampler"):
            self._sampler.close()
