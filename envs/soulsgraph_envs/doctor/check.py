"""One line of the doctor's page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from soulsgraph_envs.errors import SoulsGraphError

Status = Literal["ok", "warn", "fail", "skip"]


@dataclass(frozen=True)
class Check:
    """What was checked, what was found, and the remedy if there is one."""

    topic: str
    name: str
    status: Status
    found: str
    remedy: str = ""

    @property
    def passed(self) -> bool:
        """Return whether nothing fails."""
        return self.status != "fail"


class Checks:
    """The checks of one topic, in the order they were made."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.made: list[Check] = []

    def ok(self, name: str, found: str) -> None:
        """Record a success."""
        self._note(name, "ok", found, "")

    def warn(self, name: str, found: str, remedy: str) -> None:
        """Record a warning."""
        self._note(name, "warn", found, remedy)

    def fail(self, name: str, found: str, remedy: str) -> None:
        """Record a failure."""
        self._note(name, "fail", found, remedy)

    def skip(self, name: str, why: str) -> None:
        """Record that something was not checked."""
        self._note(name, "skip", why, "")

    def judge(self, name: str, good: bool, found: str, remedy: str) -> None:
        """Record a success, or a warning with its remedy."""
        self._note(name, "ok" if good else "warn", found, "" if good else remedy)

    @contextmanager
    def failing(self, name: str, remedy: str) -> Iterator[None]:
        """Record an error of the block as the failure of a check; `remedy` is used if the error names none."""
        try:
            yield
        except SoulsGraphError as error:
            found, _, named = str(error).rpartition("; ")
            if not found or named.startswith("found "):
                found, named = str(error), remedy
            self.fail(name, found, named)

    def _note(self, name: str, status: Status, found: str, remedy: str) -> None:
        self.made.append(Check(self.topic, name, status, found, remedy))
