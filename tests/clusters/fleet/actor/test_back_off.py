"""How a game's stream waits between two attempts to connect."""

import random

import pytest

from soulsgraph_clusters.fleet.actor.stream import Head, Stream
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Hello
from soulsgraph_clusters.fleet.store import Spool

#: What a head did in an attempt.
SILENT, REFUSED, PLAYED = "silent", "refused", "played"


class Waits:
    """In the place of an event: notes every wait and takes no time; it is set after the last of them."""

    def __init__(self, most):
        self.most, self.waits = most, []

    def is_set(self):
        return len(self.waits) >= self.most

    def wait(self, seconds):
        self.waits.append(seconds)


@pytest.fixture
def attempts(tmp_path, monkeypatch):
    """Return a function that lets attempts to connect end so, as a head takes part in them; it returns the waits."""

    def run(*ends, factor=1.0):
        spool, left = Spool(tmp_path / "spool"), [*ends]
        own = Stream(Head("127.0.0.1:1", tmp_path), Hello(), spool, lambda _: None, lambda _: None)
        own._stopping = waits = Waits(len(ends))

        def connect():
            end = left.pop(0)
            own._answered, own.connected = end != SILENT, end == PLAYED
            return "no head"

        monkeypatch.setattr(own, "_connect", connect)
        monkeypatch.setattr(random, "uniform", lambda low, high: low + factor * (high - low))
        own._run()
        spool.close()
        return waits.waits

    return run


def test_waits_for_a_head_that_refuses_double_and_those_of_many_pcs_differ_by_half(attempts):
    assert attempts(*[REFUSED] * 7) == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0])
    assert attempts(*[REFUSED] * 6, factor=0.0) == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0])


def test_a_connection_that_stood_and_one_without_an_answer_are_followed_by_the_shortest_wait(attempts):
    assert attempts(REFUSED, REFUSED, REFUSED, PLAYED, REFUSED) == pytest.approx([0.1, 0.2, 0.4, 0.1, 0.2])
    assert attempts(REFUSED, REFUSED, SILENT, SILENT, REFUSED) == pytest.approx([0.1, 0.2, 0.1, 0.1, 0.2])
