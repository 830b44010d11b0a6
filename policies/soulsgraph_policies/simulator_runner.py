"""The RLlib env runner of the skill graph: many lanes, fused networks, columnar transitions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.streams import derive_seeds
from soulsgraph_envs.drivers.opening import make_game
from soulsgraph_envs.skills import Skill
from soulsgraph_policies.env_runners import ChunkRunner
from soulsgraph_policies.inference import FrozenNetwork, Weights
from soulsgraph_policies.sampler import Chunk, Sampled, Sampler


class SkillGraphEnvRunner(ChunkRunner):
    """Sample one stage in the simulator: the `scenario` of `env_config`, in its `lanes`.

    The tick loop is `Sampler.sample`, which knows nothing of Ray or of learning.
    """

    def make_env(self) -> None:
        """Open the simulator; each runner has random streams of its own."""
        sampled, skills, index = self.config.env_config, self.config.skills, self.worker_index or 0
        learning = [self._sampled(module) for module in self.config.sampled_modules]
        self._scenario: Scenario = sampled["scenario"]
        lanes: int = sampled["lanes"]
        combat = Combat(make_game(lanes), skills, self._scenario, Horizon(skills[-1].name, skills[-1].horizon))
        seed = int(derive_seeds(np.uint64(self.config.stage_seed or 0), index)[0])
        self._sampler = Sampler(combat, seed, learning, index * lanes)
        self._sampler.set_networks([self._network(skill) for skill in skills])

    def _sampled(self, module: str) -> Sampled:
        """Return how a module is sampled: one that does not learn explores nothing."""
        numbers = self.config.hyperparameters_of(module)
        skills = tuple(skill for skill, playing in self.modules.items() if playing == module)
        if module in self.config.trained_modules:
            return Sampled(module, skills, numbers.exploration_rate, numbers.budget)
        return Sampled(module, skills, lambda _: 0.0)

    def weights_changed(self, modules: Collection[str]) -> None:
        """Play the skills of `modules` by their weights from now on."""
        self._sampler.receive(self.decisions)
        for skill, module in self.modules.items():
            if module in modules:
                self._sampler.load(skill, self.weights(module))

    def played_weights(self, skill: str) -> Weights:
        """Return the weights in the sampler, which keeps a copy of them; the module's where nothing is sampled."""
        return self._sampler.weights(skill) if self.samples else super().played_weights(skill)

    def _network(self, skill: Skill) -> FrozenNetwork:
        module = self.modules[skill.name]
        return FrozenNetwork.of(skill, self._scenario, self.weights(module), self.config.clip_of(module))

    def sample(self, **_: Any) -> list[Chunk]:
        """Return a list of one chunk."""
        assert self.has_weights, "every module's weights come before sampling"
        return [self._sampler.sample(self.config.decisions_per_round)]

    def get_training_state(self) -> dict[str, Any]:
        """Return lanes, clocks, episode sums and random state."""
        return self._sampler.get_state()

    def set_training_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_training_state`."""
        self._sampler.set_state(state)

    def stop(self) -> None:
        """Close the game."""
        if hasattr(self, "_sampler"):
            self._sampler.close()
