"""Which commands go on with what they began, and how each is asked to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

#: Commands that go on with a folder by --resume: the folder's option and its default.
RESUMED = {
    "curriculum": ("--run", "runs/curriculum"),
    "baseline": ("--run", "runs/baseline"),
    "reproduce": ("--out", "runs/reproduction"),
}
#: Commands that go on by themselves.
REPEATED = ("train", "adapt", "recovery", "compare")
#: The folders' options of those that have one; the others take folders without an option.
_FOLDERS = RESUMED | {"train": ("--run", "runs/curriculum")}


def option_of(words: Sequence[str], option: str, default: str) -> str:
    """Return the value of an option in a command's words: the last one given."""
    chosen = [word.partition("=")[2] for word in words if word.startswith(f"{option}=")]
    chosen += [after for word, after in pairwise(words) if word == option]
    return chosen[-1] if chosen else default


def folder_of(words: Sequence[str]) -> str:
    """Return the folder that a command writes: that of its option, else the first word that is a folder's path.

    An agent of the zoo is copied to the folder of an option first.
    """
    if words[0] in _FOLDERS:
        return option_of(words, *_FOLDERS[words[0]])
    plain = [(before, word) for before, word in pairwise(words) if not word.startswith("-")]
    # A word behind an option is its value, unless there is no other.
    alone = [word for before, word in plain if not before.startswith("-") or "=" in before]
    return option_of(words, "--run", next(iter([*alone, *(word for _, word in plain)]), ""))


def going_on(words: Sequence[str]) -> list[str]:
    """Return a command with --resume where it needs that to go on with a run that is begun here."""
    if not words or words[0] not in RESUMED or "--resume" in words:
        return [*words]
    begun = any((Path(folder_of(words)) / name).is_file() for name in ("plan.json", "reproduction.json"))
    return [*words, "--resume"] if begun else [*words]
