"""The RLlib face: the skill graph over one lane as a MultiAgentEnv, one agent a skill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ray.rllib.env.multi_agent_env import MultiAgentEnv

from soulsgraph_envs.core.errors import UnknownNameError
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.seeds import checked_seed, derive_seeds
from soulsgraph_envs.gym.graph_fight import Flags, GraphFight
from soulsgraph_envs.skills import SKILL_NAMES, SkillOptions

MultiAgentDict = dict[str, Any]


class SkillGraphEnv(MultiAgentEnv):
    """All skills of a graph as agents; a skill acts only on ticks at which it is due.

    One step is one control tick, or as many as it takes until some skill is due. A skill is given
    its next observation and its decision's reward on the tick at which the decision ends, and with the observation an
    info that has its `action_mask`. The last of `skills` is the one in training: its training scenario and horizon are
    the episode's.

    In the place of `skills` RLlib puts its `EnvContext`: a mapping of these keywords, with the indices of an env
    runner and of an environment in it, so that equal seeds begin different fights in each of them.

    Raises:
        UnknownNameError: for an unknown skill or scenario, or a key of the mapping that is no keyword.
    """

    def __init__(
        self,
        skills: Sequence[str] | Mapping[str, Any] = SKILL_NAMES,
        scenario: str | Path | Scenario = "iudex-phase1",
        options: SkillOptions | None = None,
    ) -> None:
        super().__init__()
        self._place = (getattr(skills, "worker_index", 0) or 0, getattr(skills, "vector_index", 0) or 0)
        if isinstance(skills, Mapping):
            known: dict[str, Any] = {"skills": SKILL_NAMES, "scenario": scenario, "options": options}
            for name in skills:
                if name not in known:
                    raise UnknownNameError("keyword of SkillGraphEnv", name, known)
            skills, scenario, options = (known | dict(skills)).values()
        self._fight = GraphFight(cast(Sequence[str], skills), scenario, options)
        self.skills, self.combat = self._fight.skills, self._fight.combat
        self.possible_agents = list(skills)
        self.agents = list(skills)
        self.observation_spaces, self.action_spaces = self._fight.observation_spaces, self._fight.action_spaces

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[MultiAgentDict, MultiAgentDict]:
        """Begin an episode and return the observations of the skills due first; raises as `SkillEnv.reset` does."""
        seed = checked_seed(seed)
        super().reset(seed=seed)
        self._fight.begin(self._own(seed), self.np_random)
        self.agents = list(self.possible_agents)
        return self._observed(self._fight.due)

    def _own(self, seed: int | None) -> int | None:
        """Return the seed of this env runner's environment: the first's is the seed itself."""
        return int(derive_seeds(seed, *self._place)[0]) if seed is not None and any(self._place) else seed

    def step(
        self, action_dict: MultiAgentDict
    ) -> tuple[MultiAgentDict, MultiAgentDict, MultiAgentDict, MultiAgentDict, MultiAgentDict]:
        """Take the due skills' actions and run to the next tick at which a skill is due.

        Actions of skills that are not due are ignored, whatever they are.

        Raises:
            ActionError: if a due skill's action is missing or none of its space, or an agent is unknown;
                the episode goes on.
            ResetNeededError: if no episode is under way.
        """
        fight = self._fight
        fight.step(action_dict)
        terminated, truncated = fight.terminated, fight.truncated
        if terminated or truncated:
            self.agents = []
        observations, infos = self._observed(fight.closing if terminated or truncated else fight.due)
        flags = dict.fromkeys(self.skills, terminated) | {"__all__": terminated}
        cut = dict.fromkeys(self.skills, truncated) | {"__all__": truncated}
        return observations, fight.rewards(), flags, cut, infos

    def _observed(self, skills: Flags) -> tuple[MultiAgentDict, MultiAgentDict]:
        """Return the observations and infos of some skills (skills,)."""
        names = self._fight.chosen(skills)
        return self._fight.observations(names), {name: {"action_mask": self._fight.action_mask(name)} for name in names}

    def close(self) -> None:
        """Close the game."""
        self._fight.close()
