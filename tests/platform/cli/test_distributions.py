"""Two distributions hold this code; an environment has one of them, and that one says which commands it has."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from soulsgraph.cli import check_distribution
from soulsgraph.cli.front import COMMANDS, HOST_COMMANDS
from soulsgraph.zoo import AGENTS, agent_names
from soulsgraph_envs.core.distribution import HOST, WHOLE, installed, is_host, pip_install
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.testing import PATIENCE_S

ROOT = Path(__file__).parents[3]
#: What a game PC does not have: Windows lacks the last three.
ABSENT = ("torch", "ray", "pandas", "scipy", "matplotlib", "pyarrow", "tensorboard", "fcntl", "termios", "resource")
#: The commands of a game PC, the process of a game, and what both open.
PLAYING = (
    *("soulsgraph.cli", "soulsgraph.cli.host", "soulsgraph.cli.doctor", "soulsgraph.cli.games"),
    *(
        "soulsgraph_clusters.fleet.actor.host",
        "soulsgraph_clusters.fleet.actor.game_client",
        "soulsgraph_clusters.fleet.actor.spool",
    ),
    *("soulsgraph_envs.games.doctor.examination", "soulsgraph_envs.games.realtime.game"),
    *("soulsgraph_envs.games.memory.link", "soulsgraph_envs.games.siphon.link"),
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


def _wheel(tree, out):
    """Build the wheel of a tree into a folder, and return its path."""
    pytest.importorskip("hatchling", reason="builds the wheels; an extra of development")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(build, cwd=tree, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.mark.slow
def test_the_wheel_has_the_agents_of_the_zoo_and_that_of_a_game_pc_has_all_but_them(tmp_path):
    files = []
    for folder in (ROOT, ROOT / "host"):
        names = zipfile.ZipFile(_wheel(folder, tmp_path / folder.name)).namelist()
        files.append({name for name in names if ".dist-info/" not in name})
    whole, host = files
    agents = {f"soulsgraph/zoo/agents/{file.relative_to(AGENTS).as_posix()}" for file in AGENTS.rglob("*.*")}
    assert len(agents) > 21 * 4
    assert whole - host == agents
    assert host <= whole


@pytest.fixture
def run_installed(tmp_path):
    """Install the wheel with its extras in an environment of its own; return what runs a command of it in a folder.

    What the wheel asks for is not downloaded but found beside the tests, by a path that leaves out the tree.
    """
    made, wheel = tmp_path / "environment", _wheel(ROOT, tmp_path / "dist")
    # Whatever of Python's settings these tests run with, a user's shell has none.
    shell = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NUMBA_", "VIRTUAL_"))}
    venv.create(made, with_pip=True, symlinks=True)

    def run(program, *words, folder=tmp_path):
        command = [made / "bin" / program, *words]
        done = subprocess.run(
            command, cwd=folder, env=shell, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    (packages,) = made.glob("lib/python*/site-packages")
    # The lines of .pth files that lie there are not followed, and so not that of the tree.
    (packages / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
    # What comes with a new environment hides what lies beside it, of the version that the constraints want.
    run("python", "-m", "pip", "uninstall", "-y", "setuptools")
    install = ("-m", "pip", "install", "--no-index", "-c", ROOT / "constraints.txt")
    run("python", *install, "--no-deps", "--ignore-installed", wheel)
    run("python", *install, "soulsgraph[watch,video]")
    code = run(
        "python", "-c", "import soulsgraph, soulsgraph_envs; print(soulsgraph.__file__, soulsgraph_envs.__file__)"
    )
    assert [Path(file).parent.parent for file in code.split()] == [packages] * 2
    return run


@pytest.mark.slow
def test_the_installed_wheel_shows_an_agent_fight_in_an_empty_folder(run_installed, tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    listed = run_installed("soulsgraph", "zoo", "list", folder=folder)
    assert all(name in listed for name in agent_names())
    words = ("watch", "iudex-phase1-best-0", "--only-fight", "--gif", "fight.gif")
    run_installed("soulsgraph", *words, folder=folder)
    assert [file.name for file in folder.iterdir()] == ["fight.gif"]
    with Image.open(folder / "fight.gif") as shown:
        assert shown.size == (640, 360)
        assert shown.n_frames > 50
