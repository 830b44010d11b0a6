"""The journal and the spool against lists, killed, on a full disk, damaged, and opened by two."""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.stored import append, everything, stored
from fakes.waiting import PATIENCE_S
from soulsgraph_clusters.fleet import store
from soulsgraph_clusters.fleet.actor.spool import in_use
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Chunk
from soulsgraph_clusters.fleet.protocol.settings import FleetError
from soulsgraph_clusters.fleet.store import FILE, FULL, JOURNALED, Journal, Spool
from soulsgraph_envs.core.files import FullDiskError, WriteError

STAGE = "camera"


class UndoneError(Exception):
    """Ends a transaction of which nothing is to stay."""


def record(sequence, boot="b0", refused="", decisions=1, size=20):
    return stored(
        Chunk(boot=boot, sequence=sequence, decisions={STAGE: decisions}, columns=bytes(size)), refused=refused
    )


def numbers(folder):
    """Return the numbers of a folder's journal, as a reader finds them."""
    with closing(Journal(Path(folder), STAGE, reading=True)) as journal:
        return [one.number for one in everything(journal)]


# The journal against a list.


_GROUP = st.lists(st.tuples(st.sampled_from(["b0", "b1"]), st.integers(0, 12), st.sampled_from(["", "stale"])))
_STEP = st.one_of(
    st.tuples(st.just("append"), _GROUP),
    st.tuples(st.just("read"), st.tuples(st.integers(0, 30), st.integers(1, 9))),
    st.tuples(st.just("prune"), st.integers(0, 30)),
    st.tuples(st.just("reopen"), st.none()),
)


class JournalModel:
    """A journal beside the list that it should be."""

    def __init__(self, folder):
        self.folder, self.journal, self.records = folder, Journal(folder, STAGE), []

    def append(self, group):
        keys = {(one.boot, one.number) for one in self.records}
        new = []
        for boot, number, refused in group:
            if (boot, number) not in keys:
                keys.add((boot, number))
                new.append(record(number, boot, refused, decisions=number))
        assert append(self.journal, [record(n, b, r, decisions=n) for b, n, r in group]) == new
        self.records += new

    def read(self, asked):
        position, most = asked
        if position < self.journal.first:
            with pytest.raises(FleetError):
                self.journal.read(position, most)
            return
        assert self.journal.read(position, most) == self.records[position : position + most]

    def prune(self, before):
        first, before = self.journal.first, min(before, self.journal.end)
        self.journal.prune(before)
        assert self.journal.first == max(before, first)

    def reopen(self, _):
        attempt = self.journal.attempt
        self.journal.close()
        self.journal = Journal(self.folder, STAGE)
        assert self.journal.attempt == attempt

    def check(self):
        assert self.journal.end == len(self.records)
        assert everything(self.journal) == self.records[self.journal.first :]
        in_order = sorted(self.records[self.journal.first :], key=lambda one: (one.boot, one.number))
        assert [*self.journal.in_order()] == [one for one in in_order if not one.refused]
        counted = {f"attic/{verdict}": 0 for verdict in (JOURNALED, "stale")}
        for one in self.records:
            counted[f"attic/{one.verdict}"] += one.decisions
        assert {key: self.journal.decisions[key] for key in counted} == counted
        assert self.journal.refused.get("stale", 0) == sum(bool(one.refused) for one in self.records)
        keys = {(one.boot, one.number) for one in self.records}
        asked = [(boot, number) for boot in ("b0", "b1", "b2") for number in range(14)]
        # Asked by a transaction that is undone; those of another PC are others.
        with suppress(UndoneError), self.journal.transaction():
            assert {key for key in asked if not self.journal.append(record(key[1], key[0]))} == keys
            assert self.journal.append(stored(Chunk(boot="b0", sequence=1), pc="cellar"))
            raise UndoneError


@settings(max_examples=30, deadline=None)
@given(st.lists(_STEP, max_size=15))
def test_a_journal_is_the_list_of_what_was_appended_whatever_is_done_to_it(steps):
    with tempfile.TemporaryDirectory() as folder:
        model = JournalModel(Path(folder))
        for name, argument in steps:
            getattr(model, name)(argument)
            model.check()
        model.journal.close()


def test_a_full_journal_takes_nothing_until_it_is_pruned_and_loses_nothing(tmp_path):
    most, journal = 300_000, Journal(tmp_path, STAGE, 300_000)
    with pytest.raises(FullDiskError):
        [append(journal, [record(number, size=5000)]) for number in range(100)]
    taken = journal.end
    assert 30 < taken < 60
    # What is there is no more to write.
    assert append(journal, [record(taken - 1, size=5000)]) == []
    journal.close()
    assert (tmp_path / FILE).stat().st_size <= most
    journal = Journal(tmp_path, STAGE, most)
    with pytest.raises(FullDiskError):
        append(journal, [record(taken, size=5000)])
    assert journal.end == taken
    journal.prune(taken // 2)
    for number in range(taken, 200):
        assert append(journal, [record(number, size=5000)])
        journal.prune(number - 10)
        assert journal.size_bytes <= most
    assert [one.number for one in everything(journal)] == [*range(journal.first, 200)]
    journal.close()
    assert (tmp_path / FILE).stat().st_size <= most


# Who opens it, and what lies there.


def test_the_journal_of_another_stage_is_refused(tmp_path):
    Journal(tmp_path, STAGE).close()
    with pytest.raises(FleetError, match="dodge"):
        Journal(tmp_path, "dodge")
    Journal(tmp_path, STAGE).close()


_OPENED = {
    "journal": lambda folder: Journal(folder, STAGE),
    "reader": lambda folder: Journal(folder, STAGE, reading=True),
    "spool": Spool,
}
_OTHER = """
import sys
from pathlib import Path
from soulsgraph_clusters.fleet.protocol.settings import FleetError
from soulsgraph_clusters.fleet.store import Store
try:
    Store(Path(sys.argv[1])).close()
except FleetError:
    sys.exit(3)
"""


@pytest.mark.parametrize("kind", ["journal", "spool"])
def test_one_has_it_at_a_time_in_this_process_or_another(tmp_path, kind):
    own = _OPENED[kind](tmp_path)
    for other in (kind, "reader"):
        with pytest.raises(FleetError, match=FILE):
            _OPENED[other](tmp_path)
    other = [sys.executable, "-c", _OTHER, tmp_path]
    assert subprocess.run(other, check=False).returncode == 3
    own.close()
    assert subprocess.run(other, check=False).returncode == 0
    _OPENED[kind](tmp_path).close()


def test_a_closed_store_is_one_file_that_anyone_can_open(tmp_path):
    with closing(Journal(tmp_path, STAGE)) as journal:
        append(journal, [record(1, refused="stale", decisions=7)])
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        rows = database.execute("SELECT pc, game, boot, number, verdict, decisions FROM chunks").fetchall()
    assert rows == [("attic", "1", "b0", 1, "stale", 7)]


@pytest.mark.parametrize("damage", ["no store", "torn", "other format", "header"])
@pytest.mark.parametrize("kind", ["journal", "reader", "spool"])
def test_a_damaged_file_is_refused_and_left_as_it_is(tmp_path, damage, kind):
    (Spool if kind == "spool" else lambda folder: Journal(folder, STAGE))(tmp_path).close()
    file = tmp_path / FILE
    content = bytearray(file.read_bytes())
    match damage:
        case "no store":
            content = b"a text of some words" * 500
        case "torn":
            content = content[:5000]
        case "other format":
            content[60:64] = (99).to_bytes(4, "big")
        case "header":
            content[:16] = bytes(16)
    file.write_bytes(content)
    with pytest.raises(FleetError, match=FILE) as found:
        _OPENED[kind](tmp_path)
    assert "\n" not in str(found.value)
    assert file.read_bytes() == content


@pytest.mark.parametrize("found", ["no store", "other format"])
def test_only_a_folder_that_a_process_has_is_in_use(tmp_path, found):
    assert not in_use(tmp_path)
    spool = Spool(tmp_path)
    assert in_use(tmp_path)
    spool.close()
    assert not in_use(tmp_path)
    if found == "other format":
        with closing(sqlite3.connect(tmp_path / FILE)) as database:
            database.execute("PRAGMA user_version = 1")
    else:
        (tmp_path / FILE).write_bytes(b"a text of some words" * 500)
    assert not in_use(tmp_path)


def test_a_missing_journal_is_not_made_by_who_reads_it(tmp_path):
    with pytest.raises(WriteError, match=FILE):
        Journal(tmp_path, STAGE, reading=True)
    assert not [*tmp_path.iterdir()]


def test_an_empty_file_as_a_power_cut_leaves_it_is_begun_and_has_nothing_to_read(tmp_path):
    (tmp_path / FILE).touch()
    with pytest.raises(FleetError, match=FILE):
        Journal(tmp_path, STAGE, reading=True)
    Journal(tmp_path, STAGE).close()
    assert numbers(tmp_path) == []


@pytest.mark.parametrize("remote", [True, False])
def test_a_store_on_a_network_disk_has_no_wal(tmp_path, monkeypatch, remote):
    monkeypatch.setattr(store, "is_remote", lambda folder: remote)
    journal = Journal(tmp_path, STAGE)
    append(journal, [record(1)])
    assert (tmp_path / f"{FILE}-wal").exists() == (not remote)
    journal.close()
    assert numbers(tmp_path) == [1]


# Processes that end, and disks that are full.


_WRITER = """
import sys
from itertools import count
from pathlib import Path
from soulsgraph_clusters.fleet import store
from soulsgraph_clusters.fleet.store import JOURNALED, Journal, StoredChunk

folder, boot, remote = sys.argv[1:]
store.is_remote = lambda folder: remote == "True"
journal = Journal(Path(folder), "camera")
for number in count(step=5):
    with journal.transaction():
        for one in range(5):
            journal.append(StoredChunk("attic", "1", boot, number + one, JOURNALED, 1, 0, bytes(9000 * one)))
    print(number + 4, flush=True)
"""


@contextmanager
def files_to(size):
    """Let no file of this process grow beyond a size, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("remote", [True, False])
def test_a_killed_writer_loses_nothing_that_it_reported(tmp_path, remote):
    for run in range(2):
        program = [sys.executable, "-c", _WRITER, tmp_path, f"b{run}", str(remote)]
        with subprocess.Popen(program, stdout=subprocess.PIPE) as writer:
            lines = [writer.stdout.readline() for _ in range(7 + 5 * run)]
            os.kill(writer.pid, signal.SIGKILL)
            lines += writer.stdout.readlines()
            reported = int(lines[-1])
        assert writer.wait(PATIENCE_S) == -signal.SIGKILL
        # A WAL is read on a full disk too.
        with nullcontext() if remote else files_to(0), closing(Journal(tmp_path, STAGE, reading=bool(run))) as journal:
            found = [one.number for one in everything(journal) if one.boot == f"b{run}"]
        assert found == [*range(len(found))]
        assert len(found) in (reported + 1, reported + 6)


@pytest.mark.parametrize("remote", [True, False])
@pytest.mark.parametrize("room", [0, 3100, 9000])
def test_a_full_disk_leaves_the_journal_as_it_was_and_it_goes_on_when_there_is_room(
    tmp_path, monkeypatch, room, remote
):
    monkeypatch.setattr(store, "is_remote", lambda folder: remote)
    journal = Journal(tmp_path, STAGE)
    append(journal, [record(1, size=3000), record(2, size=3000)])
    size = max(path.stat().st_size for path in tmp_path.iterdir())
    group = [record(number, size=20_000) for number in range(2, 5)]
    for _ in range(2):
        with files_to(size + room), pytest.raises(WriteError):
            append(journal, group)
        assert journal.end == 2
    assert len(append(journal, group)) == 2
    journal.close()
    assert numbers(tmp_path) == [1, 2, 3, 4]


# The spool against a list.


#: Room for about ten chunks beside the tables.
MOST_BYTES = 160_000


def chunk(decisions=1, size=10_000):
    return Chunk(stage=STAGE, decisions={STAGE: decisions}, columns=bytes(size))


def contents(spool):
    return [spool.read(*key) for key in spool.pending()]


_SPOOL_STEP = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 100_000)),
    st.tuples(st.just("acknowledge"), st.lists(st.integers(0, 12), max_size=4)),
    st.tuples(st.just("reopen"), st.none()),
)


class SpoolModel:
    """A spool beside the list that it should be: keys and decisions, oldest first."""

    def __init__(self, folder):
        self.folder, self.spool, self.kept, self.put_so_far = folder, Spool(folder, MOST_BYTES), [], 0
        self.acknowledged = self.lost_before = 0

    def put(self, size):
        self.put_so_far += 1
        sent = chunk(decisions=self.put_so_far, size=size)
        key = self.spool.put(sent)
        assert key == (self.spool.boot, sent.sequence)
        self.kept.append((key, self.put_so_far))
        # Dropped are the oldest, and no more than needed.
        waiting = self.spool.waiting
        assert waiting == len(self.kept) or self.spool.size_bytes > MOST_BYTES - 110_000
        self.kept = self.kept[-waiting:]

    def acknowledge(self, places):
        keys = [key for place, (key, _) in enumerate(self.kept) if place in places]
        for boot, number in keys:
            self.spool.acknowledge(boot, [number, number, number + 1000])
        self.acknowledged += sum(decisions for key, decisions in self.kept if key in keys)
        self.kept = [one for one in self.kept if one[0] not in keys]

    def reopen(self, _):
        boot = self.spool.boot
        self.lost_before += self.spool.lost.total()
        self.spool.close()
        self.spool = Spool(self.folder, MOST_BYTES)
        assert self.spool.boot != boot

    def check(self):
        assert self.spool.pending() == [key for key, _ in self.kept]
        assert self.spool.waiting == len(self.kept)
        assert [one.decisions[STAGE] for one in contents(self.spool)] == [number for _, number in self.kept]
        assert self.spool.size_bytes <= MOST_BYTES
        lost = self.lost_before + self.spool.lost[FULL]
        waiting = sum(decisions for _, decisions in self.kept)
        assert sum(range(self.put_so_far + 1)) == waiting + self.acknowledged + lost


@settings(max_examples=30, deadline=None)
@given(st.lists(_SPOOL_STEP, max_size=20))
def test_every_decision_put_is_kept_acknowledged_or_counted_as_dropped(steps):
    with tempfile.TemporaryDirectory() as folder:
        model = SpoolModel(Path(folder))
        for name, argument in steps:
            getattr(model, name)(argument)
            model.check()
        model.spool.close()


@pytest.mark.parametrize("room", [0, 100, 3000])
def test_a_full_disk_loses_what_it_cannot_take_counted_and_play_goes_on(tmp_path, room):
    spool = Spool(tmp_path)
    spool.put(chunk(1))
    size = max(path.stat().st_size for path in tmp_path.iterdir())
    with files_to(size + room):
        assert [spool.put(chunk(decisions)) for decisions in (2, 3)] == [None, None]
        # What the head has is forgotten as soon as there is room.
        spool.acknowledge(spool.boot, [1])
    key = spool.put(chunk(4))
    assert key == (spool.boot, 4)
    assert spool.pending() == [key]
    assert spool.lost == {"disk full": 5}
    spool.close()
