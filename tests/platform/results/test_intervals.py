import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit

from soulsgraph.results.statistics import (
    Interval,
    clopper_pearson_interval,
    deviation_interval,
    holm,
    mean_interval,
    welch_interval,
    wilson_interval,
)


def test_wilson_agrees_with_its_formula_to_twelve_digits():
    # (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n), worked out in 40 digits.
    assert wilson_interval(11, 25) == pytest.approx((0.26665638881068351, 0.62932668130201231), abs=1e-12)
    assert wilson_interval(347, 400) == pytest.approx((0.83075368030331909, 0.89725478336097297), abs=1e-12)


def test_wilson_without_a_win_is_z_squared_over_n_plus_z_squared():
    assert wilson_interval(0, 25) == pytest.approx((0.0, 3.841459 / 28.841459), abs=1e-7)
    assert wilson_interval(25, 25) == pytest.approx((25 / 28.841459, 1.0), abs=1e-7)
    assert wilson_interval(0, 0) == (0.0, 1.0)


@given(st.integers(1, 1000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_rate_and_mirrors_losses(case):
    wins, episodes = case
    low, high = wilson_interval(wins, episodes)
    assert 0.0 <= low <= wins / episodes <= high <= 1.0
    assert wilson_interval(episodes - wins, episodes) == pytest.approx((1 - high, 1 - low))


def test_the_mean_of_one_to_five_by_hand():
    # Mean 3, standard error sqrt(2.5 / 5) = 0.707107, t(0.975, 4) = 2.776445.
    assert mean_interval([1, 2, 3, 4, 5]) == pytest.approx((3 - 1.963243, 3 + 1.963243), abs=1e-6)
    assert mean_interval([7.0]) == (-math.inf, math.inf)


def test_clopper_pearson_without_a_win_is_the_rule_of_three_made_exact():
    # (1 - p)^25 = 0.025.
    assert clopper_pearson_interval(0, 25) == pytest.approx((0.0, 1 - 0.025 ** (1 / 25)))
    assert clopper_pearson_interval(25, 25) == pytest.approx((0.025 ** (1 / 25), 1.0))
    assert clopper_pearson_interval(0, 0) == (0.0, 1.0)


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_clopper_pearson_ends_where_the_tails_hold_a_fortieth(case):
    wins, episodes = case
    low, high = clopper_pearson_interval(wins, episodes)
    at_least = sum(math.comb(episodes, k) * low**k * (1 - low) ** (episodes - k) for k in range(wins, episodes + 1))
    at_most = sum(math.comb(episodes, k) * high**k * (1 - high) ** (episodes - k) for k in range(wins + 1))
    assert wins == 0 or at_least == pytest.approx(0.025, rel=1e-6)
    assert wins == episodes or at_most == pytest.approx(0.025, rel=1e-6)


def test_the_deviation_of_one_to_five_by_hand():
    # Sum of squares 10; chi-square with 4 degrees of freedom: 11.143287 at 0.975, 0.484419 at 0.025.
    expected = (math.sqrt(10 / 11.143287), math.sqrt(10 / 0.484419))
    assert deviation_interval([1, 2, 3, 4, 5]) == pytest.approx(expected, abs=1e-5)
    assert deviation_interval([7.0]) == (0.0, math.inf)


def test_intervals_that_touch_overlap():
    assert Interval(0.0, 1.0).overlaps(Interval(1.0, 2.0))
    assert not Interval(0.0, 1.0).overlaps(Interval(1.5, 2.0))
    assert Interval(0.1, 0.2).scaled(100.0) == pytest.approx((10.0, 20.0))


def test_holm_adjusts_for_the_number_of_tests():
    # By hand: 0.01 x 3, 0.02 x 2, and the largest is never below the one before.
    assert holm([0.02, 0.01, 0.03]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.9, 0.6]) == [1.0, 1.0]
    assert holm([]) == []


def test_groups_of_other_seeds_are_compared_by_means_and_by_ranks():
    low, high = welch_interval([1.0, 2.0, 3.0], [4.0, 6.0, 8.0])
    # Variances of the means 1/3 and 4/3, freedom (5/3)^2 / ((1/3)^2 / 2 + (4/3)^2 / 2) = 50/17.
    half = stdtrit(50 / 17, 0.975) * math.sqrt(5 / 3)
    assert (low, high) == pytest.approx((-4.0 - half, -4.0 + half))
    assert welch_interval([5.0, 5.0], [3.0, 3.0]) == (2.0, 2.0)
    assert welch_interval([5.0], [3.0, 4.0]) == (-math.inf, math.inf)
