"""What a power cut leaves: names and bytes that were not synced are forgotten, torn or kept, at every single step."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
import pytest

from soulsgraph.runs import train
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.zoo import open_agent
from soulsgraph_clusters.fleet.actor.spool import Spool
from soulsgraph_clusters.fleet.store import Journal
from soulsgraph_envs.core.files import settle, whole_file, whole_folder
from soulsgraph_policies.learning.checkpoint import read_training_state, write_training_state

#: How many mixtures are drawn at each step, beside all names forgotten and all kept.
MIXTURES = 2
_STEPS = ("rename", "replace", "mkdir", "rmdir", "unlink", "remove", "fsync")


@dataclass
class Disk:
    """Record what of a folder is synced: a file's bytes and a folder's names, as they were at the last `os.fsync`.

    Every file that was recorded stays open, so that no other gets its number.
    """

    root: Path
    bytes_of: dict[int, bytes] = field(default_factory=dict)
    names_of: dict[int, dict[str, int]] = field(default_factory=dict)
    folders: set[int] = field(default_factory=set)
    _open: dict[int, int] = field(default_factory=dict)

    def __post_init__(self):
        self.sync(os.open(self.root, os.O_RDONLY))

    def sync(self, handle):
        number = os.fstat(handle).st_ino
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if path.is_dir():
            self.folders.add(number)
            self.names_of[number] = {one.name: self._hold(one) for one in path.iterdir()}
        else:
            self.bytes_of[number] = _content(handle)
        self._open.setdefault(number, os.dup(handle))

    def _hold(self, path):
        number = path.stat().st_ino
        if number not in self._open:
            self._open[number] = os.open(path, os.O_RDONLY)
        if path.is_dir():
            self.folders.add(number)
        return number

    def cut(self, to, mixture):
        """Make the folder `to` as the disk may be when power is back; `mixture` draws what was written in time."""
        self._fill(self.root.stat().st_ino, to, mixture)

    def _fill(self, number, to, mixture):
        to.mkdir()
        live = Path(f"/proc/self/fd/{self._open[number]}")
        now = {one.name: self._hold(one) for one in live.iterdir()}
        for name, child in (now if mixture.names() else self.names_of.get(number, {})).items():
            if child in self.folders:
                self._fill(child, to / name, mixture)
            else:
                content = mixture.content(self.bytes_of.get(child, b""), _content(self._open[child]))
                (to / name).write_bytes(content)

    def close(self):
        for handle in self._open.values():
            os.close(handle)


_CALL = re.compile(r"\d+ +(\w+)\((.*)\) += (-?\d+)")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


@dataclass
class _File:
    """A file of a `CallsDisk`: its bytes now and when it was synced last."""

    now: bytearray = field(default_factory=bytearray)
    synced: bytes = b""


class CallsDisk:
    """What of one folder is synced, by the system calls of a program as strace writes them."""

    def __init__(self, folder):
        self._folder, self._said, self.cuts = str(folder), "", 0
        self._names, self._synced_names = dict[str, _File](), dict[str, _File]()
        #: By handle a file's name, or the folder's, which is empty.
        self._open = dict[int, str]()

    @property
    def lines(self):
        """The lines that the program has printed."""
        return self._said.split("\n")[:-1]

    def would_change(self, line):
        """Return whether a call syncs or names a file of the folder: until then what is written can only be torn."""
        call = _CALL.match(line)
        return bool(call) and call[1] in ("fsync", "fdatasync", "unlink") and self._name(call) is not None

    def _name(self, call):
        if call[1] in ("openat", "unlink"):
            path = bytes.fromhex(_TEXT.search(call[2])[1].replace("\\x", "")).decode()
            inside = path == self._folder or path.startswith(f"{self._folder}/")
            return path[len(self._folder) + 1 :] if inside else None
        return self._open.get(int(call[2].split(",")[0]))

    def take(self, line):
        """Do what a call did."""
        if (call := _CALL.match(line)) is None or int(call[3]) < 0:
            return
        if call[1] == "write" and call[2].startswith("1,"):
            self._said += bytes.fromhex(_TEXT.search(call[2])[1].replace("\\x", "")).decode()
        if (name := self._name(call)) is None:
            return
        words = call[2].rsplit(", ", 2)
        match call[1]:
            case "openat":
                self._open[int(call[3])] = name
                if name:
                    self._names.setdefault(name, _File())
            case "close":
                del self._open[int(call[2])]
            case "pwrite64":
                data, begin = bytes.fromhex(_TEXT.search(call[2])[1].replace("\\x", "")), int(words[-1])
                content = self._names[name].now
                assert len(data) == int(call[3])
                content.extend(bytes(max(begin - len(content), 0)))
                content[begin : begin + len(data)] = data
            case "ftruncate":
                del self._names[name].now[int(words[-1]) :]
            case "unlink":
                del self._names[name]
            case "fsync" | "fdatasync":
                if name:
                    self._names[name].synced = bytes(self._names[name].now)
                else:
                    self._synced_names = dict(self._names)

    def cut(self, to, mixture):
        """Make the folder `to` as the disk may be when power is back."""
        self.cuts += 1
        to.mkdir()
        for name, file in (self._names if mixture.names() else self._synced_names).items():
            (to / name).write_bytes(mixture.content(file.synced, bytes(file.now)))


class Sectors:
    """Of each name, size and sector of 512 bytes the old or the new state."""

    def __init__(self, seed):
        self._random = Random(seed)

    def names(self):
        return self._random.random() < 0.5

    def content(self, synced, now):
        if synced.startswith(now):
            # What was cut off is there still, or not.
            return self._random.choice((synced, now))
        size = len(self._random.choice((synced, now)))
        wide = [one.ljust(size, b"\0") for one in (synced, now)]
        return b"".join(self._random.choice(wide)[at : at + 512] for at in range(0, size, 512))[:size]


def _content(handle):
    with open(f"/proc/self/fd/{handle}", "rb") as file:
        return file.read()


class Forgotten:
    """Nothing but what was synced is there."""

    def names(self):
        return False

    def content(self, synced, now):
        return synced


class Renamed(Forgotten):
    """Every name was written in time, no byte that was not synced: what delayed allocation leaves."""

    def names(self):
        return True


class Mixed:
    """Of each folder and file the old or the new state, or a torn one."""

    def __init__(self, seed):
        self._random = Random(seed)

    def names(self):
        return self._random.random() < 0.5

    def content(self, synced, now):
        kind = self._random.randrange(3)
        torn = now[: self._random.randint(0, len(now))]
        # What is appended is torn behind what was there, of other changes any part.
        torn = torn if not now.startswith(synced) else now[: max(len(synced), len(torn))]
        return (synced, now, torn)[kind]


@contextmanager
def watched(monkeypatch, root, check):
    """Cut the power before each step that changes names or syncs, and `check` the folder that is left each time."""
    disk, access, count = Disk(root), threading.RLock(), 0
    checking = False

    def cut():
        nonlocal checking, count
        checking = True
        try:
            for mixture in (Forgotten(), Renamed(), *(Mixed(seed) for seed in range(count, count + MIXTURES))):
                count += 1
                left = root.with_name(f"{root.name}-left-{count}")
                disk.cut(left, mixture)
                check(left)
        finally:
            checking = False

    def step(name, real):
        def one(*arguments, **named):
            with access:
                if checking:
                    return real(*arguments, **named)
                cut()
                if name == "fsync":
                    disk.sync(*arguments)
                return real(*arguments, **named)

        return one

    with monkeypatch.context() as patch:
        for name in _STEPS:
            patch.setattr(os, name, step(name, getattr(os, name)))
        yield
        with access:
            cut()
    disk.close()
    assert count > 4 * (2 + MIXTURES)


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    return folder


def test_a_file_is_the_old_or_the_new_one_and_the_new_one_once_it_was_written(root, monkeypatch):
    written = [None]

    def check(left):
        path = left / "new" / "folders" / "file"
        assert (path.read_text() if path.exists() else None) in written

    with watched(monkeypatch, root, check):
        for text in ("first" * 100, "second"):
            written.append(text)
            with whole_file(root / "new" / "folders" / "file") as temporary:
                temporary.write_text(text)
            del written[:-1]


def test_a_folder_is_the_old_or_the_new_one(root, monkeypatch):
    written = [None]

    def check(left):
        path = left / "new" / "folder"
        settle(path.parent)
        found = {str(one.relative_to(path)): one.read_text() for one in path.rglob("*") if one.is_file()}
        assert (found if path.exists() else None) in written
        assert not path.parent.exists() or [one.name for one in path.parent.iterdir()] in ([], ["folder"])

    with watched(monkeypatch, root, check):
        for number in range(3):
            content = {"a": "a" * number, f"deep/{number}": "b"}
            written.append(content)
            with whole_folder(root / "new" / "folder", replace=number > 0) as temporary:
                (temporary / "deep").mkdir()
                for name, text in content.items():
                    (temporary / name).write_text(text)
            del written[:-1]


def test_a_run_is_begun_or_can_be_and_its_library_has_every_version_that_was_saved(root, monkeypatch):
    plan, saved, begun = Plan(scale=0.01), 0, False
    artifact = open_agent("iudex-phase1-best-0").library.load("camera")

    def check(left):
        path = left / "runs" / "mine"
        if not (path / "plan.json").exists():
            assert not begun
            RunFolder.create(path, plan)
        run = RunFolder.open(path)
        assert run.plan == plan
        versions = run.library.versions("camera")
        assert saved <= len(versions) <= saved + 1
        for version in versions:
            assert run.library.load("camera", version).card.sha256 == artifact.card.sha256

    with watched(monkeypatch, root, check):
        run = RunFolder.create(root / "runs" / "mine", plan)
        begun = True
        for _ in range(2):
            run.library.save(artifact)
            saved += 1


class Algorithm:
    """What of the algorithm a checkpoint needs."""

    decisions = 0

    def save_checkpoint(self, folder):
        write_training_state(Path(folder), {"decisions": self.decisions, "replay": np.arange(500)})
        (Path(folder) / "learner").mkdir()
        (Path(folder) / "learner" / "state.json").write_text(str(self.decisions))


def test_the_newest_checkpoint_is_whole_and_none_that_was_saved_is_missing(root, monkeypatch):
    plan, algorithm, begun, saved = Plan(scale=0.01), Algorithm(), False, 0
    stage = plan.stage("camera")

    def check(left):
        found = train.StageSetup(RunFolder.open(left / "run"), stage).checkpoints if begun else []
        reached = [read_training_state(one)["decisions"] for one in found[-1:]]
        assert (reached or [0])[0] in (saved, saved + 1)
        assert [int((one / "learner" / "state.json").read_text()) for one in found[-1:]] == reached

    with watched(monkeypatch, root, check):
        run = RunFolder.create(root / "run", plan)
        setup, begun = train.StageSetup(run, stage), True
        for number in range(1, 4):  # the third is the first that removes one
            algorithm.decisions = number
            train._save_checkpoint(setup, algorithm)
            saved = number


_JOURNAL = """
import sys
from pathlib import Path
from soulsgraph_clusters.fleet import store
from soulsgraph_clusters.fleet.store import JOURNALED, Journal, StoredChunk

store.is_remote = lambda folder: sys.argv[2] == "remote"
for start in range(2):
    journal = Journal(Path(sys.argv[1]), "camera")
    journal._run("PRAGMA wal_autocheckpoint = 6")
    for number in range(8 * start, 8 * start + 8, 2):
        with journal.transaction():
            for one in (number, number + 1):
                journal.append(StoredChunk("attic", "1", "b0", one, JOURNALED, 1, 0, bytes(3000 + 500 * one)))
        print("acknowledged", number + 2, flush=True)
        if number == 4:
            journal.prune(3)
    journal.close()
"""


def _journal_holds(left, lines):
    acknowledged = int(lines[-1].split()[1]) if lines else 0
    with closing(Journal(left, "camera")) as journal:
        found = [one.number for one in journal.read(journal.first, 1000)]
        assert journal.first in (0, 3)
        assert found == [*range(journal.first, journal.end)]
        assert acknowledged <= journal.end <= acknowledged + 2
        assert journal.decisions.total() == journal.end


_SPOOL = """
import sys
from pathlib import Path
from soulsgraph_clusters.fleet import store
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Chunk
from soulsgraph_clusters.fleet.store import Spool

store.is_remote = lambda folder: sys.argv[2] == "remote"
for start in range(2):
    spool = Spool(Path(sys.argv[1]))
    spool._run("PRAGMA wal_autocheckpoint = 6")
    for number in range(6):
        print("put", *spool.put(Chunk(decisions={"camera": 1}, columns=bytes(6000))), flush=True)
        if number == 3:
            print("acknowledged", spool.boot, 1, 2, flush=True)
            spool.acknowledge(spool.boot, [1, 2])
    spool.close()
"""


def _spool_holds(left, lines):
    put, acknowledged = list[tuple[str, str]](), set[tuple[str, str]]()
    for line in lines:
        kind, boot, *numbers = line.split()
        if kind == "put":
            put.append((boot, numbers[0]))
        else:
            acknowledged |= {(boot, number) for number in numbers}
    with closing(Spool(left)) as spool:
        found = [(boot, str(number)) for boot, number in spool.pending()]
        assert all(spool.read(*key) is not None for key in spool.pending())
    # One more may be there than was said, and what the head has is sent again.
    kept = [key for key in put if key not in acknowledged]
    assert [key for key in found if key in kept] == kept
    assert len([key for key in found if key not in put]) <= 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("disk", ["local", "remote"])
@pytest.mark.parametrize(("program", "holds"), [(_JOURNAL, _journal_holds), (_SPOOL, _spool_holds)])
def test_a_store_has_what_was_said_to_be_written_whatever_the_disk_forgot(tmp_path, program, holds, disk):
    folder, log = tmp_path / "store", tmp_path / "calls"
    folder.mkdir()
    calls = "openat,close,write,pwrite64,ftruncate,fsync,fdatasync,unlink"
    traced = ["strace", "-f", "-o", log, "-e", f"trace={calls}", "-xx", "-s", "1000000"]
    subprocess.run([*traced, sys.executable, "-c", program, folder, disk], check=True, stdout=subprocess.DEVNULL)
    recorded = CallsDisk(folder)
    for count, line in enumerate(log.read_text().splitlines()):
        if recorded.would_change(line):
            for number, mixture in enumerate((Forgotten(), Renamed(), *(Sectors(3 * count + one) for one in range(3)))):
                left = tmp_path / f"left-{count}-{number}"
                recorded.cut(left, mixture)
                holds(left, recorded.lines)
        recorded.take(line)
    assert recorded.cuts > 100
    assert len(recorded.lines) > 7
