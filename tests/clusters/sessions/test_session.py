import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import soulsgraph_envs
from fakes.clusters import LocalCluster
from fakes.waiting import PATIENCE_S, until
from soulsgraph_clusters.sessions.head import ClusterError, check_cluster
from soulsgraph_clusters.sessions.local_ray import free_port
from soulsgraph_clusters.sessions.nodes import code_digest


@pytest.mark.parametrize("address", ["nonsense", "host:", "host:0", "host:65536", "127.0.0.1:port", "127.0.0.1:²", ""])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(ClusterError, match="host:port"):
        check_cluster(address)


def test_a_dead_address_is_refused_before_ray_is_asked():
    for address in (f"127.0.0.1:{free_port()}", "host..name:6379"):
        with pytest.raises(ClusterError, match=address):
            check_cluster(address)


def test_a_port_that_is_not_rays_is_refused(monkeypatch):
    monkeypatch.setattr("soulsgraph_clusters.sessions.head.HEALTH_CHECK_TIMEOUT_S", 0.5)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(ClusterError, match="cluster"):
            check_cluster(f"127.0.0.1:{silent.getsockname()[1]}")


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster() as cluster:
        yield cluster


#: On a busy machine a head that is well may take longer to answer than a user waits for one that is not. Programs in
#: another environment are refused, for which a user's wait is waited out.
_PATIENTLY = f"from soulsgraph_clusters.sessions import head\nhead.HEALTH_CHECK_TIMEOUT_S = {PATIENCE_S}\n"


def _python(cluster, code, **changes):
    return subprocess.run(
        [sys.executable, "-c", code if changes else _PATIENTLY + code],
        env=cluster.environment | changes,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


@pytest.mark.slow
def test_a_cluster_that_refuses_the_token_is_told_as_such(cluster):
    code = f"from soulsgraph_clusters.sessions.head import check_cluster; check_cluster('{cluster.address}')"
    answer = _python(cluster, code, RAY_AUTH_TOKEN="0" * 64)
    assert answer.returncode == 1
    assert "ClusterError" in answer.stderr.splitlines()[-1]
    assert "RAY_AUTH_TOKEN_PATH" in answer.stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_job_of_the_cluster_runs_on_both_workers(cluster):
    # Two actors that live together, each on a game PC of its own.
    code = (
        "import torch, ray; from soulsgraph_clusters.sessions.session import connect\n"
        "class Player:\n"
        "    def place(self):\n"
        "        return ray.get_runtime_context().get_node_id()\n"
        "with connect() as session:\n"
        "    player = ray.remote(num_cpus=0, resources={'game_pc': 1})(Player)\n"
        "    players = [player.remote(), player.remote()]\n"
        "    print('nodes', session.local, len({*ray.get([one.place.remote() for one in players])}))"
    )
    job = cluster.job_submit(["python", "-c", code])
    assert job.wait() == 0, job.logs()
    assert "nodes False 2" in job.logs()


def _error_of(job):
    """Return the one line of errors in a job's log, of which Ray repeats the last lines."""
    assert job.wait() == 1, job.logs()
    (line,) = {line for line in job.logs().splitlines() if line.startswith("error: ")}
    assert "Traceback" not in job.logs()
    return line


#: A node's Python that finds none of our packages, as where nobody installed them.
_WITHOUT_OURS = """
import sys

class Path:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, *arguments):
        ours = name.partition(".")[0].startswith("soulsgraph")
        return None if ours else self.finder.find_spec(name, *arguments)

    def __getattr__(self, name):
        return getattr(self.finder, name)

for place, finder in enumerate(sys.meta_path):
    if getattr(finder, "__name__", "") == "PathFinder":
        sys.meta_path[place] = Path(finder)
"""


def _changed_copy(place):
    """Copy one of our packages and change a line of it."""
    folder = place / "soulsgraph_envs"
    shutil.copytree(Path(soulsgraph_envs.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    changed = folder / "core" / "errors.py"
    changed.write_text(changed.read_text() + "\n# changed\n")


def test_a_changed_line_is_other_code_and_ends_of_lines_are_not(tmp_path, monkeypatch):
    here = code_digest()
    _changed_copy(tmp_path)
    errors = tmp_path / "soulsgraph_envs" / "core" / "errors.py"
    monkeypatch.syspath_prepend(tmp_path)
    # What is imported already is found where it is.
    monkeypatch.delitem(sys.modules, "soulsgraph_envs")
    assert code_digest() not in (here, "")
    same = Path(soulsgraph_envs.__file__).parent / "core" / "errors.py"
    errors.write_bytes(same.read_bytes().replace(b"\n", b"\r\n"))
    assert code_digest() == here


@pytest.mark.slow
def test_a_cluster_is_joined_by_its_address_and_nodes_with_the_same_packages_are_asked_once(cluster):
    code = (
        "from soulsgraph_clusters.sessions import nodes\n"
        "from soulsgraph_clusters.sessions.session import connect\n"
        f"with connect('{cluster.address}') as session:\n"
        "    assert not session.local\n"
        "    session.check_nodes()\n"
        "    print(len(session.examined), session.resources['game_pc'])\n"
        "    nodes.ANSWERED_WITHIN_S = 0.0\n"
        "    session.check_nodes()"
    )
    answer = _python(cluster, code)
    assert (answer.returncode, answer.stdout.strip()) == (0, "3 2.0"), answer.stderr
    assert "no answer within" not in answer.stderr


# The last one: the nodes that it adds stay.
@pytest.mark.slow
def test_a_node_without_our_package_or_with_another_is_named_before_a_stage(cluster, tmp_path):
    for name in ("without", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "without" / "sitecustomize.py").write_text(_WITHOUT_OURS)
    _changed_copy(tmp_path / "other")
    path = os.environ.get("PYTHONPATH", "")
    for name in ("without", "other"):
        cluster.add_worker(environment={"PYTHONPATH": os.pathsep.join([str(tmp_path / name), path])})
    line = _error_of(
        cluster.job_submit(["soulsgraph", "train", "camera", "--run", str(tmp_path / "run"), "--env-runners", "4"])
    )
    assert "no soulsgraph on node" in line
    assert "other code on node" in line


_STARTS = """
import logging, os, sys, time
from pathlib import Path
import torch, ray
from soulsgraph_clusters.sessions.session import connect, find_places
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.skills import make_skill, training_scenario
from soulsgraph_policies.learning import env_runners
from soulsgraph_policies.learning.algorithm import SkillDQN
from soulsgraph_policies.learning.hyperparameters import skill_hyperparameters

logging.basicConfig(format="%(message)s")

MARK = sys.argv[-1]

class Slow(env_runners.SkillGraphEnvRunner):
    def make_env(self):
        if self.worker_index == 2:
            Path(MARK).write_text(str(os.getpid()))
            time.sleep(600.0)
        super().make_env()

env_runners.START_WITHIN_S = 20.0
with connect() as session:
    config = SkillDQN.get_default_config().debugging(log_level="CRITICAL")
    config = config.stage([make_skill("camera")], skill_hyperparameters(2_000_000), 128, seed=1)
    config.environment(env_config={"scenario": training_scenario(load_scenario("iudex-phase1"), config.skills[0])})
    config.places = tuple(find_places(2, session))
    config.env_runners(env_runner_cls=Slow, num_env_runners=2, num_cpus_per_env_runner=1)
    stage = config.build_algo()
    lost = Path(sys.argv[-1]).with_name("lost")
    while stage.live_runners != 1 or not lost.exists():
        stage.train()
    before = stage.decisions
    stage.train()
    print("goes on", stage.decisions > before, "by", stage.live_runners)
    stage.stop()
"""


@pytest.mark.slow
def test_a_node_that_is_lost_while_runners_start_is_reported_and_the_stage_goes_on(tmp_path):
    with LocalCluster() as cluster:
        (tmp_path / "driver.py").write_text(_STARTS)
        job = cluster.job_submit([sys.executable, str(tmp_path / "driver.py"), str(started := tmp_path / "started")])
        until(lambda: started.exists() and started.read_text(), "a runner that starts")
        lost = next(node for node in cluster.workers if int(started.read_text()) in node.pids)
        lost.kill()
        (tmp_path / "lost").touch()
        assert job.wait() == 0, job.logs()
        assert "env runner 2 has not started" in job.logs()
        assert "goes on True by 1" in job.logs()


@pytest.mark.slow
def test_a_study_is_refused_where_a_node_does_not_see_its_folder(tmp_path):
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("a file system of a node's own takes root and unshare")
    (private := tmp_path / "private").mkdir()
    with LocalCluster(workers=0, head_cpus=1) as cluster:
        cluster.add_worker(hidden=private)
        study = ["soulsgraph", "study", "reproduce", "--seeds", "1", "--scale", "0.01", "--run", str(private / "study")]
        line = _error_of(cluster.job_submit(study))
        assert "not that folder on node" in line
        assert str(private / "study") in line
