"""Two distributions hold this code; an environment has one of them, and that one says which commands it has."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from soulsgraph.cli import COMMANDS, HOST_COMMANDS, check_distribution
from soulsgraph.zoo import AGENTS
from soulsgraph_envs.core.distribution import HOST, WHOLE, installed, is_host, pip_install
from soulsgraph_envs.core.errors import SoulsGraphError

#: What a game PC does not have: Windows lacks the last three.
ABSENT = ("torch", "ray", "pandas", "scipy", "matplotlib", "pyarrow", "tensorboard", "fcntl", "termios", "resource")
#: The commands of a game PC, the process of a game, and what both open.
PLAYING = (
    *("soulsgraph.cli", "soulsgraph.cli.host", "soulsgraph.cli.doctor", "soulsgraph.cli.games"),
    *(
        "soulsgraph_clusters.fleet.pc.host",
        "soulsgraph_clusters.fleet.pc.game_client",
        "soulsgraph_clusters.fleet.pc.spool",
    ),
    *("soulsgraph_envs.drivers.doctor.examination", "soulsgraph_envs.drivers.realtime.game"),
    *("soulsgraph_envs.drivers.memory.link", "soulsgraph_envs.drivers.siphon.link"),
)
_WITHOUT = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
for name in {ABSENT}:
    sys.modules.pop(name, None)
from importlib import import_module
for name in {PLAYING}:
    import_module(name)
print(sorted(set({ABSENT}) & set(sys.modules)))
"""


@pytest.fixture
def place(tmp_path):
    """Install distributions, by name and version, into a folder; return it as a path of Python's."""

    def install(**versions):
        for name, version in versions.items():
            folder = tmp_path / f"{name}-{version}.dist-info"
            folder.mkdir()
            text = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
            (folder / "METADATA").write_text(text)
        return [str(tmp_path)]

    return install


def test_a_game_pc_imports_nothing_that_only_training_or_only_linux_has():
    done = subprocess.run([sys.executable, "-c", _WITHOUT], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_the_two_distributions_are_told_apart(place):
    path = place(soulsgraph_host="1.2")
    assert installed(path) == {HOST: "1.2"}
    assert is_host(path)
    assert installed([]) == {}
    assert not is_host([])
    assert not is_host(place(soulsgraph="1.2"))


def test_this_tree_is_the_whole():
    assert list(installed()) == [WHOLE]
    assert pip_install("siphon") == "pip install 'soulsgraph[siphon]'"


def test_a_game_pc_refuses_what_only_the_whole_has(place):
    path = place(soulsgraph_host="1.2")
    for command in (*HOST_COMMANDS, "serve_siphon", "", "nonsense"):
        check_distribution(command, path)
    for command in COMMANDS.keys() - HOST_COMMANDS:
        with pytest.raises(SoulsGraphError, match=f"^{command}: expected the distribution soulsgraph, found soulsgr"):
            check_distribution(command, path)


def test_the_whole_has_every_command(place):
    path = place(soulsgraph="1.2")
    for command in COMMANDS:
        check_distribution(command, path)


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_both_in_one_environment_are_refused_whatever_their_versions(place, version):
    path = place(soulsgraph="1.2", soulsgraph_host=version)
    with pytest.raises(SoulsGraphError, match=r"Uninstall both, .*: pip uninstall soulsgraph soulsgraph-host$") as both:
        check_distribution("host", path)
    assert f"soulsgraph 1.2 and soulsgraph-host {version}" in str(both.value)


@pytest.mark.slow
def test_the_wheel_has_the_agents_of_the_zoo_and_that_of_a_game_pc_has_all_but_them(tmp_path):
    pytest.importorskip("hatchling", reason="builds the wheels; an extra of development")
    root, files = Path(__file__).parents[3], []
    for folder in (root, root / "host"):
        out = tmp_path / folder.name
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
        subprocess.run(build, cwd=folder, capture_output=True, text=True, timeout=600, check=True)
        (wheel,) = out.glob("*.whl")
        names = zipfile.ZipFile(wheel).namelist()
        files.append({name for name in names if ".dist-info/" not in name})
    whole, host = files
    agents = {f"soulsgraph/zoo/agents/{file.relative_to(AGENTS).as_posix()}" for file in AGENTS.rglob("*.*")}
    assert len(agents) > 21 * 4
    assert whole - host == agents
    assert host <= whole
