"""`soulsgraph data`: fights recorded, listed, checked, summarized and exported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from soulsgraph.recordings.files import read_header, recording_files

Run = Callable[..., str]


def test_fights_are_recorded_listed_checked_summarized_and_exported(printed: Run, tmp_path: Path) -> None:
    words = ("data", "record", "oracle", "--seed", 3, "--out", "fights", "--json")
    assert json.loads(printed(*words, "--episodes", 1))["skipped"] == 0
    recorded = json.loads(printed(*words, "--episodes", 2))
    assert (len(recorded["fights"]), recorded["skipped"]) == (1, 1)
    agent = ("data", "record", "iudex-phase1-paper-0", "--episodes", 1, "--out", "fights")
    printed(*agent, "--randomize", "dodge")
    printed("data", "record", "probe", "--episodes", 1, "--out", "fights")
    listed = json.loads(printed("report", "fights", "--every", "--json"))
    assert [one["player"] for one in listed["fights"]].count("oracle") == 2
    assert recorded["fights"][0] in listed["fights"]
    assert listed["problems"] == []
    (learned,) = (one for one in listed["fights"] if one["player"] == "iudex-phase1-paper-0")
    assert (learned["skills"]["dodge"], learned["skills"]["movement"]) == ("random", 1)
    assert "iudex-phase1-paper-0" in printed("report", "fights")
    verdicts = [one["verdict"] for one in json.loads(printed("check", "fights", "--json"))]
    assert verdicts == ["same"] * 4
    summary = json.loads(printed("report", "fights", "--json"))
    assert len(summary["calibrate"]["obstacles"]) == 1
    groups = summary["groups"]
    assert {one["player"]: one["fights"] for one in groups} == {"iudex-phase1-paper-0": 1, "oracle": 2, "probe": 1}
    assert sum(one["ticks"] for one in groups) == sum(one["ticks"] for one in listed["fights"])
    alone = json.loads(printed("report", recording_files(tmp_path / "fights")[0], "--json"))
    assert [one["fights"] for one in alone["groups"]] == [1]
    words = ("data", "export", "fights", "--rllib", "lock_on", "--out", "lock_on.parquet", "--json")
    assert json.loads(printed(*words))["decisions"] > 100
    assert (tmp_path / "lock_on.parquet").is_file()
    pytest.importorskip("minari")
    exported = json.loads(printed("data", "export", "fights", "--minari", "lock_on", "--out", "m", "--json"))
    assert (exported["dataset"], exported["episodes"]) == ("lock-on-v0", 4)


def test_the_probe_plays_what_earlier_fights_leave_open(printed: Run, tmp_path: Path) -> None:
    printed("data", "record", "probe", "--episodes", 2, "--out", "fights")
    words = ("data", "record", "probe", "--episodes", 1, "--after", "fights", "--out", "more", "--json")
    assert json.loads(printed(*words))["skipped"] == 0
    assert json.loads(printed(*words))["skipped"] == 1
    earlier = {read_header(path).result for path in recording_files(tmp_path / "fights")}
    (later,) = recording_files(tmp_path / "more")
    assert read_header(later).result not in earlier


def test_check_ends_with_1_where_a_file_is_damaged(
    printed: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fight.parquet").write_bytes(b"PAR1 and something else PAR1")
    with pytest.raises(SystemExit) as stop:
        printed("check", ".", "--json")
    assert stop.value.code == 1
    assert [one["verdict"] for one in json.loads(capsys.readouterr().out)] == ["damaged"]
    (problem,) = json.loads(printed("report", ".", "--json"))["problems"]
    assert problem.startswith("fight.parquet: ")
