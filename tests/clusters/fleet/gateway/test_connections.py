"""Acknowledgements: they ride on weights where these come soon, each in its own time."""

import asyncio

import pytest

from soulsgraph_clusters.fleet.gateway.connections import Connection
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire

OTHER_BOOT = "00000000000000b1"


def test_each_acknowledgement_waits_its_own_time_for_weights_and_is_sent_alone_where_none_come(monkeypatch):
    def let_wait(connection, sequence, seconds):
        monkeypatch.setattr("soulsgraph_clusters.fleet.gateway.connections.RIDE_WITHIN_S", seconds)
        connection.acknowledge(wire.Acknowledgement(boot=OTHER_BOOT, sequences=[sequence]))

    async def sent(connection):
        """Return kind and acknowledged sequences of what is sent next; a timeout if that is nothing."""
        found = await asyncio.wait_for(connection.waiting(), 0.4)
        messages = [wire.ToGame.FromString(one) for one in found]
        return [(one.WhichOneof("message"), [*answer.sequences]) for one in messages for answer in one.acknowledged]

    async def run():
        connection = Connection(wire.Hello(pc="attic", game="1"), 0.0)
        let_wait(connection, 1, 0.2)
        connection.weights = wire.ToGame(weights=wire.Weights(version=1)).SerializeToString()
        connection.wake()
        assert await sent(connection) == [("weights", [1])]
        # Beyond the time that the first would have waited.
        let_wait(connection, 2, 3600.0)
        with pytest.raises(TimeoutError):
            await sent(connection)
        connection.weights = wire.ToGame(weights=wire.Weights(version=2)).SerializeToString()
        connection.wake()
        assert await sent(connection) == [("weights", [2])]
        let_wait(connection, 3, 0.02)
        assert await sent(connection) == [(None, [3])]

    asyncio.run(run())


def test_a_game_that_reads_nothing_keeps_a_bounded_part_of_the_head(monkeypatch):
    monkeypatch.setattr("soulsgraph_clusters.fleet.gateway.connections.MOST_UNREAD", 50)

    async def fill():
        connection = Connection(wire.Hello(pc="attic", game="1"), 0.0)
        for sequence in range(50):
            connection.acknowledge(wire.Acknowledgement(boot=OTHER_BOOT, sequences=[sequence]))
        assert not connection.closed
        connection.acknowledge(wire.Acknowledgement(boot=OTHER_BOOT, sequences=[50]))
        assert connection.closed
        assert connection.reason

    asyncio.run(fill())
