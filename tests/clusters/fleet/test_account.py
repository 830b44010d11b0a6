"""The account of a fleet finds what was taken twice, what is missing, and sums that are not the games' own."""

import pytest

from fakes.fleet_in_folder import Account, require_once
from fakes.stored import stored
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Chunk, Health

GAME = "attic/1 00"


def record(sequence, boot="00", pc="attic"):
    return stored(Chunk(boot=boot, sequence=sequence), pc)


def account(journal, finished, rest=None, lost=0):
    found = Account()
    found.journal[GAME], found.rest[GAME] = journal, rest or {}
    found.counters[GAME] = Health(finished_decisions=finished, lost_decisions={"spool full": lost})
    return found


def test_a_chunk_that_is_there_twice_is_found():
    apart = [record(1), record(2), record(1, boot="01"), record(1, pc="cellar")]
    require_once(apart)
    with pytest.raises(AssertionError):
        require_once([*apart, record(2)])


def test_an_account_of_every_decision_is_good_and_one_that_does_not_add_up_is_not():
    account({1: 10, 2: 20}, finished=45, rest={3: 10}, lost=5).require()
    # A process on a full disk may lack chunks, but none that is not counted.
    account({1: 10, 3: 20}, finished=40, lost=10).require(dropped=[GAME])
    for found, dropped in (
        (account({1: 10, 2: 20}, finished=30, rest={2: 20}), []),
        (account({1: 10, 3: 20}, finished=30), []),
        (account({1: 10}, finished=11), []),
        (account({1: 10}, finished=10, lost=1), []),
        (Account(), []),
        (account({1: 10, 3: 20}, finished=40, lost=9), [GAME]),
    ):
        with pytest.raises(AssertionError):
            found.require(dropped)
