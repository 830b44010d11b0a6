"""Collect transitions of the trained skill from many lanes, the upstream skills frozen beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from soulsgraph_envs.combat import Combat
from soulsgraph_envs.decision_log import DecisionLog
from soulsgraph_envs.errors import GameError
from soulsgraph_envs.game import LaneIndices
from soulsgraph_envs.streams import episode_seeds
from soulsgraph_policies.episodes import EpisodeTally
from soulsgraph_policies.inference import FrozenNetwork, FusedNetworks
from soulsgraph_policies.transitions import Chunk, Transitions
from soulsgraph_policies.weights import Weights

#: Maps decisions of the trained skill made so far to the share of random actions.
Exploration = Callable[[int], float]


class Sampler:
    """Step a combat's lanes with fused networks, exploring in the trained skill only.

    The trained skill is the combat's horizon skill. `decisions` counts its finished decisions and
    drives the exploration; it belongs to the one who receives them and may be set from outside.
    Transitions tell their lanes by numbers from `first_lane` on.
    """

    def __init__(self, combat: Combat, seed: int, exploration: Exploration, first_lane: int = 0) -> None:
        self._combat, self._seed, self._exploration, self._first_lane = combat, seed, exploration, first_lane
        self._trained = combat.position(combat.horizon.skill)
        self.skill = combat.skills[self._trained]
        self._observe = self.skill.observation.bind(combat.scenario)
        self._log = DecisionLog(combat, self._trained)
        self._tally = EpisodeTally(combat, self.skill.name)
        self._random = np.random.default_rng([seed, 1])
        self._episodes = np.zeros(combat.lanes, np.int64)
        self._actions = np.zeros((combat.lanes, len(combat.skills)), np.int64)
        self._networks: FusedNetworks | None = None
        self._began = False
        self.decisions = 0
        self._failure: GameError | None = None
        #: Control ticks stepped so far.
        self.ticks = 0

    def set_networks(self, networks: Sequence[FrozenNetwork]) -> None:
        """Play skills by these networks from the next tick on: all of them first, later any of them.

        Raises:
            UnknownNameError: if a skill takes no part.
            SoulsGraphError: if a network is of other sizes than before.
        """
        if self._networks is None:
            ordered = sorted(networks, key=lambda network: self._combat.position(network.skill))
            self._networks = FusedNetworks(ordered)
            return
        for network in networks:
            self._networks.replace(self._combat.position(network.skill), network)

    def weights(self, skill: str) -> Weights:
        """Return a copy of the weights that a skill is played by; nothing before the first networks are set."""
        return {} if self._networks is None else self._networks.weights(self._combat.position(skill))

    def sample(self, max_transitions: int) -> Chunk:
        """Step until another tick could bring more than `max_transitions`.

        Raises:
            GameError: if a real-time game could not be reset, or lost its episode; call `abandon_episodes` then.
        """
        if self._failure is not None:
            raise self._failure
        parts: list[Transitions] = []
        lanes = self._combat.lanes
        count, before = 0, self.ticks
        self._log.reserve(max(max_transitions, lanes))
        if not self._began:
            self._begin(np.arange(lanes))
            self._began = True
        while count + lanes <= max_transitions or not count:
            self._tick()
            self.ticks += 1
            over = self._log.append()
            count += over
            self.decisions += over
            ended = self._combat.ended.nonzero()[0]
            if ended.size:
                parts.append(self._judge())
                self._tally.close(ended)
                try:
                    self._begin(ended)
                except GameError as failure:
                    # What was gathered is handed over first: the next call tells.
                    self._failure = failure
                    break
        if self._log.count:
            parts.append(self._judge())
        return Chunk(Transitions.join(parts), self._tally.drain(), (self.ticks - before) * lanes)

    def abandon_episodes(self) -> None:
        """Forget the open episodes and what `sample` had gathered when a lost game broke it off."""
        self._log.drain()
        self._tally.sums[:] = 0.0
        self._began, self._failure = False, None

    def _tick(self) -> None:
        assert self._networks is not None, "set_networks comes before sample"
        self._networks.act(self._combat.rows, self._combat.due, self._actions)
        due = self._combat.due[:, self._trained].nonzero()[0]
        if due.size:
            explores, choices = self._random.random((2, len(due)))
            chosen = explores < self._exploration(self.decisions)
            if chosen.any():
                self._actions[due[chosen], self._trained] = choices[chosen] * len(self.skill.actions)
        self._combat.step(self._actions)

    def _judge(self) -> Transitions:
        """Reward the decisions gathered so far, and give them as transitions."""
        lanes, decisions, terminated = self._log.drain()
        terms = self.skill.reward.evaluate(decisions)
        self._tally.add(lanes, terms)
        return Transitions(
            observations=self._observe(decisions.before),
            next_observations=self._observe(decisions.after),
            actions=decisions.actions.copy(),
            rewards=terms.sum(axis=1),
            terminated=terminated.copy(),
            ticks=self.skill.ticks(decisions),
            lanes=lanes + self._first_lane,
            episodes=self._episodes[lanes],
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

    def close(self) -> None:
        """Close the game."""
        self._combat.game.close()
