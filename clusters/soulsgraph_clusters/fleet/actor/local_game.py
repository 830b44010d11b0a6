"""Play one game for the learner of the same machine; `main` is the program of the game's process.

Its order comes first on standard input, then weights as they become newer; on standard output it hands over what it
played, as arrays. It ends, every key released, when standard input closes, however its parent ended.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from soulsgraph_clusters.fleet.protocol.settings import State
from soulsgraph_clusters.fleet.protocol.task import StageTask, TaskPlay
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.machine import take_input
from soulsgraph_envs.games.link import GameSettings
from soulsgraph_policies.agents.inference import Weights
from soulsgraph_policies.agents.projects import load_installed, load_project
from soulsgraph_policies.learning.sampler import Chunk

#: What was played is handed over so often: each decision by itself would keep the game's thread waiting.
HAND_OVER_EVERY_S = 0.25
#: Steps handed over at once.
_MOST_STEPS = 8192
#: How a game does is reported so often, whether anything was played or not.
_REPORT_EVERY_S = 1.0
_SIZE_BYTES = 8


@dataclass(frozen=True)
class GameOrder:
    """What a game's process plays: the JSON of a `StageTask`, in a game, with random streams and numbers of its own.

    `projects` are folders of projects to load, beside those that are installed.
    """

    task: str
    settings: GameSettings
    seed: int
    first_lane: int
    first_episode: int
    projects: tuple[Path, ...] = ()


@dataclass(frozen=True)
class NewWeights:
    """Newer weights of some modules, their version, and the steps of each module that the learner has received."""

    version: int
    weights: Mapping[str, Weights]
    steps: Mapping[str, int]


class FinishFight:
    """The wish that the fight under way is the last."""


@dataclass(frozen=True)
class PlayReport:
    """What was played since the last report, if anything, and how the game does; counts are of its whole process.

    `frozen` is the digest of the weights that the frozen skills are played by. `lost` are steps by reason.
    """

    chunk: Chunk | None = None
    state: str = State.OPENING
    notes: tuple[str, ...] = ()
    version: int = 0
    ticks: int = 0
    steps: int = 0
    lost: Mapping[str, int] = field(default_factory=dict)
    lost_episodes: Mapping[str, int] = field(default_factory=dict)
    reset_s: Mapping[str, float] = field(default_factory=dict)
    lateness_p99_ms: float = 0.0
    cpu_s: float = 0.0
    frozen: bytes = b""


def write_message(pipe: IO[bytes], message: object) -> None:
    """Write a message behind its size: a reader gets it whole or not at all."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    pipe.write(len(data).to_bytes(_SIZE_BYTES, "little"))
    pipe.write(data)
    pipe.flush()


def read_message(pipe: IO[bytes]) -> Any:
    """Return the next message.

    Raises:
        EOFError: if the pipe ends before one is whole.
    """
    size = int.from_bytes(_read(pipe, _SIZE_BYTES), "little")
    return pickle.loads(_read(pipe, size))


def _read(pipe: IO[bytes], count: int) -> bytes:
    data = pipe.read(count)
    if len(data) < count:
        raise EOFError
    return data


class _Game:
    """Play an order until standard input closes, or a last fight is over."""

    def __init__(self, order: GameOrder, reports: IO[bytes]) -> None:
        self._order, self._reports = order, reports
        self._play = TaskPlay(StageTask.from_json(order.task), order.settings, order.seed)
        self._sampling = self._play.sampling
        self._inbox: deque[NewWeights | FinishFight] = deque()
        self._stopped = threading.Event()
        self._weights: dict[str, Weights] = {}
        self._version, self._last_fight, self._reported_s = 0, False, 0.0

    def play(self, orders: IO[bytes]) -> None:
        """Play to the end, and hand over what is in no doubt by then."""
        threading.Thread(target=self._read, args=(orders,), daemon=True).start()
        try:
            while not self._sampling.over and not self._stopped.wait(HAND_OVER_EVERY_S):
                while self._inbox:
                    self._obey(self._inbox.popleft())
                self._report()
        finally:
            self._sampling.close()
        while self._report():
            pass

    def _read(self, orders: IO[bytes]) -> None:
        with suppress(EOFError, OSError):
            while True:
                self._inbox.append(read_message(orders))
        self._stopped.set()

    def _obey(self, message: NewWeights | FinishFight) -> None:
        if isinstance(message, FinishFight):
            self._last_fight = True
            self._sampling.finish_fight()
            return
        # The first are those of every module.
        self._weights |= message.weights
        self._version = message.version
        self._play.use(message.weights, message.version, message.steps)

    def _report(self) -> bool:
        """Hand over what was played since the last time; return whether there was anything."""
        chunk, now_s = self._sampling.sample(_MOST_STEPS, 0.0), time.monotonic()
        if chunk is None and now_s - self._reported_s < _REPORT_EVERY_S:
            return False
        self._reported_s = now_s
        notes = () if chunk is None else tuple(filter(None, (*chunk.notes, chunk.failure)))
        sampling = self._sampling
        report = PlayReport(
            chunk=self._numbered(chunk) if chunk is not None and chunk.transitions else None,
            state=self._state,
            notes=notes,
            version=self._version,
            ticks=sampling.ticks,
            steps=sampling.finished,
            lost=dict(sampling.lost),
            lost_episodes=dict(sampling.lost_episodes),
            reset_s=self._play.reset_s,
            lateness_p99_ms=self._play.lateness_p99_ms,
            cpu_s=time.process_time(),
            frozen=self._play.frozen,
        )
        write_message(self._reports, report)
        return chunk is not None

    @property
    def _state(self) -> str:
        if not self._sampling.ready:
            return State.BROKEN
        if self._play.game is None:
            return State.OPENING
        return State.LAST_FIGHT if self._last_fight else State.PLAYING

    def _numbered(self, chunk: Chunk) -> Chunk:
        self._play.task.number(chunk.transitions, self._order.first_lane, self._order.first_episode)
        return replace(chunk, notes=(), failure="", moments={})


def main() -> int:
    """Play as the order on standard input says; return the exit code, 2 after an error that was reported."""
    orders = take_input()
    # What own code prints must not get among the reports.
    reports = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # Whoever reads them may be gone.
    with suppress(EOFError, OSError):
        order: GameOrder = read_message(orders)
        try:
            notes = [f"warning: {one}" for one in load_installed()]
            for folder in order.projects:
                load_project(folder)
            write_message(reports, PlayReport(notes=tuple(notes)))
            _Game(order, reports).play(orders)
        except SoulsGraphError as error:
            write_message(reports, str(error))
            return 2
    return 0
