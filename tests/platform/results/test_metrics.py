"""Metrics of continual learning: matrices worked by hand, and what holds of every matrix."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from soulsgraph.results.metrics import (
    backward_transfer,
    curve_area,
    final_performance,
    forgetting,
    forgetting_from_peak,
    forward_transfer,
    isolated_forgetting,
    meal_forgetting,
    meal_forward_transfer,
    meal_peak_forgetting,
    mean_of,
    own_performance,
    plasticity_slope,
    returning_rates,
    returns_of,
    zero_shot_forward_transfer,
)

#: Win rate in task j (column) after training on task i (row).
MATRIX = np.array([[0.8, 0.3, 0.1], [0.5, 0.6, 0.2], [0.4, 0.5, 0.7]])
RANDOM = np.array([0.0, 0.1, 0.05])
_SHARES = st.integers(0, 200).map(lambda wins: wins / 200)
MATRICES = st.integers(1, 6).flatmap(lambda tasks: arrays(float, (tasks, tasks), elements=_SHARES))


def test_the_peak_may_come_after_a_tasks_own_training():
    matrix = np.array([[0.5, 0.0, 0.0], [0.9, 0.6, 0.0], [0.4, 0.5, 0.7]])
    np.testing.assert_allclose(forgetting_from_peak(matrix), [0.5, 0.1])
    np.testing.assert_allclose(forgetting(matrix)[:-1], [0.1, 0.1])


def test_a_gain_at_the_end_is_below_0_from_the_peak_and_0_for_meal():
    matrix = np.array([[0.5, 0.0], [0.8, 0.6]])
    assert forgetting_from_peak(matrix).tolist() == pytest.approx([-0.3])
    assert meal_peak_forgetting(matrix).tolist() == [0.0]


def test_isolated_forgetting_blames_each_later_task_for_its_part():
    lost = isolated_forgetting(MATRIX)
    np.testing.assert_allclose(lost[0, 1:], [(0.8 - 0.5) / 0.8, (0.5 - 0.4) / 0.8])
    assert lost[1, 2] == pytest.approx((0.6 - 0.5) / 0.6)
    assert np.isnan(lost[np.tril_indices(3)]).all()


def test_zero_shot_forward_transfer_credits_each_earlier_task_for_its_part():
    brought = zero_shot_forward_transfer(MATRIX)
    assert brought[2, 1] == pytest.approx((0.2 - 0.1) / 0.7)
    assert np.isnan(brought[:, 0]).all(), "nobody played before the first task"
    assert np.isnan(brought[np.triu_indices(3)]).all()
    assert zero_shot_forward_transfer(MATRIX, RANDOM)[1, 0] == pytest.approx((0.3 - 0.1) / 0.6)


def test_of_a_task_never_won_no_share_is_defined():
    nothing = np.zeros((2, 2))
    assert np.isnan(isolated_forgetting(nothing)).all()
    assert np.isnan(meal_forgetting(nothing)).all()
    assert forgetting(nothing).tolist() == [0.0, 0.0]


def test_meal_counts_what_is_forgotten_early_more():
    early = np.array([[0.8, 0.0, 0.0], [0.4, 0.0, 0.0], [0.8, 0.0, 0.0]])
    late = np.array([[0.8, 0.0, 0.0], [0.8, 0.0, 0.0], [0.4, 0.0, 0.0]])
    weight = np.exp(-2.0)
    assert meal_forgetting(early)[0] == pytest.approx(0.5 / (1.0 + weight))
    assert meal_forgetting(late)[0] == pytest.approx(0.5 * weight / (1.0 + weight))


def test_forward_transfer_is_the_share_of_what_training_from_scratch_left_to_gain():
    found = forward_transfer(np.array([0.75, 0.4, 0.25, 1.0]), np.array([0.5, 0.4, 0.5, 1.0]))
    np.testing.assert_allclose(found, [0.5, 0.0, -0.5, np.nan])


def test_meals_forward_transfer_is_a_ratio_to_training_from_scratch():
    found = meal_forward_transfer(np.array([0.75, 0.1, 0.0]), np.array([0.5, 0.2, 0.0]))
    np.testing.assert_allclose(found, [0.5, -0.5, np.nan])


def test_an_area_holds_the_last_rate_to_the_budget_and_cuts_what_is_beyond():
    steps, rates = np.array([0.0, 100.0, 200.0]), np.array([0.0, 1.0, 1.0])
    assert curve_area(steps, rates) == pytest.approx(0.75)
    assert curve_area(steps, rates, 400.0) == pytest.approx(0.875)
    assert curve_area(steps, rates, 50.0) == pytest.approx(0.25)
    assert curve_area(steps[1:], rates[1:]) == 1.0
    assert curve_area(np.array([0.0]), np.array([0.3])) == 0.3
    # Nothing but time passes in a point that stands beside another.
    assert curve_area(np.array([0.0, 50.0, 50.0, 100.0]), np.array([0.0, 0.0, 1.0, 1.0])) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("known", "before"),
    [
        ({(1, 0): 0.3, (2, 0): 0.4, (2, 3): 0.6}, 0.4),
        ({(1, 0): 0.3, (2, 3): 0.6}, 0.6),
        ({(1, 0): 0.3}, 0.3),
        ({}, np.nan),
    ],
)
def test_before_it_comes_again_a_fight_counts_by_its_newest_evaluation_as_either_task(known, before):
    matrix = np.full((4, 4), np.nan)
    matrix[0, 0], matrix[3, 3] = 0.8, 0.9
    for cell, rate in known.items():
        matrix[cell] = rate
    assert returns_of("abca") == [(0, 3)]
    assert returning_rates(matrix, [(0, 3)])[0] == pytest.approx([0.8, before, 0.9, 0.1], nan_ok=True)


def test_a_fight_that_comes_again_at_once_counts_by_its_own_end_and_each_return_by_the_first_visit():
    matrix = np.array([[0.5, np.nan], [np.nan, 0.7]])
    assert returning_rates(matrix, returns_of("aa"))[0] == pytest.approx([0.5, 0.5, 0.7, 0.2])
    assert returns_of("abaa") == [(0, 2), (0, 3)]
    assert returning_rates(matrix, []).shape == (0, 4)


def test_the_slope_is_that_of_a_line_and_none_of_a_single_task():
    assert plasticity_slope(np.diag([0.9, 0.8, 0.7, 0.6])) == pytest.approx(-0.1)
    assert np.isnan(plasticity_slope(np.array([[0.5]])))


def test_a_mean_leaves_out_what_is_not_defined():
    assert mean_of(np.array([[0.5, np.nan], [1.0, np.nan]])) == 0.75
    assert np.isnan(mean_of(np.array([np.nan])))
    assert np.isnan(mean_of(np.array([])))


@given(MATRICES)
def test_what_the_formulas_have_in_common_agrees(matrix):
    np.testing.assert_allclose(backward_transfer(matrix), -forgetting(matrix)[:-1])
    assert (meal_peak_forgetting(matrix) >= forgetting_from_peak(matrix)).all()
    assert (forgetting_from_peak(matrix) >= forgetting(matrix)[:-1] - 1e-12).all()
    assert final_performance(matrix).mean() == pytest.approx((own_performance(matrix) - forgetting(matrix)).mean())
    # Summed up the parts of isolated forgetting are all that was forgotten.
    best = matrix.max(axis=0)
    lost = np.nansum(isolated_forgetting(matrix), axis=1) * best
    np.testing.assert_allclose(lost, forgetting(matrix), atol=1e-9)


@given(MATRICES, st.data())
def test_a_missing_cell_makes_no_value_up(matrix, data):
    task = data.draw(st.integers(0, len(matrix) - 1))
    matrix[-1, task] = np.nan
    assert np.isnan(forgetting(matrix)[task])
    if task < len(matrix) - 1:
        for formula in (forgetting_from_peak, backward_transfer, meal_forgetting, meal_peak_forgetting):
            assert np.isnan(formula(matrix)[task])
