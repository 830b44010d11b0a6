"""Messages that no PC of ours sends, by the million: damaged, cut, put together wrongly, or made up of odd values."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from fakes.fleet_here import random_weights
from soulsgraph_clusters.fleet.gateway.admission import Admission
from soulsgraph_clusters.fleet.gateway.connections import Connection
from soulsgraph_clusters.fleet.gateway.runner import read_chunk
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.messages import (
    CODE,
    check_chunk,
    check_hello,
    decode_weights,
    encode_columns,
    encode_weights,
    parse_message,
)
from soulsgraph_clusters.fleet.protocol.settings import PROTOCOL, FleetError, FleetSettings, play_digest
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_clusters.fleet.store import Journal
from soulsgraph_envs.games.opening import make_game
from soulsgraph_policies.learning.hyperparameters import skill_hyperparameters
from soulsgraph_policies.learning.sampler import Chunk

_STAGE, _LANES, _BOOT = "lock_on", 2, "00000000000000b0"
#: After this many messages another journal is begun.
_MOST_IN_A_JOURNAL = 20_000
#: Chunks that are written together.
_GROUP = 64
_ODD_WORDS = (
    *("0", "-1", "1", "7", "1e3", "9" * 20, "18446744073709551615", "9223372036854775807", "null", "true", "[]", "{}"),
    *('"F64"', '"F32"', '"F16"', '"BF16"', '"I64"', '"I32"', '"U8"', '"BOOL"', '"F8_E4M3"', '"dtype"', '"shape"'),
    *('"data_offsets"', '"__metadata__"', '"transitions/lock_on/lanes"', '"episodes/lock_on/rows"', '""', "\0", "Ü"),
)
_WORD = re.compile(r'-?\d+|"[^"]*"')
_ENTRY = re.compile(r'\{"dtype":("\w+"),"shape":(\[[\d,]*\]),"data_offsets":(\[\d+,\d+\])\}')
_ODD_NUMBERS = (0, 1, 2, 31, 255, 8192, 8193, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1)
_ODD_TEXTS = ("", "x", "a/b", "\n", '"', "0" * 16, "f" * 32, "f" * 33, "Ü" * 300, "../..", "attic")


def fuzz(messages: int, seed: int) -> Counter[str]:
    """Send messages drawn by a seed through a gateway's checks, weights through a PC's, and count what they became.

    Each ends as a `FleetError` of one line or with a verdict in the journal, and what the journal says is to be
    learned from can be read by the learner.

    Raises:
        AssertionError: if a refusal has several lines, or a journal does not add up.
        Exception: whatever else a message led to.
    """
    outcomes, plays = Counter[str](), {"camera": "camera", _STAGE: _STAGE}
    task = StageTask("iudex-phase1", plays, {_STAGE: skill_hyperparameters(4000)}, 10.0)
    played = _played(task)
    for begin in range(0, messages, _MOST_IN_A_JOURNAL):
        with TemporaryDirectory() as folder:
            run = _Run(Path(folder), task, played, random.Random(f"{seed} {begin}"))
            outcomes += run.send(min(_MOST_IN_A_JOURNAL, messages - begin))
    return outcomes


def _played(task: StageTask) -> list[Chunk]:
    """Return two short chunks, the second with the end of an episode in it."""
    sampler = task.sampler(make_game(_LANES), seed=5)
    sampler.set_networks(task.networks(random_weights(task)))
    chunks = [sampler.sample(4)]
    while not (chunks[-1].transitions and len(chunks[-1].episodes.get(_STAGE, ()))):
        chunks.append(sampler.sample(8))
    return [chunks[0], chunks[-1]]


class _Run:
    """Messages to one journal."""

    def __init__(self, folder: Path, task: StageTask, played: list[Chunk], draw: random.Random) -> None:
        self._folder, self._task, self._draw = folder, task, draw
        self._journal = Journal(folder, _STAGE)
        self._admission = Admission(self._journal, task, 0, FleetSettings())
        self._hello = wire.Hello(
            protocol=PROTOCOL, version="0.1.0", pc="attic", game="1", boot=_BOOT, driver="simulator", lanes=_LANES
        )
        self._hello.digests[CODE] = play_digest()
        self._connection = Connection(self._hello, 0.0)
        self._columns = [encode_columns(chunk) for chunk in played]
        self._decisions = [{name: len(part) for name, part in chunk.transitions.items()} for chunk in played]
        self._weights = encode_weights({_STAGE: random_weights(task)[_STAGE]})
        self._group: list[tuple[Connection, wire.Chunk]] = []
        self._outcomes: Counter[str] = Counter()

    def send(self, messages: int) -> Counter[str]:
        """Send messages, and check that the journal holds every chunk that was taken exactly once."""
        for _ in range(messages):
            weights = self._draw.random() < 0.1
            outcome = self._take_weights(self._tampered(self._weights)) if weights else self._take(self._message())
            self._outcomes[outcome] += 1
            if len(self._group) >= _GROUP:
                self._write()
        self._write()
        counted = dict(self._journal.decisions)
        self._journal.close()
        again = Journal(self._folder, _STAGE)
        assert dict(again.decisions) == counted, "expected the journal to say the same once it is opened again"
        for record in again.read(0, messages):
            self._outcomes[f"chunk {record.refused or 'learned'}"] += 1
            read_chunk(record, self._task, b"")
        again.close()
        return self._outcomes

    def _take(self, data: bytes) -> str:
        """Do what a gateway does with a message, and return what became of it."""
        kind, line = "message", ""
        try:
            message = parse_message(wire.FromGame, data, "PC")
            kind = message.WhichOneof("message") or "nothing"
            if kind == "hello":
                check_hello(message.hello, "attic", FleetSettings())
            elif kind == "chunk":
                check_chunk(message.chunk)
                self._group.append((self._connection, message.chunk))
        except FleetError as refusal:
            line = str(refusal)
        assert "\n" not in line, f"expected one line, found {line!r}"
        return f"{kind} {'refused' if line else 'taken'}"

    def _take_weights(self, data: bytes) -> str:
        """Do what a PC does with weights, and return what became of them."""
        try:
            decode_weights(data)
        except FleetError:
            return "weights refused"
        return "weights taken"

    def _write(self) -> None:
        answers = self._admission.write(self._group, 0.0)
        answered = Counter((answer.boot, sequence) for _, answer in answers for sequence in answer.sequences)
        assert answered == Counter((chunk.boot, chunk.sequence) for _, chunk in self._group), "expected every answer"
        self._group = []

    def _message(self) -> bytes:
        draw = self._draw
        share = draw.random()
        if share < 0.1:
            return draw.randbytes(draw.randrange(60))
        if share < 0.2:
            health = wire.Health(state="playing", ticks=5, lost_decisions={"x": 3}, metrics={"speed": 1.0})
            message = wire.FromGame(health=health)
        elif share < 0.35:
            message = wire.FromGame(hello=self._hello)
            if draw.random() < 0.5:
                self._set_odd(message.hello)
        else:
            message = wire.FromGame(chunk=self._chunk())
        data: bytes = message.SerializeToString()
        return self._damaged(data) if draw.random() < 0.3 else data

    def _chunk(self) -> wire.Chunk:
        draw = self._draw
        which = draw.randrange(len(self._columns))
        chunk = wire.Chunk(
            boot=_BOOT,
            sequence=draw.randrange(2 * _MOST_IN_A_JOURNAL),
            stage=_STAGE,
            attempt=self._journal.attempt,
            decisions=self._decisions[which],
            columns=self._columns[which] if draw.random() < 0.1 else self._tampered(self._columns[which]),
        )
        if draw.random() < 0.9:
            chunk.versions.extend([0] * sum(chunk.decisions.values()))
            chunk.ticks.extend(range(len(chunk.versions) - (draw.random() < 0.1)))
        if chunk.versions and draw.random() < 0.2:
            odd = draw.choice((chunk.versions, chunk.ticks))
            odd[draw.randrange(len(odd))] = draw.choice(_ODD_NUMBERS)
        if draw.random() < 0.1:
            self._set_odd(chunk)
        if draw.random() < 0.1:
            chunk.decisions[draw.choice((_STAGE, "camera", *_ODD_TEXTS))] = draw.choice(_ODD_NUMBERS)
        return chunk

    def _set_odd(self, message: wire.Hello | wire.Chunk) -> None:
        """Set one of a message's plain fields to an odd value of its type."""
        names = [
            field.name for field in message.DESCRIPTOR.fields if isinstance(getattr(message, field.name), str | int)
        ]
        name = self._draw.choice(names)
        odd = _ODD_TEXTS if isinstance(getattr(message, name), str) else (0, 1, 2, 257, 2**32 - 1)
        setattr(message, name, bool(odd[0]) if name == "only_asks" else self._draw.choice(odd))

    def _tampered(self, data: bytes) -> bytes:
        """Return a safetensors file with odd words in its head, or with damaged bytes anywhere."""
        if self._draw.random() < 0.5:
            return self._damaged(data)
        size = int.from_bytes(data[:8], "little")
        head = data[8 : 8 + size].decode()
        if self._draw.random() < 0.1:
            # An entry as a list: the library that loads files reads it, too.
            head = _ENTRY.sub(r"[\1,\2,\3]", head, count=self._draw.choice((0, 1)))
        for _ in range(self._draw.choice((1, 1, 2, 3))):
            word = self._draw.choice([*_WORD.finditer(head)])
            head = head[: word.start()] + self._draw.choice(_ODD_WORDS) + head[word.end() :]
        found = head.encode()
        return len(found).to_bytes(8, "little") + found + data[8 + size :]

    def _damaged(self, data: bytes) -> bytes:
        draw, whole = self._draw, bytearray(data)
        for _ in range(draw.choice((1, 1, 2, 4, 16))):
            # Most of what is checked stands at the beginning.
            place = draw.randrange(min(len(whole), draw.choice((12, 400, 10**6))) + 1)
            end = place + draw.choice((1, 1, 2, 8, 100))
            match draw.randrange(5):
                case 0:
                    whole[place:end] = b""
                case 1:
                    whole[place:place] = draw.randbytes(end - place)
                case 2:
                    whole[place:place] = whole[draw.randrange(len(whole) + 1) :][: end - place]
                case 3 if draw.random() < 0.2:
                    del whole[place:]
                case _ if place < len(whole):
                    whole[place] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, whole[place] ^ 1 << draw.randrange(8)))
        return bytes(whole)
