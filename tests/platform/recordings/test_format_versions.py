"""Recordings of an earlier format version: read, checked, listed, exported and cloned from as they were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fakes.recordings import rewritten, write_first_version
from soulsgraph.recordings.check import check_file, find_recordings
from soulsgraph.recordings.clock import rebuilt_clock
from soulsgraph.recordings.export import read_episodes
from soulsgraph.recordings.files import read_header, read_recording, recording_files
from soulsgraph.recordings.recording import Fighter, record
from soulsgraph.runs.evaluate import evaluation_seeds
from soulsgraph_envs.core.errors import SoulsGraphError


@pytest.fixture(scope="module")
def first_version(fights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded fights, as version 1 wrote them."""
    folder = tmp_path_factory.mktemp("first-version")
    for path in recording_files(fights):
        write_first_version(path, folder / path.name)
    return folder


def test_a_fight_of_version_1_is_read_and_plays_the_same(fights: Path, first_version: Path) -> None:
    for old, new in zip(recording_files(first_version), recording_files(fights), strict=True):
        read, present = read_recording(old), read_recording(new)
        assert (read.header.format_version, present.header.format_version) == (1, 2)
        assert (read.header.map, read.header.game_version, read.header.speed) == ("", "", 1.0)
        np.testing.assert_array_equal(read.raw, present.raw)
        np.testing.assert_array_equal(read.controls, present.controls)
        assert set(read.table.column_names) == set(present.table.column_names)
        assert np.isnan(read.column("clock_s")).all()
        assert set(read.column("boss_animation_read")) == {None}
        np.testing.assert_allclose(rebuilt_clock(read), rebuilt_clock(present), atol=0.1)
        assert read.scene(3).boss == present.scene(3).boss
        assert check_file(old).verdict == "same"


def test_version_1_is_listed_and_exported_like_version_2(fights: Path, first_version: Path) -> None:
    old, new = find_recordings(first_version), find_recordings(fights)
    assert not old.problems
    assert [header.fight for header in old.headers] == [header.fight for header in new.headers]
    for one, other in zip(read_episodes(first_version, "dodge")[1], read_episodes(fights, "dodge")[1], strict=True):
        np.testing.assert_array_equal(one.observations, other.observations)
        np.testing.assert_array_equal(one.rewards, other.rewards)


def test_a_version_that_does_not_fit_the_columns_is_refused(fights: Path, tmp_path: Path) -> None:
    for version, expected in ((1, "the columns of its header"), (3, "'soulsgraph fight' 1 or 2")):
        rewritten(recording_files(fights)[0], tmp_path / "fight.parquet", header={"format_version": version})
        with pytest.raises(SoulsGraphError, match=expected):
            read_header(tmp_path / "fight.parquet")


def test_fights_of_version_2_are_recorded_beside_those_of_version_1(first_version: Path, tmp_path: Path) -> None:
    old = recording_files(first_version)[0]
    (tmp_path / old.name).write_bytes(old.read_bytes())
    seeds = evaluation_seeds(11, 4)
    oracle = Fighter.oracle("iudex-phase1", random=0.1)
    assert record(oracle, seeds, tmp_path) == 1
    new = [path for path in recording_files(tmp_path) if path.parent != tmp_path]
    assert [path.parent.name for path in new] == ["_oracle-iudex-phase1-random0.1"] * 3
    assert record(oracle, seeds, tmp_path) == 4
