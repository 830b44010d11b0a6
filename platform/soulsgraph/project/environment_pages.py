"""What an environment is by its id, in Gymnasium's form: actions, observations, reward, start, end, arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import signature
from typing import Any, NamedTuple

from soulsgraph_envs import id_of
from soulsgraph_envs.core.scenario import Scenario, load_scenario
from soulsgraph_envs.core.state import Control
from soulsgraph_envs.gym.continual_env import ContinualEnv
from soulsgraph_envs.gym.skill_env import SkillEnv, upstream_of
from soulsgraph_envs.skills import END_TO_END, SKILL_NAMES, Skill, make_skill
from soulsgraph_envs.skills.columns import UNITS, observation_limits

Rows = tuple[tuple[str, ...], ...]

_SCENARIO = "iudex-phase1"
_VERSIONS = "v0: the first"
_ABOUT = {
    "camera": "Keep the boss in the middle of the view.",
    "lock_on": "Take the lock when the boss is in view, and keep it.",
    "movement": "Walk to the boss and stay engaged.",
    "dodge": "Survive: roll through the boss's blows without wasting stamina.",
    "heal_attack": "Strike when it is safe, drink when it is needed, else wait.",
    END_TO_END: "The baseline of the paper's Appendix B: one agent for everything, without skills.",
}
#: What every argument of `SkillEnv` and `ContinualEnv` does.
ARGUMENTS: Mapping[str, str] = {
    "skill": "the skill that is the agent; an id of a skill has its own",
    "scenario": "a shipped fight by its name, a file, or a `Scenario`",
    "controller": "plays the skills upstream; scripts without one",
    "options": "a `SkillOptions`: weights of rewards, and what is observed",
    "render_mode": '`"rgb_array"`, `"human"` (one lane), or none',
    "upstream": "the skills before the agent, by default those of the paper's chain",
    "observation": '`"values"`, or pictures: `"pixels"` (84, 84, 1), `"pixels-rgb"` (84, 84, 3), uint8',
    "boss_animations": "where animations are indicators: how many boss ids have one, at least; 0: those shipped",
    "sequence": "a shipped sequence by its name, a file, or a `ContinualSequence`",
    "agent": "the skill that is the agent",
    "steps_per_task": "decisions for each task, in place of the sequence's",
    "task_identity": '`"one-hot"` shows which fight it is, in the observation and in `info`; `"none"` does not',
    "task": "plays this task alone",
}


class EnvironmentTable(NamedTuple):
    """A table of an environment's page: heading, columns, rows, and what stands before it."""

    title: str
    headings: tuple[str, ...]
    rows: Rows
    about: str = ""


def environment_tables() -> Iterator[EnvironmentTable]:
    """Yield the tables of every environment of a shipped skill, then of a skill by its name and of a sequence."""
    scenario = load_scenario(_SCENARIO)
    for name in (*SKILL_NAMES, END_TO_END):
        yield from _skill_tables(make_skill(name), scenario)
    about = (
        "Any of the skills above, or one of a project, by its name; actions, observations and reward are the skill's."
    )
    yield _arguments("soulsgraph/Skill-v0", SkillEnv, about)
    about = (
        "Fights one after another, in which one agent learns; when a task's decisions are used up, the next begins. "
        "Actions, observations and reward are the agent's; bounds hold over all of the sequence's fights."
    )
    yield _arguments("soulsgraph/Continual-v0", ContinualEnv, about)


def _skill_tables(skill: Skill, scenario: Scenario) -> Iterator[EnvironmentTable]:
    id = id_of(skill.name)
    short = id.partition("/")[2]
    yield EnvironmentTable(id, ("what", "here"), (*_facts(skill, scenario),), _ABOUT[skill.name])
    yield EnvironmentTable(f"{short}: actions", ("number", "name", "holds", "presses", "ticks"), _actions(skill))
    headings = ("index", "name", "unit", "minimum", "maximum")
    about = f"float32, ({skill.observation.size},); the bounds are those of `{scenario.name}`."
    yield EnvironmentTable(f"{short}: observations", headings, _observations(skill, scenario), about)
    about = "The sum of weight x value, between the States at the start and the end of a decision."
    yield EnvironmentTable(f"{short}: reward", ("term", "weight", "value"), _terms(skill), about)
    yield _arguments(f"{short}: arguments", SkillEnv, leaving_out=("skill",))


def _facts(skill: Skill, scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield how an episode starts and ends, who plays along, and the versions."""
    training, start = skill.training_scenario, scenario.starts[skill.training_scenario.start]
    low, high = start.distance_m
    facing = "facing each other" if start.facing else "looking anywhere"
    yield "action space", f"Discrete({len(skill.actions)}), a tick is 0.1 s"
    yield "start", f"`{training.start}`: {low:g} to {high:g} m apart, {facing}; played on to the skill's first decision"
    mortal = (
        f"terminated by death (HP below {scenario.death_hp_ratio:g}) or victory (boss below {scenario.boss_hp[1]:g} HP)"
    )
    ends = "nobody dies: HP is refilled after every tick" if training.refill else mortal
    yield "end", f"{ends}; truncated after {skill.horizon:,} decisions"
    yield "skills upstream", ", ".join(upstream_of(skill.name)) or "none"
    yield "versions", _VERSIONS


def _actions(skill: Skill) -> Rows:
    return tuple(
        (
            str(number),
            action.name,
            _controls(action.holds),
            _controls(action.presses),
            str(action.ticks)
            + (f", {action.ticks_when_empty} with no flask" if action.ticks_when_empty is not None else ""),
        )
        for number, action in enumerate(skill.actions)
    )


def _controls(controls: Control) -> str:
    return ", ".join(str(one.name).lower() for one in controls)


def _observations(skill: Skill, scenario: Scenario) -> Rows:
    limits = zip(*observation_limits(skill.observation, [scenario]), strict=True)
    values = zip(skill.observation.values, skill.observation.names, limits, strict=True)
    return tuple(
        (str(index), name, UNITS[column], f"{low:.4g}", f"{high:.4g}")
        for index, ((column, _), name, (low, high)) in enumerate(values)
    )


def _terms(skill: Skill) -> Rows:
    return tuple((term.name, f"{term.weight:g}", term.formula) for term in skill.reward.terms)


def _arguments(title: str, made: Any, about: str = "", leaving_out: tuple[str, ...] = ()) -> EnvironmentTable:
    parameters = [one for one in signature(made).parameters.values() if one.name not in leaving_out]
    rows = tuple((one.name, f"`{one.default!r}`", ARGUMENTS[one.name]) for one in parameters)
    return EnvironmentTable(title, ("argument", "default", "what"), rows, about)
