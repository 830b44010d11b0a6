"""`continual run` and `bosses`: a whole small study runs and is done when it is resumed; the filter of bosses."""

import json

import pandas as pd
import pytest

SEQUENCE = 'name = "mine"\n[[tasks]]\nscenario = "iudex-phase1"\n[[tasks]]\nscenario = "vordt"\n'
#: A boss that is beaten without dodging, so that the filter refuses it.
TOO_EASY = "generated/timing/1"


def test_the_filter_is_shown_of_each_boss_once_and_one_that_fails_is_exit_code_1(printed, tmp_path, capsys):
    (tmp_path / "mine.toml").write_text(SEQUENCE)
    found = json.loads(printed("check", "mine.toml", "vordt", "--json"))
    assert [(row["scenario"], row["passed"]) for row in found] == [("iudex-phase1", True), ("vordt", True)]
    with pytest.raises(SystemExit) as left:
        printed("check", TOO_EASY, "vordt", "--json")
    assert left.value.code == 1
    assert [row["passed"] for row in json.loads(capsys.readouterr().out)] == [False, True]


@pytest.mark.slow
def test_a_whole_study_runs_reports_and_is_done_when_it_is_resumed(printed, tmp_path):
    (tmp_path / "mine.toml").write_text(SEQUENCE)
    words = ("--methods", "kept,newest", "--skills", "dodge,heal_attack", "--seeds", 1, "--episodes", 4)
    printed("study", "continual", "mine.toml", *words, "--scale", 0.01, "--run", "study")
    evaluations = pd.read_parquet(tmp_path / "study" / "results" / "evaluations.parquet")
    matrix = evaluations[evaluations["decisions"] == 0]
    assert {*zip(matrix["method"], matrix["after"], matrix["task"], strict=True)} == {
        (method, after, task) for method in ("kept", "newest") for after in (0, 1, 2) for task in (1, 2)
    }
    costs = pd.read_parquet(tmp_path / "study" / "results" / "costs.parquet")
    assert costs.groupby("method")["decisions"].sum().to_dict() == {"kept": 3100, "newest": 3100}
    files = sorted((tmp_path / "study" / "units").rglob("*.parquet"))
    before = [file.stat().st_mtime_ns for file in files]
    found = json.loads(printed("study", "continual", "--run", "study", "--json"))
    assert found["scores"]["methods"] == ["kept", "newest"]
    assert found["page"] == "study/report/page.html"
    assert [file.stat().st_mtime_ns for file in files] == before
    reported = json.loads(printed("report", "study", "--out", "elsewhere", "--json"))
    assert reported == {**found, "report": "elsewhere/report.md", "page": "elsewhere/page.html"}
