"""Read TOML and JSON into frozen dataclasses, checking keys, types and ranges on the way.

The one reader of everything that is configured: plans, studies, cards, skill options, games, address maps and
all other data. A field says its range once, in its annotation; what a file holds, what a command line gives
and what Python code constructs are checked against the same one.

Data files are found by a name, that of a file under `data/`, or by a path, which ends in `.toml` and inside a file is
relative to that file. A name that begins with `generated/` stands for data that are computed from it, as if a file held
them. A file may say `based_on = "knight"` and hold only what differs: values that replace the other
file's, and under `scaled` factors that multiply its numbers.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from enum import Enum, EnumType, Flag
from functools import cache, lru_cache, partial, reduce
from hashlib import sha256
from importlib import import_module
from math import inf, isfinite
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from soulsgraph_envs.core.errors import DataError, SoulsGraphError, UnknownNameError, plain_range, reading, shown

T = TypeVar("T")

#: Tables and lists within each other, far more than any file of ours has.
_MOST_LEVELS = 32
_TOO_DEEP = f"at most {_MOST_LEVELS} tables or lists within each other", "more"
#: The whole numbers that TOML has, and every reader of JSON.
_LARGEST = 2**63 - 1
_LONGEST_KEY = 60


@dataclass(frozen=True)
class Where:
    """The place of a value: the file, and the key from its root; errors end with `remedy`.

    A `saved` file was written with every key, so that a missing one is an error even with a default.
    """

    file: object
    key: str = ""
    remedy: str = "correct the file and try again"
    saved: bool = False

    def at(self, key: str | int) -> Where:
        """Return the place of a key or a list index below this one."""
        if isinstance(key, int):
            name = f"{self.key}[{key}]"
        else:
            own = key if key.isprintable() and len(key) <= _LONGEST_KEY else shown(key)
            name = f"{self.key}.{own}" if self.key and own else self.key or own
        # A file has thousands of values, and `dataclasses.replace` takes four times as long.
        return Where(self.file, name, self.remedy, self.saved)

    def error(self, expected: str, actual: object) -> DataError:
        """Make an error with this place."""
        return DataError(self.file, self.key, expected, actual, self.remedy)

    def demand(self, holds: bool, expected: str, actual: object) -> None:
        """Raise the error of this place unless a condition holds."""
        if not holds:
            raise self.error(expected, actual)

    @contextmanager
    def referring(self) -> Iterator[None]:
        """Name this place in the error of a name that it refers to and that is unknown."""
        try:
            yield
        except UnknownNameError as error:
            error.args = ("".join(f"{part}: " for part in (self.file, self.key) if part) + str(error),)
            raise


#: The place of what is written.
_RESULT = Where(None, remedy="look at where it was computed: learning that diverged, or a reward that is no number")
#: The place of what comes from no file.
_ARGUMENT = Where(None, remedy="correct the value")


@dataclass(frozen=True)
class Between:
    """The annotation of a field whose numbers must lie in [low, high]: `Annotated[float, Between(0.0, 1.0)]`."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high and abs(value) <= sys.float_info.max


ANY_NUMBER = Between(-inf, inf)


Language = Literal["TOML", "JSON"]
#: The files of a fight are read again for every agent that is made, and parsing takes longest.
_parsed = lru_cache(maxsize=128)(tomllib.loads)
_LANGUAGES: dict[Language, Callable[[str], Any]] = {"TOML": lambda text: deepcopy(_parsed(text)), "JSON": json.loads}


def read_file(where: Where, language: Language | None = None) -> Any:
    """Parse the file of a place, as JSON if its name ends in .json, else as TOML, unless the language is named.

    Raises:
        ReadError: if the system refuses to read it.
        DataError: if it is missing, no text, or what `parse` refuses.
    """
    language = language or ("JSON" if str(where.file).endswith(".json") else "TOML")
    return parse(read_text(where, language), language, where)


def read_text(where: Where, language: Language) -> str:
    """Read the file of a place without parsing it; raises as `read_file` does."""
    path = Path(str(where.file))
    try:
        with reading(path):
            return path.read_text(encoding="utf-8")
    except (FileNotFoundError, ValueError) as error:
        found = "none" if isinstance(error, FileNotFoundError) else error
        raise where.error(f"a readable {language} file", found) from error


def parse(text: str, language: Language, where: Where, odd_numbers: bool = False) -> Any:
    """Parse the text of a file or an option; with `odd_numbers` whoever reads its values refuses what is out of range.

    Raises:
        DataError: if it is of another language, is nested deeply, or holds a number that is infinite, NaN, or
            beyond 64 bits.
    """
    try:
        values = _LANGUAGES[language](text)
    except RecursionError as error:
        raise where.error(*_TOO_DEEP) from error
    except ValueError as error:
        raise where.error(f"a readable {language} file", error) from error
    # A single value is an entry as well.
    _refuse_odd(values if isinstance(values, dict | list) else {"": values}, where, 1, odd_numbers)
    return values


def _refuse_odd(table: dict[str, Any] | list[Any], where: Where, level: int, odd_numbers: bool) -> None:
    """Refuse values that no field can hold, before anything is computed or shown from them."""
    if level > _MOST_LEVELS:
        raise where.error(*_TOO_DEEP)
    for key, item in table.items() if isinstance(table, dict) else enumerate(table):
        if isinstance(item, dict | list):
            _refuse_odd(item, where.at(key), level + 1, odd_numbers)
        elif odd_numbers:
            continue
        elif isinstance(item, float) and not isfinite(item):
            raise where.at(key).error("a finite number", shown(item))
        elif isinstance(item, int) and abs(item) > _LARGEST:
            raise where.at(key).error("a whole number of at most 64 bits", shown(item))


def to_json(value: Any, **layout: Any) -> str:
    """Return plain values as JSON, the one way in which any is written; `layout` is that of `json.dumps`.

    Raises:
        DataError: for a number that JSON does not have, NaN or infinite, naming its key: what has no value is None.
    """
    try:
        return json.dumps(value, allow_nan=False, **layout)
    except ValueError as error:
        if not isinstance(value, dict | list | tuple):
            raise _RESULT.error("a finite number", shown(value)) from error
        _refuse_odd_numbers(value, _RESULT)
        raise


def digest_of(values: object) -> str:
    """Return the SHA-256 of plain values."""
    return sha256(to_json(values, sort_keys=True, default=str).encode()).hexdigest()


def _refuse_odd_numbers(values: Any, where: Where) -> None:
    for key, item in values.items() if isinstance(values, dict) else enumerate(values):
        if isinstance(item, dict | list | tuple):
            _refuse_odd_numbers(item, where.at(key if isinstance(key, int) else str(key)))
        elif isinstance(item, float) and not isfinite(item):
            raise where.at(key if isinstance(key, int) else str(key)).error("a finite number", shown(item))


def load(cls: type[T], where: Where) -> T:
    """Read a whole file into the dataclass `cls`; raises as `read_file` and `read_table` do."""
    return read_table(cls, read_file(where), where)


def read_table(cls: type[T], values: object, where: Where) -> T:
    """Build the dataclass `cls` from one table, nested dataclasses included.

    A field with `metadata={"key": ...}` has that key in the file.

    Raises:
        DataError: for a missing or unknown key, a value of another type or out of its range.
        SoulsGraphError: if the dataclass itself refuses the values; with the place in the file.
    """
    if not isinstance(values, Mapping):
        raise where.error("a table", shown(values))
    hints = _hints(cls)
    known = _keys(cls)
    for key in values:
        if key not in known:
            raise where.at(key).error(_one_of(key, list(known)), "an unknown key")
    read = {}
    for key, spec in known.items():
        if key in values:
            read[spec.name] = read_value(hints[spec.name], values[key], where.at(key))
        elif where.saved or (spec.default is MISSING and spec.default_factory is MISSING):
            raise where.at(key).error(expectation(*split_hint(hints[spec.name])), "no such key")
    try:
        return cls(**read)
    except SoulsGraphError as error:
        raise SoulsGraphError("".join(f"{part}: " for part in (where.file, where.key) if part) + str(error)) from error


def to_table(owner: Any) -> dict[str, Any]:
    """Return a dataclass as the plain values that `read_table` reads back, those within it included."""
    return {key: _plain_value(getattr(owner, spec.name)) for key, spec in _keys(type(owner)).items()}


def _plain_value(value: Any) -> Any:
    if is_dataclass(value):
        return to_table(value)
    if isinstance(value, Mapping):
        return {key: _plain_value(item) for key, item in value.items()}
    if isinstance(value, Enum):
        return value.name
    return [_plain_value(item) for item in value] if isinstance(value, list | tuple) else value


def _keys(cls: Any) -> dict[str, Field[Any]]:
    """Return a dataclass's fields by their keys in a file."""
    return {spec.metadata.get("key", spec.name): spec for spec in fields(cls)}


def with_options(owner: T, options: Mapping[str, Any]) -> T:
    """Return a dataclass with some of its fields changed, each value checked against the field's annotation.

    Raises:
        DataError: for a value of another type or out of its range.
    """
    hints = _hints(type(owner))
    read = {name: read_value(hints[name], value, _ARGUMENT.at(f"option {name}")) for name, value in options.items()}
    changed: T = replace(owner, **read)  # type: ignore[type-var]
    return changed


def check_fields(owner: Any, where: Where = _ARGUMENT) -> None:
    """Check every field of a dataclass made by Python code, as `read_table` checks those of a file.

    Raises:
        DataError: for a value of another type or out of its range.
    """
    hints = _hints(type(owner))
    for spec in fields(owner):
        read_value(hints[spec.name], getattr(owner, spec.name), where.at(spec.name))


def read_value(hint: Any, value: object, where: Where) -> Any:
    """Check one value against an annotation, and return it as the annotated type.

    A file has a member of an enumeration by its name, and flags by theirs, as in "FORWARD|LEFT".

    Raises:
        DataError: for a value of another type or out of its range.
    """
    if value is None and NoneType in get_args(hint):
        return None
    return _read_value(*split_hint(hint), value, where)


#: A dataclass's annotations; evaluating them takes longer than all else in a file.
_hints: Callable[[Any], dict[str, Any]] = cache(partial(get_type_hints, include_extras=True))


def split_hint(hint: Any) -> tuple[Any, Between]:
    """Split an annotation into the bare type, without an optional None, and its range."""
    if get_origin(hint) in (UnionType, Union):
        (hint,) = (kind for kind in get_args(hint) if kind is not NoneType)
    if get_origin(hint) is Annotated:
        bare, *marks = get_args(hint)
        return bare, next((mark for mark in marks if isinstance(mark, Between)), ANY_NUMBER)
    return hint, ANY_NUMBER


def _one_of(key: str, known: list[str]) -> str:
    close = get_close_matches(key[:_LONGEST_KEY], known, n=1)
    return f"{close[0]!r}" if close else f"one of {', '.join(known)}"


_LISTS = (tuple, list, Sequence)
_WORDS = {int: "whole number", float: "number", str: "text"}


def expectation(hint: Any, bounds: Between) -> str:
    """Return what an annotation expects, as errors word it."""
    origin = get_origin(hint)
    if is_dataclass(hint) or origin is Mapping:
        return "a table"
    if origin in _LISTS:
        kind = _WORDS.get(split_hint(get_args(hint)[0])[0])
        return f"a list of {kind}s" if kind else "a list"
    if origin is dict:
        return "a table of tables"
    if origin is Literal or isinstance(hint, EnumType):
        return f"one of {', '.join(get_args(hint) or hint.__members__)}"
    if hint is bool:
        return "true or false"
    kind = f"a {_WORDS[hint]}"
    return kind if bounds is ANY_NUMBER else f"{kind} from {plain_range(bounds.low, bounds.high)}"


def _read_value(hint: Any, bounds: Between, value: object, where: Where) -> Any:
    origin = get_origin(hint)
    if hint is Any:
        return value
    if is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, hint):
            return read_table(hint, value, where)
        check_fields(value, where)
        return value
    if origin in _LISTS:
        return _read_list(hint, bounds, value, where)
    if origin is dict or origin is Mapping:
        if not isinstance(value, Mapping) or not (value or origin is Mapping):
            raise where.error(expectation(hint, bounds), shown(value))
        return {key: read_value(get_args(hint)[1], item, where.at(key)) for key, item in value.items()}
    return _read_scalar(hint, bounds, value, where)


def _read_list(hint: Any, bounds: Between, value: object, where: Where) -> list[Any] | tuple[Any, ...]:
    """Read a `list` or a `Sequence` (a tuple then), which may be empty, or a `tuple` of any length but 0, or of one."""
    kinds, origin = get_args(hint), get_origin(hint)
    if not isinstance(value, list | tuple):
        raise where.error(expectation(hint, bounds), shown(value))
    if origin is tuple and kinds[-1] is not Ellipsis:
        if len(value) != len(kinds):
            raise where.error(f"a list of {len(kinds)} {'texts' if kinds[0] is str else 'numbers'}", shown(value))
    elif origin is tuple and not value:
        raise where.error("a list of at least one entry", "none")
    else:
        kinds = kinds[:1] * len(value)
    pairs = zip(kinds, value, strict=True)
    items = []
    for index, (kind, item) in enumerate(pairs):
        bare, own = split_hint(kind)
        items.append(_read_value(bare, bounds if own is ANY_NUMBER else own, item, where.at(index)))
    return items if origin is list else tuple(items)


def _read_scalar(hint: Any, bounds: Between, value: object, where: Where) -> Any:
    if get_origin(hint) is Literal:
        if isinstance(value, str) and value in get_args(hint):
            return value
    elif isinstance(hint, EnumType):
        names = value.split("|") if isinstance(value, str) and issubclass(hint, Flag) else [value]
        if isinstance(value, hint):
            return value
        if all(isinstance(name, str) and name in hint.__members__ for name in names):
            return reduce(or_, (hint[str(name)] for name in names))
    elif hint in (str, bool):
        if isinstance(value, hint):
            return value
    elif isinstance(value, int if hint is int else int | float) and not isinstance(value, bool) and value in bounds:
        return hint(value)
    raise where.error(expectation(hint, bounds), shown(value))


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
    "family": "families",
    "sequence": "sequences",
    "held-out bosses": "held_out",
}
#: How names of computed data begin, and the module whose `tables` are those of a name, by kind. It is imported by its
#: name, when it is needed: it reads the data of its families here.
_GENERATED = "generated/"
_GENERATOR = "soulsgraph_envs.continual.generator"
#: Keys of a kind of file that name other files.
_REFERENCES = {"scenario": ("boss", "player", "transition.boss"), "encounter": ("scenario",)}


def shipped_names(kind: str) -> tuple[str, ...]:
    """Name the shipped files of a kind: scenario, boss, player, address map and so on."""
    return tuple(sorted(path.stem for path in (_DATA / _FOLDERS[kind]).glob("*.toml")))


def is_generated(name: str | Path) -> bool:
    """Return whether a name, or a path that `find` returned, stands for data that are computed from it."""
    text = name.as_posix() if isinstance(name, Path) else str(name)
    return text.startswith(_GENERATED) and not text.endswith(".toml")


def _generated_tables(name: str) -> Mapping[str, Any]:
    """Return the tables that a name stands for, by kind; raises as `find`."""
    tables: Mapping[str, Any] = import_module(_GENERATOR).tables(name)
    return tables


def find(kind: str, name_or_path: str | Path) -> Path:
    """Return the file of a name or path; of a generated name a path without a file, which `read_data` understands.

    Raises:
        UnknownNameError: if nothing of that name is shipped or generated.
        SoulsGraphError: for a generated name without a seed in range.
    """
    if str(name_or_path).endswith(".toml"):
        return Path(name_or_path)
    if is_generated(name_or_path):
        if kind not in (known := _generated_tables(str(name_or_path))):
            raise SoulsGraphError(
                f"{name_or_path}: expected the name or TOML file of a {kind}, found that of a generated "
                f"{' or '.join(known)}; name one of {', '.join(shipped_names(kind))}, or a file."
            )
        return Path(name_or_path)
    if name_or_path not in shipped_names(kind):
        raise UnknownNameError(kind, str(name_or_path), shipped_names(kind))
    return _DATA / _FOLDERS[kind] / f"{name_or_path}.toml"


#: Loaded data of the package, or of a seed, that a process keeps.
_MOST_KEPT = 256


def load_data(
    kind: str, cls: type[T], name_or_path: str | Path, check: Callable[[T, Where], None] = lambda *_: None
) -> T:
    """Load a file into the dataclass `cls` and check it; before it the one it is based on, that errors name theirs.

    Raises:
        UnknownNameError: if nothing of that name is shipped.
        DataError: for a missing, misspelt, mistyped or out-of-range value, and what `check` refuses.
    """
    path = find(kind, name_or_path)
    # What comes with the package, or from a seed, is the same for as long as a process lives.
    lasting = is_generated(path) or path.is_relative_to(_DATA)
    load: Callable[..., T] = _load_lasting if lasting else _load
    return load(kind, cls, path, check)


@lru_cache(maxsize=_MOST_KEPT)
def _load_lasting(kind: str, cls: Any, path: Path, check: Callable[[Any, Where], None]) -> Any:
    return _load(kind, cls, path, check)


def _load(kind: str, cls: type[T], path: Path, check: Callable[[T, Where], None]) -> T:
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
    while "based_on" in (values := _own_values(kind, chain[-1])):
        place = Where(chain[-1]).at("based_on")
        with place.referring():
            chain.append(find(kind, reference(values["based_on"], chain[-1], place)))
        if chain[-1].resolve() in {file.resolve() for file in chain[:-1]}:
            circle = " -> ".join(file.stem for file in chain)
            raise Where(path).at("based_on").error("a file that is not itself based on this one", circle)
    return chain


def read_data(kind: str, path: Path) -> dict[str, Any]:
    """Read a file, laid over the file it is based on, and that over its own.

    Tables are laid over key by key; single values and lists replace what was there, entries of `added` come behind it.

    Raises:
        DataError: as `base_of`; also if a file based on another has no name of its own, or scales what
            is not a number there.
    """
    where, base = Where(path), base_of(kind, path)
    values = _own_values(kind, path)
    for key in _REFERENCES.get(kind, ()):
        *tables, last = key.split(".")
        owner: Any = reduce(lambda table, name: table.get(name, {}), tables, values)
        if isinstance(owner, dict) and last in owner:
            owner[last] = reference(owner[last], path, where.at(key))
    if base is None:
        return values
    where.at("name").demand("name" in values, "a name of its own, as the file is based on another", "no such key")
    del values["based_on"]
    scaled, added = values.pop("scaled", {}), values.pop("added", {})
    laid_over = _laid_over(_scaled(read_data(kind, base), scaled, where.at("scaled")), values)
    return _with_added(laid_over, added, where.at("added"))


def origin_of(kind: str, path: Path, key: str) -> Path:
    """Return the file that a key of a file comes from: itself, or one that it is based on; raises as `files_of`."""
    return next(file for file in files_of(kind, path) if key in _own_values(kind, file))


def _own_values(kind: str, path: Path) -> dict[str, Any]:
    """Return what a file itself says, or what a generated name stands for."""
    if is_generated(path):
        return deepcopy(dict(_generated_tables(path.as_posix())[kind]))
    values: dict[str, Any] = read_file(Where(path))
    return values


def reference(value: object, path: Path, where: Where) -> str:
    """Return the name that a file refers to, or the whole path of the file, which is relative to its own.

    Raises:
        DataError: if it is neither, or there is no such file.
    """
    if not isinstance(value, str):
        raise where.error("a name or the path of a TOML file", shown(value))
    if not value.endswith(".toml"):
        return value
    try:
        file = (path.parent / value).resolve()
        there = file.exists()
    except (OSError, ValueError, RuntimeError) as error:  # A null character, or links in a circle.
        raise where.error("a name or the path of a TOML file", shown(value)) from error
    where.demand(there, "a name or the path of a TOML file", f"no file {file}")
    return str(file)


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


def _with_added(base: dict[str, Any], added: object, where: Where) -> dict[str, Any]:
    if not isinstance(added, dict):
        raise where.error("a table of lists", shown(added))
    for key, entries in added.items():
        both = isinstance(base.get(key), list) and isinstance(entries, list)
        where.at(key).demand(both, "entries for a list of the file this one is based on", shown(entries))
        base = {**base, key: [*base[key], *entries]}
    return base


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _laid_over(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        both = isinstance(merged.get(key), dict) and isinstance(value, dict)
        merged[key] = _laid_over(merged[key], value) if both else value
    return merged
