"""Select the skills that are worth adapting to a task, in few fights of it.

A skill is selected whose own actions lead to something else than at home, that observes what it never observed there
(both `consequences`), or that sees other announcements (`cues`). What actions lead to is not asked of skills downstream
of one that is selected: it will learn others, and what they meet will change again. Fights in the new task are charged,
so each skill is looked at after a part of its decisions and left as soon as a change is certain; fights in the tasks
that its skills learned in are not what is scarce.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from soulsgraph.continual.consequences import BLOCK, LEAST_BLOCKS, HomeConsequences, unseen_inputs
from soulsgraph.continual.cues import changed_cues, compare_cues
from soulsgraph.continual.methods.learning import PlayedFights, SkillVersion, TaskWorld, Versions
from soulsgraph.runs.evaluate import evaluation_seeds, load_artifacts
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_envs.combat.loop import Exploration, SeededDraw
from soulsgraph_envs.combat.rollout import DecisionColumns, Episodes
from soulsgraph_envs.core.scenario import OPTIONAL_CONTROLS, PlayerData, Scenario, load_player, supported_controls
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Column
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
#: Homes of skills of which a study keeps what was played there: a few megabytes each.
MOST_HOMES = 16
#: Looks at a skill, at most; episodes of each skill at home; seed from which those of all episodes are derived.
LOOKS, HOME_EPISODES, SELECTION_SEED = 2, 240, 4_000_000
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

    `reasons` say why each of them was selected; `starts` are homes of skills that the task is like, unlike the newest;
    `overlooked` names what else is another than at home, of which no look tells whom it concerns.
    """

    skills: tuple[str, ...]
    decisions: int = 0
    ticks: int = 0
    reasons: Mapping[str, str] = field(default_factory=dict)
    starts: Mapping[str, Home] = field(default_factory=dict)
    overlooked: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return what was selected, why, at what cost, and what differs that was not looked at."""
        reasons = [f"  {skill}: {reason}" for skill, reason in self.reasons.items()]
        lines = [f"adapt: {', '.join(self.skills) or 'no skill'}", *reasons]
        lines.append(f"played: {self.decisions:,} decisions in the new fight")
        if self.overlooked:
            differs = "; ".join(self.overlooked)
            lines.append(f"not looked at, and other than at home: {differs}; adapt with `skills` all if that matters")
        return lines


def select(
    homes: Mapping[str, Sequence[Home]],
    world: TaskWorld,
    versions: Versions,
    known: PlayedFights,
    most: int = MOST_DECISIONS,
) -> Selection:
    """Select skills by at most `most` decisions in the new world; `homes` of each skill are the newest one first.

    `known` keeps what was played in homes from one task of a sequence to the next.

    A skill for which the new world is not as its newest home, but as an earlier one, starts from what it was there and
    is not selected. Episodes are played as long as another one of the greatest length so far has a place: one that is
    longer than all before may exceed a skill's part, which others seldom use up.
    """
    order = world.plan.skill_graph.order
    parts, now, decisions, ticks = _parts(order), dict(versions), 0, 0
    reasons, starts = dict[str, str](), dict[str, Home]()
    learning = set[str]()
    for skill in order:
        own = learning.isdisjoint(world.plan.skill_graph.upstream(skill))
        reason, looked = _look(homes[skill][0], world, now, skill, int(most * parts[skill]), known, own)
        decisions += sum(int(part.lengths.sum()) for part in looked)
        ticks += sum(round(float(part.seconds.sum()) * TICKS_PER_S) for part in looked)
        learning |= {skill} if reason else set()
        for home in homes[skill][1:] if reason else ():
            # The same decisions tell whether the world is as an earlier home: none is played for it.
            if not _at_home(home, world, skill, known).reason(world, _joined(looked), own):
                starts[skill], now[skill], reason = home, home.versions[skill], ""
                break
        if reason:
            reasons[skill] = reason
    overlooked = _overlooked(homes[order[-1]][0].world.scenario, world.scenario)
    return Selection(tuple(reasons), decisions, ticks, reasons, starts, overlooked)


def _overlooked(home: Scenario, there: Scenario) -> tuple[str, ...]:
    """Name what differs between two fights that no look at a skill shows."""
    facts = [
        {
            # More of them concern who observes how many are left.
            "flasks": str(min(one.flasks, home.flasks)),
            "the boss's HP": "{:g} to {:g}".format(*one.boss_hp),
            "a player is dead below": f"{100.0 * one.death_hp_ratio:g} % of its HP",
            "what the player can do": _optional(load_player(one.player)),
        }
        for one in (home, there)
    ]
    return tuple(f"{name} ({then}; here {facts[1][name]})" for name, then in facts[0].items() if facts[1][name] != then)


def _optional(player: PlayerData) -> str:
    """Name the controls that this player answers to and another one need not."""
    supported = supported_controls(player)
    return ", ".join(str(one.name).lower() for one in OPTIONAL_CONTROLS if one in supported) or "basic actions"


def select_for_run(run: RunFolder, home: str, scenario: str) -> Selection:
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
    return select(homes, TaskWorld(run.plan, 1, scenario), versions, PlayedFights())


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
    home: Home, world: TaskWorld, versions: Versions, name: str, most: int, known_homes: PlayedFights, own: bool
) -> tuple[str, list[Episodes]]:
    """Look at a skill until a change is certain, or another episode could take more decisions than it may.

    Return why it is worth adapting, empty where nothing says so, and the episodes that were played; what its `own`
    actions lead to may be left out.
    """
    known, chain = _at_home(home, world, name, known_homes), (*world.plan.skill_graph.upstream(name), name)
    parts: list[Episodes] = []
    reason, spent, longest, looks, horizon = "", 0, known.longest, 0, world.skill(name).horizon
    while not reason and spent + longest <= most:
        # At once are played as many as are played before the next look however long they last.
        surely = min(ceil(most * (looks + 1) / LOOKS) - 1, most - max(longest, horizon)) - spent
        count = 1 + max(int(surely // horizon), 0)
        parts.append(_tried(world, {one: versions[one] for one in chain}, sum(map(len, parts)), count))
        spent, longest = spent + int(parts[-1].lengths.sum()), max(longest, float(parts[-1].lengths.max()))
        if spent * LOOKS >= most * (looks + 1) or spent + longest > most:
            looks += 1
            reason = known.reason(world, _joined(parts), own)
    return reason, parts


def _at_home(home: Home, world: TaskWorld, name: str, known: PlayedFights) -> _Known:
    """Return what a skill's actions lead to in a home, by what was played there before or is now."""
    chain = (*world.plan.skill_graph.upstream(name), name)
    return known.of(_Known, home.world, {one: home.versions[one] for one in chain})


class _Known:
    """What the actions of the last skill of some versions lead to in a home of it."""

    def __init__(self, world: TaskWorld, versions: Versions) -> None:
        skills = [world.skill(name) for name in versions]
        self._world, self._skill = world, skills[-1]
        columns = {column for skill in skills for column in skill.observation.columns}
        played = _tried(world, versions, 0, HOME_EPISODES)
        self._taken, self.longest = played.taken, float(played.lengths.mean())
        self._consequences = HomeConsequences(self._skill, self._taken, columns)

    def reason(self, world: TaskWorld, shifted: DecisionColumns, own: bool) -> str:
        """Return why the skill is worth adapting to another world; empty if nothing says so."""
        unseen = unseen_inputs(self._skill, (self._world.scenario, self._taken), (world.scenario, shifted))
        changed = self._consequences.changed(shifted) if own else ()
        then, now = self._world.scenario.flasks, world.scenario.flasks
        more = now > then and Column.FLASKS in self._skill.observation.columns
        # What a fight's data say of the range of what is observed need not be seen first.
        given = [f"{now} flasks, at home at most {then}"] if more else []
        cues = changed_cues(compare_cues(self._skill, self._taken, shifted))
        return "; ".join([*given, *map(str, [*unseen[:1], *changed[:1]]), *([cues] if cues else [])])


def _tried(world: TaskWorld, versions: Versions, first: int, count: int) -> Episodes:
    """Play episodes of the last skill's own task, in which it explores.

    Their seeds are those of the agent, the task's position and the skill: a task whose fight is that of home is played
    by others than home was.
    """
    skills = tuple(one for one in world.skills if one.name in versions)
    networks = {one.name: world.network(one, versions) for one in skills}
    agent = Agent(training_scenario(world.scenario, skills[-1]), skills, networks)
    last, draw = len(skills) - 1, SeededDraw(len(skills), count, _EXPLORATION_STREAM)
    exploring = Exploration({last: skills[last]}, lambda: EXPLORATION, draw)
    place = 1 + world.plan.skill_graph.order.index(skills[-1].name)
    own = derive_seeds(SELECTION_SEED, world.plan.seed, world.position, place)
    seeds = evaluation_seeds(int(own[0]), first + count)[first:]
    return agent.rollout(make_game(lanes=count), exploring).play(seeds, keep_decisions=True)


def _joined(parts: list[Episodes]) -> DecisionColumns:
    """Join the decisions of several looks, their episodes numbered on."""
    taken, first = [], 0
    for part in parts:
        taken.append(replace(part.taken, episodes=part.taken.episodes + first))
        first += len(part)
    return DecisionColumns.join(taken)
