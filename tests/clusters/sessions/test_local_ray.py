"""The private Ray session: on the loopback, quick although its agents are slow, and gone with its owner."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest
import ray
from ray._private import ray_constants

from fakes.waiting import PATIENCE_S, until
from soulsgraph.api import train
from soulsgraph.results.tables import read_rows
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_clusters.sessions import local_ray as module
from soulsgraph_clusters.sessions.local_ray import SessionError
from soulsgraph_clusters.sessions.session import connect

_SESSION = """
import http.client, ipaddress, json, os, stat, sys
import grpc, psutil, ray
from pathlib import Path
from soulsgraph_clusters.sessions.session import connect

METHODS = ("NodeInfoGcsService/GetAllNodeInfo", "NodeManagerService/GetNodeStats", "ObjectManagerService/Pull",
           "CoreWorkerService/GetCoreWorkerStats", "ReporterService/GetTraceback")

def refusals(port):
    answers = set()
    for method in METHODS:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            try:
                channel.unary_unary(f"/ray.rpc.{method}")(b"", timeout=30)
                answers.add("taken")
            except grpc.RpcError as error:
                answers.add(error.code().name)
    if answers == {"UNAVAILABLE"}:
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        asked.request("POST", "/get_or_create_runtime_env")
        answers = {asked.getresponse().status}
    return sorted(answers)

with connect("local", num_cpus=2) as session:
    assert session.local and session.resources["CPU"] == 2.0, session
    assert ray.get(ray.remote(lambda: 42).remote()) == 42
    with connect() as same:
        assert same.resources == session.resources
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    sockets = [socket for process in processes for socket in process.net_connections() if socket.status == "LISTEN"]
    ports = {socket.laddr.port: socket.laddr.ip for socket in sockets if socket.laddr}
    paths = {line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if "soulsgraph-ray-" in line}
    words = " ".join(word for process in processes for word in process.cmdline())
    folders = {Path(*Path(path).parts[:3]) for path in paths}
    folder = next(folder for folder in folders if str(folder) in words)
    print(json.dumps({
        "addresses": {f"{process.pid} {process.name()}": [socket.laddr.ip for socket in process.net_connections()
            if socket.status == "LISTEN"] for process in processes},
        "refusals": {port: refusals(port) for port in ports},
        "folder": str(folder),
        "mode": stat.S_IMODE(folder.stat().st_mode),
        "longest": max(len(path) for path in paths if path.startswith(str(folder))),
        "pss": sum(process.memory_full_info().pss for process in processes) / 2**20,
        "processes": [process.pid for process in processes],
        "token": os.environ["RAY_AUTH_TOKEN"],
    }), flush=True)
    ENDING
"""


@pytest.fixture
def environment(tmp_path):
    """A user's environment without any setting of Ray, with a home folder of its own."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return ours | {"HOME": str(tmp_path)}


def run_session(environment, ending):
    command = [sys.executable, "-c", _SESSION.replace("ENDING", ending)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.stdout, ended.stderr
    return ended, json.loads(ended.stdout)


def await_end(said):
    """Wait until neither processes nor files of a session are left."""
    until(lambda: not any(psutil.pid_exists(pid) for pid in said["processes"]), "the end of every process")


@pytest.mark.slow
def test_a_session_is_small_and_private_and_leaves_nothing_behind(environment, tmp_path):
    ended, said = run_session(environment, "pass")
    assert (ended.returncode, ended.stderr) == (0, "")
    addresses = {address for found in said["addresses"].values() for address in found}
    assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}, said["addresses"]
    assert len(said["refusals"]) >= 6, "GCS, raylet (2), agent, runtime environments, driver, worker"
    for port, refusals in said["refusals"].items():
        assert "taken" not in refusals, port
        # The metrics of Ray's autoscaler and of its dashboard, which start a little later, have no token.
        assert port in {"44217", "44227"} or {"UNAUTHENTICATED", 401} & set(refusals), (port, refusals)
    assert said["mode"] == 0o700
    assert said["longest"] < 107
    assert said["pss"] < 1024, "MiB of PSS for a bare session, driver with torch included"
    assert not list(tmp_path.rglob("auth_token"))
    await_end(said)


@pytest.mark.slow
def test_what_a_killed_owner_leaves_goes_by_itself(environment):
    ended, said = run_session(environment, "os.kill(os.getpid(), 9)")
    assert ended.returncode == -signal.SIGKILL
    assert len(said["processes"]) > 4
    await_end(said)


@pytest.fixture
def folder(monkeypatch):
    """The parent of the session's folders, at a short path, as sockets need."""
    with TemporaryDirectory(prefix="sg-", dir="/tmp") as name:
        monkeypatch.setattr(module, "FOLDER", Path(name))
        yield Path(name)


def test_a_ray_that_does_not_start_is_one_error_and_leaves_nothing(folder, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("no such thing.\n")

    monkeypatch.setattr("ray.init", refuse)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(SessionError, match="no such thing"):
        train("camera", env_runners=1, run=tmp_path / "run")
    assert not list(folder.iterdir())
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_training_in_one_process_starts_no_ray(folder, tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    before = set(psutil.Process().children(recursive=True))
    train("camera", scale=0.06, run=tmp_path / "run")
    assert not ray.is_initialized()
    assert not list(folder.iterdir())
    assert set(psutil.Process().children(recursive=True)) <= before, "the process of the curve ended too"
    assert len(read_rows(RunFolder.open(tmp_path / "run").results("curves"))) == 1


def test_under_uv_ray_uploads_no_folder_unless_it_is_asked_to(monkeypatch):
    hooked = []

    def init(*_, **__):
        hooked.append(ray_constants.RAY_ENABLE_UV_RUN_RUNTIME_ENV)
        raise RuntimeError

    monkeypatch.setattr("ray.init", init)
    monkeypatch.setattr(ray_constants, "RAY_ENABLE_UV_RUN_RUNTIME_ENV", True)
    for asked in (True, False):
        if asked:
            monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "1")
        else:
            monkeypatch.delenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV")
        with pytest.raises(SessionError), connect("local"):
            pass
    assert hooked == [*[True] * 3, *[False] * 3], "each start is tried three times"


_ODD = """
import json, os, sys, torch, ray
from soulsgraph_clusters.sessions.session import connect

def found():
    import resource
    return resource.getrlimit(resource.RLIMIT_NOFILE)

answers = []
for _ in range(2):
    with connect("local", num_cpus=1):
        answers.append(ray.get(ray.remote(found).remote()))
    # The next one has a token of its own.
    del os.environ["RAY_AUTH_TOKEN"]
open(sys.argv[1], "w").write(json.dumps(answers))
"""


@pytest.mark.slow
def test_one_session_after_another_starts_whatever_the_folder_the_proxies_and_the_streams_are(environment, tmp_path):
    folder = tmp_path / "Jürgen 渡辺"
    folder.mkdir()
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy", "grpc_proxy"), "http://127.0.0.1:9")
    words = (sys.executable, "-P", "-c", _ODD, str(tmp_path / "answer"))
    shell = ("/bin/sh", "-c", 'ulimit -Sn 100; exec <&- >&- 2>&-; exec "$@"', "sh", *words)
    assert subprocess.run(shell, cwd=folder, env=environment | proxies, timeout=PATIENCE_S).returncode == 0
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    answers = json.loads((tmp_path / "answer").read_text())
    assert answers == [[hard, hard]] * 2
