"""`soulsgraph supervise` with a cluster: a head that it starts again, a job that it submits again, and refusals."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import psutil
import pytest

from fakes.clusters import LocalCluster
from fakes.waiting import until
from soulsgraph.cli.options import TrainingOptions, workplace
from soulsgraph.cli.supervise import supervise as run_supervise
from soulsgraph.runs import supervision
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.supervision import describe_process, end_orphan, has_ended
from soulsgraph_clusters.fleet.protocol.settings import load_fleet, sole_head
from soulsgraph_clusters.sessions.head import ClusterAwayError, RayHead, listens, processes_of_session
from soulsgraph_clusters.sessions.local_ray import free_port
from soulsgraph_envs.core.errors import SoulsGraphError

#: Long enough that heads and drivers are lost in the middle of it.
TRAIN = ("--", "train", "camera", "--scale", "400", "--env-runners", "1")


@pytest.fixture
def cluster():
    """A cluster whose head another program starts."""
    cluster = LocalCluster(workers=0)
    yield cluster
    cluster.close()


def kill_session(leader):
    """Kill a head with all that it started, as a power cut would."""
    for pid in processes_of_session(leader):
        # One that ended by the end of another is gone already.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: not processes_of_session(leader) or not psutil.pid_exists(leader), "the head's end")


def driver_of(run):
    """Return the process that trains as a job; None between two of them."""
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if str(run) in words and "supervise" not in words and process.status() != psutil.STATUS_ZOMBIE:
                return process
        except psutil.Error:
            continue
    return None


def checkpoint_beyond(supervised, reached):
    until(lambda: supervised.head and supervised.checkpoint() > reached, "a later checkpoint")


@pytest.mark.slow
def test_a_lost_head_is_started_again_and_ends_with_its_supervisor(supervise, cluster):
    with cluster.head_command() as (command, environment):
        words = ("--head-command", command, *TRAIN, "--address", cluster.address)
        supervised = supervise(*words, environment=environment)
        until(lambda: supervised.head and supervised.checkpoint(), "a checkpoint")
        head = supervised.head
        (gcs,) = (child for child in head.children() if "gcs_server" in child.name())
        gcs.kill()
        supervised.logged("the Ray head ended with code 1")
        supervised.logged("it restarts in")
        reached = supervised.checkpoint()
        checkpoint_beyond(supervised, reached)
        assert not head.is_running()
        second = supervised.head
        supervised.interrupt()
        assert supervised.wait() == 130, supervised.logs
        assert not listens(cluster.address)
        assert not processes_of_session(second.pid)


@pytest.mark.release
def test_a_job_is_submitted_again_whatever_ends_it(supervise, cluster):
    heads = []
    with cluster.head_command() as (command, environment):
        try:
            _lose_drivers_heads_and_supervisors(supervise, cluster, command, environment, heads)
        finally:
            for head in heads:
                kill_session(head.pid)


def _lose_drivers_heads_and_supervisors(supervise, cluster, command, environment, heads):
    words = ("--job", cluster.dashboard, *TRAIN)
    first = supervise("--head-command", command, *words, environment=environment)
    until(lambda: first.head and first.checkpoint(), "a checkpoint")
    heads.append(first.head)
    driver_of(first.run).kill()
    first.logged("submitted to", 2)
    checkpoint_beyond(first, first.checkpoint())
    kill_session(heads[0].pid)
    first.logged("submitted to", 3)
    reached = first.checkpoint()
    checkpoint_beyond(first, reached)
    heads.append(first.head)
    names = re.findall(r"job (train-\w+): submitted", first.logs)
    assert len(set(names)) == 3

    first.kill_supervisor()
    second = supervise(*words, environment=environment)
    second.logged(f"job {names[-1]} writes {second.run}")
    second.logged("submitted to")
    reached = second.checkpoint()
    until(lambda: second.running and second.checkpoint() > reached, "a later checkpoint")
    command_line = " ".join(driver_of(second.run).cmdline())
    second.interrupt()
    assert second.wait() == 130, second.logs
    assert driver_of(second.run) is None
    assert listens(cluster.address), "a head that it did not start is left alone"
    token = cluster.token_file.read_text()
    assert token not in first.logs + second.logs + command_line


def test_a_driver_that_outlived_its_job_is_ended_and_no_other(tmp_path, monkeypatch):
    run, lock = RunFolder.create(tmp_path / "run", Plan()), tmp_path / "run" / ".lock"
    said = supervision.owner_file(lock)
    said.unlink(missing_ok=True)
    code = (
        "import sys, time; from pathlib import Path; from soulsgraph.runs.run_folder import RunFolder;"
        "from soulsgraph.runs.supervision import begin_job; begin_job();"
        "run = RunFolder.open(Path(sys.argv[1])); lock = run.locked(); lock.__enter__(); time.sleep(3600)"
    )
    # Ray's process for a job is the parent of the job's command.
    shell = f"{sys.executable} -c '{code}' {tmp_path / 'run'} & wait"
    parent = subprocess.Popen(["sh", "-c", shell])
    try:
        owner = until(lambda: said.is_file() and said.read_text(), "a lock that is held")
        holder = psutil.Process(int(owner.split()[0]))
        assert owner == f"{holder.pid} {parent.pid}"
        monkeypatch.setattr(supervision, "_supervisor", os.getppid())
        assert not end_orphan(lock, owner, 1.0), "its job runs"
        with pytest.raises(SoulsGraphError, match=str(holder.pid)), run.locked():
            pass
    finally:
        parent.kill()
        parent.wait()
    with run.locked():
        assert not holder.is_running() or holder.status() == psutil.STATUS_ZOMBIE


def test_a_supervisor_is_gone_only_if_that_is_known():
    host, pid, began = describe_process().split()
    boot, _, ticks = began.partition("/")
    assert not has_ended(describe_process())
    assert has_ended(f"{host} {pid} {boot}/{int(ticks) - 1}"), "another process has its id"
    assert has_ended(f"{host} {pid} another-{boot}/{ticks}"), "the machine was started anew"
    assert has_ended(f"{host} 4194305 {boot}/{ticks}"), "no process has its id"
    assert not has_ended(f"{host}-2 {pid} 1.00"), "nobody knows what runs on another machine"
    assert not has_ended("")


def test_a_clock_that_is_set_ends_no_supervisors_job(monkeypatch):
    """A process's begin by the clock is counted from the boot, whose time moves with the clock."""
    described = describe_process()
    for moved_s in (-3600.0, -60.0, 60.0, 3600.0):
        now, booted = time.time() + moved_s, psutil.boot_time() + moved_s
        monkeypatch.setattr("time.time", lambda now=now: now)
        monkeypatch.setattr("psutil._pslinux.boot_time", lambda booted=booted: booted)
        assert not has_ended(described)
        assert describe_process() == described
        monkeypatch.undo()


@contextmanager
def _listening():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        yield silent.getsockname()[1]


def test_what_listens_there_is_never_joined_by_a_second_head(monkeypatch):
    lines = []
    monkeypatch.setattr("soulsgraph_clusters.sessions.head.HEALTH_CHECK_TIMEOUT_S", 0.5)
    with _listening() as port:
        head = RayHead(f"ray start --head --port {port}", lines.append)
        found = head.ensure(lambda: False)
        head.close()
    assert f"127.0.0.1:{port}" in found
    assert lines == []


@pytest.mark.slow
def test_a_head_that_does_not_start_is_reported_with_its_last_line():
    lines, port = [], free_port()
    head = RayHead(f"ray start --head --port={port} --num-cpus=many", lines.append)
    found = head.ensure(lambda: False)
    head.close()
    assert len(lines) == 1
    assert re.search(r"code 2 .*many", found)
    with pytest.raises(SoulsGraphError, match="no-such-ray"):
        RayHead(f"no-such-ray start --head --port={port}", lines.append).ensure(lambda: False)


def test_a_head_that_ends_while_it_is_asked_is_reported_by_its_end(monkeypatch):
    lines, port = [], free_port()
    head = RayHead(f"sh -c 'exit 3' start --head --port={port}", lines.append)
    head._process = subprocess.Popen(["sleep", "1000"], start_new_session=True)

    def lost(*_):
        head._process.kill()
        raise ClusterAwayError("no answer.")

    monkeypatch.setattr("soulsgraph_clusters.sessions.head.check_cluster", lost)
    assert "code 3" in head.ensure(lambda: False)
    (line,) = lines
    assert "SIGKILL" in line


def test_a_head_stays_in_the_foreground_at_the_address_that_it_names():
    head = RayHead("nice ray start --head --node-ip-address 10.1.2.3 --port=7000", print)
    assert head.address == "10.1.2.3:7000"
    assert RayHead("ray start --head", print).address == "127.0.0.1:6379"


@pytest.mark.parametrize(
    ("line", "settings", "name"),
    [
        ("train camera", {"head_command": "ray start --address=head:6379"}, "--head"),
        ("train camera", {"head_command": "ray start --head --port=0"}, "--port"),
        ("train camera", {"head_command": "ray start --head '"}, "quotation"),
        ("train camera", {"head_command": "ray start --head"}, "--head-command"),
        ("train camera --address 127.0.0.1:7000", {"head_command": "ray start --head"}, "--address 127.0.0.1:6379"),
        ("train camera", {"job": "http://127.0.0.1:8265"}, "--job"),
        ("train camera", {"job": "127.0.0.1:8265"}, "--job"),
        ("train camera", {"job": "http://me:secret@head:8265"}, "--job"),
    ],
)
def test_what_cannot_work_is_refused_at_once(line, settings, name, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(SoulsGraphError, match=name) as refusal:
        run_supervise(line.split(), **settings)
    assert "secret" not in str(refusal.value)


def test_a_run_is_locked_before_its_fleet_is_asked_for(tmp_path):
    run, file = RunFolder.create(tmp_path / "run", Plan()), tmp_path / "fleet.toml"
    file.write_text(f'listen = "127.0.0.1:{free_port()}"\n')
    # What outlived its supervisor holds both, and only the run's lock says whose it is.
    held = pytest.raises(SoulsGraphError, match=str(os.getpid()))
    with run.locked(), sole_head(load_fleet(file)), held, workplace(run, TrainingOptions(fleet=file)):
        pass


@pytest.mark.slow
def test_a_dashboard_that_does_not_come_is_waited_for(supervise):
    address = f"http://127.0.0.1:{free_port()}"
    supervised = supervise("--cluster-within", "0.03", "--job", address, "--", "train", "camera")
    assert supervised.wait() == 69, supervised.logs
    assert supervised.logs.count("waiting until it can run") == 1
    assert "submitted" not in supervised.logs
