import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soulsgraph.paper.expected_ranges import PAPER_EPISODES, paper_rate
from soulsgraph.results.statistics import (
    SettingRates,
    Spread,
    WinCount,
    interquartile_mean,
    interquartile_mean_interval,
    paired_difference,
    paired_ratio,
)
from soulsgraph.runs.evaluate import TABLE_1
from soulsgraph_envs.core.errors import SoulsGraphError

scores = st.lists(st.floats(0.0, 100.0), min_size=2, max_size=12)


def _spread(*values):
    return Spread(dict(enumerate(values)))


def _setting(counts):
    rates = {seed: WinCount(wins, episodes) for seed, (wins, episodes) in enumerate(counts)}
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
    spread = _spread(44.0)
    figures = spread.to_dict()
    assert (spread.median, spread.mean, figures["interquartile_mean"]) == (44.0, 44.0, 44.0)
    assert math.isnan(spread.deviation)
    assert all(math.isinf(figures[f"{name}_high"]) for name in ("mean", "interquartile_mean", "deviation"))


def test_more_episodes_of_the_same_seeds_do_not_narrow_the_interval_over_seeds():
    few = _setting([(10, 25), (15, 25), (5, 25)])
    many = _setting([(1_000, 2_500), (1_500, 2_500), (500, 2_500)])
    assert few.spread.mean_interval == many.spread.mean_interval
    assert few.seeds[0].wilson.low < many.seeds[0].wilson.low


def test_pairing_removes_what_the_seeds_share():
    mid, tuned = _spread(10.0, 30.0, 50.0), _spread(20.0, 40.0, 60.0)
    difference = paired_difference(tuned, mid)
    assert difference is not None
    assert (difference.mean, *difference.mean_interval) == (10.0, 10.0, 10.0)
    assert mid.mean_interval.overlaps(tuned.mean_interval)


def test_only_shared_seeds_are_paired():
    difference = paired_difference(Spread({1: 5.0, 2: 7.0}), Spread({2: 4.0, 3: 9.0}))
    assert difference is not None
    assert difference.by_seed == {2: 3.0}
    assert paired_difference(Spread({1: 5.0}), Spread({2: 4.0})) is None
    assert paired_ratio(Spread({1: 5.0, 2: 6.0}), Spread({1: 0.0, 2: 4.0})) == Spread({2: 1.5})


@pytest.mark.parametrize("row", TABLE_1, ids=lambda row: row.label)
def test_every_row_of_the_paper_fits_a_count(row):
    paper = paper_rate(row.paper_percent)
    odd = {33.3: (8, 24), 12.5: (3, 24)}
    expected = odd.get(row.paper_percent, (round(row.paper_percent / 4), PAPER_EPISODES))
    assert (paper.wins, paper.episodes) == expected
    assert paper.wilson.low <= row.paper_percent <= paper.wilson.high
    assert paper.clopper_pearson.low <= paper.wilson.low + 1e-9


def test_a_percentage_that_no_count_fits_is_told():
    with pytest.raises(SoulsGraphError, match=r"win rate 1\.0: expected the share of a count of at most 25"):
        paper_rate(1.0)
