"""The Gymnasium faces: one skill as the agent, frozen or scripted upstream skills inside.

One `step` is one decision of the skill; the world moves on by as many control ticks as the action
takes. Lanes of the vector face begin their next episode within the step in which one ended, and
give the true last observation as `final_obs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from soulsgraph_envs.catalogue import load_scenario
from soulsgraph_envs.combat import Controller
from soulsgraph_envs.games import make_game
from soulsgraph_envs.oracles import OracleDodge, ScriptedPlay, engaging
from soulsgraph_envs.scenario import Scenario
from soulsgraph_envs.skill_task import Outcome, SkillTask, practice_ground
from soulsgraph_envs.skills import END_TO_END, SKILL_NAMES, Skill, SkillOptions, make_skill
from soulsgraph_envs.streams import episode_seeds

Floats = npt.NDArray[np.float32]


def upstream_of(skill: str) -> tuple[str, ...]:
    """Give the skills before `skill` in the paper's chain; none for the end-to-end baseline."""
    return () if skill == END_TO_END else SKILL_NAMES[: SKILL_NAMES.index(skill)]


def make_task(
    skill: str,
    scenario: str | Scenario,
    lanes: int,
    controller: Controller | None = None,
    options: SkillOptions | None = None,
) -> SkillTask:
    """Make a skill's task in the simulator; scripted upstream skills where no controller is given.

    Raises:
        UnknownNameError: for an unknown skill or scenario.
    """
    agent = make_skill(skill, options)
    upstream = tuple(make_skill(name, options) for name in upstream_of(skill))
    loaded = load_scenario(scenario) if isinstance(scenario, str) else scenario
    if controller is None and upstream:
        scripts = engaging() | {"dodge": OracleDodge()}
        controller = ScriptedPlay({name: scripts[name] for name in upstream_of(skill)})
    return SkillTask(make_game(lanes=lanes), agent, upstream, controller, practice_ground(loaded, agent))


def observation_space(skill: Skill) -> gymnasium.spaces.Box:
    """Give the skill's observation space: raw values, unbounded, (size,) float32."""
    return gymnasium.spaces.Box(-np.inf, np.inf, (skill.observation.size,), np.float32)


def action_space(skill: Skill) -> gymnasium.spaces.Discrete[np.int64]:
    """Give the skill's action space."""
    return gymnasium.spaces.Discrete(len(skill.actions))


class SkillEnv(gymnasium.Env[Floats, np.int64]):
    """One skill of the graph as a Gymnasium environment, in one lane."""

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own attribute

    def __init__(
        self,
        skill: str = "dodge",
        scenario: str | Scenario = "iudex-phase1",
        controller: Controller | None = None,
        options: SkillOptions | None = None,
    ) -> None:
        self.task = make_task(skill, scenario, 1, controller, options)
        self.observation_space = observation_space(self.task.skill)
        self.action_space = action_space(self.task.skill)
        self._lane = np.zeros(1, np.int64)
        self._seed: int | None = None
        self._episode = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Begin an episode; after `reset(seed=s)` the sequence of episodes is the same every time."""
        super().reset(seed=seed)
        if seed is not None or self._seed is None:
            self._seed = int(self.np_random.integers(2**63)) if seed is None else seed
            self._episode = 0
        self.task.begin(self._lane, episode_seeds(self._seed, 0, self._episode))
        self._episode += 1
        return self.task.observations[0], {}

    def step(self, action: np.int64) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Carry out one decision; `info` holds each reward term; at an end `won`, `died` and `seconds` of game time."""
        outcome = self.task.decide(np.asarray([action]))
        info = _info(self.task.skill, outcome, 0)
        ended = bool(outcome.terminated[0]), bool(outcome.truncated[0])
        return outcome.observations[0], float(outcome.rewards[0]), *ended, info

    def close(self) -> None:
        """Close the game."""
        self.task.combat.game.close()


class EndToEndEnv(SkillEnv):
    """The atomic baseline of Appendix B: 25 observations, 16 actions, the whole fight."""

    def __init__(self, scenario: str | Scenario = "iudex-phase1", options: SkillOptions | None = None) -> None:
        super().__init__(END_TO_END, scenario, None, options)


class SkillVectorEnv(VectorEnv[Floats, npt.NDArray[np.int64], npt.NDArray[np.generic]]):
    """Many lanes of one skill's task, stepped together by one simulator."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        num_envs: int = 32,
        skill: str = "dodge",
        scenario: str | Scenario = "iudex-phase1",
        controller: Controller | None = None,
        options: SkillOptions | None = None,
    ) -> None:
        self.num_envs = num_envs
        self.task = make_task(skill, scenario, num_envs, controller, options)
        self.single_observation_space = observation_space(self.task.skill)
        self.single_action_space = action_space(self.task.skill)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._lanes = np.arange(num_envs)
        self._episodes = np.zeros(num_envs, np.int64)
        self._seed: int | None = None

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Begin an episode in every lane; one seed serves them all, each lane having its own stream."""
        super().reset(seed=seed if isinstance(seed, int) else None)
        if isinstance(seed, int):
            self._seed, self._episodes[:] = seed, 0
        elif self._seed is None:
            self._seed = int(self.np_random.integers(2**63))
        self._begin(self._lanes)
        return self.task.observations, {}

    def step(
        self, actions: npt.NDArray[np.int64]
    ) -> tuple[Floats, Floats, npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]]:
        """Carry out one decision in every lane, `actions` (num_envs,)."""
        outcome = self.task.decide(actions)
        ended = np.flatnonzero(outcome.terminated | outcome.truncated)
        info: dict[str, Any] = {"terms": outcome.terms}
        observations = outcome.observations
        if ended.size:
            info["final_obs"] = np.full(self.num_envs, None, dtype=object)
            info["_final_obs"] = np.zeros(self.num_envs, np.bool_)
            info["_final_obs"][ended] = True
            for lane in ended:
                info["final_obs"][lane] = observations[lane]
            info["won"], info["died"], info["seconds"] = outcome.won, outcome.died, outcome.seconds
            self._begin(ended)
            observations = self.task.observations
        return observations, outcome.rewards, outcome.terminated, outcome.truncated, info

    def _begin(self, lanes: npt.NDArray[np.int64]) -> None:
        assert self._seed is not None
        self.task.begin(lanes, episode_seeds(self._seed, lanes, self._episodes[lanes]))
        self._episodes[lanes] += 1

    def close_extras(self, **kwargs: Any) -> None:
        """Close the game."""
        self.task.combat.game.close()


def _info(skill: Skill, outcome: Outcome, lane: int) -> dict[str, Any]:
    info: dict[str, Any] = {
        f"reward/{name}": float(value) for name, value in zip(skill.reward.names, outcome.terms[lane], strict=True)
    }
    if outcome.terminated[lane] or outcome.truncated[lane]:
        info["won"], info["died"] = bool(outcome.won[lane]), bool(outcome.died[lane])
        info["seconds"] = float(outcome.seconds[lane])
    return info
