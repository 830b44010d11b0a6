"""Find and read data files: shipped ones by name, others by path; a file may be based on another.

A name is a file under `data/`; anything that ends in `.toml` is a path, which inside a file is
relative to that file. A file may say `based_on = "knight"` and hold only what differs: values that
replace the other file's, and under `scaled` factors that multiply its numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

from soulsgraph_envs.core.config import Where, read_file, read_table
from soulsgraph_envs.core.errors import UnknownNameError, shown

T = TypeVar("T")

_DATA = Path(__file__).parents[1] / "data"
_FOLDERS = {
    "bindings": "bindings",
    "scenario": "scenarios",
    "boss": "bosses",
    "player": "players",
    "arena": "arenas",
    "address map": "address_maps",
    "attribute file": "siphon",
    "encounter": "standin",
}
#: Keys of a kind of file that name other files.
_REFERENCES = {"scenario": ("boss", "player", "transition.boss"), "encounter": ("scenario",)}


def shipped_names(kind: str) -> tuple[str, ...]:
    """Name the shipped files of a kind: scenario, boss, player, address map and so on."""
    return tuple(sorted(path.stem for path in (_DATA / _FOLDERS[kind]).glob("*.toml")))


def find(kind: str, name_or_path: str | Path) -> Path:
    """Return the file of a name or path.

    Raises:
        UnknownNameError: if nothing of that name is shipped.
    """
    if str(name_or_path).endswith(".toml"):
        return Path(name_or_path)
    if name_or_path not in shipped_names(kind):
        raise UnknownNameError(kind, str(name_or_path), shipped_names(kind))
    return _DATA / _FOLDERS[kind] / f"{name_or_path}.toml"


def load_data(
    kind: str, cls: type[T], name_or_path: str | Path, check: Callable[[T, Where], None] = lambda *_: None
) -> T:
    """Load a file into the dataclass `cls` and check it; before it the one it is based on, that errors name theirs.

    Raises:
        UnknownNameError: if nothing of that name is shipped.
        DataError: for a missing, misspelt, mistyped or out-of-range value, and what `check` refuses.
    """
    path = find(kind, name_or_path)
    if base := base_of(kind, path):
        load_data(kind, cls, base, check)
    where = Where(path)
    loaded = read_table(cls, read_data(kind, path), where)
    check(loaded, where)
    return loaded


def base_of(kind: str, path: Path) -> Path | None:
    """Return the file that a file is based on, if it is based on one; raises as `files_of`."""
    chain = files_of(kind, path)
    return chain[1] if len(chain) > 1 else None


def files_of(kind: str, path: Path) -> list[Path]:
    """Return a file, the one that it is based on, and so on.

    Raises:
        DataError: if one cannot be read, or is based on itself, directly or through others.
    """
    chain = [path]
    while "based_on" in (values := read_file(Where(chain[-1]))):
        place = Where(chain[-1]).at("based_on")
        chain.append(find(kind, _reference(values["based_on"], chain[-1], place)))
        if chain[-1].resolve() in {file.resolve() for file in chain[:-1]}:
            circle = " -> ".join(file.stem for file in chain)
            raise Where(path).at("based_on").error("a file that is not itself based on this one", circle)
    return chain


def read_data(kind: str, path: Path) -> dict[str, Any]:
    """Read a file, laid over the file it is based on, and that over its own.

    Tables are laid over key by key; single values and lists replace what was there.

    Raises:
        DataError: as `base_of`; also if a file based on another has no name of its own, or scales what
            is not a number there.
    """
    where, base = Where(path), base_of(kind, path)
    values: dict[str, Any] = read_file(where)
    for key in _REFERENCES.get(kind, ()):
        *tables, last = key.split(".")
        owner: Any = reduce(lambda table, name: table.get(name, {}), tables, values)
        if isinstance(owner, dict) and last in owner:
            owner[last] = _reference(owner[last], path, where.at(key))
    if base is None:
        return values
    where.at("name").demand("name" in values, "a name of its own, as the file is based on another", "no such key")
    del values["based_on"]
    scaled = _scaled(read_data(kind, base), values.pop("scaled", {}), where.at("scaled"))
    return _laid_over(scaled, values)


def _reference(value: object, path: Path, where: Where) -> str:
    try:
        if isinstance(value, str):
            return str((path.parent / value).resolve()) if value.endswith(".toml") else value
    except (OSError, ValueError, RuntimeError):
        pass  # A null character, or links in a circle.
    raise where.error("a name or the path of a TOML file", shown(value))


def _scaled(base: dict[str, Any], factors: object, where: Where) -> dict[str, Any]:
    if not isinstance(factors, dict):
        raise where.error("a table of factors", shown(factors))
    scaled = dict(base)
    for key, factor in factors.items():
        value, place = base.get(key), where.at(key)
        if isinstance(value, dict):
            scaled[key] = _scaled(value, factor, place)
        else:
            expected = "a factor for a number of the file this one is based on"
            both = _is_number(value) and _is_number(factor)
            place.demand(both, expected, f"{shown(factor)} for {shown(value)}")
            scaled[key] = value * factor
    return scaled


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _laid_over(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        both = isinstance(merged.get(key), dict) and isinstance(value, dict)
        merged[key] = _laid_over(merged[key], value) if both else value
    return merged
