"""The private Ray session: on the loopback, quick although its agents are slow, and gone with its owner."""

import errno
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from contextlib import nullcontext
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
from soulsgraph_clusters.sessions.local_ray import SessionError, local_ray
from soulsgraph_clusters.sessions.session import connect
from soulsgraph_envs.core.errors import UnavailableError

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
    folder = next(Path(path) for path in map(Path, processes[1].cmdline()) if path.name.startswith("soulsgraph-ray-"))
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
#: Of each Python where the agent of a node's dashboard never begins.
_SLOW = """
import sys, time
if any(word.endswith("dashboard/agent.py") for word in sys.orig_argv):
    time.sleep(600)
"""
_ODD = """
import json, os, sys, torch, ray
from soulsgraph_clusters.sessions.session import connect

def found():
    import queue, random, resource, sys, torch
    paths = [*(module.__file__ for module in (queue, random, torch)), *sys.path]
    shadows = [path for path in paths if "shadows" in path]
    return os.environ["PATH"], resource.getrlimit(resource.RLIMIT_NOFILE), shadows

answers = []
for token in ("a" * 64, "b" * 64):
    os.environ["RAY_AUTH_TOKEN"] = token
    with connect("local", num_cpus=1):
        answers.append(ray.get(ray.remote(found).remote()))
open(sys.argv[1], "w").write(json.dumps(answers))
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
    until(lambda: not Path(said["folder"]).exists(), "the end of the folder")


@pytest.mark.slow
def test_a_session_is_small_and_private_and_leaves_nothing_behind(environment, tmp_path):
    ended, said = run_session(environment, "pass")
    assert (ended.returncode, ended.stderr) == (0, "")
    addresses = {address for found in said["addresses"].values() for address in found}
    assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}, said["addresses"]
    assert len(said["refusals"]) >= 6, "GCS, raylet (2), agent, runtime environments, driver, worker"
    for port, refusals in said["refusals"].items():
        assert "taken" not in refusals, port
        assert {"UNAUTHENTICATED", 401} & set(refusals), (port, refusals)
    assert said["mode"] == 0o700
    assert said["longest"] < 107
    assert said["pss"] < 1024, "MiB of PSS for a bare session, driver with torch included"
    assert not list(tmp_path.rglob("auth_token"))
    await_end(said)


def test_a_port_that_others_listen_on_is_passed_over(monkeypatch):
    assert module.free_port() in module._PORTS
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", module.free_port()))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(module, "_PORTS", range(port, port + 20))
        assert port not in {module.free_port() for _ in range(200)}
        monkeypatch.setattr(module, "_PORTS", range(port, port + 1))
        with pytest.raises(OSError, match=str(port)):
            module.free_port()


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


def test_a_start_that_takes_too_long_is_one_error_and_leaves_nothing(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "START_TIMEOUT_S", 0.0)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(SessionError):
        train("camera", env_runners=1, run=tmp_path / "run")
    assert set(psutil.Process().children(recursive=True)) <= before
    assert not list(folder.iterdir())
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_training_in_one_process_starts_no_ray(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "START_TIMEOUT_S", 0.0)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    before = set(psutil.Process().children(recursive=True))
    train("camera", scale=0.06, run=tmp_path / "run")
    assert not ray.is_initialized()
    assert not list(folder.iterdir())
    assert set(psutil.Process().children(recursive=True)) <= before, "the process of the curve ended too"
    assert len(read_rows(RunFolder.open(tmp_path / "run").results("curves"))) == 1


def test_an_error_in_rays_own_logs_is_quoted(tmp_path):
    logs = tmp_path / "session_2026-11-26" / "logs"
    logs.mkdir(parents=True)
    assert module._logged(tmp_path) == ""
    (logs / "raylet.out").write_text(
        "[2026-11-26 18:32:24,802 I 16003 16003] (raylet) main.cc:200: Setting cluster ID to: 1\n"
        "[2026-11-26 18:32:25,802 C 16003 16003] (raylet) main.cc:312:  Check failed: no such port.\n"
        "*** StackTrace Information ***\n"
    )
    assert "raylet: Check failed: no such port" in module._logged(tmp_path)


def test_a_machine_without_a_loopback_is_named_before_anything_starts(folder, monkeypatch):
    def unreachable(*_):
        raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))

    monkeypatch.setattr("socket.create_connection", unreachable)
    with pytest.raises(SessionError, match=r"127\.0\.0\.1") as refused, local_ray(1):
        pass
    assert not isinstance(refused.value, UnavailableError), "to wait for it is of no use"
    assert not list(folder.iterdir())


def test_a_limit_of_open_files_that_is_too_low_is_named_before_anything_starts(folder, monkeypatch):
    monkeypatch.setattr(module, "raise_open_files", lambda: 40)
    with pytest.raises(SessionError, match="136"), local_ray(2):
        pass
    assert not list(folder.iterdir())


def test_a_system_without_a_shell_for_rays_workers_is_named_before_anything_starts(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "defpath", str(tmp_path))
    for path in ("", "/nowhere"):
        monkeypatch.setenv("PATH", path)
        with pytest.raises(SessionError, match="bash"), local_ray(1):
            pass
    assert not list(folder.iterdir())


def test_what_ray_says_to_this_process_is_the_cause_and_no_hook_of_uv_uploads_the_folder(monkeypatch):
    hooked = []

    def init(*_, **__):
        hooked.append(ray_constants.RAY_ENABLE_UV_RUN_RUNTIME_ENV)
        raise failures.pop()

    failures = [UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed"), RuntimeError("no such thing.\n")]
    monkeypatch.delenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", raising=False)
    monkeypatch.setattr("soulsgraph_clusters.sessions.session.local_ray", lambda *_: nullcontext("127.0.0.1:1"))
    monkeypatch.setattr("ray.init", init)
    for found in ("no such thing", "UTF-8"):
        with pytest.raises(SessionError, match=found), connect("local"):
            pass
    assert hooked == [False, False]
    assert ray_constants.RAY_ENABLE_UV_RUN_RUNTIME_ENV


@pytest.mark.slow
@pytest.mark.skipif(not any(Path(folder, "bash").exists() for folder in os.defpath.split(":")), reason="no bash there")
def test_sessions_start_by_their_own_tokens_whatever_the_folder_the_environment_and_the_limits_are(
    environment, tmp_path
):
    folder = tmp_path / "Jürgen 渡辺 shadows"
    folder.mkdir()
    for name in ("queue", "random", "torch", "ray", "select", "soulsgraph_clusters"):
        (folder / f"{name}.py").write_text("open('executed', 'a').write(__name__); raise SystemExit(9)")
    (tmp_path / "sitecustomize.py").write_text(_SLOW)
    path = os.pathsep.join([str(tmp_path), *filter(None, [environment.get("PYTHONPATH")])])
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy", "grpc_proxy"), "http://127.0.0.1:9")
    words = (sys.executable, "-P", "-c", _ODD, str(tmp_path / "answer"))
    shell = ("/bin/sh", "-c", 'ulimit -Sn 100; exec <&- >&- 2>&-; exec "$@"', "sh", *words)
    odd = environment | proxies | {"PATH": "/nowhere", "PYTHONPATH": path}
    assert subprocess.run(shell, cwd=folder, env=odd, timeout=PATIENCE_S).returncode == 0
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for worker_path, limits, shadows in json.loads((tmp_path / "answer").read_text()):
        assert worker_path.endswith(f"/nowhere:{os.defpath}")
        assert limits == [hard, hard]
        assert shadows == []
    assert not (folder / "executed").exists()
