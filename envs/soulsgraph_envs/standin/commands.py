"""What the stand-in says on standard output, and what it is told on standard input."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Protocol

from soulsgraph_envs.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.standin.misbehaviour import KINDS, Schedule, length_of
from soulsgraph_envs.standin.options import StandInOptions

_STANDARD_INPUT = 0
_OTHERS = ("pause", "speed", "die", "state", "quit")


class Commanded(Protocol):
    """What commands act on."""

    def pause(self) -> None:
        """Stop the world, or let it go on."""
        ...

    def set_speed(self, factor: float) -> None:
        """Set the factor of the game's clock."""
        ...

    def kill_player(self) -> None:
        """Let the player die."""
        ...

    def state(self) -> dict[str, object]:
        """Return what truly is."""
        ...


class Commands:
    """Lines in and out, one a command or an answer; `over` says that the stand-in is to end."""

    def __init__(self, options: StandInOptions) -> None:
        self._json, self._until_eof = options.json, options.until_eof
        self._end_s = time.monotonic() + options.seconds if options.seconds else float("inf")
        self._told_to_end = False
        self._lines: deque[str] = deque()
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def over(self) -> bool:
        """Whether the stand-in is to end: told so, or its time is over."""
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
        """Carry out the commands that came in."""
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
