"""The account of a fleet finds what was taken twice, what is missing, and sums that are not the games' own."""

import pytest

from fakes.fleet_in_folder import Account, require_once
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Chunk, Health, Record

GAME = "attic/1 00"


def record(sequence, boot="00", pc="attic"):
    return Record(pc=pc, game="1", chunk=Chunk(boot=boot, sequence=sequence))


def account(journal, finished, rest=None, lost=0):
    found = Account()
    found.journal[GAME], found.rest[GAME] = journal, rest or {}
    found.counters[GAME] = Health(finished_decisions=finished, lost_decisions={"spool full": lost})
    return found


def test_a_chunk_that_is_there_twice_is_found():
    apart = [record(1), record(2), record(1, boot="01"), record(1, pc="cellar")]
    require_once(apart)
    with pytest.raises(AssertionError, match="1 of 5 chunks are there twice"):
        require_once([*apart, record(2)])


def test_an_account_of_every_decision_is_good():
    account({1: 10, 2: 20}, finished=45, rest={3: 10}, lost=5).require()


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (account({1: 10, 2: 20}, finished=30, rest={2: 20}), r"chunks \[2\] were taken again"),
        (account({1: 10, 3: 20}, finished=30), r"lacks the chunks \[2\]"),
        (account({1: 10}, finished=11), "expected 11 finished decisions, found 10"),
        (account({1: 10}, finished=10, lost=1), "expected 10 finished decisions, found 10"),
        (Account(), "no game's counters"),
    ],
)
def test_an_account_that_does_not_add_up_says_where(found, message):
    with pytest.raises(AssertionError, match=message):
        found.require()


def test_a_process_on_a_full_disk_may_lack_chunks_but_none_that_is_not_counted():
    account({1: 10, 3: 20}, finished=40, lost=10).require(dropped=[GAME])
    with pytest.raises(AssertionError, match="expected 40 finished decisions"):
        account({1: 10, 3: 20}, finished=40, lost=9).require(dropped=[GAME])
