"""Evaluate an agent: greedy, whole episodes, the same seeds for every setting.

An episode ends at a win, at death, or after the horizon of the judged skill (1,024 heal-attack
decisions). Not winning is losing, and so is a win and a death on one tick. A randomised skill
keeps its own step durations.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from soulsgraph.plan import check_range
from soulsgraph_envs.episodes import Episodes
from soulsgraph_envs.games import make_game
from soulsgraph_envs.streams import Seeds, derive_seeds, episode_seeds
from soulsgraph_policies.agent import Agent

#: Told how many episodes ended since it was last called.
OnFinished = Callable[[int], None]

#: Lanes played at once: more gain nothing, the simulator and the networks are compiled.
LANES = 256

_EVALUATION_STREAM = 20


def check_judging(seed: int, episodes: int) -> None:
    """Refuse a seed or a number of evaluation episodes out of range.

    Raises:
        SoulsGraphError: naming the option, the range and the value.
    """
    check_range("episodes", episodes, 1, 1_000_000)
    check_range("seed", seed, 0, 2**63 - 1)


def evaluation_seeds(seed: int, episodes: int) -> Seeds:
    """Return the seeds of `episodes` evaluation episodes, disjoint from every training stream.

    Raises:
        SoulsGraphError: if there is no episode, or the seed is out of range.
    """
    check_judging(seed, episodes)
    return episode_seeds(int(derive_seeds(seed, _EVALUATION_STREAM)[0]), 0, np.arange(episodes))


def play_agent(
    agent: Agent, seeds: Seeds, on_finished: OnFinished | None = None, *, keep_decisions: bool = False
) -> Episodes:
    """Play one episode a seed in the simulator and return them in the order of the seeds."""
    rollout = agent.rollout(make_game(lanes=min(LANES, len(seeds))))
    return rollout.play(seeds, on_finished, keep_decisions=keep_decisions)
