"""The picture of a sweep: every setting's seeds, and their mean with its interval."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from soulsgraph.results.figures import BLUE, draw_spread, literal, styled
from soulsgraph.results.seeds import SeedsTable, SeedValues
from soulsgraph.tune.folder import WIN_RATE

#: Settings that are drawn, the best ones.
_MOST = 30


@styled
def draw_settings(table: SeedsTable, metric: str) -> Figure:
    """Draw the settings of a table over seeds, the best at the top, by a figure of its rows."""
    drawn, scale = [*reversed(table.summary[:_MOST])], 100.0 if metric == WIN_RATE else 1.0
    figure = Figure(figsize=(7.5, 0.9 + 0.4 * len(drawn)))
    axes = figure.subplots()
    for height, setting in enumerate(drawn):
        rows = [row for row in table.by_seed if all(row[name] == setting[name] for name in table.keys)]
        values = SeedValues({row["seed"]: scale * row[metric] for row in rows})
        draw_spread(axes, height, 0.1, values, BLUE)
    labels = [", ".join(f"{name} {_short(one[name])}" for name in table.keys) for one in drawn]
    axes.set_yticks(range(len(drawn)), [literal(label) for label in labels])
    axes.set(xlabel="win rate, %" if metric == WIN_RATE else "mean return", ylim=(-0.7, len(drawn) - 0.3))
    return figure


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
