"""What a game PC installs: the wheel in an environment of its own, which plays for a gateway of this process."""

import os
import re
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import psutil
import pytest

from soulsgraph_clusters.fleet.gateway.admission import Intake
from soulsgraph_clusters.fleet.gateway.gateway import Gateway
from soulsgraph_clusters.fleet.gateway.journal import Journal
from soulsgraph_clusters.fleet.protocol.security import Tokens, write_token_file
from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetSettings
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_clusters.testing import Program
from soulsgraph_clusters.testing.fleet_here import random_weights
from soulsgraph_envs.skills import SKILL_NAMES
from soulsgraph_envs.testing import until
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")]
ROOT = Path(__file__).parents[4]
#: What only training and its results need.
NOT_THERE = {"torch", "ray", "pandas", "scipy", "matplotlib", "tensorboard", "pyarrow", "soulsgraph"}
MOST_PSS_KIB = 250 * 1024
#: From the start of the command to the first chunk at the head, of which about a second is play.
MOST_CPU_S = 10.0
NUMBERS = DQNHyperparameters(budget=100_000, replay_capacity=10_000)
TASK = StageTask("iudex-phase1", {name: name for name in SKILL_NAMES}, {"dodge": NUMBERS}, 10.0)


def _call(*command):
    # Without the tree on its path, as on a game PC.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    words = [*map(str, command)]
    return subprocess.run(words, capture_output=True, text=True, env=clean, cwd="/", timeout=600, check=False)


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

    def pip(self, *words):
        return _done(self.bin / "python", "-m", "pip", "--disable-pip-version-check", *words)

    def soulsgraph(self, *words):
        return _call(self.bin / "soulsgraph", *words)


@pytest.fixture(scope="module")
def pc(tmp_path_factory):
    """Build the wheel and install it as its page says."""
    folder = tmp_path_factory.mktemp("pc")
    installed = Installed(_wheel(ROOT / "host", folder / "dist"), folder / "venv" / "bin")
    _done(sys.executable, "-m", "venv", installed.bin.parent)
    began_s = time.monotonic()
    installed.pip("install", "--quiet", "-c", ROOT / "constraints.txt", installed.wheel)
    size = sum(file.lstat().st_size for file in installed.bin.parent.rglob("*"))
    print(f"installed in {time.monotonic() - began_s:.0f} s; {size / 2**20:.0f} MiB")
    return installed


class Head:
    """A gateway of this process with one stage, whose weights are drawn; and a PC named attic that may play."""

    def __init__(self, folder):
        self.folder = folder
        tokens = Tokens(folder / "tokens.json")
        write_token_file(folder / "attic.token", tokens.issue("attic"))
        (folder / "games.toml").write_text('[[games]]\ndriver = "simulator"\nspeed = 3.0\n')
        self.journal = Journal(folder / "journal", "dodge")
        settings = FleetSettings(listen="127.0.0.1:0")
        self.gateway = Gateway(Fleet(settings, folder), Intake(self.journal, TASK, 1, settings))
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
    names = {line.split("==")[0].lower() for line in pc.pip("list", "--format", "freeze").split()}
    assert "soulsgraph-host" in names
    assert not names & NOT_THERE
    assert pc.pip("check").strip() == "No broken requirements found."


def test_the_wheel_is_the_trees_for_every_system(pc, tmp_path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert pc.wheel.name == f"soulsgraph_host-{project['version']}-py3-none-any.whl"
    with ZipFile(pc.wheel) as wheel, ZipFile(_wheel(ROOT, tmp_path)) as whole:
        ours, theirs = (
            {name: one.getinfo(name).CRC for name in one.namelist() if ".dist-info/" not in name}
            for one in (wheel, whole)
        )
        agents = {name for name in theirs if name.startswith("soulsgraph/zoo/agents/")}
        assert agents
        assert ours == {name: crc for name, crc in theirs.items() if name not in agents}
        (metadata,) = (wheel.read(name).decode() for name in wheel.namelist() if name.endswith("/METADATA"))
    asked = re.findall(r"^Requires-Dist: ([^;\n]+)$", metadata, re.MULTILINE)
    assert len(asked) > 5
    assert set(asked) <= set(project["dependencies"])


def test_the_commands_of_a_head_are_refused_and_the_pcs_are_there(pc, tmp_path):
    done = pc.soulsgraph("curriculum")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("error: curriculum: expected the distribution soulsgraph, found soulsgraph-host")
    assert pc.soulsgraph("doctor").returncode == 0
    assert [pc.soulsgraph(word, "--spool", tmp_path).returncode for word in ("pause", "resume")] == [0, 0]
    done = pc.soulsgraph("serve-siphon")
    assert done.returncode == 2
    assert "pip install 'soulsgraph-host[siphon]'" in done.stderr


def test_a_check_reaches_the_head_and_plays_nothing(pc, head):
    done = pc.soulsgraph(*head.words, "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "would let this PC play: dodge" in done.stdout
    assert head.journal.end == 0


def test_it_plays_in_little_memory_and_soon_after_its_start(pc, head, hosts):
    first = hosts()  # Compiles what it needs: the compiler's memory is not the game's.
    _played(head, first)
    assert "compiling fights for this processor, once" in first.logs()
    assert _pss_kib(_game(first).pid) <= MOST_PSS_KIB
    first.kill()
    began_s = time.monotonic()
    host = hosts()
    _played(head, host)
    wall_s, game = time.monotonic() - began_s, _game(host)
    cpu_s = _cpu_s(game) + _cpu_s(psutil.Process(host.pid))
    _played(head, host, more=5)
    pss_kib = _pss_kib(game.pid)
    print(f"first chunk after {wall_s:.1f} s and {cpu_s:.1f} s of CPU; {pss_kib / 1024:.0f} MiB PSS")
    assert cpu_s <= MOST_CPU_S
    assert pss_kib <= MOST_PSS_KIB
    records = [record for _, record in head.journal.read(0, 10**6)]
    assert {record.pc for record in records} == {"attic"}
    assert len({record.chunk.boot for record in records if not record.refused}) == 2
    libraries = {Path(line.split()[-1]).name for line in Path(f"/proc/{game.pid}/maps").read_text().splitlines()}
    assert not [name for name in libraries if name.startswith(("libtorch", "_raylet"))]


def test_both_distributions_in_one_environment_are_refused_and_the_remedy_works(pc, tmp_path):
    try:
        pc.pip("install", "--quiet", "--no-deps", _wheel(ROOT, tmp_path))
        done = pc.soulsgraph("doctor")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "expected one distribution in this environment, found soulsgraph" in done.stderr
        remedy = done.stderr.strip().split(": pip ")[1].split()
        pc.pip(remedy[0], "--yes", *remedy[1:])
    finally:
        pc.pip("install", "--quiet", "--no-deps", "--force-reinstall", pc.wheel)
    assert pc.soulsgraph("doctor").returncode == 0
