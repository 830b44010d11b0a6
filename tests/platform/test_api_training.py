"""Training by the Python interface wherever Python runs: a script, a thread, processes, an event loop, a notebook."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import soulsgraph as sg
from fakes.trackers import KeptCalls
from fakes.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow
#: So many decisions that all skills learn: 120 of the camera, 540 of the last one.
_SCALE = 0.006


def _script(folder: Path, text: str, *words: str) -> subprocess.Popen[str]:
    (folder / "script.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "script.py", *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _printed(script: subprocess.Popen[str]) -> str:
    out, errors = script.communicate(timeout=3 * PATIENCE_S)
    assert script.returncode == 0, errors
    assert errors == ""
    return out


def test_a_script_without_a_main_guard_trains_evaluates_and_adapts(tmp_path: Path) -> None:
    text = """
import soulsgraph as sg
run = sg.train(seed=1, run="runs/curriculum", scale=0.02)
print(run.evaluate(episodes=4).win_rate, len(run.training()) > 5, len(run.curves()) > 0)
adapted = run.adapt("vordt", "dodge", budget=400)
print(adapted.skills["dodge"].version, adapted.agent("vordt").skills["dodge"].version)
before = run.folder.library.versions("camera")
again = sg.train(seed=1, run="runs/curriculum", scale=0.02)
print(again.folder.library.versions("camera") == before, again.skills["camera"].version)
"""
    out = _printed(_script(tmp_path, text))
    for line in ("0.0 True True", "1 2", "True 1"):
        assert f"\n{line}\n" in out


def test_threads_event_loops_and_spawned_processes_train_the_weights_that_a_script_does(tmp_path: Path) -> None:
    text = f"""
import asyncio, multiprocessing, threading
import soulsgraph as sg

def trained(name):
    return sg.train(run=name, scale={_SCALE}, quiet=True).folder.library.card("heal_attack", 1).sha256

async def loop():
    return trained("loop")

if __name__ == "__main__":  # The processes import this file.
    digests = [trained("main")]
    thread = threading.Thread(target=lambda: digests.append(trained("thread")))
    thread.start(); thread.join()
    digests.append(asyncio.run(loop()))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        digests += pool.map(trained, ["process"])
    print(len(set(digests)), len(digests))
"""
    assert _printed(_script(tmp_path, text)) == "1 4\n"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signal for one process alone")
def test_an_interrupted_training_goes_on_with_the_same_call(tmp_path: Path) -> None:
    text = """
import soulsgraph as sg
try:
    sg.train(run="run", scale=3.0)
except sg.SoulsGraphError as stop:
    print(stop)
"""
    reached = [0]
    for _ in range(2):
        script = _script(tmp_path, text)
        until(lambda: max(_steps(tmp_path / "run" / "curves")) > reached[-1], "decisions learned from")
        os.kill(script.pid, signal.SIGINT)
        (stopped,) = re.findall(r"after (\d+) of 60000", _printed(script).splitlines()[-1])
        assert int(stopped) in _steps(tmp_path / "run" / "checkpoints")
        reached.append(int(stopped))
    # Every decision was learned from once.
    steps = sg.open(tmp_path / "run").training()["step"]
    assert steps.is_monotonic_increasing
    assert steps.is_unique
    assert 0 < reached[1] < reached[2] == steps.max()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signal for one process alone")
@pytest.mark.parametrize(
    ("call", "module"), [("train(preset='best'", "numba.core"), ("sweep({'gamma': [0.98]}, seeds=1", "torch.nn")]
)
def test_a_stop_during_imports_leaves_a_process_that_can_train(tmp_path: Path, call: str, module: str) -> None:
    text = f"""
import os, signal, sys, threading, time
import soulsgraph as sg

def stop():
    while "{module}" not in sys.modules:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)

if __name__ == "__main__":
    threading.Thread(target=stop).start()
    try:
        sg.{call}, run="run", scale={_SCALE}, quiet=True)
    except sg.SoulsGraphError as error:
        import numba.core.types, torch
        print(type(error).__name__, torch.ones(3).sum().item())
"""
    assert _printed(_script(tmp_path, text)) == "Interruption 3.0\n"


def _steps(folder: Path) -> list[int]:
    return [0, *(int(path.stem.removeprefix("step-")) for path in folder.glob("camera-*/step-*"))]


def test_a_notebook_shows_bars_tables_and_fights(tmp_path: Path) -> None:
    cells = [
        "import soulsgraph as sg",
        f"run = sg.train(run='run', scale={_SCALE})\nrun",
        "run.evaluate(episodes=4)",
        "run.watch(seconds=0.3)",
        "run.replay()",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    options = {"timeout": 3 * int(PATIENCE_S), "startup_timeout": int(PATIENCE_S)}
    NotebookClient(notebook, resources={"metadata": {"path": str(tmp_path)}}, **options).execute()
    shown = [[one.get("data", {}).get("text/html", "") for one in cell.outputs] for cell in notebook.cells]
    bars = [html for html in shown[1] if "<progress" in html]
    # The last stage, the table, and each skill in turn at random beside the whole agent.
    for bar, total in zip(bars[-3:], (540, 2400, 6 * 200), strict=True):
        assert f'<progress value="{total}" max="{total}"' in bar
    assert len(bars) == 7
    for cell, part in zip(shown[3:], ("data:image/gif;base64,", "<iframe srcdoc="), strict=True):
        assert part in cell[-1]
    texts = [[one.get("data", {}).get("text/plain", "") for one in cell.outputs] for cell in notebook.cells]
    assert "dodge" in texts[1][-1]
    assert "/4 " in texts[2][-1]
    assert not [one for cell in notebook.cells for one in cell.outputs if one.get("name") == "stderr"]


def test_a_training_is_tracked_by_names_and_by_an_object(tmp_path: Path) -> None:
    kept, folder = KeptCalls(local=False), tmp_path / "run"
    run = sg.train(track=["tensorboard", kept], run=folder, scale=_SCALE, quiet=True)
    assert ([one.folder for one in kept.runs], kept.ended) == ([folder], [True])
    assert {group for group, *_ in kept.logged} == set(run.plan.skill_graph.order)
    assert kept.files == ["fight.gif", "report.html"]
    assert list(folder.rglob("events.out.tfevents.*"))
    run.adapt("vordt", "dodge", budget=400, quiet=True, track=kept)
    assert kept.ended == [True, True]
    assert kept.files == ["fight.gif", "report.html"] * 2
    sg.train(track="none", run=tmp_path / "silent", scale=_SCALE, quiet=True)
    assert not list((tmp_path / "silent").rglob("events.out.tfevents.*"))
