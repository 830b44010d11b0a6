"""Collect transitions of the trained skill from many lanes, the upstream skills frozen beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from soulsgraph_envs.combat import Combat, Horizon
from soulsgraph_envs.game import LaneIndices
from soulsgraph_envs.games import make_game
from soulsgraph_envs.scenario import Scenario
from soulsgraph_envs.skills import Skill
from soulsgraph_envs.streams import derive_seeds, episode_seeds
from soulsgraph_policies.controllers import NetworkController
from soulsgraph_policies.episodes import EpisodeTally
from soulsgraph_policies.hyperparameters import DQNHyperparameters
from soulsgraph_policies.inference import FrozenNetwork, FusedNetworks
from soulsgraph_policies.transitions import Chunk, Transitions

#: Maps decisions of the trained skill made so far to the share of random actions.
Exploration = Callable[[int], float]


@dataclass(frozen=True)
class SamplingTask:
    """What an env runner samples: the fight, the skills in it (the trained one last), and how.

    `upstream` holds the frozen networks of every skill but the trained one; `max_transitions`
    bounds the decisions between two rounds of updates.
    """

    scenario: Scenario
    skills: tuple[Skill, ...]
    upstream: tuple[FrozenNetwork, ...]
    hyperparameters: DQNHyperparameters
    lanes: int
    max_transitions: int
    seed: int
    driver: str = "simulator"

    @property
    def trained(self) -> Skill:
        """The skill in training."""
        return self.skills[-1]

    def make_sampler(self, worker: int = 0) -> Sampler:
        """Open the game and make the sampler of one env runner; each worker has streams of its own."""
        horizon = Horizon(self.trained.name, self.trained.horizon)
        combat = Combat(make_game(self.driver, self.lanes), self.skills, self.scenario, horizon)
        seed = int(derive_seeds(self.seed, worker)[0])
        return Sampler(combat, seed, self.hyperparameters.exploration_rate)


class Sampler:
    """Step a combat's lanes with fused networks, exploring in the trained skill only.

    The trained skill is the combat's horizon skill. `decisions` counts its finished decisions and
    drives the exploration; it belongs to the one who receives them and may be set from outside.
    """

    def __init__(self, combat: Combat, seed: int, exploration: Exploration) -> None:
        self._combat, self._seed, self._exploration = combat, seed, exploration
        self._trained = combat.position(combat.horizon.skill)
        self._skill = combat.skills[self._trained]
        self._observe = self._skill.observation.bind(combat.scenario)
        self._tally = EpisodeTally(combat, self._skill.name)
        self._random = np.random.default_rng([seed, 1])
        self._episodes = np.zeros(combat.lanes, np.int64)
        self._actions = np.zeros((combat.lanes, len(combat.skills)), np.int64)
        self._controller: NetworkController | None = None
        self._began = False
        self.decisions = 0

    def set_networks(self, networks: Sequence[FrozenNetwork]) -> None:
        """Play by these networks from the next tick on, one for each skill of the combat."""
        self._controller = NetworkController(FusedNetworks(networks))

    def sample(self, max_transitions: int) -> Chunk:
        """Step until another tick could bring more than `max_transitions`."""
        parts: list[Transitions] = []
        count = ticks = 0
        if not self._began:
            self._begin(np.arange(self._combat.lanes))
            self._began = True
        while count + self._combat.lanes <= max_transitions or not count:
            self._tick()
            ticks += 1
            over = np.flatnonzero(self._combat.completed[:, self._trained])
            if over.size:
                parts.append(self._collect(over))
                count += len(over)
            ended = np.flatnonzero(self._combat.ended)
            if ended.size:
                self._tally.close(ended)
                self._begin(ended)
        return Chunk(Transitions.join(parts), self._tally.drain(), ticks * self._combat.lanes)

    def _tick(self) -> None:
        assert self._controller is not None, "set_networks comes before sample"
        self._controller.act(self._combat, self._actions)
        due = np.flatnonzero(self._combat.due[:, self._trained])
        if due.size:
            explores, choices = self._random.random((2, len(due)))
            chosen = explores < self._exploration(self.decisions)
            self._actions[due[chosen], self._trained] = choices[chosen] * len(self._skill.actions)
        self._combat.step(self._actions)

    def _collect(self, over: LaneIndices) -> Transitions:
        decisions = self._combat.finished(self._trained, over)
        terms = self._skill.reward.evaluate(decisions)
        self._tally.add(over, terms)
        self.decisions += len(over)
        return Transitions(
            observations=self._observe(decisions.before),
            next_observations=self._observe(decisions.after),
            actions=decisions.actions,
            rewards=terms.sum(axis=1),
            terminated=self._combat.terminated[over],
        )

    def _begin(self, lanes: LaneIndices) -> None:
        seeds = episode_seeds(self._seed, lanes, self._episodes[lanes])
        self._episodes[lanes] += 1
        self._combat.begin(lanes, seeds)

    def get_state(self) -> dict[str, Any]:
        """Give everything the next transition depends on but the networks."""
        return {
            "combat": self._combat.get_state(),
            "random": self._random.bit_generator.state,
            "episodes": self._episodes.copy(),
            "sums": self._tally.sums.copy(),
            "began": self._began,
            "decisions": self.decisions,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state` of a sampler of the same make."""
        self._combat.set_state(state["combat"])
        self._random.bit_generator.state = state["random"]
        self._episodes[:] = state["episodes"]
        self._tally.sums[:] = state["sums"]
        self._began = bool(state["began"])
        self.decisions = int(state["decisions"])
