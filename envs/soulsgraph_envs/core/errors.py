"""One error family: every error that a user can cause is a `SoulsGraphError` of one line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copyreg import __newobj__  # type: ignore[attr-defined]
from difflib import get_close_matches
from pathlib import Path
from reprlib import Repr
from typing import Any

import gymnasium

#: Names that a message lists at most.
_MOST_LISTED = 8
#: Characters of a value that a message shows at most.
_MOST_SHOWN = 80
#: So many ticks at most may be doubtful when an episode is lost: a sampler holds back what is younger.
MOST_DOUBTFUL_TICKS = 30


class SoulsGraphError(Exception):
    """Name what was expected, what was found and what to do, in one line; `remedy` is the last of these."""

    remedy: str = ""

    def __init__(self, message: str = "", remedy: str = "") -> None:
        super().__init__(f"{message}; {remedy}." if remedy else message)
        self.remedy = remedy

    def __reduce__(self) -> tuple[Any, ...]:
        # Ray carries errors between processes; a subclass may be made from other arguments than its message.
        return __newobj__, (type(self), *self.args), self.__dict__


class UnavailableError(SoulsGraphError):
    """What is needed is not there now and may come by itself, as a cluster that starts."""


class DataError(SoulsGraphError):
    """A value of a data file, an option or an argument is missing, misspelt, of another type or out of range."""


class FieldError(DataError, ValueError):
    """A dataclass refuses one of its fields, by its key: `core.config.validate` puts the place before it."""

    def __init__(self, key: str, said: str) -> None:
        super().__init__(f"{key} should {said}", "correct the value")
        self.key, self.said = key, said


class ReadError(SoulsGraphError):
    """A file or folder is there, but could not be read."""

    def __init__(self, path: object, error: OSError) -> None:
        super().__init__(f"{path}: it cannot be read: {error.strerror or error}.")


@contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Turn the operating system's refusal to read into a `ReadError` that names `path`.

    A missing file stays a `FileNotFoundError`: what to do about it depends on what it is.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ReadError(path, error) from error


class UnknownNameError(SoulsGraphError):
    """A name is unknown; of many known names the message lists the most similar ones."""

    def __init__(self, kind: str, name: object, known: Iterable[str]) -> None:
        # A name is shown whole, for it may be a path; anything else may be of any length.
        text = name if isinstance(name, str) else shown(name)
        found = repr(text) if isinstance(name, str) else text
        choices = sorted(known)
        close = get_close_matches(text, choices, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        super().__init__(f"unknown {kind}: expected one of {_listed(text, choices)}; found {found}.{hint}")


def shown(value: object) -> str:
    """Return a value as a message shows it: in one line of bounded length, whatever it is."""
    try:
        text = " ".join(_SHORT.repr(value).split())
    except ValueError:  # Python prints no number of more than 4,300 digits.
        text = "a number of too many digits"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def plain_number(number: float) -> str:
    """Return a number as people write it, without an exponent up to 15 digits."""
    return f"{number:.15g}"


def plain_range(low: float, high: float) -> str:
    """Return the ends of a range as people write them."""
    return f"{plain_number(low)} to {plain_number(high)}"


_SHORT = Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 3, _MOST_SHOWN, _MOST_SHOWN


def _listed(name: str, choices: list[str]) -> str:
    if len(choices) <= _MOST_LISTED:
        return ", ".join(choices)
    shown = get_close_matches(name, choices, n=_MOST_LISTED, cutoff=0.0)
    return f"{', '.join(sorted(shown))} and {len(choices) - len(shown)} more"


class ActionError(SoulsGraphError, gymnasium.error.InvalidAction):
    """An action is not one of its space, was sent for an unknown agent, or is missing."""


class SeedError(SoulsGraphError, gymnasium.error.Error):
    """A seed is not a non-negative integer."""


class ResetNeededError(SoulsGraphError, gymnasium.error.ResetNeeded):
    """Something needs an episode under way, and there is none."""

    def __init__(self) -> None:
        super().__init__("expected an episode under way, found none: call reset first.")


class GameError(SoulsGraphError):
    """A game could not be reset, stepped or read."""


class EpisodeLostError(GameError):
    """A real-time game broke off an episode: its last ticks must not be learned from.

    `doubtful_ticks`, at most `MOST_DOUBTFUL_TICKS`, is how many of the latest finished ticks must be
    dropped too. The game may be reset, which recovers it or raises another `GameError`.
    """

    def __init__(self, reason: str, doubtful_ticks: int = 0) -> None:
        super().__init__(reason)
        self.reason, self.doubtful_ticks = reason, doubtful_ticks

    @property
    def kind(self) -> str:
        """The reason without its numbers, to count by."""
        return re.sub(r"-?\d+(\.\d+)?", "#", self.reason)
