"""Files that are damaged, cut off or of something else: one clear line each, and no wrong number."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.recordings import changed, rewritten
from soulsgraph.recordings import files
from soulsgraph.recordings.check import check_file, find_recordings
from soulsgraph.recordings.files import RecordingError, read_header, read_recording, recording_files
from soulsgraph.recordings.format import HEADER_KEY
from soulsgraph.recordings.recording import Fighter, record
from soulsgraph.runs.evaluate import evaluation_seeds
from soulsgraph_envs.core.errors import SoulsGraphError


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One recorded fight."""
    folder = tmp_path_factory.mktemp("whole")
    record(Fighter.oracle("iudex-phase1"), evaluation_seeds(3, 1), folder)
    (path,) = recording_files(folder)
    return path


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    return tmp_path / "fight.parquet"


def refusal(path: Path) -> str:
    """Return the one line by which a file is refused, the same when it is checked."""
    with pytest.raises(SoulsGraphError) as caught:
        read_recording(path)
    line = str(caught.value)
    assert "\n" not in line
    assert str(path) in line
    checked = check_file(path)
    assert (checked.verdict, checked.note) == ("damaged", line)
    return line


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9, 0.999])
def test_a_file_that_is_cut_off_is_refused(whole: Path, damaged: Path, share: float) -> None:
    content = whole.read_bytes()
    damaged.write_bytes(content[: int(share * len(content))])
    assert "damaged or other file" in refusal(damaged)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0.0, 1.0, exclude_max=True), bits=st.integers(1, 255))
def test_a_changed_byte_is_found_or_changes_no_number(whole: Path, damaged: Path, place: float, bits: int) -> None:
    content, intact = bytearray(whole.read_bytes()), read_recording(whole)
    content[int(place * len(content))] ^= bits
    damaged.write_bytes(content)
    if check_file(damaged).verdict == "damaged":
        refusal(damaged)
        return
    found = read_recording(damaged)
    assert found.header == intact.header
    assert found.table.equals(intact.table)


def test_a_table_of_something_else_is_no_recording(damaged: Path) -> None:
    pq.write_table(pa.table({"tick": [1, 2]}), damaged)
    assert "a Parquet file of something else" in refusal(damaged)


def test_headers_that_do_not_fit_are_refused(whole: Path, damaged: Path) -> None:
    for header, expected in (
        ({"format_version": 2}, "format 'soulsgraph fight' 1"),
        ({"seed": "many"}, "a whole number of 64 bits"),
        ({"seed": str(2**64)}, "a whole number of 64 bits"),
        ({"skills": []}, "the columns of its header"),
        ({"tick_s": 1e300}, "a number from 0.001 to 10"),
        ({"more": 1}, "an unknown key"),
        ({"player": "\x1b[2J"}, "player: expected a line of text"),
        ({"ground": json.loads(pq.read_schema(whole).metadata[HEADER_KEY])["ground"] | {"phases": []}}, "one entry"),
    ):
        rewritten(whole, damaged, header=header)
        assert expected in refusal(damaged)


def test_numbers_and_places_in_a_header_that_nobody_can_use_are_refused(whole: Path, damaged: Path) -> None:
    intact = json.loads(pq.read_schema(whole).metadata[HEADER_KEY])
    ground, skills = intact["ground"], intact["skills"]
    for header, expected in (
        ({"ground": ground | {"boss_hp_full": 0.0}}, "boss_hp_full: expected a number from 0.001"),
        ({"ground": ground | {"boss_hp_full": 1e-308, "boss_hp": [1e308, 1e308]}}, "expected a number from"),
        ({"ground": ground | {"phases": [ground["phases"][0] | {"phase": -1}]}}, "phase: expected a whole number"),
        ({"skills": [*skills, skills[0]]}, "skills and reward terms of different names"),
        ({"scenario": "//server/share/x.toml"}, "a path on this machine"),
        ({"scenario": "\\\\.\\pipe\\x.toml"}, "a path on this machine"),
    ):
        rewritten(whole, damaged, header=header)
        assert expected in refusal(damaged)


def test_columns_of_other_types_are_named_in_words(whole: Path, damaged: Path) -> None:
    table = pq.read_table(whole)
    place = table.column_names.index("tick")
    rewritten(whole, damaged, table=table.set_column(place, "tick", table.column(place).cast(pa.int64())))
    assert "found columns of other types" in refusal(damaged)


def test_rows_that_contradict_the_header_are_refused(whole: Path, damaged: Path) -> None:
    table = pq.read_table(whole)
    rows = len(table)
    lists = pa.array([[{"first": 0.0, "last": 0.5}] * 1001, *[None] * (rows - 1)], table.field("boss_parts").type)
    for name, values, expected in (
        ("player", ["oracle"] * (rows - 1) + ["another"], "player 'oracle' in every row"),
        ("phase", [-1] * rows, "phases of 0 and more"),
        ("boss_parts", lists, "at most 1,000 entries in boss_parts"),
    ):
        rewritten(whole, damaged, table=changed(table, name, values))
        assert expected in refusal(damaged)


def test_a_small_file_of_a_large_table_is_not_unpacked(
    whole: Path, damaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_MOST_UNPACKED_BYTES", 2**24)
    table, repeated = pq.read_table(whole), 4
    rows = repeated * len(table)
    large = pa.concat_tables([table] * repeated)
    large = changed(large, "boss_doing", ["x" * 2**16] * rows)
    result = json.loads(table.schema.metadata[HEADER_KEY])["result"]
    rewritten(whole, damaged, table=large, header={"result": result | {"steps": rows - 1}})
    assert damaged.stat().st_size < 2**20
    assert "at most 16 MiB when it is unpacked" in refusal(damaged)
    rewritten(whole, damaged, table=large)
    assert f"expected {len(table)} rows, found {rows}" in refusal(damaged)


def test_a_scenario_that_is_no_small_file_is_not_opened(whole: Path, damaged: Path) -> None:
    large = damaged.with_name("large.toml")
    for place in (large, damaged.with_name("folder.toml")):
        large.write_bytes(b"#" * (2**20 + 1))
        damaged.with_name("folder.toml").mkdir(exist_ok=True)
        table = changed(pq.read_table(whole), "scenario", [str(place)] * len(pq.read_table(whole)))
        rewritten(whole, damaged, table=table, header={"scenario": str(place)})
        checked = check_file(damaged)
        assert (checked.verdict, "a scenario's file of at most 1 MiB" in checked.note) == ("refused", True)


def test_rows_that_are_missing_are_noticed(whole: Path, damaged: Path) -> None:
    table = pq.read_table(whole)
    rewritten(whole, damaged, table=table.slice(0, len(table) - 3))
    assert f"expected {len(table)} rows, found {len(table) - 3}" in refusal(damaged)


def test_a_fight_that_plays_otherwise_is_marked_with_its_first_tick(whole: Path, damaged: Path) -> None:
    table = pq.read_table(whole)
    values = table.column("player_x_m").to_numpy().copy()
    values[17] = np.nextafter(values[17], np.inf)
    rewritten(whole, damaged, table=changed(table, "player_x_m", values))
    checked = check_file(damaged)
    assert (checked.verdict, checked.tick) == ("differs", 17)
    origin = json.loads(table.schema.metadata[HEADER_KEY])["origin"]
    rewritten(damaged, damaged, header={"origin": origin | {"processor": "another"}})
    checked = check_file(damaged)
    assert (checked.verdict, checked.tick) == ("elsewhere", 17)
    assert "another" in str(checked)


def test_a_fight_whose_data_changed_is_not_played_again(whole: Path, damaged: Path) -> None:
    rewritten(whole, damaged, header={"scenario_digest": "0" * 64})
    checked = check_file(damaged)
    assert checked.verdict == "refused"
    assert "the data of iudex-phase1 changed since" in checked.note
    gone, table = str(damaged.with_name("gone.toml")), pq.read_table(whole)
    table = changed(table, "scenario", [gone] * len(table))
    rewritten(whole, damaged, table=table, header={"scenario": gone})
    assert check_file(damaged).verdict == "refused"


def test_folders_are_listed_with_what_is_wrong_in_them(whole: Path, damaged: Path) -> None:
    damaged.write_text("no table")
    damaged.with_name("good.parquet").write_bytes(whole.read_bytes())
    found = find_recordings(damaged.parent)
    assert [header.fight for header in found.headers] == [read_header(whole).fight]
    assert len(found.problems) == 1
    for folder in (damaged.parent / "none", damaged.parent / "empty"):
        with pytest.raises(RecordingError, match="expected a folder with recorded fights"):
            recording_files(folder)
        (damaged.parent / "empty").mkdir(exist_ok=True)
