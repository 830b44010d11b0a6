"""How a fleet does: one file beside the stage's journal, written every second, that people and programs read."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from soulsgraph_clusters.fleet.gateway.admission import Admission
from soulsgraph_clusters.fleet.gateway.connections import Connection, Connections
from soulsgraph_clusters.fleet.protocol.messages import plain
from soulsgraph_clusters.fleet.protocol.settings import LOST_EPISODES, RESET_S, State
from soulsgraph_envs.core.config import Where, load, to_json
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import WriteError, write_text

STATUS_FILE = "status.json"
WRITE_EVERY_S = 1.0
#: Control ticks a second of a game at speed 1.
TICKS_PER_S = 10.0
#: Window of shares and rates: a game reports once a second.
WINDOW_S = 30.0
#: After so long without another try a stranger counts as refused no longer.
REFUSED_FOR_S = 30.0
#: The rate beside those of a game's resets by phase, and decisions that no game can have finished.
TICKS, _MOST = "ticks", 2**53


@dataclass(frozen=True)
class GameStatus:
    """One game that was seen in the stage; `finished` and `lost` are in decisions, of all its processes seen there.

    Other counts are since its present process began. `finished` and `lost` can be summed up beside what the journal has
    counted: neither another process of the game nor another gateway begins them anew.

    One that is not connected is as it was last seen, and plays nothing; of one that an earlier gateway saw last, only
    its counts are known. A PC without any game, and one that is refused,
    has a row of its own, named by the PC alone.
    """

    name: str
    driver: str
    lanes: int
    state: str
    note: str
    #: What it plays a second beside what its speed allows.
    ticks_per_s: float = 0.0
    ideal_ticks_per_s: float = 0.0
    #: For how many control ticks newer weights than it plays by have been out.
    stale_ticks: float = 0.0
    #: Seconds since its last message, or since its PC was refused; of a PC that was never seen, since the stage began.
    silent_s: float = 0.0
    waiting_chunks: int = 0
    finished: int = 0
    lost: Mapping[str, int] = field(default_factory=dict)
    ticks: int = 0
    #: How late its latest ticks began.
    lateness_p99_ms: float = 0.0
    #: Seconds of its resets by phase, and what part of its recent time they took.
    reset_s: Mapping[str, float] = field(default_factory=dict)
    reset_share: Mapping[str, float] = field(default_factory=dict)
    #: Episodes that were broken off, by reason.
    lost_episodes: Mapping[str, int] = field(default_factory=dict)
    #: CPU time of its process.
    cpu_s: float = 0.0
    connected: bool = True
    #: The version of soulsgraph that it plays by, and its machine's address.
    version: str = ""
    address: str = ""
    #: Its process.
    boot: str = ""

    @property
    def is_game(self) -> bool:
        """Whether it is a game, and not a PC without one."""
        return "/" in self.name

    @property
    def plays(self) -> bool:
        """Whether it plays now; what it plays a second is a mean of half a minute."""
        return self.state in (State.PLAYING, State.LAST_FIGHT)

    @property
    def is_put_aside(self) -> bool:
        """Whether a person at the PC or the head lets it not play."""
        return self.connected and self.state in State.PUT_ASIDE


@dataclass(frozen=True)
class FleetStatus:
    """A stage's fleet at one moment, `written` in seconds since 1970; `decisions` in the journal by `PC/verdict`."""

    stage: str
    attempt: str
    written: float
    weights_version: int
    records: int
    decisions: Mapping[str, int] = field(default_factory=dict)
    games: tuple[GameStatus, ...] = ()

    @classmethod
    def last(cls, folder: Path, attempt: str = "") -> FleetStatus | None:
        """Return the last status of a stage by its folder; None if none can be read, or it is of another attempt."""
        with suppress(SoulsGraphError, OSError):
            status = load(cls, Where(folder / STATUS_FILE))
            return status if status.attempt == attempt else None
        return None

    def write(self, folder: Path) -> None:
        """Write it into a stage's folder; raises WriteError."""
        # `to_table` would take as long for a thousand games as all else of a status.
        table = {**vars(self), "games": [vars(game) for game in self.games]}
        write_text(folder / STATUS_FILE, f"{to_json(table)}\n")

    @property
    def age_s(self) -> float:
        """Its age."""
        return max(time.time() - self.written, 0.0)


class Rates:
    """What a game's process counted up a second over the latest half a minute."""

    def __init__(self) -> None:
        self._said: deque[tuple[float, Mapping[str, float]]] = deque()

    def add(self, said_s: float, counts: Mapping[str, float]) -> None:
        """Note what the game said last, at a time of one clock; 0 as long as it said nothing."""
        said = self._said
        if said_s > (said[-1][0] if said else 0.0):
            said.append((said_s, counts))
        while said and said[0][0] < said[-1][0] - WINDOW_S:
            said.popleft()

    def __call__(self, name: str) -> float:
        """Return what was counted up of a name a second."""
        if not self._said:
            return 0.0
        (since_s, before), (until_s, now) = self._said[0], self._said[-1]
        return max(now.get(name, 0.0) - before.get(name, 0.0), 0.0) / (until_s - since_s or math.inf)


class StatusWriter:
    """Describe the gateway's games, and write the description about once a second; several threads may ask."""

    def __init__(self, admission: Admission, connections: Connections) -> None:
        self._admission, self._connections, self._access = admission, connections, threading.Lock()
        #: What each game's process said in the window.
        self._said: dict[tuple[str, str], Rates] = {}
        self._next_s, self._began_s = 0.0, time.monotonic()
        #: The games that were connected when the stage was over, and its last rows.
        self._there = set[str]()
        self._kept: tuple[GameStatus, ...] | None = None

    def keep(self) -> None:
        """Count the games that are connected now as such from here on: the stage is over, and they are sent away."""
        self._there = self._there or {connection.name for connection in self._connections.live}

    def end(self, version: int) -> None:
        """Write the status for the last time: no game plays in a stage that is over."""
        self.keep()
        self._kept = tuple(
            replace(one, state=State.ENDED, note="", **_PLAYS_NOTHING) if one.connected else one
            for one in self._rows(time.monotonic())
            # Nobody sees a stranger go any more.
            if one.is_game or one.name in self._admission.named_pcs
        )
        self.update(version, always=True)

    def update(self, version: int, always: bool = False) -> FleetStatus | None:
        """Write the status if it is time to, or `always`, and return it; `version` is that of the newest weights."""
        if time.monotonic() < self._next_s and not always:
            return None
        status, self._next_s = self.describe(version), time.monotonic() + WRITE_EVERY_S
        # A full disk is the journal's to report, and no reason to end the gateway.
        with suppress(WriteError):
            status.write(self._admission.journal.folder)
        return status

    def describe(self, version: int) -> FleetStatus:
        """Return how the games do now."""
        journal = self._admission.journal
        games = self._rows(time.monotonic()) if self._kept is None else self._kept
        decisions = dict(journal.decisions)
        now = time.time(), version, journal.end
        return FleetStatus(journal.stage, journal.attempt, *now, decisions, games)

    def _rows(self, now: float) -> tuple[GameStatus, ...]:
        """Return every game that was seen in the stage, and the PCs that play none: refused, or never seen."""
        journal, latest = self._admission.journal, self._connections.latest
        with suppress(WriteError):
            # A message has room for more than the file.
            journal.count(
                (one.name, one.hello.boot, min(one.health.finished_decisions, _MOST), dict(one.health.lost_decisions))
                for one in latest
                # Over a new stream it has said nothing yet of what it counted over the one before.
                if one.health_s
            )
        counted = journal.counted
        rows = {
            name: GameStatus(name, "", 0, State.LOST, "", finished=finished, lost=dict(lost), connected=False)
            for name, (finished, lost) in counted.items()
        }
        open_now = self._there or {connection.name for connection in self._connections.live}
        with self._access:
            rows |= {one.name: self._game(one, now, one.name in open_now, rows.get(one.name)) for one in latest}
        seen, named = {name.partition("/")[0] for name in rows}, self._admission.named_pcs
        # A stranger who tries no more is not refused, but gone.
        refused = {
            pc: GameStatus(pc, "", 0, State.REFUSED, reason, silent_s=now - at_s, connected=False)
            for pc, (reason, at_s) in dict(self._connections.refusals).items()
            if pc in named or now - at_s < REFUSED_FOR_S
        }
        never = GameStatus("", "", 0, State.NOT_SEEN, "", silent_s=now - self._began_s, connected=False)
        absent = [replace(never, name=pc) for pc in named if pc not in seen and pc not in refused]
        return (*rows.values(), *refused.values(), *absent)

    def _game(self, connection: Connection, now: float, connected: bool, counted: GameStatus | None) -> GameStatus:
        hello, health = connection.hello, connection.health
        metrics = {name: value for name, value in health.metrics.items() if math.isfinite(value)}
        reset_s = _behind(RESET_S, metrics)
        rate = self._said.setdefault((connection.name, hello.boot), Rates())
        rate.add(connection.health_s, {TICKS: health.ticks, **reset_s})
        row = GameStatus(
            name=connection.name,
            driver=hello.driver,
            lanes=hello.lanes,
            state=plain(health.state),
            note=plain(health.note, 500),
            ticks_per_s=rate(TICKS),
            ideal_ticks_per_s=TICKS_PER_S * metrics.get("speed", 0.0),
            stale_ticks=self._admission.stale_ticks(health.weights_version, now),
            silent_s=now - connection.heard_s,
            waiting_chunks=health.waiting_chunks,
            finished=counted.finished if counted else 0,
            lost=counted.lost if counted else {},
            ticks=health.ticks,
            lateness_p99_ms=metrics.get("lateness_p99_ms", 0.0),
            reset_s=reset_s,
            reset_share={name: rate(name) for name in reset_s},
            lost_episodes={name: int(count) for name, count in _behind(LOST_EPISODES, metrics).items()},
            cpu_s=metrics.get("cpu_s", 0.0),
            version=plain(hello.version),
            address=connection.address,
            boot=hello.boot,
        )
        return row if connected else replace(row, state=State.LOST, note=connection.reason, **_PLAYS_NOTHING)


#: What changes of a game that is not connected any more.
_PLAYS_NOTHING: dict[str, Any] = {"ticks_per_s": 0.0, "reset_share": {}, "connected": False}


def _behind(prefix: str, metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)}


def read_status(folder: Path) -> FleetStatus | None:
    """Read the newest status of the stages below a run's folder of journals; None if no game has played there.

    Raises:
        DataError: if it is damaged.
    """
    files = [*folder.glob(f"*/{STATUS_FILE}")]
    return load(FleetStatus, Where(max(files, key=lambda file: file.stat().st_mtime))) if files else None
