"""Who plays each skill of a fight: a trained network, a script, random actions, or idling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from soulsgraph_envs.combat.loop import Actions, Combat, Controller, Horizon
from soulsgraph_envs.combat.rollout import Rollout
from soulsgraph_envs.combat.scripted import ConstantScript, Script, ScriptedPlay, Uniform
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.game import Game, LaneIndices
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.skills import Skill
from soulsgraph_policies.agents.inference import FrozenNetwork, FusedNetworks

#: What replaces a trained skill: uniform random actions with the skill's own step durations, or idling.
StandIn = Literal["random", "idle"]


class NetworkController:
    """Play skills greedily by their Q-networks."""

    def __init__(self, networks: FusedNetworks) -> None:
        self.networks = networks

    @classmethod
    def upstream(cls, networks: Sequence[FrozenNetwork]) -> NetworkController:
        """Play the skills before the last one of a combat, by their networks in this order."""
        return cls(FusedNetworks(networks, [*range(len(networks)), -1]))

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Do nothing: networks have no state between decisions; `lanes` (n,), `seeds` (n,)."""

    def act(self, combat: Combat, actions: Actions) -> None:
        """Write the greedy `actions` (lanes, skills) of the due skills."""
        self.networks.act(combat.rows, combat.due, actions)


@dataclass(frozen=True)
class Agent:
    """A scenario, the skills in it in graph order, and what plays each of them.

    `networks` maps a skill to its network, or to several: then the lanes are split evenly, and each part plays by
    the next one. `replaced` maps a skill to a stand-in or a script, which overrides its network. The last skill is the
    one whose return, length and horizon count.

    Raises:
        UnknownNameError: if a replacement is of an unknown skill.
    """

    scenario: Scenario
    skills: tuple[Skill, ...]
    networks: Mapping[str, FrozenNetwork | Sequence[FrozenNetwork]] = field(default_factory=dict)
    replaced: Mapping[str, StandIn | Script] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [skill.name for skill in self.skills]
        for name in self.replaced:
            if name not in names:
                raise UnknownNameError("skill to replace", name, names)

    def playing(self, networks: Mapping[str, FrozenNetwork | Sequence[FrozenNetwork]]) -> Agent:
        """Return a copy of the agent in which these networks play their skills."""
        others = {name: who for name, who in self.replaced.items() if name not in networks}
        return replace(self, networks={**self.networks, **networks}, replaced=others)

    def rollout(self, game: Game, *further: Controller) -> Rollout:
        """Return a rollout of the agent in a game; `further` controllers act after its own."""
        last = self.skills[-1]
        combat = Combat(game, self.skills, self.scenario, Horizon(last.name, last.horizon))
        own: list[Controller] = []
        if len(self.replaced) < len(self.skills):
            own.append(NetworkController(self._fused(game.lanes)))
        if self.replaced:
            scripts = {
                skill.name: _script(self.replaced[skill.name], skill, position, game.lanes)
                for position, skill in enumerate(self.skills)
                if skill.name in self.replaced
            }
            own.append(ScriptedPlay(scripts))
        return Rollout(combat, *own, *further)

    def _fused(self, lanes: int) -> FusedNetworks:
        distinct: list[FrozenNetwork] = []
        columns: list[list[int]] = []
        for skill in self.skills:
            found = () if skill.name in self.replaced else self.networks[skill.name]
            variants = [found] if isinstance(found, FrozenNetwork) else list(found)
            columns.append([len(distinct) + i for i in range(len(variants))] or [-1])
            distinct += variants
        parts = max(map(len, columns))
        plays = np.array([column * (parts // len(column)) for column in columns]).T
        return FusedNetworks(distinct, np.repeat(plays, lanes // parts, axis=0))


def _script(who: StandIn | Script, skill: Skill, position: int, lanes: int) -> Script:
    if who == "random":
        return Uniform(skill, lanes, stream=position)
    return ConstantScript(_idle(skill)) if who == "idle" else who


def _idle(skill: Skill) -> int:
    """Return the index of the skill's action that holds and presses nothing."""
    for index, action in enumerate(skill.actions):
        if not (action.holds | action.presses):
            return index
    raise SoulsGraphError(
        f"skill {skill.name}: expected an action that does nothing, found none; replace it by random instead."
    )
