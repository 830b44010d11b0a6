"""Learning without a replay: the decisions since the last updates, with the returns that followed them (PQN).

Gallici et al., "Simplifying Deep Temporal Difference Learning" (ICLR 2025): many lanes take the place of a replay, and
returns of the trace lambda that of a target network. Layers are not normalised here, but observations are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import nn

from soulsgraph_envs.combat.episodes import Flags, Floats, Integers
from soulsgraph_policies.hyperparameters import DQNHyperparameters
from soulsgraph_policies.preprocess import RunningNormalizer
from soulsgraph_policies.replay import Batch, discounts_of
from soulsgraph_policies.sampler import Transitions


@njit(cache=True)
def _trace_returns(
    lanes: Integers, follows: Flags, discounts: Floats, values: Floats, decay: float, returns: Floats
) -> None:
    """Turn rewards into lambda returns in place, (n,), from the last decision to the first.

    `values` are those of the states after the decisions; a decision that `follows` continues the one before in its
    lane.
    """
    later = np.full(lanes.max() + 1, -1)
    for i in range(lanes.shape[0] - 1, -1, -1):
        after, ahead = later[lanes[i]], values[i]
        if after >= 0 and follows[after]:
            ahead += decay * (returns[after] - ahead)
        returns[i] += discounts[i] * ahead
        later[lanes[i]] = i


def _follows(transitions: Transitions) -> Flags:
    """Return whether each decision continues the one before it in its lane: same episode, nothing lost between."""
    follows = np.zeros(len(transitions), np.bool_)
    by_lane = np.argsort(transitions.lanes, kind="stable")
    before, after = by_lane[:-1], by_lane[1:]
    same = (transitions.lanes[before] == transitions.lanes[after]) & (
        transitions.episodes[before] == transitions.episodes[after]
    )
    follows[after] = same & (transitions.next_observations[before] == transitions.observations[after]).all(axis=1)
    return follows


class RecentDecisions:
    """Keep one skill's transitions since the last updates, for learning from them in `epochs` passes.

    It stands in the place of a `ReplayRing`. `network` is the one that learns: normalised observations (n, size) to
    Q-values (n, actions).
    """

    def __init__(self, hyperparameters: DQNHyperparameters, network: nn.Module) -> None:
        self._hyperparameters, self._network = hyperparameters, network
        self._parts: list[Transitions] = []

    def add(self, transitions: Transitions) -> None:
        """Store transitions in order."""
        if len(transitions):
            self._parts.append(transitions)

    def sample(
        self, count: int, generator: np.random.Generator, normalizer: RunningNormalizer, decisions: int = 0
    ) -> Batch:
        """Return `count` rows, every epoch its share of all whole rollouts in an order of its own, and forget those.

        Their rewards are the whole targets: lambda returns by the present network. What was kept beyond whole
        rollouts enters the returns and stays for the next call.
        """
        numbers, recent = self._hyperparameters, Transitions.join(self._parts)
        clip, mean, deviation = numbers.observation_clip, normalizer.mean, normalizer.deviation
        seen, following = (
            ((rows - mean) / deviation).clip(-clip, clip).astype(np.float32)
            for rows in (recent.observations, recent.next_observations)
        )
        returns, discounts = recent.rewards.copy(), discounts_of(recent, numbers)
        values = self._values(following)
        _trace_returns(recent.lanes, _follows(recent), discounts, values, numbers.trace_decay, returns)
        whole, share = len(recent) // numbers.rollout * numbers.rollout, count // numbers.epochs
        self._parts = [recent.last(len(recent) - whole)] if len(recent) > whole else []
        drawn = np.concatenate([generator.permutation(whole)[:share] for _ in range(numbers.epochs)])
        assert len(drawn) == count, "updates are owed by whole rollouts"
        # No value of a later state is added to a return: any observations do.
        rows, nothing, ones = seen[drawn], np.zeros(count, np.float32), np.ones(count, np.float32)
        return Batch(rows, rows, recent.actions[drawn], returns[drawn], nothing, ones)

    @torch.no_grad()
    def _values(self, observations: Floats) -> Floats:
        device = next(self._network.parameters()).device
        greatest = self._network(torch.as_tensor(observations, device=device)).max(dim=1).values
        values: Floats = greatest.cpu().numpy()
        return values

    def learned(self, errors: Floats) -> None:
        """Record nothing: what was learned from is gone."""

    def get_state(self) -> dict[str, Any]:
        """Return the transitions kept, as arrays."""
        return {"recent": vars(Transitions.join(self._parts)) if self._parts else {}}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state`."""
        self._parts = [Transitions(**state["recent"])] if state["recent"] else []
