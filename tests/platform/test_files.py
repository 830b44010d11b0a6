import subprocess
import sys
from pathlib import Path

import pytest

from soulsgraph.files import write_json, write_text
from soulsgraph.tables import read_rows, write_rows
from soulsgraph_envs.core.config import Where, read_file
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.testing import PATIENCE_S
from soulsgraph_policies.atomic import WriteError, whole_folder

_BEYOND_THE_LIMIT = """
import resource, sys
from pathlib import Path
from soulsgraph.files import write_text
from soulsgraph.tables import write_rows
from soulsgraph_policies.atomic import WriteError
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for write in (lambda p: write_text(p, "x" * 5000), lambda p: write_rows(p, [{"a": i} for i in range(5000)])):
    try:
        write(Path(sys.argv[1]) / "file")
    except WriteError as error:
        print(error)
"""


def test_what_is_written_comes_back(tmp_path):
    write_json(tmp_path / "deep" / "a.json", {"b": [1, 2.5, None]})
    assert read_file(Where(tmp_path / "deep" / "a.json")) == {"b": [1, 2.5, None]}
    write_rows(tmp_path / "a.parquet", [{"x": 1, "y": "a"}, {"x": None, "y": "b"}])
    assert read_rows(tmp_path / "a.parquet") == [{"x": 1, "y": "a"}, {"x": None, "y": "b"}]


def test_a_file_that_grows_beyond_what_may_be_written_keeps_the_old_one(tmp_path):
    write_text(tmp_path / "file", "old")
    answer = subprocess.run(
        [sys.executable, "-c", _BEYOND_THE_LIMIT, str(tmp_path)], capture_output=True, text=True, timeout=PATIENCE_S
    )
    lines = answer.stdout.splitlines()
    assert len(lines) == 2, answer.stderr
    assert all("expected a place to write to" in line and "raise the file size limit" in line for line in lines)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a file system nobody may write to")
def test_a_folder_nobody_may_write_to_is_told_in_one_line():
    with pytest.raises(WriteError, match=r"expected a place to write to, found: .*; choose") as caught:
        write_text(Path("/sys/soulsgraph/file"), "x")
    assert "\n" not in str(caught.value)


def test_an_interrupted_write_leaves_nothing(tmp_path):
    def interrupted():
        with whole_folder(tmp_path / "folder") as temporary:
            (temporary / "half").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not list(tmp_path.iterdir())


def test_a_folder_is_replaced_only_by_a_whole_one(tmp_path):
    def replaced(name, error=None):
        with whole_folder(tmp_path / "folder", replace=True) as temporary:
            (temporary / name).touch()
            if error:
                raise error

    replaced("old")
    with pytest.raises(KeyboardInterrupt):
        replaced("half", KeyboardInterrupt())
    assert [path.name for path in tmp_path.rglob("*")] == ["folder", "old"]
    replaced("new")
    assert [path.name for path in tmp_path.rglob("*")] == ["folder", "new"]


def test_a_folder_is_never_overwritten_unless_asked(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "kept").touch()
    with pytest.raises(WriteError, match="never overwritten"), whole_folder(tmp_path / "folder"):
        pass
    assert [path.name for path in tmp_path.rglob("*")] == ["folder", "kept"]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", None])
def test_what_is_no_json_is_told(tmp_path, content):
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SoulsGraphError, match=r"a.json: expected a readable JSON file.*; begin anew\."):
        read_file(Where(path, remedy="begin anew"))


@pytest.mark.parametrize("content", [b"", b"PAR1 but no more", None])
def test_what_is_no_parquet_is_told(tmp_path, content):
    path = tmp_path / "a.parquet"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SoulsGraphError, match=r"a\.parquet: expected a Parquet file of results"):
        read_rows(path)
