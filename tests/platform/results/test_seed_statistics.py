import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soulsgraph.paper.records import PAPER_EPISODES, SettingRates, paper_rate
from soulsgraph.results.seeds import by_seed_frame, difference, figures_of, ratio, records, seed_tables, summary
from soulsgraph.results.statistics import (
    WinRate,
    clopper_pearson_interval,
    interquartile_mean,
    interquartile_mean_interval,
    mean_interval,
    mean_test,
)
from soulsgraph.runs.evaluate import TABLE_1

scores = st.lists(st.floats(0.0, 100.0), min_size=2, max_size=12)


def _spread(*values):
    return pd.Series(values)


def _setting(counts):
    rates = {seed: WinRate(wins, episodes) for seed, (wins, episodes) in enumerate(counts)}
    return SettingRates("both", "a", "iudex-phase1", "mid", None, rates)


def test_the_interquartile_mean_is_that_of_the_middle_half():
    assert interquartile_mean([1, 2, 3, 4, 5, 6, 7, 800]) == 4.5
    # Ten seeds: two are cut at each end, a quarter rounded down.
    assert interquartile_mean(range(10)) == np.mean([2, 3, 4, 5, 6, 7])


@settings(max_examples=25)
@given(scores)
def test_the_bootstrap_holds_between_the_extremes_and_is_the_same_each_time(values):
    low, high = interquartile_mean_interval(values)
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9
    assert interquartile_mean_interval(values) == (low, high)


def test_the_bootstrap_agrees_with_scipys_for_one_setting():
    from scipy.stats import bootstrap

    values = np.random.default_rng(3).normal(44.0, 12.0, 10)
    theirs = bootstrap((values,), interquartile_mean, method="percentile", vectorized=False, n_resamples=4_000, rng=1)
    # Both scatter with their resamples, by about 0.25 points here.
    assert interquartile_mean_interval(values) == pytest.approx(tuple(theirs.confidence_interval), abs=1.0)


def test_strata_are_drawn_apart():
    # Within a setting the seeds agree, so nothing is uncertain, however far apart the settings lie.
    low, high = interquartile_mean_interval(np.tile([0.0, 10.0, 90.0, 100.0], (10, 1)))
    assert low == high == 50.0


def test_one_seed_bounds_nothing():
    figures = figures_of(_spread(44.0))
    assert [figures[name] for name in ("seeds", "median", "mean", "interquartile_mean")] == [1, 44.0, 44.0, 44.0]
    assert math.isnan(figures["deviation"])
    assert all(math.isinf(figures[f"{name}_high"]) for name in ("mean", "interquartile_mean", "deviation"))


def test_more_episodes_of_the_same_seeds_do_not_narrow_the_interval_over_seeds():
    few = _setting([(10, 25), (15, 25), (5, 25)])
    many = _setting([(1_000, 2_500), (1_500, 2_500), (500, 2_500)])
    assert mean_interval(few.spread) == mean_interval(many.spread)
    assert few.seeds[0].interval.low < many.seeds[0].interval.low


def test_pairing_removes_what_the_seeds_share():
    mid, tuned = _spread(10.0, 30.0, 50.0), _spread(20.0, 40.0, 60.0)
    apart = difference(tuned, mid)
    assert (apart.mean(), *mean_interval(apart)) == (10.0, 10.0, 10.0)
    assert mean_interval(mid).overlaps(mean_interval(tuned))


def test_what_only_rounding_left_is_no_difference():
    first, second = pd.Series({1: 0.1 + 0.2, 2: 1e9 + 1e-7, 3: 0.5}), pd.Series({1: 0.3, 2: 1e9, 3: 0.25})
    assert difference(first, second).to_dict() == {1: 0.0, 2: 0.0, 3: 0.25}
    assert mean_test(difference(_spread(0.1 + 0.2, 0.3), _spread(0.3, 0.3))) == 1.0


def test_only_shared_seeds_are_paired():
    assert difference(pd.Series({1: 5.0, 2: 7.0}), pd.Series({2: 4.0, 3: 9.0})).to_dict() == {2: 3.0}
    assert difference(pd.Series({1: 5.0}), pd.Series({2: 4.0})).empty
    assert ratio(pd.Series({1: 5.0, 2: 6.0}), pd.Series({1: 0.0, 2: 4.0})).to_dict() == {2: 1.5}


@pytest.mark.parametrize("row", TABLE_1, ids=lambda row: row.label)
def test_every_row_of_the_paper_fits_a_count(row):
    paper = paper_rate(row.paper_percent)
    odd = {33.3: (8, 24), 12.5: (3, 24)}
    expected = odd.get(row.paper_percent, (round(row.paper_percent / 4), PAPER_EPISODES))
    assert (paper.wins, paper.episodes) == expected
    assert paper.interval.low <= row.paper_percent / 100.0 <= paper.interval.high
    assert clopper_pearson_interval(paper.wins, paper.episodes).low <= paper.interval.low + 1e-9


def test_a_summary_has_a_row_for_each_group_in_the_order_of_the_frame():
    rows = {1: [{"arm": "b", "gain": 1.0}, {"arm": "a", "gain": None}], 2: [{"arm": "b", "gain": 3.0}]}
    table = summary(by_seed_frame(rows), ["arm"], "gain", {"seeds": "seeds", "mean": "gain"})
    low, high = mean_interval([1.0, 3.0])
    assert records(table) == [
        {"arm": "b", "seeds": 2, "gain": 2.0, "gain_low": low, "gain_high": high},
        {"arm": "a", "seeds": 0, "gain": None, "gain_low": None, "gain_high": None},
    ]


def test_a_table_of_seeds_shows_every_seed_below_the_summary():
    won = {seed: [{"arm": "b", **WinRate(wins, 4).columns()}] for seed, wins in ((7, 1), (3, 4))}
    frame = by_seed_frame(won)
    summed, each = seed_tables("Wins", frame, summary(frame, ["arm"], "rate", {"mean": "share"}))
    assert summed.rows[0][0] == "b"
    assert summed.rows[0][1].startswith("0.625 (")
    assert [row[:3] for row in each.rows] == [("7", "b", "1/4"), ("3", "b", "4/4")]
