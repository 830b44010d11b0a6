"""A stage's end: what the gateway has written is acknowledged, and what it has not stays with the PC."""

import time

import pytest

from fakes.waiting import until

CHUNKS = 400


@pytest.mark.parametrize("wait_s", [0.0, 0.02, 0.08])
def test_chunks_are_acknowledged_or_not_written_when_a_stage_ends(open_door, wait_s):
    for attempt in range(20):
        door, sent = open_door(), range(attempt * CHUNKS, (attempt + 1) * CHUNKS)
        client = door.joined()
        client.send(*(door.chunk(sequence, columns=bytes(2000)) for sequence in sent))
        time.sleep(wait_s)
        door.gateway.stop("the stage is over")
        until(client.ended.is_set, "the stream's end")
        told = sorted(one for answer in client.got("acknowledgement") for one in answer.sequences)
        written = sorted(sequence for sequence, _ in door.verdicts() if sequence in sent)
        door.close()
        assert {*told} <= {*written}
        if not client.error:
            break
    # Of a connection that is closed while chunks are still sent, what the head had said may be lost; not each time.
    assert not client.error
    assert told == written
