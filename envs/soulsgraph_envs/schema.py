"""Read TOML tables into frozen dataclasses, checking keys, types and ranges on the way."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from math import inf, isfinite
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from soulsgraph_envs.errors import DataError

T = TypeVar("T")


@dataclass(frozen=True)
class Where:
    """The place of a value: the file, and the key from its root."""

    file: object
    key: str = ""

    def at(self, key: str | int) -> Where:
        """Give the place of a key or a list index below this one."""
        if isinstance(key, int):
            return Where(self.file, f"{self.key}[{key}]")
        return Where(self.file, f"{self.key}.{key}" if self.key else key)

    def error(self, expected: str, actual: object) -> DataError:
        """Make the error of this place."""
        return DataError(self.file, self.key or "the file", expected, actual)


@dataclass(frozen=True)
class Between:
    """Annotates a field whose numbers must lie in [low, high]: `Annotated[float, Between(0.0, 1.0)]`."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return isfinite(value) and self.low <= value <= self.high


ANY_NUMBER = Between(-inf, inf)


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file.

    Raises:
        DataError: if it cannot be read or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(path, "the file", "a readable TOML file", error) from error


def read_table(cls: type[T], values: object, where: Where) -> T:
    """Build the dataclass `cls` from one table, nested dataclasses included.

    Raises:
        DataError: for a missing or unknown key, a value of another type or out of its range.
    """
    if not isinstance(values, Mapping):
        raise where.error("a table", repr(values))
    hints = _hints(cls)  # type: ignore[arg-type]
    known = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise where.at(key).error(_one_of(key, list(known)), "an unknown key")
    read = {}
    for name, spec in known.items():
        if name in values:
            read[name] = _read_value(*_split(hints[name]), values[name], where.at(name))
        elif spec.default is MISSING and spec.default_factory is MISSING:
            raise where.at(name).error(_expectation(*_split(hints[name])), "no such key")
    return cls(**read)


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    """Give a dataclass's annotations; evaluating them takes longer than all else in a file."""
    return get_type_hints(cls, include_extras=True)


def _split(hint: Any) -> tuple[Any, Between]:
    """Split an annotation into the bare type, without the None of what may be left out, and its range."""
    if get_origin(hint) is UnionType:
        (hint,) = (kind for kind in get_args(hint) if kind is not NoneType)
    if get_origin(hint) is Annotated:
        bare, bounds = get_args(hint)
        return bare, bounds
    return hint, ANY_NUMBER


def _one_of(key: str, known: list[str]) -> str:
    close = get_close_matches(key, known, n=1)
    return f"{close[0]!r}" if close else f"one of {', '.join(known)}"


def _expectation(hint: Any, bounds: Between) -> str:
    if is_dataclass(hint):
        return "a table"
    if get_origin(hint) is tuple:
        return "a list"
    if get_origin(hint) is dict:
        return "a table of tables"
    kind = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}[hint]
    return kind if bounds is ANY_NUMBER else f"{kind} from {bounds.low:g} to {bounds.high:g}"


def _read_value(hint: Any, bounds: Between, value: object, where: Where) -> Any:
    if is_dataclass(hint) and isinstance(hint, type):
        return read_table(hint, value, where)
    if get_origin(hint) is tuple:
        return _read_list(hint, bounds, value, where)
    if get_origin(hint) is dict:
        if not isinstance(value, Mapping) or not value:
            raise where.error("a table of tables", repr(value))
        return {key: _read_value(get_args(hint)[1], bounds, item, where.at(key)) for key, item in value.items()}
    return _read_scalar(hint, bounds, value, where)


def _read_list(hint: Any, bounds: Between, value: object, where: Where) -> tuple[Any, ...]:
    kinds = get_args(hint)
    if not isinstance(value, list):
        raise where.error("a list", repr(value))
    if kinds[-1] is Ellipsis:
        if not value:
            raise where.error("a list of at least one entry", "none")
        return tuple(_read_value(kinds[0], bounds, item, where.at(i)) for i, item in enumerate(value))
    if len(value) != len(kinds):
        raise where.error(f"a list of {len(kinds)} numbers", repr(value))
    pairs = zip(kinds, value, strict=True)
    return tuple(_read_scalar(kind, bounds, item, where.at(i)) for i, (kind, item) in enumerate(pairs))


def _read_scalar(hint: Any, bounds: Between, value: object, where: Where) -> Any:
    accepted = (int, float) if hint is float else hint
    if not isinstance(value, accepted) or (isinstance(value, bool) and hint is not bool):
        raise where.error(_expectation(hint, bounds), repr(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value not in bounds:
            raise where.error(_expectation(hint, bounds), repr(value))
        return hint(value)
    return value
