"""Functions as commands: their parameters, and the fields that their further keywords stand for, as options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import partial, wraps
from inspect import Parameter as Argument
from inspect import Signature, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypedDict, Union, Unpack, get_args, get_origin, get_type_hints

from cyclopts import Parameter
from docstring_parser import parse_from_object

from soulsgraph.cli.output import screen, show
from soulsgraph_envs.core.config import Keywords, Where, check_arguments, parse
from soulsgraph_envs.core.errors import DataError, SoulsGraphError

_AGENT = "Run folder, or the name of an agent of the zoo."
#: Parameters of Python's callers, in whose place every command has options of its own.
_PYTHONS = {"learners", "project", "quiet"}
_SET = "set"


def as_command(function: Callable[..., Any]) -> Callable[..., None]:
    """Return a command that calls a function with the options given, and prints what it returns.

    A method's object is the run folder or the agent that is named first.
    """
    kept, given, names = list[Argument](), dict[str, Any](), signature(function).parameters
    hints, marked, helps = get_type_hints(function), get_type_hints(function, include_extras=True), _helps(function)
    for name, one in names.items():
        marks: Sequence[Any] = getattr(marked.get(name), "__metadata__", ())
        if one.kind is Argument.VAR_KEYWORD:
            given |= _keywords(marks[0])
        elif name == "self":
            kept.append(Argument("agent", Argument.POSITIONAL_ONLY, annotation=_option(Path, _AGENT)))
        elif any(isinstance(mark, Parameter) for mark in marks):
            kept.append(one.replace(annotation=marked[name]))
        elif name not in _PYTHONS:
            hint, default = _option(hints[name], helps.get(name, "")), one.default
            if isinstance(default, tuple) and get_args(hint)[0] is str:
                default = ",".join(default)
            kept.append(one.replace(annotation=hint | None if default is None else hint, default=default))
    given["json"] = _option(bool, "Print results as JSON only, for programs.")
    known = "Folder of a project whose skills it may use; installed ones are known."
    given["project"] = _option(tuple[Path, ...], known)
    make: Any = TypedDict  # Its fields are no literal.
    kept.append(Argument("given", Argument.VAR_KEYWORD, annotation=Unpack[make("Given", given, total=False)]))

    @wraps(function)
    def command(*values: Any, **options: Any) -> None:
        screen.json, screen.projects = options.pop("json", False), options.pop("project", ())
        if screen.projects:
            # Imported here: few commands are given one.
            from soulsgraph_policies.agents.projects import load_project

            for folder in screen.projects:
                load_project(folder)
        options |= read_overrides(options.pop(_SET, ()))
        if "quiet" in names:
            options["quiet"] = screen.json
        if "self" in names:
            # Imported here: a game PC need not have it.
            from soulsgraph.api import run_of

            values = (run_of(str(values[0])), *values[1:])
        show(check_arguments(function)(*values, **options))

    del vars(command)["__wrapped__"]  # Its annotations would be read.
    command.__annotations__ = {one.name: one.annotation for one in kept}
    vars(command)["__signature__"] = Signature(kept)
    return command


def _option(hint: Any, help: str, default: object = None, **shown: Any) -> Any:
    """Return a parameter's type as the command line shows it: of several what a person can type."""
    if get_origin(hint) in (Union, UnionType):
        kinds = [one for one in get_args(hint) if one is not NoneType]
        hint = next((one for one in (Path, str) if one in kinds), kinds[0])
    text = help if default is None else f"{help} [default: {default}]"
    return Annotated[hint, Parameter(help=text, **shown)]


def _keywords(keywords: Keywords) -> dict[str, Any]:
    """Return the options that a function's further keywords stand for."""
    found: dict[str, Any] = {}
    for one in keywords.of:
        helps, hints, values = _helps(one), get_type_hints(one), signature(one).parameters
        for name in (name for name in helps if name in values and name not in (*keywords.but, *_PYTHONS, *found)):
            if values[name].kind is not Argument.POSITIONAL_ONLY:
                found |= _field(name, hints[name], helps[name], values[name].default)
    if keywords.others:
        found[_SET] = _option(tuple[str, ...], keywords.others, name="--set", consume_multiple=True)
    return found


def _field(name: str, hint: Any, help: str, default: Any) -> dict[str, Any]:
    """Return the options of a keyword: several names are separated by commas, seeds are counted from a first one."""
    if name == "seeds":
        first = _option(int, "First training seed.", default[0])
        return {name: _option(int, "Training seeds, counted from the first.", len(default)), "first_seed": first}
    if get_origin(hint) is tuple and default:
        return {name: _option(str, f"{help} Separated by commas.", ",".join(default))}
    shown = default if isinstance(default, str | int | float) else None
    negative = () if name.startswith("no_") else "no-"
    return {name: _option(Path if is_dataclass(hint) else hint, help, shown, negative_bool=negative)}


def _helps(of: Any) -> dict[str, str]:
    """Return what is said of each parameter of a function, or each field of a dataclass and its bases."""
    parts = [one for one in reversed(getattr(of, "__mro__", ())) if is_dataclass(one)] or [of]
    said = (param for part in parts for param in parse_from_object(part).params)
    return {param.arg_name: " ".join((param.description or "").split()) for param in said}


def read_overrides(texts: Sequence[str]) -> dict[str, Any]:
    """Read NAME=VALUE, each by its name.

    Raises:
        SoulsGraphError: if one is set twice or without a value.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or name in found:
            raise SoulsGraphError(f"--set: expected NAME=VALUE, each name once, found {text!r}; write gamma=0.98.")
        try:
            found[name] = parse(value, "JSON", Where(None, f"--set {name}", "correct the value"))
        except DataError as error:
            if not isinstance(error.__cause__, ValueError):
                raise
            found[name] = value  # A word needs no quotes.
    return found


def taken(what: str, function: Callable[..., Any], given: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a function with the options given, whose values are checked; refuse those that it does not take.

    Raises:
        SoulsGraphError: naming the first that would have no effect.
    """
    takes = signature(function).parameters
    if wrong := next((name for name in given if name not in takes), None):
        raise SoulsGraphError(f"{what}: expected no `{wrong}`, found it; leave it out.")
    return partial(check_arguments(function, what), **given)
