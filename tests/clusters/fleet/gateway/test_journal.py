"""The journal against a set and a list, cut at every byte, killed, on a full disk, and damaged."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.waiting import PATIENCE_S
from soulsgraph_clusters.fleet.gateway.journal import JOURNALED, Journal, JournalError
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Chunk, Record
from soulsgraph_envs.core.files import WriteError

STAGE = "camera"
#: Small enough that a few records fill a file.
SEGMENT_BYTES = 400


def record(sequence, boot="b0", refused="", decisions=1, size=20):
    chunk = Chunk(boot=boot, sequence=sequence, decisions={STAGE: decisions}, columns=bytes(size))
    return Record(pc="attic", game="1", refused=refused, chunk=chunk)


def opened(folder, stage=STAGE):
    return Journal(Path(folder), stage, SEGMENT_BYTES)


def everything(journal):
    found = journal.read(journal.first, 10**6)
    assert [position for position, _ in found] == [*range(journal.first, journal.end)]
    return [one for _, one in found]


def sequences(folder):
    """Return the sequences of a folder's journal, as a reader beside its writer finds them."""
    journal = Journal.reading(Path(folder), STAGE)
    found = [one.chunk.sequence for one in everything(journal)]
    journal.close()
    return found


def files(folder):
    return sorted(Path(folder).glob("*.journal"))


# Against a list.


_GROUP = st.lists(st.tuples(st.sampled_from(["b0", "b1"]), st.integers(0, 12), st.sampled_from(["", "stale"])))
_STEP = st.one_of(
    st.tuples(st.just("append"), _GROUP),
    st.tuples(st.just("read"), st.tuples(st.integers(0, 30), st.integers(1, 9))),
    st.tuples(st.just("prune"), st.integers(0, 30)),
    st.tuples(st.just("reopen"), st.none()),
)


class Model:
    """A journal beside the list that it should be."""

    def __init__(self, folder):
        self.folder, self.journal, self.records = folder, opened(folder), []

    def append(self, group):
        keys = {(one.chunk.boot, one.chunk.sequence) for one in self.records}
        new = []
        for boot, sequence, refused in group:
            if (boot, sequence) not in keys:
                keys.add((boot, sequence))
                new.append(record(sequence, boot, refused, decisions=sequence))
        assert self.journal.append([record(s, b, r, decisions=s) for b, s, r in group]) == new
        self.records += new

    def read(self, asked):
        position, most = asked
        if position < self.journal.first:
            with pytest.raises(JournalError):
                self.journal.read(position, most)
            return
        expected = [*enumerate(self.records)][position : position + most]
        assert self.journal.read(position, most) == expected

    def prune(self, before):
        first = self.journal.first
        self.journal.prune(before)
        assert first <= self.journal.first <= max(before, first)

    def reopen(self, _):
        attempt = self.journal.attempt
        self.journal.close()
        self.journal = opened(self.folder)
        assert self.journal.attempt == attempt

    def check(self):
        assert self.journal.end == len(self.records)
        assert everything(self.journal) == self.records[self.journal.first :]
        counted = {f"attic/{verdict}": 0 for verdict in (JOURNALED, "stale")}
        for one in self.records:
            counted[f"attic/{one.refused or JOURNALED}"] += one.chunk.decisions[STAGE]
        assert {key: self.journal.decisions[key] for key in counted} == counted
        keys = {(one.chunk.boot, one.chunk.sequence) for one in self.records}
        asked = [(boot, sequence) for boot in ("b0", "b1", "b2") for sequence in range(14)]
        assert {key for key in asked if ("attic", "1", *key) in self.journal.deduplication} == keys
        assert ("cellar", "1", "b0", 1) not in self.journal.deduplication


@settings(max_examples=40)
@given(st.lists(_STEP, max_size=15))
def test_a_journal_is_the_list_of_what_was_appended_whatever_is_done_to_it(steps):
    with tempfile.TemporaryDirectory() as folder:
        model = Model(folder)
        for name, argument in steps:
            getattr(model, name)(argument)
            model.check()
        model.journal.close()


def test_a_chunk_that_was_pruned_is_not_taken_again(tmp_path):
    journal = opened(tmp_path)
    for sequence in range(40):
        journal.append([record(sequence)])
    count = len(files(tmp_path))
    journal.prune(30)
    assert len(files(tmp_path)) < count / 2
    assert 0 < journal.first <= 30
    journal.close()
    journal = opened(tmp_path)
    assert journal.append([record(sequence) for sequence in range(41)]) == [record(40)]
    assert journal.decisions[f"attic/{JOURNALED}"] == 41
    journal.close()


def test_a_full_journal_takes_nothing_until_it_is_pruned_and_loses_nothing(tmp_path):
    journal = Journal(tmp_path, STAGE, SEGMENT_BYTES, most_bytes=3000)
    taken = 0
    while journal.size_bytes < 2700:
        taken += len(journal.append([record(taken, size=100)]))
    group = [record(sequence, size=100) for sequence in range(taken, taken + 3)]
    with pytest.raises(JournalError):
        journal.append(group)
    assert 10 < taken == journal.end < 30
    assert sum(file.stat().st_size for file in files(tmp_path)) == journal.size_bytes <= 3000
    # What is there is no more to write.
    assert journal.append([record(taken - 1, size=100)]) == []
    journal.close()
    journal = Journal(tmp_path, STAGE, SEGMENT_BYTES, most_bytes=3000)
    with pytest.raises(JournalError):
        journal.append([record(taken, size=100)])
    assert ("attic", "1", "b0", taken) not in journal.deduplication
    journal.prune(taken // 2)
    for sequence in range(taken, 80):
        assert journal.append([record(sequence, size=100)])
        journal.prune(sequence - 10)
        assert sum(file.stat().st_size for file in files(tmp_path)) == journal.size_bytes <= 3000
    assert [one.chunk.sequence for one in everything(journal)] == [*range(journal.first, 80)]
    # A group that is larger than everything is taken all the same, where nothing can be pruned.
    journal.prune(journal.end)
    assert len(journal.append([record(sequence, size=1000) for sequence in range(1000, 1010)])) == 10
    journal.close()


# Torn and damaged files.


def _written(folder, *groups):
    journal = opened(folder)
    for group in groups:
        journal.append([record(sequence) for sequence in group])
    journal.close()
    return files(folder)


def test_a_journal_cut_at_any_byte_of_its_last_group_has_all_before_it_and_goes_on(tmp_path):
    (file,) = _written(tmp_path, [1], [2, 3])
    before = file.stat().st_size
    _written(tmp_path, [4, 5])
    assert files(tmp_path) == [file]
    whole = file.read_bytes()
    for size in range(before, len(whole)):
        file.write_bytes(whole[:size])
        journal = opened(tmp_path)
        found = [one.chunk.sequence for one in everything(journal)]
        # Of a group that was never acknowledged the whole records may be there: they are sent again, and taken once.
        assert found[:3] == [1, 2, 3]
        assert found[3:] in ([], [4])
        assert journal.append([record(3), record(4), record(5)]) == [record(4), record(5)][len(found) - 3 :]
        journal.close()
        assert sequences(tmp_path) == [1, 2, 3, 4, 5]
    assert before < len(whole)


def test_a_new_file_cut_at_any_byte_of_its_beginning_is_begun_again(tmp_path):
    *_, last = _written(tmp_path, *([sequence] for sequence in range(12)))
    whole = last.read_bytes()
    kept = int(last.stem)
    assert kept
    first_record = whole.find(b"SGj:", whole.find(b"SGj:") + 1)
    for size in range(0, first_record, 3):
        last.write_bytes(whole[:size])
        journal = opened(tmp_path)
        assert [one.chunk.sequence for one in everything(journal)] == [*range(kept)]
        journal.append([record(kept)])
        journal.close()
        assert sequences(tmp_path) == [*range(kept + 1)]


def test_a_damaged_byte_before_a_later_group_is_refused_by_file_and_byte(tmp_path):
    (file,) = _written(tmp_path, [1], [2], [3])
    whole = file.read_bytes()
    last = whole.rfind(b"SGj:")
    for place in range(last):
        damaged = bytearray(whole)
        damaged[place] ^= 0x55
        file.write_bytes(damaged)
        with pytest.raises(JournalError, match=file.name):
            opened(tmp_path)
        assert file.read_bytes() == damaged
    file.write_bytes(whole)
    assert sequences(tmp_path) == [1, 2, 3]


def test_a_damaged_or_missing_file_before_the_last_is_refused(tmp_path):
    first, second, *_ = _written(tmp_path, *([sequence] for sequence in range(12)))
    whole = second.read_bytes()
    second.write_bytes(whole[:-1])
    with pytest.raises(JournalError, match=second.name):
        opened(tmp_path)
    second.unlink()
    with pytest.raises(JournalError):
        opened(tmp_path)
    second.write_bytes(whole)
    assert sequences(tmp_path) == [*range(12)]
    assert first.exists()


# Who opens it.


def test_the_journal_of_another_stage_or_attempt_is_refused(tmp_path):
    _written(tmp_path / "one", *([sequence] for sequence in range(12)))
    with pytest.raises(JournalError, match="dodge"):
        opened(tmp_path / "one", "dodge")
    _written(tmp_path / "other", *([sequence] for sequence in range(12)))
    files(tmp_path / "other")[-1].rename(files(tmp_path / "one")[-1])
    with pytest.raises(JournalError, match="camera"):
        opened(tmp_path / "one")


def test_a_second_writer_is_refused_and_a_reader_is_not(tmp_path):
    journal = opened(tmp_path)
    journal.append([record(1)])
    with pytest.raises(JournalError):
        opened(tmp_path)
    reader = Journal.reading(tmp_path, STAGE)
    journal.append([record(sequence) for sequence in range(2, 20)])
    assert [one.chunk.sequence for one in everything(reader)] == [1]
    assert sequences(tmp_path) == [*range(1, 20)]
    reader.close()
    journal.close()
    opened(tmp_path).close()


def test_a_reader_removes_nothing_that_its_writer_is_about_to_write(tmp_path):
    *_, last = _written(tmp_path, *([sequence] for sequence in range(12)))
    whole = last.read_bytes()
    for size in (0, 10, len(whole) - 1):
        last.write_bytes(whole[:size])
        assert len(sequences(tmp_path)) < 12
        assert last.read_bytes() == whole[:size]


def test_a_reader_passes_over_a_file_that_its_writer_forgets_meanwhile(tmp_path):
    first, *_ = _written(tmp_path, *([sequence] for sequence in range(12)))
    kept = int(files(tmp_path)[1].stem)
    first.unlink()
    # Listed, and gone when it is read.
    first.symlink_to(tmp_path / "nowhere")
    assert sequences(tmp_path) == [*range(kept, 12)]


# Processes that end, and disks that are full.


_WRITER = """
import sys
from itertools import count
from pathlib import Path
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Chunk, Record
from soulsgraph_clusters.fleet.gateway.journal import Journal

folder, boot = sys.argv[1:]
journal = Journal(Path(folder), "camera", 20_000)
for number in count():
    group = [Chunk(boot=boot, sequence=5 * number + place, columns=bytes(200 * place)) for place in range(5)]
    journal.append([Record(pc="attic", game="1", chunk=chunk) for chunk in group])
    print(5 * number + 4, flush=True)
"""


def test_a_killed_writer_loses_nothing_that_it_reported(tmp_path):
    for run in range(2):
        writer = subprocess.Popen([sys.executable, "-c", _WRITER, tmp_path, f"b{run}"], stdout=subprocess.PIPE)
        with writer:
            lines = [writer.stdout.readline() for _ in range(7 + 5 * run)]
            os.kill(writer.pid, signal.SIGKILL)
            lines += writer.stdout.readlines()
            reported = int(lines[-1])
        assert writer.wait(PATIENCE_S) == -signal.SIGKILL
        journal = opened(tmp_path)
        found = [one.chunk.sequence for one in everything(journal) if one.chunk.boot == f"b{run}"]
        journal.close()
        assert found == [*range(len(found))]
        assert reported + 1 <= len(found) <= reported + 1 + 5


@contextmanager
def files_to(size):
    """Let no file of this process grow beyond a size, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("room", [0, 15, 3100, 5000])
def test_a_full_disk_leaves_the_journal_as_it_was_and_it_goes_on_when_there_is_room(tmp_path, room):
    journal = Journal(tmp_path, STAGE, 20_000)
    group, more = ([record(sequence, size=3000) for sequence in numbers] for numbers in (range(2, 5), range(5, 10)))
    journal.append([record(1, size=3000), record(2, size=3000)])
    (file,) = files(tmp_path)
    size = file.stat().st_size
    for _ in range(2):
        with files_to(size + room), pytest.raises(WriteError):
            journal.append(group)
        assert (file.stat().st_size, journal.end) == (size, 2)
    assert ("attic", "1", "b0", 3) not in journal.deduplication
    assert len(journal.append(group)) == 2
    # The next file cannot be begun either.
    with files_to(room // 100), pytest.raises(WriteError):
        journal.append(more)
    assert files(tmp_path) == [file]
    journal.append(more)
    journal.close()
    assert sequences(tmp_path) == [*range(1, 10)]
