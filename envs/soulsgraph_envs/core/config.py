"""Read TOML and JSON into frozen dataclasses: pydantic checks keys, types and ranges, all of a file at once.

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
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from enum import Enum, Flag
from functools import cache, lru_cache, reduce, wraps
from hashlib import sha256
from importlib import import_module
from inspect import Parameter, signature
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from annotated_types import BaseMetadata, Ge, GroupedMetadata, Le, MinLen

from soulsgraph_envs.core.errors import DataError, FieldError, SoulsGraphError, UnknownNameError, reading, shown

if TYPE_CHECKING:
    from pydantic import ConfigDict, TypeAdapter, ValidationError

T = TypeVar("T")
P = ParamSpec("P")
_E = TypeVar("_E", bound=type[Enum])
Pair = tuple[T, T]
Triple = tuple[T, T, T]
#: A list of at least one entry.
NonEmpty = Annotated[tuple[T, ...], MinLen(1)]
#: Errors that a message lists at most.
_MOST_LISTED = 8
#: What pydantic calls a key that a dataclass, or a dictionary, does not have.
_UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")


@dataclass(frozen=True)
class Between(GroupedMetadata):
    """The annotation of a number from `low` to `high`: `Annotated[float, Between(0.0, 1.0)]`."""

    low: float
    high: float

    def __iter__(self) -> Iterator[BaseMetadata]:
        """Yield it as pydantic has it."""
        yield Ge(self.low)
        yield Le(self.high)


@dataclass(frozen=True)
class Holds:
    """The annotation of a value that must fulfil a condition; `said` is how "it should ..." goes on."""

    condition: Callable[[Any], object]
    said: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """Return the value's schema with the condition behind it."""
        from pydantic_core import core_schema

        def check(value: Any) -> Any:
            if not self.condition(value):
                raise ValueError(f"should {self.said}")
            return value

        return core_schema.no_info_after_validator_function(check, handler(source))


EACH_ONCE = Holds(lambda values: all(one not in values[:place] for place, one in enumerate(values)), "have each once")
#: Two numbers in rising order.
Rising = Annotated[tuple[T, T], Holds(lambda pair: pair[0] <= pair[1], "be in rising order")]

AnyPath = Annotated[str | Path, Holds(lambda path: "\0" not in str(path), "be a path")]


@dataclass(frozen=True)
class Keywords:
    """The annotation of a function's further keywords: fields of dataclasses, and of other functions the parameters.

    `but` are those of them that it does not take; `others` says what any other keyword is, where it takes them.
    """

    of: tuple[Any, ...]
    but: tuple[str, ...] = ()
    others: str = ""


def listed(text: str | Sequence[str]) -> tuple[str, ...]:
    """Return names that were separated by commas, or are a list already."""
    return tuple(filter(None, map(str.strip, text.split(",")))) if isinstance(text, str) else tuple(text)


def require(holds: bool, key: str, said: str) -> None:
    """Refuse a field of a dataclass, in its `__post_init__`; raises FieldError."""
    if not holds:
        raise FieldError(key, said)


@dataclass(frozen=True)
class Where:
    """The place of a value: the file, and the key from its root; errors end with `remedy`."""

    file: object
    key: str = ""
    remedy: str = "correct the file and try again"

    def at(self, *keys: str | int) -> Where:
        """Return the place of a key or a list index below this one, or of one further below."""
        name = self.key
        for key in keys:
            if isinstance(key, int):
                name += f"[{key}]"
            else:
                name += ("." if name else "") + (key if key.isprintable() else shown(key))
        return replace(self, key=name)

    def error(self, expected: str, actual: object) -> DataError:
        """Make an error with this place."""
        return DataError(f"{self.prefix}expected {expected}, found {actual}", self.remedy)

    def demand(self, holds: bool, expected: str, actual: object) -> None:
        """Raise the error of this place unless a condition holds."""
        if not holds:
            raise self.error(expected, actual)

    @property
    def prefix(self) -> str:
        """The place as an error begins with it."""
        return "".join(f"{part}: " for part in (self.file, self.key) if part)

    @contextmanager
    def referring(self, kind: type[SoulsGraphError] = UnknownNameError) -> Iterator[None]:
        """Name this place in an error that does not know it, as of an unknown name that it refers to."""
        try:
            yield
        except kind as error:
            error.args = (f"{self.prefix}{error}",)
            raise


#: The place of what comes from no file.
_ARGUMENT = Where(None, remedy="correct the value")

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
    except FileNotFoundError as error:
        raise DataError(f"{where.prefix}expected a {language} file, found no such file", "check the path") from error
    except ValueError as error:
        raise where.error(f"a readable {language} file", error) from error


def parse(text: str, language: Language, where: Where) -> Any:
    """Parse the text of a file or an option.

    Raises:
        DataError: if it is of another language, or nested too deeply.
    """
    try:
        return _LANGUAGES[language](text)
    except (ValueError, RecursionError) as error:
        raise where.error(f"a readable {language} file", error) from error


def to_json(value: Any, **layout: Any) -> str:
    """Return plain values as JSON, the one way in which any is written; `layout` is that of `json.dumps`.

    Raises:
        DataError: for a number that JSON does not have, NaN or infinite: what has no value is None.
    """
    try:
        return json.dumps(value, allow_nan=False, **layout)
    except ValueError as error:
        raise DataError(
            f"result: expected finite numbers, found another one in {shown(value)}",
            "look at where it was computed: learning that diverged, or a reward that is no number",
        ) from error


def digest_of(values: object) -> str:
    """Return the SHA-256 of plain values."""
    return sha256(to_json(values, sort_keys=True, default=str).encode()).hexdigest()


def load(kind: type[T], where: Where) -> T:
    """Read a whole file into the dataclass `kind`; raises as `read_file` and `validate` do."""
    return validate(kind, read_file(where), where)


def validate(kind: type[T], values: object, where: Where) -> T:
    """Return the values of a file as `kind`: a dataclass, those within it included, or another annotation.

    A file has a member of an enumeration by its name, and flags by theirs, as in "FORWARD|LEFT".

    Raises:
        DataError: for every missing or unknown key, and every value of another type or out of its range.
        SoulsGraphError: if a dataclass itself refuses its values.
    """
    # Strictly, pydantic takes a list for a tuple, and a table for a dataclass, from JSON alone.
    text = json.dumps([values], default=repr)
    found: T = _checked(kind, where, lambda adapter: adapter.validate_json(text))
    return found


def check_fields(owner: Any, where: Where = _ARGUMENT) -> None:
    """Check every field of a dataclass made by Python code, as `validate` checks those of a file.

    Raises:
        DataError: for a value of another type or out of its range.
    """
    values = {field.name: getattr(owner, field.name) for field in fields(owner)}
    kind: Any = type(owner)
    _checked(_fields_of(kind), where, lambda adapter: adapter.validate_python([values]))


def with_options(owner: T, options: Mapping[str, Any]) -> T:
    """Return a dataclass with some of its fields changed, each value checked against the field's annotation.

    Raises:
        DataError: for a value of another type or out of its range.
    """
    kind: Any = type(owner)
    changed: T = replace(owner, **validate(_fields_of(kind), options, _ARGUMENT))  # type: ignore[type-var]
    return changed


def check_arguments(function: Callable[P, T], name: str = "") -> Callable[P, T]:
    """Refuse arguments of a public function that it does not have, or that are not as annotated, before it begins.

    numpy's numbers count as Python's. `DataError` names the function, by its `name`, and every argument that is wrong.
    """
    name = name or function.__qualname__.removesuffix(".__init__")

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            bound = signature(function).bind(*args, **kwargs)
        except TypeError as error:
            raise DataError(f"{name}: {error}", "correct the arguments") from None
        for key, value in bound.arguments.items():
            bound.arguments[key] = value.item() if isinstance(value, np.generic) else value
        table = _fields_of(function)
        known = {key: value for key, value in bound.arguments.items() if key in table.__annotations__}
        _checked(table, Where(name, remedy="correct the argument"), lambda adapter: adapter.validate_python([known]))
        return function(*bound.args, **bound.kwargs)

    return checked


@cache
def _fields_of(of: Any) -> Any:
    """Return a dataclass's fields, or a function's parameters, as the annotation of a dictionary with any of them."""
    from typing_extensions import TypedDict

    hints = get_type_hints(of, include_extras=True)
    single = fields(of) if is_dataclass(of) else signature(of).parameters.values()
    names = [
        one.name for one in single if getattr(one, "kind", None) is not Parameter.VAR_KEYWORD and one.name in hints
    ]
    return TypedDict(of.__name__, {name: hints[name] for name in names}, total=False)  # type: ignore[operator]


#: A dataclass gets it through a list around it: pydantic takes a configuration beside no dataclass, and what is within
#: others has theirs.
_CONFIG: ConfigDict = {
    "extra": "forbid",
    "strict": True,
    "allow_inf_nan": False,
    "revalidate_instances": "always",
    "arbitrary_types_allowed": True,
}


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    # Imported here: many commands read nothing.
    from pydantic import TypeAdapter

    return TypeAdapter(list[kind], config=_CONFIG)


def _checked(kind: Any, where: Where, validated: Callable[[TypeAdapter[Any]], Any]) -> Any:
    from pydantic import ValidationError

    try:
        with where.referring(SoulsGraphError):
            return validated(_adapter(kind))[0]
    except ValidationError as error:
        raise DataError(described(error, kind, where), where.remedy) from None


def described(error: ValidationError, kind: Any, where: Where = _ARGUMENT) -> str:
    """Return what pydantic found wrong with values of a kind, each error with its place."""
    found: dict[str, dict[str, str]] = {}
    # First what is misspelt: it may be what others miss.
    for one in sorted(error.errors(include_url=False), key=lambda one: one["type"] not in _UNKNOWN):
        # A list is too short without the items that were refused.
        if one["type"] == "too_short" and len(one["input"]) >= one["ctx"]["min_length"]:
            continue
        place, names = _place(kind, one["loc"][1:])
        key, value = where.at(*place).key, ""
        if one["type"] in _UNKNOWN:
            close = get_close_matches(str(place[-1]), names, n=1)
            message = f"is unknown{f', did you mean {close[0]!r}?' if close else ''}"
        elif one["type"] == "missing":
            message = "is missing"
        elif isinstance(refused := one.get("ctx", {}).get("error"), FieldError):
            key, message = where.at(*place, refused.key).key, f"should {refused.said}"
            if isinstance(one["input"], dict) and refused.key in one["input"]:
                value = f", found {shown(one['input'][refused.key])}"
        else:
            text = one["msg"].replace(" after validation, not 0", "").replace("an object", "a table")
            _, should, what = text.partition("should")
            # Text is a sequence of texts, and rarely meant as one.
            message = f"{should}{what}" or ("should be a list" if one["type"] == "sequence_str" else one["msg"])
            value = f", found {shown(one['input'])}"
        found.setdefault(key, {})[message] = value
    # Of a union each kind has an error.
    lines = [f"{key} {' or '.join(of)}{[*of.values()][-1]}".strip() for key, of in found.items()]
    more = f"; and {len(lines) - _MOST_LISTED} more" if len(lines) > _MOST_LISTED else ""
    text = "; ".join(lines[:_MOST_LISTED]).replace(" or should be ", " or ")
    return f"{replace(where, key='').prefix}{text}{more}"


def _place(kind: Any, steps: tuple[int | str, ...]) -> tuple[list[int | str], list[str]]:
    """Return the place of an error without the branches of unions, and the names that are known beside its last key."""
    place: list[int | str] = []
    names: list[str] = []
    for step in steps:
        while (marked := hasattr(kind, "__metadata__")) or NoneType in get_args(kind):
            parts = get_args(kind)[:1] if marked else [one for one in get_args(kind) if one is not NoneType]
            kind = reduce(or_, parts)
        if get_origin(kind) in (Union, UnionType):
            kind = Any
            continue
        hints = get_type_hints(kind, include_extras=True) if isinstance(kind, type) else {}
        inner = [one for one in get_args(kind) if one is not Ellipsis] or [Any]
        own = inner[step] if isinstance(step, int) and step < len(inner) else inner[-1]
        kind, names = hints.get(str(step), own), list(hints)
        place.append(step)
    return place, names


def by_name(cls: _E) -> _E:
    """Let files have the members of an enumeration by their names, flags as in "FORWARD|LEFT"."""

    def member(text: str) -> Enum:
        try:
            return reduce(or_, (cls[name] for name in (text.split("|") if issubclass(cls, Flag) else [text])))
        except KeyError as error:
            raise ValueError(f"should be one of {', '.join(cls.__members__)}, not {error}") from error

    def schema(source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema as of

        named = of.no_info_after_validator_function(member, of.str_schema(strict=True))
        return of.json_or_python_schema(named, of.is_instance_schema(cls))

    cls.__get_pydantic_core_schema__ = staticmethod(schema)  # type: ignore[attr-defined]
    return cls


def to_table(owner: Any) -> dict[str, Any]:
    """Return a dataclass as the plain values that `validate` takes, those within it included."""
    return {field.name: _plain_value(getattr(owner, field.name)) for field in fields(owner)}


def _plain_value(value: Any) -> Any:
    if is_dataclass(value):
        return to_table(value)
    if isinstance(value, Mapping):
        return {key: _plain_value(item) for key, item in value.items()}
    if isinstance(value, Enum):
        return value.name
    return [_plain_value(item) for item in value] if isinstance(value, list | tuple) else value


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
        if kind in _generated_tables(str(name_or_path)):
            return Path(name_or_path)
    elif name_or_path in shipped_names(kind):
        return _DATA / _FOLDERS[kind] / f"{name_or_path}.toml"
    raise UnknownNameError(kind, str(name_or_path), shipped_names(kind))


#: Completes the tables of a file by what other files say; the place is the file's.
Completed = Callable[[dict[str, Any], Where], dict[str, Any]]


def load_data(kind: str, cls: type[T], name_or_path: str | Path, completed: Completed | None = None) -> T:
    """Load a file into the dataclass `cls`; before it the one it is based on, that errors name theirs.

    Raises:
        UnknownNameError: if nothing of that name is shipped.
        DataError: for missing, misspelt, mistyped and out-of-range values, and what the dataclass refuses.
    """
    path = find(kind, name_or_path)
    # What comes with the package, or from a seed, is the same for as long as a process lives.
    lasting = is_generated(path) or path.is_relative_to(_DATA)
    load: Callable[..., T] = _load_lasting if lasting else _load
    return load(kind, cls, path, completed)


def _load(kind: str, cls: Any, path: Path, completed: Completed | None) -> Any:
    where = Where(path)
    if bases := files_of(kind, path)[1:]:
        load_data(kind, cls, bases[0], completed)
        where = Where(path, remedy=f"correct it, or {bases[0]}, which it is based on")
    values = read_data(kind, path)
    return validate(cls, completed(values, where) if completed else values, where)


_load_lasting = lru_cache(maxsize=256)(_load)


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
        DataError: as `files_of`; also if a file based on another has no name of its own, or scales what
            is not a number there.
    """
    values: dict[str, Any] = {}
    for file in reversed(files_of(kind, path)):
        where, own = Where(file), _own_values(kind, file)
        for key in _REFERENCES.get(kind, ()):
            *tables, last = key.split(".")
            owner: Any = reduce(lambda table, name: table.get(name, {}), tables, own)
            if isinstance(owner, dict) and last in owner:
                owner[last] = reference(owner[last], file, where.at(key))
        if "based_on" not in own:
            values = own
            continue
        where.at("name").demand("name" in own, "a name of its own, as the file is based on another", "no such key")
        del own["based_on"]
        scaled, added = own.pop("scaled", {}), own.pop("added", {})
        values = _laid_over(_scaled(values, scaled, where.at("scaled")), own)
        for key, entries in validate(dict[str, Any], added, where.at("added")).items():
            both = isinstance(values.get(key), list) and isinstance(entries, list)
            where.at("added", key).demand(both, "entries for a list of the file this one is based on", shown(entries))
            values[key] = [*values[key], *entries]
    return values


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
    name, expected = validate(str, value, where), "a name or the path of a TOML file"
    where.demand("\0" not in name, expected, shown(name))
    if not name.endswith(".toml"):
        return name
    file = (path.parent / name).resolve()
    where.demand(file.exists(), expected, f"no file {file}")
    return str(file)


def _scaled(base: dict[str, Any], factors: object, where: Where) -> dict[str, Any]:
    scaled = dict(base)
    for key, factor in validate(dict[str, Any], factors, where).items():
        value, place = base.get(key), where.at(key)
        if isinstance(value, dict):
            scaled[key] = _scaled(value, factor, place)
        else:
            both = {type(value), type(factor)} <= {int, float}
            expected = "a factor for a number of the file this one is based on"
            place.demand(both, expected, f"{shown(factor)} for {shown(value)}")
            scaled[key] = value * factor
    return scaled


def _laid_over(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        both = isinstance(merged.get(key), dict) and isinstance(value, dict)
        merged[key] = _laid_over(merged[key], value) if both else value
    return merged
