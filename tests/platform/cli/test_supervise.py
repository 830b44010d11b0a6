"""`soulsgraph supervise`: real trainings, killed and interrupted while they run."""

import os
import signal
import socket

import psutil
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fakes.clusters import over
from fakes.waiting import until
from soulsgraph.cli import supervise as command
from soulsgraph.runs import supervision
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.supervision import AttemptEnd, end_orphan
from soulsgraph_clusters.sessions.local_ray import free_port

pytestmark = pytest.mark.slow
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
        supervised = "if 'supervision' in ' '.join(sys.orig_argv[:4]):"
        (tmp_path / "sitecustomize.py").write_text(f"import errno, os, sys\n{supervised}\n    {code}\n")
        return os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}

    return environment


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
    assert "SIGKILL; it restarts in 1 s (1 of 1000)" in second.logs
    assert RunFolder.open(second.run).library.load("camera", 1).card.training.steps == STEPS
    events = _events(second.run)
    assert len(events) == 3
    assert min(_steps_of(events[0])) <= checkpoint < min(_steps_of(events[-1]))
    assert max(_steps_of(events[-1])) == STEPS


def test_a_killed_curriculum_is_told_to_resume(supervise):
    supervised = supervise("--", "curriculum", "--scale", "0.006", "--episodes", "1")
    until(lambda: supervised.training and (supervised.run / "plan.json").is_file(), "a run that is begun")
    supervised.kill_training()
    # Without --resume a folder that is begun would be refused.
    assert supervised.wait() == 0, supervised.logs
    assert supervised.logs.count("it restarts in") == 1
    assert RunFolder.open(supervised.run).library.load("heal_attack", 1)


def test_it_waits_longer_each_time_says_why_and_an_interrupt_ends_the_wait(supervise, breaking):
    crash = "print('RuntimeError: the reason', file=sys.stderr, flush=True); os._exit(3)"
    supervised = supervise("--", "train", "camera", environment=breaking(crash))
    for number, wait_s in enumerate((1, 2, 4), 1):
        supervised.logged(f"code 3 (its last line: RuntimeError: the reason); it restarts in {wait_s} s ({number} of")
    supervised.interrupt()
    assert supervised.wait() == 130, supervised.logs


def test_after_the_last_restart_it_ends_with_the_commands_code(supervise, breaking):
    killed = breaking("os.kill(os.getpid(), 9)")
    supervised = supervise("--most-restarts", "1", "--", "train", "camera", environment=killed)
    assert supervised.wait() == 128 + signal.SIGKILL
    assert supervised.logs.count("it restarts in") == 1


def test_bad_input_is_final_and_reported_by_the_command_alone(supervise):
    supervised = supervise("--", "train", "camera", "--scale", "0")
    assert supervised.wait() == 2
    assert supervised.logs.startswith("error: scale: "), supervised.logs
    assert supervised.logs.count("\n") == 1


def test_a_training_ends_with_its_supervisor_and_the_next_goes_on_at_once(supervise):
    words = ("--", "train", "camera", "--scale", SCALE)
    first = supervise(*words)
    first.trains()
    left = first.kill_supervisor()
    second = supervise(*words)
    until(lambda: over(left), "the end of the first training")
    assert second.wait() == 0, second.logs
    assert "it restarts in" not in second.logs
    assert RunFolder.open(second.run).library.load("camera", 1).card.training.steps == STEPS
    assert min(_steps_of(_events(second.run)[-1])) > 1_000, "the first left a checkpoint as it ended"


def test_a_training_that_hangs_is_killed_when_its_supervisor_is_gone_and_no_other(supervise, tmp_path, monkeypatch):
    first = supervise("--", "train", "camera", "--scale", SCALE)
    first.trains()
    training, lock = first.started(), first.run / ".lock"
    owner = supervision.owner_file(lock).read_text()
    holder, supervisor = map(int, owner.split())
    assert holder == training.pid
    assert not end_orphan(lock, owner, 1.0), "nobody supervises this process"
    monkeypatch.setattr(supervision, "_supervisor", os.getppid())
    assert not end_orphan(lock, owner, 1.0), "its supervisor lives"
    training.suspend()
    first.kill_supervisor()
    other = tmp_path / "another.lock"
    other.touch()
    assert not end_orphan(other, owner, 1.0), "it holds no such file"
    assert not end_orphan(lock, f"{os.getpid()} {supervisor}", 1.0), "this process holds no lock"
    assert not end_orphan(lock, f"{holder}", 1.0), "it names no supervisor"
    # Suspended as before; while it waits for the disk it does not stop.
    until(lambda: training.status() == psutil.STATUS_STOPPED, "a process that stands still")
    assert end_orphan(lock, owner, 1.0)
    until(lambda: over(training), "its end")


def test_a_cluster_that_does_not_come_is_waited_for_and_no_crash(supervise):
    address = f"127.0.0.1:{free_port()}"
    supervised = supervise("--cluster-within", "0.03", "--", "train", "camera", "--address", address)
    assert supervised.wait() == 69, supervised.logs
    assert supervised.logs.count("waiting until it can run") == 1
    assert address in supervised.logs
    assert "it restarts in" not in supervised.logs


def test_a_full_disk_is_waited_for(supervise, breaking):
    full = breaking("def full(handle): raise OSError(errno.ENOSPC, 'No space left on device')\n    os.fsync = full")
    supervised = supervise("--cluster-within", "0.03", "--", "train", "camera", environment=full)
    assert supervised.wait() == 69, supervised.logs
    assert supervised.logs.count("waiting until it can run") == 1
    assert "No space left on device" in supervised.logs


@pytest.mark.parametrize(("ran_s", "again"), [(700.0, True), (1.0, False)])
def test_a_command_that_ran_for_long_is_tried_again_at_once(monkeypatch, ran_s, again):
    monkeypatch.setattr(command, "_TRY_EVERY_S", 600.0)
    waiting, looks = command._Cluster("local", None, 60.0, lambda line: None), iter([False] * 25)
    assert waiting.wait(AttemptEnd(69, "a node ended", ran_s), lambda: next(looks, True)) is again


def test_a_head_that_comes_back_is_noticed_and_one_that_does_not_is_given_up():
    port, servers = free_port(), []
    waiting, ended = command._Cluster(f"127.0.0.1:{port}", None, 0.01, print), AttemptEnd(69, "no answer", 1.0)

    def comes_back():
        if not servers:
            servers.append(socket.create_server(("127.0.0.1", port)))
        return False

    assert waiting.wait(ended, comes_back)
    servers[0].close()
    waiting.there()
    assert not waiting.wait(ended, lambda: False)
