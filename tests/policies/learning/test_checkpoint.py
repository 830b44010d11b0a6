"""The file of a stage's exact state: it is read back unchanged, and damage is detected."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_policies.learning.checkpoint import (
    FILE_NAME,
    PARTS,
    TrainingStateError,
    read_training_state,
    write_training_state,
)

_PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
_KINDS = st.sampled_from([np.float32, np.float64, np.int64, np.uint64, np.bool_, np.uint8])


def _arrays(kind):
    """Return arrays of a type; numbers that are not finite as float32 are refused when they are read."""
    most = float(np.finfo(np.float32).max)
    elements = st.floats(-most, most, width=8 * np.dtype(kind).itemsize) if np.dtype(kind).kind == "f" else None
    return arrays(kind, array_shapes(min_dims=0, min_side=0, max_side=4), elements=elements)


_ARRAYS = _KINDS.flatmap(_arrays)
_NAMES = st.text(min_size=1).filter(lambda name: name != "array")
#: A test's own list takes the place of every test's.
_UNHURRIED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
_STATES = st.dictionaries(_NAMES, st.recursive(_PLAIN | _ARRAYS, lambda part: st.dictionaries(_NAMES, part)))


def assert_equal(found: object, expected: object) -> None:
    if isinstance(expected, dict):
        assert isinstance(found, dict)
        assert found.keys() == expected.keys()
        for name, part in expected.items():
            assert_equal(found[name], part)
    elif isinstance(expected, np.ndarray):
        assert isinstance(found, np.ndarray)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected, strict=True)
    else:
        assert found == expected
        assert type(found) is type(expected)


@settings(suppress_health_check=_UNHURRIED, max_examples=40)
@given(state=_STATES)
def test_state_comes_back_exactly(state: dict[str, object], tmp_path: Path) -> None:
    write_training_state(tmp_path, state)
    assert_equal(read_training_state(tmp_path), state)


def test_names_with_slashes_are_kept_apart(tmp_path: Path) -> None:
    state = {"a": {"b": np.zeros(2)}, "a/b": np.ones(3)}
    write_training_state(tmp_path, state)
    assert_equal(read_training_state(tmp_path), state)


def test_generator_continues_after_a_round_trip(tmp_path: Path) -> None:
    generator, other = np.random.default_rng(3), np.random.default_rng(4)
    generator.random(7)
    write_training_state(tmp_path, {"generator": generator.bit_generator.state})
    other.bit_generator.state = read_training_state(tmp_path)["generator"]
    np.testing.assert_array_equal(generator.random(5), other.random(5))


@settings(suppress_health_check=_UNHURRIED, max_examples=30)
@given(place=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_any_damaged_byte_is_told(place: int, flip: int, tmp_path: Path) -> None:
    write_training_state(tmp_path, {"numbers": np.arange(50.0), "count": 3})
    file = tmp_path / FILE_NAME
    content = bytearray(file.read_bytes())
    content[place % len(content)] ^= flip
    file.write_bytes(content)
    with pytest.raises(TrainingStateError, match=FILE_NAME):
        read_training_state(tmp_path)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 1e300])
def test_what_could_not_be_read_again_is_not_written_and_the_older_file_stays(odd: float, tmp_path: Path) -> None:
    write_training_state(tmp_path, {"weights": np.ones(3)})
    with pytest.raises(SoulsGraphError, match="training state learner/weights: expected finite numbers"):
        write_training_state(tmp_path, {"counts": np.arange(3), "learner": {"weights": np.array([1.0, odd])}})
    np.testing.assert_array_equal(read_training_state(tmp_path)["weights"], np.ones(3))


def test_failed_write_leaves_the_older_file(tmp_path: Path) -> None:
    write_training_state(tmp_path, {"count": 1})
    with pytest.raises(SoulsGraphError, match="rename them"):
        write_training_state(tmp_path, {"array": 2})
    assert read_training_state(tmp_path) == {"count": 1}
    assert [file.name for file in tmp_path.iterdir()] == [FILE_NAME]


def _grown(folders: list[Path], states: list[dict[str, object]]) -> None:
    for index, state in enumerate(states):
        write_training_state(folders[index], state, before=folders[:index])


def _parts(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_ino for file in (folder / PARTS).iterdir()}


@settings(suppress_health_check=_UNHURRIED, max_examples=30)
@given(state=_STATES, size=st.integers(1_023, 1_025))
def test_a_state_with_parts_comes_back_exactly(state: dict[str, object], size: int, tmp_path: Path) -> None:
    large = {"kept": {"parts/x": np.arange(size, dtype=np.float32), "other": np.zeros((0, 3))}, "count": 3}
    write_training_state(tmp_path, state | {"large": {"one": large, "two": large}}, before=[])
    assert_equal(read_training_state(tmp_path), state | {"large": {"one": large, "two": large}})


def test_a_table_that_an_earlier_state_has_is_not_written_again(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two", tmp_path / "three"]
    tables = [{"rows": np.full(2_000, value)} for value in (1.0, 2.0)]
    small = {"rows": np.zeros(3)}
    both = {"kept": {"first": tables[0], "second": tables[1]}, "again": tables[0]}
    _grown(folders, [{"kept": tables[:1], "small": small}, both, {"kept": tables[1:]}])
    one, two, three = map(_parts, folders)
    assert (len(one), len(two), len(three)) == (1, 2, 1)
    assert one.items() <= two.items()
    assert three.items() <= two.items()
    shutil.rmtree(folders[0])
    assert_equal(read_training_state(folders[1]), both)


def test_without_links_every_state_has_files_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(here: Path, there: Path) -> None:
        raise PermissionError("no links")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    folders, state = [tmp_path / "one", tmp_path / "two"], {"kept": {"rows": np.arange(2_000.0)}}
    _grown(folders, [state, state])
    one, two = map(_parts, folders)
    assert one.keys() == two.keys()
    assert one != two
    assert_equal(read_training_state(folders[1]), state)


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(file.read_bytes()[:-1] + b"x")])
def test_a_damaged_part_names_the_folder_to_remove(damage: Callable[[Path], object], tmp_path: Path) -> None:
    write_training_state(tmp_path / "one", {"kept": {"rows": np.arange(2_000.0)}}, before=[])
    (part,) = (tmp_path / "one" / PARTS).iterdir()
    damage(part)
    with pytest.raises(TrainingStateError, match=f"{part.name}: expected .* remove the folder {tmp_path / 'one'} to"):
        read_training_state(tmp_path / "one")


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: content[:-9],
        lambda content: b"",
        lambda content: content[:40] + b"x" + content[41:],
    ],
)
def test_a_damaged_part_is_named_and_not_carried_on(
    damage: Callable[[bytes], bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folders, state = [tmp_path / name for name in ("one", "two", "three")], {"kept": {"rows": np.arange(2_000.0)}}
    _grown(folders[:1], [state])
    kept = read_training_state(folders[0])
    (part,) = (folders[0] / PARTS).iterdir()
    # In place: whatever has a link to it is damaged too.
    part.write_bytes(damage(part.read_bytes()))
    _grown(folders[:2], [{}, kept])
    assert f"{part}: expected" in caplog.text
    assert "the new state has it anew, check the disk." in caplog.text
    assert_equal(read_training_state(folders[1]), state)
    caplog.clear()
    write_training_state(folders[2], kept, before=folders[1:2])
    assert not caplog.text
    assert _parts(folders[2]) == _parts(folders[1])


def test_a_part_in_the_place_of_another_is_no_state(tmp_path: Path) -> None:
    write_training_state(tmp_path, {"kept": [{"rows": np.full(2_000, value)} for value in (1.0, 2.0)]}, before=[])
    one, two = (tmp_path / PARTS).iterdir()
    one.write_bytes(two.read_bytes())
    with pytest.raises(
        TrainingStateError, match=f"{one.name}: expected the table that it is named by, found .*{two.stem}"
    ):
        read_training_state(tmp_path)


_MEASURE = """
import sys
import subprocess
import sys
from pathlib import Path
import numpy as np
from soulsgraph_policies.learning.checkpoint import read_training_state, write_training_state

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024

folder, rows = Path(sys.argv[1]), np.ones((1_000_000, 25), np.float32)
write_training_state(folder, {"small": np.ones(3)})
before = peak()
write_training_state(folder, {"training": {"dodge": {"replay": {"rows": rows}}}})
written, before_reading = peak() - before, anonymous()
found = read_training_state(folder)["training"]["dodge"]["replay"]["rows"]
read = anonymous() - before_reading
assert np.array_equal(found, rows)
print(written, read)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the memory of a process is read from /proc")
def test_a_large_replay_is_written_and_read_without_a_copy_of_it(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _MEASURE, tmp_path], capture_output=True, text=True, check=True)
    written, read = map(float, done.stdout.split())
    # The array has 95 MiB.
    assert written < 24.0
    assert read < 24.0
