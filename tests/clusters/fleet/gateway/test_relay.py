"""A further gateway of a fleet in this process: games at both, one journal, and a writer that is away for a while."""

import threading

import pytest

from fakes.waiting import until
from soulsgraph_clusters.fleet.gateway.coordinator import Coordinator, RelayGateway
from soulsgraph_clusters.fleet.gateway.journal import Journal
from soulsgraph_clusters.fleet.protocol.messages import decode_weights
from soulsgraph_clusters.fleet.protocol.security import Tokens
from soulsgraph_clusters.fleet.protocol.settings import FleetError, set_drained
from soulsgraph_clusters.sessions.local_ray import free_port
from soulsgraph_envs.core.files import WriteError

OTHER_BOOT = "00000000000000b1"


class Line:
    """The way to a writer: while `cut` nothing arrives there, while `deaf` every answer is lost."""

    def __init__(self, door):
        self._door, self.cut, self.deaf = door, False, False

    def ask(self, question, *words):
        if self.cut:
            raise FleetError("gateway: expected an answer, found none; it is asked again.")
        answer = getattr(self._door.coordinator, question)(*words)
        if self.deaf:
            raise FleetError("gateway: expected an answer, found that it was lost; it is asked again.")
        return answer


class Beside:
    """A further gateway of a door's fleet, which reports many times a second."""

    def __init__(self, door):
        self.folder = door.folder / "relay"
        self.folder.mkdir(mode=0o700)
        self.line, self.address = Line(door), f"127.0.0.1:{free_port()}"
        self.relay = RelayGateway(2, self.address, self.line, self.folder)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._report)
        self._thread.start()

    def _report(self):
        while not self._over.wait(0.05):
            self.relay.exchange()

    def live(self):
        return [connection.name for connection in self.relay.gateway.connections.live]

    def close(self):
        self._over.set()
        self._thread.join()
        self.relay.close()


@pytest.fixture
def beside(door):
    door.coordinator = Coordinator(door.fleet, door.admission, door.gateway)
    beside = Beside(door)
    yield beside
    beside.close()


def test_games_of_both_gateways_are_in_one_journal_and_one_status(door, beside):
    here, there = door.joined(), door.joined(beside.address, game="2")
    lanes = [client.got("task")[0].first_lane for client in (here, there)]
    assert lanes[0] != lanes[1]
    here.send(door.chunk(1))
    here.acknowledged(1)
    there.send(door.chunk(1), door.chunk(2, attempt="another"), door.chunk(3, columns=b"other"))
    assert there.acknowledged(1, 2, 3) == {"other stage": 30, "malformed": 30}
    assert [(one.game, one.first_lane, one.refused) for one in door.records()] == [
        ("1", lanes[0], ""),
        ("2", lanes[1], ""),
        ("2", 0, "other stage"),
        ("2", 0, "malformed"),
    ]
    there.send(door.health(state="playing", ticks=7))
    until(lambda: [(one.name, one.ticks) for one in door.coordinator.games()] == [("attic/2", 7)], "its figures")
    assert door.coordinator.playing == 1
    door.wait_for_note("gateway 2: attic/2 joined")


def test_a_game_has_one_session_whichever_gateway_it_dials_and_another_process_none(door, beside):
    moved = door.joined()
    door.joined(beside.address)
    until(moved.ended.is_set, "the end of the stream here")
    assert "attic/1" in door.client(door.hello(boot=OTHER_BOOT)).refusal()
    back = door.joined()
    until(lambda: not beside.live(), "the end of the stream there")
    assert "attic/1" in door.client(door.hello(boot=OTHER_BOOT), address=beside.address).refusal()
    back.send(door.chunk(1))
    back.acknowledged(1)
    assert door.verdicts() == [(1, "")]


def test_a_revoked_token_and_a_drained_pc_reach_a_relays_games(door, beside):
    cellar = door.tokens.issue("cellar")
    until(lambda: "cellar" in Tokens(beside.folder / "tokens.json").names, "the token at the relay")
    staying, revoked = door.joined(beside.address), door.client(door.hello(), address=beside.address, token=cellar)
    revoked.wait("task")
    set_drained(door.folder, "attic", True)
    assert staying.wait("stop").after_fight
    set_drained(door.folder, "attic", False)
    staying.wait("task", 2)
    door.tokens.revoke("cellar")
    until(lambda: staying.send(door.health()) and revoked.ended.is_set(), "the end")
    assert beside.live() == ["attic/1"]


@pytest.mark.parametrize("fault", ["cut", "deaf", "full"])
def test_nothing_is_acknowledged_while_the_writer_cannot_write_or_answer_and_everything_once_afterwards(
    door, beside, monkeypatch, fault
):
    client = door.joined(beside.address)

    def full(journal, records):
        raise WriteError(journal.folder, OSError(28, "No space left on device"))

    with monkeypatch.context() as failing:
        if fault == "full":
            failing.setattr(Journal, "append", full)
        else:
            setattr(beside.line, fault, True)
        client.send(door.chunk(1), door.chunk(2))
        until(beside.relay.gateway.chunks._fails.is_set, "a try in vain")
        assert client.got("acknowledgement") == []
        if fault == "cut":
            assert door.client(door.hello(game="2"), address=beside.address).refusal()
    beside.line.cut = beside.line.deaf = False
    assert client.acknowledged(1, 2) == {}
    assert door.verdicts() == [(1, ""), (2, "")]


def test_games_of_a_further_gateway_stay_connected_from_stage_to_stage(door, beside):
    client = door.joined(beside.address)
    door.publish()
    assert {*decode_weights(client.wait("weights").arrays)} == {"camera", "lock_on"}
    door.publish()
    assert {*decode_weights(client.wait("weights", 2).arrays)} == {"lock_on"}
    assert not door.coordinator.stage_over
    door.coordinator.end_stage()
    until(lambda: door.coordinator.stage_over, "the end of the stage")
    assert client.wait("stop")
    door.end_stage()
    door.begin_stage("the next one")
    door.coordinator = Coordinator(door.fleet, door.admission, door.gateway)
    assert client.wait("task", 2).stage == "the next one"
    door.publish()
    assert client.wait("weights", 3).arrays == client.got("weights")[0].arrays
    client.send(door.chunk(2, stage="the next one"))
    assert client.acknowledged(2) == {}
    assert door.verdicts() == [(2, "")]
