"""How a fleet does: one file beside the stage's journal, written every second, that people and programs read."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from soulsgraph_clusters.fleet.gateway.admission import Admission, ChunkSink
from soulsgraph_clusters.fleet.gateway.connections import Connection, Connections
from soulsgraph_clusters.fleet.protocol.messages import LONGEST_NAME, MOST_COUNT, plain
from soulsgraph_clusters.fleet.protocol.settings import LOST_EPISODES, RESET_S, State
from soulsgraph_envs.core.config import Between, Where, read_file, to_json, validate
from soulsgraph_envs.core.errors import SoulsGraphError, shown
from soulsgraph_envs.core.files import WriteError, write_text
from soulsgraph_envs.core.machine import boot_id, uptime_s

STATUS_FILE = "status.json"
#: It is written about once a second; up to the last less often where that takes more than a part of a processor's time.
WRITE_EVERY_S, _MOST_SHARE, WRITTEN_WITHIN_S = 1.0, 0.02, 4.0
#: Control ticks a second of a game at speed 1.
TICKS_PER_S = 10.0
#: Window of shares and rates: a game reports once a second.
WINDOW_S = 30.0
#: Rates and times that a page can show; whatever is larger is no measurement.
_MOST_VALUE = 1e15
_Value = Annotated[float, Between(-_MOST_VALUE, _MOST_VALUE)]
_Count = Annotated[int, Between(0, MOST_COUNT)]
_UNREADABLE = "what it last said cannot be read"
#: After so long without another try a PC counts as refused no longer.
REFUSED_FOR_S = 30.0
#: Limits of the counts by name that a PC sends: names, and characters of a name.
_MOST_NAMES, _LONGEST_NAME = 32, 80


@dataclass(frozen=True)
class GameStatus:
    """One game that was seen in the stage; `finished` and `lost` are in decisions, of all its processes seen there.

    Other counts are since its present process began. `finished` and `lost` can be summed up beside what the journal has
    counted: neither another process of the game nor another gateway begins them anew.

    One that is not connected is as it was last seen, and plays nothing. A PC without any game, and one that is refused,
    has a row of its own, named by the PC alone.
    """

    name: str
    driver: str
    lanes: _Count
    state: str
    note: str
    #: What it plays a second beside what its speed allows.
    ticks_per_s: _Value = 0.0
    ideal_ticks_per_s: _Value = 0.0
    #: For how many control ticks newer weights than it plays by have been out.
    stale_ticks: _Value = 0.0
    #: Seconds since its last message, or since its PC was refused; of a PC that was never seen, since the stage began.
    silent_s: _Value = 0.0
    waiting_chunks: _Count = 0
    finished: _Count = 0
    lost: Mapping[str, _Count] = field(default_factory=dict)
    ticks: _Count = 0
    #: How late its latest ticks began.
    lateness_p99_ms: _Value = 0.0
    #: Seconds of its resets by phase, and what part of its recent time they took.
    reset_s: Mapping[str, _Value] = field(default_factory=dict)
    reset_share: Mapping[str, _Value] = field(default_factory=dict)
    #: Episodes that were broken off, by reason.
    lost_episodes: Mapping[str, _Count] = field(default_factory=dict)
    #: CPU time of its process.
    cpu_s: _Value = 0.0
    connected: bool = True
    #: The version of soulsgraph that it plays by, and its machine's address.
    version: str = ""
    address: str = ""
    #: Its process, and what of `finished` and `lost` is of those before it.
    boot: str = ""
    earlier_finished: _Count = 0
    earlier_lost: Mapping[str, _Count] = field(default_factory=dict)

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

    @property
    def share_of_ideal(self) -> float:
        """What it plays a second as a share of what its speed allows."""
        return min(self.ticks_per_s / self.ideal_ticks_per_s, _MOST_VALUE) if self.ideal_ticks_per_s else 0.0

    @property
    def metrics(self) -> dict[str, float]:
        """What is drawn of it, by name; of a PC without a game that it is not there, and for how long."""
        there = {"connected": float(self.connected), "silent_s": self.silent_s}
        if not self.is_game:
            return there
        return there | {
            "ticks_per_s": self.ticks_per_s,
            "share_of_ideal_ticks": self.share_of_ideal,
            "lateness_p99_ms": self.lateness_p99_ms,
            "stale_ticks": self.stale_ticks,
            "waiting_chunks": float(self.waiting_chunks),
            **{f"reset_share/{phase}": share for phase, share in self.reset_share.items()},
            **{f"lost/{reason}": float(count) for reason, count in self.lost.items()},
            **{f"lost_episodes/{reason}": float(count) for reason, count in self.lost_episodes.items()},
        }


@dataclass(frozen=True)
class FleetStatus:
    """A stage's fleet at one moment, `written` in seconds since 1970; `decisions` in the journal by `PC/verdict`."""

    stage: str
    attempt: str
    written: Annotated[float, Between(0.0, _MOST_VALUE)]
    weights_version: _Count
    records: _Count
    decisions: Mapping[str, _Count] = field(default_factory=dict)
    games: tuple[GameStatus, ...] = ()
    #: The run of the machine that wrote it, and its seconds since then.
    boot: str = ""
    uptime_s: Annotated[float, Between(0.0, _MOST_VALUE)] = 0.0

    @classmethod
    def last(cls, folder: Path, attempt: str = "") -> FleetStatus | None:
        """Return the last status of a stage by its folder; None if none can be read, or it is of another attempt."""
        with suppress(SoulsGraphError, OSError):
            status = _load(folder / STATUS_FILE)
            return status if status.attempt == attempt else None
        return None

    def write(self, folder: Path) -> None:
        """Write it into a stage's folder; raises WriteError."""
        # `to_table` would take as long for a thousand games as all else of a status.
        table = {**vars(self), "games": [vars(game) for game in self.games]}
        write_text(folder / STATUS_FILE, f"{to_json(table)}\n")

    @property
    def is_this_machines(self) -> bool:
        """Whether it was written here, since the machine was started."""
        return bool(self.boot) and self.boot == boot_id()

    @property
    def age_s(self) -> float:
        """Its age; of another machine's by both clocks, which may differ, and one of which may have been set."""
        return max(uptime_s() - self.uptime_s, 0.0) if self.is_this_machines else abs(time.time() - self.written)


class Rates:
    """What a game's process plays a second, and what part of its time it resets, over the latest half a minute."""

    def __init__(self) -> None:
        #: What it said when: seconds, ticks, and seconds of resets by phase.
        self._said: deque[tuple[float, int, Mapping[str, float]]] = deque()

    def add(self, said_s: float, ticks: int, reset_s: Mapping[str, float]) -> None:
        """Note what the game said last, at a time of one clock; 0 as long as it said nothing."""
        said = self._said
        if not said or said[-1][0] == 0.0:
            # Nothing was said yet: no rate counts from there.
            said.clear()
        if not said or said_s > said[-1][0]:
            said.append((said_s, ticks, reset_s))
        while len(said) > 2 and said[1][0] < said[-1][0] - WINDOW_S:
            said.popleft()

    @property
    def ticks_per_s(self) -> float:
        """Control ticks a second."""
        return self._rate(lambda ticks, _: ticks)

    @property
    def reset_share(self) -> dict[str, float]:
        """The share of its time in each phase of its resets."""
        phases = self._said[-1][2] if self._said else {}
        return {name: self._rate(lambda _, reset_s, name=name: reset_s.get(name, 0.0)) for name in phases}

    def _rate(self, of: Callable[..., float]) -> float:
        if not self._said:
            return 0.0
        (since_s, *before), (until_s, *now) = self._said[0], self._said[-1]
        return _rate(of(*now) - of(*before), until_s - since_s or math.inf)


class StatusWriter:
    """Describe all gateways' games, and write the description about once a second; several threads may ask.

    `elsewhere` returns how those of other gateways do.
    """

    def __init__(
        self, admission: Admission, connections: Connections, elsewhere: Callable[[], Iterable[GameStatus]] = tuple
    ) -> None:
        self._admission, self._connections, self._describer = admission, connections, Describer(admission)
        self._elsewhere = elsewhere
        self._next_s, self._began_s = 0.0, time.monotonic()
        self._kept: tuple[GameStatus, ...] | None = None
        self._sums = _Sums()
        #: Games as they were last seen, and when: by an earlier gateway of the stage, or by another gateway.
        self._earlier: dict[str, tuple[GameStatus, float]] = {}
        # Without that file, or with one that is damaged, they are seen when they come.
        if last := FleetStatus.last(admission.journal.folder, admission.journal.attempt):
            then_s = self._began_s - last.age_s
            self._earlier = {row.name: (row, then_s - row.silent_s) for row in last.games if row.is_game}
        for row, _ in self._earlier.values():
            self._sums.know(row)

    def keep(self) -> None:
        """Show the games as they are now from here on: the stage is over, and they are sent away."""
        if self._kept is None:
            self._kept = self._rows(time.monotonic())

    def end(self, version: int) -> None:
        """Write the status for the last time: no game plays or is refused in a stage that is over."""
        self.keep()
        self._kept = tuple(row for one in self._kept or () if (row := _ended(one, self._admission.named_pcs)))
        self.update(version, always=True)

    def update(self, version: int, always: bool = False) -> FleetStatus | None:
        """Write the status if it is time to, or `always`, and return it; `version` is that of the newest weights."""
        now, spent_s = time.monotonic(), time.thread_time()
        if now < self._next_s and not always:
            return None
        status = self.describe(version)
        # A full disk is the journal's to report, and no reason to end the gateway.
        with suppress(WriteError):
            status.write(self._admission.journal.folder)
        spent_s = time.thread_time() - spent_s
        self._next_s = now + min(max(WRITE_EVERY_S, spent_s / _MOST_SHARE), WRITTEN_WITHIN_S)
        return status

    def describe(self, version: int) -> FleetStatus:
        """Return how the games do now."""
        journal = self._admission.journal
        games = self._rows(time.monotonic()) if self._kept is None else self._kept
        decisions = dict(journal.decisions)
        now = time.time(), version, journal.end
        return FleetStatus(journal.stage, journal.attempt, *now, decisions, games, boot_id(), uptime_s())

    def _rows(self, now: float) -> tuple[GameStatus, ...]:
        """Return every game that was seen in the stage, and the PCs that play none: refused, or never seen."""
        open_now = {connection.name for connection in self._connections.live}
        earlier, there = self._earlier, {row.name: self._sums.of(row) for row in self._elsewhere()}
        # What another gateway does not report any more is shown as it was.
        self._earlier = earlier | {name: (row, now - row.silent_s) for name, row in there.items()}
        before = {name: _lost(row, row.note, now - heard_s) for name, (row, heard_s) in earlier.items()}
        own: dict[str, GameStatus] = {}
        for connection, latest in self._describer.rows(self._connections.latest):
            summed = self._sums.of(latest)
            row = summed if latest.name in open_now else _lost(summed, connection.reason, latest.silent_s)
            # Of two gateways that lost a game, the one that heard it last says how it was.
            own[row.name] = min((row, before.get(row.name, row)), key=lambda one: (not one.connected, one.silent_s))
        rows = own | {name: row for name, row in before.items() if name not in own} | there
        seen = {name.partition("/")[0] for name in rows}
        known = dict(self._connections.refusals)
        # Who is refused tries again every other second; who does not any more is not refused, but gone.
        refused = {pc: one for pc, one in known.items() if now - one[1] < REFUSED_FOR_S}
        absent = [_absent(pc, State.REFUSED, now - at_s, reason) for pc, (reason, at_s) in refused.items()]
        never = [pc for pc in self._admission.named_pcs if pc not in seen and pc not in refused]
        absent += [_absent(pc, State.NOT_SEEN, now - self._began_s, _was_refused(known.get(pc))) for pc in never]
        return (*rows.values(), *absent)


class Describer:
    """Describe the games of one gateway; several threads may ask."""

    def __init__(self, publisher: ChunkSink) -> None:
        self._publisher = publisher
        #: What each game's process said in the window, and the last time before it.
        self._said: dict[tuple[str, str], Rates] = {}
        self._access = threading.Lock()

    def rows(self, connections: Iterable[Connection]) -> list[tuple[Connection, GameStatus]]:
        """Return how each connection's game does now."""
        with self._access:
            said, self._said = self._said, {}
            return [(connection, self._game(connection, said, time.monotonic())) for connection in connections]

    def _game(self, connection: Connection, said: Mapping[tuple[str, str], Rates], now: float) -> GameStatus:
        hello, health = connection.hello, connection.health
        metrics = {name: value for name, value in health.metrics.items() if math.isfinite(value)}
        reset_s = _behind(RESET_S, metrics)
        own = self._said[connection.name, hello.boot] = said.get((connection.name, hello.boot)) or Rates()
        own.add(connection.health_s, health.ticks, reset_s)
        return GameStatus(
            name=connection.name,
            driver=hello.driver,
            lanes=hello.lanes,
            state=health.state,
            note=health.note,
            ticks_per_s=own.ticks_per_s,
            ideal_ticks_per_s=TICKS_PER_S * metrics.get("speed", 0.0),
            stale_ticks=self._publisher.stale_ticks(health.weights_version, now),
            silent_s=now - connection.heard_s,
            waiting_chunks=health.waiting_chunks,
            finished=health.finished_decisions,
            lost=_bounded(health.lost_decisions),
            ticks=health.ticks,
            lateness_p99_ms=metrics.get("lateness_p99_ms", 0.0),
            reset_s=reset_s,
            reset_share=own.reset_share,
            lost_episodes={name: int(count) for name, count in _behind(LOST_EPISODES, metrics).items()},
            cpu_s=metrics.get("cpu_s", 0.0),
            version=plain(hello.version),
            address=connection.address,
            boot=hello.boot,
        )


def _rate(difference: float, seconds: float) -> float:
    return min(max(difference, 0.0) / seconds, _MOST_VALUE)


#: What changes of a game that is not connected any more.
_PLAYS_NOTHING: dict[str, Any] = {"ticks_per_s": 0.0, "reset_share": {}, "connected": False}


def _lost(row: GameStatus, reason: str, silent_s: float) -> GameStatus:
    """Return a game that is not connected any more: what it counted is kept, and it plays nothing."""
    return replace(row, state=State.LOST, note=reason, silent_s=silent_s, **_PLAYS_NOTHING)


class _Sums:
    """What games finished and lost in all their processes, of which each counts from 0."""

    def __init__(self) -> None:
        #: By name: the present process, what it said the latest time, and the sums of those before it.
        self._known: dict[str, tuple[str, GameStatus, int, Counter[str]]] = {}

    def know(self, row: GameStatus) -> None:
        """Go on from a row that an earlier gateway wrote."""
        own = Counter(dict(row.lost)) - Counter(dict(row.earlier_lost))
        said = replace(row, finished=max(row.finished - row.earlier_finished, 0), lost=dict(own))
        self._known[row.name] = row.boot, said, row.earlier_finished, Counter(dict(row.earlier_lost))

    def of(self, row: GameStatus) -> GameStatus:
        """Return a game's row, as its present process counts, with the sums of all."""
        boot, said, finished, lost = self._known.get(row.name, (row.boot, row, 0, Counter[str]()))
        if boot != row.boot:
            finished, lost = finished + said.finished, lost + Counter(dict(said.lost))
        self._known[row.name] = row.boot, row, finished, lost
        if not finished and not lost:
            return row
        total: dict[str, Any] = {"finished": row.finished + finished, "lost": dict(lost + Counter(dict(row.lost)))}
        return replace(row, **total, earlier_finished=finished, earlier_lost=dict(lost))


def _ended(row: GameStatus, named: Collection[str]) -> GameStatus | None:
    """Return a row as it is when the stage is over: what was connected plays nothing; None for a stranger."""
    if row.is_game:
        return replace(row, state=State.ENDED, note="", **_PLAYS_NOTHING) if row.connected else row
    if row.state != State.REFUSED:
        return row
    return replace(row, state=State.NOT_SEEN, note=_was_refused((row.note, 0.0))) if row.name in named else None


def _was_refused(refusal: tuple[str, float] | None) -> str:
    return "" if refusal is None else f"it was refused, and does not try any more: {refusal[0]}"


def _absent(pc: str, state: str, silent_s: float, note: str = "") -> GameStatus:
    """Return the row of a PC that plays no game."""
    return GameStatus(pc, driver="", lanes=0, state=state, note=note, silent_s=silent_s, connected=False)


def _behind(prefix: str, metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics whose names begin with a prefix, without it."""
    return _bounded({name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)})


_N = TypeVar("_N", int, float)


def _bounded(counts: Mapping[str, _N]) -> dict[str, _N]:
    """Return counts by name as far as one page can show: a PC may send any names."""
    return {plain(name, _LONGEST_NAME): counts[name] for name in sorted(counts)[:_MOST_NAMES]}


def read_status(*folders: Path) -> FleetStatus | None:
    """Read the newest status of the stages below folders of a run; None if no game has played there.

    Raises:
        DataError: if it is damaged.
    """
    files = [file for folder in folders for file in folder.glob(f"*/{STATUS_FILE}")]
    files.sort(key=lambda file: file.stat().st_mtime)
    if not files:
        return None
    newest = _load(files[-1])
    # The clock may have been set between two stages: within a run of the machine another one counts.
    for file in files[:-1] if newest.boot else []:
        with suppress(SoulsGraphError):
            found = _load(file)
            if found.boot == newest.boot and found.uptime_s > newest.uptime_s:
                newest = found
    return newest


def _load(file: Path) -> FleetStatus:
    """Read a status row by row: a game whose numbers are out of any range keeps its name, and the others all they have.

    Raises:
        ReadError: if the system refuses to read it.
        DataError: if it is damaged.
    """
    where = Where(file)
    table = read_file(where, "JSON")
    rows = table.pop("games", []) if isinstance(table, dict) else []
    where.at("games").demand(isinstance(rows, list), "a list", shown(rows))
    status = validate(FleetStatus, table, where)
    games = (_read_game(row, where.at("games").at(index)) for index, row in enumerate(rows))
    return replace(status, games=tuple(games))


def _read_game(row: Any, where: Where) -> GameStatus:
    try:
        return validate(GameStatus, row, where)
    except SoulsGraphError:
        name = row.get("name") if isinstance(row, dict) else None
        if not isinstance(name, str) or len(name) > LONGEST_NAME:
            raise
        return _absent(name, State.LOST, 0.0, _UNREADABLE)
