import os
import socket
import subprocess
import sys

import pytest

from soulsgraph_clusters.session import ClusterError, check_cluster
from soulsgraph_clusters.testing import LocalCluster, free_port

_LOCAL_SESSION = """
import os, psutil, ray
from soulsgraph_clusters.session import connect
for _ in range(2):
    with connect(num_cpus=2) as session:
        assert session.local and session.resources["CPU"] == 2.0, session
        assert ray.get(ray.remote(lambda: 42).remote()) == 42
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        pss = sum(process.memory_full_info().pss for process in processes) / 2**20
        with connect() as same:
            assert same.resources == session.resources
    assert not ray.is_initialized()
gone, alive = psutil.wait_procs(processes[1:], timeout=10)
assert not alive, alive
print(ray._private.worker._global_node is None, round(pss))
"""


@pytest.mark.slow
def test_a_local_session_is_small_and_leaves_nothing_behind(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"HOME": str(tmp_path)}
    before = {name for name in os.listdir("/tmp") if name.startswith("soulsgraph-")}
    answer = subprocess.run(
        [sys.executable, "-c", _LOCAL_SESSION], env=environment, capture_output=True, text=True, timeout=120
    )
    assert answer.returncode == 0, answer.stderr
    assert int(answer.stdout.split()[1]) < 1024, "MiB of PSS for a bare session, driver with torch included"
    assert not list(tmp_path.rglob("auth_token"))
    assert {name for name in os.listdir("/tmp") if name.startswith("soulsgraph-")} <= before


@pytest.mark.parametrize("address", ["nonsense", "host:", "host:0", "host:65536", "127.0.0.1:port", ""])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(ClusterError, match="expected host:port"):
        check_cluster(address)


def test_a_dead_address_is_refused_before_ray_is_asked():
    with pytest.raises(ClusterError, match=r"expected a Ray cluster to answer.*ray start --head"):
        check_cluster(f"127.0.0.1:{free_port()}")


@pytest.mark.slow
def test_a_port_that_is_not_rays_is_refused(monkeypatch):
    monkeypatch.setattr("soulsgraph_clusters.session.HEALTH_CHECK_TIMEOUT_S", 5.0)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(ClusterError, match=r"expected a (healthy cluster|Ray cluster to answer)"):
            check_cluster(f"127.0.0.1:{silent.getsockname()[1]}")


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster() as cluster:
        yield cluster


def _python(cluster, code, **changes):
    return subprocess.run(
        [sys.executable, "-c", code],
        env=cluster.environment | changes,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.slow
def test_a_cluster_is_joined_by_its_address(cluster):
    code = (
        "from soulsgraph_clusters.session import connect\n"
        f"with connect('{cluster.address}') as session:\n"
        "    assert not session.local\n"
        "    print(session.resources['game_pc'])"
    )
    answer = _python(cluster, code)
    assert (answer.returncode, answer.stdout.strip()) == (0, "2.0"), answer.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{"RAY_AUTH_TOKEN": "0" * 64}, {"RAY_AUTH_MODE": "disabled"}],
    ids=["a wrong token", "no token"],
)
def test_a_cluster_that_refuses_the_token_is_told_as_such(cluster, changes):
    code = f"from soulsgraph_clusters.session import check_cluster; check_cluster('{cluster.address}')"
    answer = _python(cluster, code, **changes)
    last = answer.stderr.strip().splitlines()[-1]
    assert answer.returncode == 1
    assert "ClusterError" in last
    assert "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH" in last


@pytest.mark.slow
def test_a_job_of_the_cluster_runs_on_both_workers(cluster):
    code = (
        "import torch, ray; from soulsgraph_clusters.session import connect\n"
        "with connect() as session:\n"
        "    place = ray.remote(num_cpus=0, resources={'game_pc': 1})(\n"
        "        lambda: ray.get_runtime_context().get_node_id())\n"
        "    print('nodes', session.local, len({*ray.get([place.remote() for _ in range(20)])}))"
    )
    job = cluster.job_submit(["python", "-c", code])
    assert job.wait(timeout_s=90) == 0, job.logs()
    assert "nodes False 2" in job.logs()


@pytest.mark.slow
def test_a_failing_job_fails_its_submission(cluster):
    job = cluster.job_submit(["python", "-c", "raise SystemExit(3)"])
    assert job.wait(timeout_s=90) == 1
    assert "exit code 3" in job.logs()


@pytest.mark.slow
def test_a_killed_worker_is_gone_and_another_can_join():
    with LocalCluster(workers=1) as own:
        pids = own.workers[0].pids
        own.kill_worker(0)
        assert not any(_alive(pid) for pid in pids)
        own.add_worker({"game_pc": 1, "pc_b": 1})
        code = (
            "import time; from soulsgraph_clusters.session import connect\n"
            f"with connect('{own.address}'):\n"
            "    import ray\n"
            "    while ray.cluster_resources().get('game_pc') != 1.0: time.sleep(0.2)\n"
            "    print(ray.cluster_resources()['pc_b'])"
        )
        answer = _python(own, code)
        assert answer.stdout.strip() == "1.0", answer.stderr
        every = [pid for node in own.workers for pid in node.pids]
    assert not any(_alive(pid) for pid in every)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
