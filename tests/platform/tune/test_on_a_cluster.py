"""A sweep on two nodes: its trials spread over them, and everything is in the folder that they see."""

import subprocess
import sys
from pathlib import Path

import pytest

from fakes.clusters import LocalCluster
from fakes.waiting import PATIENCE_S
from soulsgraph.results.tables import read_rows
from soulsgraph.runs.run_folder import RunFolder

pytestmark = pytest.mark.slow


def swept(cluster: LocalCluster, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a small sweep of lock-on's gamma on two seeds, on the camera of an agent of the zoo."""
    space = folder.parent / "space.toml"
    space.write_text("[lock_on]\ngamma = [0.9, 0.99]\n", encoding="utf-8")
    asked = ["study", "sweep", str(space), "--adapt", "iudex-phase1-best-0", "--stage", "lock_on", "--budget", "1500"]
    asked += ["--seeds", "2", "--episodes", "4", "--run", str(folder), "--address", cluster.address, *words]
    return subprocess.run(
        [str(Path(sys.executable).with_name("soulsgraph")), *asked],
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=4.0 * PATIENCE_S,
        check=False,
    )


def left(folder: Path) -> dict[str, str]:
    """Return the digest of what every trial trained, once all are finished on the same camera."""
    trials = read_rows(folder / "results" / "trials.parquet")
    assert [trial["state"] for trial in trials] == ["finished"] * 4
    assert len({trial["node"] for trial in trials}) == 2
    runs = {trial["run"]: RunFolder.open(folder / trial["run"]) for trial in trials}
    assert all(run.library.versions("lock_on") == [1] for run in runs.values())
    assert len({run.library.card("camera", 1).digest for run in runs.values()}) == 1
    return {name: run.library.card("lock_on", 1).digest for name, run in runs.items()}


def test_trials_spread_over_the_nodes_and_their_results_are_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    with LocalCluster(workers=1, head_cpus=1) as cluster:
        done = swept(cluster, folder)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(set(left(folder).values())) == 4
