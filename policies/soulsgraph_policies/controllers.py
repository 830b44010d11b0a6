"""Who decides at run time: trained networks, a random or an idle policy, and several in one agent."""

from __future__ import annotations

from collections.abc import Sequence

from soulsgraph_envs.combat import Combat, Controller
from soulsgraph_envs.composition import Actions
from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_envs.game import LaneIndices
from soulsgraph_envs.oracles import ScriptedPlay, Uniform
from soulsgraph_envs.skills import Skill
from soulsgraph_envs.streams import Seeds
from soulsgraph_policies.inference import FusedNetworks


class NetworkController:
    """Play skills greedily by their Q-networks."""

    def __init__(self, networks: FusedNetworks) -> None:
        self.networks = networks

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Networks keep nothing between decisions."""

    def act(self, combat: Combat, actions: Actions) -> None:
        """Write the greedy actions of the due skills."""
        self.networks.act(combat.rows, combat.due, actions)


class RandomController(ScriptedPlay):
    """Play one skill of an agent, the one at a position in its graph's order, uniformly at random."""

    def __init__(self, skill: Skill, position: int, lanes: int) -> None:
        super().__init__({skill.name: Uniform(skill, lanes, stream=position)})


class IdleController:
    """Play one skill by its idle action: it holds and presses nothing.

    Raises:
        SoulsGraphError: if the skill has no such action.
    """

    def __init__(self, skill: Skill, position: int) -> None:
        idle = [i for i, action in enumerate(skill.actions) if not (action.holds | action.presses)]
        if not idle:
            raise SoulsGraphError(
                f"skill {skill.name}: expected an action that does nothing, found none; replace it by random instead."
            )
        self._position, self._action = position, idle[0]

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Have nothing to remember."""

    def act(self, combat: Combat, actions: Actions) -> None:
        """Idle in every lane."""
        actions[:, self._position] = self._action


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
