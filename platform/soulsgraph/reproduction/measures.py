"""What the paper measures of single skills: dodge's episode length, gains over random, the baseline's actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from soulsgraph.evaluation import OnFinished, Setting, evaluation_seeds, load_artifacts, make_agent, play
from soulsgraph.reproduction.protocol import HOME, evaluation_seed
from soulsgraph.run_folder import RunFolder
from soulsgraph_envs.catalogue import load_scenario
from soulsgraph_envs.episodes import Episodes
from soulsgraph_envs.oracles import Script, engaging
from soulsgraph_envs.skills import make_skill, practice_ground
from soulsgraph_envs.streams import Seeds
from soulsgraph_policies.agent import Agent, StandIn

Measures = list[dict[str, Any]]

_DODGE = "dodge"


def measure_skills(run: RunFolder, on_finished: OnFinished) -> Measures:
    """Measure camera, lock-on and movement against random and scripted play, and dodge against random and none.

    Each plays its own practice task on top of the trained upstream skills, from the same starts. Dodge is
    measured in seconds too: an idle decision takes one tick and a dodge five, so an agent that never dodges makes
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
    agent = make_agent(run, Setting(HOME, HOME))
    taken = play(agent, _seeds(run), on_finished, keep_decisions=True).taken
    names = [action.name for action in agent.skills[-1].actions]
    counts = np.bincount(taken.actions, minlength=len(names))
    return [
        {"name": f"share of {name}", "value": float(count / counts.sum()), "count": int(counts.sum())}
        for name, count in zip(names, counts, strict=True)
    ]


def _practised(run: RunFolder, name: str, on_finished: OnFinished) -> Iterator[tuple[str, Episodes]]:
    """Play a skill's practice task by each policy: random, trained, and scripted (idle for an oracle)."""
    chain = (*run.plan.skill_graph.upstream(name), name)
    skills = tuple(make_skill(skill, run.plan.options) for skill in chain)
    scenario = practice_ground(load_scenario(run.plan.scenario), skills[-1])
    artifacts = load_artifacts(run, run.plan.scenario, chain)
    networks = {skill.name: artifacts[skill.name].network(skill, scenario) for skill in skills}
    script = engaging().get(name)
    players: dict[str, Mapping[str, StandIn | Script]] = {
        "random": {name: "random"},
        "trained": {},
        "scripted" if script else "idle": {name: script or "idle"},
    }
    for policy, replaced in players.items():
        yield policy, play(Agent(scenario, skills, networks, replaced), _seeds(run), on_finished)


def _seeds(run: RunFolder) -> Seeds:
    return evaluation_seeds(evaluation_seed(run.plan.seed), run.plan.episodes)
