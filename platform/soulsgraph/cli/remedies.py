"""The library's remedies in the command line's terms, and how each command goes on with what it began.

Errors of the library have their remedy as a field, a call where one helps; arguments are named in backticks. Only this
package names commands and options.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from soulsgraph_envs.core.errors import Remedy, SoulsGraphError

#: Commands that go on with a folder by --resume: the folder's option and its default.
RESUMED = {
    "curriculum": ("--run", "runs/curriculum"),
    "baseline": ("--run", "runs/baseline"),
    "reproduce": ("--out", "runs/reproduction"),
    "sweep": ("--run", "runs/sweep"),
    "continual run": ("--out", "runs/continual"),
}
#: Commands that go on by themselves.
REPEATED = ("train", "adapt", "recovery", "compare")
#: The folders' options of those that have one; the others take folders without an option.
_FOLDERS = RESUMED | {"train": ("--run", "runs/curriculum")}


def command_of(words: Sequence[str]) -> str:
    """Return the command that words begin with, and its action where that goes on by --resume."""
    action = " ".join(words[:2])
    return action if action in RESUMED else "".join(words[:1])


def option_of(words: Sequence[str], option: str, default: str) -> str:
    """Return the value of an option in a command's words: the last one given."""
    chosen = [word.partition("=")[2] for word in words if word.startswith(f"{option}=")]
    chosen += [after for word, after in pairwise(words) if word == option]
    return chosen[-1] if chosen else default


def folder_of(words: Sequence[str]) -> str:
    """Return the folder that a command writes: that of its option, else the first word that is a folder's path.

    An agent of the zoo is copied to the folder of an option first.
    """
    if (command := command_of(words)) in _FOLDERS:
        return option_of(words, *_FOLDERS[command])
    plain = [(before, word) for before, word in pairwise(words) if not word.startswith("-")]
    # A word behind an option is its value, unless there is no other.
    alone = [word for before, word in plain if not before.startswith("-") or "=" in before]
    return option_of(words, "--run", next(iter([*alone, *(word for _, word in plain)]), ""))


def going_on(words: Sequence[str]) -> list[str]:
    """Return a command with --resume where it needs that to go on with a run that is begun here."""
    if command_of(words) not in RESUMED or "--resume" in words:
        return [*words]
    plans = ("plan.json", "reproduction.json", "continual.json", "sweep.json")
    begun = any((Path(folder_of(words)) / name).is_file() for name in plans)
    return [*words, "--resume"] if begun else [*words]


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


def _begin(path: str) -> str:
    return " or ".join(command_line(name, "--run", path) for name in ("curriculum", "baseline"))


def _train(run: str, skill: str) -> str:
    # Imported here: an error may be printed before anything heavy was loaded.
    from soulsgraph_envs.skills import END_TO_END

    words = ("baseline", "--resume") if skill == END_TO_END else ("train", skill)
    return command_line(*words, "--run", run)


def _recovery(run: str, scenario: str, budget: int) -> str:
    return command_line("recovery", run, "--scenario", scenario, "--budget", budget)


def _evaluation(run: str, scenario: str, trained_on: str) -> str:
    return command_line("evaluate", run, "--scenario", scenario, "--trained-on", trained_on)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


#: Names in messages of the library that are options as they are.
_SAME = (
    *("address", "after", "budget", "display", "env_runners", "games", "head_command"),
    *("gif", "home", "mp4", "project", "scale", "scenario", "skills", "spool"),
)
#: Names in messages of the library, and the option of each: of every command, and of one.
_OPTIONS: Mapping[str, str] = {name: _option(name) for name in _SAME} | {
    "RunFolder.open": "--resume",
    "ContinualFolder.open": "--resume",
    "ReproductionFolder.open": "--resume",
    "SweepFolder.open": "--resume",
    "attachments": "--attach",
    "given": "the options",
    "overrides": "--set",
    "path": "--run",
    "run_controls": "--controls",
    "seeds": "--seeds or --first-seed",
}
_OF_COMMAND: Mapping[str, Mapping[str, str]] = {
    "continual": {"budget": "a larger --scale", "path": "--out"},
    "host": {name: _option(name) for name in ("ca", "check", "head")},
    "recovery": {"after": "--home"},
    "reproduce": {"path": "--out"},
    "serve-siphon": {name: _option(name) for name in ("certificate", "key", "speed", "token_file")},
    "saves": {"folder": "--folder"},
    "standin": {name: _option(name) for name in ("seconds", "speed")},
}
#: Calls in remedies of the library, and the command that makes each.
_COMMANDS: Mapping[str, Callable[..., str]] = {
    "ContinualFolder.create": lambda path: command_line("continual", "run", "--out", path),
    "ReproductionFolder.create": lambda path: command_line("reproduce", "--out", path),
    "RunFolder.create": _begin,
    "SweepFolder.create": lambda path: command_line("sweep", "SPACE.toml", "--run", path),
    "adaptation_stages": lambda run: command_line("adapt", run, "--scenario", "NAME"),
    "copy_agent": lambda name, path: command_line("zoo", "copy", name, "--run", path),
    "check_library": lambda run: command_line("skills", run),
    "do_units": lambda folder: command_line("reproduce", "--resume", "--out", folder),
    "evaluate": _evaluation,
    "run_sweep": lambda folder: command_line("sweep", "--resume", "--run", folder),
    "run_units": lambda folder: command_line("continual", "run", "--resume", "--out", folder),
    "recover": _recovery,
    "save_transfer": lambda run, scenario: command_line("transfer", run, "--scenario", scenario),
    "train_stage": _train,
}


def in_commands(message: str | SoulsGraphError, command: str, calls: Sequence[Remedy] = ()) -> str:
    """Return a message with the library's names replaced by options of a command, and its calls by commands.

    The calls are those that an error has, or that come with a text.
    """
    text, calls = str(message), message.calls if isinstance(message, SoulsGraphError) else calls
    for call in calls:
        before, named, after = text.partition(call)
        if named:
            begun = in_commands(before + call.prose, command, calls)
            return begun + _COMMANDS[call.function](**call.arguments) + in_commands(after, command, calls)
    options = {**_OPTIONS, **_OF_COMMAND.get(command, {})}
    return re.sub(f"`({'|'.join(map(re.escape, options))})`", lambda found: options[found[1]], text)


def stopped(how: str | SoulsGraphError, command: str) -> str:
    """Return how an interrupted command, as `command_of` names it, ended, and how to continue."""
    if isinstance(how, SoulsGraphError) and how.calls:
        return in_commands(how, command.partition(" ")[0])
    if command in RESUMED:
        return f"{how}; the run resumes from its last checkpoint with --resume"
    if command in REPEATED:
        return f"{how}; the same command resumes from the last checkpoint"
    if command == "data":
        return f"{how}; fights that are written stay, and the same command continues with the others"
    if command == "clone":
        return f"{how}; skills that are cloned stay, and the same command continues with the others"
    return f"{how}; the same command starts again"
