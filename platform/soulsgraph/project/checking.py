"""Check a project: contracts, shapes, finite rewards, needs supplied, one update; and play a little of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import numpy as np
import numpy.typing as npt

from soulsgraph.runs.plan import Plan, check_controls
from soulsgraph.runs.progress import silence_advice
from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.combat.rollout import Episodes, Rollout
from soulsgraph_envs.combat.scripted import ScriptedPlay, Uniform, references
from soulsgraph_envs.core.errors import SoulsGraphError, plain_range, shown
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import STATE_SIZE
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.skills import Decisions, Skill, SkillOptions, make_skill, training_scenario
from soulsgraph_envs.skills.paper_skills import Animations, Observations
from soulsgraph_policies.agents import projects
from soulsgraph_policies.agents.projects import SkillGraph

if TYPE_CHECKING:
    from soulsgraph_policies.learning.algorithm import SkillDQN


#: Where a project without a scenario of its own is checked: its player has every action.
_SCENARIO = "iudex-phase1-whole"
_LANES, _TICKS, _EPISODES = 8, 300, 40
#: Decisions of the stage that is learned from for a moment, and of a smoke test.
_MOMENT, SMOKE_DECISIONS = 300, 1000


@dataclass(frozen=True)
class ProjectCheck:
    """What was checked of a project, whether it holds, and what was found."""

    name: str
    holds: bool
    found: str

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'FAILS'}  {self.name}: {self.found}"


@dataclass(frozen=True)
class SmokeTest:
    """A skill after its smoke test: mean returns of random play and of its reference, and what was learned from."""

    skill: str
    scenario: str
    random_return: float
    reference_return: float
    decisions: int
    updates: int
    #: One in which something does not hold raises.
    holds: ClassVar[bool] = True

    def __str__(self) -> str:
        return (
            f"{self.skill} in {self.scenario}: {self.decisions:,} decisions, {self.updates} updates; mean return "
            f"{self.random_return:.2f} at random, {self.reference_return:.2f} by its reference"
        )


def scenarios_of(loaded: projects.LoadedProject) -> tuple[str, ...]:
    """Return the scenario files of a project, or the shipped one that its skills are checked in."""
    files = sorted((loaded.folder / "data" / "scenarios").glob("*.toml"))
    return tuple(map(str, files)) or (_SCENARIO,)


def validate(project: str) -> Iterator[ProjectCheck]:
    """Check a project that is loaded, one thing after another; nothing is trained.

    Raises:
        KeyError: if it is not loaded.
    """
    first: dict[str, str] = {}
    for check in _all_checks(projects.loaded_projects()[project], project):
        # What a file's line leads to everywhere is named once.
        known = "" if check.holds else first.setdefault(check.found, check.name)
        yield check if known in ("", check.name) else replace(check, found=f"as {known}")


def _all_checks(loaded: projects.LoadedProject, project: str) -> Iterator[ProjectCheck]:
    yield ProjectCheck("project", True, f"{project}, code {loaded.digest[:16]}")
    names, scenarios = [own.definition.name for own in loaded.project.skills], scenarios_of(loaded)
    for name in names:
        yield _checked(f"skill {name}: observations", partial(_observations, name))
    for scenario in scenarios:
        check = _checked(f"scenario {Path(scenario).stem}", partial(_fight, scenario))
        yield check
        for graph in _graphs(loaded) if check.holds else ():
            yield from _Ground(graph, scenario).checks(names)
    for name in names:
        yield _checked(f"skill {name}: one update", partial(_update, loaded, name))


def smoke(project: str) -> Iterator[SmokeTest]:
    """Play and learn 1,000 decisions of each skill of a project, on top of untrained networks.

    Raises:
        KeyError: if it is not loaded.
        SoulsGraphError: if a skill is of no graph of the project, or anything in it does not hold.
    """
    loaded = projects.loaded_projects()[project]
    for name in (own.definition.name for own in loaded.project.skills):
        ground = _ground_of(loaded, name)
        random, reference = (float(ground.play(name, at_random, None).returns.mean()) for at_random in (True, False))
        decisions, updates = ground.learned(name, SMOKE_DECISIONS)
        yield SmokeTest(name, Path(ground.scenario).stem, random, reference, decisions, updates)


def _graphs(loaded: projects.LoadedProject) -> list[SkillGraph]:
    return [projects.find_graph(f"{loaded.project.name}/{graph.name}") for graph in loaded.project.graphs]


def _ground_of(loaded: projects.LoadedProject, skill: str) -> _Ground:
    """Return the first graph that a skill is in, in the project's first scenario."""
    for graph in _graphs(loaded):
        if skill in graph.skills:
            return _Ground(graph, scenarios_of(loaded)[0])
    raise SoulsGraphError(
        f"skill {skill}: expected a graph of {loaded.project.name} with it, found none; add it to one."
    )


def _checked(name: str, check: Callable[[], str]) -> ProjectCheck:
    try:
        return ProjectCheck(name, True, check())
    except SoulsGraphError as error:
        return ProjectCheck(name, False, str(error))
    except (Exception, SystemExit) as error:  # An author's code may fail in any way.
        return ProjectCheck(name, False, projects.authors_traceback(error))


def _observations(name: str) -> str:
    rows, scenario, sizes = np.zeros((2, STATE_SIZE), np.float32), load_scenario(_SCENARIO), []
    for animations in get_args(Animations):
        for observations in get_args(Observations):
            skill = make_skill(name, SkillOptions(animations=animations, observations=observations))
            sizes.append(skill.observation(rows, scenario).shape[1])
    needed = ", ".join(sorted(raw.name.lower() for raw in skill.needs))
    return f"{min(sizes)} to {max(sizes)} values by preset, {len(skill.actions)} actions; needs {needed}"


def _fight(scenario: str) -> str:
    fight = load_scenario(scenario)
    return f"{fight.name}, {plain_range(*fight.boss_hp)} HP"


def _finite(what: str, *arrays: npt.NDArray[Any]) -> None:
    for array in arrays:
        if not np.isfinite(array).all():
            raise SoulsGraphError(f"{what}: expected finite numbers, found {shown(array[~np.isfinite(array)][0])}.")


def _dead_terms(skill: Skill, played: npt.NDArray[np.floating[Any]]) -> list[str]:
    """Return the weighted terms that were 0 in all episodes (n, terms), and would be at an end that these did not meet.

    Where HP is refilled a fight ends in no other way than by the horizon.
    """
    rows, none = np.zeros((2, STATE_SIZE), np.float32), np.zeros(2, np.bool_)
    calm = Decisions(rows, rows, np.zeros(2, np.int64), none, none)
    ended = replace(calm, died=np.array([True, False]), won=np.array([False, True]))
    answers = skill.reward.evaluate(ended) != skill.reward.evaluate(calm)
    alive = played.any(axis=0) | (answers.any(axis=0) & (not skill.training_scenario.refill))
    return [term.name for term, lives in zip(skill.reward.terms, alive, strict=True) if term.weight and not lives]


def _update(loaded: projects.LoadedProject, name: str) -> str:
    decisions, updates = _ground_of(loaded, name).learned(name, _MOMENT)
    return f"{updates} updates from {decisions} decisions, weights finite"


@dataclass(frozen=True)
class _Ground:
    """A graph of a project in a scenario: where its skills are checked."""

    graph: SkillGraph
    scenario: str

    def checks(self, names: Sequence[str]) -> Iterator[ProjectCheck]:
        """Check the graph, and those of some skills that are in it."""
        title = f"graph {self.graph.name} in {Path(self.scenario).stem}"
        yield _checked(f"{title}: controls", self._controls)
        yield _checked(f"{title}: references", self._together)
        for name in (name for name in names if name in self.graph.skills):
            for what in (self._rewards, self._reference):
                yield _checked(f"{title}: {name}'s {what.__name__.strip('_')}", partial(what, name))

    def play(self, name: str, at_random: bool, ticks: int | None = _TICKS) -> Episodes:
        """Play a skill at random or by its reference where it trains, those upstream by theirs."""
        episodes = self._play((*self.graph.upstream(name), name), name, at_random, ticks)
        make_skill(name).expect_finite(episodes.terms)
        return episodes

    def _play(self, names: Sequence[str], trained: str, at_random: bool, ticks: int | None) -> Episodes:
        skills = [make_skill(name) for name in names]
        skill = next(skill for skill in skills if skill.name == trained)
        ground = training_scenario(load_scenario(self.scenario), skill)
        scripts = references(names, ground)
        if at_random:
            scripts[trained] = Uniform(skill, _LANES, stream=len(names))
        combat = Combat(make_game(lanes=_LANES), skills, ground, Horizon(trained, skill.horizon))
        seeds = derive_seeds(np.arange(_EPISODES), 1)
        return Rollout(combat, ScriptedPlay(scripts)).play(seeds, keep_decisions=True, most_ticks=ticks)

    def _controls(self) -> str:
        check_controls(self.graph, self.scenario)
        return "the player answers to all of them"

    def _together(self) -> str:
        episodes = self._play(self.graph.order, self.graph.order[-1], False, None)
        return f"{', '.join(self.graph.order)} win {100 * episodes.win_rate:.0f} % of {len(episodes)} fights"

    def _rewards(self, name: str) -> str:
        episodes = self.play(name, at_random=True)
        rewards = episodes.taken.rewards
        _finite(f"rewards of {name}", rewards)
        if dead := _dead_terms(make_skill(name), np.vstack([episodes.terms, self.play(name, at_random=False).terms])):
            raise SoulsGraphError(
                f"reward of {name}: expected terms that are not always 0, found {', '.join(dead)}; nothing is learned "
                "from such a term: correct it, or check the skill in a scenario where it happens."
            )
        return f"{rewards.min():.2f} to {rewards.max():.2f} in {len(rewards)} random decisions"

    def _reference(self, name: str) -> str:
        played = [self.play(name, at_random).returns for at_random in (False, True)]
        reference, random = (returns.mean() for returns in played)
        _finite("return", reference)
        # By chance two that are as good differ by two standard errors once in twenty times.
        if reference - random <= 2 * sqrt(sum(returns.var() / len(returns) for returns in played)):
            raise SoulsGraphError(
                f"reference of {name}: expected a clearly better mean return than random play's {random:.2f}, found "
                f"{reference:.2f}; correct the reference, or the reward."
            )
        return f"mean return {reference:.2f} in {_TICKS // 10} s, {random:.2f} at random"

    def stage(self, name: str, budget: int) -> SkillDQN:
        """Return an algorithm that trains a skill for some decisions, on top of untrained networks."""
        # Imported here: Ray and torch take seconds, which a project that does not hold need not wait for.
        from soulsgraph_policies.learning.algorithm import SkillDQN
        from soulsgraph_policies.learning.env_runners import SkillGraphEnvRunner

        # Again: Ray sets the level of its log as it is imported.
        silence_advice()
        preset = Plan().method
        skills = tuple(make_skill(one) for one in (*self.graph.upstream(name), name))
        ground = training_scenario(load_scenario(self.scenario), skills[-1])
        config = SkillDQN.get_default_config().debugging(log_level="ERROR")
        config.stage(skills, preset.hyperparameters(budget), preset.steps_per_round, seed=0)
        config.env_runners(env_runner_cls=SkillGraphEnvRunner, num_envs_per_env_runner=preset.lanes)
        algorithm: SkillDQN = config.environment(env_config={"scenario": ground}).build_algo()
        return algorithm

    def learned(self, name: str, budget: int) -> tuple[int, int]:
        """Learn from some decisions of a skill; return how many they were, and the updates."""
        algorithm = self.stage(name, budget)
        try:
            while not algorithm.finished:
                algorithm.train()
            _finite(f"weights of {name}", *algorithm.weights(name).values())
            return algorithm.decisions, algorithm.updates
        finally:
            algorithm.stop()
