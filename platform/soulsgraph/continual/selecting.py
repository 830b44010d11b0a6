"""Select the skills that are worth adapting to a task, in few fights of it.

A skill is selected whose own actions lead to something else than at home, that observes what it never observed there
(both `consequences`), or that sees other announcements (`cues`). Fights in the new task
are charged, so each skill is looked at after a part of its decisions and left as soon as a change is certain; fights in
the tasks that its skills learned in are not what is scarce.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

from rich.console import Console

from soulsgraph.continual.consequences import BLOCK, LEAST_BLOCKS, HomeConsequences, unseen_inputs
from soulsgraph.continual.cues import changed_cues, compare_cues
from soulsgraph.continual.methods.learning import SkillVersion, TaskWorld, Versions, versions_digest
from soulsgraph.runs.evaluate import evaluation_seeds, load_artifacts
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_envs.combat.loop import Exploration, SeededDraw
from soulsgraph_envs.combat.rollout import DecisionColumns, Episodes
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.skills import Skill, training_scenario
from soulsgraph_policies.agents.agent import Agent

#: Decisions in the new task that all looks together may take.
MOST_DECISIONS = 8_000
#: The parts of them that skills may take: what turns a camera shows in every decision, what a blow does in few. Skills
#: of other graphs share them evenly.
PARTS: Mapping[str, float] = {"camera": 0.1, "lock_on": 0.2, "movement": 0.15, "dodge": 0.2, "heal_attack": 0.35}
#: A selection takes at most a budget's part of this number: a tenth.
SELECTED_PART = 10
#: Homes of skills of which it is kept what was played there: a few megabytes each.
_MOST_HOMES = 16
#: Looks at a skill, at most; episodes of each skill at home; seed of all episodes.
LOOKS, HOME_EPISODES, SELECTION_SEED = 2, 80, 4_000_000
TICKS_PER_S = 10.0
#: Share of a skill's decisions that is drawn at random to see what its actions do; the rest keeps it on its course.
EXPLORATION = 0.5
_EXPLORATION_STREAM = 21


@dataclass(frozen=True)
class Home:
    """A task that a skill learned in, and the versions that played it then."""

    world: TaskWorld
    versions: Versions


@dataclass(frozen=True)
class Selection:
    """The skills that adapt, and the decisions and control ticks that it took in the new fight to select them.

    `reasons` say why each of them was selected; `starts` are homes of skills that the task is like, unlike the newest.
    """

    skills: tuple[str, ...]
    decisions: int = 0
    ticks: int = 0
    reasons: Mapping[str, str] = field(default_factory=dict)
    starts: Mapping[str, Home] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return what was selected, why and at what cost as plain values for JSON."""
        costs = {"decisions": self.decisions, "ticks": self.ticks}
        return {"skills": list(self.skills), "reasons": dict(self.reasons), **costs}

    def lines(self) -> list[str]:
        """Return what was selected, why and at what cost; where nothing was, what was not looked at."""
        reasons = [f"  {skill}: {reason}" for skill, reason in self.reasons.items()]
        played = f"{self.decisions:,} decisions in the new fight"
        overlooked = (
            "looked at: what changed for each skill; not at endings, flasks, HP windows or a player's actions: where "
            "those differ, adapt with `skills` all"
        )
        left_out = [] if self.skills else [overlooked]
        return [f"adapt: {', '.join(self.skills) or 'no skill'}", *reasons, f"played: {played}", *left_out]


def select(
    homes: Mapping[str, Sequence[Home]],
    world: TaskWorld,
    versions: Versions,
    most: int = MOST_DECISIONS,
    known: KnownHomes | None = None,
) -> Selection:
    """Select skills by at most `most` decisions in the new world; `homes` of each skill are the newest one first.

    `known` keeps what was played in homes from one task of a sequence to the next.

    A skill for which the new world is not as its newest home, but as an earlier one, starts from what it was there and
    is not selected. Episodes are played as long as another one of the greatest length so far has a place: one that is
    longer than all before may exceed a skill's part, which others seldom use up.
    """
    order = world.plan.skill_graph.order
    parts, now, looks = _parts(order), dict(versions), dict[str, _Look]()
    known = known or KnownHomes()
    for skill in order:
        looks[skill] = _look(homes[skill], world, now, skill, int(most * parts[skill]), known)
        if earlier := looks[skill].start:
            now[skill] = earlier.versions[skill]
    return Selection(
        tuple(skill for skill, look in looks.items() if look.reason),
        sum(look.decisions for look in looks.values()),
        sum(look.ticks for look in looks.values()),
        {skill: look.reason for skill, look in looks.items() if look.reason},
        {skill: look.start for skill, look in looks.items() if look.start},
    )


def select_for_run(run: RunFolder, home: str, scenario: str, most: int = MOST_DECISIONS) -> Selection:
    """Select skills of a run, as they play after training on `home`, for another scenario.

    Raises:
        LibraryError: if a skill was never trained, or is damaged.
        SoulsGraphError: for an unknown scenario.
    """
    artifacts = load_artifacts(run, home, run.plan.skill_graph.order)
    versions = {
        skill: SkillVersion(one.weights, one.card.normalizer.normalizer().get_state())
        for skill, one in artifacts.items()
    }
    homes = {
        skill: [Home(TaskWorld(run.plan, 0, one.card.training.scenario), versions)] for skill, one in artifacts.items()
    }
    return select(homes, TaskWorld(run.plan, 1, scenario), versions, most)


def select_and_show(run: RunFolder, home: str, scenario: str, console: Console) -> Selection:
    """Select skills of a run by `select_for_run`, and print which, why and at what cost."""
    selection = select_for_run(run, home, scenario)
    console.print("\n".join(selection.lines()), soft_wrap=True)
    return selection


@dataclass(frozen=True)
class _Look:
    """Why a skill was selected, empty where it was not, what it took, and the earlier home that the task is like."""

    reason: str
    decisions: int
    ticks: int
    start: Home | None = None


def _parts(skills: Sequence[str]) -> dict[str, float]:
    """Return the part of all decisions that each skill may take, together 1."""
    parts = {skill: PARTS.get(skill, 1.0 / len(skills)) for skill in skills}
    return {skill: part / sum(parts.values()) for skill, part in parts.items()}


def least_decisions(skills: Sequence[Skill]) -> int:
    """Return the decisions of a selection below which a skill is not looked at in as many episodes as say something."""
    parts = _parts([skill.name for skill in skills])
    # Of skills whose horizon no death cuts short; the others' episodes are shorter.
    refilled = [skill for skill in skills if skill.training_scenario.refill]
    decisions = {one.name: ceil(LEAST_BLOCKS * BLOCK / one.horizon) * one.horizon for one in refilled}
    return max((ceil(count / parts[name]) for name, count in decisions.items()), default=0)


def _look(
    homes: Sequence[Home], world: TaskWorld, versions: Versions, name: str, most: int, known_homes: KnownHomes
) -> _Look:
    """Look at a skill until a change is certain, or another episode could take more decisions than it may."""
    chain = (*world.plan.skill_graph.upstream(name), name)
    known = known_homes.of(homes[0], chain)
    parts: list[Episodes] = []
    reason, spent, longest, looks, horizon = "", 0, known.longest, 0, world.skill(name).horizon
    while not reason and spent + longest <= most:
        # At once are played as many as are played before the next look however long they last.
        surely = min(ceil(most * (looks + 1) / LOOKS) - 1, most - max(longest, horizon)) - spent
        count = 1 + max(int(surely // horizon), 0)
        parts.append(_tried(world, versions, chain, sum(map(len, parts)), count))
        spent, longest = spent + int(parts[-1].lengths.sum()), max(longest, float(parts[-1].lengths.max()))
        if spent * LOOKS >= most * (looks + 1) or spent + longest > most:
            looks += 1
            reason = known.reason(world, _joined(parts))
    ticks = sum(round(float(part.seconds.sum()) * TICKS_PER_S) for part in parts)
    for home in homes[1:] if reason else ():
        # The same decisions tell whether the world is as an earlier home: none is played for it.
        if not known_homes.of(home, chain).reason(world, _joined(parts)):
            return _Look("", spent, ticks, home)
    return _Look(reason, spent, ticks)


class KnownHomes:
    """What skills' actions lead to in their homes, kept for further tasks: what is played there is always the same."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str, bytes], _Known] = {}

    def of(self, home: Home, chain: tuple[str, ...]) -> _Known:
        """Return what the last skill of a chain leads to in a home, by what was played there before or is now."""
        versions = {name: home.versions[name] for name in chain}
        key = home.world.position, home.world.name, versions_digest(versions)
        known = self._kept.pop(key, None) or _Known(home, chain)
        self._kept[key] = known
        while len(self._kept) > _MOST_HOMES:
            del self._kept[next(iter(self._kept))]
        return known


class _Known:
    """What a skill's actions lead to in a home of it."""

    def __init__(self, home: Home, chain: tuple[str, ...]) -> None:
        self._world, self._skill = home.world, home.world.skill(chain[-1])
        columns = sorted({column for name in chain for column in home.world.skill(name).observation.columns})
        played = _tried(home.world, home.versions, chain, 0, HOME_EPISODES)
        self._taken, self.longest = played.taken, float(played.lengths.mean())
        self._consequences = HomeConsequences(self._skill, self._taken, columns)

    def reason(self, world: TaskWorld, shifted: DecisionColumns) -> str:
        """Return why the skill is worth adapting to another world; empty if nothing says so."""
        unseen = unseen_inputs(self._skill, (self._world.scenario, self._taken), (world.scenario, shifted))
        changed = self._consequences.changed(shifted)
        cues = changed_cues(compare_cues(self._skill, self._taken, shifted))
        return "; ".join([*map(str, unseen[:1]), *map(str, changed[:1]), *([cues] if cues else [])])


def _tried(world: TaskWorld, versions: Versions, chain: tuple[str, ...], first: int, count: int) -> Episodes:
    """Play episodes of a skill's own task, in which it explores; they are those of the selection's seeds."""
    skills = tuple(one for one in world.skills if one.name in chain)
    networks = {one.name: world.network(one, versions) for one in skills}
    agent = Agent(training_scenario(world.scenario, skills[-1]), skills, networks)
    last, draw = len(skills) - 1, SeededDraw(len(skills), count, _EXPLORATION_STREAM)
    exploring = Exploration({last: skills[last]}, lambda: EXPLORATION, draw)
    seeds = evaluation_seeds(SELECTION_SEED, first + count)[first:]
    return agent.rollout(make_game(lanes=count), exploring).play(seeds, keep_decisions=True)


def _joined(parts: list[Episodes]) -> DecisionColumns:
    """Join the decisions of several looks, their episodes numbered on."""
    taken, first = [], 0
    for part in parts:
        taken.append(replace(part.taken, episodes=part.taken.episodes + first))
        first += len(part)
    return DecisionColumns.join(taken)
