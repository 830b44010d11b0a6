"""The core as a user installs it: the wheel without an extra, in an environment of its own, which evaluates.

tests/installations.py does more with it.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest

from soulsgraph.zoo import AGENTS

pytestmark = pytest.mark.release
ROOT = Path(__file__).parents[3]
#: What only training and its results need.
NOT_THERE = {"torch", "ray", "pandas", "scipy", "matplotlib", "tensorboard", "pyarrow", "jinja2", "prometheus-client"}


def _call(*command, folder="/"):
    # Without the tree on its path, as on a game PC.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    words = [*map(str, command)]
    return subprocess.run(words, capture_output=True, text=True, env=clean, cwd=folder, timeout=600, check=False)


def _done(*command):
    done = _call(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel."""

    wheel: Path
    bin: Path

    def soulsgraph(self, *words, folder="/"):
        return _call(self.bin / "soulsgraph", *words, folder=folder)


@pytest.fixture(scope="module")
def pc(tmp_path_factory):
    """Build the wheel and install it as its page says."""
    folder = tmp_path_factory.mktemp("pc")
    bin = folder / "venv" / "bin"
    _done(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    _done(sys.executable, "-m", "venv", bin.parent)
    _done(bin / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel)
    return Installed(wheel, bin)


def test_the_environment_has_nothing_that_only_training_needs(pc):
    pip = (pc.bin / "python", "-m", "pip")
    names = {line.split("==")[0].lower() for line in _done(*pip, "list", "--format", "freeze").split()}
    assert "soulsgraph" in names
    assert not names & NOT_THERE
    _done(*pip, "check")


def test_the_wheel_is_for_every_system_and_has_the_agents_of_the_zoo(pc):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert pc.wheel.name == f"soulsgraph-{project['version']}-py3-none-any.whl"
    agents = {f"soulsgraph/zoo/agents/{file.relative_to(AGENTS).as_posix()}" for file in AGENTS.rglob("*.*")}
    assert agents
    with ZipFile(pc.wheel) as wheel:
        names = {*wheel.namelist()}
        (metadata,) = (wheel.read(name).decode() for name in names if name.endswith("/METADATA"))
    assert agents <= names
    assert {name.partition("/")[0] for name in names} == {
        *("soulsgraph", "soulsgraph_clusters", "soulsgraph_policies", "soulsgraph_envs"),
        f"soulsgraph-{project['version']}.dist-info",
    }
    asked = re.findall(r"^Requires-Dist: ([^;\n]+)$", metadata, re.MULTILINE)
    assert {*asked} == {*project["dependencies"]}


def test_it_evaluates_as_the_whole_does(pc):
    words = ("evaluate", "iudex-phase1-best-0", "--episodes", "20", "--json")
    found = json.loads(pc.soulsgraph(*words).stdout)
    whole = json.loads(_call(Path(sys.executable).with_name("soulsgraph"), *words).stdout)
    figures = ("wins", "episodes", "low", "high", "mean_return", "mean_length", "mean_seconds")
    assert {name: found[name] for name in figures} == {name: whole[name] for name in figures}
