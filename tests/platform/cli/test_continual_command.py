"""`continual` scores a file and writes the report of a run; what is wrong is said in one line."""

import json

import pytest

from fakes.continual import InventedRun


@pytest.fixture
def run(tmp_path):
    return InventedRun.draw(("kept", "scratch"), seeds=2, tasks=2).write(tmp_path / "run")


def test_scores_are_printed_and_written(printed, run, tmp_path):
    file = run / "results" / "evaluations.parquet"
    shown = printed("continual", "score", file)
    assert "2 methods, 2 tasks, 2 seeds" in shown
    assert "kept" in shown
    found = json.loads(printed("continual", "score", file, "--json", "--out", tmp_path / "out"))
    assert found["methods"] == ["kept", "scratch"]
    written = json.loads((tmp_path / "out" / "scores.json").read_text())
    assert written["scores"] == found["scores"]


@pytest.mark.slow
def test_the_report_lies_in_the_run_folder_unless_another_is_named(printed, run, tmp_path):
    assert f"report in {run / 'report' / 'report.md'}" in printed("continual", "report", run)
    found = json.loads(printed("continual", "report", run, "--out", tmp_path / "out", "--json"))
    assert found["page"] == str(tmp_path / "out" / "page.html")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("score", "nowhere.parquet"), "nowhere.parquet: expected a Parquet file of results, found none"),
        (("report", "nowhere"), "evaluations.parquet: expected a Parquet file of results, found none"),
        (("scores", "file"), "unknown action of continual: expected one of run, report, score, bosses"),
    ],
)
def test_what_is_wrong_is_one_line(refuse, words, message):
    assert message in refuse("continual", *words)


def test_another_table_and_an_unknown_method_are_refused(refuse, run):
    assert "expected a column after" in refuse("continual", "score", run / "results" / "costs.parquet")
    refused = refuse("continual", "score", run / "results" / "evaluations.parquet", "--against", "kep")
    assert "Did you mean 'kept'?" in refused
