"""Learning without a replay: the decisions since the last updates, with the returns that followed them (PQN).

Gallici et al., "Simplifying Deep Temporal Difference Learning" (ICLR 2025): many lanes take the place of a replay, and
returns of the trace lambda that of a target network. Layers are not normalised here, but observations are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from soulsgraph_envs.combat.episodes import Floats, Integers
from soulsgraph_envs.core.compiling import cached
from soulsgraph_policies.agents.normalizer import RunningNormalizer
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.replay import Batch, link, pack, read_rows
from soulsgraph_policies.learning.sampler import Transitions


@cached()
def _trace_returns(links: Integers, discounts: Floats, values: Floats, decay: float, returns: Floats) -> None:
    """Turn rewards into lambda returns in place, (n,), from the last decision to the first.

    `values` are those of the states after the decisions, `links` the places of the decisions that follow, or -1.
    """
    for i in range(links.shape[0] - 1, -1, -1):
        ahead = values[i]
        if links[i] >= 0:
            ahead += decay * (returns[links[i]] - ahead)
        returns[i] += discounts[i] * ahead


class RecentDecisions:
    """Keep one skill's transitions since the last updates, for learning from them in `epochs` passes.

    It stands in the place of a `ReplayBuffer`. `network` is the one that learns: normalised observations (n, size) to
    Q-values (n, actions).
    """

    def __init__(self, hyperparameters: DQNHyperparameters, network: nn.Module) -> None:
        self._hyperparameters, self._network = hyperparameters, network
        self._parts: list[Transitions] = []

    def add(self, transitions: Transitions, source: int = 0) -> None:
        """Store transitions in order, whatever their source."""
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
        every, rows = Batch.empty(len(recent), recent.observations.shape[1]), pack(recent, numbers)
        read_rows(rows, np.arange(len(recent)), normalizer, numbers.observation_clip, every)
        links, latest = np.full(len(recent), -1), np.full((recent.lanes.max() + 1, 2), -1)
        link(rows, 0, links, latest, recent.lanes, recent.episodes)
        values = self._values(every.next_observations)
        _trace_returns(links, every.discounts, values, numbers.trace_decay, every.rewards)
        whole, share = len(recent) // numbers.rollout * numbers.rollout, count // numbers.epochs
        self._parts = [recent.last(len(recent) - whole)] if len(recent) > whole else []
        drawn = np.concatenate([generator.permutation(whole)[:share] for _ in range(numbers.epochs)])
        assert len(drawn) == count, "updates are owed by whole rollouts"
        # No value of a later state is added to a return: any observations do.
        seen, nothing = every.observations[drawn], np.zeros(count, np.float32)
        return Batch(seen, seen, every.actions[drawn], every.rewards[drawn], nothing, every.weights[drawn], nothing)

    @torch.no_grad()
    def _values(self, observations: Floats) -> Floats:
        device = next(self._network.parameters()).device
        greatest = self._network(torch.as_tensor(observations, device=device)).max(dim=1).values
        values: Floats = greatest.cpu().numpy()
        return values

    def learned(self, errors: Floats) -> None:
        """Record nothing of `errors` (n,): what was learned from is gone."""

    def get_state(self) -> dict[str, Any]:
        """Return the transitions kept, as arrays."""
        return {"recent": vars(Transitions.join(self._parts)) if self._parts else {}}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state`."""
        # A large array lies in the checkpoint's file.
        kept: dict[str, Any] = {
            name: None if part is None else np.array(part) for name, part in state["recent"].items()
        }
        self._parts = [Transitions(**kept)] if kept else []
