"""A game's process, and whoever keeps a game playing; `main` is the program of the process.

It has a `Player` and is asked over its pipes: its order comes first on standard input. It ends, every key released,
when that closes, however its parent ended.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from soulsgraph_clusters.fleet.actor.player import PlayedGame, Player
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.machine import APART, take_input
from soulsgraph_envs.games.link import GameSettings

#: A game that ended is started again after so long, twice as long after each further end, at most the second.
RESTART_AFTER_S = 1.0, 30.0
#: A game that ran at least this long is started again after the shortest wait.
_STEADY_S = 60.0
#: A game that does not end by then is killed.
END_WITHIN_S = 20.0
#: Not by -m: what is handed over would be of a module __main__.
_PROGRAM = "from soulsgraph_clusters.fleet.actor.process import main; main()"
_SIZE_BYTES = 8


@dataclass(frozen=True)
class GameOrder:
    """What a game's process plays, by its name; `projects` are folders to load, beside those that are installed."""

    settings: GameSettings
    game: str
    pause_file: Path
    projects: tuple[Path, ...] = ()


def write_message(pipe: IO[bytes], message: object) -> None:
    """Write a message behind its size: a reader gets it whole or not at all."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    pipe.write(len(data).to_bytes(_SIZE_BYTES, "little") + data)
    pipe.flush()


def read_message(pipe: IO[bytes]) -> Any:
    """Return the next message; raises EOFError if the pipe ends before one is whole."""
    data = pipe.read(_SIZE_BYTES)
    size = int.from_bytes(data, "little")
    if len(data) < _SIZE_BYTES or len(data := pipe.read(size)) < size:
        raise EOFError
    return pickle.loads(data)


class GameProcess:
    """A way to a `Player` in a process of this machine."""

    def __init__(self, order: GameOrder) -> None:
        self._process = subprocess.Popen(
            # -P: what lies in the present folder is none of our modules. A path that is printed may hold any
            # character, of which Windows' own encodings lack most.
            [sys.executable, "-P", "-X", "utf8", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C is for the parent, which ends its games in order.
            **APART,
        )
        self.pid = self._process.pid
        self._order: GameOrder | None = order

    def exchange(self, sent: Sequence[bytes]) -> list[bytes]:
        """Exchange messages with the process; raises as `PlayedGame`."""
        return self._ask(sent)

    def close(self) -> list[bytes]:
        """Let the process end, and kill it if it takes too long."""
        late = threading.Timer(END_WITHIN_S, self.kill)
        late.start()
        try:
            # Its pipes are closed behind it.
            with self._process:
                return self._ask(None) if self._process.poll() is None else []
        # A pipe cannot be written to its end where the process is gone.
        except (EOFError, OSError):
            return []
        finally:
            late.cancel()

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()

    def _ask(self, sent: Sequence[bytes] | None) -> list[bytes]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            if self._order is not None:
                order, self._order = self._order, None
                write_message(stdin, order)
            write_message(stdin, sent)
            answer: list[bytes] | str = read_message(stdout)
        # Something else than a player may have answered.
        except (OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
            self._process.kill()
            raise EOFError(f"its process ended with code {self._process.wait()}") from error
        if isinstance(answer, str):
            raise SoulsGraphError(answer)
        return answer


class Kept(ABC):
    """Keep a game playing: begun again whenever it ended, after a wait, until `stop`; `show` gets each line of it."""

    def __init__(self, name: str, open_it: Callable[[], PlayedGame], show: Callable[[str], None]) -> None:
        self._open, self._show = open_it, show
        self._stopping = threading.Event()
        #: What plays now, or played last.
        self.game: PlayedGame | None = None
        self._thread = threading.Thread(target=self._keep, name=name, daemon=True)
        self._thread.start()

    @abstractmethod
    def _sent(self) -> list[bytes]:
        """Return what waits for the player."""

    @abstractmethod
    def _take(self, messages: Sequence[bytes]) -> None:
        """Take messages of the player."""

    def stop(self) -> None:
        """Ask the game to end; `join` waits for it."""
        self._stopping.set()

    def join(self) -> None:
        """Wait until the game has ended, and kill it if it takes too long."""
        self._thread.join(END_WITHIN_S)
        if self._thread.is_alive() and self.game is not None:
            self.game.kill()
            self._thread.join()

    def _play(self) -> None:
        """Open the game and play it to its end; raises as `PlayedGame`."""
        game = self.game = self._open()
        try:
            while not self._stopping.is_set():
                self._take(game.exchange(self._sent()))
        finally:
            self._take(game.close())

    def say(self, line: str) -> None:
        """Show a line."""
        # A game is played although nobody can read about it.
        with suppress(OSError, ValueError):
            self._show(line)

    def _keep(self) -> None:
        wait_s, longest_s = RESTART_AFTER_S
        said = ""
        while not self._stopping.is_set():
            began_s, refusal, end = time.monotonic(), "", ""
            try:
                self._play()
            except SoulsGraphError as error:
                refusal = str(error)
            except (OSError, EOFError) as error:
                end = str(error) if isinstance(error, EOFError) else f"expected a process that plays it, found: {error}"
            if self._stopping.is_set():
                return
            if refusal:
                # Once: it is the same each time, until a person does something about it.
                if refusal != said:
                    self.say(f"{refusal.rstrip('.')}; it is tried again every {longest_s:g} s")
                wait_s, said = longest_s, refusal
            else:
                wait_s = RESTART_AFTER_S[0] if said or time.monotonic() - began_s > _STEADY_S else wait_s
                self.say(f"{end}; it is started again in {wait_s:g} s")
                said = ""
            self._stopping.wait(wait_s)
            wait_s = min(2 * wait_s, longest_s)


def main() -> None:
    """Play a game as the order on standard input says, until that closes."""
    from soulsgraph_policies.agents.projects import load_installed, load_project

    asked = take_input()
    # What own code prints must not get among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # Whoever asks may be gone.
    with suppress(EOFError, OSError):
        order: GameOrder = read_message(asked)
        sent = read_message(asked)
        try:
            # Whoever asks has reported what cannot be loaded.
            load_installed()
            for folder in order.projects:
                load_project(folder)
            with closing(Player(order.settings, order.game, order.pause_file)) as player:
                while sent is not None:
                    write_message(answers, player.exchange(sent))
                    sent = read_message(asked)
                write_message(answers, player.close())
        except SoulsGraphError as error:
            write_message(answers, str(error))
