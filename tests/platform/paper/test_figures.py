import numpy as np
import pytest

from fakes.runs import write_synthetic_records
from soulsgraph.paper.figures import draw_dodge_lengths, draw_skill_returns, draw_win_rates
from soulsgraph.paper.records import load_reproductions
from soulsgraph.results.seeds import seed_curves
from soulsgraph.runs.evaluate import TABLE_1
from soulsgraph_envs.skills import budget_of


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory):
    folder = write_synthetic_records(tmp_path_factory.mktemp("records"), seeds=range(300, 303))
    return load_reproductions([folder])[0]


def _points(seed, steps, values):
    return [{"seed": seed, "step": step, "x": value} for step, value in zip(steps, values, strict=True)]


def test_the_interval_of_a_curve_is_over_seeds():
    records = [*_points(1, (10, 20), (0.0, 5.0)), *_points(2, (10, 20), (2.0, 5.0))]
    curves = seed_curves(records, "x")
    assert curves.mean.tolist() == [1.0, 5.0]
    low, high = curves.interval
    # Two seeds: standard error 1, t(0.975, 1) = 12.7062.
    assert (low[0], high[0]) == pytest.approx((1 - 12.7062, 1 + 12.7062), abs=1e-3)
    assert low[1] == high[1] == 5.0
    assert seed_curves(_points(1, (10, 20), (0.0, 5.0)), "x").interval is None


def test_seeds_at_other_steps_are_interpolated_as_far_as_all_reach():
    records = [*_points(1, (10, 20, 30), (0.0, 1.0, 2.0)), *_points(2, (8, 18, 28), (0.0, 10.0, 20.0))]
    curves = seed_curves(records, "x")
    assert curves.steps.tolist() == [10, 20]
    np.testing.assert_allclose(curves.values, [[0.0, 1.0], [2.0, 12.0]])


def test_each_skill_has_a_panel_with_every_seed_and_the_phases_apart(reproduction):
    panels = {axes.get_title(): axes for axes in draw_skill_returns(reproduction).axes}
    assert list(panels)[:5] == ["camera", "lock-on", "movement", "dodge", "heal-attack"]
    assert len(panels["camera"].lines) == 3 + 1
    for name in ("dodge", "heal-attack"):
        (transition,) = (line for line in panels[name].lines if line.get_linestyle() == "--")
        assert transition.get_xdata()[0] == budget_of(name.replace("-", "_")) / 1_000
        assert len(panels[name].lines) == 2 * (3 + 1) + 1


def test_dodge_is_drawn_beside_random_and_no_dodging(reproduction):
    for axes, unit in zip(draw_dodge_lengths(reproduction).axes, ("length", "seconds"), strict=True):
        for policy, style in (("random", "--"), ("idle", "-.")):
            (line,) = (line for line in axes.lines if line.get_linestyle() == style)
            assert line.get_ydata()[0] == pytest.approx(reproduction.measured(f"dodge {unit} {policy}").mean())


def test_every_seed_is_a_point_beside_the_papers(reproduction):
    (axes,) = draw_win_rates([reproduction]).axes
    seeds = [line.get_xdata() for line in axes.lines if line.get_marker() == "o"]
    assert [sorted(x) for x in seeds] == [sorted(reproduction.setting[row.label].spread) for row in TABLE_1]
    assert [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "D"] == [
        row.paper_percent for row in TABLE_1
    ]
