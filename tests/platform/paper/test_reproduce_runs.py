"""Whole reproductions through the command line: rows recorded, interrupted and resumed."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fakes.waiting import PATIENCE_S
from soulsgraph.cli import main
from soulsgraph.results.tables import read_rows
from soulsgraph.runs.evaluate import TABLE_1
from soulsgraph.runs.run_folder import RunFolder

pytestmark = pytest.mark.slow

OPTIONS = ("--seeds", "1", "--first-seed", "100", "--scale", "0.03", "--episodes", "20")
COMMAND = (sys.executable, "-c", "from soulsgraph.cli import main; main()", "study", "reproduce")


def reproduce(*arguments: object) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.argv", ["soulsgraph", "study", "reproduce", *map(str, arguments)])
        main()


def records(folder: Path, name: str) -> list[dict[str, object]]:
    return read_rows(folder / "records" / f"{name}.parquet")


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reproductions") / "uninterrupted"
    reproduce(*OPTIONS, "--run", folder)
    return folder


def test_rows_measures_and_learning_are_recorded_of_ordinary_runs(finished):
    rows = [row for row in records(finished, "rows") if row["seed"] == 100 and row["part"] in ("a", "b")]
    assert {row["label"] for row in rows} == {row.label for row in TABLE_1}
    assert {row["episodes"] for row in rows} == {20}
    measures = {row["name"]: row["value"] for row in records(finished, "measures")}
    assert {f"{skill} return scripted" for skill in ("camera", "lock_on", "movement")} <= measures.keys()
    for policy in ("random", "trained", "idle"):
        assert 0.1 <= measures[f"dodge seconds {policy}"] / measures[f"dodge length {policy}"] <= 0.5
    # The first decision may wait for up to five ticks.
    assert measures["dodge seconds idle"] == pytest.approx(0.1 * measures["dodge length idle"], abs=0.5)
    assert sum(value for name, value in measures.items() if name.startswith("share of ")) == pytest.approx(1.0)
    learned = {(row["skill"], row["scenario"]) for row in records(finished, "curves")}
    assert {("dodge", "iudex-phase1"), ("dodge", "iudex-phase2"), ("end_to_end", "iudex-phase1")} <= learned
    run = RunFolder.open(finished / "seeds" / "100" / "skills")
    assert (run.plan.seed, run.plan.preset) == (100, "paper")
    assert [run.library.versions(name) for name in run.plan.skill_graph.order] == [[1], [1], [1], [1, 2], [1, 2]]
    assert (finished / "report" / "report.md").exists()


def test_terminated_and_resumed_equals_uninterrupted(finished, tmp_path):
    out = tmp_path / "interrupted"
    process = subprocess.Popen([*COMMAND, *OPTIONS, "--run", str(out)], stderr=subprocess.PIPE, text=True)
    while not list(out.glob("seeds/100/skills/library/lock_on/v1/card.json")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, errors
    assert not [*out.glob("rows/100-skills-*")]
    kept = out / "seeds" / "100" / "skills" / "library" / "lock_on" / "v1" / "card.json"
    trained = kept.stat().st_mtime_ns
    reproduce("--run", out)
    assert kept.stat().st_mtime_ns == trained, "what was trained is not trained again"
    for name in ("rows", "curves", "training", "measures"):
        assert records(out, name) == records(finished, name)
