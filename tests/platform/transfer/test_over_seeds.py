"""Several training seeds: each evaluated by itself, paired, never pooled."""

import io
import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from rich.console import Console

from fakes.runs import pretend_run
from soulsgraph.cli import main
from soulsgraph.results.statistics import clopper_pearson_interval, mean_interval
from soulsgraph.results.tables import read_rows
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.transfer import Question, open_seeds
from soulsgraph.transfer.recovery import (
    FROM_SCRATCH,
    NOTHING,
    RECOMMENDED,
    Arm,
    RecoveryTarget,
    arm_row,
    recovery_over_seeds,
)
from soulsgraph.transfer.report import CONTROLS, controls_over_seeds, run_controls
from soulsgraph_envs.combat.rollout import Episodes
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.state import STATE_SIZE
from soulsgraph_envs.skills import SKILL_NAMES

SEEDS, EPISODES = (7, 3), 4


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("seeds")
    return [pretend_run(root / str(seed), Plan(scale=0.01, seed=seed)).path for seed in SEEDS]


def won(*wins) -> Episodes:
    flags, zeros = np.array(wins, np.bool_), np.zeros(len(wins))
    counts, rows = np.ones(len(wins), np.int64), np.zeros((len(wins), STATE_SIZE), np.float32)
    return Episodes(counts, counts, zeros, flags, ~flags, rows, zeros[:, None])


def arms(before, **after) -> list[dict]:
    nothing = arm_row(Arm(NOTHING, ()), 0, won(*before), won(*before))
    arm = partial(Arm, skills=("dodge",), selection_decisions=7_000)
    return [nothing, *(arm_row(arm(label), 1_000, won(*wins), won(*before)) for label, wins in after.items())]


def test_runs_of_one_plan_are_told_apart_by_their_seeds(folders, tmp_path):
    assert [*open_seeds(folders)] == [*SEEDS]
    with pytest.raises(SoulsGraphError, match="found seed 7 again"):
        open_seeds([folders[0], folders[0]])
    other = RunFolder.create(tmp_path / "other", replace(RunFolder.open(folders[0]).plan, seed=9, preset="paper"))
    with pytest.raises(SoulsGraphError, match="but for its seed, found another"):
        open_seeds([*folders, other.path])
    with pytest.raises(SoulsGraphError, match="expected one or more run folders"):
        open_seeds([])


def test_gains_are_taken_within_each_seed_and_their_interval_over_the_seeds():
    found = {1: arms((0, 0, 0, 0), recommended=(1, 1, 0, 0)), 2: arms((1, 0, 0, 0), recommended=(1, 1, 1, 1))}
    table = recovery_over_seeds(RecoveryTarget("iudex-phase2", episodes=4, budget=1_000), found)
    nothing, recommended = table.summary
    assert recommended["win_percent"] == pytest.approx((50.0 + 100.0) / 2)
    assert recommended["gain_points"] == pytest.approx((50.0 + 75.0) / 2)
    low, high = mean_interval([50.0, 75.0])
    assert (recommended["gain_points_low"], recommended["gain_points_high"]) == pytest.approx((low, high))
    assert recommended["gain_per_10000_steps"] == pytest.approx(10 * 62.5)
    assert "gain_points" not in nothing
    # What was played to select the skills is no step, and is shown.
    assert (nothing["selection_decisions"], recommended["selection_decisions"]) == (0.0, 7_000.0)
    assert table.rows()[1]["each_seed"] == "1: 50.0 % (2/4, 15.0 to 85.0); 2: 100.0 % (4/4, 51.0 to 100.0)"


def test_a_seed_with_nothing_recommended_stays_in_the_row_as_it_was():
    found = {1: arms((1, 0, 0, 0), dodge=(1, 1, 0, 0)), 2: arms((0, 0, 0, 0), recommended=(1, 0, 0, 0), dodge=(0,) * 4)}
    table = recovery_over_seeds(RecoveryTarget("iudex-phase2", episodes=4, budget=1_000), found)
    assert [row["setting"] for row in table.summary] == [NOTHING, RECOMMENDED, "dodge"]
    recommended, dodge = table.summary[1:]
    assert recommended["seeds"] == 2
    assert recommended["gain_points"] == pytest.approx((0.0 + 25.0) / 2)
    assert dodge["recommended_ahead_points"] == pytest.approx(((25.0 - 50.0) + (25.0 - 0.0)) / 2)


def test_many_seeds_are_shown_a_few_beside_each_other():
    found = {seed: arms((0, 0, 0, 0), recommended=(1, 0, 0, 0)) for seed in range(7)}
    _, first, rest = recovery_over_seeds(RecoveryTarget("iudex-phase2", episodes=4, budget=1_000), found).to_rich()
    assert [str(column.header) for column in first.columns] == ["setting", *(f"seed {seed}" for seed in range(5))]
    assert [str(column.header) for column in rest.columns] == ["setting", "seed 5", "seed 6"]
    assert first.row_count == rest.row_count == 2


def test_one_seed_has_no_interval_over_seeds(tmp_path):
    table = recovery_over_seeds(
        RecoveryTarget("iudex-phase2", episodes=4, budget=1_000), {1: arms((0, 0), **{FROM_SCRATCH: (1, 0)})}
    )
    assert table.summary[-1]["win_percent_low"] is None
    table.save(tmp_path, "recovery")
    saved = json.loads((tmp_path / "recovery.json").read_text())
    assert saved["rows"][-1]["win_percent"] == 50.0
    assert {"commit", "versions", "machine"} <= saved.keys()
    assert len(read_rows(tmp_path / "recovery-seeds.parquet")) == 3
    console = Console(width=200, record=True, quiet=False, file=io.StringIO())
    for part in table.to_rich():
        console.print(part)
    assert "50.0 % (1/2, 9.5 to 90.5)" in console.export_text()


@pytest.mark.slow
def test_controls_count_the_seeds_that_came_out_right(folders):
    runs, home = open_seeds(folders), "iudex-phase1"
    found = {
        seed: run_controls(run, Question(home, home=home, episodes=2, seed=5), CONTROLS[:1], "silent")
        for seed, run in runs.items()
    }
    table = controls_over_seeds(found)
    counted = table.summary[0]
    assert (counted["control"], counted["seeds_right"], counted["right_percent"]) == ("no shift", "2 of 2", 100.0)
    assert counted["right_percent_low"] == pytest.approx(100 * clopper_pearson_interval(2, 2).low)
    assert table.rows()[0]["each_seed"] == "3: none; 7: none"
    assert all((run.path / "results" / "transfer-controls.json").exists() for run in runs.values())


@pytest.mark.slow
def test_the_commands_take_several_runs(folders, capsys, monkeypatch, tmp_path):
    out = tmp_path / "together"
    line = ["transfer", *map(str, folders), "--scenario", "controls-no-shift", "--episodes", str(EPISODES)]
    monkeypatch.setattr("sys.argv", ["soulsgraph", *line, "--out", str(out)])
    main()
    printed = capsys.readouterr().out
    assert "Recommended, iudex-phase1 -> controls-no-shift, 2 seeds" in printed
    rows = read_rows(out / "transfer-controls-no-shift.parquet")
    assert [(row["skill"], row["seeds_adapt"]) for row in rows] == [(name, "0 of 2") for name in SKILL_NAMES]
    rates = read_rows(out / "transfer-controls-no-shift-win-rates.parquet")
    assert {row["seeds"] for row in rates} == {2}
