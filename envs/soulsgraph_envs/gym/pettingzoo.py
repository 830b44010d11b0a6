"""The PettingZoo face: the skill graph over one lane as a parallel environment, one agent a skill."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from annotated_types import MinLen

from soulsgraph_envs.core.config import EACH_ONCE, check_arguments
from soulsgraph_envs.core.errors import ResetNeededError
from soulsgraph_envs.core.extras import check_extra
from soulsgraph_envs.core.game import Picture, RenderableGame
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.seeds import checked_seed
from soulsgraph_envs.gym.graph_fight import ByAgent, GraphFight
from soulsgraph_envs.gym.skill_env import PICTURE_SIZE, PICTURES_PER_S
from soulsgraph_envs.skills import SKILL_NAMES, SkillOptions
from soulsgraph_envs.skills.columns import column_limits

check_extra("the parallel environment", "pettingzoo")
from pettingzoo import ParallelEnv  # noqa: E402


class SkillGraphParallelEnv(ParallelEnv):
    """All skills of a graph as agents of a PettingZoo `ParallelEnv`; each is passed every observation.

    One step is one control tick, or as many as it takes until some skill is due. All agents act, but a skill's action
    counts only where `info["due"]`: until its decision ends it keeps its latest one. Its reward comes with the end of
    the decision, and is 0 elsewhere. `info` also has its `action_mask`. All agents end together. The last of `skills`
    is the one in training: its training scenario and horizon are the episode's. `state` is the State, (25,).

    Raises:
        UnknownNameError: for an unknown skill, scenario or render mode.
        SoulsGraphError: on import, without PettingZoo.
    """

    metadata = {  # noqa: RUF012 - PettingZoo's own attribute
        "name": "soulsgraph_v0",
        "render_modes": ["rgb_array"],
        "render_fps": PICTURES_PER_S,
        "is_parallelizable": True,
    }

    @check_arguments
    def __init__(
        self,
        skills: Annotated[Sequence[str], MinLen(1), EACH_ONCE] = SKILL_NAMES,
        scenario: str | Path | Scenario = "iudex-phase1",
        options: SkillOptions | None = None,
        render_mode: Literal["rgb_array"] | None = None,
    ) -> None:
        self.render_mode = render_mode
        self._fight = GraphFight(skills, scenario, options)
        #: Draws the coming fights, under the name by which wrappers draw as well.
        self.np_random = np.random.default_rng()
        self.possible_agents, self.agents = list(skills), list[str]()
        self.observation_spaces, self.action_spaces = self._fight.observation_spaces, self._fight.action_spaces
        self.state_space = gymnasium.spaces.Box(*column_limits(self._fight.combat.scenario), dtype=np.float32)

    def observation_space(self, agent: str) -> gymnasium.spaces.Box:
        """Return an agent's observation space."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gymnasium.spaces.Discrete[np.int64]:
        """Return an agent's action space."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ByAgent, ByAgent]:
        """Begin an episode and return every agent's observation and info.

        Raises:
            SeedError: as `SkillEnv.reset`.
        """
        seed = checked_seed(seed)
        if seed is not None:
            self.np_random = np.random.default_rng(seed)
        self._fight.begin(seed, self.np_random)
        self.agents = list(self.possible_agents)
        return self._fight.observations(self.agents), self._infos()

    def step(self, actions: ByAgent) -> tuple[ByAgent, ByAgent, ByAgent, ByAgent, ByAgent]:
        """Take the actions of the skills that are due and run to the next tick at which one is.

        Raises:
            ActionError: if a due skill's action is missing or none of its space, or an agent is unknown;
                the episode goes on.
            ResetNeededError: if no episode is under way.
        """
        fight, agents = self._fight, self.possible_agents
        fight.step(actions)
        if not fight.under_way:
            self.agents = []
        rewards = dict.fromkeys(agents, 0.0) | fight.rewards()
        ends = (dict.fromkeys(agents, fight.terminated), dict.fromkeys(agents, fight.truncated))
        return fight.observations(agents), rewards, *ends, self._infos()

    def _infos(self) -> ByAgent:
        return {
            name: {"due": np.array(due), "action_mask": self._fight.action_mask(name)}
            for name, due in zip(self.possible_agents, self._fight.due, strict=True)
        }

    def state(self) -> npt.NDArray[np.float32]:
        """Return the State that all observations are parts of, (25,)."""
        state: npt.NDArray[np.float32] = self._fight.combat.rows[0].copy()
        return state

    def render(self) -> Picture | None:
        """Return a picture (360, 640, 3) in mode "rgb_array", else None.

        Raises:
            ResetNeededError: before the first reset.
        """
        if self.render_mode is None:
            return None
        if not self._fight.begun:
            raise ResetNeededError
        return cast(RenderableGame, self._fight.combat.game).render(0, PICTURE_SIZE)

    def close(self) -> None:
        """Close the game."""
        self._fight.close()
