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


@pytest.fixture(scope="module")
def scores():
    return score(RUN.evaluations)


def _values(scores, name, method):
    return scores.scores[name, method].values


def test_a_score_is_a_mean_over_seeds_of_what_each_seed_played(scores):
    frame = RUN.evaluations
    final = frame[(frame["method"] == "newest") & (frame["after"] == 5) & (frame["decisions"] == 0)]
    rates = (final["wins"] / final["episodes"]).groupby(final["seed"]).mean()
    values = _values(scores, "average_performance", "newest")
    assert values.to_dict() == pytest.approx(rates.to_dict())
    row = scores.scores["average_performance", "newest"].columns
    assert (row["mean_low"], row["mean_high"]) == pytest.approx(mean_interval(rates))
    table = final.pivot(index="seed", columns="task", values="wins").to_numpy() / 200
    assert row["interquartile_mean"] == pytest.approx(interquartile_mean(table))


def test_forward_transfer_is_measured_from_scratch_with_the_same_seed_over_the_same_budget(scores):
    frame = RUN.evaluations

    def area(method, seed, task):
        rows = frame[(frame["method"] == method) & (frame["seed"] == seed) & (frame["task"] == task)]
        curve = rows[(rows["decisions"] > 0) | (rows["after"] == task - 1)].sort_values("decisions")
        return np.trapezoid(curve["wins"] / curve["episodes"], curve["decisions"]) / 80_000

    for seed, value in _values(scores, "forward_transfer", "ewc").items():
        areas = [(area("ewc", seed, task), area(SCRATCH, seed, task)) for task in range(1, 6)]
        assert value == pytest.approx(np.mean([(own - alone) / (1.0 - alone) for own, alone in areas]))
    assert _values(scores, "forward_transfer", SCRATCH).empty, "it would be 0 by its formula"


def test_a_method_that_stops_sooner_keeps_its_last_win_rate():
    frame = RUN.evaluations
    late = frame[(frame["method"] != "kept") | (frame["decisions"] <= 20_000)]
    whole, cut = (score(rows).scores["forward_transfer", "kept"].values.mean() for rows in (frame, late))
    assert cut < whole


def test_transfer_over_ticks_differs_where_a_method_spends_more_of_them(scores):
    frame = RUN.evaluations
    assert _values(scores, "forward_transfer_ticks", "ewc").mean() == pytest.approx(
        _values(scores, "forward_transfer", "ewc").mean()
    )
    slow = frame.assign(ticks=frame["ticks"] * np.where(frame["method"] == "ewc", 3, 1))
    found = score(slow).scores["forward_transfer_ticks", "ewc"].values.mean()
    assert found < _values(scores, "forward_transfer", "ewc").mean()
    bare = score(frame.drop(columns="ticks"))
    assert bare.scores["forward_transfer_ticks", "ewc"].values.empty
    assert bare.scores["forward_transfer", "ewc"].values.size == 4


def test_methods_are_compared_within_seeds_and_adjusted_for_their_number(scores):
    assert scores.against == "kept"
    rows = [row for row in scores.differences if row["metric"] == "average_performance"]
    assert [row["method"] for row in rows] == ["newest", "ewc", SCRATCH]
    kept = _values(scores, "average_performance", "kept")
    expected = []
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
    with pytest.raises(SoulsGraphError, match="'ew'"):
        score(frame, "ew")


def test_without_a_method_from_scratch_forward_transfer_is_not_defined_and_the_rest_is():
    found = score(RUN.evaluations[RUN.evaluations["method"] != SCRATCH])
    assert found.scores["forward_transfer", "kept"].values.empty
    assert found.scores["forgetting", "kept"].values.size == 4
    assert SCRATCH in found.notes[0]
    one = score(RUN.evaluations[(RUN.evaluations["method"] != SCRATCH) | (RUN.evaluations["seed"] < 3)])
    assert one.scores["forward_transfer", "kept"].values.size == 3
    assert "of seed 3" in one.notes[0]


def test_from_scratch_may_have_curves_alone_and_a_bound_its_last_row():
    frame = RUN.evaluations
    curves = (frame["decisions"] > 0) | (frame["task"] == frame["after"] + 1)
    bound = (frame["method"] == "ewc") & (frame["after"] == 5)
    found = score(frame[frame["method"].isin(["kept", "newest"]) | (frame["method"].eq(SCRATCH) & curves) | bound])
    assert found.methods == ("kept", "newest", "ewc")
    assert found.scores["forward_transfer", "kept"].values.size == 4
    for name in ("forgetting", "own_performance", "backward_transfer"):
        assert found.scores[name, "ewc"].values.empty, "of its last row no task's own end is known"
    assert [note for note in found.notes if note.startswith("ewc")]


def test_one_seed_has_no_interval_and_no_p_value():
    found = score(RUN.evaluations[RUN.evaluations["seed"] == 0])
    plain = found.to_dict()
    assert {row["mean_low"] for row in plain["scores"]} == {None}
    assert {row["adjusted_p"] for row in plain["differences"]} == {None}
    assert "(" not in found.table(["forgetting"]).rows[0][2]


def test_one_task_forgets_nothing_and_has_no_transfer_to_another():
    frame = RUN.evaluations
    found = score(frame[(frame["task"] == 1) & (frame["after"] <= 1)])
    assert _values(found, "forgetting", "newest").mean() == 0.0
    assert _values(found, "backward_transfer", "newest").empty
    assert _values(found, "plasticity_slope", "newest").empty
    json.dumps(found.to_dict(), allow_nan=False)


def test_the_order_of_rows_and_the_names_of_seeds_change_no_score(scores):
    frame = RUN.evaluations
    shuffled = frame.assign(seed=frame["seed"].map({0: 12, 1: 10, 2: 13, 3: 11})).sample(frac=1.0, random_state=1)
    before, after = (
        {of: found.values.mean() for of, found in one.scores.items() if len(found.values)}
        for one in (scores, score(shuffled, "kept"))
    )
    assert after == pytest.approx(before)


def test_scores_are_plain_values_and_rows(scores):
    plain = scores.to_dict()
    json.dumps(plain, allow_nan=False)
    assert plain["tasks"] == [f"boss {task}" for task in range(1, 6)]
    assert {row["metric"] for row in plain["scores"]} == METRICS.keys()
    tables = scores.tables()
    assert [row["metric"] for row in tables["scores"]] == [row["metric"] for row in plain["scores"]]
    by_task = pd.DataFrame(tables["scores-tasks"])
    own = by_task[(by_task["metric"] == "forgetting") & (by_task["method"] == "ewc")]
    means = own.groupby("seed")["value"].mean().to_dict()
    assert means == pytest.approx(_values(scores, "forgetting", "ewc").to_dict())
    assert set(by_task[by_task["metric"] == "zero_shot_transfer"]["task"]) == {2, 3, 4, 5}
    assert len(scores.to_rich()) == 3 + len(scores.notes), "two tables of scores and one of differences"
