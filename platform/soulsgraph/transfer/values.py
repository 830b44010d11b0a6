"""How a skill's values disagree with the returns it then obtains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from soulsgraph_envs.episodes import Episodes
from soulsgraph_policies.hyperparameters import DQNHyperparameters
from soulsgraph_policies.inference import FrozenNetwork, FusedNetworks

Doubles = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ValueCheck:
    """Promised minus obtained discounted return: mean an episode (n,), and root mean square over all decisions."""

    biases: Doubles
    error: float

    @property
    def bias(self) -> float:
        """Mean over episodes: above 0 the values promise too much."""
        return float(self.biases.mean())


def check_values(network: FrozenNetwork, played: Episodes, numbers: DQNHyperparameters) -> ValueCheck:
    """Compare the largest Q-value at each decision with the discounted return from there on.

    What lies beyond the horizon's cut is estimated by the largest Q-value at the end, as in training.
    """
    networks, taken = FusedNetworks([network]), played.taken
    promised = networks.q_values(0, taken.rows).max(axis=1).astype(np.float64)
    beyond = np.where(played.cut, networks.q_values(0, played.rows).max(axis=1), 0.0)
    discounts = numbers.discount ** (taken.ticks if numbers.semi_markov else np.ones(len(taken.ticks)))
    difference = promised - discounted_returns(taken.episodes, taken.rewards, discounts, beyond)
    totals = np.bincount(taken.episodes, difference, len(played))
    return ValueCheck(totals / np.maximum(played.lengths, 1), float(np.sqrt(np.mean(difference**2))))


@njit(cache=True)
def discounted_returns(episodes: Integers, rewards: Doubles, discounts: Doubles, beyond: Doubles) -> Doubles:
    """Return the discounted return from each decision (m,) to the end of its episode.

    Decisions are in order of episode and time; `beyond` (episodes,) is worth after an episode's end.
    """
    out = np.empty(len(rewards))
    for i in range(len(rewards) - 1, -1, -1):
        last = i == len(rewards) - 1 or episodes[i + 1] != episodes[i]
        following = beyond[episodes[i]] if last else out[i + 1]
        out[i] = rewards[i] + discounts[i] * following
    return out
