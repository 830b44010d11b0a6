"""A sweep on a cluster of two nodes: its trials spread over them, and everything is in the folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from fakes.clusters import LocalCluster
from fakes.waiting import PATIENCE_S
from soulsgraph.results.tables import read_rows
from soulsgraph.runs.run_folder import RunFolder


@pytest.mark.slow
def test_trials_spread_over_the_nodes_and_their_results_are_in_the_folder(tmp_path: Path) -> None:
    (space := tmp_path / "space.toml").write_text("[lock_on]\ngamma = [0.9, 0.99]\n", encoding="utf-8")
    with LocalCluster(workers=1, head_cpus=1) as cluster:
        words = ["sweep", str(space), "--stage", "lock_on", "--seeds", "2", "--preset", "fast", "--scale", "0.05"]
        words += ["--episodes", "4", "--run", str(tmp_path / "sweep"), "--address", cluster.address]
        done = subprocess.run(
            [str(Path(sys.executable).with_name("soulsgraph")), *words],
            env=cluster.environment,
            capture_output=True,
            text=True,
            timeout=4.0 * PATIENCE_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    trials = read_rows(tmp_path / "sweep" / "results" / "trials.parquet")
    assert [trial["state"] for trial in trials] == ["finished"] * 4
    assert len({trial["node"] for trial in trials}) == 2
    runs = [RunFolder.open(tmp_path / "sweep" / trial["run"]) for trial in trials]
    assert all(run.library.versions("lock_on") == [1] for run in runs)
    # Both trials of a seed have its one camera, whichever node they were on.
    assert len({run.library.card("camera", 1).digest for run in runs}) == 2
