"""Figures of continual learning draw what was scored: cells, points and scales."""

import numpy as np
import pandas as pd
import pytest

from fakes.continual import InventedRun
from soulsgraph.continual.figures import draw_by_task, draw_costs, draw_matrices, draw_performance
from soulsgraph.continual.scoring import score
from soulsgraph.results.seeds import summary

RUN = InventedRun.draw(("kept", "newest", "scratch"), seeds=3, tasks=4)


@pytest.fixture(scope="module")
def scores():
    return score(RUN.evaluations)


def test_a_heat_map_has_the_mean_over_seeds_of_every_cell_that_was_played():
    frame = RUN.evaluations
    scores = score(frame[(frame["task"] - frame["after"]).isin([0, 1]) | (frame["after"] == 4)])
    panels = {axes.get_title(loc="left"): axes for axes in draw_matrices(scores).axes}
    for name in scores.methods:
        drawn = np.ma.filled(panels[name].images[0].get_array().astype(float), np.nan)
        np.testing.assert_allclose(drawn, np.mean([one.rates for one in scores.of(name)], axis=0))
        assert np.isnan(drawn[1, 2:]).all()
        assert len(panels[name].texts) == (~np.isnan(drawn)).sum()


def test_performance_is_the_mean_over_the_tasks_so_far_where_all_of_them_were_played(scores):
    frame = RUN.evaluations
    # As our runs have it: up to the task that was trained and the next; earlier ones after every second task alone.
    near = (frame["task"] == frame["after"]) | (frame["task"] == frame["after"] + 1)
    so_far = score(frame[(frame["task"] <= frame["after"] + 1) & ((frame["after"] % 2 == 0) | near)])
    line = next(line for line in draw_performance(so_far).axes[0].lines if line.get_label() == "kept")
    whole = np.mean(
        [[row[:after].mean() for after, row in enumerate(one.rates) if after] for one in scores.of("kept")], 0
    )
    assert line.get_xdata().tolist() == [1, 2, 4]
    np.testing.assert_allclose(line.get_ydata(), whole[[0, 1, 3]])
    assert draw_performance(score(frame[frame["after"] == 4])) is None


def test_a_metric_by_task_has_a_point_for_each_method_that_has_it(scores):
    figure = draw_by_task(scores, "forward_transfer", "Forward transfer")
    assert [one.get_label() for one in figure.axes[0].containers] == ["kept", "newest"]
    points = np.asarray(figure.axes[0].containers[1].lines[0].get_xydata())
    np.testing.assert_allclose(points[:, 1], scores.scores["forward_transfer", "newest"].parts.mean(axis=0))
    none = score(RUN.evaluations[RUN.evaluations["method"] != "scratch"])
    assert draw_by_task(none, "forward_transfer", "Forward transfer") is None


def test_costs_that_differ_widely_are_drawn_on_a_logarithmic_scale(scores):
    def spreads(**means):
        rows = [(name, seed, mean * (1.0 + 0.1 * (seed == 1))) for name, mean in means.items() for seed in range(3)]
        return summary(pd.DataFrame(rows, columns=["method", "seed", "value"]), ["method"], "value")

    alike = spreads(kept=1e6, newest=2e6)
    figure = draw_costs(scores, {"bytes": spreads(kept=1e3, newest=1e6), "decisions": alike, "ticks": spreads()})
    assert [axes.get_xscale() for axes in figure.axes] == ["log", "linear"]
    assert draw_costs(scores, {"bytes": spreads()}) is None
