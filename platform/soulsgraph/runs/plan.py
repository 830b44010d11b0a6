"""The plan of a whole run: one frozen description, saved beside its results, run here or on a cluster.

`run_folder` reads the one on disk and compares it with another. A name, a path or a budget alone identifies nothing
that was made by a plan: what is found again (a stage, a version, an arm, a result) has all that determines it beside
it, as plain values by name, which are compared with those of what is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

from soulsgraph_envs.core import config
from soulsgraph_envs.core.config import digest_of
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError, shown
from soulsgraph_envs.core.files import slug
from soulsgraph_envs.core.scenario import fight_tables, load_player, load_scenario, supported_controls
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.skills import END_TO_END, SkillOptions, budget_of, make_skill
from soulsgraph_policies.agents.projects import SkillGraph, find_graph, project_of
from soulsgraph_policies.learning import hyperparameters as dqn

#: A run's budgets are this share of the preset's at least.
LEAST_SCALE = 1e-3
#: Decisions each adapted skill trains for in a new scenario.
ADAPTATION_BUDGET = 40_000
#: An adapted skill explores less from the start: it already knows the game.
ADAPTATION_EXPLORATION = 0.3
#: By how many standard deviations of a player's rewards a clone values their actions higher than others.
CLONING_MARGIN = 0.8
#: A clone knows what somebody else knew; found on seeds 0 to 3.
CLONING_EXPLORATION = 0.5
_STAGE_STREAM = 10


@dataclass(frozen=True)
class Stage:
    """Train one skill for `budget` decisions with everything upstream frozen.

    A stage with a `parent` continues that version of the skill: its networks and its normaliser,
    with a fresh buffer and less exploration. `after` is the scenario whose versions play upstream where
    the stage's own has none yet; the run's own if there is none. Stages in `jointly` are those of skills before this
    one in graph order that learn in the same fights. A stage is `cloned` that continues a clone of recorded fights, and
    goes on learning from them.
    """

    skill: str
    scenario: str
    budget: int
    seed: int
    parent: int | None = None
    after: str | None = None
    jointly: tuple[Stage, ...] = ()
    cloned: bool = False

    @property
    def parts(self) -> tuple[Stage, ...]:
        """The stages of all skills that learn, in graph order; this one is the last."""
        return (*self.jointly, self)

    @property
    def skills(self) -> tuple[str, ...]:
        """The skills that learn, in graph order."""
        return tuple(part.skill for part in self.parts)

    @property
    def steps(self) -> int:
        """Decisions to learn from, of all skills that learn."""
        return sum(part.budget for part in self.parts)

    @property
    def name(self) -> str:
        """Name the stage for readers; what it leaves is found by `lineage.stage_key`."""
        return "+".join(self.skills) + ("" if self.parent is None else f"@{slug(self.scenario)}")


@dataclass(frozen=True)
class Plan:
    """What a new run trains and how. A run that exists keeps its own plan.

    It is checked on construction. The end-to-end baseline takes nothing of a preset but its lanes.

    Raises:
        UnknownNameError: for an unknown graph, preset, scenario or option of a preset.
        ProjectError: for a graph of a project that is not loaded.
        SoulsGraphError: for a value of another type or out of its range.
    """

    scenario: str = "iudex-phase1"
    """Scenario to train on: a name or a TOML file."""
    preset: str = "best"
    """paper: one environment, as the paper; fast: 32 parallel ones at the same ratio of updates to decisions; best:
    fast with double DQN, semi-Markov discounts, averaged weights and half the updates; wide: best with layers of 128
    units and two to three times the budgets, where every skill counts; whole: best for whole fights, with longer
    budgets and a longer view, dodge and heal-attack learning together."""
    seed: Annotated[int, config.Between(0, 2**31 - 1)] = 0
    """Seed of everything random: on one kind of processor the same seed gives the same weights."""
    scale: Annotated[float, config.Between(LEAST_SCALE, 1e3)] = 1.0
    """Multiplies every skill's budget (in decisions of the skill)."""
    lanes: Annotated[int, config.Between(1, 65_536)] | None = None
    """Parallel fights in an env runner; the preset's number if not given."""
    env_runners: Annotated[int, config.Between(0, 1000)] = 0
    """Remote env runners, on nodes that offer the resource game_pc; 0 samples in this process."""
    synchronous: bool = False
    """Wait for every env runner and take their decisions in the order of the runners: the same run then leads to the
    same weights, and a slow runner delays the others. By default the driver takes whichever has answered."""
    episodes: Annotated[int, config.Between(1, 1_000_000)] = 400
    """Evaluation episodes for each row of the table."""
    graph: str = "paper"
    """Skill graph to train: paper, end-to-end for the baseline, or one of a project, as PROJECT/GRAPH."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Single options of the preset to change, by name; those of one skill as dodge.gamma."""
    learners: Mapping[str, str] = field(default_factory=dict)
    """Learners of your own by the skill that each trains, as MODULE:CLASS; all other skills learn by the preset."""
    skill_options: SkillOptions = field(default_factory=SkillOptions)
    """Reward weights and options of skills, or a TOML file of them, a table a skill."""

    def __post_init__(self) -> None:
        config.check_fields(self)
        object.__setattr__(self, "scenario", lasting_name(self.scenario))
        load_scenario(self.scenario)
        find_graph(self.graph)
        if self.preset not in dqn.PRESETS:
            raise UnknownNameError("preset", self.preset, dqn.PRESETS)
        self.check_fight(self.scenario)
        most = self.method.steps_per_round
        config.require((self.lanes or 1) <= most, "lanes", f"be at most {most}, the decisions of an iteration")
        for skill in (*self.learners, *(name.partition(".")[0] for name in self.overrides if "." in name)):
            if skill not in self.skill_graph.order:
                raise UnknownNameError("skill", skill, self.skill_graph.order)
            self.hyperparameters(self.stage(skill))

    @property
    def method(self) -> dqn.Preset:
        """Return the preset with the plan's overrides for all skills: how the run learns."""
        common = {name: value for name, value in self.overrides.items() if "." not in name}
        preset = dqn.preset_with(dqn.PRESETS[self.preset], common)
        return preset.vanilla if END_TO_END in self.skill_graph.skills else preset

    def _own_overrides(self, skill: str) -> dict[str, Any]:
        """Return the options that are changed for one skill alone."""
        parts = ((name.partition("."), value) for name, value in self.overrides.items())
        own = {option: value for (owner, _, option), value in parts if owner == skill and option}
        for name in own:
            if name not in dqn.SKILL_OPTION_NAMES:
                raise UnknownNameError("option of a skill", name, dqn.SKILL_OPTION_NAMES)
        return own

    @property
    def options(self) -> SkillOptions:
        """Return the skills' options, the preset's way of observing included."""
        return self.method.skill_options(self.skill_options)

    @property
    def skill_graph(self) -> SkillGraph:
        """Return the graph itself."""
        return find_graph(self.graph)

    def check_fight(self, scenario: str) -> None:
        """Refuse a scenario whose player takes no notice of what a project's skill sends; raises SoulsGraphError."""
        if project_of(self.graph):
            check_controls(self.skill_graph, scenario)

    def budget(self, skill: str) -> int:
        """Return the skill's budget in its own decisions."""
        return max(1, round(self.whole_budget(skill) * self.scale))

    def whole_budget(self, *skills: str) -> float:
        """Return the budget of some skills together, of all if none is named, by the preset at a scale of 1."""
        factors = self.method.budgets
        return sum(budget_of(skill) * factors.get(skill, 1.0) for skill in skills or self.skill_graph.skills)

    @property
    def budget_note(self) -> str:
        """A line that says how much less than the preset's budget it trains for; empty where it is not less."""
        if self.scale >= 1.0:
            return ""
        planned, whole = sum(map(self.budget, self.skill_graph.skills)), round(self.whole_budget())
        return (
            f"budget: {self.scale:g} of the preset's, {planned:,} of {whole:,} decisions (scale {self.scale:g}); "
            "win rates of a whole training need scale 1"
        )

    def stage(self, skill: str, scenario: str | None = None, parent: int | None = None) -> Stage:
        """Return the stage that trains `skill`, from scratch or continuing version `parent`.

        Raises:
            UnknownNameError: if the skill is not of the plan's graph.
        """
        order = self.skill_graph.order
        if skill not in order:
            raise UnknownNameError("skill", skill, order)
        adapting = parent is not None
        budget = max(1, round(ADAPTATION_BUDGET * self.scale)) if adapting else self.budget(skill)
        seed = int(derive_seeds(self.seed, _STAGE_STREAM, order.index(skill), parent or 0)[0] >> 33)
        return Stage(skill, lasting_name(scenario or self.scenario), budget, seed, parent)

    def stages(self) -> tuple[Stage, ...]:
        """Return the curriculum in training order: a stage a skill, one of those that the preset trains jointly."""
        return self.joined([self.stage(skill) for skill in self.skill_graph.order])

    def joined(self, stages: Sequence[Stage]) -> tuple[Stage, ...]:
        """Return stages of single skills with neighbours that the preset trains jointly made one.

        A skill with a learner of your own learns alone.
        """
        together, joined = {*self.method.jointly} - {*self.learners}, list[Stage]()
        for learn_jointly, group in groupby(stages, lambda stage: stage.skill in together):
            *others, last = group
            joined += [replace(last, jointly=tuple(others))] if learn_jointly else [*others, last]
        return tuple(joined)

    def hyperparameters(self, stage: Stage) -> dqn.DQNHyperparameters:
        """Return how a stage's skill learns: by the preset in the stage's budget, with the skill's own overrides."""
        numbers = self.method.hyperparameters(stage.budget, stage.skill)
        if stage.skill == END_TO_END:
            numbers = replace(numbers, capacity=dqn.BASELINE_CAPACITY)
        if stage.cloned:
            numbers = replace(numbers.exploring_at_most(CLONING_EXPLORATION), margin=CLONING_MARGIN)
        elif stage.parent is not None:
            numbers = numbers.exploring_at_most(ADAPTATION_EXPLORATION)
        return dqn.changed(numbers, self._own_overrides(stage.skill))

    def check_memory(self) -> None:
        """Refuse a plan one of whose replays fills more than half of the memory that this process may use.

        Raises:
            DataError: naming both sizes.
        """
        for stage in self.stages():
            sizes = {part: make_skill(part.skill, self.options).observation.size for part in stage.parts}
            dqn.check_memory({one.skill: self.hyperparameters(one).replay_bytes(size) for one, size in sizes.items()})


def overrides_for(graph: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return options to change as a plan of a graph takes them: of the end-to-end baseline each is its one skill's.

    A preset's own options are not for the baseline, which is the paper's whatever the preset.
    """
    if graph != "end-to-end":
        return dict(overrides)
    alone = {name for name in overrides if name in dqn.SKILL_OPTION_NAMES}
    return {f"{END_TO_END}.{name}" if name in alone else name: value for name, value in overrides.items()}


def check_learns(plan: Plan, stages: Sequence[Stage]) -> None:
    """Refuse stages in which a skill would take no update at all: their budgets are too small.

    Raises:
        SoulsGraphError: naming the skill and the smallest budget and scale that train every one of them.
    """
    parts = [part for stage in stages for part in stage.parts]
    least = {part: plan.hyperparameters(part).least_budget for part in parts}
    short = [part for part in parts if part.budget < least[part]]
    if not short:
        return
    first, needed = short[0], max(least.values())
    remedy = f"train for {needed:,} decisions or more (`budget`)"
    planned = [(plan.stage(part.skill, part.scenario, part.parent).budget, part) for part in parts]
    if all(budget == part.budget for budget, part in planned):
        whole = {part: plan.whole_budget(part.skill) if part.parent is None else ADAPTATION_BUDGET for part in parts}
        # The smallest scales, in thousandths, by which the whole budgets hold the least decisions that teach.
        scales = (
            next(one for one in range(1, 1000 * (least[part] + 1)) if round(whole[part] * one / 1000) >= least[part])
            for part in parts
        )
        remedy = f"train with a `scale` of {max(scales) / 1000:g} or more"
    raise SoulsGraphError(
        f"stage {first.name}: expected {least[first]:,} decisions or more, from which on preset {plan.preset} learns, "
        f"found {first.budget:,}; {remedy}."
    )


def lasting_name(scenario: str) -> str:
    """Return a scenario's name, or the path of its file such that it holds from any working folder.

    Raises:
        DataError: if there can be no file of that path.
    """
    try:
        return str(Path(scenario).resolve()) if scenario.endswith(".toml") else scenario
    except (OSError, ValueError, RuntimeError) as error:
        raise config.Where(None, "scenario").error("a name or the path of a TOML file", shown(scenario)) from error


def check_controls(graph: SkillGraph, scenario: str) -> None:
    """Refuse a scenario whose player takes no notice of a control that a skill of the graph sends.

    Raises:
        SoulsGraphError: naming the skill, its controls and the player.
    """
    player = load_scenario(scenario).player
    answered = supported_controls(load_player(player))
    for name in graph.order:
        if lost := make_skill(name).controls & ~answered:
            names = ", ".join(str(control.name) for control in lost)
            raise SoulsGraphError(
                f"skill {name}: expected a player that answers to {names}, found {slug(player)!r} in the scenario "
                f"{slug(scenario)!r}, who does not; fight in a `scenario` with another player, such as knight-full."
            )


def scenario_digest(name: str) -> str:
    """Return a digest of everything that the files of a fight say: its scenario, player and bosses.

    It does not depend on the files' place.

    Raises:
        SoulsGraphError: if a file is missing or holds something else.
    """
    load_scenario(name)
    return digest_of(fight_tables(name))


def expect_fight(scenario: str, fight: str, of: str) -> None:
    """Refuse a scenario that became another fight since a thing was begun in it.

    Raises:
        SoulsGraphError: naming the scenario, the thing and both fights.
    """
    if (present := scenario_digest(scenario)) != fight:
        remedy = "restore it" if scenario.endswith(".toml") else "use the version of soulsgraph that created it"
        raise SoulsGraphError(
            f"{scenario}: expected the fight that {of} was created with ({fight[:8]}), found that it changed "
            f"({present[:8]}); {remedy}, or begin anew under another name."
        )


def differing(own: Mapping[str, Any], found: object) -> tuple[str, ...]:
    """Return the names of values that were found in a file as others, or are missing there."""
    kept = found if isinstance(found, Mapping) else {}
    plain = json.loads(config.to_json(dict(own), default=str))
    return tuple(name for name, value in plain.items() if name not in kept or kept[name] != value)


def how_it_learns(plan: Plan, stage: Stage) -> dict[str, Any]:
    """Return all that a skill learns by, resolved: hyperparameters, rewards, observations, lanes."""
    return {
        "hyperparameters": asdict(plan.hyperparameters(stage)),
        "options": config.to_table(plan.options),
        "lanes": plan.lanes or plan.method.lanes,
        "decisions_a_round": plan.method.steps_per_round,
        "learner": plan.learners.get(stage.skill, ""),
    }
