"""Which skills a fight needs: every skill replaced in every way, paired over seeds, and the shipped fight for it."""

import json

import pytest

from fakes.runs import pretend_run, pretend_training
from soulsgraph.cli import main
from soulsgraph.results.statistics import WinRate
from soulsgraph.runs.evaluate import Setting
from soulsgraph.runs.plan import Plan
from soulsgraph.transfer.necessity import NO_SKILL, STANDS, Necessity, measure_necessity, necessity_over_seeds
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.skills import SKILL_NAMES

FIGHT = "five-skills"


@pytest.fixture
def run(tmp_path):
    run = pretend_run(tmp_path / "run", Plan(scale=0.01, scenario=FIGHT))
    pretend_training(run, run.plan.stages())
    return run


def _row(skill, played, wins, lost):
    return {"skill": skill, "played": played, **WinRate(wins, 100).columns(), "lost_points": lost}


def test_every_skill_is_replaced_in_every_way_in_the_same_fights(run):
    counted = []
    necessity = measure_necessity(run, Setting(FIGHT, FIGHT), 6, 5, counted.append)
    asked = [(NO_SKILL, ""), *((name, stand) for name in SKILL_NAMES for stand in STANDS)]
    for rows in (necessity.trained, necessity.scripted):
        assert [(row["skill"], row["played"]) for row in rows] == asked
        whole = rows[0]["wins"]
        assert [row["lost_points"] for row in rows] == pytest.approx([100 * (whole - row["wins"]) / 6 for row in rows])
    # Whoever never strikes wins nothing.
    idle = {(row["skill"], row["played"]): row["wins"] for row in necessity.scripted}
    assert idle["heal_attack", "idle"] == 0
    assert idle[NO_SKILL, ""] > 0
    assert sum(counted) == 6 * 2 * len(asked)
    assert measure_necessity(run, Setting(FIGHT, FIGHT), 6, 5) == necessity


def test_points_are_paired_by_seed():
    by_seed = {
        1: Necessity([_row(NO_SKILL, "", 80, 0.0), _row("camera", "random", 30, 50.0)], ()),
        2: Necessity([_row(NO_SKILL, "", 60, 0.0), _row("camera", "random", 20, 40.0)], ()),
    }
    whole, camera = necessity_over_seeds(by_seed).rows()
    assert (whole["win_percent"], whole["lost_points"]) == (pytest.approx(70.0), 0.0)
    assert (camera["win_percent"], camera["lost_points"]) == (pytest.approx(25.0), pytest.approx(45.0))
    # t of one degree of freedom: 45 +- 12.706 * 7.0711 / sqrt(2).
    assert (camera["lost_points_low"], camera["lost_points_high"]) == pytest.approx((-18.53, 108.53), abs=0.01)


def test_the_command_reads_runs_and_writes_one_table(run, tmp_path, monkeypatch, capsys):
    before = sorted(run.path.rglob("*"))
    words = ["soulsgraph", "necessity", str(run.path), "--episodes", "4", "--out", str(tmp_path / "out"), "--json"]
    monkeypatch.setattr("sys.argv", words)
    main()
    printed = json.loads(capsys.readouterr().out)
    written = json.loads((tmp_path / "out" / "necessity.json").read_text())
    assert [row["wins"] for row in written["seeds"]] == [row["wins"] for row in printed["rows"]]
    assert sorted(run.path.rglob("*")) == before


@pytest.mark.parametrize("wrong", [("--scenario", "no-such"), ("--start", "no-such"), ("--episodes", "0")])
def test_what_does_not_exist_is_refused_in_one_line(run, monkeypatch, capsys, wrong):
    monkeypatch.setattr("sys.argv", ["soulsgraph", "necessity", str(run.path), *wrong])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_the_shipped_fight_begins_anywhere_looking_anywhere():
    scenario = load_scenario(FIGHT)
    assert scenario.start == "scattered"
    assert not any(start.facing for start in scenario.starts.values())
