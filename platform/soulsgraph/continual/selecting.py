"""Select the skills that are worth adapting to a task, in few fights of it.

A skill is selected whose own actions lead to something else than at home (`transfer.consequences`), or that sees other
announcements (the cues of `transfer.rule`). Fights in the new task are charged, so each skill is looked at after a part
of its decisions and left as soon as a change is certain; fights in the tasks that its skills learned in are not what is
scarce.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from soulsgraph.continual.methods.learning import TaskWorld, Versions
from soulsgraph.runs.evaluate import evaluation_seeds
from soulsgraph.transfer import rule
from soulsgraph.transfer.consequences import LEAST_EPISODES, changed_consequences
from soulsgraph.transfer.report import EXPLORATION, play_trial
from soulsgraph_envs.combat.rollout import DecisionColumns, Episodes
from soulsgraph_envs.core.state import Column
from soulsgraph_envs.skills import Skill, training_scenario
from soulsgraph_policies.agents.agent import Agent

#: Decisions in the new task that all looks together may take.
MOST_DECISIONS = 8_000
#: The parts of them that skills may take: what turns a camera shows in every decision, what a blow does in few. Skills
#: of other graphs share them evenly.
PARTS: Mapping[str, float] = {"camera": 0.1, "lock_on": 0.2, "movement": 0.15, "dodge": 0.2, "heal_attack": 0.35}
#: A selection takes at most a budget's part of this number: a tenth.
SELECTED_PART = 10
#: Looks at a skill, at most; episodes of each skill at home; seed of all episodes.
LOOKS, HOME_EPISODES, SELECTION_SEED = 2, 80, 4_000_000
TICKS_PER_S = 10.0


@dataclass(frozen=True)
class Selection:
    """The skills that adapt, and the decisions and control ticks that it took in the new fight to select them.

    `reasons` say why each of them was selected.
    """

    skills: tuple[str, ...]
    decisions: int = 0
    ticks: int = 0
    reasons: Mapping[str, str] = field(default_factory=dict)


def select(
    homes: Mapping[str, TaskWorld], world: TaskWorld, versions: Versions, most: int = MOST_DECISIONS
) -> Selection:
    """Select skills by at most `most` decisions in the new world; `homes` are those that the versions learned in last.

    Episodes are played as long as another one of the greatest length so far has a place: one that is longer than all
    before may exceed a skill's part, which others seldom use up.
    """
    order = world.plan.skill_graph.order
    parts = [PARTS.get(skill, 1.0 / len(order)) for skill in order]
    looks = {
        skill: _look(homes[skill], world, versions, skill, int(most * part / sum(parts)))
        for skill, part in zip(order, parts, strict=True)
    }
    return Selection(
        tuple(skill for skill, look in looks.items() if look.reason),
        sum(look.decisions for look in looks.values()),
        sum(look.ticks for look in looks.values()),
        {skill: look.reason for skill, look in looks.items() if look.reason},
    )


@dataclass(frozen=True)
class _Look:
    """Why a skill was selected, empty where it was not, and what it took."""

    reason: str
    decisions: int
    ticks: int


def least_decisions(skills: Sequence[Skill]) -> int:
    """Return the decisions of a selection below which a skill is not looked at in as many episodes as say something."""
    parts = {skill.name: PARTS.get(skill.name, 1.0 / len(skills)) for skill in skills}
    whole = sum(parts.values())
    # Of skills whose horizon no death cuts short; the others' episodes are shorter.
    refilled = [skill for skill in skills if skill.training_scenario.refill]
    return max((ceil(LEAST_EPISODES * one.horizon * whole / parts[one.name]) for one in refilled), default=0)


def _look(before: TaskWorld, world: TaskWorld, versions: Versions, name: str, most: int) -> _Look:
    """Look at a skill until a change is certain, or another episode could take more decisions than it may."""
    skill, chain = world.skill(name), (*world.plan.skill_graph.upstream(name), name)
    columns = sorted({column for one in world.skills if one.name in chain for column in one.observation.columns})
    home = _tried(before, versions, chain, 0, HOME_EPISODES)
    parts: list[Episodes] = []
    reason, spent, longest, looks = "", 0, float(home.lengths.mean()), 0
    while not reason and spent + longest <= most:
        parts.append(_tried(world, versions, chain, len(parts), 1))
        spent, longest = spent + int(parts[-1].lengths.sum()), max(longest, float(parts[-1].lengths.max()))
        if spent * LOOKS >= most * (looks + 1) or spent + longest > most:
            looks += 1
            reason = _reason(skill, home.taken, _joined(parts), columns)
    return _Look(reason, spent, sum(round(float(part.seconds.sum()) * TICKS_PER_S) for part in parts))


def _tried(world: TaskWorld, versions: Versions, chain: tuple[str, ...], first: int, count: int) -> Episodes:
    """Play episodes of a skill's own task, in which it explores; they are those of the selection's seeds."""
    skills = tuple(one for one in world.skills if one.name in chain)
    networks = {one.name: world.network(one, versions) for one in skills}
    agent = Agent(training_scenario(world.scenario, skills[-1]), skills, networks)
    return play_trial(agent, evaluation_seeds(SELECTION_SEED, first + count)[first:], EXPLORATION)


def _reason(skill: Skill, home: DecisionColumns, shifted: DecisionColumns, columns: list[Column]) -> str:
    """Return why a skill is worth adapting; empty if nothing says so."""
    changed = changed_consequences(skill, home, shifted, columns)
    evidence = rule.Evidence(rule.NO_EFFECT, rule.compare_cues(skill, home, shifted))
    seen = rule.recommend({skill.name: evidence})[skill.name]
    return "; ".join([*map(str, changed[:1]), *([seen.reason] if seen.adapt else [])])


def _joined(parts: list[Episodes]) -> DecisionColumns:
    """Join the decisions of several looks, their episodes numbered on."""
    taken, first = [], 0
    for part in parts:
        taken.append(replace(part.taken, episodes=part.taken.episodes + first))
        first += len(part)
    return DecisionColumns.join(taken)
