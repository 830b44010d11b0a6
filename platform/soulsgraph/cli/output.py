"""How commands and their help texts print; loads nothing that only training needs."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass, replace
from functools import reduce, wraps
from inspect import Parameter, signature
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

from rich.console import Console, RenderableType
from tyro.conf import FlagCreatePairsOff, Positional, arg, subcommand

from soulsgraph.cli.front import check_extras
from soulsgraph.results.tables import OutputConsole
from soulsgraph.runs.progress import Display
from soulsgraph_envs.core.config import to_json
from soulsgraph_envs.core.errors import SoulsGraphError

if TYPE_CHECKING:
    from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructTypeInfo

#: Options and arguments by name; others have the word of their type.
_BY_NAME: Mapping[str, str] = {
    **dict.fromkeys(("folder", "folders", "side_by_side", "adapt"), "RUN|AGENT"),
    **dict.fromkeys(("run", "runs", "copy", "out", "spool", "earlier", "variants", "recordings", "record"), "DIR"),
    **dict.fromkeys(("games", "fleet", "settings", "setup", "skill_options"), "FILE.toml"),
    **dict.fromkeys(("ca", "certificate", "key"), "FILE.pem"),
    **{kind: f"FILE.{kind}" for kind in ("mp4", "gif", "png")},
    "token_file": "FILE",
    "scenario": "SCENARIO",
    **dict.fromkeys(("after", "home", "trained_on"), "SCENARIO"),
    **dict.fromkeys(("skill", "stage", "rllib", "minari"), "SKILL"),
    "boss": "BOSS",
    "keys": "NAME|FILE.toml",
    **dict.fromkeys(("graph", "graphs"), "GRAPH"),
    "project": "DIR",
    **dict.fromkeys(("skills", "randomize", "jointly"), "SKILL,..."),
    "preset": "PRESET",
    "start": "START",
    **dict.fromkeys(("address", "head"), "HOST:PORT"),
    "hosts": "HOST",
    "head_command": "COMMAND",
    **dict.fromkeys(("budget", "steps"), "STEPS"),
    **dict.fromkeys(("seconds", "wait_s"), "SECONDS"),
    **dict.fromkeys(("cluster_within", "places_within"), "MINUTES"),
    "days": "DAYS",
    "spool_mb": "MEGABYTES",
    "scale": "FACTOR",
    "speed": "FACTOR",
    **dict.fromkeys(("name", "player", "map", "encounter", "window", "process"), "NAME"),
    "display": ":N",
    "track": "TRACKER,...",
    "job": "URL",
    "misbehave": "KIND@SECOND",
}
#: Defaults that say nothing: the help says what happens without the option.
_NOTHING: tuple[object, ...] = (None, (), "")
_POSITIONAL = get_args(Positional[int])[1]
_BY_TYPE: Mapping[Any, str] = {int: "N", float: "NUMBER", str: "TEXT", Path: "PATH"}


def with_placeholders(function: Callable[..., None], words: str) -> Callable[..., None]:
    """Return a command's function whose parameters' annotations name what stands for their values.

    When called it begins only where the extras are installed that the command, by its `words`, and the options need.
    """
    hints = get_type_hints(function, include_extras=True)

    @wraps(function)
    def command(*values: Any, **options: Any) -> None:
        bound = signature(function).bind(*values, **options)
        bound.apply_defaults()
        check_extras(words, [name for name, _ in _paths(bound.arguments)])
        if (folder := JobFolder.unpacked) is not None:
            check_kept(function.__name__, bound.arguments, folder)
        function(*values, **options)

    parameters = []
    for parameter in signature(function).parameters.values():
        missing = parameter.default is Parameter.empty
        hints[parameter.name] = _named(parameter.name, hints[parameter.name], ... if missing else parameter.default)
        parameters.append(parameter.replace(annotation=hints[parameter.name]))
    del vars(command)["__wrapped__"]  # Its annotations would be read.
    command.__annotations__ = hints
    vars(command)["__signature__"] = signature(function).replace(parameters=parameters)
    return command


class JobFolder:
    """The working directory that a submitted job brought, unpacked here and deleted with the job; None without one."""

    unpacked: Path | None = None


#: Parameters and fields of commands whose paths are written, by name.
_WRITTEN = ("run", "runs", "out", "copy", "html", "mp4", "gif", "png", "record", "recordings", "spool")
#: Those that are written by some commands alone, and those that are only read by some.
_WRITTEN_BY: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("adapt", "table", "report_run"), ("folder",)),
    **dict.fromkeys(("recovery", "transfer", "retention", "report"), ("folders",)),
    **dict.fromkeys(("init", "restore"), ("folder",)),
    "doctor": ("setup",),
    **dict.fromkeys(("token", "certificates", "drain"), ("fleet",)),
}
_READ_BY: Mapping[str, tuple[str, ...]] = {"status": ("run",), "replay": ("run",)}


def written_names(command: str) -> set[str]:
    """Return the names of a command's parameters, and of its options' fields, whose paths it writes."""
    return {*_WRITTEN, *_WRITTEN_BY.get(command, ())} - {*_READ_BY.get(command, ())}


def check_kept(command: str, arguments: Mapping[str, Any], folder: Path) -> None:
    """Refuse a path that a command would write in a folder that is deleted with its job.

    An agent of the zoo is no path of a folder there: what is adapted of it goes into a copy.

    Raises:
        SoulsGraphError: naming the option.
    """
    names = written_names(command)
    if command in ("report", "report_run") and (arguments.get("out") or arguments.get("html")):
        names -= {"folder", "folders"}  # Their own folder is where a report goes unless another is named.
    for name, path in _paths(arguments):
        # The folder of a run is one that the job brought; by the same word an agent of the zoo is meant.
        brought = name not in ("folder", "folders") or command == "init" or path.exists()
        if name in names and brought and path.resolve().is_relative_to(folder.resolve()):
            shown = path if name in ("folder", "folders") else f"--{_SHOWN.get(name, name)} {path}"
            raise SoulsGraphError(
                f"{shown}: expected a path outside the job's working directory, found {path.resolve()}, which is "
                "deleted with the job, and what it wrote there with it; name it from / on."
            )


#: Parameters whose option has another name.
_SHOWN: Mapping[str, str] = {"copy": "run"}


def _paths(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Path]]:
    """Yield every path among a command's arguments, those in dataclasses and lists too, with its name."""
    for name, value in arguments.items():
        if isinstance(value, Path):
            yield name, value
        elif isinstance(value, tuple):
            yield from ((name, one) for one in value if isinstance(one, Path))
        elif is_dataclass(value):
            yield from _paths(vars(value))
        elif isinstance(value, dict):
            yield from _paths(value)


def registry() -> ConstructorRegistry:
    """Return the rules by which tyro names what stands for the values of dataclasses' and mappings' fields."""
    from tyro.constructors import ConstructorRegistry, StructConstructorSpec

    rules = ConstructorRegistry()
    inside: list[StructTypeInfo] = []

    @rules.struct_rule
    def rule(info: StructTypeInfo) -> StructConstructorSpec | None:
        if inside:
            return None
        inside.append(info)
        try:
            # What tyro makes of it by its own rules.
            spec = ConstructorRegistry.get_struct_spec(info)
        finally:
            inside.pop()
        if not isinstance(spec, StructConstructorSpec):
            return None
        named = (replace(field, type=_named(field.name, field.type, field.default)) for field in spec.fields)
        return replace(spec, fields=tuple(named))

    return rules


def _named(name: str, hint: Any, default: object) -> Any:
    """Return a type with its placeholder, and without a default that says nothing."""
    word = _word(name, hint)
    hinted = any(getattr(note, "help_behavior_hint", None) is not None for note in _notes(hint))
    # A list of arguments that may be empty, as far as their syntax says.
    silent = default in _NOTHING or (default is ... and _POSITIONAL in _notes(hint) and _is_list(_bare(hint)))
    hint = hint if word is None else Annotated[hint, arg(metavar=word)]
    return Annotated[hint, arg(help_behavior_hint="")] if silent and not hinted else hint


def _notes(hint: Any) -> tuple[Any, ...]:
    return tuple(hint.__metadata__) if get_origin(hint) is Annotated else ()


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _is_list(bare: Any) -> bool:
    return get_origin(bare) is tuple and get_args(bare)[1:] == (...,)


def _word(name: str, hint: Any) -> str | None:
    """Return what stands for a value of a type; None where it says so itself, as choices and switches do."""
    if any(getattr(note, "metavar", None) is not None for note in _notes(hint)):
        return None
    bare = _bare(hint)
    if get_origin(bare) in (Union, UnionType):
        kinds = [kind for kind in get_args(bare) if kind is not NoneType]
        return _word(name, kinds[0]) if len(kinds) == 1 else None
    if _is_list(bare):
        word = _word(name, get_args(bare)[0])
        return None if word is None else f"{word} ..."
    return _BY_NAME.get(name, _BY_TYPE[bare]) if bare in _BY_TYPE else None


#: A word that needs no quotes in Windows' shells, of which each has other letters of its own.
_PLAIN = re.compile(r"[\w.:\\/=-]+")


def quoted(word: str) -> str:
    """Return a word as a shell of this system reads it."""
    if sys.platform != "win32":
        return shlex.quote(word)
    # To Windows' cmd single quotes are letters like others.
    return word if _PLAIN.fullmatch(word) else f'"{word}"'


def command_line(*words: object) -> str:
    """Return a `soulsgraph` command line, quoted for a shell of this system."""
    return " ".join(["soulsgraph", *(quoted(str(word)) for word in words)])


#: A flag that is off unless given.
Flag = Annotated[bool, FlagCreatePairsOff]


@dataclass(frozen=True)
class OutputOptions:
    """How results are printed."""

    json: Flag = False
    """Print results as JSON only, for machines."""

    @property
    def console(self) -> Console:
        """The console for people, silent with `--json`: standard output is then for programs.

        Where standard output is no terminal its lines have any length.
        """
        return OutputConsole(quiet=self.json)

    @property
    def display(self) -> Display:
        """How progress is shown."""
        return "silent" if self.json else "auto"

    def precompile(self, training: bool = False) -> None:
        """Compile what playing calls, or what training calls too, where it is not compiled yet."""
        # Imported here: a help text need not wait for it.
        from soulsgraph.runs.workers import precompile, precompile_playing

        (precompile if training else precompile_playing)(self.console)

    def show(self, plain: Any, *parts: RenderableType, passed: bool = True) -> None:
        """Print results: plain values as one JSON document with `--json`, tables and lines for people otherwise.

        Of a check that has not `passed` the command ends with 1.
        """
        if self.json:
            print(to_json(plain, indent=2))
        for part in parts:
            self.console.print(part)
        if not passed:
            sys.exit(1)


DEFAULT_OUTPUT = OutputOptions()


@dataclass(frozen=True)
class RunOptions(OutputOptions):
    """Whose skills a run may have, and how results are printed."""

    project: Path | None = None
    """Folder of a project of your own, whose skills and graphs the run may have. Not needed for installed projects."""

    def __post_init__(self) -> None:
        if self.project is not None:
            # Imported here: few commands are given one.
            from soulsgraph_policies.agents.projects import load_project

            load_project(self.project)

    @property
    def repeated(self) -> tuple[str, ...]:
        """The words that another command on the same run needs as well."""
        return () if self.project is None else ("--project", str(self.project))


DEFAULT_RUN = RunOptions()


def one_action(command: str, actions: Mapping[str, Callable[..., None]]) -> Any:
    """Return the type of an argument that does one of a command's actions while its options are read."""
    kinds: list[Any] = [
        Annotated[None, subcommand(name, constructor=with_placeholders(action, f"{command} {name}"), prefix_name=False)]
        for name, action in actions.items()
    ]
    chosen: Any = reduce(or_, kinds)
    return Annotated[None, arg(constructor=chosen)]
