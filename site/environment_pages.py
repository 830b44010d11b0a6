"""The page of every environment, in Gymnasium's form: actions, observations, reward, start, end, arguments."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from inspect import signature
from itertools import groupby
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from soulsgraph.results.tables import Table, markdown_table
from soulsgraph_envs import id_of
from soulsgraph_envs.compat.eldengym import world as eldengym
from soulsgraph_envs.compat.eldengym.env import EldenGymEnv, ScoreDeltaReward
from soulsgraph_envs.compat.soulsgym import environments as soulsgym
from soulsgraph_envs.compat.soulsgym.fight import APPROACH_REWARD, END_REWARD, NEAR_M, STATIC, load_fight
from soulsgraph_envs.core.scenario import Scenario, load_scenario
from soulsgraph_envs.core.state import Control
from soulsgraph_envs.games.link import SIMULATOR
from soulsgraph_envs.gym.continual_env import ContinualEnv
from soulsgraph_envs.gym.skill_env import SkillEnv, upstream_of
from soulsgraph_envs.skills import END_TO_END, SKILL_NAMES, Skill, make_skill
from soulsgraph_envs.skills.columns import UNITS, observation_limits

Rows = tuple[tuple[str, ...], ...]

_SCENARIO = "iudex-phase1"
_VERSIONS = "v0: the first"
_BESIDE = "[What units and bounds mean](../environments.md#spaces-and-info)."
_SOULSGYM = {
    "soulsgraph/SoulsGymIudex-v0": "SoulsGym's environment of one phase of Iudex Gundyr.",
    "soulsgraph/SoulsGymIudexImg-v0": "The same, observed as a picture.",
    "soulsgraph/SoulsGymIudexDemo-v0": "Both phases of Iudex Gundyr in one fight.",
    "soulsgraph/SoulsGymVordt-v0": "SoulsGym's environment of one phase of Vordt of the Boreal Valley.",
}
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
    "render_mode": '`"rgb_array"` or none; `"human"` is Gymnasium\'s own window around it',
    "upstream": "the skills before the agent, by default those of the paper's chain",
    "observation": '`"values"`, or pictures: `"pixels"` (84, 84, 1), `"pixels-rgb"` (84, 84, 3), uint8',
    "boss_animations": "where animations are indicators: ids of a boss that have one beside those shipped",
    "sequence": "a shipped sequence by its name, a file, or a `ContinualSequence`",
    "agent": "the skill that is the agent",
    "steps_per_task": "decisions for each task, in place of the sequence's",
    "task_identity": '`"one-hot"` shows which fight it is, in the observation and in `info`; `"none"` does not',
    "task": "plays this task alone",
}
_DRIVER = '`"simulator"`, or the driver of a running game'
#: What every argument of SoulsGym's environments and of `EldenGymEnv` does.
OTHER_ARGUMENTS: Mapping[str, str] = {
    "game_speed": "a running game's speed as a factor; the simulator stands still between steps",
    "phase": "the boss's phase that is fought, 1 or 2",
    "skip_steps": "steps in which no action can be begun pass at once",
    "random_player_pose": "begin at any of the fight's places, not at the first",
    "init_pose_randomization": "the name of `random_player_pose` in SoulsGym 1.1.0",
    "resolution": "height and width of the picture, in pixels",
    "driver": _DRIVER,
    "games": "a file with the running game; its first table is played",
    "world": "an open world to play in, in place of `driver` and `games`",
    "render_mode": '`"rgb_array"` or none; `"human"` is Gymnasium\'s own window around it',
    "scenario_name": "a fight by its name",
    "host": "where a Siphon server answers for a running game; without one the fight is simulated",
    "action_mode": '`"discrete"`, or `"multi_binary"`: a bit for each key',
    "reward_function": "a `RewardFunction`; by default the change of the player's HP",
    "frame_skip": "frames of the game that pass after the keys of a step",
    "freeze_game": "a running game stands still between steps",
    "game_fps": "frames of the game a second",
    "max_step": "steps after which a fight is truncated; none: no limit",
    "config_filepath": "a file of Siphon attributes",
    "observation_mode": '`"dict"`, or `"rgb"`: the picture alone',
    "max_steps": "the same as `max_step`",
    "frame_size": "height and width of the picture, in pixels",
    "dry_run": "writes to a running game are logged and not done",
}
#: What SoulsGym's and EldenGym's observations are, by the ends of their names.
_OBSERVED: Mapping[str, str] = {
    "phase": "the boss's phase",
    "max_hp": "HP",
    "max_sp": "stamina",
    "animation": "number of the animation, -1 of an unknown one",
    "animation_id": "the game's number of the animation",
    "lock_on": "whether the boss is locked on",
    "hp": "HP, of EldenGym as a share of the full bar",
    "sp": "stamina",
    "animation_duration": "s since the animation began",
    "frost_resistance": "share of the bar that is left",
    "frost_effect": "share of the effect's time that is left",
    "camera_pose": "x, y, z in m; direction as a unit vector",
    "pose": "x, y, z in m; heading in rad",
    "distance": "m from the player to the boss",
    "frame": "picture of red, green and blue",
}


def environment_tables() -> Iterator[Table]:
    """Yield the tables of every environment of a shipped skill, then of a skill by its name and of a sequence."""
    scenario = load_scenario(_SCENARIO)
    for name in (*SKILL_NAMES, END_TO_END):
        yield from _skill_tables(make_skill(name), scenario)
    about = "Any skill, shipped or of a project, by its name; actions, observations and reward are the skill's."
    yield from _own_tables("soulsgraph/Skill-v0", SkillEnv, about)
    about = (
        "Fights one after another, in which one agent learns; when a task's decisions are used up, the next begins. "
        "Actions, observations and reward are the agent's; bounds hold over all of the sequence's fights."
    )
    yield from _own_tables("soulsgraph/Continual-v0", ContinualEnv, about)
    for id, about in _SOULSGYM.items():
        yield from _soulsgym_tables(id, about)
    yield from _eldengym_tables()


def environment_pages() -> dict[str, str]:
    """Return a page in Markdown for every environment, by the name that its file has beside its picture."""
    return {_file(short): _page([*tables]) for short, tables in groupby(environment_tables(), _short_of)}


def _short_of(table: Table) -> str:
    """Return the environment's id without what stands before its name."""
    return _short(table.title.partition(": ")[0])


def _file(short: str) -> str:
    return short.removesuffix("-v0").lower()


def _page(tables: list[Table]) -> str:
    short, first = _short_of(tables[0]), tables[0]
    parts = [f"# {first.title}", first.note, f"![{short}, a fight in it]({_file(short)}.gif)"]
    for table in tables:
        heading = [f"## {table.title.partition(': ')[2].capitalize()}", table.note] if table is not first else []
        parts += [*heading, markdown_table(table.headings, table.rows, numbers=False)]
    return "\n\n".join(part for part in (*parts, _BESIDE) if part) + "\n"


def _own_tables(id: str, made: Any, about: str) -> Iterator[Table]:
    rows = (("actions, observations, reward", "those of the agent, on the page of its id"), ("versions", _VERSIONS))
    yield Table(id, ("what", "here"), rows, about)
    yield _arguments(f"{_short(id)}: arguments", made)


def _short(id: str) -> str:
    return id.rpartition("/")[2]


def _skill_tables(skill: Skill, scenario: Scenario) -> Iterator[Table]:
    id = id_of(skill.name)
    short = _short(id)
    yield Table(id, ("what", "here"), (*_facts(skill, scenario),), _ABOUT[skill.name])
    yield Table(f"{short}: actions", ("number", "name", "holds", "presses", "ticks"), _actions(skill))
    headings = ("index", "name", "unit", "minimum", "maximum")
    about = f"float32, ({skill.observation.size},); the bounds are those of `{scenario.name}`."
    yield Table(f"{short}: observations", headings, _observations(skill, scenario), about)
    about = "The sum of weight x value, between the States at the start and the end of a decision."
    yield Table(f"{short}: reward", ("term", "weight", "value"), _terms(skill), about)
    yield _arguments(f"{short}: arguments", SkillEnv, ("skill",))


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


def _arguments(title: str, made: Any, leaving_out: tuple[str, ...] = ()) -> Table:
    rows = tuple((name, f"`{default!r}`", ARGUMENTS[name]) for name, default in _parameters(made, leaving_out).items())
    return Table(title, ("argument", "default", "what"), rows)


def _parameters(made: Any, leaving_out: tuple[str, ...] = ("options",)) -> dict[str, Any]:
    return {one.name: one.default for one in signature(made).parameters.values() if one.name not in leaving_out}


def _soulsgym_tables(id: str, about: str) -> Iterator[Table]:
    """Yield the tables of one of SoulsGym's environments, as it is made for the simulator."""
    made = gymnasium.make(id).unwrapped
    assert isinstance(made, soulsgym.SoulsEnv)
    short, limit = _short(id), gymnasium.spec(id).max_episode_steps
    also = ", and `boss_hp`" if isinstance(made, soulsgym.IudexImgEnv | soulsgym.IudexEnvDemo) else ""
    facts = (
        ("action space", f"Discrete({len(STATIC.actions)}), a step is {made.step_size:g} s"),
        ("start", "the boss is locked on; at the first of the fight's places, or with `random_player_pose` at any"),
        ("end", f"terminated when the HP of one of the two are used up; truncated after {limit:,} steps"),
        ("info", f"`action_mask` ({len(STATIC.actions)},) and `allowed_actions`: what can be begun{also}"),
        ("versions", _VERSIONS),
    )
    yield Table(id, ("what", "here"), facts, about)
    actions = tuple((str(number), keys) for number, keys in enumerate(STATIC.actions))
    yield Table(f"{short}: actions", ("number", "keys"), actions)
    yield _observed(short, made.observation_space)
    yield Table(f"{short}: reward", ("term", "value"), _soulsgym_reward(made.ENV_ID))
    options = {"driver": SIMULATOR, "games": None, "world": None, "render_mode": None}
    yield _other_arguments(short, _parameters(type(made)) | options)
    made.close()


def _soulsgym_reward(boss: str) -> Rows:
    rows = [
        ("taken", "(boss HP before - after) / full HP"),
        ("kept", "(player HP after - before) / full HP"),
        ("end", f"{END_REWARD:g} for a victory, {-END_REWARD:g} for a death"),
    ]
    if load_fight(boss).reward_centre_m is not None:
        place = f"{APPROACH_REWARD:g} a metre that the player came nearer to the middle of the arena"
        rows.append(("place", f"{place}, while the fight goes on and he stands more than {NEAR_M:g} m from it"))
    return tuple(rows)


def _eldengym_tables() -> Iterator[Table]:
    """Yield the tables of EldenGym's environment, as it is made for the simulator."""
    id = "soulsgraph/EldenGym-v0"
    with warnings.catch_warnings():
        # That the fight is simulated is what the page says.
        warnings.simplefilter("ignore")
        short, made = _short(id), gymnasium.make(id, driver="simulator").unwrapped
    assert isinstance(made, EldenGymEnv)
    default = ScoreDeltaReward("player_hp")
    facts = (
        ("action space", f"{made.action_space}; a step taps the keys, and then `frame_skip / game_fps` seconds pass"),
        ("start", "as the scenario has it"),
        ("end", "terminated by a death; truncated after `max_step` steps, if there is such a number"),
        ("versions", _VERSIONS),
    )
    about = "EldenGym's environment: a boss of Elden Ring by its screen, memory and keys; here a simulated Margit."
    yield Table(id, ("what", "here"), facts, about)
    taps = enumerate(eldengym.load_keys().discrete.items())
    rows = tuple((str(number), name, " ".join(tap.keys), str(tap.hold_ms)) for number, (name, tap) in taps)
    yield Table(f"{short}: actions", ("number", "name", "keys", "held, ms"), rows)
    yield _observed(short, made.observation_space)
    terms = (
        ("player_hp", "change of the player's HP, in points"),
        ("end", f"{default.win_bonus:g} for a victory, {default.loss_penalty:g} for a death"),
    )
    about = "By default; `reward_function` takes another one."
    yield Table(f"{short}: reward", ("term", "value"), terms, about)
    yield _other_arguments(short, _parameters(EldenGymEnv))
    made.close()


def _observed(short: str, space: gymnasium.Space[Any]) -> Table:
    spaces = space.spaces if isinstance(space, Dict) else {"frame": space}
    rows = tuple((name, *_limits(one), _meaning(name)) for name, one in spaces.items())
    about = "A dictionary." if isinstance(space, Dict) else "The picture alone."
    headings = ("name", "type", "minimum", "maximum", "what")
    return Table(f"{short}: observations", headings, rows, about)


def _limits(space: gymnasium.Space[Any]) -> tuple[str, str, str]:
    if isinstance(space, Discrete):
        return "whole number", str(space.start), str(int(space.start) + int(space.n) - 1)
    assert isinstance(space, Box)
    return f"{space.dtype}, {space.shape}", _numbers(space.low), _numbers(space.high)


def _numbers(bounds: np.ndarray[Any, Any]) -> str:
    if len(set(bounds.flat)) == 1:
        return f"{bounds.flat[0]:d}" if bounds.dtype.kind in "iu" else f"{bounds.flat[0]:.4g}"
    return ", ".join(f"{value:.4g}" for value in bounds)


def _meaning(name: str) -> str:
    return next(what for end, what in sorted(_OBSERVED.items(), key=lambda one: -len(one[0])) if name.endswith(end))


def _other_arguments(short: str, parameters: Mapping[str, Any]) -> Table:
    rows = tuple((name, f"`{default!r}`", OTHER_ARGUMENTS[name]) for name, default in parameters.items())
    return Table(f"{short}: arguments", ("argument", "default", "what"), rows)
