"""The RLlib face: the skill graph over one lane as a MultiAgentEnv, one agent a skill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from ray.rllib.env.multi_agent_env import MultiAgentEnv

from soulsgraph_envs.combat.rollout import Rollout
from soulsgraph_envs.core.errors import ActionError, ResetNeededError, UnknownNameError, shown
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.seeds import EpisodeSeeds, checked_seed, derive_seeds
from soulsgraph_envs.gym.skill_env import action_space, make_combat, observation_space
from soulsgraph_envs.skills import SKILL_NAMES, SkillOptions, make_skill

MultiAgentDict = dict[str, Any]


class SkillGraphEnv(MultiAgentEnv):
    """All skills of a graph as agents; a skill acts only on ticks at which it is due.

    One step is one control tick, or as many as it takes until some skill is due. A skill is given
    its next observation and its decision's reward on the tick at which the decision ends. The last
    of `skills` is the one in training: its training scenario and horizon are the episode's.

    In the place of `skills` RLlib puts its `EnvContext`: a mapping of these keywords, with the indices of an env
    runner and of an environment in it, so that equal seeds begin different fights in each of them.

    Raises:
        UnknownNameError: for an unknown skill or scenario, or a key of the mapping that is no keyword.
    """

    def __init__(
        self,
        skills: Sequence[str] | Mapping[str, Any] = SKILL_NAMES,
        scenario: str | Scenario = "iudex-phase1",
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
        self.skills = {name: make_skill(name, options) for name in skills}
        self.combat = make_combat([*self.skills.values()], scenario)
        self.possible_agents = list(skills)
        self.agents = list(skills)
        self.observation_spaces = {name: observation_space(skill) for name, skill in self.skills.items()}
        self.action_spaces = {name: action_space(skill) for name, skill in self.skills.items()}
        self._rollout = Rollout(self.combat)
        self._lane = np.zeros(1, np.int64)
        self._seeds = EpisodeSeeds(1)
        self._under_way = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[MultiAgentDict, MultiAgentDict]:
        """Begin an episode and return the observations of the skills due first; raises as `SkillEnv.reset` does."""
        seed = checked_seed(seed)
        super().reset(seed=seed)
        self._seeds.restart(self._own(seed), self.np_random)
        self._rollout.begin(self._lane, self._seeds.next(self._lane))
        self._under_way = True
        self.agents = list(self.possible_agents)
        self._run_until_due()
        return self._observations(self.combat.due[0]), {}

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
        if not self._under_way:
            raise ResetNeededError
        self._rollout.actions[0] = self._checked(action_dict)
        self._rollout.tick()
        self._run_until_due()
        terminated, truncated = bool(self.combat.terminated[0]), bool(self.combat.truncated[0])
        closing = self.combat.completed[0]
        rewards = self._rewards(closing)
        shown = closing if terminated or truncated else self.combat.due[0]
        if terminated or truncated:
            self.agents, self._under_way = [], False
        flags = dict.fromkeys(self.skills, terminated) | {"__all__": terminated}
        cut = dict.fromkeys(self.skills, truncated) | {"__all__": truncated}
        return self._observations(shown), rewards, flags, cut, {}

    def _checked(self, action_dict: MultiAgentDict) -> npt.NDArray[np.int64]:
        """Return every skill's next action, (skills,); a skill that is not due keeps its latest one."""
        if not isinstance(action_dict, Mapping):
            raise ActionError(f"expected a dictionary of actions by agent, found {shown(action_dict)}.")
        for name in action_dict:
            if name not in self.skills:
                raise ActionError(f"expected actions of {', '.join(self.skills)}; found one of {shown(name)}.")
        actions: npt.NDArray[np.int64] = self._rollout.actions[0].copy()
        for index, (name, skill) in enumerate(self.skills.items()):
            if self.combat.due[0, index]:
                if name not in action_dict:
                    raise skill.refused("none, and it is due")
                actions[index] = skill.checked(action_dict[name])[0]
        return actions

    def _run_until_due(self) -> None:
        # Nothing is due on this tick: no decision ends before the next due tick either, for a
        # decision's end is the tick at which its skill is due again.
        while not self.combat.due[0].any() and not self.combat.ended[0]:
            self._rollout.tick()

    def _observations(self, shown: Any) -> MultiAgentDict:
        scenario = self.combat.scenario
        return {
            name: skill.observation(self.combat.rows, scenario)[0]
            for (name, skill), wanted in zip(self.skills.items(), shown, strict=True)
            if wanted
        }

    def _rewards(self, closing: Any) -> MultiAgentDict:
        return {
            name: float(skill.reward.evaluate(self.combat.finished(index, self._lane)).sum())
            for index, (name, skill) in enumerate(self.skills.items())
            if closing[index]
        }

    def close(self) -> None:
        """Close the game."""
        self._under_way = False
        self.combat.game.close()
