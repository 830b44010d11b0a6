"""Commands on one run whose skills have random weights, on agents of the zoo and on two recorded fights, once each."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from fakes.continual import InventedRun
from fakes.keys import virtual_screen
from fakes.runs import pretend_run
from soulsgraph import zoo
from soulsgraph.api import unseen_moves
from soulsgraph.continual.methods import METHODS
from soulsgraph.pages import run_report
from soulsgraph.recordings.files import read_recording, recording_files
from soulsgraph.recordings.recording import Fighter, record
from soulsgraph.runs.evaluate import Setting, evaluation_seeds
from soulsgraph.runs.lineage import cards_of
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.zoo.card import read_card
from soulsgraph_envs.continual.sequences import sequence_names
from soulsgraph_envs.core.config import shipped_names, to_table
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.games import saves
from soulsgraph_envs.skills import skill_names
from soulsgraph_policies.agents.projects import graph_names
from soulsgraph_policies.learning.hyperparameters import OPTION_NAMES, PRESETS

_ONE = "iudex-phase1-best-0"
_LISTED = {
    "scenarios": shipped_names("scenario"),
    "presets": PRESETS,
    "options": OPTION_NAMES,
    "skills": skill_names(),
    "graphs": graph_names(),
    "sequences": sequence_names(),
    "methods": METHODS,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return pretend_run(tmp_path_factory.mktemp("commands") / "run", Plan(scale=0.01))


@pytest.fixture(scope="module")
def fights(run):
    """Two fights of the oracle and one of the run."""
    folder = run.path.with_name("fights")
    record(Fighter.oracle("iudex-phase1", random=0.2), evaluation_seeds(5, 2), folder)
    record(Fighter.of_run(run, Setting("iudex-phase1", "iudex-phase1")), evaluation_seeds(3, 1), folder / "own")
    return folder


@pytest.fixture
def told(printed):
    """Run a command, and return what it printed for programs."""
    return lambda *words: json.loads(printed(*words, "--json"))


@pytest.mark.parametrize("what", _LISTED)
def test_everything_that_may_be_named_is_listed(printed, told, monkeypatch, what):
    monkeypatch.setenv("COLUMNS", "300")  # wide enough that no name is broken
    found = told("list", what)
    assert [next(iter(row.values())) for row in found] == list(_LISTED[what])
    assert all(isinstance(value, str) and value for row in found for value in row.values())
    for shown in (printed("list", what, "--markdown"), printed("list", what)):
        assert all(name in shown for name in _LISTED[what])


def test_options_are_listed_with_the_papers_values(told):
    defaults = {row["name"]: row["default"] for row in told("list", "options")}
    asked = ("lanes", "steps_per_round", "gamma", "double_q", "observations")
    assert [defaults[name] for name in asked] == ["1", "4", "0.99", "False", "paper"]


def test_a_recorded_fight_becomes_a_page(told, run, fights, tmp_path):
    page, (fight,) = tmp_path / "fight.html", recording_files(fights / "own")
    found = told("watch", fight, "--file", page, "--run", run.path)
    assert (found["ticks"], found["bytes"]) == (len(read_recording(fight)), page.stat().st_size)
    assert found["note"] != told("watch", fight, "--file", page)["note"], "without the run nothing can be searched"


def test_a_run_becomes_a_page_beside_an_agent_of_the_zoo(told, run, tmp_path, monkeypatch):
    monkeypatch.setattr(run_report, "_VIDEO_S", 1.0)
    page = tmp_path / "run.html"
    assert told("report", run.path, "--out", page, "--beside", "vordt-best-0")["bytes"] == page.stat().st_size
    assert "vordt-best-0" in page.read_text(encoding="utf-8")


def test_a_fight_is_watched_beside_the_versions_that_were_asked_for(told, run, tmp_path):
    other, picture = f"{run.path}@camera=v1, movement=v1", tmp_path / "a.png"
    words = ("--scenario", "vordt", "--start", "long", "--random", "dodge", "--seconds", 0.3, "--only-fight")
    fights = told("watch", run.path, *words, "--side-by-side", other, "--file", picture)["fights"]
    assert [fight["agent"] for fight in fights] == ["run", "run@camera=v1,movement=v1"]
    assert {fight["players"]["dodge"] for fight in fights} == {"random"}
    assert len({fight["seed"] for fight in fights}) == 1
    with Image.open(picture) as drawn:
        assert drawn.size == (1280, 360)


#: A person who begins, runs and rolls for a while, then ends the fight; pressed within the process, as no one else is
#: there. The first of two presses may be heard before the window asks for it.
#: What was pressed is let go once the window has heard of it, which a busy machine may be long in doing.
_PERSON = """
import pygame, threading, time
from soulsgraph.cli import main
def person():
    while not (pygame.display.get_init() and pygame.display.get_surface()):
        time.sleep(0.05)
    for key in [pygame.K_RETURN] * 2 + [pygame.K_w, pygame.K_SPACE] * 10:
        for kind in (pygame.KEYDOWN, pygame.KEYUP):
            pygame.event.post(pygame.event.Event(kind, key=key))
            while pygame.display.get_init() and pygame.event.peek(kind, pump=False):
                time.sleep(0.05)
            time.sleep(0.15)
    # The last that this thread asks of a window: the fight ends by it.
    pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=pygame.K_ESCAPE))
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


def test_agents_of_the_zoo_are_listed_shown_and_copied(told, tmp_path):
    listed = told("zoo")
    assert [row["name"] for row in listed] == list(zoo.agent_names())
    for row in listed:
        reached = read_card(zoo.AGENTS / row["name"]).reached
        assert (row["wins"], row["episodes"], row["rate"]) == (reached.wins, reached.episodes, reached.rate)
    assert told("zoo", _ONE) == to_table(read_card(zoo.AGENTS / _ONE))
    for _ in range(2):
        told("zoo", _ONE, "--run", "own")
    assert RunFolder.open(tmp_path / "own").plan == zoo.open_agent(_ONE).plan
    shown = told("zoo", tmp_path / "own")
    assert (shown["run"], shown["graph"]) == (str(tmp_path / "own"), "paper")
    digests = {card.skill: card.digest for card in cards_of(zoo.open_agent(_ONE))}
    assert {row["skill"]: row["digest"] for row in shown["skills"]} == digests


def test_verify_fails_where_an_agent_plays_otherwise(printed, capsys, tmp_path, monkeypatch):
    shutil.copytree(zoo.AGENTS / _ONE, tmp_path / "agents" / _ONE)
    card = tmp_path / "agents" / _ONE / "card.json"
    values = json.loads(card.read_text())
    values["reached"]["won"] = "0" * len(values["reached"]["won"])
    values["digests"]["preset"] = "0" * 64
    card.write_text(json.dumps(values))
    for module in ("soulsgraph.zoo", "soulsgraph.cli.agents", "soulsgraph.zoo.card"):
        monkeypatch.setattr(f"{module}.AGENTS", tmp_path / "agents")
    with pytest.raises(SystemExit) as stop:
        printed("check", "--episodes", 16, "--json")
    assert stop.value.code == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert not row["holds"]
    assert (row["changed"], row["found"]["episodes"]) == (["preset"], 16)


def test_auto_adapts_what_few_decisions_select(told):
    words = ("adapt", _ONE, "--scenario", "vordt", "--budget", 400, "--run", "mine", "--skills")
    run = told(*words, "dodge")
    (card,) = (one for one in run["skills"] if one["version"] == 2)
    assert (card["skill"], card["training"]["steps"]) == ("dodge", 400)
    run = told(*words, "auto")
    again, other = (one for one in run["skills"] if one["version"] == 2)
    assert (again["sha256"], other["skill"]) == (card["sha256"], "heal_attack")
    assert 0 < run["selection_decisions"] <= 8_000


def test_a_command_that_writes_copies_the_agent_first_and_goes_on_with_the_copy(printed, refuse, tmp_path):
    printed("zoo", _ONE, "--run", "mine")
    words = ("evaluate", "--what", "table", "mine", "--episodes", 4)
    printed(*words)
    results = tmp_path / "mine" / "results"
    written = {file: file.stat().st_mtime_ns for file in results.iterdir()}
    assert {file.name for file in written} == {"table.json", "table.parquet", "episodes.parquet"}
    shown = printed(*words)
    assert {file: file.stat().st_mtime_ns for file in results.iterdir()} == written, "what is finished is shown"
    (results / "table.parquet").unlink()
    assert printed(*words).splitlines()[-4:] == shown.splitlines()[-4:]
    assert (results / "table.parquet").is_file()
    assert "zero-shot" in printed("evaluate", "--what", "table", _ONE, "--episodes", 4)
    assert not (zoo.AGENTS / _ONE / "results").exists()
    assert "iudex-phase1-best-1" in refuse("adapt", "iudex-phase1-best-1", "--run", "mine")


def test_evaluations_of_continual_learners_are_scored(told, tmp_path):
    run = InventedRun.draw(("kept", "scratch"), seeds=2, tasks=2).write(tmp_path / "run")
    found = told("report", run / "results" / "evaluations.parquet", "--out", tmp_path / "out")
    assert found["scores"]["methods"] == ["kept", "scratch"]
    kept = json.loads((tmp_path / "out" / "report.json").read_text())
    assert kept["scores"] == found["scores"]["scores"]
    assert "report" not in told("report", run / "results" / "evaluations.parquet")


@pytest.mark.slow
def test_scenarios_are_measured_beside_each_other(told, fights, tmp_path):
    (tmp_path / "boss.toml").write_text('based_on = "iudex-phase1"\nname = "Faster"\n[motion]\nturn_rad_s = 3.0\n')
    (tmp_path / "mine.toml").write_text('based_on = "iudex-phase1"\nname = "mine"\nboss = "boss.toml"\n')
    words = ("report", fights, "--scenario", "iudex-phase1", "--scenario", "mine.toml", "--episodes", 4)
    found = told(*words, "--out", "report")
    assert [one["scenario"] for one in found["scenarios"]] == ["iudex-phase1", "mine.toml"]
    kept = json.loads((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))
    assert kept["scenarios"] == found["scenarios"]
    assert (tmp_path / "report" / "page.html").is_file()


@pytest.mark.slow
def test_fights_become_a_boss_and_a_scenario(told, fights):
    words = ("data", "calibrate", fights, "--boss", "iudex-phase1", "--simulated", "--out", "mine.toml")
    found = told(*words)
    assert found["fights"] == 3
    assert found["counts"]["determined"] > 5
    walk = next(value for value in found["boss"] if value["key"] == "motion.walk_m_s")
    assert walk["shipped"] == 4.2
    assert [Path(path).name for path in found["files"]] == ["mine.toml", "mine-scenario.toml"]
    assert load_scenario(found["files"][1]).player == "knight"
    assert all(0.0 <= one["low"] <= one["won"] <= one["high"] <= 1.0 for one in found["win_rates"])
    rate = told("evaluate", "iudex-phase1-paper-0", "--scenario", "mine-scenario.toml", "--episodes", 2)
    assert "mine-scenario" in json.dumps(rate)


def test_a_save_is_copied_played_with_and_put_back(printed, told, refuse, tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    monkeypatch.setattr(saves, "program_names", dict)
    assert told("game", "saves") == []
    assert "elden-ring" in refuse("game", "saves", "copy", "elden-ring")
    folder = tmp_path / "DarkSoulsIII"
    (folder / "1").mkdir(parents=True)
    save = folder / "1" / "DS30000.sl2"
    save.write_text("mine")
    copied = told("game", "saves", "copy", "dark-souls-3", "--folder", folder, "--out", tmp_path / "saves")["folder"]
    save.write_text("the agent's")
    printed("game", "saves", "restore", "dark-souls-3", copied, "--folder", folder, "--out", tmp_path / "before")
    assert save.read_text() == "mine"
    (before,) = (tmp_path / "before").iterdir()
    assert (before / "1" / "DS30000.sl2").read_text() == "the agent's"


def test_moves_whose_ids_no_move_of_the_trained_fight_has_are_named(tmp_path):
    window = "{ time_s = [0.8, 0.95], reach_m = 2.0, half_arc_rad = 3.2, damage = 110.0 }"
    move = "raw_id = -1\nlength_s = 2.0\ntracks_s = 0.5\ndistance_m = [0.0, 5.0]\nweight = 1.0\n"
    (tmp_path / "boss.toml").write_text(
        'based_on = "iudex-phase1"\nname = "mine"\n[[added.moves]]\n'
        f'id = 97\nname = "Whirl"\ntitle = "whirl"\n{move}windows = [{window}]\n'
    )
    (fight := tmp_path / "fight.toml").write_text('based_on = "iudex-phase1"\nname = "mine"\nboss = "boss.toml"\n')
    assert unseen_moves("iudex-phase1", str(fight)) == ["whirl"]
    assert unseen_moves(str(fight), "iudex-phase1") == []
