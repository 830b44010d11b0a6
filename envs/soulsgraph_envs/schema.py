"""Read TOML tables into frozen dataclasses, checking keys, types and ranges on the way."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

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


def bounded(low: float, high: float, *, default: Any = MISSING) -> Any:
    """Declare a dataclass field whose numbers must lie in [low, high]."""
    return field(default=default, metadata={"range": (low, high)})


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
    hints = get_type_hints(cls)
    known = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise where.at(key).error(_one_of(key, list(known)), "an unknown key")
    read = {}
    for name, spec in known.items():
        if name in values:
            read[name] = _read_value(hints[name], spec, values[name], where.at(name))
        elif spec.default is MISSING and spec.default_factory is MISSING:
            raise where.at(name).error(_expectation(hints[name], spec), "no such key")
    return cls(**read)


def _one_of(key: str, known: list[str]) -> str:
    close = get_close_matches(key, known, n=1)
    return f"{close[0]!r}" if close else f"one of {', '.join(known)}"


def _expectation(hint: Any, spec: Field[Any]) -> str:
    if is_dataclass(hint):
        return "a table"
    if get_origin(hint) is tuple:
        return "a list"
    if get_origin(hint) is dict:
        return "a table of tables"
    kind = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}[hint]
    low_high = spec.metadata.get("range")
    return f"{kind} from {low_high[0]:g} to {low_high[1]:g}" if low_high else kind


def _read_value(hint: Any, spec: Field[Any], value: object, where: Where) -> Any:
    if is_dataclass(hint):
        return read_table(hint, value, where)  # type: ignore[arg-type]
    if get_origin(hint) is tuple:
        return _read_list(hint, spec, value, where)
    if get_origin(hint) is dict:
        if not isinstance(value, Mapping) or not value:
            raise where.error("a table of tables", repr(value))
        return {key: _read_value(get_args(hint)[1], spec, item, where.at(key)) for key, item in value.items()}
    return _read_scalar(hint, spec, value, where)


def _read_list(hint: Any, spec: Field[Any], value: object, where: Where) -> tuple[Any, ...]:
    kinds = get_args(hint)
    if not isinstance(value, list):
        raise where.error("a list", repr(value))
    if kinds[-1] is Ellipsis:
        if not value:
            raise where.error("a list of at least one entry", "none")
        return tuple(_read_value(kinds[0], spec, item, where.at(i)) for i, item in enumerate(value))
    if len(value) != len(kinds):
        raise where.error(f"a list of {len(kinds)} numbers", repr(value))
    pairs = zip(kinds, value, strict=True)
    return tuple(_read_scalar(kind, spec, item, where.at(i)) for i, (kind, item) in enumerate(pairs))


def _read_scalar(hint: Any, spec: Field[Any], value: object, where: Where) -> Any:
    accepted = (int, float) if hint is float else hint
    if not isinstance(value, accepted) or (isinstance(value, bool) and hint is not bool):
        raise where.error(_expectation(hint, spec), repr(value))
    if hint in (int, float) and "range" in spec.metadata:
        low, high = spec.metadata["range"]
        if not (isfinite(value) and low <= value <= high):  # type: ignore[arg-type]
            raise where.error(_expectation(hint, spec), repr(value))
    return float(value) if hint is float else value  # type: ignore[arg-type]
