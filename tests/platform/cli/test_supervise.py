"""`soulsgraph supervise`: real trainings, killed and interrupted while they run; who takes over what is left behind."""

import os
import signal
import subprocess
import sys

import psutil
import pytest
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fakes.clusters import LocalCluster, over
from fakes.waiting import until
from soulsgraph.runs.places import TrainingPlace
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.supervision import SUPERVISOR, end_orphan, owner_file
from soulsgraph.runs.workers import WorkerProcess
from soulsgraph.runs.workplace import training_workplace
from soulsgraph_clusters.fleet.protocol.settings import load_fleet, sole_head
from soulsgraph_clusters.sessions.local_ray import free_port
from soulsgraph_envs.core.errors import SoulsGraphError

#: Long enough that it can be broken off well before the end.
SCALE, STEPS = "2", 40_000


def _steps_of(events):
    """Return the steps that were taken as a file of TensorBoard's events was written."""
    return [event.step for event in EventAccumulator(str(events)).Reload().Scalars("camera/charts/SPS")]


def _events(run):
    """Return the files of events in the order in which they were begun."""
    return sorted((run / "tensorboard").iterdir(), key=lambda path: path.stat().st_mtime_ns)


@pytest.fixture
def breaking(tmp_path):
    """Return a function that makes an environment in which the supervised command runs code as it starts."""

    def environment(code):
        (tmp_path / "sitecustomize.py").write_text(f"import errno, os, sys\nif '-m' in sys.orig_argv:\n    {code}\n")
        return os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}

    return environment


@pytest.mark.slow
def test_an_interrupted_training_ends_and_a_killed_one_goes_on(supervise):
    words = ("--", "train", "camera", "--scale", SCALE)
    first = supervise(*words)
    first.trains()
    first.interrupt()
    assert first.wait() == 130, first.logs
    assert "it restarts in" not in first.logs
    checkpoint = first.checkpoint()
    second = supervise(*words)
    before = second.started().pid
    second.trains(beyond=checkpoint)
    second.kill_training()
    assert second.started().pid != before
    assert second.wait() == 0, second.logs
    assert "SIGKILL; it restarts in 1 s" in second.logs
    assert RunFolder.open(second.run).library.load("camera", 1).card.training.steps == STEPS
    events = _events(second.run)
    assert len(events) == 3
    assert min(_steps_of(events[0])) <= checkpoint < min(_steps_of(events[-1]))
    assert max(_steps_of(events[-1])) == STEPS


def test_it_waits_longer_each_time_and_an_interrupt_ends_the_wait(supervise, breaking):
    supervised = supervise("--", "train", "camera", environment=breaking("os._exit(3)"))
    for wait_s in (1, 2, 4):
        supervised.logged(f"code 3; it restarts in {wait_s} s")
    supervised.interrupt()
    assert supervised.wait() == 130, supervised.logs


@pytest.mark.parametrize("code", [0, 2])
def test_an_end_that_stays_is_final_and_reported_by_the_command_alone(supervise, breaking, code):
    supervised = supervise("--", "train", "camera", environment=breaking(f"os._exit({code})"))
    assert supervised.wait() == code
    assert supervised.logs == ""


@pytest.mark.slow
def test_a_training_that_its_supervisor_left_behind_is_ended_by_the_next_which_goes_on(supervise):
    words = ("--", "train", "camera", "--scale", "400")
    first = supervise(*words)
    first.trains()
    left = first.kill_supervisor()
    second = supervise(*words)
    until(lambda: over(left), "the end of the first training")
    second.trains(beyond=second.checkpoint())
    second.interrupt()
    assert second.wait() == 130, second.logs
    assert "it restarts in" not in second.logs
    assert min(_steps_of(_events(second.run)[-1])) > 1_000, "the first left a checkpoint as it ended"


#: Holds the lock of a run, and goes on doing so when it is asked to stop.
_HOLDER = """
import signal, sys, time; from pathlib import Path; from soulsgraph.runs.run_folder import RunFolder
signal.signal(signal.SIGTERM, signal.SIG_IGN)
lock = RunFolder.open(Path(sys.argv[1])).locked(); lock.__enter__(); time.sleep(3600)
"""


@pytest.mark.parametrize("variable", [SUPERVISOR, "RAY_JOB_CONFIG_JSON_ENV_VAR"])
def test_an_orphan_that_hangs_is_killed_and_no_other_process(tmp_path, variable):
    run, lock = RunFolder.create(tmp_path / "run", Plan()), tmp_path / "run" / ".lock"
    said = owner_file(lock)
    said.unlink()
    (tmp_path / "holder.py").write_text(_HOLDER)
    # Of a job the parent is a process of Ray's.
    script = f"export {variable}=$$; {sys.executable} {tmp_path / 'holder.py'} {run.path} & wait"
    parent = subprocess.Popen(["sh", "-c", script])
    try:
        owner = until(lambda: said.is_file() and said.read_text(), "a lock that is held")
        holder = psutil.Process(int(owner.split()[0]))
        assert owner == f"{holder.pid} {parent.pid}"
        assert not end_orphan(lock, owner, 0.1), "its supervisor lives"
        with pytest.raises(SoulsGraphError, match=str(holder.pid)), run.locked():
            pass
    finally:
        parent.kill()
        parent.wait()
    other = tmp_path / "another.lock"
    other.touch()
    assert not end_orphan(other, owner, 0.1), "it holds no such file"
    assert not end_orphan(lock, f"{os.getpid()} {parent.pid}", 0.1), "this process holds no lock"
    assert not end_orphan(lock, f"{holder.pid}", 0.1), "it names no supervisor"
    assert end_orphan(lock, owner, 0.1)
    with run.locked():
        assert over(holder)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("", id="no-cluster", marks=pytest.mark.slow),
        pytest.param("def full(handle): raise OSError(28, 'full')\n    os.fsync = full", id="full-disk"),
    ],
)
def test_what_may_come_by_itself_is_waited_for(supervise, breaking, code):
    away = () if code else ("--address", f"127.0.0.1:{free_port()}")
    supervised = supervise("--", "train", "camera", *away, environment=breaking(code or "pass"))
    supervised.logged("ended with code 69; it restarts in")
    supervised.interrupt()
    assert supervised.wait() != 0


@pytest.mark.slow
def test_a_training_ends_with_its_head_and_goes_on_with_the_next(supervise):
    with LocalCluster(workers=0) as cluster:
        words = ("--", "train", "camera", "--scale", "400", "--env-runners", "1", "--address", cluster.address)
        supervised = supervise(*words, environment=cluster.environment)
        until(supervised.checkpoint, "a checkpoint")
        cluster.kill_head()
        supervised.logged("it restarts in")
        cluster.start_head()
        reached = supervised.checkpoint()
        until(lambda: supervised.running and supervised.checkpoint() > reached, "a later checkpoint")
        os.kill(supervised.training.pid, signal.SIGKILL)
        supervised.logged("SIGKILL")
        supervised.interrupt()
        assert supervised.wait() != 0


def test_a_run_is_locked_before_its_fleet_is_asked_for(tmp_path):
    run, file = RunFolder.create(tmp_path / "run", Plan()), tmp_path / "fleet.toml"
    file.write_text(f'listen = "127.0.0.1:{free_port()}"\n')
    asked = run, TrainingPlace(fleet=file, no_ray=True), Console(quiet=True)
    # What outlived its supervisor holds both, and only the run's lock says whose it is.
    held = pytest.raises(SoulsGraphError, match=str(os.getpid()))
    with run.locked(), sole_head(load_fleet(file)), held, training_workplace(*asked, worker=WorkerProcess()):
        pass
