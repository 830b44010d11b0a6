"""How the stand-in misbehaves: on a schedule, or when told on standard input."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from pathlib import Path

from soulsgraph_envs.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.standin.native import forbid_core_dump

#: Each kind, and whether it lasts (forever if no time is given) or happens once.
KINDS = {"crash": False, "move": False, "hang": True, "freeze": True, "stall": True, "drop": True}


@dataclass(frozen=True)
class Misbehaviour:
    """One misbehaviour: its kind, when it begins, and how long it lasts, in seconds."""

    kind: str
    start_s: float
    length_s: float = inf


def parse_misbehaviour(text: str) -> Misbehaviour:
    """Read `KIND@START` or `KIND@START+SECONDS`.

    Raises:
        SoulsGraphError: for another form, an unknown kind, or a length for what happens once.
    """
    kind, _, times = text.partition("@")
    if kind not in KINDS:
        raise UnknownNameError("misbehaviour", kind, KINDS)
    start, _, length = times.partition("+")
    return Misbehaviour(kind, _seconds(start, text), length_of(kind, length))


def length_of(kind: str, text: str) -> float:
    """Read how long a misbehaviour lasts, in seconds; forever if nothing is said.

    Raises:
        SoulsGraphError: for no number above 0, or any for what happens once.
    """
    if not text:
        return inf
    if not KINDS[kind]:
        raise SoulsGraphError(f"{kind}: expected no length, for it happens once; found {text!r}.")
    return _seconds(text, f"{kind} {text}")


def _seconds(text: str, whole: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not (isfinite(seconds) and seconds >= 0.0):
        raise SoulsGraphError(
            f"misbehaviour: expected KIND@START or KIND@START+SECONDS, such as freeze@5+3; found {whole!r}."
        )
    return seconds


@dataclass
class Schedule:
    """What is to come and what goes on, by wall time since the stand-in was ready.

    `on(kind)` tells whether a lasting misbehaviour goes on; `due()` gives those that begin now.
    """

    plan: Sequence[Misbehaviour] = ()
    clock: Callable[[], float] = time.monotonic
    _begun_s: float = 0.0
    _waiting: list[Misbehaviour] = field(default_factory=list)
    _until_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._begun_s = self.clock()
        self._waiting = sorted(self.plan, key=lambda one: one.start_s)

    def add(self, kind: str, length_s: float = inf) -> None:
        """Let a misbehaviour begin now."""
        self._waiting.insert(0, Misbehaviour(kind, 0.0, length_s))

    def due(self) -> list[Misbehaviour]:
        """Return the misbehaviours that begin now, each once; lasting ones are `on` from here."""
        now = self.clock()
        begun = [one for one in self._waiting if self._begun_s + one.start_s <= now]
        for one in begun:
            self._waiting.remove(one)
            self._until_s[one.kind] = now + one.length_s
        return begun

    def on(self, kind: str) -> bool:
        """Return whether a misbehaviour that lasts goes on now."""
        return self._until_s.get(kind, -inf) > self.clock()


def crash(folder: Path) -> None:
    """End this process as a crashed game ends; its folder goes first, for nobody cleans up afterwards."""
    shutil.rmtree(folder, ignore_errors=True)
    forbid_core_dump()
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(length_s: float) -> None:
    """Answer nothing for so long; signals still end the process."""
    end = time.monotonic() + length_s
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 1.0))
