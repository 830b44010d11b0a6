import json
import math
import time
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor
from prometheus_client import CollectorRegistry, generate_latest

from soulsgraph_clusters.fleet.gateway.admission import MALFORMED, Admission
from soulsgraph_clusters.fleet.gateway.connections import Connection, Connections
from soulsgraph_clusters.fleet.gateway.journal import Journal
from soulsgraph_clusters.fleet.gateway.metrics import FleetCollector
from soulsgraph_clusters.fleet.gateway.status import STATUS_FILE, StatusWriter, read_status
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.messages import BOUNDS, bounded_chunk, check_hello, parse_message
from soulsgraph_clusters.fleet.protocol.settings import PROTOCOL, FleetError, FleetSettings, digests
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters

NUMBERS = DQNHyperparameters(budget=10**9, buffer_size=1000)
TASK = StageTask("iudex-phase1", {"camera": "camera"}, {"camera": NUMBERS}, 10.0)
ODD_NUMBERS = (2**64 - 1, 2**63, 2**32 - 1, -1, math.nan, math.inf, -math.inf, 1.7e308, -1.7e308, 5e-324)
_BOOT = "0123456789abcdef"
_HELLO = wire.Hello(protocol=PROTOCOL, game="1", boot=_BOOT, driver="simulator", lanes=1, digests=digests())
#: What an odd value is set in, where an empty message would be refused for another reason.
_WHOLE = {wire.Hello: _HELLO, wire.Chunk: wire.Chunk(boot=_BOOT, stage="camera", decisions={"camera": 3})}
ODD_TEXTS = ("x" * 100_000, "\x1b[2J\n", "\0")


def _messages(kind):
    """Yield what a game or the head may say, by its field."""
    for field in kind.DESCRIPTOR.fields:
        yield field.name, getattr(wire, field.message_type.name)


def _with(kind, field, odd):
    """Return a message that has an odd value in one field, None where the field can't hold it, however it is sent."""
    message = kind.FromString(_WHOLE.get(kind, kind()).SerializeToString())
    target = getattr(message, field.name)
    try:
        if hasattr(target, "items"):
            key = odd if isinstance(odd, str) else "x"
            values = field.message_type.fields_by_name["value"]
            target[key] = "x" if values.type == FieldDescriptor.TYPE_STRING else 1 if isinstance(odd, str) else odd
        elif hasattr(target, "append"):
            target.append(odd)
        elif field.type == FieldDescriptor.TYPE_BYTES:
            setattr(message, field.name, odd.encode() * 50)
        else:
            setattr(message, field.name, odd)
    except (ValueError, TypeError, AttributeError, OverflowError):
        return None
    return message


def _odd_messages(kind):
    for name, message in _messages(kind):
        for field in message.DESCRIPTOR.fields:
            for odd in (*ODD_NUMBERS, *ODD_TEXTS):
                if (found := _with(message, field, odd)) is not None:
                    yield name, field.name, found


def test_every_field_of_what_games_and_heads_say_has_its_bounds():
    kinds = {message for kind in (wire.FromGame, wire.ToGame) for _, message in _messages(kind)}
    fields = {f"{kind.DESCRIPTOR.name}.{field.name}" for kind in kinds for field in kind.DESCRIPTOR.fields}
    assert {*BOUNDS} == fields | {"ToGame.acknowledged"}


@pytest.fixture
def begin(tmp_path):
    """Begin a head in the test's folder, also a second time; the last one is closed at the end."""
    heads = []

    def begin_one():
        for head in heads:
            head.close()
        heads.append(_Head(tmp_path))
        return heads[-1]

    yield begin_one
    heads[-1].close()


class _Head:
    """What a gateway does with messages, without a socket: the connections, the journal and the status of a stage."""

    def __init__(self, folder: Path) -> None:
        self.journal = Journal(folder / "journal" / "camera", "camera")
        self.admission = Admission(self.journal, TASK, 0, FleetSettings())
        self.connections = Connections()
        self.status = StatusWriter(self.admission, self.connections)

    def close(self) -> None:
        self.journal.close()

    def hears(self, pc: str, *sent: wire.FromGame) -> Connection:
        hello = wire.Hello.FromString(_HELLO.SerializeToString())
        hello.pc = pc
        connection = Connection(hello, time.monotonic())
        for message in sent:
            found = parse_message(wire.FromGame, message.SerializeToString(), "PC")
            if found.HasField("hello"):
                check_hello(found.hello, pc, FleetSettings())
                connection.hello = found.hello
                connection.hello.pc = pc
            elif found.HasField("chunk"):
                self.admission.write([(connection, bounded_chunk(found.chunk))], 0.0)
            else:
                connection.health, connection.health_s = found.health, time.monotonic()
        self.connections.begin(connection)
        return connection

    def shown(self) -> dict[str, int]:
        """Write the status and read it back, as the command does, beside the metrics; return each game's ticks."""
        self.status.update(1, always=True)
        text = (self.journal.folder / STATUS_FILE).read_text(encoding="utf-8")
        json.loads(text, parse_constant=pytest.fail)
        registry = CollectorRegistry()
        registry.register(FleetCollector(lambda: self.status.describe(1)))
        assert not {"nan", "+inf", "-inf"} & {
            line.split()[-1].lower() for line in generate_latest(registry).decode().splitlines()
        }
        found = read_status(self.journal.folder.parent)
        assert all(math.isfinite(value) for game in found.games for value in game.metrics.values())
        return {game.name: game.ticks for game in found.games}


def test_no_number_of_a_pc_takes_the_view_of_the_others_away(begin):
    head = begin()
    head.hears("good", wire.FromGame(health=wire.Health(state="playing", ticks=5)))
    reasons = []
    for number, (kind, _, message) in enumerate(_odd_messages(wire.FromGame)):
        try:
            head.hears(f"bad-{number}", wire.FromGame(**{kind: message}))
        except FleetError as error:
            reasons.append(str(error))
    assert len(reasons) > 20
    assert max(map(len, reasons)) < 1000
    assert not any("\n" in reason for reason in reasons)
    shown = head.shown()
    assert shown["good/1"] == 5
    assert len(shown) > 60
    again = begin().shown()
    assert again["good/1"] == 5
    assert {*again} == {*shown}


def test_what_describes_is_clamped_and_what_is_no_number_is_left_out():
    metrics = {"speed": math.nan, "cpu_s": -5.0, "reset_s/x": 1.7e308, "lateness_p99_ms": 3.0}
    health = wire.Health(state="playing\nnow", ticks=2**64 - 1, metrics=metrics, lost_decisions={"x": 2**64 - 1})
    found = parse_message(wire.FromGame, wire.FromGame(health=health).SerializeToString(), "PC").health
    assert found.state == "playing now"
    assert found.ticks == found.lost_decisions["x"] == 2**53
    assert dict(found.metrics) == {"cpu_s": 0.0, "reset_s/x": 1e12, "lateness_p99_ms": 3.0}
    many = wire.Health(metrics={f"{number:05d}": 1.0 for number in range(5000)})
    assert len(parse_message(wire.FromGame, wire.FromGame(health=many).SerializeToString(), "PC").health.metrics) == 256


def test_a_chunk_out_of_bounds_is_refused_by_name_and_can_be_forgotten(begin):
    head = begin()
    for sequence, field in enumerate(("weights_version", "lane_ticks", "versions", "ticks")):
        chunk = wire.Chunk(boot=_BOOT, sequence=sequence, stage="camera", attempt=head.journal.attempt)
        chunk.decisions["camera"] = 3
        if field in ("versions", "ticks"):
            getattr(chunk, field).extend([1, 2**64 - 1])
        else:
            setattr(chunk, field, 2**64 - 1)
        head.hears(f"attic-{sequence}", wire.FromGame(chunk=chunk))
        assert head.journal.decisions[f"attic-{sequence}/{MALFORMED}"] == 3
    with pytest.raises(FleetError, match="sequence from 0 to"):
        head.hears("attic", wire.FromGame(chunk=wire.Chunk(boot=_BOOT, sequence=2**64 - 1)))


def test_a_pc_refuses_what_a_head_cannot_mean():
    reasons = []
    for kind, name, message in _odd_messages(wire.ToGame):
        sent = wire.ToGame(**{kind: [message] if kind == "acknowledged" else message})
        try:
            found = parse_message(wire.ToGame, sent.SerializeToString(), "head")
        except FleetError as error:
            reasons.append((name, str(error)))
        else:
            assert len(found.stop.reason) <= 2000
    assert len(reasons) > 20
    assert all(name in reason for name, reason in reasons)


def test_a_status_file_of_absurd_numbers_shows_the_other_games(begin, tmp_path):
    head = begin()
    for pc in ("good", "bad", "worse"):
        head.hears(pc, wire.FromGame(health=wire.Health(state="playing", ticks=5)))
    head.shown()
    file = head.journal.folder / STATUS_FILE
    table = json.loads(file.read_text(encoding="utf-8"))
    table["games"][1]["ticks"], table["games"][2]["cpu_s"] = 2**64 - 1, math.nan
    file.write_text(json.dumps(table), encoding="utf-8")
    rows = {game.name: game for game in read_status(tmp_path / "journal").games}
    assert rows["good/1"].ticks == 5
    assert (rows["bad/1"].state, rows["worse/1"].state) == ("lost", "lost")
    assert "cannot be read" in rows["bad/1"].note
    assert begin().shown() == {"good/1": 5, "bad/1": 0, "worse/1": 0}
