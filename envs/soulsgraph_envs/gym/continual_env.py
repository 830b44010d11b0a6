"""A sequence of fights as one Gymnasium environment: when a task's decisions are used up, the next fight begins.

A task is left by truncating what is under way, so that each has exactly its number of decisions; many lanes change
together, and may pass it by fewer decisions than there are lanes. The last task goes on. `reset` goes on too:
`options={"task": 0}` begins the sequence anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from soulsgraph_envs.continual.sequences import ContinualSequence, check_tasks, load_sequence
from soulsgraph_envs.core.config import check_arguments
from soulsgraph_envs.core.errors import SoulsGraphError, shown
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import checked_options, checked_seed
from soulsgraph_envs.core.state import Column
from soulsgraph_envs.gym.skill_env import (
    Autoreset,
    Floats,
    Lanes,
    ObservationKind,
    Observed,
    SkillEnv,
    SkillVectorEnv,
    Steps,
    is_whole,
    make_rollout,
    observation_space,
)
from soulsgraph_envs.skills import END_TO_END, Skill, SkillOptions, make_skill

#: Whether an agent is shown which task it plays: not at all, or in its observation and in `info`.
TaskIdentity = Literal["none", "one-hot"]


class TaskClock:
    """The position in a sequence, and the decisions left before the next task.

    `steps_per_task` replaces the sequence's budgets; with a `task` that one alone is played.

    Raises:
        UnknownNameError: for an unknown sequence, scenario or way of showing tasks.
        SoulsGraphError: for a task that the sequence does not have, fewer than 1 step, or a fight that fails the
            filter, which is played where its win rates are not recorded.
    """

    def __init__(
        self,
        sequence: str | Path | ContinualSequence,
        steps_per_task: int | None = None,
        identity: TaskIdentity = "none",
        task: int | None = None,
    ) -> None:
        self.sequence = sequence if isinstance(sequence, ContinualSequence) else load_sequence(sequence)
        count = len(self.sequence.tasks)
        #: Decisions for each task.
        self.steps = tuple(steps_per_task or self.sequence.budget_at(position) for position in range(count))
        self.shown, self._only = identity == "one-hot", task
        self._fights = list(dict.fromkeys(self.sequence.scenarios))
        self.position = self._used = 0
        #: Whether the episode that began last is the first of another task than the one before.
        self.changed = False
        if task is not None:
            self.go_to(task)
        # Last, for it plays what is not recorded.
        check_tasks(self.sequence)

    def check_shown(self, observation: str) -> None:
        """Check that an observation has room for the task; raises SoulsGraphError for a picture that is to show it."""
        if self.shown and observation != "values":
            raise SoulsGraphError(
                f'observation: expected "values" with task_identity "one-hot", found {shown(observation)}; '
                'take task_identity "none".'
            )

    def go_to(self, task: Any) -> None:
        """Begin a task, by its position from 0 on; raises SoulsGraphError for one that is not there or not played."""
        count = len(self.sequence.tasks)
        if not is_whole(task) or not 0 <= task < count:
            raise SoulsGraphError(
                f"task: expected a whole number from 0 to {count - 1}, as {self.sequence.name} has {count} tasks, "
                f"found {shown(task)}."
            )
        if self._only is not None and task != self._only:
            raise SoulsGraphError(
                f"task: expected {self._only}, which this environment plays alone, found {task}; leave it out, or make "
                "another environment."
            )
        self.position, self._used = int(task), 0

    def spend(self, decisions: int) -> bool:
        """Count decisions; return whether the task is over with them."""
        self._used += decisions
        return self._over

    @property
    def _over(self) -> bool:
        last = self._only is not None or self.position + 1 == len(self.steps)
        return not last and self._used >= self.steps[self.position]

    def begin_episode(self) -> None:
        """Move on to the next task if this one is over."""
        if self._over:
            self.position, self._used = self.position + 1, 0

    @property
    def scenario(self) -> str:
        """The present task's scenario."""
        return self.sequence.scenarios[self.position]

    @property
    def width(self) -> int:
        """Values that an observation has behind those of the fight: one for each different fight, or none."""
        return len(self._fights) if self.shown else 0

    def appended(self, observations: Floats) -> Floats:
        """Return observations (n, size) with the indicators of the present fight behind."""
        wide = np.zeros((len(observations), observations.shape[1] + self.width), np.float32)
        wide[:, : observations.shape[1]] = observations
        wide[:, observations.shape[1] + self._fights.index(self.scenario)] = 1.0
        return wide


class ContinualEnv(SkillEnv):
    """A sequence of fights in which one agent learns, a skill with scripted skills upstream or the whole player.

    With `task_identity` "one-hot" an observation ends with an indicator for each different fight of the sequence, and
    `info` has `task` (its position from 0 on), `task_name` and `task_changed`; with "none" neither. A `task` is played
    alone, for evaluations. Animations that `options` make indicators have one for each id of the sequence's bosses.

    Raises:
        UnknownNameError: for an unknown sequence, agent, task identity or render mode.
        SoulsGraphError: as `load_sequence` and `TaskClock`.
    """

    @check_arguments
    def __init__(
        self,
        sequence: str | Path | ContinualSequence = "S8",
        agent: str = END_TO_END,
        steps_per_task: Steps | None = None,
        task_identity: TaskIdentity = "none",
        task: int | None = None,
        options: SkillOptions | None = None,
        render_mode: Literal["rgb_array"] | None = None,
        observation: ObservationKind = "values",
    ) -> None:
        self.clock = TaskClock(sequence, steps_per_task, task_identity, task)
        self.clock.check_shown(observation)
        self._options, self._playing = options, self.clock.position
        self._animations = _boss_animations(self.clock.sequence, agent, options)
        fixed = (agent, self.clock.scenario, None, options, render_mode)
        super().__init__(*fixed, observation=observation, boss_animations=self._animations)
        self.observation_space = _space_of(self.rollout.skill, self.clock, observation)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observed, dict[str, Any]]:
        """Begin an episode of the present task, or of `options["task"]`, from where the sequence goes on.

        Raises:
            SeedError: as `SkillEnv.reset`.
            SoulsGraphError: for a task that the sequence does not have, or another option; the episode goes on.
        """
        checked_seed(seed)
        if (task := checked_options(options, ("task",)).get("task")) is not None:
            self.clock.go_to(task)
        observation, info = super().reset(seed=seed)
        return observation, info | self._task_info()

    def step(self, action: np.int64) -> tuple[Observed, float, bool, bool, dict[str, Any]]:
        """Carry out one decision, as `SkillEnv.step`; the last one of a task truncates its episode."""
        self.clock.changed = False
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, info | self._task_info()

    def _begin(self) -> None:
        self.clock.begin_episode()
        self.clock.changed = self.clock.position != self._playing
        if self.clock.changed:
            _begin_task(self, self._options, self._animations)
            self._playing = self.clock.position
        super()._begin()

    def _observe(self) -> Observed:
        observed = super()._observe()
        return self.clock.appended(observed) if self.clock.shown else observed

    def _cut_off(self) -> bool:
        return self.clock.spend(1)

    def _task_info(self) -> dict[str, Any]:
        clock = self.clock
        if not clock.shown:
            return {}
        changed = np.array(clock.changed)
        return {"task": np.int64(clock.position), "task_name": np.str_(clock.scenario), "task_changed": changed}


class ContinualVectorEnv(SkillVectorEnv):
    """Many lanes of one sequence, which change their task together: its steps are decisions of all lanes.

    As `ContinualEnv` and `SkillVectorEnv`. A lane whose next episode began with the very step that ends a task has one
    without decisions. The first `reset` after it begins an episode of the next task in every lane, whatever its mask.
    """

    reset_options: ClassVar[tuple[str, ...]] = ("reset_mask", "task")

    @check_arguments
    def __init__(
        self,
        num_envs: Lanes = 32,
        sequence: str | Path | ContinualSequence = "S8",
        agent: str = END_TO_END,
        steps_per_task: Steps | None = None,
        task_identity: TaskIdentity = "none",
        task: int | None = None,
        options: SkillOptions | None = None,
        render_mode: Literal["rgb_array"] | None = None,
        autoreset_mode: Autoreset = AutoresetMode.NEXT_STEP,
        observation: ObservationKind = "values",
        max_episode_steps: Steps | None = None,
    ) -> None:
        self.clock = TaskClock(sequence, steps_per_task, task_identity, task)
        self.clock.check_shown(observation)
        self._options, self._playing = options, self.clock.position
        fixed = (agent, self.clock.scenario, None, options, render_mode, autoreset_mode)
        self._animations = _boss_animations(self.clock.sequence, agent, options)
        super().__init__(num_envs, *fixed, None, observation, self._animations, max_episode_steps)
        self.single_observation_space = _space_of(self.rollout.skill, self.clock, observation)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observed, dict[str, Any]]:
        """Begin episodes as `SkillVectorEnv.reset`; of `options["task"]` in every lane.

        Raises:
            SoulsGraphError: also for a task that the sequence does not have, or one for some lanes only.
        """
        self._seeds.checked(seed)
        mask, task = self._mask(options), checked_options(options, self.reset_options).get("task")
        if task is not None:
            if not mask.all():
                raise SoulsGraphError(
                    "reset: expected a task for every environment, found a reset_mask of some; leave one out."
                )
            self.clock.go_to(task)
        self.clock.changed = False
        observations, info = super().reset(seed=seed, options=options)
        return observations, info | self._task_info(mask | self.clock.changed)

    def step(
        self, actions: npt.NDArray[np.int64]
    ) -> tuple[Observed, Floats, npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]]:
        """Carry out one decision in every lane under way, as `SkillVectorEnv.step`."""
        self.clock.changed = False
        observations, rewards, terminated, truncated, info = super().step(actions)
        return observations, rewards, terminated, truncated, info | self._task_info(np.ones(self.num_envs, np.bool_))

    def _begin(self, lanes: npt.NDArray[np.int64]) -> None:
        if lanes.size:
            self.clock.begin_episode()
        if self.clock.position != self._playing:
            _begin_task(self, self._options, self._animations)
            self._playing, self.clock.changed = self.clock.position, True
            # All ended with the last task, and the next one's game has no fight yet.
            lanes = np.arange(self.num_envs)
        super()._begin(lanes)

    def _observe(self) -> Observed:
        observed = super()._observe()
        return self.clock.appended(observed) if self.clock.shown else observed

    def _cut_off(self, decided: int) -> bool:
        return self.clock.spend(decided)

    def _task_info(self, lanes: npt.NDArray[np.bool_]) -> dict[str, Any]:
        clock = self.clock
        if not clock.shown:
            return {}
        each = {"task": clock.position, "task_changed": clock.changed}
        info: dict[str, Any] = {key: np.full(self.num_envs, value) for key, value in each.items()}
        info["task_name"] = np.full(self.num_envs, clock.scenario, dtype=object)
        return info | {f"_{key}": lanes.copy() for key in info}


def _boss_animations(sequence: ContinualSequence, agent: str, options: SkillOptions | None) -> tuple[int, ...]:
    """Return which ids of bosses have an indicator in every task; none for an agent that observes none so."""
    observed = make_skill(agent, options).observation.one_hot
    return sequence.boss_animations if Column.BOSS_ANIMATION in observed else ()


def _begin_task(
    env: ContinualEnv | ContinualVectorEnv, options: SkillOptions | None, boss_animations: tuple[int, ...]
) -> None:
    """Close the game of the task that is over, and begin one of the next with as many lanes."""
    old = env.rollout
    old.combat.game.close()
    fight, steps = (old.skill.name, env.clock.scenario, old.combat.lanes), old.combat.horizon.decisions
    env.play(make_rollout(*fight, None, options, None, boss_animations, steps))


def _space_of(skill: Skill, clock: TaskClock, kind: ObservationKind) -> gymnasium.spaces.Box:
    """Return an agent's observation space over every task, with indicators of the fight behind if they are shown."""
    fights = [load_scenario(name) for name in dict.fromkeys(clock.sequence.scenarios)]
    space = observation_space(skill, *fights, kind=kind)
    if not clock.width:
        return space
    low, high = np.zeros(clock.width, np.float32), np.ones(clock.width, np.float32)
    return gymnasium.spaces.Box(np.concatenate([space.low, low]), np.concatenate([space.high, high]), dtype=np.float32)
