"""Lists of everything that may be named: scenarios, presets, skills, continual methods ..."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields

import gymnasium

from soulsgraph.continual.methods import METHODS
from soulsgraph.results.tables import Table
from soulsgraph_envs.continual.sequences import ContinualSequence, sequence_names
from soulsgraph_envs.core.config import find, load_data, shipped_names
from soulsgraph_envs.core.errors import plain_range
from soulsgraph_envs.core.scenario import load_boss, load_player, load_scenario
from soulsgraph_envs.core.state import MADE_OF, Column, Control
from soulsgraph_envs.skills import SkillOptions, definition_of, make_skill, skill_names
from soulsgraph_envs.skills.columns import UNITS
from soulsgraph_policies.agents.projects import find_graph, graph_names, loaded_projects
from soulsgraph_policies.learning import hyperparameters as dqn


def scenarios() -> Table:
    """List the shipped scenarios."""
    rows = []
    for name in shipped_names("scenario"):
        fight = load_scenario(name)
        window = plain_range(*fight.boss_hp)
        who = load_boss(fight.boss), load_player(fight.player)
        boss = f"{who[0].name}, phase {who[0].phase}" + (" and on" if fight.transition else "")
        rows.append((name, boss, who[1].name, window, str(fight.flasks), fight.start))
    return Table("scenarios", ("name", "boss", "player", "boss HP", "flasks", "start"), tuple(rows))


def presets() -> Table:
    """List the presets, each with what it changes of the paper's."""
    rows = []
    for preset in dqn.PRESETS.values():
        told = [f"{name}={value}" for name, value in {**preset.learning, **preset.observing}.items()]
        own = (*preset.own.items(), *preset.rewards.items())
        told += [f"{skill}.{name}={value:g}" for skill, values in own for name, value in values.items()]
        told += [f"budget of {skill} x {factor:g}" for skill, factor in preset.budgets.items()]
        told += [f"{' and '.join(preset.jointly)} jointly"] if preset.jointly else []
        rows.append((preset.name, str(preset.lanes), str(preset.steps_per_round), ", ".join(told) or "nothing"))
    return Table("presets", ("name", "lanes", "decisions a round", "changes"), tuple(rows))


def options() -> Table:
    """List the options that a preset may set and `--set` change, each with its default in the paper's."""
    defaults = {spec.name: spec.default for cls in (SkillOptions, dqn.DQNHyperparameters) for spec in fields(cls)}
    defaults |= vars(dqn.PRESETS["paper"])
    rows = tuple((name, "none" if defaults[name] is None else str(defaults[name])) for name in dqn.OPTION_NAMES)
    return Table("options", ("name", "default"), rows)


def skills() -> Table:
    """List the skills, those of projects that are loaded included."""
    rows = []
    for name in skill_names():
        task, skill = definition_of(name).task, make_skill(name)
        actions, over = ", ".join(action.name for action in skill.actions), _controls(task.precedence_over)
        size = str(skill.observation.size)
        rows.append((name, _owner(name), size, actions, str(task.horizon), f"{task.budget:,}", over))
    headings = ("name", "of", "observed values", "actions", "horizon", "budget", "precedence over")
    return Table("skills", headings, tuple(rows))


def graphs() -> Table:
    """List the skill graphs, those of projects that are loaded included."""
    rows = []
    for name in graph_names():
        graph = find_graph(name)
        edges = ", ".join(f"{a} -> {b}" for a, b in graph.edges) or "none"
        rows.append((name, ", ".join(graph.order), edges))
    return Table("graphs", ("name", "skills in training order", "edges"), tuple(rows))


def sequences() -> Table:
    """List the shipped sequences of bosses."""
    rows = []
    for name in sequence_names():
        # The bosses are not made, as to load a sequence would: that takes seconds.
        found = load_data("sequence", ContinualSequence, find("sequence", name))
        budgets = f"{found.first_budget:,}", f"{found.budget:,}"
        rows.append((name, found.family, str(len(found.tasks)), str(len({*found.scenarios})), *budgets))
    headings = ("name", "family", "tasks", "bosses", "decisions of the first task", "of each other")
    return Table("sequences", headings, tuple(rows))


def methods() -> Table:
    """List the continual methods with what each adapts, keeps and comes from."""
    rows = tuple(
        (
            method.name,
            "selected" if method.selects else "all",
            "its own" if method.has_versions else "the newest",
            ", ".join(method.coefficients) or "none",
            method.source,
        )
        for method in METHODS.values()
    )
    headings = ("name", "skills that adapt", "versions that play a task", "coefficients", "source")
    return Table("methods", headings, rows)


def environments() -> Table:
    """List the environments by their ids; each has a page of its own (docs/environments.md)."""
    ids = sorted(spec.id for spec in gymnasium.registry.values() if spec.namespace == "soulsgraph")
    return Table("environments", ("id",), tuple((id,) for id in ids))


def controls() -> Table:
    """List every control that an action may hold or press, and the skills that do."""
    skills = [make_skill(name) for name in skill_names()]
    rows = [(one, ", ".join(skill.name for skill in skills if one in skill.controls) or "none") for one in Control]
    return Table("controls", ("name", "used by"), tuple((str(one.name), used) for one, used in rows))


def columns() -> Table:
    """List the columns of the State, in its order: units, and the readings of a game that each is made of."""
    rows = tuple((one.name, UNITS[one], ", ".join(raw.name.lower() for raw in MADE_OF[one])) for one in Column)
    return Table("columns", ("name", "unit", "made of"), rows)


def _owner(skill: str) -> str:
    for name, loaded in loaded_projects().items():
        if skill in [own.definition.name for own in loaded.project.skills]:
            return f"project {name}"
    return "shipped"


def _controls(controls: Control) -> str:
    return ", ".join(str(one.name).lower() for one in controls) or "nothing"


#: What can be listed, and how.
LISTS: Mapping[str, Callable[[], Table]] = {
    "scenarios": scenarios,
    "presets": presets,
    "options": options,
    "skills": skills,
    "graphs": graphs,
    "sequences": sequences,
    "methods": methods,
    "environments": environments,
    "controls": controls,
    "columns": columns,
}
