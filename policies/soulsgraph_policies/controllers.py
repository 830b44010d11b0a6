"""Who decides at run time: trained networks, uniform chance, and both in one agent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.combat import Combat, Controller
from soulsgraph_envs.composition import Actions
from soulsgraph_envs.game import LaneIndices
from soulsgraph_envs.skills import Skill
from soulsgraph_envs.streams import Seeds, derive_seeds, uniforms
from soulsgraph_policies.inference import FusedNetworks

_RANDOM_STREAM = 3


class NetworkController:
    """Play skills greedily by their Q-networks."""

    def __init__(self, networks: FusedNetworks) -> None:
        self.networks = networks

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Networks keep nothing between decisions."""

    def act(self, combat: Combat, actions: Actions) -> None:
        """Write the greedy actions of the due skills."""
        self.networks.act(combat.rows, combat.due, actions)


class RandomController:
    """Play one skill uniformly at random, each lane from its own stream; durations stay the skill's."""

    def __init__(self, skill: Skill, position: int, lanes: int) -> None:
        self._position, self._choices = position, len(skill.actions)
        self._streams = np.zeros(lanes, np.uint64)

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Begin the lanes' streams anew."""
        self._streams[lanes] = derive_seeds(seeds, _RANDOM_STREAM, self._position)

    def act(self, combat: Combat, actions: Actions) -> None:
        """Draw an action wherever the skill is due."""
        lanes = np.flatnonzero(combat.due[:, self._position])
        draws: npt.NDArray[np.float64] = uniforms(self._streams, lanes)
        actions[lanes, self._position] = (draws * self._choices).astype(np.int64)


class Agent:
    """Several controllers as one; each plays its own skills."""

    def __init__(self, controllers: Sequence[Controller]) -> None:
        self._controllers = tuple(controllers)

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Tell every controller."""
        for controller in self._controllers:
            controller.begin(lanes, seeds)

    def act(self, combat: Combat, actions: Actions) -> None:
        """Let every controller write its skills' actions."""
        for controller in self._controllers:
            controller.act(combat, actions)
