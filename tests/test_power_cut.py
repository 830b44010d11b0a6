"""What a power cut leaves: names and bytes that were not synced are forgotten, torn or kept, at every single step."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
import pytest

from soulsgraph.runs import train
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.zoo import open_agent
from soulsgraph_clusters.fleet.actor.spool import DAMAGED, Spool, machine_id
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Chunk
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
        for number in range(1, 5):
            algorithm.decisions = number
            train._save_checkpoint(setup, algorithm)
            saved = number


def _record(sequence):
    chunk = Chunk(boot="b0", sequence=sequence, decisions={"camera": 1}, columns=bytes(30))
    return Record(pc="attic", game="1", chunk=chunk)


def test_a_journal_opens_with_every_record_that_was_acknowledged(root, monkeypatch):
    acknowledged, pruned = 0, 0

    def check(left):
        if not (left / "journal").exists():
            assert not acknowledged
            return
        journal = Journal(left / "journal", "camera", 200)
        found = [one.number for one in journal.read(journal.first, 1000)]
        assert journal.first <= pruned
        assert found[: acknowledged - journal.first] == [*range(journal.first, acknowledged)]
        assert found == [*range(journal.first, journal.first + len(found))]
        journal.close()

    with watched(monkeypatch, root, check):
        journal = Journal(root / "journal", "camera", 200)
        for number in range(6):
            journal.append([_record(2 * number), _record(2 * number + 1)])
            acknowledged = 2 * number + 2
            if number == 3:
                pruned = 5
                journal.prune(pruned)
        journal.close()


def test_a_spool_has_every_chunk_that_was_synced_and_counts_and_reports_those_that_were_torn(root, monkeypatch):
    kept, put = set[tuple[str, int]](), dict[tuple[str, int], int]()

    def check(left):
        lines = list[str]()
        if not (left / "pc" / "game-1").exists():
            assert not kept
            return
        there = sorted((left / "pc" / "game-1").glob("*.chunk"))
        spool = Spool(left / "pc" / "game-1", report=lines.append)
        found = {key: spool.read(*key) for key in spool.pending()}
        assert kept <= {*found} <= {*put}
        assert {key: one.decisions["camera"] for key, one in found.items()} == {key: put[key] for key in found}
        torn = len(there) - len(found)
        assert len(lines) == bool(torn)
        assert not torn or f"found {torn} empty or torn" in lines[0]
        named = sum(int(path.stem.split("-")[3]) for path in there)
        assert named == sum(one.decisions["camera"] for one in found.values()) + spool.lost[DAMAGED]
        spool.close()

    # Its own thread would sync between two lines of this test.
    monkeypatch.setattr("soulsgraph_clusters.fleet.actor.spool.SYNC_EVERY_S", 3600.0)
    with watched(monkeypatch, root, check):
        for _ in range(2):
            spool = Spool(root / "pc" / "game-1")
            for number in range(6):
                key = (spool.boot, number + 1)
                put[key] = 10 + number
                assert spool.put(Chunk(decisions={"camera": 10 + number}, columns=bytes(500))) == key
                if number % 3 == 2:
                    spool.sync()
                    kept |= {(spool.boot, one + 1) for one in range(number + 1)}
            kept.discard((spool.boot, 1))
            spool.acknowledge(spool.boot, [1])
            spool.close()


def test_a_pc_keeps_its_id_once_it_has_shown_it(root, monkeypatch):
    shown = ""

    def check(left):
        assert not shown or machine_id(left / "pc") == shown

    with watched(monkeypatch, root, check):
        shown = machine_id(root / "pc")
