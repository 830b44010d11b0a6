"""Collect transitions of the trained skill from many lanes, the upstream skills frozen beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from soulsgraph_envs.combat import Combat
from soulsgraph_envs.composition import Actions
from soulsgraph_envs.errors import GameError
from soulsgraph_envs.game import LaneIndices
from soulsgraph_envs.rollout import Rollout
from soulsgraph_envs.streams import Seeds, episode_seeds
from soulsgraph_policies.inference import FrozenNetwork, FusedNetworks
from soulsgraph_policies.transitions import Chunk, Transitions
from soulsgraph_policies.weights import Weights

#: Maps decisions of the trained skill made so far to the share of random actions.
Exploration = Callable[[int], float]


class ExploringController:
    """Play skills by fused networks, exploring in the one at `position` only.

    `decisions` determines the exploration rate; the caller sets it.
    """

    def __init__(self, seed: int, exploration: Exploration, position: int, actions: int) -> None:
        self._exploration, self._position, self._choices = exploration, position, actions
        self.random = np.random.default_rng([seed, 1])
        self.networks: FusedNetworks | None = None
        self.decisions = 0

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Do nothing: networks have no state between decisions."""

    def act(self, combat: Combat, actions: Actions) -> None:
        """Write greedy actions, and replace a share of the trained skill's by random ones."""
        assert self.networks is not None, "set_networks comes before sample"
        self.networks.act(combat.rows, combat.due, actions)
        due = combat.due[:, self._position].nonzero()[0]
        if due.size:
            explores, choices = self.random.random((2, len(due)))
            chosen = explores < self._exploration(self.decisions)
            if chosen.any():
                actions[due[chosen], self._position] = choices[chosen] * self._choices


class Sampler:
    """Roll out a combat's lanes endlessly, exploring in the trained skill, and return its transitions.

    The trained skill is the combat's horizon skill. `decisions` counts its finished decisions and may be set
    by the receiver. Lanes are numbered from `first_lane` on.
    """

    def __init__(self, combat: Combat, seed: int, exploration: Exploration, first_lane: int = 0) -> None:
        self._combat, self._seed, self._first_lane = combat, seed, first_lane
        position = combat.position(combat.horizon.skill)
        self.skill = combat.skills[position]
        self._observe = self.skill.observation.bind(combat.scenario)
        self._player = ExploringController(seed, exploration, position, len(self.skill.actions))
        self._rollout = Rollout(combat, self._player)
        self._episodes = np.zeros(combat.lanes, np.int64)
        self._began = False
        self._failure: GameError | None = None

    @property
    def decisions(self) -> int:
        """Finished decisions of the trained skill so far."""
        return self._player.decisions

    @decisions.setter
    def decisions(self, count: int) -> None:
        self._player.decisions = count

    @property
    def ticks(self) -> int:
        """Control ticks stepped so far."""
        return self._rollout.ticks

    def set_networks(self, networks: Sequence[FrozenNetwork]) -> None:
        """Play skills by these networks from the next tick on; the first call needs all skills, later ones any.

        Raises:
            UnknownNameError: if a skill takes no part.
            SoulsGraphError: if a network is of other sizes than before.
        """
        if self._player.networks is None:
            ordered = sorted(networks, key=lambda network: self._combat.position(network.skill))
            self._player.networks = FusedNetworks(ordered)
            return
        for network in networks:
            self._player.networks.replace(self._combat.position(network.skill), network)

    def weights(self, skill: str) -> Weights:
        """Return a copy of the weights that a skill is played by; empty before the first networks are set."""
        networks = self._player.networks
        return {} if networks is None else networks.weights(self._combat.position(skill))

    def sample(self, max_transitions: int) -> Chunk:
        """Step until another tick could yield more than `max_transitions`, and return the transitions.

        Raises:
            GameError: if a real-time game could not be reset, or lost its episode; call `abandon_episodes` then.
        """
        if self._failure is not None:
            raise self._failure
        parts: list[Transitions] = []
        rollout, player, lanes = self._rollout, self._player, self._combat.lanes
        count, before = 0, rollout.ticks
        rollout.reserve(max(max_transitions, lanes))
        if not self._began:
            self._begin(np.arange(lanes))
            self._began = True
        while count + lanes <= max_transitions or not count:
            over = rollout.advance()
            count += over
            player.decisions += over
            ended = self._combat.ended.nonzero()[0]
            if ended.size:
                parts.append(self._transitions())
                rollout.close(ended)
                try:
                    self._begin(ended)
                except GameError as failure:
                    # What was gathered is handed over first: the next call raises.
                    self._failure = failure
                    break
        if rollout.logged:
            parts.append(self._transitions())
        return Chunk(Transitions.join(parts), rollout.episodes(), (rollout.ticks - before) * lanes)

    def abandon_episodes(self) -> None:
        """Drop the open episodes and what `sample` had gathered when the game was lost."""
        self._rollout.forget()
        self._began, self._failure = False, None

    def _transitions(self) -> Transitions:
        """Compute the rewards of the decisions gathered so far, and return them as transitions."""
        finished = self._rollout.collect()
        lanes, decisions = finished.lanes, finished.decisions
        return Transitions(
            observations=self._observe(decisions.before),
            next_observations=self._observe(decisions.after),
            actions=decisions.actions.copy(),
            rewards=finished.rewards,
            terminated=finished.terminated.copy(),
            ticks=self.skill.ticks(decisions),
            lanes=lanes + self._first_lane,
            episodes=self._episodes[lanes],
        )

    def _begin(self, lanes: LaneIndices) -> None:
        seeds = episode_seeds(self._seed, lanes, self._episodes[lanes])
        self._episodes[lanes] += 1
        self._rollout.begin(lanes, seeds)

    def get_state(self) -> dict[str, Any]:
        """Return everything the next transition depends on but the networks."""
        return {
            "combat": self._combat.get_state(),
            "random": self._player.random.bit_generator.state,
            "episodes": self._episodes.copy(),
            "sums": self._rollout.sums.copy(),
            "began": self._began,
            "decisions": self.decisions,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state` of an equal sampler."""
        self._combat.set_state(state["combat"])
        self._player.random.bit_generator.state = state["random"]
        self._episodes[:] = state["episodes"]
        self._rollout.sums[:] = state["sums"]
        self._began = bool(state["began"])
        self.decisions = int(state["decisions"])

    def close(self) -> None:
        """Close the game."""
        self._combat.game.close()
