"""Which skills a fight needs: every skill replaced in every way, paired over seeds, and the shipped fight for it."""

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fakes.runs import pretend_run, pretend_training
from soulsgraph.results.statistics import WinRate
from soulsgraph.runs.ablations import NO_SKILL, Ablations, measure_ablations, runs_by_seed, worse_than_chance
from soulsgraph.runs.evaluate import Setting, make_agent
from soulsgraph.runs.lineage import adaptation_stages
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.zoo import open_run
from soulsgraph_envs.core.errors import SoulsGraphError
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


def test_every_skill_is_replaced_in_every_way_in_the_same_fights(runs, tmp_path):
    ablations = measure_ablations(runs, FIGHT, 6, 5, console=Console(quiet=True))
    ways = {"agent": ("random", "idle", "untrained"), "reference": ("random", "idle")}
    asked = {
        who: [(NO_SKILL, ""), *((name, way) for name in SKILL_NAMES for way in each)] for who, each in ways.items()
    }
    for who, rows in (
        ("agent", ablations.by_seed[0]),
        ("agent", ablations.by_seed[1]),
        ("reference", ablations.scripted),
    ):
        assert [(row["skill"], row["played"]) for row in rows] == asked[who]
        whole = rows[0]["wins"]
        assert [row["lost_points"] for row in rows] == pytest.approx([100 * (whole - row["wins"]) / 6 for row in rows])
    # Whoever never strikes wins nothing.
    wins = {(row["skill"], row["played"]): row["wins"] for row in ablations.scripted}
    assert wins["heal_attack", "idle"] == 0
    assert wins[NO_SKILL, ""] > 0
    assert ablations.to_dict()["scripted"] == ablations.scripted


def test_points_are_paired_by_seed():
    by_seed = {
        1: [_row(NO_SKILL, "", 80, 0.0), _row("camera", "random", 30, 50.0)],
        2: [_row(NO_SKILL, "", 60, 0.0), _row("camera", "random", 20, 40.0)],
    }
    whole, camera = Ablations(by_seed, []).over_seeds().to_dict("records")
    assert (whole["win_percent"], whole["lost_points"]) == (pytest.approx(70.0), 0.0)
    assert (camera["win_percent"], camera["lost_points"]) == (pytest.approx(25.0), pytest.approx(45.0))
    # t of one degree of freedom: 45 +- 12.706 * 7.0711 / sqrt(2).
    assert (camera["lost_points_low"], camera["lost_points_high"]) == pytest.approx((-18.53, 108.53), abs=0.01)


def test_runs_of_one_plan_are_told_apart_by_their_seeds(tmp_path):
    folders = [pretend_run(tmp_path / str(seed), Plan(scale=0.01, seed=seed)).path for seed in (7, 3)]
    assert [*runs_by_seed(map(RunFolder.open, folders))] == [7, 3]
    other = RunFolder.create(tmp_path / "other", replace(RunFolder.open(folders[0]).plan, seed=9, preset="paper"))
    for refused in ([folders[0], folders[0]], [*folders, other.path]):
        with pytest.raises(SoulsGraphError):
            runs_by_seed(map(RunFolder.open, refused))


def test_seeds_that_play_versions_of_other_fights_are_refused(runs):
    pretend_training(runs[0], adaptation_stages(runs[0], "vordt", ("dodge",), after=FIGHT))
    with pytest.raises(SoulsGraphError):
        measure_ablations(runs, "vordt", 1, console=Console(quiet=True))


def test_a_skill_that_chance_plays_better_is_named_and_no_other():
    agent = make_agent(open_run(Path("five-skills-best-0")), Setting(FIGHT, FIGHT))
    assert worse_than_chance(agent, 1000, Console(quiet=True)) == {}
    # At random the lock is taken now and then; whoever idles never takes it.
    found = worse_than_chance(replace(agent, replaced={"lock_on": "idle"}), 1000, Console(quiet=True))
    assert [*found] == ["lock_on"]
    chance, trained = found["lock_on"]
    assert trained.wins < chance.wins <= chance.episodes == trained.episodes == 200
