"""Populations by Ray Tune: members copy those ahead, each leaves a run, and one that was killed goes on."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fakes.waiting import PATIENCE_S
from soulsgraph.results.tables import read_rows
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.tune.folder import FINISHED
from soulsgraph.tune.results import SweepResults
from soulsgraph.tune.sweep import sweep

SPACE = {"lock_on": {"lr": {"low": 1e-6, "high": 1e-1, "log": True}}}
ASKED: dict[str, Any] = {"adapt": "iudex-phase1-best-0", "stage": "lock_on", "budget": 5_000, "episodes": 4}
PROGRAM = "import sys; from test_population import train; train(sys.argv[1])"


def train(path: str | Path) -> SweepResults:
    return sweep(SPACE, seeds=1, run=path, search="random", samples=4, scheduler="pbt", quiet=True, **ASKED)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sends the signals of POSIX")
def test_a_population_that_was_killed_goes_on_and_every_member_leaves_a_run(tmp_path: Path) -> None:
    path = tmp_path / "sweep"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)], cwd=Path(__file__).parent)
    until_s = time.monotonic() + 4.0 * PATIENCE_S
    while not [*(path / "tune" / "200").glob("*/checkpoint_*")] and process.poll() is None:
        assert time.monotonic() < until_s
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE_S)
    results = train(path)
    assert [row["state"] for row in results.rows] == [FINISHED] * 4
    runs = [RunFolder.open(path / row["run"]) for row in results.rows]
    source = RunFolder.open(path / "source")
    for run in runs:
        assert run.library.versions("lock_on") == [1]
        assert run.library.card("camera", 1).digest == source.library.card("camera", 1).digest
        steps = [row["step"] for row in read_rows(run.results("curves"))]
        assert steps == sorted(set(steps))
        assert len(steps) >= 3
    assert not source.library.versions("lock_on")
    assert all(1e-6 <= row["lock_on.lr"] <= 1e-1 for row in results.rows)
    # Whoever was behind went on from whoever was ahead.
    assert (path / "tune" / "200" / "pbt_global.txt").read_text()
    assert results.summary["members"].tolist() == ["best", "mean"]
    assert [*results._curves()[0]] == ["best", "mean"]
    assert (path / "results" / "figures" / "curves.png").is_file()
    assert results.best["lock_on.lr"] in [row["lock_on.lr"] for row in results.rows]
