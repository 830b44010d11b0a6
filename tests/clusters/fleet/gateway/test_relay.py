"""Two gateways of one fleet in this process: games at each, one journal, and a writer that is away for a while."""

import stat
import threading
import time

import numpy as np
import pytest

from fakes.fleet_here import random_weights
from fakes.waiting import until
from soulsgraph_clusters.fleet.gateway import connections
from soulsgraph_clusters.fleet.gateway.coordinator import Coordinator, RelayGateway
from soulsgraph_clusters.fleet.gateway.journal import Journal
from soulsgraph_clusters.fleet.gateway.status import StatusWriter
from soulsgraph_clusters.fleet.protocol.messages import decode_weights
from soulsgraph_clusters.fleet.protocol.security import Tokens, channel_credentials, make_certificates
from soulsgraph_clusters.fleet.protocol.settings import FleetError, FleetSettings, set_drained
from soulsgraph_clusters.sessions.local_ray import free_port
from soulsgraph_envs.core.files import WriteError

OTHER_BOOT = "00000000000000b1"


class Line:
    """The way to a writer: while `cut` nothing arrives there, while `deaf` every answer is lost."""

    def __init__(self, coordinator):
        self._coordinator, self.cut, self.deaf, self.calls = coordinator, False, False, []

    def ask(self, question, *words):
        if self.cut:
            raise FleetError("gateway: expected an answer, found none; it is asked again.")
        answer = getattr(self._coordinator, question)(*words)
        self.calls.append(question)
        if self.deaf:
            raise FleetError("gateway: expected an answer, found that it was lost; it is asked again.")
        return answer


class Beside:
    """A further gateway of a door's fleet, which reports many times a second."""

    def __init__(self, door, number=2):
        self.door, self.folder = door, door.folder / f"relay-{number}"
        self.folder.mkdir(mode=0o700)
        self.line, self.address = Line(door.coordinator), f"127.0.0.1:{free_port()}"
        self.relay = RelayGateway(number, self.address, self.line, self.folder)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._report)
        self._thread.start()

    def _report(self):
        while not self._over.wait(0.05):
            self.relay.exchange()

    def live(self):
        return [connection.name for connection in self.relay.gateway.connections.live]

    def silence(self):
        """Report no more."""
        self._over.set()
        self._thread.join()

    def close(self):
        self.silence()
        self.relay.close()


@pytest.fixture
def open_beside(door):
    opened = []
    door.coordinator = Coordinator(door.fleet, door.admission, door.gateway)

    def make(number=2):
        opened.append(Beside(door, number))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@pytest.fixture
def beside(open_beside):
    return open_beside()


def test_games_at_both_gateways_are_in_one_journal_with_lanes_of_their_own(door, beside):
    here, there = door.joined(game="1"), door.joined(beside.address, game="2")
    assert here.got("task")[0].first_lane != there.got("task")[0].first_lane
    assert here.got("task")[0].attempt == there.got("task")[0].attempt
    for client in (here, there):
        client.send(door.chunk(1), door.chunk(2))
        assert client.acknowledged(1, 2) == {}
    assert sorted((one.game, one.chunk.sequence, one.first_lane) for one in door.records()) == [
        ("1", 1, here.got("task")[0].first_lane),
        ("1", 2, here.got("task")[0].first_lane),
        ("2", 1, there.got("task")[0].first_lane),
        ("2", 2, there.got("task")[0].first_lane),
    ]
    assert door.journal.decisions == {"attic/journaled": 4 * 30}


def test_the_chunks_of_a_moment_go_to_the_writer_in_one_call(door, beside):
    clients = [door.joined(beside.address, game=str(number)) for number in range(5)]
    # However slowly they arrive, all wait at the same moment while the writer is away.
    beside.line.cut = True
    for client in clients:
        client.send(*(door.chunk(sequence) for sequence in range(1, 9)))
    until(lambda: beside.relay.gateway.chunks._waiting._unfinished_tasks == 40, "every chunk")
    beside.line.cut = False
    for client in clients:
        assert client.acknowledged(*range(1, 9)) == {}
    # The group that was tried in vain, and all others.
    assert beside.line.calls.count("write") <= 2
    assert len(door.records()) == 40


def test_a_chunk_that_comes_by_both_gateways_is_counted_once(door, beside):
    there = door.joined(beside.address)
    there.send(door.chunk(1))
    there.acknowledged(1)
    there.close()
    here = door.joined()
    here.send(door.chunk(1), door.chunk(2))
    here.acknowledged(1, 2)
    assert door.verdicts() == [(1, ""), (2, "")]


def test_every_refusal_by_name_comes_back_through_the_relay(door, beside):
    client = door.joined(beside.address)
    client.send(door.chunk(1, attempt="another"), door.chunk(2, columns=b"other"), door.chunk(3))
    assert client.acknowledged(1, 2, 3) == {"other stage": 30, "malformed": 30}
    assert door.verdicts() == [(1, "other stage"), (2, "malformed"), (3, "")]


# One live connection of a name.


def test_another_process_of_a_name_is_refused_whichever_gateway_it_dials(door, open_beside):
    first, second = open_beside(2), open_beside(3)
    door.joined()
    other = door.client(door.hello(boot=OTHER_BOOT), address=first.address)
    assert "attic/1: expected one live game of this name, found another process" in other.refusal()
    door.joined(first.address, game="2")
    for address in (door.address, second.address):
        other = door.client(door.hello(game="2", boot=OTHER_BOOT), address=address)
        assert "attic/2: expected one live game of this name" in other.refusal()
    assert first.live() == ["attic/2"]


def test_another_machine_of_a_pc_is_refused_whichever_gateway_it_dials(door, open_beside):
    first, second = open_beside(2), open_beside(3)
    door.joined(machine="a" * 16)
    door.joined(first.address, game="2", machine="a" * 16)
    for address in (door.address, first.address, second.address):
        other = door.client(door.hello(game="3", boot=OTHER_BOOT, machine="b" * 16), address=address)
        assert "attic: expected one machine of this name, found another" in other.refusal()
    assert first.live() == ["attic/2"]
    assert second.live() == []


def test_a_machine_at_another_gateway_keeps_its_name_to_itself(door, open_beside):
    first, second = open_beside(2), open_beside(3)
    door.joined(first.address, machine="a" * 16)
    for address in (door.address, second.address):
        other = door.client(door.hello(game="3", boot=OTHER_BOOT, machine="b" * 16), address=address)
        assert "attic: expected one machine of this name, found another, whose games are live" in other.refusal()


def test_a_machine_at_another_gateway_keeps_its_name_where_the_writer_begins_anew(door, beside):
    door.joined(beside.address, machine="a" * 16)
    # As in a process that was started again.
    door.admission.elsewhere = connections.OtherGateways()
    until(lambda: door.coordinator.playing, "a report")
    other = door.client(door.hello(game="3", boot=OTHER_BOOT, machine="b" * 16))
    assert "attic: expected one machine of this name, found another, whose games are live" in other.refusal()


def test_a_game_that_dials_another_gateway_has_no_session_at_the_earlier_one(door, open_beside):
    first, second = open_beside(2), open_beside(3)
    stay_away = []
    for address in (door.address, first.address, second.address, door.address):
        # What it left is not closed by its own end: the gateway does not notice.
        stay_away.append(door.joined(address))
        time.sleep(0.3)
    until(lambda: all(one.ended.is_set() for one in stay_away[:-1]), "the ends of earlier streams")
    until(lambda: not first.live() and not second.live(), "no connection elsewhere")
    assert [connection.name for connection in door.gateway.connections.live] == ["attic/1"]
    stay_away[-1].send(door.chunk(1))
    assert stay_away[-1].acknowledged(1) == {}


def test_a_gateway_that_is_silent_keeps_no_name_from_others(door, beside, monkeypatch):
    monkeypatch.setattr(connections, "SILENT_AFTER_S", 0.5)
    door.joined(beside.address)
    until(lambda: door.coordinator.playing == 1, "the game")
    beside.silence()
    until(lambda: door.coordinator.playing == 0, "its silence")
    door.joined(boot=OTHER_BOOT)


# What the head says reaches every gateway's games.


def test_weights_come_through_a_relay_bit_by_bit_newest_only_those_that_learn(door, beside):
    here, there = door.joined(), door.joined(beside.address, game="2")
    for version in (1, 2):
        door.publish(version)
        sent = [client.wait("weights", version) for client in (here, there)]
        assert [one.version for one in sent] == [version, version]
        mine, theirs = (decode_weights(one.arrays) for one in sent)
        assert mine.keys() == theirs.keys()
        assert len(mine) == (2 if version == 1 else 1)
        assert all(np.array_equal(mine[name][key], theirs[name][key]) for name in mine for key in mine[name])


def test_a_revoked_token_and_a_drained_pc_reach_a_relays_games(door, beside):
    cellar = door.tokens.issue("cellar")
    until(lambda: "cellar" in Tokens(beside.folder / "tokens.json").names, "the token at the relay")
    door.publish(1)
    staying, revoked = door.joined(beside.address), door.client(door.hello(), address=beside.address, token=cellar)
    revoked.wait("task")
    set_drained(door.folder, "attic", True)
    assert staying.wait("stop").after_fight
    set_drained(door.folder, "attic", False)
    staying.wait("task", 2)
    door.tokens.revoke("cellar")
    until(lambda: staying.send(door.health()) and revoked.ended.is_set(), "the end")
    assert door.wait_for_relays_note("cellar/1 left") == "gateway 2: cellar/1 left: its token was revoked"
    assert beside.live() == ["attic/1"]


def test_a_relays_folder_has_hashes_of_tokens_alone_which_nobody_else_may_read(door, beside):
    files = [path for path in beside.folder.rglob("*") if path.is_file()]
    assert [path.name for path in files] == ["tokens.json"]
    assert stat.S_IMODE(files[0].stat().st_mode) == 0o600
    assert door.token not in files[0].read_text()


def test_a_relay_proves_itself_by_the_heads_certificate_and_writes_its_key_nowhere(open_door, tmp_path):
    make_certificates(tmp_path, ["127.0.0.1"])
    door = open_door(settings=FleetSettings(certificate="head.pem", key="head.key"))
    door.coordinator = Coordinator(door.fleet, door.admission, door.gateway)
    beside = Beside(door)
    try:
        assert door.client(door.hello(), address=beside.address).refusal().startswith("UNAVAILABLE")
        trusting = channel_credentials(tmp_path / "ca.pem")
        client = door.client(door.hello(), address=beside.address, credentials=trusting)
        client.wait("task")
        client.send(door.chunk(1))
        assert client.acknowledged(1) == {}
        assert not any(b"PRIVATE KEY" in path.read_bytes() for path in beside.folder.rglob("*") if path.is_file())
    finally:
        beside.close()


def test_the_heads_own_file_of_tokens_is_left_alone_wherever_it_is(open_door, tmp_path):
    own = tmp_path / "secrets" / "hashes.json"
    door = open_door(settings=FleetSettings(tokens=str(own)))
    door.coordinator = Coordinator(door.fleet, door.admission, door.gateway)
    before = own.stat()
    beside = Beside(door)
    try:
        door.joined(beside.address)
        assert (own.stat().st_ino, own.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
        assert (beside.folder / "tokens.json").exists()
    finally:
        beside.close()


def test_games_of_all_gateways_are_in_one_status_and_their_notes_in_one_place(door, beside):
    writer = StatusWriter(door.admission, door.gateway.connections, door.coordinator.games)
    door.joined(game="1")
    client = door.joined(beside.address, game="2")
    client.send(door.health(state="playing", ticks=7))
    until(lambda: [one.state for one in writer.describe(1).games] == ["", "playing"], "both games")
    assert [(one.name, one.ticks) for one in writer.describe(1).games] == [("attic/1", 0), ("attic/2", 7)]
    assert door.coordinator.playing == 1
    door.wait_for_relays_note("attic/2 joined")
    notes = door.relays_notes()
    assert notes[0] == f"gateway 2: listens at {beside.address}"
    assert "gateway 2: attic/2 joined, playing by simulator" in notes


# A writer that is away, or cannot write.


def test_nothing_is_acknowledged_while_the_writer_is_away_and_everything_once_afterwards(door, beside):
    client = door.joined(beside.address)
    beside.line.cut = True
    client.send(door.chunk(1), door.chunk(2))
    for _ in range(5):
        time.sleep(0.3)
        client.send(door.health())
    assert client.got("acknowledgement") == []
    beside.line.cut = False
    assert client.acknowledged(1, 2) == {}
    assert door.verdicts() == [(1, ""), (2, "")]
    # It comes with the next report, which may be later than the acknowledgements.
    door.wait_for_relays_note("expected an answer, found none")


def test_an_answer_that_was_lost_is_asked_for_again_and_counts_once(door, beside):
    client = door.joined(beside.address)
    beside.line.deaf = True
    client.send(door.chunk(1))
    until(lambda: door.verdicts(), "the record")
    client.send(door.chunk(2), door.health())
    assert client.got("acknowledgement") == []
    beside.line.deaf = False
    assert client.acknowledged(1, 2) == {}
    assert door.verdicts() == [(1, ""), (2, "")]


def test_a_game_is_refused_for_a_moment_while_the_writer_is_away(door, beside):
    beside.line.cut = True
    assert "expected an answer" in door.client(door.hello(), address=beside.address).refusal()
    beside.line.cut = False
    door.joined(beside.address)


def test_a_full_disk_of_the_writer_is_noted_and_nothing_acknowledged(door, beside, monkeypatch):
    client = door.joined(beside.address)

    def full(journal, records):
        raise WriteError(journal.folder, OSError(28, "No space left on device"))

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", full)
        client.send(door.chunk(1))
        assert "free some disk space" in door.wait_for_relays_note("expected a place to write to")
        assert client.got("acknowledgement") == []
    client.send(door.health())
    assert client.acknowledged(1) == {}


def test_a_pc_with_endless_gaps_is_refused_by_the_writer_and_others_are_not(door, beside, monkeypatch):
    client = door.joined(beside.address)
    room = door.admission.journal.deduplication.has_room

    monkeypatch.setattr(door.admission.journal.deduplication, "has_room", lambda *chunk: chunk[-1] < 9 and room(*chunk))
    client.send(door.chunk(1))
    client.acknowledged(1)
    client.send(door.chunk(9))
    assert "processes of its games and gaps in their chunks" in client.refusal()
    assert door.verdicts() == [(1, "")]
    again = door.joined(beside.address, game="2")
    again.send(door.chunk(1))
    again.acknowledged(1)


def test_a_further_gateway_sends_a_game_that_plays_by_altered_weights_all_of_them_anew(door, beside, lock_on_task):
    door.admission.freeze(random_weights(lock_on_task))
    client = door.joined(beside.address)
    door.gateway.publish(1, random_weights(lock_on_task), {"lock_on": 0})
    client.wait("weights")
    client.send(door.chunk(1, frozen=b"a" * 32))
    client.wait("weights", 2)
    assert client.got("weights")[0] == client.got("weights")[1]
    assert door.verdicts() == [(1, "altered")]
