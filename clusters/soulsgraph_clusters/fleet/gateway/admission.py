"""What a gateway decides: who may play and what, which chunks are learned from, and why the others are refused.

Only the gateway beside the journal decides; others ask it (`coordinator`). At the end of the module: the queue in which
chunks wait to be written.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from soulsgraph_clusters.fleet.gateway.connections import Connection, OtherGateways
from soulsgraph_clusters.fleet.gateway.journal import JOURNALED, MOST_RANGES, Journal
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.messages import check_moments, decode_columns, encode_weights, to_bytes
from soulsgraph_clusters.fleet.protocol.settings import PC, FleetError, FleetSettings, rest_share
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_envs.core.config import Where, read_file, to_json, validate
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import write_text
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_policies.agents.inference import Weights

#: The verdicts on chunks that are not learned from.
STALE, OTHER_STAGE, MALFORMED, SHARE, ALTERED = "stale", "other stage", "malformed", "over its share", "altered"
#: Bytes of a digest of weights.
_DIGEST = 32
#: Decisions that a PC may be ahead of its share: a stage's first chunks come from somewhere.
SHARE_SLACK = 256
#: Games of one PC in a stage; each other number of lanes is another game.
MOST_GAMES = 256
#: Published versions whose time is kept.
_MOST_VERSIONS = 10_000
#: A PC plays beside others while their latest chunks are younger.
_PLAYS_S = 10.0
_TICK_S = 0.1
#: Chunks wait for each other so long before they are written together.
GROUP_S = 0.05
#: A journal that cannot be written is tried again after so long; PCs keep their chunks meanwhile.
RETRY_AFTER_S = 1.0
#: When a stage ends, what was received has so long to be written, unless the journal cannot be written.
WRITE_WITHIN_S = 10.0
#: Chunks received and not yet written, and their bytes; with more, the games' streams are not read on.
MOST_WAITING, MOST_WAITING_BYTES = 1024, 64 * 2**20
#: Latest chunks of which the queue's age is known.
_MOST_AGES = 10_000

#: Weights at one moment: their version, the modules' weights, and the decisions received of each that learns.
Snapshot = tuple[int, Mapping[str, Weights], Mapping[str, int]]


#: Chunks that are written together, each with its game, and their acknowledgements.
ChunkGroup = Sequence[tuple[Connection, wire.Chunk]]
Answers = list[tuple[Connection, wire.Acknowledgement]]


class ChunkSink(ABC):
    """What a gateway needs of whoever takes its chunks, and the weights that it has offered, and for how long.

    `task` is what the games play in the `stage`. `admit` and `write` may block, and are called in any thread.
    """

    def __init__(self, stage: str, task: StageTask) -> None:
        self.stage, self.task = stage, task
        self._versions: list[int] = []
        self._published_s: list[float] = []
        self._messages: dict[tuple[int, bool], bytes] = {}

    @abstractmethod
    def admit(self, connection: Connection) -> None:
        """Let a game play; raises SoulsGraphError if it may not, or cannot now."""

    @abstractmethod
    def task_for(self, connection: Connection) -> wire.Task:
        """Return what a game that was admitted is to play."""

    @abstractmethod
    def require_room(self, connection: Connection, chunk: wire.Chunk) -> None:
        """Refuse a chunk of a PC with endless processes or gaps; raises FleetError."""

    @abstractmethod
    def write(self, group: ChunkGroup, now_s: float) -> Answers:
        """Write chunks to the journal; return the acknowledgements, or raise SoulsGraphError and be asked again."""

    def published(self, version: int, now_s: float) -> None:
        """Note when a version of the weights went out."""
        if not self._versions or version > self._versions[-1]:
            self._versions.append(version)
            self._published_s.append(now_s)
            del self._versions[:-_MOST_VERSIONS], self._published_s[:-_MOST_VERSIONS]
        self._messages = {}

    def weights_message(self, snapshot: Snapshot, first: bool) -> bytes:
        """Return the message of offered weights as it is sent to every game; any thread may ask.

        It has all modules at first, then those that learn.
        """
        version, weights, decisions = snapshot
        kept, key = self._messages, (version, first)
        if key not in kept:
            sent = weights if first else {name: own for name, own in weights.items() if name in self.task.learns}
            message = wire.Weights(version=version, arrays=encode_weights(sent), decisions=decisions)
            kept[key] = to_bytes(wire.ToGame(weights=message))
        return kept[key]

    def stale_ticks(self, version: int, now_s: float) -> float:
        """Return for how many control ticks of a game at speed 1 newer weights than these have been out."""
        # Versions from before this gateway began are as old as the first that it published.
        newer = bisect_right(self._versions, version)
        return (now_s - self._published_s[newer]) / _TICK_S if newer < len(self._versions) else 0.0


_TOO_MANY_BOOTS = (
    "{pc}: expected at most {most:,} processes of its games and gaps in their chunks in a stage, found more; look why "
    "they are started so often, and issue a token of another name for this PC."
)


class Admission(ChunkSink):
    """Take chunks of one stage into its journal; `seed` is the stage's. Its methods may be called in any thread."""

    def __init__(self, journal: Journal, task: StageTask, seed: int, settings: FleetSettings) -> None:
        super().__init__(journal.stage, task)
        self.journal, self._seed, self._settings = journal, seed, settings
        self._description = task.to_json()
        self._lanes = _LaneTable(journal.folder / "lanes.json")
        self._boots = _BootTable(journal.folder / "boots.json")
        #: When each PC's latest chunk came.
        self._heard_s: dict[str, float] = {}
        self._writing, self._closed = threading.Lock(), False
        #: Of what frozen skills are to be played by; empty before it is known.
        self._frozen = b""
        #: Games that play through other gateways.
        self.elsewhere = OtherGateways()

    @property
    def named_pcs(self) -> tuple[str, ...]:
        """The PCs that the fleet's file names; none where every PC with a token may play."""
        return tuple(self._settings.pcs)

    def admit(self, connection: Connection, gateway: int = 0) -> None:
        """Number a game's lanes and boots; `gateway` is the relay that it dialled, 0 for the one beside the journal.

        Raises:
            FleetError: if its PC has had too many games or processes, or another process plays as it elsewhere, or
                another machine as its PC.
            WriteError: if they cannot be written down.
        """
        self._require_room(connection, connection.hello.boot, 1)
        self.elsewhere.claim(connection.hello, gateway)
        self._lanes.first(connection.name, connection.hello.lanes)
        self._boots.number(connection.name, connection.hello.boot)
        if not gateway:
            # Writing takes a moment, in which another gateway may have let its like in.
            self.elsewhere.claim(connection.hello, gateway)

    def require_room(self, connection: Connection, chunk: wire.Chunk) -> None:
        """Refuse a chunk of a PC with endless processes or gaps; raises FleetError."""
        # What came before it may not be in the journal yet.
        if connection.latest != (chunk.boot, chunk.sequence - 1):
            self._require_room(connection, chunk.boot, chunk.sequence)
        connection.latest = chunk.boot, chunk.sequence

    def _require_room(self, connection: Connection, boot: str, sequence: int) -> None:
        pc = connection.hello.pc
        # Nothing that was seen is forgotten instead: it would be taken a second time.
        if not self.journal.deduplication.has_room(pc, connection.hello.game, boot, sequence):
            raise FleetError(_TOO_MANY_BOOTS.format(pc=pc, most=MOST_RANGES))

    def task_for(self, connection: Connection) -> wire.Task:
        """Return what a game that was admitted is to play."""
        first = self._lanes.first(connection.name, connection.hello.lanes)
        # A game that was started again has other fights than before.
        boot = self._boots.number(connection.name, connection.hello.boot)
        seed = derive_seeds(np.uint64(self._seed), first, *((boot,) if boot else ()))
        allowed = self._settings.pcs.get(connection.hello.pc, PC())
        return wire.Task(
            stage=self.journal.stage,
            attempt=self.journal.attempt,
            description=self._description,
            first_lane=first,
            seed=int(seed[0]) >> 1,
            speed=allowed.most_speed,
        )

    def freeze(self, weights: Mapping[str, Weights]) -> None:
        """Refuse what is played by other weights of frozen skills than these, if modules of all of them are there."""
        frozen = self.task.frozen
        if frozen and weights.keys() >= {*frozen.values()}:
            self._frozen = self.task.frozen_digest(weights.__getitem__)

    def write(self, group: ChunkGroup, now_s: float) -> Answers:
        """Write chunks to the journal, each with its verdict, and return the acknowledgements to send.

        Raises:
            WriteError: if the journal cannot be written; nothing is acknowledged then.
            FleetError: if the stage is over.
        """
        taken: Counter[str] = Counter()
        there: set[tuple[str, str, int]] = set()
        with self._writing:
            if self._closed:
                raise FleetError("journal: expected a stage under way, found its end; the next one takes this.")
            records = [self._record(connection, chunk, now_s, taken, there) for connection, chunk in group]
            self.journal.append(records)
        answers: dict[tuple[Connection, str], wire.Acknowledgement] = {}
        for (connection, chunk), record in zip(group, records, strict=True):
            answer = answers.setdefault((connection, chunk.boot), wire.Acknowledgement(boot=chunk.boot))
            answer.sequences.append(chunk.sequence)
            if record.refused:
                answer.refused[record.refused] += sum(chunk.decisions.values())
        return [(connection, answer) for (connection, _), answer in answers.items()]

    def close(self) -> None:
        """Close the journal, once what is being written is there."""
        with self._writing:
            self._closed = True
            self.journal.close()

    def _record(
        self,
        connection: Connection,
        chunk: wire.Chunk,
        now_s: float,
        taken: Counter[str],
        there: set[tuple[str, str, int]],
    ) -> wire.Record:
        """Return a chunk's record.

        `taken` counts the decisions of its group that are to be learned from, by PC; `there` are the group's chunks.
        """
        pc, game, decisions = connection.hello.pc, connection.hello.game, sum(chunk.decisions.values())
        self._heard_s[pc] = now_s
        first, verdict, key = 0, "", (connection.name, chunk.boot, chunk.sequence)
        if key not in there and (pc, game, chunk.boot, chunk.sequence) not in self.journal.deduplication:
            verdict = self._verdict(connection, chunk, now_s) or self._share_verdict(pc, decisions, now_s, taken)
            try:
                first = 0 if verdict else self._lanes.first(connection.name, connection.hello.lanes)
            except FleetError:
                # A game that was not let in: of one that was, the lanes have their number.
                verdict = OTHER_STAGE
            taken[pc] += 0 if verdict else decisions
            there.add(key)
        record = wire.Record(pc=pc, game=game, first_lane=first, refused=verdict, chunk=chunk)
        if verdict:
            for name in ("columns", "versions", "ticks", "frozen"):
                record.chunk.ClearField(name)
        return record

    def _verdict(self, connection: Connection, chunk: wire.Chunk, now_s: float) -> str:
        if (chunk.stage, chunk.attempt) != (self.journal.stage, self.journal.attempt):
            return OTHER_STAGE
        if self.stale_ticks(chunk.weights_version, now_s) > self._settings.most_stale_ticks:
            return STALE
        if len(chunk.frozen) not in (0, _DIGEST):
            return MALFORMED
        # Who sends none is not compared: a bare client, as benchmarks have.
        if chunk.frozen and self._frozen not in (b"", chunk.frozen):
            return ALTERED
        try:
            columns = decode_columns(chunk.columns, self.task.spaces, self.task.terms)
            check_moments(chunk)
        except FleetError:
            return MALFORMED
        found = columns.transitions
        counts = {name: len(part) for name, part in found.items()}
        # A lane beyond the game's own is another game's.
        most = {name: connection.hello.lanes * len(self.task.skills_of([name])) for name in found}
        own = all(int(part.lanes.max()) < most[name] for name, part in found.items())
        ended = [part.lanes for part in columns.episodes.values()]
        own = own and all(lanes.min() >= 0 and lanes.max() < connection.hello.lanes for lanes in ended)
        return "" if found and own and counts == dict(chunk.decisions) else MALFORMED

    def _share_verdict(self, pc: str, decisions: int, now_s: float, taken: Mapping[str, int]) -> str:
        batch_shares = self.journal.batch_shares
        # A PC that the fleet's file got since the stage began: nothing would be drawn of it.
        if batch_shares and pc not in batch_shares and not rest_share(batch_shares):
            return SHARE
        share = self._settings.pcs.get(pc, PC()).share
        others = any(now_s - heard_s < _PLAYS_S for other, heard_s in self._heard_s.items() if other != pc)
        if share == 1.0 or not others:
            return ""
        journaled = {key: count for key, count in self.journal.decisions.items() if key.endswith(f"/{JOURNALED}")}
        own = journaled.get(f"{pc}/{JOURNALED}", 0) + taken.get(pc, 0) + decisions
        total = sum(journaled.values()) + sum(taken.values()) + decisions
        return SHARE if own > share * total + SHARE_SLACK else ""


class _Table:
    """Rows by name, kept beside the journal; one that was put is in the file before anyone counts on it."""

    def __init__(self, path: Path, kind: Any) -> None:
        self._path, self._access, where = path, threading.Lock(), Where(path)
        self._rows: dict[str, Any] = dict(validate(kind, read_file(where), where)) if path.exists() else {}

    def _put(self, name: str, row: Sequence[int | str]) -> None:
        """Add a row, first in the file: one that is not there would be another's after a restart.

        Raises:
            WriteError: if it cannot be written down.
        """
        rows = {**self._rows, name: row}
        lines = ",\n".join(f"  {to_json(key)}: {to_json(list(one))}" for key, one in rows.items())
        write_text(self._path, f"{{\n{lines}\n}}\n")
        self._rows = rows


class _LaneTable(_Table):
    """Numbers the lanes of every game that ever joined the stage: the first and the count of each game's."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, Mapping[str, tuple[int, int]])

    def first(self, name: str, lanes: int) -> int:
        """Return the first of a game's lanes; a game of another number of lanes is another one.

        Raises:
            FleetError: if they are new, and its PC has too many games.
            WriteError: if they are new, and cannot be written down.
        """
        key = f"{name} {lanes}"
        with self._access:
            if key not in self._rows:
                pc = name.partition("/")[0]
                if sum(one.partition("/")[0] == pc for one in self._rows) >= MOST_GAMES:
                    raise FleetError(
                        f"{pc}: expected at most {MOST_GAMES} games of a PC in a stage, found another; let its games "
                        "keep their names and lanes."
                    )
                self._put(key, (sum(count for _, count in self._rows.values()), int(lanes)))
            first: int = self._rows[key][0]
            return first


class _BootTable(_Table):
    """Numbers the boots of every game in the order in which they joined the stage."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, Mapping[str, tuple[str, ...]])

    def number(self, name: str, boot: str) -> int:
        """Return the number of a game's boot, 0 for the first one.

        Raises:
            FleetError: if it is new, and its PC has had too many.
            WriteError: if it is new, and cannot be written down.
        """
        with self._access:
            known: tuple[str, ...] = self._rows.get(name, ())
            if boot not in known:
                pc = name.partition("/")[0]
                if sum(len(own) for one, own in self._rows.items() if one.partition("/")[0] == pc) >= MOST_RANGES:
                    raise FleetError(_TOO_MANY_BOOTS.format(pc=pc, most=MOST_RANGES))
                known = (*known, boot)
                self._put(name, known)
            return known.index(boot)


class ChunkQueue:
    """Let chunks wait, and write those that came within a moment together, with one fsync.

    `note` is called with why the journal cannot be written, and when it can be again. A game that plays frozen skills
    by other weights counts as one that has none from then on: it is to be sent all.
    """

    def __init__(self, admission: ChunkSink, note: Callable[[str], None]) -> None:
        self._admission, self._note = admission, note
        self._waiting: asyncio.Queue[tuple[Connection, wire.Chunk, float]] = asyncio.Queue(MOST_WAITING)
        self._bytes = 0
        #: Whether chunks are taken, which is not so while a stage ends, and whether they are written: not between two.
        self._takes, self._writes = asyncio.Event(), asyncio.Event()
        self.begin_stage(admission)
        #: Set while nothing can be written.
        self._fails = asyncio.Event()
        #: Seconds from a chunk's receipt until it is in the journal, of the latest chunks.
        self.ages_s: deque[float] = deque(maxlen=_MOST_AGES)
        #: Set whenever something was appended to the journal.
        self.appended = threading.Event()

    async def put(self, connection: Connection, chunk: wire.Chunk) -> None:
        """Let a chunk wait to be written; where too much waits already, its game is not the one that is silent."""
        connection.held = True
        try:
            await self._takes.wait()
            while self._bytes > MOST_WAITING_BYTES:
                await asyncio.sleep(GROUP_S)
            await self._waiting.put((connection, chunk, time.monotonic()))
            self._bytes += chunk.ByteSize()
        finally:
            connection.held, connection.heard_s = False, asyncio.get_running_loop().time()

    async def write(self) -> None:
        """Write what comes, and acknowledge it, until it is cancelled."""
        try:
            while True:
                await self._write_group()
        finally:
            self._fails.set()

    async def _write_group(self) -> None:
        group = [await self._waiting.get()]
        await asyncio.sleep(GROUP_S)
        while not self._waiting.empty():
            group.append(self._waiting.get_nowait())
        answers = await self._written([(connection, chunk) for connection, chunk, _ in group])
        self.appended.set()
        now_s = time.monotonic()
        self.ages_s.extend(now_s - received_s for _, _, received_s in group)
        for connection, answer in answers:
            connection.acknowledge(answer)
            # What an earlier process played says nothing of this one.
            if ALTERED in answer.refused and answer.boot == connection.hello.boot:
                self._note(f"{connection.name}: expected frozen skills to play by the stage's weights, found others")
                connection.weights_version = -1
        for connection, chunk, _ in group:
            if connection.refused:
                connection.refuse(connection.refused)
            self._bytes -= chunk.ByteSize()
            self._waiting.task_done()

    async def _written(
        self, group: list[tuple[Connection, wire.Chunk]]
    ) -> list[tuple[Connection, wire.Acknowledgement]]:
        """Write a group, and try again while that fails."""
        loop = asyncio.get_running_loop()
        while True:
            await self._writes.wait()
            try:
                answers = await loop.run_in_executor(None, self._admission.write, group, loop.time())
            except SoulsGraphError as error:
                self._fails.set()
                self._note(str(error))
                await asyncio.sleep(RETRY_AFTER_S)
                continue
            if self._fails.is_set():
                self._fails.clear()
                self._note("the journal is written again")
            return answers

    async def end_stage(self) -> None:
        """Wait until what came is acknowledged, or cannot be; that and what comes now waits for the next stage."""
        self._takes.clear()
        ends = [asyncio.create_task(end) for end in (self._waiting.join(), self._fails.wait())]
        await asyncio.wait(ends, timeout=WRITE_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        self._writes.clear()
        self._takes.set()

    def begin_stage(self, admission: ChunkSink) -> None:
        """Let this admission write what waits and what comes."""
        self._admission = admission
        self._takes.set()
        self._writes.set()
