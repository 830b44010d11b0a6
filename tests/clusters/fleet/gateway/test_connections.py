"""Acknowledgements: they ride on weights where these come soon, each in its own time."""

import asyncio
import time

from fakes.waiting import until
from soulsgraph_clusters.fleet.gateway.connections import Connection
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire

OTHER_BOOT = "00000000000000b1"


def riding(client):
    """Return the sequences that were acknowledged beside another message or none, and the kind of that."""
    return [
        (message.WhichOneof("message"), [one for answer in message.acknowledged for one in answer.sequences])
        for message in [*client.received]
        if message.acknowledged
    ]


def waits(door):
    """Return whether an acknowledgement waits for weights: a chunk is in the journal a moment before."""
    return any(connection._acknowledged for connection in door.gateway.connections.live)


def test_acknowledgements_ride_on_the_next_weights(door, monkeypatch):
    monkeypatch.setattr("soulsgraph_clusters.fleet.gateway.connections.RIDE_WITHIN_S", 3600.0)
    client = door.joined()
    client.send(*(door.chunk(sequence) for sequence in (1, 2)), door.chunk(9, boot="00000000000000b2"))
    until(lambda: len(door.verdicts()) == 3, "the chunks")
    assert not riding(client)
    door.publish()
    until(lambda: riding(client), "acknowledgements")
    assert [(kind, sorted(told)) for kind, told in riding(client)] == [("weights", [1, 2, 9])]


def test_each_acknowledgement_waits_its_own_time_for_weights(door, monkeypatch):
    client = door.joined()
    monkeypatch.setattr("soulsgraph_clusters.fleet.gateway.connections.RIDE_WITHIN_S", 4.0)
    client.send(door.chunk(1))
    until(lambda: waits(door), "the first chunk's acknowledgement")
    door.publish()
    until(lambda: len(riding(client)) == 1, "its acknowledgement")
    monkeypatch.setattr("soulsgraph_clusters.fleet.gateway.connections.RIDE_WITHIN_S", 3600.0)
    client.send(door.chunk(2))
    until(lambda: waits(door), "the second chunk's acknowledgement")
    # Beyond the time that the first would have waited.
    time.sleep(5.0)
    assert len(riding(client)) == 1
    door.publish()
    until(lambda: len(riding(client)) == 2, "the second acknowledgement")
    assert riding(client) == [("weights", [1]), ("weights", [2])]


def test_acknowledgements_are_sent_alone_where_no_weights_come(door, monkeypatch):
    monkeypatch.setattr("soulsgraph_clusters.fleet.gateway.connections.RIDE_WITHIN_S", 0.2)
    client = door.joined()
    client.send(door.chunk(1))
    until(lambda: riding(client), "an acknowledgement")
    assert riding(client) == [(None, [1])]


def test_a_game_that_reads_nothing_keeps_a_bounded_part_of_the_head(monkeypatch):
    monkeypatch.setattr("soulsgraph_clusters.fleet.gateway.connections.MOST_UNREAD", 50)

    async def fill():
        connection = Connection(wire.Hello(pc="attic", game="1"), 0.0)
        for sequence in range(40):
            connection.acknowledge(wire.Acknowledgement(boot=OTHER_BOOT, sequences=[sequence]))
        assert not connection.closed
        for sequence in range(40):
            connection.acknowledge(wire.Acknowledgement(boot=OTHER_BOOT, sequences=[sequence]))
        return connection

    connection = asyncio.run(fill())
    assert connection.closed
    assert "read none of 50" in connection.reason
