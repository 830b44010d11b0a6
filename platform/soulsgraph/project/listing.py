"""Lists of everything that may be named: scenarios, presets, skills, continual methods, the fields of TOML files ..."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import gymnasium

from soulsgraph.continual.methods import METHODS
from soulsgraph.continual.methods.method import MethodOptions
from soulsgraph.results.tables import Listing
from soulsgraph_clusters.fleet.protocol.settings import FleetSettings
from soulsgraph_envs.continual.families import BossFamily
from soulsgraph_envs.continual.sequences import ContinualSequence, sequence_names
from soulsgraph_envs.core.config import ANY_NUMBER, expectation, find, load_data, shipped_names, split_hint, to_table
from soulsgraph_envs.core.errors import plain_range
from soulsgraph_envs.core.scenario import BossData, PlayerData, Scenario, load_boss, load_player, load_scenario
from soulsgraph_envs.core.state import MADE_OF, Column, Control
from soulsgraph_envs.games.address_map import AddressMap
from soulsgraph_envs.games.keys import Bindings
from soulsgraph_envs.games.link import GameSettings
from soulsgraph_envs.games.readings import LiveArena
from soulsgraph_envs.games.siphon_attributes import AttributeFile
from soulsgraph_envs.skills import SkillOptions, Task, definition_of, make_skill, skill_names
from soulsgraph_envs.skills.columns import UNITS
from soulsgraph_policies.agents.projects import find_graph, graph_names, loaded_projects
from soulsgraph_policies.learning import hyperparameters as dqn


def scenarios() -> list[Listing]:
    """List the shipped scenarios."""
    rows = []
    for name in shipped_names("scenario"):
        fight = load_scenario(name)
        window = plain_range(*fight.boss_hp)
        who = load_boss(fight.boss), load_player(fight.player)
        boss = f"{who[0].name}, phase {who[0].phase}" + (" and on" if fight.transition else "")
        rows.append((name, boss, who[1].name, window, str(fight.flasks), fight.start))
    return [Listing("scenarios", ("name", "boss", "player", "boss HP", "flasks", "start"), tuple(rows))]


def presets() -> list[Listing]:
    """List the presets, each with what it changes of the paper's."""
    rows = []
    for preset in dqn.PRESETS.values():
        told = [f"{name}={value}" for name, value in {**preset.learning, **preset.observing}.items()]
        own = (*preset.own.items(), *preset.rewards.items())
        told += [f"{skill}.{name}={value:g}" for skill, values in own for name, value in values.items()]
        told += [f"budget of {skill} x {factor:g}" for skill, factor in preset.budgets.items()]
        told += [f"{' and '.join(preset.jointly)} jointly"] if preset.jointly else []
        rows.append((preset.name, str(preset.lanes), str(preset.steps_per_round), ", ".join(told) or "nothing"))
    return [Listing("presets", ("name", "lanes", "decisions a round", "changes"), tuple(rows))]


def options() -> list[Listing]:
    """List every option that a preset may set or an ablation change, and every one of a file of skill options."""
    learning = {row[0]: row for row in _rows(dqn.DQNHyperparameters)}
    of_presets = {row[0]: row for row in _rows(dqn.Preset)} | {row[0]: row for row in _rows(SkillOptions)} | learning
    changed = tuple(of_presets[name] for name in dqn.OPTION_NAMES)
    own = [_fields("options of skills", SkillOptions)]
    return [Listing("options of presets", _HEADINGS, changed), *_flattened(own)]


def skills() -> list[Listing]:
    """List the skills, those of projects that are loaded included."""
    rows = []
    for name in skill_names():
        task, skill = definition_of(name).task, make_skill(name)
        actions, over = ", ".join(action.name for action in skill.actions), _controls(task.precedence_over)
        size = str(skill.observation.size)
        rows.append((name, _owner(name), size, actions, str(task.horizon), f"{task.budget:,}", over))
    headings = ("name", "of", "observed values", "actions", "horizon", "budget", "precedence over")
    return [Listing("skills", headings, tuple(rows))]


def graphs() -> list[Listing]:
    """List the skill graphs, those of projects that are loaded included."""
    rows = []
    for name in graph_names():
        graph = find_graph(name)
        edges = ", ".join(f"{a} -> {b}" for a, b in graph.edges) or "none"
        rows.append((name, ", ".join(graph.order), edges))
    return [Listing("graphs", ("name", "skills in training order", "edges"), tuple(rows))]


def sequences() -> list[Listing]:
    """List the shipped sequences of bosses."""
    rows = []
    for name in sequence_names():
        # The bosses are not made, as to load a sequence would: that takes seconds.
        found = load_data("sequence", ContinualSequence, find("sequence", name))
        budgets = f"{found.first_budget:,}", f"{found.budget:,}"
        rows.append((name, found.family, str(len(found.tasks)), str(len({*found.scenarios})), *budgets))
    headings = ("name", "family", "tasks", "bosses", "decisions of the first task", "of each other")
    return [Listing("sequences", headings, tuple(rows))]


def methods() -> list[Listing]:
    """List the continual methods with what each adapts, keeps and comes from, and their coefficients."""
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
    return [Listing("methods", headings, rows), *_fields("coefficients", MethodOptions)]


def environments() -> list[Listing]:
    """List the environments by their ids; each has a page of its own (docs/environments.md)."""
    ids = sorted(spec.id for spec in gymnasium.registry.values() if spec.namespace == "soulsgraph")
    return [Listing("environments", ("id",), tuple((id,) for id in ids))]


def controls() -> list[Listing]:
    """List every control that an action may hold or press, and the skills that do."""
    skills = [make_skill(name) for name in skill_names()]
    rows = [(one, ", ".join(skill.name for skill in skills if one in skill.controls) or "none") for one in Control]
    return [Listing("controls", ("name", "used by"), tuple((str(one.name), used) for one, used in rows))]


def columns() -> list[Listing]:
    """List the columns of the State, in its order: units, and the readings of a game that each is made of."""
    rows = tuple((one.name, UNITS[one], ", ".join(raw.name.lower() for raw in MADE_OF[one])) for one in Column)
    return [Listing("columns", ("name", "unit", "made of"), rows)]


def _owner(skill: str) -> str:
    for name, loaded in loaded_projects().items():
        if skill in [own.definition.name for own in loaded.project.skills]:
            return f"project {name}"
    return "shipped"


def _controls(controls: Control) -> str:
    return ", ".join(str(one.name).lower() for one in controls) or "nothing"


#: Each kind of TOML file that a user may write, and the dataclass that it is read into.
KINDS: Mapping[str, Any] = {
    "scenario": Scenario,
    "boss": BossData,
    "player": PlayerData,
    "family of generated bosses": BossFamily,
    "sequence of fights": ContinualSequence,
    "options of skills": SkillOptions,
    "skill (skills.toml)": Task,
    "games": GameSettings,
    "fleet": FleetSettings,
    "bindings": Bindings,
    "arena of a real game": LiveArena,
    "address map": AddressMap,
    "attribute file": AttributeFile,
}
_HEADINGS = ("key", "value", "default")
#: What a scenario's loader demands, and what it takes from another file.
_DEMANDED = {(Scenario, "arena"), (Scenario, "starts")}
_LEFT_OUT = {(Scenario, "boss_hp_full")}


def toml_fields() -> list[Listing]:
    """List every key of every kind of TOML file, a table for each table of it."""
    return _flattened([_fields(kind, cls) for kind, cls in KINDS.items()])


def _flattened(groups: Sequence[list[Listing]]) -> list[Listing]:
    return [table for group in groups for table in group]


def _fields(kind: str, cls: Any) -> list[Listing]:
    """Return the table of a dataclass, and those of the dataclasses in it; one that occurs often has one table."""
    places: dict[Any, list[str]] = {}
    _place(cls, "", places)
    tables = []
    for part, paths in places.items():
        about = " ".join((part.__doc__ or "").partition("\n\n    Raises:")[0].split())
        named = _together([path for path in paths if path])
        tables.append(Listing(f"{kind} [{named}]" if named else kind, _HEADINGS, tuple(_rows(part)), about))
    return tables


def _together(paths: Sequence[str]) -> str:
    """Return the places of one table as a heading has them: many in one table as its name with a star."""
    parents = {path.rpartition(".")[0] for path in paths}
    return f"{parents.pop()}.*" if len(paths) > 2 and len(parents) == 1 else ", ".join(paths)


def _place(cls: Any, path: str, places: dict[Any, list[str]]) -> None:
    """Note where a dataclass and those in it stand in a file."""
    places.setdefault(cls, []).append(path)
    for key, hint, _ in _keys(cls):
        for part in _parts(hint):
            _place(part, f"{path}.{key}" if path else key, places)


def _keys(cls: Any) -> Iterator[tuple[str, Any, Field[Any]]]:
    hints = get_type_hints(cls, include_extras=True)
    for spec in fields(cls):
        if (cls, spec.name) not in _LEFT_OUT:
            yield spec.metadata.get("key", spec.name), hints[spec.name], spec


def _rows(cls: Any) -> list[tuple[str, str, str]]:
    return [
        (key, _kind(hint), "required" if (cls, key) in _DEMANDED else _default(spec)) for key, hint, spec in _keys(cls)
    ]


def _parts(hint: Any) -> Iterator[Any]:
    """Yield the dataclasses that an annotation names, each once."""
    if is_dataclass(hint):
        yield hint
    origin, inner = get_origin(hint), get_args(hint)
    for part in () if origin is Literal else inner[:1] if origin is Annotated else dict.fromkeys(inner):
        yield from _parts(part)


def _kind(hint: Any) -> str:
    bare, bounds = split_hint(hint)
    origin, optional = get_origin(bare), NoneType in get_args(hint)
    if origin in (dict, Mapping) or str(origin).endswith("Mapping'>"):
        said = f"a table of: {_kind(get_args(bare)[1])}"
    elif origin is not None and origin not in (Literal, Union, UnionType, Annotated):
        kinds = [one for one in get_args(bare) if one is not Ellipsis]
        inner = _kind(Annotated[kinds[0], bounds] if bounds is not ANY_NUMBER else kinds[0])
        said = f"a list of {len(kinds)}: {inner}" if len(kinds) > 1 else f"a list of: {inner}"
    else:
        said = "any value" if bare is Any else expectation(bare, bounds)
    return f"{said}, or left out" if optional else said


def _default(spec: Field[Any]) -> str:
    if spec.default_factory is not MISSING:
        value = spec.default_factory()
    elif spec.default is MISSING:
        return "required"
    else:
        value = spec.default
    if value is None:
        return "none"
    if is_dataclass(value):
        value = to_table(value)
    if isinstance(value, Control):
        return _controls(value)
    if isinstance(value, Mapping):
        return "its own defaults" if value else "none"
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'


#: What can be listed, and how.
LISTS: Mapping[str, Callable[[], list[Listing]]] = {
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
    "fields": toml_fields,
}
