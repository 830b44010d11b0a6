"""Misbehaviours of the stand-in: on a schedule, or by commands on standard input."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf, isfinite
from pathlib import Path
from typing import Protocol

from soulsgraph_envs.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.standin.native import forbid_core_dump
from soulsgraph_envs.standin.options import StandInOptions

#: Each kind, and whether it lasts (forever if no time is given) or happens once.
KINDS = {"crash": False, "move": False, "hang": True, "freeze": True, "stall": True, "drop": True}
_STANDARD_INPUT = 0
_OTHERS = ("pause", "speed", "die", "state", "quit")


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
    """Read how long a misbehaviour lasts, in seconds; forever if the text is empty.

    Raises:
        SoulsGraphError: for anything but a number above 0, or for a length of what happens once.
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
    """The coming and present misbehaviours, by wall time since the stand-in was ready.

    `on(kind)` is whether a lasting misbehaviour is under way; `due()` returns those that begin now.
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
        """Return the misbehaviours that begin now, each once; lasting ones are `on` from now."""
        now = self.clock()
        begun = [one for one in self._waiting if self._begun_s + one.start_s <= now]
        for one in begun:
            self._waiting.remove(one)
            self._until_s[one.kind] = now + one.length_s
        return begun

    def on(self, kind: str) -> bool:
        """Return whether a lasting misbehaviour is under way."""
        return self._until_s.get(kind, -inf) > self.clock()


def crash(folder: Path) -> None:
    """End this process like a crashed game, after removing its folder, as nothing else would."""
    shutil.rmtree(folder, ignore_errors=True)
    forbid_core_dump()
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(length_s: float) -> None:
    """Stop answering for a time; signals still end the process."""
    end = time.monotonic() + length_s
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 1.0))


class Commanded(Protocol):
    """The receiver of commands."""

    def pause(self) -> None:
        """Stop the world, or let it continue."""
        ...

    def set_speed(self, factor: float) -> None:
        """Set the factor of the game's clock."""
        ...

    def kill_player(self) -> None:
        """Let the player die."""
        ...

    def state(self) -> dict[str, object]:
        """Return the true state of the world."""
        ...


class Commands:
    """Commands and answers, one per line; `over` is whether the stand-in is to end."""

    def __init__(self, options: StandInOptions) -> None:
        self._json, self._until_eof = options.json, options.until_eof
        self._end_s = time.monotonic() + options.seconds if options.seconds else float("inf")
        self._told_to_end = False
        self._lines: deque[str] = deque()
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def over(self) -> bool:
        """Whether the stand-in is to end: by a command, or because its time is over."""
        return self._told_to_end or time.monotonic() >= self._end_s

    @over.setter
    def over(self, ended: bool) -> None:
        self._told_to_end = ended

    def say(self, event: str, **values: object) -> None:
        """Print a line: the event and its values, for people or as JSON."""
        if self._json:
            print(json.dumps({"event": event, **values}), flush=True)
        else:
            print(f"{event}: {', '.join(f'{name} {value}' for name, value in values.items())}", flush=True)

    def obey(self, stand_in: Commanded, schedule: Schedule) -> None:
        """Carry out the commands received."""
        while self._lines:
            word, _, argument = self._lines.popleft().partition(" ")
            try:
                self._carry_out(word, argument, stand_in, schedule)
            except SoulsGraphError as error:
                self.say("error", message=str(error))

    def _carry_out(self, word: str, argument: str, stand_in: Commanded, schedule: Schedule) -> None:
        if word in KINDS:
            schedule.add(word, length_of(word, argument))
        elif word == "pause":
            stand_in.pause()
        elif word == "speed":
            stand_in.set_speed(_factor(argument))
        elif word == "die":
            stand_in.kill_player()
        elif word == "state":
            self.say("state", **stand_in.state())
        elif word == "quit":
            self.over = True
        else:
            raise UnknownNameError("command", word, (*KINDS, *_OTHERS))

    def _listen(self) -> None:
        # Read below Python's buffers: a thread that waits in one of them can break the end of the process.
        rest = b""
        with suppress(OSError):
            while piece := os.read(_STANDARD_INPUT, 4096):
                *lines, rest = (rest + piece).split(b"\n")
                self._lines.extend(line for line in (one.decode(errors="replace").strip() for one in lines) if line)
        if self._until_eof:
            self.over = True


def _factor(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SoulsGraphError(f"speed: expected a number, found {text!r}.") from None
