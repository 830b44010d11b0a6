"""Train skills in one task in memory: from given versions, on top of given versions, with what a method adds.

A version is what a skill plays by and learns on from. Nothing is written here: a unit keeps its versions in the state
that it saves after every task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from soulsgraph.runs.plan import Plan, Stage
from soulsgraph.runs.progress import Interruption, Supervisor
from soulsgraph_envs.core.scenario import Scenario, load_scenario
from soulsgraph_envs.skills import Skill, make_skill, training_scenario
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.inference import FrozenNetwork, Weights, weights_digest
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.sampler import Transitions

if TYPE_CHECKING:
    from soulsgraph_policies.learning.algorithm import SkillDQN

T = TypeVar("T")
#: Points of a stage on a learning curve, its end included.
POINTS = 4


@dataclass(frozen=True)
class SkillVersion:
    """What a skill plays by and learns on from: weights with the normaliser, running statistics."""

    weights: Weights
    normalizer: Mapping[str, Any]


#: A version of each skill that has one, by skill.
Versions = Mapping[str, SkillVersion]


def versions_digest(versions: Versions) -> bytes:
    """Return a digest of what versions play by."""
    return weights_digest({skill: one.weights for skill, one in versions.items()})


class PlayedFights:
    """What was played, kept by task and versions: fights are repeatable, and most versions stay.

    `most` limits the number of results that are kept; the least recently used one is dropped.
    """

    def __init__(self, most: int | None = None) -> None:
        self._kept: dict[tuple[Any, ...], Any] = {}
        self._most = most

    def of(self, play: Callable[..., T], world: TaskWorld, versions: Versions, *more: int) -> T:
        """Return what `play(world, versions, *more)` returns."""
        key = (play, world.name, tuple(versions), versions_digest(versions), *more)
        result: T = self._kept.pop(key) if key in self._kept else play(world, versions, *more)
        self._kept[key] = result
        if self._most and len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]
        return result


@dataclass(frozen=True)
class TaskWorld:
    """A task as skills meet it: its position in the sequence from 0, its scenario, the skills with their observations.

    `animations` are the ids of bosses that skills tell apart.
    """

    plan: Plan
    position: int
    name: str
    animations: Sequence[int] = ()

    @cached_property
    def scenario(self) -> Scenario:
        """The fight."""
        return load_scenario(self.name)

    @cached_property
    def skills(self) -> tuple[Skill, ...]:
        """All skills in graph order."""
        return tuple(map(self.skill, self.plan.skill_graph.order))

    def skill(self, name: str) -> Skill:
        """Make a skill as it observes in this task."""
        return make_skill(name, self.plan.options, self.animations)

    def agent(self, versions: Versions) -> Agent:
        """Return who plays the task by these versions; skills without one play at random."""
        networks = {skill.name: self.network(skill, versions) for skill in self.skills if skill.name in versions}
        random = [skill.name for skill in self.skills if skill.name not in versions]
        return Agent(self.scenario, self.skills, networks, dict.fromkeys(random, "random"))

    def network(self, skill: Skill, versions: Versions) -> FrozenNetwork:
        """Return the network by which a skill plays the task."""
        return FrozenNetwork.of(skill, self.scenario, versions[skill.name].weights, self.clips[skill.name])

    @cached_property
    def clips(self) -> dict[str, float]:
        """Where the normalised observations of each skill are clipped."""
        plan = self.plan
        return {name: plan.hyperparameters(plan.stage(name)).observation_clip for name in plan.skill_graph.order}


@dataclass(frozen=True)
class EndedStage:
    """What a skill's stage left: the version, how it learned, and decisions of its replay.

    `rows` draws this many of them by a generator, all if there are fewer. A replay holds the last third of a stage.
    """

    skill: str
    version: SkillVersion
    hyperparameters: DQNHyperparameters
    rows: Callable[[int, np.random.Generator], Transitions]


class StageHooks:
    """What is done in a stage: before it, after every thousand decisions or so, and when it has ended."""

    def begin_stage(self, algorithm: SkillDQN, skill: str) -> None:
        """Prepare what learns."""

    def during_stage(self, algorithm: SkillDQN, skill: str) -> None:
        """Change what learns in the middle of a stage."""

    def end_stage(self, skill: str, ended: EndedStage) -> None:
        """Take from what learned what later tasks need."""


@dataclass(frozen=True)
class LearnedStage:
    """What a stage led to: the version, and along it decisions, the control ticks that these took, and weights."""

    version: SkillVersion
    points: Sequence[tuple[int, int, Weights]]


def learn(
    supervisor: Supervisor,
    world: TaskWorld,
    skill: str,
    upstream: Versions,
    start: SkillVersion | None,
    budget: int,
    seed: int,
    hooks: StageHooks = StageHooks(),  # noqa: B008 - it has no state
) -> LearnedStage:
    """Train a skill for `budget` of its decisions, everything upstream frozen, from a version or from nothing.

    Raises:
        Interruption: if a stop was asked for: what was learned in the stage is lost.
    """
    # Imported here: they load torch and Ray, which a study need not have to be planned or scored.
    from soulsgraph_policies.learning.algorithm import SkillDQN
    from soulsgraph_policies.learning.env_runners import SkillGraphEnvRunner

    plan = world.plan
    chain = (*plan.skill_graph.upstream(skill), skill)
    skills = tuple(one for one in world.skills if one.name in chain)
    numbers = plan.hyperparameters(Stage(skill, world.name, budget, seed, None if start is None else 1))
    config = SkillDQN.get_default_config().debugging(log_level="ERROR")
    clips = {name: world.clips[name] for name in chain[:-1]}
    config.stage(skills, {skill: numbers}, plan.method.steps_per_round, seed=seed, clips=clips)
    lanes = plan.lanes or plan.method.lanes
    config.env_runners(env_runner_cls=SkillGraphEnvRunner, num_env_runners=0, num_envs_per_env_runner=lanes)
    config.environment(env_config={"scenario": training_scenario(world.scenario, skills[-1])})
    algorithm: SkillDQN = config.build_algo()
    name, due = f"{world.position + 1} {world.name} {skill}", [budget * part // POINTS for part in range(1, POINTS)]
    points, learned = list[tuple[int, int, Weights]](), algorithm.training[skill]
    try:
        algorithm.load_weights({one: upstream[one].weights for one in chain[:-1]})
        if start is not None:
            algorithm.load_weights({skill: start.weights})
            algorithm.load_normalizer(skill, dict(start.normalizer))
        hooks.begin_stage(algorithm, skill)
        progress = supervisor.follow(name, budget)
        while not algorithm.finished:
            algorithm.train()
            algorithm.drain_episodes()
            hooks.during_stage(algorithm, skill)
            progress.update(algorithm.decisions)
            if due and algorithm.decisions >= due[0] and not algorithm.finished:
                points.append((algorithm.decisions, learned.ticks, algorithm.weights(skill)))
                due = [step for step in due if step > algorithm.decisions]
            if supervisor.stop_requested():
                raise Interruption(f"stopped in {name}")
        version = SkillVersion(algorithm.weights(skill), learned.normalizer.get_state())
        hooks.end_stage(skill, EndedStage(skill, version, learned.hyperparameters, learned.replay.reserve))
        return LearnedStage(version, [*points, (algorithm.decisions, learned.ticks, version.weights)])
    finally:
        algorithm.stop()
