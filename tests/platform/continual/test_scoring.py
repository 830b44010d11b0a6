"""Scores of methods: known values, seeds as observations, comparisons, and what is not defined."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fakes.continual import InventedRun
from soulsgraph.continual.files import SCRATCH
from soulsgraph.continual.scoring import METRICS, score
from soulsgraph.results.seeds import difference
from soulsgraph.results.statistics import holm, interquartile_mean, mean_interval
from soulsgraph_envs.core.errors import SoulsGraphError

RUN = InventedRun.draw()
#: The worked example of the page of metrics: win rates in percent after each number of tasks, and while each is trained
#: after 0, 500 and 1,000 decisions, from nothing as well.
R = [[0, 10, 0], [80, 30, 20], [60, 90, 40], [50, 70, 70]]
CURVES = {"mine": [[0, 60, 80], [30, 70, 90], [40, 60, 70]], SCRATCH: [[0, 60, 80], [10, 50, 90], [0, 40, 80]]}
EXAMPLE = {
    "average_performance": 0.633, "forgetting": 0.167, "forward_transfer": 0.197, "own_performance": 0.8,
    "forgetting_from_peak": 0.25, "backward_transfer": -0.25, "zero_shot_transfer": 0.3, "plasticity_slope": -0.05,
    "cora_isolated_forgetting": 0.199, "cora_zero_shot_transfer": 0.265, "meal_forgetting": 0.244,
    "meal_peak_forgetting": 0.25, "meal_forward_transfer": 0.246,
}  # fmt: skip


@pytest.fixture(scope="module")
def scores():
    return score(RUN.evaluations)


def _values(scores, name, method):
    return scores.scores[name, method].values


def test_the_worked_example_comes_out():
    rows = [("mine", after, 0, task, wins) for after, row in enumerate(R) for task, wins in enumerate(row, 1)]
    for method, curves in CURVES.items():
        rows += [
            (method, task, decisions, task + 1, wins)
            for task, curve in enumerate(curves)
            for decisions, wins in zip((0, 500, 1000), curve, strict=True)
            # The method's beginnings are in R.
            if decisions or method == SCRATCH
        ]
    frame = pd.DataFrame(rows, columns=["method", "after", "decisions", "task", "wins"]).assign(seed=0, episodes=100)
    found = score(frame)
    assert EXAMPLE.keys() == METRICS.keys() - {"forward_transfer_ticks"}, "the example has no ticks"
    assert {name: _values(found, name, "mine").mean() for name in EXAMPLE} == pytest.approx(EXAMPLE, abs=5e-4)


def test_a_score_is_a_mean_over_seeds_of_what_each_seed_played(scores):
    frame = RUN.evaluations
    final = frame[(frame["method"] == "newest") & (frame["after"] == 5) & (frame["decisions"] == 0)]
    rates = (final["wins"] / final["episodes"]).groupby(final["seed"]).mean()
    assert _values(scores, "average_performance", "newest").to_dict() == pytest.approx(rates.to_dict())
    row = scores.scores["average_performance", "newest"].columns
    assert (row["mean_low"], row["mean_high"]) == pytest.approx(mean_interval(rates))
    table = final.pivot(index="seed", columns="task", values="wins").to_numpy() / 200
    assert row["interquartile_mean"] == pytest.approx(interquartile_mean(table))


def test_forward_transfer_is_measured_over_the_budget_of_the_longest_curve_beside(scores):
    assert _values(scores, "forward_transfer", SCRATCH).empty, "it would be 0 by its formula"
    frame = RUN.evaluations
    late = frame[(frame["method"] != "kept") | (frame["decisions"] <= 20_000)]
    # Who stops sooner keeps the last win rate.
    assert _values(score(late), "forward_transfer", "kept").mean() < _values(scores, "forward_transfer", "kept").mean()


def test_transfer_over_ticks_differs_where_a_method_spends_more_of_them(scores):
    frame = RUN.evaluations
    by_decisions = _values(scores, "forward_transfer", "ewc").mean()
    assert _values(scores, "forward_transfer_ticks", "ewc").mean() == pytest.approx(by_decisions)
    slow = frame.assign(ticks=frame["ticks"] * np.where(frame["method"] == "ewc", 3, 1))
    assert _values(score(slow), "forward_transfer_ticks", "ewc").mean() < by_decisions
    bare = score(frame.drop(columns="ticks"))
    assert _values(bare, "forward_transfer_ticks", "ewc").empty
    assert _values(bare, "forward_transfer", "ewc").size == 4


def test_methods_are_compared_within_seeds_and_adjusted_for_their_number(scores):
    assert scores.against == "kept"
    rows = [row for row in scores.differences if row["metric"] == "average_performance"]
    assert [row["method"] for row in rows] == ["newest", "ewc", SCRATCH]
    kept, expected = _values(scores, "average_performance", "kept"), []
    for row in rows:
        apart = difference(_values(scores, "average_performance", row["method"]), kept)
        assert row["mean"] == pytest.approx(apart.mean())
        expected.append(float(stats.ttest_1samp(apart, 0.0).pvalue))
    assert [row["p"] for row in rows] == pytest.approx(expected)
    assert [row["adjusted_p"] for row in rows] == pytest.approx(holm(expected))


def test_without_kept_the_best_is_compared_with_unless_one_is_named():
    frame = RUN.evaluations[RUN.evaluations["method"] != "kept"]
    assert score(frame).against == "ewc", "from scratch is no continual learner"
    assert score(frame, SCRATCH).against == SCRATCH


def test_without_a_method_from_scratch_forward_transfer_is_not_defined_and_the_rest_is():
    found = score(RUN.evaluations[RUN.evaluations["method"] != SCRATCH])
    assert _values(found, "forward_transfer", "kept").empty
    assert _values(found, "forgetting", "kept").size == 4
    assert SCRATCH in found.notes[0]


def test_from_scratch_may_have_curves_alone_and_a_bound_its_last_row():
    frame = RUN.evaluations
    curves = (frame["decisions"] > 0) | (frame["task"] == frame["after"] + 1)
    bound = (frame["method"] == "ewc") & (frame["after"] == 5)
    found = score(frame[frame["method"].isin(["kept", "newest"]) | (frame["method"].eq(SCRATCH) & curves) | bound])
    assert found.methods == ("kept", "newest", "ewc")
    assert _values(found, "forward_transfer", "kept").size == 4
    assert _values(found, "average_performance", "ewc").size == 4
    assert _values(found, "forgetting", "ewc").empty, "no task's own end is known"
    with pytest.raises(SoulsGraphError):
        score(frame[frame["after"] < 5])


def test_one_seed_has_no_interval_and_no_p_value_and_one_task_forgets_nothing():
    frame = RUN.evaluations
    plain = score(frame[frame["seed"] == 0]).to_dict()
    assert {row["mean_low"] for row in plain["scores"]} == {None}
    assert {row["adjusted_p"] for row in plain["differences"]} == {None}
    found = score(frame[(frame["task"] == 1) & (frame["after"] <= 1)])
    assert _values(found, "forgetting", "newest").mean() == 0.0
    assert _values(found, "backward_transfer", "newest").empty
    json.dumps(found.to_dict(), allow_nan=False)


def test_neither_the_order_of_rows_nor_the_number_of_fights_of_a_seed_changes_a_score(scores):
    frame = RUN.evaluations.copy()
    frame.loc[frame["seed"] == 0, ["wins", "episodes"]] *= 10
    after = score(frame.sample(frac=1.0, random_state=1), "kept")
    for of, found in scores.scores.items():
        assert found.values.to_dict() == pytest.approx(after.scores[of].values.to_dict())


def test_scores_are_plain_values_and_rows(scores):
    plain = scores.to_dict()
    assert plain["tasks"] == [f"boss {task}" for task in range(1, 6)]
    assert {row["metric"] for row in plain["scores"]} == METRICS.keys()
    by_task = pd.DataFrame(scores.tables()["scores-tasks"])
    own = by_task[(by_task["metric"] == "forgetting") & (by_task["method"] == "ewc")]
    means = own.groupby("seed")["value"].mean().to_dict()
    assert means == pytest.approx(_values(scores, "forgetting", "ewc").to_dict())
    assert set(by_task[by_task["metric"] == "zero_shot_transfer"]["task"]) == {2, 3, 4, 5}
    assert len(scores.to_rich()) == 3 + len(scores.notes), "two tables of scores and one of differences"
