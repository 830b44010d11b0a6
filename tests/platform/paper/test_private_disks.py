"""Reproductions on nodes that have disks of their own: the bytes of one disk, whatever is lost or stopped."""

import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest

from fakes.clusters import LocalCluster, command_of
from fakes.waiting import PATIENCE_S, until
from soulsgraph.runs.ray_runner import APART

pytestmark = pytest.mark.slow

STUDY = ("--seeds", "1", "--first-seed", "100", "--scale", "0.05", "--episodes", "5")


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> dict[str, bytes]:
    """Return what the study leaves on one machine."""
    folder = tmp_path_factory.mktemp("shared") / "study"
    command = [sys.executable, "-m", "soulsgraph", "study", "reproduce", *STUDY, "--run", folder]
    subprocess.run([*map(str, command)], check=True, timeout=3 * PATIENCE_S)
    return left_in(folder)


def left_in(study: Path) -> dict[str, bytes]:
    """Return the content of a study's files by name, empty where it has times or the pace in it.

    Left out are reports, locks, checkpoints, which a node keeps, and the board, whose files are named by machine.
    """
    files = {path.relative_to(study).as_posix(): path for path in study.rglob("*") if path.is_file()}
    left_out = ("checkpoints/", "tensorboard/", "report/", "/.", "reproduction.json")
    timed = ("card.json", "plan.json", "results/training.parquet", "results/curves.parquet")
    return {
        name: b"" if name.endswith(timed) else path.read_bytes()
        for name, path in files.items()
        if not any(part in f"/{name}" for part in left_out)
    }


@pytest.fixture
def runs(tmp_path) -> Path:
    """Return a folder in whose place each node sees a disk of its own."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("a file system of a node's own takes root and unshare")
    (folder := tmp_path / "runs").mkdir()
    return folder


def on_node(node, folder: Path) -> list[Path]:
    """Return the folders in which units work on a node, as this process reaches the node's own disk."""
    return [*Path(f"/proc/{node.pid}/root{folder}").glob(f"{APART}*")]


def driver_of(study: Path) -> psutil.Process:
    """Return the process that runs a study as a job."""
    found = [process for process in psutil.process_iter() if {"reproduce", str(study)} <= {*command_of(process.pid)}]
    return max(found, key=lambda process: process.create_time())


def reproduce(cluster: LocalCluster, *options: object):
    return cluster.job_submit(["soulsgraph", "study", "reproduce", *map(str, options)])


def test_a_node_that_is_lost_or_a_stop_changes_no_byte_of_what_private_disks_leave(expected, runs):
    study, library = runs / "study", Path("seeds/100/skills/library")
    with LocalCluster(workers=0, head_cpus=0) as cluster:
        nodes = [cluster.add_worker(hidden=runs) for _ in range(2)]
        job = reproduce(cluster, *STUDY, "--run", study)

        def node_with(card: Path):
            assert job.running, job.logs()
            return next((node for node in nodes if any((at / card).exists() for at in on_node(node, runs))), None)

        until(partial(node_with, library / "movement" / "v1" / "card.json"), "a node that trains the skills")
        assert not (study / "seeds" / "100" / "skills").exists(), "nothing comes before the unit ends"
        driver_of(study).send_signal(signal.SIGTERM)
        job.wait()
        assert (study / library / "movement" / "v1" / "card.json").exists()
        assert not (study / "seeds" / "100" / "pieces" / "skills-rows.json").exists()
        assert len([*study.glob("seeds/100/skills/checkpoints/*/step-*")]) == 1
        assert not [at for node in nodes for at in on_node(node, runs)]

        job = reproduce(cluster, "--run", study)
        later = (
            library / skill / version / "card.json" for version in ("v1", "v2") for skill in ("dodge", "heal_attack")
        )
        more = next(card for card in later if not (study / card).exists())
        lost = until(partial(node_with, more), "a node that goes on with the skills")
        lost.kill()
        assert job.wait(3 * PATIENCE_S) == 0, job.logs()
        (kept,) = (node for node in nodes if node is not lost)
        assert not on_node(kept, runs)
    assert left_in(study) == expected
    sessions = json.loads((study / "reproduction.json").read_text())["sessions"]
    assert len(sessions) == 2
