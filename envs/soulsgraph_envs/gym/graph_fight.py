"""One fight in which every skill of a graph is an agent: what RLlib's and PettingZoo's environments of it share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from annotated_types import MinLen

from soulsgraph_envs.combat.rollout import Rollout
from soulsgraph_envs.core.config import EACH_ONCE, check_arguments
from soulsgraph_envs.core.errors import ActionError, ResetNeededError, shown
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.seeds import EpisodeSeeds
from soulsgraph_envs.gym.skill_env import action_space, make_combat, observation_space
from soulsgraph_envs.skills import SkillOptions, make_skill
from soulsgraph_envs.skills.action_masks import ActionMasks

ByAgent = dict[str, Any]
Flags = npt.NDArray[np.bool_]


class GraphFight:
    """A fight of one lane whose skills act where they are due; `SkillGraphEnv` says what they are.

    Raises:
        UnknownNameError: for an unknown skill or scenario.
    """

    @check_arguments
    def __init__(
        self,
        skills: Annotated[Sequence[str], MinLen(1), EACH_ONCE],
        scenario: str | Path | Scenario,
        options: SkillOptions | None,
    ) -> None:
        self.skills = {name: make_skill(name, options) for name in skills}
        self.combat = make_combat([*self.skills.values()], scenario)
        fought = self.combat.scenario
        self.observation_spaces = {name: observation_space(skill, fought) for name, skill in self.skills.items()}
        self.action_spaces = {name: action_space(skill) for name, skill in self.skills.items()}
        self.under_way = False
        self._masks = {name: ActionMasks(skill, fought) for name, skill in self.skills.items()}
        self._rollout = Rollout(self.combat)
        self._lane = np.zeros(1, np.int64)
        self._seeds = EpisodeSeeds(1)

    @property
    def due(self) -> Flags:
        """Whether each skill decides now, (skills,)."""
        due: Flags = self.combat.due[0]
        return due

    @property
    def closing(self) -> Flags:
        """Whether each skill's decision ended with the last tick, (skills,)."""
        closing: Flags = self.combat.completed[0]
        return closing

    @property
    def begun(self) -> bool:
        """Whether there has been an episode."""
        return self._seeds.begun

    @property
    def terminated(self) -> bool:
        """Whether the episode ended in a death or a win."""
        return bool(self.combat.terminated[0])

    @property
    def truncated(self) -> bool:
        """Whether the horizon cut the episode."""
        return bool(self.combat.truncated[0])

    def begin(self, seed: int | None, random: np.random.Generator) -> None:
        """Begin the next episode, or with a seed its first, and run to the first tick at which a skill is due."""
        self._seeds.restart(seed, random)
        self._rollout.begin(self._lane, self._seeds.next(self._lane))
        self.under_way = True
        self._run_until_due()

    def step(self, actions: Mapping[str, Any]) -> None:
        """Take the due skills' actions and run to the next tick at which a skill is due.

        Raises:
            ActionError: if a due skill's action is missing or none of its space, or an agent is unknown.
            ResetNeededError: if no episode is under way.
        """
        if not self.under_way:
            raise ResetNeededError
        self._rollout.actions[0] = self._checked(actions)
        self._rollout.tick()
        self._run_until_due()
        self.under_way = not (self.terminated or self.truncated)

    def _checked(self, actions: Mapping[str, Any]) -> npt.NDArray[np.int64]:
        """Return every skill's next action, (skills,); a skill that is not due keeps its latest one."""
        for name in actions:
            if name not in self.skills:
                raise ActionError(f"expected actions of {', '.join(self.skills)}; found one of {shown(name)}.")
        checked: npt.NDArray[np.int64] = self._rollout.actions[0].copy()
        for index, (name, skill) in enumerate(self.skills.items()):
            if self.due[index]:
                if name not in actions:
                    raise skill.refused("none, and it is due")
                checked[index] = skill.checked(actions[name])[0]
        return checked

    def _run_until_due(self) -> None:
        # Nothing is due on this tick: no decision ends before the next due tick either, for a
        # decision's end is the tick at which its skill is due again.
        while not self.due.any() and not self.combat.ended[0]:
            self._rollout.tick()

    def chosen(self, of: Flags) -> list[str]:
        """Return the names of skills, `of` (skills,)."""
        return [name for name, wanted in zip(self.skills, of, strict=True) if wanted]

    def observations(self, names: Sequence[str]) -> ByAgent:
        """Return the present observations of some skills."""
        rows, scenario = self.combat.rows, self.combat.scenario
        return {name: self.skills[name].observation(rows, scenario)[0] for name in names}

    def action_mask(self, name: str) -> npt.NDArray[np.int8]:
        """Return 1 for each action of a skill that would do something now, (actions,)."""
        mask: npt.NDArray[np.int8] = self._masks[name](self.combat.rows)[0].astype(np.int8)
        return mask

    def rewards(self) -> ByAgent:
        """Return the rewards of the skills whose decisions ended with the last tick."""
        return {
            name: float(skill.reward.evaluate(self.combat.finished(index, self._lane)).sum())
            for index, (name, skill) in enumerate(self.skills.items())
            if self.closing[index]
        }

    def close(self) -> None:
        """Close the game."""
        self.under_way = False
        self.combat.game.close()
