"""`soulsgraph play`, `replay` and `report --html`: a window on a virtual screen, pages, refusals in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from fakes.keys import virtual_screen
from fakes.runs import pretend_run
from soulsgraph.cli import main
from soulsgraph.pages import run_report
from soulsgraph.recordings.files import read_recording, recording_files
from soulsgraph.recordings.recording import Fighter, record
from soulsgraph.runs.evaluate import Setting, evaluation_seeds
from soulsgraph.runs.plan import Plan


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return pretend_run(tmp_path_factory.mktemp("pages") / "run", Plan(scale=0.01))


@pytest.fixture(scope="module")
def fight(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fights")
    record(Fighter.of_run(run, Setting("iudex-phase1", "iudex-phase1")), evaluation_seeds(3, 1), folder)
    return recording_files(folder)[0]


@pytest.fixture
def printed(monkeypatch, capsys):
    """Run a command and return what it printed as JSON."""

    def ran(*words):
        monkeypatch.setattr("sys.argv", ["soulsgraph", *map(str, words), "--json"])
        main()
        return json.loads(capsys.readouterr().out)

    return ran


def test_a_fight_becomes_a_page(printed, run, fight, tmp_path):
    page = tmp_path / "fight.html"
    found = printed("replay", fight, "--html", page, "--run", run.path)
    assert (found["ticks"], found["bytes"]) == (len(read_recording(fight)), page.stat().st_size)
    assert found["note"]
    assert "not at hand" in printed("replay", fight, "--html", page)["note"]


def test_a_run_and_an_agent_of_the_zoo_become_a_page(printed, run, tmp_path, monkeypatch):
    monkeypatch.setattr(run_report, "_VIDEO_S", 2.0)
    page = tmp_path / "run.html"
    found = printed("report", run.path, "--html", page, "--beside", "vordt-best-0")
    assert found["bytes"] == page.stat().st_size < 10_000_000
    assert "vordt-best-0" in page.read_text(encoding="utf-8")


#: A person who runs and rolls for a while, then ends the fight; pressed within the process, as no one else is there.
#: What was pressed is let go once the window has heard of it, which a busy machine may be long in doing.
_PERSON = """
import pygame, threading, time
from soulsgraph.cli import main
def person():
    while not (pygame.display.get_init() and pygame.display.get_surface()):
        time.sleep(0.05)
    for key in [pygame.K_w, pygame.K_SPACE] * 10 + [pygame.K_ESCAPE]:
        for kind in (pygame.KEYDOWN, pygame.KEYUP):
            pygame.event.post(pygame.event.Event(kind, key=key))
            while pygame.display.get_init() and pygame.event.peek(kind, pump=False):
                time.sleep(0.05)
            time.sleep(0.15)
threading.Thread(target=person, daemon=True).start()
main()
"""


@pytest.mark.slow
def test_a_person_plays_on_a_screen_and_the_fight_is_recorded(tmp_path):
    with virtual_screen() as display:
        environment = {**os.environ, "DISPLAY": display, "SDL_VIDEODRIVER": "x11", "SDL_AUDIODRIVER": "dummy"}
        options = ["play", "--seed", "4", "--record", str(tmp_path / "mine"), "--player", "someone", "--json"]
        command = [sys.executable, "-P", "-c", _PERSON, *options]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    (fight,) = json.loads(ran.stdout)["fights"]
    recorded = read_recording(recording_files(tmp_path / "mine")[0])
    assert fight["recorded"] == str(recorded.path)
    assert (recorded.header.player, recorded.header.result.outcome) == ("someone", fight["outcome"])
    assert recorded.column("control/forward").any()
    assert recorded.column("control/roll").any()


def test_what_cannot_be_shown_is_refused_in_one_line(refuse, run, fight, tmp_path, monkeypatch):
    page = tmp_path / "page.html"
    (tmp_path / "broken.parquet").write_bytes(fight.read_bytes()[:-100])
    assert "damaged" in refuse("replay", tmp_path / "broken.parquet", "--html", page)
    assert "no such file" in refuse("replay", tmp_path / "none.parquet", "--html", page)
    assert "--html" in refuse("report", run.path, "--beside", run.path)
    assert "leave them out" in refuse("report", run.path, "--html", page, "--out", tmp_path)
    assert "--beside" in refuse("report", run.path, run.path, "--html", page)
    assert "no such folder" in refuse("report", tmp_path / "none", "--html", page)
    assert "one of --scenario and --boss" in refuse("play", "--scenario", "vordt", "--boss", "vordt")
    assert "vordt" in refuse("play", "--boss", "vord")
    assert "unknown start" in refuse("play", "--start", "near")
    assert "expected" in refuse("play", "--keys", tmp_path / "none.toml")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setenv("SDL_VIDEODRIVER", "x11")
    assert "display" in refuse("play")
    monkeypatch.setitem(sys.modules, "pygame", None)
    assert "[watch]" in refuse("play")
    assert [file.name for file in tmp_path.iterdir()] == ["broken.parquet"]
