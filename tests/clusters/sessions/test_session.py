import os
import shutil
import socket
import subprocess
import sys

import pytest

from fakes.clusters import LocalCluster
from fakes.waiting import PATIENCE_S, until
from soulsgraph_clusters.sessions.local_ray import free_port
from soulsgraph_clusters.sessions.nodes import _other_versions, find_source, package_folders
from soulsgraph_clusters.sessions.session import ClusterError, check_cluster, check_session


@pytest.mark.parametrize("address", ["nonsense", "host:", "host:0", "host:65536", "127.0.0.1:port", "127.0.0.1:²", ""])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(ClusterError, match="host:port"):
        check_cluster(address)


def test_a_dead_address_is_refused_before_ray_is_asked():
    for address in (f"127.0.0.1:{free_port()}", "host..name:6379"):
        with pytest.raises(ClusterError, match=address):
            check_cluster(address)


@pytest.fixture
def plain(monkeypatch):
    """An environment without any setting of Ray."""
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"RAY_ADDRESS": "nonsense"}, "RAY_ADDRESS"),
        ({"RAY_ADDRESS": "127.0.0.1:70000"}, "RAY_ADDRESS"),
        ({"RAY_AUTH_MODE": "tokens"}, "RAY_AUTH_MODE"),
        ({"RAY_AUTH_TOKEN_PATH": "/no/such/token"}, "RAY_AUTH_TOKEN_PATH"),
        ({"RAY_AUTH_TOKEN_PATH": os.devnull}, "RAY_AUTH_TOKEN_PATH"),
        ({"RAY_USE_TLS": "1"}, "RAY_USE_TLS"),
        ({"RAY_USE_TLS": "1", "RAY_TLS_SERVER_CERT": "/no/such.pem"}, "RAY_TLS_CA_CERT"),
    ],
)
def test_an_environment_by_which_ray_cannot_start_is_refused_at_once(plain, settings, named):
    for name, value in settings.items():
        plain.setenv(name, value)
    with pytest.raises(ClusterError, match=named):
        check_session()


def test_certificates_that_ray_could_use_are_taken_and_an_encrypted_key_is_refused(plain, tmp_path):
    paths = {name: str(tmp_path / name) for name in ("cert", "key", "encrypted")}
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    make += ["-days", "2", "-subj", "/CN=a head", "-keyout", paths["key"], "-out", paths["cert"]]
    subprocess.run(make, check=True, capture_output=True)
    encrypt = ["openssl", "pkey", "-in", paths["key"], "-aes256", "-passout", "pass:secret", "-out", paths["encrypted"]]
    subprocess.run(encrypt, check=True, capture_output=True)
    plain.setenv("RAY_USE_TLS", "1")
    plain.setenv("RAY_TLS_CA_CERT", paths["cert"])
    plain.setenv("RAY_TLS_SERVER_CERT", paths["cert"])
    plain.setenv("RAY_TLS_SERVER_KEY", paths["key"])
    check_session("local")
    plain.setenv("RAY_TLS_SERVER_KEY", paths["encrypted"])
    with pytest.raises(ClusterError, match="RAY_USE_TLS"):
        check_session("local")


def test_what_another_setting_overrides_is_not_asked_for(plain):
    plain.setenv("RAY_AUTH_TOKEN_PATH", "/no/such/token")
    plain.setenv("RAY_AUTH_MODE", "disabled")
    check_session()
    plain.setenv("RAY_AUTH_MODE", "token")
    plain.setenv("RAY_AUTH_TOKEN", "0" * 64)
    check_session()
    plain.setenv("RAY_ADDRESS", "nonsense")
    check_session("local")


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
    code = f"from soulsgraph_clusters.sessions.session import check_cluster; check_cluster('{cluster.address}')"
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
    """Copy one of our packages and change a file of it."""
    folder = place / "soulsgraph_envs"
    shutil.copytree(package_folders()["soulsgraph_envs"], folder, ignore=shutil.ignore_patterns("__pycache__"))
    changed = folder / "core" / "errors.py"
    changed.write_text(changed.read_text() + "\n# changed\n")


@pytest.mark.slow
def test_a_job_names_the_code_that_runs_and_refuses_another_copy(cluster, tmp_path):
    show = ["soulsgraph", "check", str(tmp_path / "no-run")]
    job = cluster.job_submit(show)
    assert "no-run" in _error_of(job)
    assert f"{package_folders()['soulsgraph']} runs" in job.logs()
    _changed_copy(tmp_path / "repository" / "envs")
    assert "envs/soulsgraph_envs" in _error_of(cluster.job_submit(show, tmp_path / "repository"))


@pytest.mark.slow
def test_a_cluster_is_joined_by_its_address_and_nodes_with_the_same_packages_are_asked_once(cluster):
    code = (
        "from soulsgraph_clusters.sessions import nodes\n"
        "from soulsgraph_clusters.sessions.session import connect\n"
        f"with connect('{cluster.address}') as session:\n"
        "    assert not session.local\n"
        "    session.check_nodes()\n"
        "    print(len(session.examined), session.resources['game_pc'])\n"
        "    nodes.EXAMINED_WITHIN_S = 0.0\n"
        "    session.check_nodes()"
    )
    answer = _python(cluster, code)
    assert (answer.returncode, answer.stdout.strip()) == (0, "3 2.0"), answer.stderr
    assert "no answer within" not in answer.stderr


def test_versions_on_which_results_depend_are_compared():
    here, there = find_source(), find_source()
    assert not _other_versions(here, there)
    assert {"Python", "numpy", "numba", "torch", "ray"} <= here["versions"].keys()
    there["versions"] |= {"numpy": "1.26.0", "torch": ""}
    assert "numpy 1.26.0" in _other_versions(here, there)
    assert "torch" not in _other_versions(here, there)


_HOLD = """
import time, torch, ray
ray.init()
@ray.remote(num_cpus=1, resources={"game_pc": 1})
class Game:
    def there(self): return True
games = [Game.remote(), Game.remote()]
ray.get([game.there.remote() for game in games])
print("it holds the places", flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_who_holds_the_places_is_named_before_any_work(cluster, tmp_path):
    holder = cluster.job_submit([sys.executable, "-c", _HOLD])
    until(lambda: "it holds the places" in holder.logs(), "a job that holds both places")
    train = ["soulsgraph", "train", "camera", "--scale", "0.01", "--env-runners", "1", "--run"]
    job = cluster.job_submit([*train, str(tmp_path / "run")])
    assert holder.name in _error_of(job)
    cluster.stop_job(holder)
    holder.wait()


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
    assert f"none in {sys.executable} on node" in line
    assert "soulsgraph_envs/core/errors.py" in line
