"""Play one skill in its own task, the skills upstream of it trained, and keep every decision it takes.

The own task of the last skill of the graph is the whole fight, so win rates come from the same trials.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.combat import Combat
from soulsgraph_envs.composition import Actions
from soulsgraph_envs.episodes import Episodes
from soulsgraph_envs.game import LaneIndices
from soulsgraph_envs.games import make_game
from soulsgraph_envs.skills import practice_ground
from soulsgraph_envs.streams import Seeds, derive_seeds, uniforms
from soulsgraph_policies.agent import Agent

Flags = npt.NDArray[np.bool_]

_EXPLORATION_STREAM = 21


class Exploration:
    """Let an agent's last skill act uniformly at random in a share of its decisions, behind whoever plays it."""

    def __init__(self, agent: Agent, lanes: int, share: float) -> None:
        self._position, self._choices = len(agent.skills) - 1, len(agent.skills[-1].actions)
        self._streams, self._share = np.zeros(lanes, np.uint64), share
        self._lanes: list[LaneIndices] = []
        self._drawn: list[Flags] = []

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Begin the lanes' streams anew."""
        self._streams[lanes] = derive_seeds(seeds, _EXPLORATION_STREAM, self._position)

    def act(self, combat: Combat, actions: Actions) -> None:
        """Draw whether to explore wherever the skill is due, and an action where it does."""
        due = np.flatnonzero(combat.due[:, self._position])
        drawn = np.zeros(len(due), np.bool_)
        if self._share:
            whether, which = uniforms(self._streams, due), uniforms(self._streams, due)
            drawn = whether < self._share
            actions[due[drawn], self._position] = (which[drawn] * self._choices).astype(np.int64)
        self._lanes.append(due)
        self._drawn.append(drawn)

    @property
    def explored(self) -> Flags:
        """Whether each decision was drawn, lane by lane and in order of time."""
        order = np.argsort(np.concatenate(self._lanes), kind="stable")
        explored: Flags = np.concatenate(self._drawn)[order]
        return explored


def play_trial(agent: Agent, seeds: Seeds, exploration: float = 0.0) -> Episodes:
    """Play one episode a seed (n,), each in a lane of its own, exploring in a share of the last skill's decisions."""
    exploring = Exploration(agent, len(seeds), exploration)
    episodes = agent.rollout(make_game(lanes=len(seeds)), exploring).play(seeds, keep_decisions=True)
    return replace(episodes, decisions=replace(episodes.taken, explored=exploring.explored))


def own_task(agent: Agent) -> Agent:
    """Return the agent on the ground that its last skill trained on: the skill's start, HP refilled where it was."""
    return agent.on(practice_ground(agent.scenario, agent.skills[-1]))
