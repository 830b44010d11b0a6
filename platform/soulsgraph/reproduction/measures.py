"""What the paper says of single skills: dodge's episode length, gains over random, the baseline's actions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from soulsgraph.evaluation import Setting as Judged
from soulsgraph.evaluation import load_artifacts, make_match
from soulsgraph.judging import Match, OnFinished, evaluation_seeds, play_agent, play_match
from soulsgraph.reproduction.protocol import HOME
from soulsgraph.reproduction.seeds import evaluation_seed
from soulsgraph.run_folder import RunFolder
from soulsgraph_envs.catalogue import load_scenario
from soulsgraph_envs.combat import Combat, Controller
from soulsgraph_envs.composition import Actions
from soulsgraph_envs.game import LaneIndices
from soulsgraph_envs.oracles import ScriptedPlay, engaging
from soulsgraph_envs.skill_task import practice_ground
from soulsgraph_envs.skills import END_TO_END, make_skill
from soulsgraph_envs.streams import Seeds
from soulsgraph_policies.controllers import Agent, IdleController, NetworkController
from soulsgraph_policies.episodes import Episodes
from soulsgraph_policies.frozen import network_of
from soulsgraph_policies.inference import FusedNetworks

Measures = list[dict[str, Any]]

_DODGE = "dodge"


def measure_skills(run: RunFolder, on_finished: OnFinished) -> Measures:
    """Measure camera, lock-on and movement against random and scripted play, and dodge against random and none.

    Each plays its own practice task on top of the trained upstream skills, from the same starts. Dodge is
    measured in seconds too: an idle decision takes one tick and a dodge five, so whoever never dodges makes
    more decisions in a shorter life.
    """
    measures = [
        {"name": f"{skill} return {policy}", "value": float(played.returns.mean()), "count": len(played)}
        for skill in engaging()
        for policy, played in _practised(run, skill, on_finished)
    ]
    return measures + [
        {"name": f"{_DODGE} {unit} {policy}", "value": float(values.mean()), "count": len(played)}
        for policy, played in _practised(run, _DODGE, on_finished)
        for unit, values in (("length", played.lengths), ("seconds", played.seconds))
    ]


def measure_baseline(run: RunFolder, on_finished: OnFinished) -> Measures:
    """Measure how often the greedy baseline chooses each of its actions, as shares of all its decisions."""
    match = make_match(run, Judged(HOME, HOME))
    counting: list[CountedChoices] = []

    def controller(lanes: int) -> Controller:
        counting.append(CountedChoices(match.controller(lanes), END_TO_END))
        return counting[-1]

    play_agent(match.scenario, match.skills, controller, _seeds(run), on_finished)
    names = [action.name for action in match.skills[-1].actions]
    counts = np.bincount(np.concatenate([counted.choices for counted in counting]), minlength=len(names))
    return [
        {"name": f"share of {name}", "value": float(count / counts.sum()), "count": int(counts.sum())}
        for name, count in zip(names, counts, strict=True)
    ]


@dataclass
class CountedChoices:
    """A controller that remembers what another one chose for a skill."""

    inner: Controller
    skill: str
    _taken: list[npt.NDArray[np.int64]] = field(default_factory=list)

    @property
    def choices(self) -> npt.NDArray[np.int64]:
        """Every choice so far, (decisions,)."""
        return np.concatenate([np.zeros(0, np.int64), *self._taken])

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Tell the controller."""
        self.inner.begin(lanes, seeds)

    def act(self, combat: Combat, actions: Actions) -> None:
        """Let it act, and take note where the skill is due."""
        self.inner.act(combat, actions)
        column = combat.position(self.skill)
        self._taken.append(actions[combat.due[:, column], column].copy())


def _practised(run: RunFolder, name: str, on_finished: OnFinished) -> Iterator[tuple[str, Episodes]]:
    """Play a skill's practice task by each policy: random, trained, and scripted, or idle where a script must peek."""
    chain = (*run.plan.skill_graph.upstream(name), name)
    skills = tuple(make_skill(skill, run.plan.options) for skill in chain)
    scenario = practice_ground(load_scenario(run.plan.scenario), skills[-1])
    artifacts = load_artifacts(run, run.plan.scenario, chain)
    networks = tuple(network_of(artifacts[skill.name], skill, scenario) for skill in skills)
    seeds = _seeds(run)
    yield "random", play_match(Match(scenario, skills, networks[:-1], (name,)), seeds, on_finished)
    yield "trained", play_match(Match(scenario, skills, networks), seeds, on_finished)
    position, script = len(chain) - 1, engaging().get(name)
    untrained = ScriptedPlay({name: script}) if script else IdleController(skills[-1], position)
    upstream = NetworkController(FusedNetworks(list(networks[:-1]), [*range(position), -1])) if position else None
    agent = Agent([upstream, untrained] if upstream else [untrained])
    yield "scripted" if script else "idle", play_agent(scenario, skills, lambda lanes: agent, seeds, on_finished)


def _seeds(run: RunFolder) -> Seeds:
    return evaluation_seeds(evaluation_seed(run.plan.seed), run.plan.episodes)
