"""Several training seeds: each evaluated by itself, paired, never pooled."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from fakes.runs import pretend_run
from soulsgraph.results.statistics import mean_interval
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.transfer import open_seeds
from soulsgraph.transfer.recovery import NOTHING, RECOMMENDED, Arm, RecoveryTarget, arm_row, recovery_over_seeds
from soulsgraph_envs.combat.rollout import Episodes
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.state import STATE_SIZE

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
    with pytest.raises(SoulsGraphError, match="seed 7"):
        open_seeds([folders[0], folders[0]])
    other = RunFolder.create(tmp_path / "other", replace(RunFolder.open(folders[0]).plan, seed=9, preset="paper"))
    with pytest.raises(SoulsGraphError, match="plan"):
        open_seeds([*folders, other.path])


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


def test_a_seed_with_nothing_recommended_stays_in_the_row_as_it_was():
    found = {1: arms((1, 0, 0, 0), dodge=(1, 1, 0, 0)), 2: arms((0, 0, 0, 0), recommended=(1, 0, 0, 0), dodge=(0,) * 4)}
    table = recovery_over_seeds(RecoveryTarget("iudex-phase2", episodes=4, budget=1_000), found)
    assert [row["setting"] for row in table.summary] == [NOTHING, RECOMMENDED, "dodge"]
    recommended, dodge = table.summary[1:]
    assert recommended["seeds"] == 2
    assert recommended["gain_points"] == pytest.approx((0.0 + 25.0) / 2)
    assert dodge["recommended_ahead_points"] == pytest.approx(((25.0 - 50.0) + (25.0 - 0.0)) / 2)
