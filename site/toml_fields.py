"""The tables of `docs/toml_fields.md`: each key of each kind of TOML file that a user may write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import EnumType
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from soulsgraph.results.tables import Table
from soulsgraph_clusters.fleet.protocol.settings import FleetSettings
from soulsgraph_envs.continual.families import BossFamily
from soulsgraph_envs.continual.sequences import ContinualSequence
from soulsgraph_envs.core.config import Between, to_table
from soulsgraph_envs.core.errors import plain_range
from soulsgraph_envs.core.scenario import BossData, PlayerData, Scenario
from soulsgraph_envs.core.state import Control
from soulsgraph_envs.games.address_map import AddressMap
from soulsgraph_envs.games.keys import Bindings
from soulsgraph_envs.games.link import GameSettings
from soulsgraph_envs.games.readings import LiveArena
from soulsgraph_envs.games.siphon_attributes import AttributeFile
from soulsgraph_envs.skills import SkillOptions, Task

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
#: What a scenario's loader takes from another file.
_LEFT_OUT = {(Scenario, "boss_hp_full")}


def toml_fields() -> list[Table]:
    """List every key of every kind of TOML file, a table for each table of it."""
    return [table for kind, cls in KINDS.items() for table in _fields(kind, cls)]


def _fields(kind: str, cls: Any) -> list[Table]:
    """Return the table of a dataclass, and those of the dataclasses in it; one that occurs often has one table."""
    places: dict[Any, list[str]] = {}
    _place(cls, "", places)
    tables = []
    for part, paths in places.items():
        about = " ".join((part.__doc__ or "").partition("\n\n    Raises:")[0].split())
        named = _together([path for path in paths if path])
        tables.append(Table(f"{kind} [{named}]" if named else kind, _HEADINGS, tuple(_rows(part)), about))
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
            yield spec.name, hints[spec.name], spec


def _rows(cls: Any) -> list[tuple[str, str, str]]:
    return [(key, _kind(hint), _default(spec)) for key, hint, spec in _keys(cls)]


def _parts(hint: Any) -> Iterator[Any]:
    """Yield the dataclasses that an annotation names, each once."""
    if is_dataclass(hint):
        yield hint
    origin, inner = get_origin(hint), get_args(hint)
    for part in () if origin is Literal else inner[:1] if origin is Annotated else dict.fromkeys(inner):
        yield from _parts(part)


_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", Any: "any value"}


def _kind(hint: Any) -> str:
    """Return what an annotation takes, in words."""
    origin, inner = get_origin(hint), [one for one in get_args(hint) if one is not Ellipsis]
    if NoneType in inner:
        return f"{_kind(inner[inner.index(NoneType) - 1])}, or left out"
    if origin is Annotated:
        bounds = next((mark for mark in hint.__metadata__ if isinstance(mark, Between)), None)
        return _kind(inner[0]) + (f" from {plain_range(bounds.low, bounds.high)}" if bounds else "")
    if origin is Literal or isinstance(hint, EnumType):
        return f"one of {', '.join(inner or hint.__members__)}"
    if origin in (dict, Mapping):
        return f"a table of: {_kind(inner[1])}"
    if origin is tuple:
        return f"a list of {len(inner)}: {_kind(inner[0])}" if len(inner) > 1 else f"a list of: {_kind(inner[0])}"
    return "a table" if is_dataclass(hint) else _WORDS[hint]


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


def _controls(controls: Control) -> str:
    return ", ".join(str(one.name).lower() for one in controls) or "nothing"
