"""The RLlib env runner of the skill graph: many lanes, fused networks, columnar transitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from numbers import Integral
from os import PathLike
from typing import Any

import numpy as np

from soulsgraph_envs.combat.episodes import Episodes
from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError, shown
from soulsgraph_envs.core.scenario import Scenario, load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.skills import Skill, practice_ground
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.inference import FrozenNetwork, Weights
from soulsgraph_policies.learning.env_runners import ChunkRunner
from soulsgraph_policies.learning.sampler import Chunk, SampledModule, Sampler
from soulsgraph_policies.learning.stage_config import SkillDQNConfig

#: Keys of `env_config`, and the scenario that is played where none is named, as in `SkillGraphEnv`.
_KEYS, _SCENARIO = ("scenario", "lanes"), "iudex-phase1"
#: Where the seeds of evaluated fights lie apart from those of every runner.
_EVALUATED = 2**63


class SkillGraphEnvRunner(ChunkRunner):
    """Sample one stage in the simulator: the `scenario` of `env_config`, in its `lanes`.

    The scenario is a name, a path or a `Scenario`; fights begin on the last skill's practice ground. Lanes that are
    not in `env_config` are RLlib's `num_envs_per_env_runner`. The tick loop is `Sampler.sample`, which knows nothing
    of Ray or of learning.
    """

    evaluates = True

    @classmethod
    def checked_env_config(cls, config: SkillDQNConfig, env_config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the scenario and lanes that are played.

        Raises:
            UnknownNameError: for another key, or an unknown scenario.
            SoulsGraphError: for a number of lanes that a round has no decisions for, or that is named twice.
        """
        for name in env_config:
            if name not in _KEYS:
                raise UnknownNameError("key of env_config", name, _KEYS)
        scenario = env_config.get("scenario", _SCENARIO)
        if isinstance(scenario, str | PathLike):
            scenario = load_scenario(str(scenario))
        if not isinstance(scenario, Scenario):
            raise SoulsGraphError(
                f"env_config's scenario: expected a name, a path or a Scenario, found {shown(scenario)}; name one."
            )
        lanes, most = config.lanes_of(env_config), config.decisions_per_round
        if isinstance(lanes, bool) or not isinstance(lanes, Integral) or not 1 <= int(lanes) <= most:
            raise SoulsGraphError(
                f"env_config's lanes: expected 1 to {most}, no more than decisions in a round, found {shown(lanes)}; "
                "correct lanes, num_envs_per_env_runner or decisions_per_round."
            )
        return {"scenario": practice_ground(scenario, config.skills[-1]), "lanes": int(lanes)}

    def make_env(self) -> None:
        """Open the simulator; each runner has random streams of its own."""
        sampled = self.checked_env_config(self.config, self.config.env_config)
        skills, index = self.config.skills, self.worker_index or 0
        learning = [self._sampled(module) for module in self.config.sampled_modules]
        self._scenario: Scenario = sampled["scenario"]
        lanes: int = sampled["lanes"]
        combat = Combat(make_game(lanes), skills, self._scenario, Horizon(skills[-1].name, skills[-1].horizon))
        seed = int(derive_seeds(np.uint64(self.config.stage_seed or 0), index)[0])
        self.env = self._sampler = Sampler(combat, seed, learning, index * lanes)
        self._sampler.set_networks([self._network(skill) for skill in skills])

    def evaluate(self, weights: Mapping[str, Weights], env_config: Mapping[str, Any], episodes: int) -> Episodes:
        """Play greedy episodes by the modules' weights, the same fights with every call."""
        scenario, skills = env_config["scenario"], self.config.skills
        networks = {
            skill.name: FrozenNetwork.of(skill, scenario, weights[module], self.config.clip_of(module))
            for skill, module in ((skill, self.modules[skill.name]) for skill in skills)
        }
        game = make_game(min(env_config["lanes"], episodes))
        try:
            seeds = derive_seeds(self.config.stage_seed or 0, _EVALUATED, np.arange(episodes))
            return Agent(scenario, skills, networks).rollout(game).play(seeds)
        finally:
            game.close()

    def _sampled(self, module: str) -> SampledModule:
        """Return how a module is sampled: one that does not learn explores nothing."""
        numbers = self.config.hyperparameters_of(module)
        skills = tuple(skill for skill, playing in self.modules.items() if playing == module)
        if module in self.config.trained_modules:
            return SampledModule(module, skills, numbers.exploration_rate, numbers.budget)
        return SampledModule(module, skills, lambda _: 0.0)

    def begin_streams(self, incarnation: int) -> None:
        """Fight other fights than a runner that was lost, and explore otherwise."""
        self._sampler.begin_streams(incarnation)

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
