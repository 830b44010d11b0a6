"""A gateway on the loopback, and clients of it that send what a test passes."""

import threading
from queue import SimpleQueue

import grpc
import pytest

from fakes.fleet_here import GatewayHere, random_weights
from fakes.stored import decided
from fakes.waiting import PATIENCE_S, until
from soulsgraph_clusters.fleet.actor.stream import PLAY
from soulsgraph_clusters.fleet.gateway import admission, connections, gateway
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.messages import CODE, encode_columns
from soulsgraph_clusters.fleet.protocol.settings import PROTOCOL, play_digest
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_clusters.fleet.protocol.tokens import token_metadata
from soulsgraph_envs.games.opening import make_game
from soulsgraph_policies.learning.hyperparameters import skill_hyperparameters

STAGE, LANES, BOOT = "lock_on", 3, "00000000000000b0"


class Client:
    """One stream to a gateway; `send` takes messages or any bytes, `received` has what came back."""

    def __init__(self, address, token, credentials=None, reads=True):
        metadata = None if token is None else token_metadata(token)
        self._sent = SimpleQueue()
        options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        insecure = credentials is None
        self._channel = (
            grpc.insecure_channel(address, options) if insecure else grpc.secure_channel(address, credentials, options)
        )
        self._call = self._channel.stream_stream(PLAY, None, wire.ToGame.FromString)(
            iter(self._sent.get, None), metadata=metadata
        )
        self.received, self.error, self.ended = [], "", threading.Event()
        if reads:
            threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            self.received.extend(self._call)
        except grpc.RpcError as error:
            self.error = f"{error.code().name}: {error.details()}"
        self.ended.set()

    def send(self, *messages):
        for message in messages:
            self._sent.put(message if isinstance(message, bytes) else message.SerializeToString())
        return self

    def got(self, kind):
        """Return what came of one kind of message, in order; acknowledgements came beside others or alone."""
        if kind == "acknowledgement":
            return [answer for message in [*self.received] for answer in message.acknowledged]
        return [getattr(message, kind) for message in [*self.received] if message.HasField(kind)]

    def wait(self, kind, count=1):
        """Wait for messages of a kind, and return the latest."""
        until(lambda: len(self.got(kind)) >= count or self.ended.is_set(), kind)
        assert len(self.got(kind)) >= count, (self.error, self.got("stop"))
        return self.got(kind)[-1]

    def acknowledged(self, *sequences):
        """Wait until the head has these chunks, and return the decisions refused of them by reason."""

        def have():
            return {one for answer in self.got("acknowledgement") for one in answer.sequences}

        until(lambda: have() >= set(sequences) or self.ended.is_set(), "acknowledgements")
        assert have() >= set(sequences), (self.error, self.got("stop"))
        refused = {}
        for answer in self.got("acknowledgement"):
            refused |= dict(answer.refused)
        return refused

    def refusal(self):
        """Wait for the end of the stream, and return why it was refused, in one line."""
        until(self.ended.is_set, "the stream's end")
        stops = [stop.reason for stop in self.got("stop") if stop.refused]
        line = stops[-1] if stops else self.error
        assert line
        assert "\n" not in line
        return line

    def close(self):
        self._sent.put(None)
        self._call.cancel()
        self._channel.close()


class Door(GatewayHere):
    """A gateway for clients that send what a test passes, as a PC named attic; all of them end with it."""

    def __init__(self, folder, task, columns, **options):
        super().__init__(folder, task, stage=STAGE, **options)
        self._columns, self._clients, self._notes = columns, [], []
        self.token = self.head().token

    def client(self, *messages, token="", address="", **options):
        """Connect with attic's token, another one or None, here or to another gateway, and send messages."""
        client = Client(address or self.address, self.token if token == "" else token, **options)
        self._clients.append(client)
        return client.send(*messages)

    def hello(self, **changes):
        values = {"protocol": PROTOCOL, "version": "0.1.0", "game": "1", "boot": BOOT, "driver": "simulator"}
        values |= {"lanes": LANES, "digests": {CODE: play_digest()}}
        return wire.FromGame(hello=wire.Hello(**values | changes))

    def health(self, **values):
        return wire.FromGame(health=wire.Health(**values))

    def chunk(self, sequence, **changes):
        return wire.FromGame(chunk=decided(self.journal, sequence, **{"columns": self._columns} | changes))

    def joined(self, address="", **changes):
        """Return a client whose hello was taken, here or by another gateway."""
        client = self.client(self.hello(**changes), address=address)
        client.wait("task")
        return client

    def notes(self):
        """Return all that the gateway noted so far."""
        self._notes += self.gateway.notes.take()
        assert not any("\n" in note for note in self._notes)
        return self._notes

    def wait_for_note(self, text):
        until(lambda: any(text in note for note in self.notes()), text)
        return next(note for note in self.notes() if text in note)

    def verdicts(self):
        """Return sequence and verdict of every record of the journal, in order."""
        return [(one.number, one.refused) for one in self.records()]

    def check_that_it_serves(self):
        """Check that another PC joins, plays and is acknowledged."""
        number = len(self._clients)
        token = self.tokens.issue(f"other-{number}")
        client = self.client(self.hello(boot=f"{number:016x}"), token=token)
        client.wait("task")
        client.send(self.chunk(1, boot=f"{number:016x}"))
        assert client.acknowledged(1) == {}
        client.close()

    def close(self):
        for client in self._clients:
            client.close()
        super().close()


@pytest.fixture(scope="session")
def lock_on_task():
    plays = {"camera": "camera", "lock_on": "lock_on"}
    return StageTask("iudex-phase1", plays, {STAGE: skill_hyperparameters(4000)}, 10.0)


@pytest.fixture(scope="session")
def columns(lock_on_task):
    """Columns of 30 decisions that `LANES` fights played."""
    sampler = lock_on_task.sampler(make_game(LANES), seed=5)
    sampler.set_networks(lock_on_task.networks(random_weights(lock_on_task)))
    return encode_columns(sampler.sample(30))


@pytest.fixture
def silent_after_s():
    """Seconds after which a silent game counts as lost; clients send no health, and a machine may be very busy."""
    return PATIENCE_S


@pytest.fixture
def open_door(tmp_path, lock_on_task, columns, monkeypatch, silent_after_s):
    """Open gateways as `Door` takes them; all are closed at the end."""
    monkeypatch.setattr(gateway, "SILENT_AFTER_S", silent_after_s)
    # Nearly at once: no weights are published here that acknowledgements might ride on; test_connections.py has some.
    monkeypatch.setattr(connections, "RIDE_WITHIN_S", 0.02)
    for module, name in ((admission, "RETRY_AFTER_S"), (gateway, "_WATCH_EVERY_S"), (gateway, "PUBLISH_EVERY_S")):
        monkeypatch.setattr(module, name, 0.05)
    doors = []

    def make(**options):
        doors.append(Door(tmp_path, lock_on_task, columns, **options))
        return doors[-1]

    yield make
    for one in doors:
        one.close()


@pytest.fixture
def door(open_door):
    return open_door()
