"""What training calls is compiled once, in two processes, and not again by whoever comes after."""

import os
import signal
import subprocess
import sys

import psutil
import pytest
from rich.console import Console

from fakes.clusters import command_of, over
from fakes.waiting import until
from soulsgraph.runs import workers as module
from soulsgraph.runs.workers import precompile

_LISTENING = """
import sys
from numba.core import event

class Listener(event.Listener):
    def on_start(self, found): print("compiled", found.data["dispatcher"])
    def on_end(self, found): pass

event.register("numba:compile", Listener())
"""
_COMPILED = f"""{_LISTENING}
from soulsgraph.cli import main
sys.argv = ["soulsgraph", "train", "camera", "--run", sys.argv[1], "--preset", "best", "--scale", "0.006", "--json"]
main()
print("torch compiles:", "torch._dynamo" in sys.modules)
"""
_PLAYED = f"""{_LISTENING}
from soulsgraph_clusters.fleet.protocol.task import StageTask
from fakes.fleet_here import random_weights
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.skills import SKILL_NAMES
task = StageTask("iudex-phase1", {{name: name for name in SKILL_NAMES}}, {{}}, 5.0)
sampler = task.sampler(make_game(1), 1)
sampler.set_networks(task.networks(random_weights(task)))
print("played", len(sampler.sample(50).transitions))
"""
_PLAYING = "from rich.console import Console; from soulsgraph.runs.workers import *; precompile(Console(), False)"


def _run(arguments, folder):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_a_game_pc_then_a_run_compile_nothing_after_it(tmp_path):
    cache = tmp_path / "cache"
    first, played = (_run(["-c", code], cache) for code in (_PLAYING, _PLAYED))
    assert first
    assert played == "played 1\n"
    # A run's part is all of that and more; it is compiled on top.
    playing, every = ({call for part in parts for call in part} for parts in (module._PLAYING, module._PARTS))
    assert playing <= every
    assert "100%" in _run(["-m", "soulsgraph.runs.workers"], cache)
    trained = _run(["-c", _COMPILED, str(tmp_path / "run")], cache)
    assert '"skill": "camera"' in trained
    assert "compiled" not in trained
    assert "torch compiles: False" in trained


@pytest.fixture
def stamp(tmp_path, monkeypatch):
    """Compile as if nothing had been; return the file that says what was."""
    monkeypatch.setattr(module, "_stamp", lambda: tmp_path / "stamp")
    return tmp_path / "stamp"


def test_a_process_that_dies_is_no_error_and_leaves_it_to_the_run(stamp, monkeypatch):
    monkeypatch.setattr(module, "_PARTS", ((os.getpid,), (os.abort,)))
    precompile(Console(quiet=True))
    assert not stamp.exists()
    monkeypatch.setattr(module, "_PARTS", ((os.getpid,), (os.getpid,)))
    precompile(Console(quiet=True))
    assert stamp.exists()


def test_it_compiles_again_for_another_processor_and_after_a_change(stamp, monkeypatch, capsys):
    monkeypatch.setattr(module, "_PARTS", ((os.getpid,),))
    for key, compiles in (("one", True), ("one", False), ("two", True)):
        monkeypatch.setattr(module, "_key", lambda key=key: key)
        precompile(Console())
        assert bool(capsys.readouterr().out) == compiles, key
    monkeypatch.undo()
    before = module._key()
    monkeypatch.setattr("numba.config.CPU_NAME", "another")
    assert module._key() != before


def _programs_of(pid):
    """Return a process's children, once they are other programs than the process itself."""
    return [one for one in psutil.Process(pid).children() if "-P" in command_of(one.pid)]


def test_an_interrupt_ends_it_and_leaves_no_process(tmp_path):
    code = (
        "import os, pathlib, signal;"
        "from rich.console import Console; from soulsgraph.runs import workers as module;"
        f"module._stamp = lambda: pathlib.Path({str(tmp_path / 'stamp')!r});"
        "module._PARTS = ((os.getpid, signal.pause),);"
        # A job in the background of a shell ignores it.
        "signal.signal(signal.SIGINT, signal.default_int_handler);"
        "module.precompile(Console())"
    )
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as process:
        # Before it is another program, an interrupt would find it in the middle of its start.
        (other,) = until(lambda: _programs_of(process.pid), "the process that compiles")
        process.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in process.communicate()[1]
    # Whoever inherits it collects it some time.
    until(lambda: over(other), "its end")
    assert not (tmp_path / "stamp").exists()
