"""`soulsgraph data`: fights recorded, listed, checked, summarized and exported, and bad input in one line."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from soulsgraph.cli.fights import HandicapOptions
from soulsgraph.cli.options import FightOptions
from soulsgraph.recordings.files import read_header, recording_files

Run = Callable[..., str]


def test_fights_are_recorded_listed_checked_summarized_and_exported(printed: Run, tmp_path: Path) -> None:
    recorded = json.loads(
        printed("data", "record", "oracle", "--episodes", 2, "--seed", 3, "--out", "fights", "--json")
    )
    printed(
        "data", "record", "iudex-phase1-paper-0", "--episodes", 1, "--randomize", "dodge", "--out", "fights/learned"
    )
    listed = json.loads(printed("data", "list", "fights", "--json"))
    assert [one for one in listed["fights"] if one["player"] == "oracle"] == sorted(
        recorded["fights"], key=lambda one: one["fight"]
    )
    assert listed["problems"] == []
    agent = next(one for one in listed["fights"] if one["player"] != "oracle")
    assert (agent["skills"]["dodge"], agent["skills"]["movement"]) == ("random", 1)
    shown = printed("data", "list", "fights")
    assert "iudex-phase1, simulator, oracle (script)" in shown
    assert "(dodge random, others v1)" in shown
    assert {one["verdict"] for one in json.loads(printed("data", "check", "fights", "--json"))} == {"same"}
    assert "3 files: 3 same" in printed("data", "check", "fights")
    summary = json.loads(printed("data", "summarize", "fights", "--json"))
    groups = summary["groups"]
    assert summary["calibrate"]["obstacles"] == ["3 simulated"]
    for action in ("check", "summarize"):
        assert "moves seen: " in printed("data", action, "fights")
    assert [(one["player"], one["fights"]) for one in groups] == [("iudex-phase1-paper-0", 1), ("oracle", 2)]
    assert sum(one["ticks"] for one in groups) == sum(one["ticks"] for one in listed["fights"])
    assert "oracle" in printed("data", "summarize", "fights")
    exported = json.loads(
        printed("data", "export", "fights", "--rllib", "lock_on", "--out", "lock_on.parquet", "--json")
    )
    assert exported["decisions"] > 100
    assert (tmp_path / "lock_on.parquet").is_file()
    pytest.importorskip("minari")
    assert "3 episodes of lock_on as lock-on-v0" in printed(
        "data", "export", "fights", "--minari", "lock_on", "--out", "m"
    )


def test_recording_goes_on_with_the_fights_that_are_missing(printed: Run) -> None:
    words = ("data", "record", "oracle", "--seed", 3, "--out", "fights")
    printed(*words, "--episodes", 1)
    again = json.loads(printed(*words, "--episodes", 2, "--json"))
    assert (len(again["fights"]), again["skipped"]) == (1, 1)
    assert "2 fights were there already" in printed(*words, "--episodes", 2)


def test_the_probe_and_an_agent_are_recorded_into_one_folder(printed: Run, tmp_path: Path) -> None:
    for who in ("iudex-phase1-best-0", "probe"):
        printed("data", "record", who, "--episodes", 1, "--out", "fights")
    assert {path.parent.name for path in recording_files(tmp_path / "fights")} == {"fights", "_probe-iudex-phase1"}
    groups = json.loads(printed("data", "summarize", "fights", "--json"))["groups"]
    assert [one["player"] for one in groups] == ["iudex-phase1-best-0", "probe"]
    assert "2 files: 2 same" in printed("data", "check", "fights")


def test_the_probe_plays_what_earlier_fights_leave_open(printed: Run, tmp_path: Path) -> None:
    printed("data", "record", "probe", "--episodes", 2, "--out", "fights")
    words = ("data", "record", "probe", "--episodes", 2, "--after", "fights", "--out", "more")
    first = json.loads(printed(*words, "--json"))
    assert all("-after2-" in fight["fight"] for fight in first["fights"])
    assert json.loads(printed(*words, "--json"))["skipped"] == 2
    earlier = {read_header(path).result for path in recording_files(tmp_path / "fights")}
    assert earlier.isdisjoint(read_header(path).result for path in recording_files(tmp_path / "more"))


def test_check_ends_with_1_where_a_file_is_damaged(
    printed: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fight.parquet").write_bytes(b"PAR1 and something else PAR1")
    with pytest.raises(SystemExit) as stop:
        printed("data", "check", ".")
    assert stop.value.code == 1
    *_, line, total = capsys.readouterr().out.splitlines()
    assert line.startswith("fight.parquet: expected a recorded fight as Parquet, found a damaged or other file")
    assert total == "1 files: 1 damaged"
    assert json.loads(printed("data", "list", ".", "--json"))["problems"] == [line]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("list", "none"), "none: expected a folder with recorded fights (*.parquet), found no such folder"),
        (("check", "none"), "none: expected a folder with recorded fights (*.parquet), found no such folder"),
        (("record", "nobody", "--out", "o"), "nobody: expected"),
        (("record", "oracle", "--project", "gone", "--out", "o"), "gone"),
        (("check", "none", "--project", "gone"), "gone"),
        (("record", "oracle", "--out", "o", "--episodes", "0"), "episodes: expected a value from 1 to"),
        (("record", "oracle", "--out", "o", "--random", "1.5"), "random: expected a value from 0 to 1, found 1.5"),
        (("record", "oracle", "--out", "o", "--scenario", "iudex"), "unknown scenario: expected one of"),
        (("record", "oracle", "--out", "o", "--start", "far"), "unknown start: expected one of"),
        (("record", "oracle", "--out", "o", "--randomize", "dodge"), "--randomize: expected none for the oracle"),
        (("record", "probe", "--out", "o", "--randomize", "dodge"), "--randomize: expected none for the probe"),
        (("record", "probe", "--out", "o", "--delay", "2"), "--delay: expected none but for the oracle"),
        (("record", "oracle", "--out", "o", "--after", "none"), "--after: expected the probe, found oracle"),
        (("record", "probe", "--out", "o", "--after", "none"), "none: expected a folder with recorded fights"),
        (("record", "iudex-phase1-best-0", "--journal", "--out", "o"), "expected a stage with a fleet's journal"),
        (
            ("record", "oracle", "--games", "g.toml", "--out", "o"),
            "oracle: expected the simulator, whose future it knows",
        ),
        (("record", "r", "--journal", "--episodes", "2", "--out", "o"), "--journal: expected no option of new fights"),
        (("export", "none", "--out", "o"), "expected --rllib SKILL or --minari SKILL, found both or neither"),
        (("export", "none", "--rllib", "dodge", "--out", "o"), "none: expected a folder with recorded fights"),
        (("export", "f", "--rllib", "dodge", "--name", "x", "--out", "o"), "--name: expected none with --rllib"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    refuse: Callable[..., str], printed: Run, tmp_path: Path, words: tuple[str, ...], expected: str
) -> None:
    assert expected in refuse("data", *words)
    assert [*tmp_path.iterdir()] == []


def test_every_option_of_new_fights_has_files_of_its_own(printed: Run, tmp_path: Path) -> None:
    plain = ("data", "record", "iudex-phase1-best-0", "--episodes", 1, "--out", "fights", "--json")
    given = {"scenario": "iudex-phase2", "start": "long", "randomize": "dodge", "random": 0.1}
    # Only the oracle acts late, and no skill of it is replaced.
    late = {"delay": 1}
    fields = {field.name for options in (FightOptions, HandicapOptions) for field in dataclasses.fields(options)}
    assert fields == {*given, *late}
    printed(*plain)
    for name, value in given.items():
        assert json.loads(printed(*plain, f"--{name}", value))["skipped"] == 0, name
    for words in ((), ("--delay", 1)):
        assert json.loads(printed("data", "record", "oracle", *plain[3:], *words))["skipped"] == 0
    assert len(recording_files(tmp_path / "fights")) == len(given) + len(late) + 2
