"""The core as a user installs it: the wheel without an extra, in an environment of its own, which plays.

It evaluates, and as a game PC's it plays for a gateway of this process; tests/installations.py does more with it.
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

import psutil
import pytest

from fakes.clusters import Program
from fakes.fleet_here import random_weights
from fakes.waiting import until
from soulsgraph.zoo import AGENTS
from soulsgraph_clusters.fleet.gateway.admission import Admission
from soulsgraph_clusters.fleet.gateway.gateway import Gateway
from soulsgraph_clusters.fleet.gateway.journal import Journal
from soulsgraph_clusters.fleet.protocol.security import Tokens, write_token_file
from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetSettings
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_envs.skills import SKILL_NAMES
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters

pytestmark = [pytest.mark.release, pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")]
ROOT = Path(__file__).parents[3]
#: What only training and its results need.
NOT_THERE = {"torch", "ray", "pandas", "scipy", "matplotlib", "tensorboard", "pyarrow", "jinja2", "prometheus-client"}
MOST_PSS_KIB = 250 * 1024
#: From the start of the command to the first chunk at the head, of which about a second is play.
MOST_CPU_S = 10.0
NUMBERS = DQNHyperparameters(budget=100_000, buffer_size=10_000)
TASK = StageTask("iudex-phase1", {name: name for name in SKILL_NAMES}, {"dodge": NUMBERS}, 10.0)


def _call(*command, folder="/"):
    # Without the tree on its path, as on a game PC.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    words = [*map(str, command)]
    return subprocess.run(words, capture_output=True, text=True, env=clean, cwd=folder, timeout=600, check=False)


def _done(*command):
    done = _call(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _wheel(project, folder):
    _done(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, project)
    (wheel,) = folder.glob("*.whl")
    return wheel


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
    wheel, bin = _wheel(ROOT, folder / "dist"), folder / "venv" / "bin"
    _done(sys.executable, "-m", "venv", bin.parent)
    _done(bin / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel)
    return Installed(wheel, bin)


class Head:
    """A gateway of this process with one stage, whose weights are drawn; and a PC named attic that may play."""

    def __init__(self, folder):
        self.folder = folder
        tokens = Tokens(folder / "tokens.json")
        write_token_file(folder / "attic.token", tokens.issue("attic"))
        (folder / "games.toml").write_text('[[games]]\ndriver = "simulator"\nspeed = 3.0\n')
        self.journal = Journal(folder / "journal", "dodge")
        settings = FleetSettings(listen="127.0.0.1:0")
        self.gateway = Gateway(Fleet(settings, folder), Admission(self.journal, TASK, 1, settings))
        self.gateway.publish(1, random_weights(TASK), {"dodge": 0})

    @property
    def words(self):
        """The options of a host that plays for it."""
        files = ("--token-file", self.folder / "attic.token", "--games", self.folder / "games.toml")
        return ("host", "--head", f"127.0.0.1:{self.gateway.port}", *files, "--spool", self.folder / "spool")

    def close(self):
        self.gateway.stop("the stage is over")
        self.journal.close()


@pytest.fixture
def head(tmp_path):
    head = Head(tmp_path)
    yield head
    head.close()


@pytest.fixture
def hosts(pc, head):
    """Start hosts in the PC's environment; whatever still runs is killed at the end."""
    programs = []

    def start():
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        command = [str(pc.bin / "soulsgraph"), *map(str, head.words)]
        programs.append(Program(f"host-{len(programs)}", command, clean, head.folder))
        return programs[-1]

    yield start
    for program in programs:
        program.kill()


def _played(head, host, more=1):
    before = head.journal.end
    until(lambda: head.journal.end >= before + more or not host.running, "chunks in the journal")
    assert host.running, host.logs()


def _game(host):
    """Return the process of the host's game, which is a child of the command."""
    for pid in host.pids:
        process = psutil.Process(pid)
        if "soulsgraph_clusters.fleet.actor.host" in process.cmdline():
            return process
    raise AssertionError(host.logs())


def _pss_kib(pid):
    found = re.search(r"^Pss:\s+(\d+) kB$", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    assert found
    return int(found[1])


def _cpu_s(process):
    return sum(process.cpu_times()[:2])


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


def test_what_needs_an_extra_names_it_in_one_line_and_begins_nothing(pc, tmp_path):
    agent = "iudex-phase1-best-0"
    refused = {
        "train": ("curriculum", f"adapt {agent} --run new", "zoo verify", f"evaluate {agent} --fleet fleet.toml"),
        "data": (f"evaluate {agent} --out new", "play --record new", f"data record {agent} --out o"),
        "watch": ("play",),
        "siphon": ("serve-siphon",),
        "onnx": (f"export {agent} --onnx --out new",),
    }
    for extra, lines in refused.items():
        for line in lines:
            done = pc.soulsgraph(*line.split(), folder=tmp_path)
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
            assert f"'soulsgraph[{extra}]'" in done.stderr
    assert not [*tmp_path.iterdir()]


def test_it_plays_in_little_memory_and_soon_after_its_start(pc, head, hosts):
    assert pc.soulsgraph(*head.words, "--check").returncode == 0
    assert head.journal.end == 0
    first = hosts()  # Compiles what it needs: the compiler's memory is not the game's.
    _played(head, first)
    first.kill()
    host = hosts()
    _played(head, host)
    game = _game(host)
    assert _cpu_s(game) + _cpu_s(psutil.Process(host.pid)) <= MOST_CPU_S
    assert _pss_kib(game.pid) <= MOST_PSS_KIB
    records = [record for _, record in head.journal.read(0, 10**6)]
    assert {record.pc for record in records} == {"attic"}
    assert len({record.chunk.boot for record in records if not record.refused}) == 2
    libraries = {Path(line.split()[-1]).name for line in Path(f"/proc/{game.pid}/maps").read_text().splitlines()}
    assert not [name for name in libraries if name.startswith(("libtorch", "_raylet"))]
