import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fakes.waiting import PATIENCE_S
from soulsgraph.results.tables import read_rows, write_rows
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetSettings, sole_head
from soulsgraph_clusters.fleet.protocol.tokens import Tokens
from soulsgraph_clusters.fleet.store import Journal, Spool
from soulsgraph_envs.core.config import Where, read_file
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import (
    LockError,
    WriteError,
    check_writable,
    remove_folder,
    settle,
    temporary_folder,
    whole_file,
    whole_folder,
    write_json,
    write_text,
)

_BEYOND_THE_LIMIT = """
import resource, sys
from pathlib import Path
from soulsgraph_envs.core.files import write_text
from soulsgraph.results.tables import write_rows
from soulsgraph_envs.core.files import WriteError
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for write in (lambda p: write_text(p, "x" * 5000), lambda p: write_rows(p, [{"a": i} for i in range(5000)])):
    try:
        write(Path(sys.argv[1]) / "file")
    except WriteError as error:
        print(error)
"""


_THREADS = """
import sys
import psutil
import pyarrow.dataset, pyarrow.parquet
from pathlib import Path
from soulsgraph.results.tables import read_arrow
threads = [psutil.Process().num_threads()]
for read in (read_arrow, lambda path: pyarrow.parquet.read_table(path)):
    read(Path(sys.argv[1]))
    threads.append(psutil.Process().num_threads())
print(*threads)
"""


def test_reading_starts_no_threads(tmp_path):
    # A process that ends while they begin is aborted now and then, whatever it did.
    write_rows(tmp_path / "a.parquet", [{"x": 1}])
    command = [sys.executable, "-c", _THREADS, str(tmp_path / "a.parquet")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    before, ours, arrow = map(int, done.stdout.split())
    # What the other way started would be there already.
    assert before == ours < arrow


def test_what_is_written_comes_back(tmp_path):
    write_json(tmp_path / "deep" / "a.json", {"b": [1, 2.5, None]})
    assert read_file(Where(tmp_path / "deep" / "a.json")) == {"b": [1, 2.5, None]}
    write_rows(tmp_path / "a.parquet", [{"x": 1}, {"x": 2.5, "y": "b"}, {"y": None}])
    assert read_rows(tmp_path / "a.parquet") == [{"x": 1.0, "y": None}, {"x": 2.5, "y": "b"}, {"x": None, "y": None}]


def test_two_columns_of_a_name_are_refused(tmp_path):
    table = pa.table({"x": [1]})
    pq.write_table(table.append_column("x", table.column("x")), tmp_path / "a.parquet")
    with pytest.raises(SoulsGraphError, match="x"):
        read_rows(tmp_path / "a.parquet")


def test_a_file_that_grows_beyond_what_may_be_written_keeps_the_old_one(tmp_path):
    write_text(tmp_path / "file", "old")
    answer = subprocess.run(
        [sys.executable, "-c", _BEYOND_THE_LIMIT, str(tmp_path)], capture_output=True, text=True, timeout=PATIENCE_S
    )
    lines = answer.stdout.splitlines()
    assert len(lines) == 2, answer.stderr
    assert all(str(tmp_path) in line for line in lines)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


def test_a_folder_nobody_may_write_to_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match="file"):
        write_text(tmp_path / "file" / "below", "x")


def test_a_folder_is_replaced_only_by_a_whole_one(tmp_path):
    def replaced(name, error=None):
        with whole_folder(tmp_path / "folder", replace=True) as temporary:
            (temporary / name).touch()
            if error:
                raise error

    for before in ([], ["folder", "old"]):
        with pytest.raises(KeyboardInterrupt):
            replaced("half", KeyboardInterrupt())
        assert [path.name for path in tmp_path.rglob("*")] == before
        replaced("old")
    replaced("new")
    assert [path.name for path in tmp_path.rglob("*")] == ["folder", "new"]


def test_a_folder_is_never_overwritten_unless_asked(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "kept").touch()
    with pytest.raises(WriteError, match="folder"), whole_folder(tmp_path / "folder"):
        pass
    assert [path.name for path in tmp_path.rglob("*")] == ["folder", "kept"]


@pytest.mark.parametrize(("name", "read"), [("a.json", lambda path: read_file(Where(path))), ("a.parquet", read_rows)])
@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"PAR1 but no more", None])
def test_what_is_no_file_of_its_kind_is_refused(tmp_path, name, read, content):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(SoulsGraphError, match=name):
        read(tmp_path / name)


# Writers that are killed.


def _killed(step, write):
    """Run a function in a process that is killed before one of its steps; return whether it came to its end."""
    child = os.fork()
    if not child:
        left = [step]

        def before(real):
            def one(*arguments, **named):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **named)

            return one

        for name in ("open", "mkdir", "rename", "replace", "unlink", "remove", "rmdir", "fsync", "close"):
            setattr(os, name, before(getattr(os, name)))
        try:
            write()
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def _write_file(path):
    with whole_file(path / "target") as temporary:
        temporary.write_text("new")


def _write_folder(path):
    with whole_folder(path / "target", replace=True) as temporary:
        (temporary / "one").write_text("new")
        (temporary / "two").mkdir()


def _content(path):
    file = path / "one" if path.is_dir() else path
    return file.read_text() if file.exists() else None


@pytest.mark.parametrize(("write", "old"), [(_write_file, True), (_write_folder, False), (_write_folder, True)])
def test_a_writer_killed_at_any_step_leaves_the_old_or_the_new_one_alone(tmp_path, write, old):
    for step in count():
        (place := tmp_path / f"{step}").mkdir()
        if old and write is _write_file:
            (place / "target").write_text("old")
        elif old:
            (place / "target").mkdir()
            (place / "target" / "one").write_text("old")
        ended = _killed(step, lambda place=place: write(place))
        if write is _write_file:
            assert _content(place / "target") in ("new", "old")
        assert len([path for path in place.iterdir() if path.name != "target"]) <= 1
        write_text(place / "beside", "next")
        assert {path.name for path in place.iterdir()} in ({"beside"}, {"beside", "target"})
        assert _content(place / "target") in ("new", "old" if old else None)
        if ended:
            assert _content(place / "target") == "new"
            assert step > 10
            break


def test_a_command_killed_at_any_step_of_beginning_a_run_leaves_a_run_or_room_for_one(tmp_path):
    plan = Plan(scale=0.01)
    for step in count():
        place = tmp_path / f"{step}"
        ended = _killed(step, lambda place=place: RunFolder.create(place, plan))
        if not (place / "plan.json").exists():
            RunFolder.create(place, plan)
        with RunFolder.open(place).locked():
            assert {path.name for path in place.iterdir()} == {"plan.json", ".lock", ".lock-owner"}
        if ended:
            break


def test_an_interruption_between_two_renames_leaves_a_whole_folder_and_no_remains(tmp_path, monkeypatch):
    real = Path.replace
    for step in range(2):
        _write_folder(tmp_path)
        (tmp_path / "target" / "one").write_text("old")
        left = [step]

        def interrupted(path, target, left=left):
            left[0] -= 1
            if left[0] == -1:
                raise KeyboardInterrupt
            return real(path, target)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", interrupted)
            with pytest.raises(KeyboardInterrupt):
                _write_folder(tmp_path)
        assert _content(tmp_path / "target") in ("old", "new")
        assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_a_living_writers_temporary_stays(tmp_path):
    with whole_folder(tmp_path / "folder") as temporary:
        (temporary / "half").touch()
        assert _killed(10_000, lambda: write_text(tmp_path / "beside", "text"))
        settle(tmp_path)
        assert (tmp_path / "beside").exists()
        assert (temporary / "half").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "beside"}


def test_a_folder_is_removed_whole_whenever_its_remover_is_killed(tmp_path):
    for step in count():
        (folder := tmp_path / f"{step}" / "folder").mkdir(parents=True)
        for name in "abc":
            (folder / name).touch()
        ended = _killed(step, lambda folder=folder: remove_folder(folder))
        assert not folder.exists() or len([*folder.iterdir()]) == 3
        if ended:
            assert not [*folder.parent.iterdir()]
            break


# File systems of networks and of users' programs.


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO, errno.ENOTSUP, errno.EACCES])
@pytest.mark.parametrize("opened", [False, True])
def test_a_folder_that_cannot_be_synced_fails_no_writer(tmp_path, monkeypatch, number, opened):
    real, open_ = os.fsync, os.open

    def fsync(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(number, os.strerror(number))
        real(handle)

    def opening(path, flags, *arguments, **named):
        if Path(path).is_dir():
            raise OSError(number, os.strerror(number))
        return open_(path, flags, *arguments, **named)

    monkeypatch.setattr(os, "open", opening) if opened else monkeypatch.setattr(os, "fsync", fsync)
    for times in range(2):
        write_text(tmp_path / "deep" / "file", f"{times}")
        with whole_folder(tmp_path / "folder", replace=True) as temporary:
            (temporary / f"{times}").touch()
    check_writable(tmp_path)
    RunFolder.create(tmp_path / "run", Plan(scale=0.01))
    Journal(tmp_path / "journal", "camera").close()
    Spool(tmp_path / "spool").close()
    assert (tmp_path / "deep" / "file").read_text() == "1"
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["1"]


def test_a_file_that_cannot_be_synced_is_not_said_to_be_written(tmp_path, monkeypatch):
    def fsync(handle):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(WriteError, match="file"):
        write_text(tmp_path / "file", "text")
    assert not [*tmp_path.iterdir()]


def _use(manager):
    with manager:
        pass


_LOCKING = {
    "run": lambda path: RunFolder.create(path / "run", Plan(scale=0.01)),
    "head": lambda path: _use(sole_head(Fleet(FleetSettings("127.0.0.1:0"), path))),
    "token": lambda path: Tokens(path / "tokens.json").issue("attic"),
}


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named_and_neither_a_process_nor_a_full_disk(tmp_path, monkeypatch, number):
    def flock(handle, kind):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    for lock in _LOCKING.values():
        with pytest.raises(LockError, match=os.strerror(number)):
            lock(tmp_path)
    # What needs no lock works.
    write_text(tmp_path / "file", "text")
    with temporary_folder("some-", tmp_path) as folder:
        assert folder.exists()
    assert not folder.exists()
    assert not [*tmp_path.glob(".unfinished-*")]
