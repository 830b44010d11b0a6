"""Files that are damaged, cut off or of something else: one clear line each, and no wrong number."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.recordings import changed, rewritten
from soulsgraph.recordings import files
from soulsgraph.recordings.check import Coverage, check_file
from soulsgraph.recordings.files import RecordingError, read_header, read_recording, recording_files
from soulsgraph.recordings.format import HEADER_KEY
from soulsgraph_envs.core.errors import DataError, SoulsGraphError

#: Writes a damaged file of a whole one.
Damage = Callable[[Path, Path], None]


@pytest.fixture
def damaged(tmp_path):
    return tmp_path / "fight.parquet"


def refusal(path, kind=SoulsGraphError):
    """Return the one line by which a file is refused, the same when it is checked."""
    with pytest.raises(kind) as caught:
        read_recording(path)
    line = str(caught.value)
    assert "\n" not in line
    assert str(path) in line
    checked = check_file(path)
    assert (checked.verdict, checked.note) == ("damaged", line)
    return line


def header_of(path):
    return json.loads(pq.read_schema(path).metadata[HEADER_KEY])


def header(**changes):
    return lambda whole, path: rewritten(whole, path, header=changes)


def ground(**changes):
    """Change the ground of the header, or of its first phase where `phase` is changed."""

    def damage(whole, path):
        kept = header_of(whole)["ground"]
        own = {"phases": [kept["phases"][0] | changes]} if "phase" in changes else changes
        rewritten(whole, path, header={"ground": kept | own})

    return damage


def skill_twice(whole, path):
    skills = header_of(whole)["skills"]
    rewritten(whole, path, header={"skills": [*skills, skills[0]]})


def other_type(whole, path):
    table = pq.read_table(whole)
    place = table.column_names.index("tick")
    rewritten(whole, path, table=table.set_column(place, "tick", table.column(place).cast(pa.int64())))


def fewer_rows(whole, path):
    table = pq.read_table(whole)
    rewritten(whole, path, table=table.slice(0, len(table) - 3))


def another_table(whole, path):
    pq.write_table(pa.table({"tick": [1, 2]}), path)


def cut_off(share):
    def damage(whole, path):
        content = whole.read_bytes()
        path.write_bytes(content[: int(share * len(content))])

    return damage


@pytest.mark.parametrize(
    ("damage", "kind", "name"),
    [
        *((cut_off(share), RecordingError, "damaged") for share in (0.0, 0.01, 0.5, 0.9, 0.999)),
        (another_table, RecordingError, "something else"),
        (header(format_version=2), DataError, "format"),
        (header(seed="many"), DataError, "seed"),
        (header(seed=str(2**64)), DataError, "seed"),
        (header(skills=[]), RecordingError, "columns"),
        (header(tick_s=1e300), DataError, "tick_s"),
        (header(more=1), DataError, "more"),
        (header(player="\x1b[2J"), DataError, "player"),
        (header(scenario="//server/share/x.toml"), DataError, "scenario"),
        (header(scenario="\\\\.\\pipe\\x.toml"), DataError, "scenario"),
        (ground(phases=[]), DataError, "phases"),
        (ground(boss_hp_full=0.0), DataError, "boss_hp_full"),
        (ground(boss_hp_full=1e-308, boss_hp=[1e308, 1e308]), DataError, "boss_hp"),
        (ground(phase=-1), DataError, "phase"),
        (skill_twice, DataError, "skills"),
        (other_type, RecordingError, "columns"),
        (fewer_rows, RecordingError, "rows"),
    ],
)
def test_what_is_damaged_or_contradicts_itself_is_refused_by_name(whole, damaged, damage, kind, name):
    damage(whole, damaged)
    assert name in refusal(damaged, kind)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0.0, 1.0, exclude_max=True), bits=st.integers(1, 255))
def test_a_changed_byte_is_found_or_changes_no_number(whole, damaged, place, bits):
    content, intact = bytearray(whole.read_bytes()), read_recording(whole)
    content[int(place * len(content))] ^= bits
    damaged.write_bytes(content)
    if check_file(damaged).verdict == "damaged":
        refusal(damaged)
        return
    found = read_recording(damaged)
    assert found.header == intact.header
    assert found.table.equals(intact.table)


def test_a_file_that_is_too_large_is_not_read(whole, damaged, monkeypatch):
    damaged.write_bytes(whole.read_bytes())
    monkeypatch.setattr(files, "MOST_BYTES", whole.stat().st_size)
    assert len(read_recording(damaged)) > 0
    monkeypatch.setattr(files, "MOST_BYTES", whole.stat().st_size - 1)
    assert "MiB" in refusal(damaged)


def test_a_scenario_that_is_no_small_file_is_not_opened(whole, damaged):
    large, folder = damaged.with_name("large.toml"), damaged.with_name("folder.toml")
    large.write_bytes(b"#" * (2**20 + 1))
    folder.mkdir()
    for place in (large, folder):
        table = changed(pq.read_table(whole), "scenario", [str(place)] * len(pq.read_table(whole)))
        rewritten(whole, damaged, table=table, header={"scenario": str(place)})
        checked = check_file(damaged)
        assert (checked.verdict, "1 MiB" in checked.note) == ("refused", True)


def test_a_fight_that_plays_otherwise_is_marked_with_its_first_tick(whole, damaged):
    table = pq.read_table(whole)
    values = table.column("player_x_m").to_numpy().copy()
    values[17] = np.nextafter(values[17], np.inf)
    rewritten(whole, damaged, table=changed(table, "player_x_m", values))
    checked = check_file(damaged)
    assert (checked.verdict, checked.tick) == ("differs", 17)
    rewritten(damaged, damaged, header={"origin": header_of(whole)["origin"] | {"processor": "another"}})
    checked = check_file(damaged)
    assert (checked.verdict, checked.tick) == ("elsewhere", 17)
    assert "another" in str(checked)


def test_a_fight_whose_data_changed_is_not_played_again(whole, damaged):
    rewritten(whole, damaged, header={"scenario_digest": "0" * 64})
    checked = check_file(damaged)
    assert checked.verdict == "refused"
    assert "iudex-phase1" in checked.note
    gone, table = str(damaged.with_name("gone.toml")), pq.read_table(whole)
    rewritten(whole, damaged, table=changed(table, "scenario", [gone] * len(table)), header={"scenario": gone})
    assert check_file(damaged).verdict == "refused"


def test_folders_are_listed_with_what_is_wrong_in_them(whole, damaged):
    damaged.write_text("no table")
    damaged.with_name("good.parquet").write_bytes(whole.read_bytes())
    found = Coverage.of(damaged.parent)
    assert [header.fight for header in found.headers] == [read_header(whole).fight]
    assert len(found.problems) == 1
    (empty := damaged.parent / "empty").mkdir()
    for folder in (damaged.parent / "none", empty):
        with pytest.raises(RecordingError, match=folder.name):
            recording_files(folder)


def test_recordings_whose_header_was_rewritten_are_still_read(whole, tmp_path):
    """Another writer's file of the same columns, without compression and in several row groups, is a recording too."""
    table = pq.read_table(whole)
    text = json.dumps(json.loads(table.schema.metadata[HEADER_KEY])).encode()
    metadata = {HEADER_KEY: text}
    other = tmp_path / "other.parquet"
    pq.write_table(
        table.replace_schema_metadata(metadata),
        other,
        compression="none",
        row_group_size=50,
        data_page_version="2.0",
        use_dictionary=False,
    )
    assert read_recording(other).table.equals(read_recording(whole).table)
