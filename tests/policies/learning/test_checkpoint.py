"""The file of a stage's exact state: it is read back unchanged, and damage is detected."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_policies.learning.checkpoint import (
    FILE_NAME,
    TrainingStateError,
    read_training_state,
    write_training_state,
)

_PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
_KINDS = st.sampled_from([np.float32, np.float64, np.int64, np.uint64, np.bool_, np.uint8])


def _arrays(kind):
    """Return arrays of a type, of finite numbers."""
    finite = {"allow_nan": False, "allow_infinity": False, "width": 8 * np.dtype(kind).itemsize}
    elements = st.floats(**finite) if np.dtype(kind).kind == "f" else None
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


@settings(suppress_health_check=_UNHURRIED, max_examples=20)
@given(state=_STATES)
def test_state_comes_back_exactly(state: dict[str, object], tmp_path: Path) -> None:
    table = {"parts/x": np.arange(1_024, dtype=np.float32), "other": np.zeros((0, 3)), "turned": np.eye(3, 2).T}
    # Names with slashes are kept apart.
    whole = state | {"large": {"one": {"kept": table, "count": 3}, "two": {"kept": table}, "one/kept": np.eye(2)}}
    write_training_state(tmp_path, whole)
    assert_equal(read_training_state(tmp_path), whole)


@settings(suppress_health_check=_UNHURRIED, max_examples=30)
@given(place=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_any_damaged_byte_is_noticed(place: int, flip: int, tmp_path: Path) -> None:
    write_training_state(tmp_path, {"numbers": np.arange(50.0), "count": 3})
    file = tmp_path / FILE_NAME
    content = bytearray(file.read_bytes())
    content[place % len(content)] ^= flip
    file.write_bytes(content)
    with pytest.raises(TrainingStateError, match=FILE_NAME):
        read_training_state(tmp_path)
    file.unlink()
    with pytest.raises(TrainingStateError, match=FILE_NAME):
        read_training_state(tmp_path)


@pytest.mark.parametrize(
    ("state", "name"),
    [
        *(({"counts": np.arange(3), "one": {"two": np.array([1.0, odd])}}, "one/two") for odd in (np.nan, -np.inf)),
        ({"array": 2}, "array"),
    ],
)
def test_what_could_not_be_read_again_is_not_written_and_the_older_file_stays(
    state: dict[str, object], name: str, tmp_path: Path
) -> None:
    write_training_state(tmp_path, {"weights": np.ones(3)})
    with pytest.raises(SoulsGraphError, match=name):
        write_training_state(tmp_path, state)
    assert_equal(read_training_state(tmp_path), {"weights": np.ones(3)})
    assert [file.name for file in tmp_path.iterdir()] == [FILE_NAME]


def test_a_large_replay_is_written_without_a_copy_of_it_and_read_with_one(tmp_path: Path) -> None:
    rows = np.ones((250_000, 25), np.float32)
    tracemalloc.start()
    try:
        write_training_state(tmp_path, {"training": {"rows": rows}})
        assert tracemalloc.get_traced_memory()[1] < rows.nbytes / 3
        found = read_training_state(tmp_path)["training"]["rows"]
        assert tracemalloc.get_traced_memory()[1] < 1.5 * rows.nbytes
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(found, rows)
