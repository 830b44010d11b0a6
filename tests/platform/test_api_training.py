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
#: 200 decisions of a skill and more: all of them learn.
_SCALE = 0.02


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
    text = f"""
import soulsgraph as sg
run = sg.train("best", seed=1, run="runs/first", scale={_SCALE})
print(run.evaluate(episodes=8).win_rate, len(run.training()) > 5, len(run.curves()) > 0)
adapted = run.adapt("vordt", "dodge")
print(adapted.skills["dodge"].version, adapted.agent("vordt").skills["dodge"].version)
print(sg.train("best", seed=1, run="runs/first", scale={_SCALE}))
"""
    out = _printed(_script(tmp_path, text))
    assert "True True" in out
    assert "\n1 2\n" in out
    assert "dodge: already trained, v1" in out
    assert out.splitlines()[-5] == "  camera: v1, 400 decisions in iudex-phase1"


def test_threads_and_an_event_loop_train_the_weights_that_a_script_does(tmp_path: Path) -> None:
    text = f"""
import asyncio, threading
import soulsgraph as sg

def trained(name):
    return sg.train("best", run=name, scale={_SCALE}, quiet=True).folder.library.card("heal_attack", 1).sha256

digests = [trained("main")]
thread = threading.Thread(target=lambda: digests.append(trained("thread")))
thread.start(); thread.join()

async def loop():
    return trained("loop")

digests.append(asyncio.run(loop()))
print(len(set(digests)), len(digests))
"""
    assert _printed(_script(tmp_path, text)) == "1 3\n"


def test_processes_that_are_spawned_train(tmp_path: Path) -> None:
    text = f"""
import multiprocessing
import soulsgraph as sg

def trained(seed):
    return repr(sg.train("best", seed=seed, run=f"runs/{{seed}}", scale={_SCALE}, quiet=True)).splitlines()[-1]

if __name__ == "__main__":  # The processes import this file.
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(*set(pool.map(trained, (1, 2))))
"""
    assert _printed(_script(tmp_path, text)) == "  heal_attack: v1, 1,800 decisions in iudex-phase1\n"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signal for one process alone")
def test_an_interrupted_training_goes_on_with_the_same_call(tmp_path: Path) -> None:
    text = """
import sys
import soulsgraph as sg
try:
    sg.train("best", run="run", scale=float(sys.argv[1]))
except sg.SoulsGraphError as stop:
    print(stop)
"""
    script = _script(tmp_path, text, "1.0")
    until(lambda: list(tmp_path.glob("run/curves/camera/step-*")), "decisions that were learned from")
    os.kill(script.pid, signal.SIGINT)
    last = _printed(script).splitlines()[-1]
    stopped = re.fullmatch(r"stopped in stage camera after (\d+) of 20000 steps; the same call resumes it", last)
    assert stopped
    kept = list(tmp_path.glob("run/checkpoints/camera/step-*"))
    assert int(stopped[1]) in [int(path.name.removeprefix("step-")) for path in kept]
    assert "not trained yet" in repr(sg.open(tmp_path / "run"))


def test_a_notebook_shows_bars_tables_and_fights(tmp_path: Path) -> None:
    cells = [
        "import soulsgraph as sg",
        f"run = sg.train('best', run='run', scale={_SCALE})\nrun",
        "run.evaluate(episodes=8)",
        "run.watch(seconds=1)",
        "run.replay()",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    options = {"timeout": 3 * int(PATIENCE_S), "startup_timeout": int(PATIENCE_S)}
    NotebookClient(notebook, resources={"metadata": {"path": str(tmp_path)}}, **options).execute()
    shown = [[one.get("data", {}).get("text/html", "") for one in cell.outputs] for cell in notebook.cells]
    bars = [html for html in shown[1] if "<progress" in html]
    assert re.search(r'^<div>heal_attack <progress value="1800" max="1800"', bars[-1])
    assert len(bars) == 5
    assert "<li>dodge: v1, 1,600 decisions" in shown[1][-1]
    assert "/8</td>" in shown[2][-1]
    assert '<img src="data:image/gif;base64,' in shown[3][-1]
    assert "<iframe srcdoc=" in shown[4][-1]
    assert not [one for cell in notebook.cells for one in cell.outputs if one.get("name") == "stderr"]


def test_a_training_is_tracked_by_names_and_by_an_object(tmp_path: Path) -> None:
    kept, folder = KeptCalls(local=False), tmp_path / "run"
    options = {"run": folder, "scale": _SCALE, "quiet": True}
    run = sg.train("best", track=["tensorboard", kept], **options)
    assert ([one.folder for one in kept.runs], kept.ended) == ([folder], [True])
    assert {group for group, *_ in kept.logged} == set(run.plan.skill_graph.order)
    assert kept.files == ["fight.gif", "report.html"]
    boards = sorted(path.name for path in folder.rglob("events.out.tfevents.*"))
    assert boards
    run.adapt("vordt", "dodge", budget=400, quiet=True, track=kept)
    assert kept.ended == [True, True]
    assert kept.files == ["fight.gif", "report.html"] * 2
    with pytest.raises(sg.SoulsGraphError, match="track: expected names of trackers"):
        sg.train("best", track=3, **options)
    with pytest.raises(sg.SoulsGraphError, match="nowhere"):
        sg.train("best", track="nowhere", run=tmp_path / "other")
    assert not (tmp_path / "other").exists()
    sg.train("best", track="none", run=tmp_path / "silent", scale=_SCALE, quiet=True)
    assert not list((tmp_path / "silent").rglob("events.out.tfevents.*"))


def test_auto_adapts_what_few_decisions_in_the_new_fight_select(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run = sg.load("iudex-phase1-best-0")
    adapted = run.adapt("vordt", "auto", budget=400, run=tmp_path / "copy")
    assert "adapt: dodge, heal_attack" in capsys.readouterr().out
    versions = {name: skill.version for name, skill in adapted.agent("vordt").skills.items()}
    assert versions == {"camera": 1, "lock_on": 1, "movement": 1, "dodge": 2, "heal_attack": 2}
