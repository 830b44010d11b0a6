"""Which skills a fight needs: every skill replaced in every way, paired over seeds, and the shipped fight for it."""

import json
from dataclasses import replace

import pytest

from fakes.runs import pretend_run, pretend_training
from soulsgraph.cli import main
from soulsgraph.results.statistics import WinRate
from soulsgraph.runs.evaluate import Setting, make_agent
from soulsgraph.runs.lineage import adaptation_stages
from soulsgraph.runs.plan import Plan
from soulsgraph.transfer.necessity import NO_SKILL, Necessity, agent_variants, measure_necessity, scripted_variants
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.state import Control
from soulsgraph_envs.skills import SKILL_NAMES

FIGHT = "five-skills"


def _trained(path, seed):
    run = pretend_run(path, Plan(scale=0.01, scenario=FIGHT, seed=seed))
    pretend_training(run, run.plan.stages())
    return run


@pytest.fixture
def runs(tmp_path):
    return {seed: _trained(tmp_path / str(seed), seed) for seed in (0, 1)}


def _row(skill, played, wins, lost):
    return {"skill": skill, "played": played, **WinRate(wins, 100).columns(), "lost_points": lost}


@pytest.mark.slow
def test_every_skill_is_replaced_in_every_way_in_the_same_fights(runs):
    necessity = measure_necessity(runs, FIGHT, 6, 5, display="silent")
    ways = {"agent": ("random", "idle", "untrained"), "reference": ("random", "idle")}
    asked = {
        who: [(NO_SKILL, ""), *((name, way) for name in SKILL_NAMES for way in each)] for who, each in ways.items()
    }
    for who, rows in (
        ("agent", necessity.by_seed[0]),
        ("agent", necessity.by_seed[1]),
        ("reference", necessity.scripted),
    ):
        assert [(row["skill"], row["played"]) for row in rows] == asked[who]
        whole = rows[0]["wins"]
        assert [row["lost_points"] for row in rows] == pytest.approx([100 * (whole - row["wins"]) / 6 for row in rows])
    # Whoever never strikes wins nothing.
    wins = {(row["skill"], row["played"]): row["wins"] for row in necessity.scripted}
    assert wins["heal_attack", "idle"] == 0
    assert wins[NO_SKILL, ""] > 0
    assert measure_necessity(runs, FIGHT, 6, 5, display="silent") == necessity


def test_a_skill_that_cannot_idle_is_not_asked_to_and_one_without_a_script_has_no_reference(runs):
    agent = make_agent(runs[0], Setting(FIGHT, FIGHT))
    *others, last = agent.skills
    busy = tuple(
        action if action.holds | action.presses else replace(action, holds=Control.FORWARD) for action in last.actions
    )
    skills = (*others, replace(last, actions=busy))
    of_last = [played for skill, played in agent_variants(replace(agent, skills=skills), 0) if skill == last.name]
    assert of_last == ["random", "untrained"]
    own = replace(last, name="mine")
    mine = replace(agent, skills=(*others, own), networks={**agent.networks, "mine": agent.networks[last.name]})
    assert scripted_variants(mine) == {}
    assert len(scripted_variants(agent)) == 1 + 2 * len(SKILL_NAMES)


def test_points_are_paired_by_seed():
    by_seed = {
        1: [_row(NO_SKILL, "", 80, 0.0), _row("camera", "random", 30, 50.0)],
        2: [_row(NO_SKILL, "", 60, 0.0), _row("camera", "random", 20, 40.0)],
    }
    whole, camera = Necessity(by_seed, []).over_seeds().rows()
    assert (whole["win_percent"], whole["lost_points"]) == (pytest.approx(70.0), 0.0)
    assert (camera["win_percent"], camera["lost_points"]) == (pytest.approx(25.0), pytest.approx(45.0))
    # t of one degree of freedom: 45 +- 12.706 * 7.0711 / sqrt(2).
    assert (camera["lost_points_low"], camera["lost_points_high"]) == pytest.approx((-18.53, 108.53), abs=0.01)


@pytest.mark.parametrize("several", [False, True])
def test_the_command_reads_runs_alone_and_writes_what_it_prints(runs, tmp_path, monkeypatch, capsys, several):
    folders = [run.path for run in runs.values()][: 2 if several else 1]
    before = {file: file.read_bytes() for folder in folders for file in folder.rglob("*") if file.is_file()}
    words = ["soulsgraph", "necessity", *map(str, folders), "--episodes", "4", "--out", str(tmp_path / "out"), "--json"]
    monkeypatch.setattr("sys.argv", words)
    main()
    printed = json.loads(capsys.readouterr().out)
    written, scripted = (
        json.loads((tmp_path / "out" / f"{name}.json").read_text()) for name in ("necessity", "necessity-scripted")
    )
    assert (written["rows"], written["seeds"], scripted["rows"]) == tuple(
        printed[key] for key in ("rows", "seeds", "scripted")
    )
    assert {row["seed"] for row in printed["seeds"]} == {0, 1} if several else {0}
    assert scripted["commit"] == written["commit"]
    assert {file: file.read_bytes() for folder in folders for file in folder.rglob("*") if file.is_file()} == before


def test_runs_that_would_play_versions_of_different_scenarios_are_refused(runs):
    pretend_training(runs[1], adaptation_stages(runs[1], "vordt", ("dodge",)))
    with pytest.raises(
        SoulsGraphError, match="necessity: expected every seed to play the versions of five-skills as seed 0"
    ):
        measure_necessity(runs, "vordt", 4, display="silent")


@pytest.mark.parametrize("wrong", [("--scenario", "no-such"), ("--start", "no-such"), ("--episodes", "0")])
def test_what_does_not_exist_is_refused_in_one_line(runs, monkeypatch, capsys, wrong):
    monkeypatch.setattr("sys.argv", ["soulsgraph", "necessity", str(runs[0].path), *wrong])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_the_shipped_fight_begins_anywhere_looking_anywhere():
    scenario = load_scenario(FIGHT)
    assert scenario.start == "scattered"
    assert not any(start.facing for start in scenario.starts.values())
