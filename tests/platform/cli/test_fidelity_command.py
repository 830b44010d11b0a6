"""`soulsgraph fidelity`: the report of recorded fights, several scenarios beside each other, bad input in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from soulsgraph.cli import main
from soulsgraph.recordings.recording import Fighter, record
from soulsgraph.runs.evaluate import evaluation_seeds

Run = Callable[..., str]


@pytest.fixture
def fights(tmp_path: Path) -> Path:
    record(Fighter.oracle("iudex-phase1", random=0.2), evaluation_seeds(5, 2), tmp_path / "fights")
    return tmp_path / "fights"


@pytest.mark.slow
def test_scenarios_are_measured_beside_each_other(printed: Run, fights: Path, tmp_path: Path) -> None:
    (tmp_path / "boss.toml").write_text('based_on = "iudex-phase1"\nname = "Faster"\n[motion]\nturn_rad_s = 3.0\n')
    (tmp_path / "mine.toml").write_text('based_on = "iudex-phase1"\nname = "mine"\nboss = "boss.toml"\n')
    words = ("fidelity", fights, "--scenario", "iudex-phase1", "--scenario", "mine.toml", "--episodes", 4)
    found = json.loads(printed(*words, "--json"))
    assert [one["scenario"] for one in found["scenarios"]] == ["iudex-phase1", "mine.toml"]
    shown = printed(*words, "--out", "report")
    assert "the boss's heading, rad" in shown
    assert "2 fights of iudex-phase1 (simulator)" in shown
    assert "report in report/report.md, as a page in report/page.html" in shown
    kept = json.loads((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))
    assert kept["scenarios"] == found["scenarios"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("nowhere",), "nowhere: expected a folder with recorded fights (*.parquet), found no such folder"),
        (("fights", "--scenario", "iudex"), "unknown scenario: expected one of"),
        (("fights", "--scenario", "margit"), "margit: expected the arena of the recorded fights of iudex-phase1"),
        (("fights", "--episodes", "0"), "episodes: expected a value from 1 to"),
        (("fights", "--out", "fights/one.txt/in"), "one.txt"),
    ],
)
def test_bad_input_is_one_line(
    words: tuple[str, ...],
    expected: str,
    fights: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (fights / "one.txt").write_text("")
    monkeypatch.chdir(fights.parent)
    monkeypatch.setattr("sys.argv", ["soulsgraph", "fidelity", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    error = capsys.readouterr().err
    assert stop.value.code == 2
    assert expected in error
    assert "Traceback" not in error
