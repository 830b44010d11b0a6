"""A game PC's spool against a list, killed, on a full disk, and with files that were damaged or put there."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.waiting import PATIENCE_S
from soulsgraph_clusters.fleet.actor.spool import DAMAGED, FULL, Spool, machine_id
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Chunk
from soulsgraph_clusters.fleet.protocol.settings import FleetError
from soulsgraph_envs.core.files import WriteError

#: Room for a few chunks of `chunk`.
MOST_BYTES = 1000


def chunk(decisions=1, size=100):
    return Chunk(stage="camera", decisions={"camera": decisions}, columns=bytes(size))


def contents(spool):
    return [spool.read(*key) for key in spool.pending()]


def files(folder):
    return sorted(Path(folder).glob("*.chunk"))


# Against a list.


_STEP = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 2 * MOST_BYTES)),
    st.tuples(st.just("acknowledge"), st.lists(st.integers(0, 12), max_size=4)),
    st.tuples(st.just("reopen"), st.none()),
)


class Model:
    """A spool beside the list that it should be: keys, sizes on disk and decisions, oldest first."""

    def __init__(self, folder):
        self.folder, self.spool, self.kept, self.put_so_far = folder, Spool(folder, MOST_BYTES), [], 0
        self.lost = self.acknowledged = self.lost_before = 0

    def put(self, size):
        self.put_so_far += 1
        sent = chunk(decisions=self.put_so_far, size=size)
        key = self.spool.put(sent)
        assert key == (self.spool.boot, sent.sequence)
        self.kept.append((key, len(sent.SerializeToString()) + 4, self.put_so_far))
        while sum(size for _, size, _ in self.kept) > MOST_BYTES and len(self.kept) > 1:
            self.lost += self.kept.pop(0)[2]

    def acknowledge(self, places):
        keys = [key for place, (key, _, _) in enumerate(self.kept) if place in places]
        for boot, sequence in keys:
            self.spool.acknowledge(boot, [sequence, sequence, sequence + 1000])
        self.acknowledged += sum(decisions for key, _, decisions in self.kept if key in keys)
        self.kept = [one for one in self.kept if one[0] not in keys]

    def reopen(self, _):
        boot = self.spool.boot
        self.lost_before += self.spool.lost.total()
        self.spool.close()
        self.spool = Spool(self.folder, MOST_BYTES)
        assert self.spool.boot != boot

    def check(self):
        assert self.spool.pending() == [key for key, _, _ in self.kept]
        assert [one.decisions["camera"] for one in contents(self.spool)] == [number for _, _, number in self.kept]
        assert self.spool.bytes == sum(file.stat().st_size for file in files(self.folder))
        assert self.spool.bytes == sum(size for _, size, _ in self.kept)
        assert self.lost_before + self.spool.lost[FULL] == self.lost
        waiting = sum(decisions for _, _, decisions in self.kept)
        assert sum(range(self.put_so_far + 1)) == waiting + self.acknowledged + self.lost


@settings(max_examples=40)
@given(st.lists(_STEP, max_size=20))
def test_every_decision_put_is_kept_acknowledged_or_counted_as_dropped(steps):
    with tempfile.TemporaryDirectory() as folder:
        model = Model(Path(folder))
        for name, argument in steps:
            getattr(model, name)(argument)
            model.check()
        model.spool.close()


def test_a_full_spool_drops_the_oldest_of_an_earlier_boot_first_and_counts_its_decisions(tmp_path):
    first = Spool(tmp_path, MOST_BYTES)
    oldest = first.put(chunk(decisions=7, size=400))
    newer = first.put(chunk(decisions=8, size=400))
    first.close()
    second = Spool(tmp_path, MOST_BYTES)
    newest = second.put(chunk(decisions=9, size=400))
    assert second.pending() == [newer, newest]
    assert second.read(*oldest) is None
    assert second.lost == {FULL: 7}
    second.close()


@pytest.mark.parametrize("step_s", [-86_400, 86_400])
def test_chunks_are_sent_in_the_order_of_play_whatever_the_clock_said(tmp_path, step_s):
    now_s, keys = time.time(), []
    for run in range(12):
        spool = Spool(tmp_path)
        keys += [spool.put(chunk()) for _ in range(2)]
        for file in files(tmp_path):
            if spool.boot in file.name:
                os.utime(file, (now_s, now_s + run * step_s))
        # Some starts leave nothing behind.
        if run % 5 == 3:
            spool.acknowledge(spool.boot, [1, 2])
            del keys[-2:]
        assert spool.pending() == keys
        spool.close()
    spool = Spool(tmp_path)
    assert spool.pending() == keys
    spool.close()


# Who uses it, and what lies there.


def test_a_second_process_that_plays_the_same_game_is_refused(tmp_path):
    spool = Spool(tmp_path)
    with pytest.raises(FleetError, match="process"):
        Spool(tmp_path)
    spool.close()
    Spool(tmp_path).close()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match="spool"):
        Spool(tmp_path / "file" / "spool")


def test_a_chunk_damaged_at_any_byte_is_dropped_and_counted_and_the_others_are_read(tmp_path):
    spool = Spool(tmp_path / "first")
    spool.put(chunk())
    size = files(tmp_path / "first")[0].stat().st_size
    spool.close()
    for place in range(0, size, 3):
        spool = Spool(tmp_path / str(place))
        keys = [spool.put(chunk(decisions=number)) for number in (1, 2, 4)]
        file = files(tmp_path / str(place))[1]
        damaged = bytearray(file.read_bytes())
        damaged[place] ^= 0x55
        file.write_bytes(damaged)
        assert [one and one.decisions["camera"] for one in contents(spool)] == [1, None, 4]
        assert spool.pending() == [keys[0], keys[2]]
        assert spool.lost == {DAMAGED: 2}
        assert not file.exists()
        spool.close()


def test_a_chunk_whose_file_is_gone_waits_no_longer_and_is_counted(tmp_path):
    spool = Spool(tmp_path)
    gone, kept = spool.put(chunk(decisions=3)), spool.put(chunk(decisions=5))
    files(tmp_path)[0].unlink()
    assert spool.read(*gone) is None
    assert spool.pending() == [kept]
    assert spool.bytes == files(tmp_path)[0].stat().st_size
    assert spool.lost == {DAMAGED: 3}
    # Once it was acknowledged, it is not lost.
    spool.acknowledge(kept[0], [kept[1]])
    assert spool.read(*kept) is None
    assert spool.lost == {DAMAGED: 3}
    spool.close()


def test_files_that_are_no_chunks_are_left_alone(tmp_path):
    Spool(tmp_path).close()
    for name in ("notes.chunk", "1-a-2.chunk", "photo.png"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "half.new").write_text("unfinished")
    spool = Spool(tmp_path, MOST_BYTES)
    assert spool.pending() == []
    keys = [spool.put(chunk(size=400)) for _ in range(4)]
    assert spool.pending() == keys[-2:]
    spool.close()
    assert {"notes.chunk", "1-a-2.chunk", "photo.png"} < {file.name for file in tmp_path.iterdir()}
    assert not (tmp_path / "half.new").exists()


def test_an_acknowledgement_reaches_no_file_outside_the_spool(tmp_path):
    outside = tmp_path / f"{1:08d}-x-{1:012d}.chunk"
    outside.write_text("mine")
    spool = Spool(tmp_path / "spool")
    spool.acknowledge("../x", [1])
    assert outside.exists()
    assert spool.read("../x", 1) is None
    spool.close()


# Processes that end, and disks that are full.


_PUTTER = """
import sys
from itertools import count
from pathlib import Path
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Chunk
from soulsgraph_clusters.fleet.actor.spool import Spool

spool = Spool(Path(sys.argv[1]))
for number in count():
    spool.put(Chunk(decisions={"camera": 1}, columns=bytes(10_000)))
    # One write: an unbuffered Python prints words one by one, and may be killed between two of them.
    sys.stdout.write(f"{spool.boot} {spool.pending()[-1][1]}\\n")
    sys.stdout.flush()
"""


def test_a_killed_process_leaves_every_chunk_that_it_had_put(tmp_path):
    boots = []
    for run in range(2):
        with subprocess.Popen([sys.executable, "-c", _PUTTER, tmp_path], stdout=subprocess.PIPE, text=True) as process:
            lines = [process.stdout.readline() for _ in range(5 + 3 * run)]
            os.kill(process.pid, signal.SIGKILL)
            lines += process.stdout.readlines()
        assert process.wait(PATIENCE_S) == -signal.SIGKILL
        boot, reported = lines[-1].split()
        boots.append(boot)
        spool = Spool(tmp_path)
        found = [sequence for one, sequence in spool.pending() if one == boot]
        assert found == [*range(1, len(found) + 1)]
        assert int(reported) <= len(found) <= int(reported) + 1
        assert None not in contents(spool)
        # Older boots are sent first.
        order = [boots.index(one) for one, _ in spool.pending()]
        assert order == sorted(order)
        spool.close()
    assert not list(tmp_path.glob("*.new"))


@pytest.mark.parametrize("room", [0, 100, 3000])
def test_a_full_disk_loses_what_it_cannot_take_counted_and_play_goes_on(tmp_path, room):
    spool = Spool(tmp_path)
    spool.put(chunk(1, size=3000))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        assert [spool.put(chunk(decisions, size=3000)) for decisions in (2, 3)] == [None, None]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [file.suffix for file in tmp_path.iterdir() if file.suffix in (".new", ".chunk")] == [".chunk"]
    assert spool.put(chunk(4, size=3000))[1] == 4
    assert [one.decisions["camera"] for one in contents(spool)] == [1, 4]
    assert spool.lost == {"disk full": 5}
    spool.close()


def test_a_sync_also_waits_for_what_another_thread_took_to_sync(tmp_path, monkeypatch):
    taken, disk = threading.Event(), threading.Event()
    written = []

    def slow(path):
        taken.set()
        assert disk.wait(PATIENCE_S)
        written.append(path)

    monkeypatch.setattr("soulsgraph_clusters.fleet.actor.spool.files.sync_file", slow)
    spool = Spool(tmp_path)
    spool.put(chunk())
    # The spool's own thread has the chunk now, and the disk keeps it waiting.
    assert taken.wait(PATIENCE_S)
    # A sync that does not wait returns before that; on a machine too busy for it the test could only pass.
    threading.Timer(0.5, disk.set).start()
    spool.sync()
    assert {*files(tmp_path)} <= {*written}
    spool.close()


# Whose it is.


def test_a_folder_of_spools_names_one_machine_for_good(tmp_path):
    first = machine_id(tmp_path / "pc")
    assert len(first) == 16
    assert int(first, 16) >= 0
    assert machine_id(tmp_path / "pc") == first
    assert machine_id(tmp_path / "other") != first


@pytest.mark.parametrize("damage", [b"", b"\xff" * 16, b"g" * 16, b"0" * 17])
def test_a_damaged_id_is_drawn_again(tmp_path, damage):
    (tmp_path / "machine").write_bytes(damage)
    drawn = machine_id(tmp_path)
    assert (tmp_path / "machine").read_text() == drawn != damage.decode(errors="replace")


def test_without_a_place_for_it_the_id_holds_for_once(tmp_path):
    (tmp_path / "file").write_text("")
    assert machine_id(tmp_path / "file" / "pc") != machine_id(tmp_path / "file" / "pc")
