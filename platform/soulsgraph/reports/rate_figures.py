"""Win rates of Table 1 as points, one a seed, beside the paper's."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from soulsgraph.reports.bands import BEYOND_PAPER, ROW_BANDS
from soulsgraph.reports.figure_style import GREY, INK, LIGHT, PALETTE, STYLE
from soulsgraph.reports.paper import paper_rate
from soulsgraph.reports.reproduction_records import Reproduction
from soulsgraph.reports.seed_statistics import Spread
from soulsgraph.table_1 import TABLE_1

#: Height of a row's part that points take, of the whole row's 1.
_LANE = 0.62
#: Points closer than this, in percent, are set apart.
_CROWDED = 0.9


def draw_win_rates(reproductions: Sequence[Reproduction]) -> Figure | None:
    """Draw every seed's win rate in each row of Table 1, with the paper's and its interval; None without a row."""
    if not any(row.label in item.setting for row in TABLE_1 for item in reproductions):
        return None
    lane = _LANE / len(reproductions)
    evaluated = any(item.preset not in BEYOND_PAPER for item in reproductions)
    with rc_context(STYLE):
        figure = Figure(figsize=(9.5, 1.6 + (0.38 + 0.3 * len(reproductions)) * len(TABLE_1)))
        axes = figure.subplots()
        for place, row in enumerate(TABLE_1):
            if evaluated:
                _draw_band(axes, place, row.label)
            _draw_paper(axes, place, row.paper_percent)
            for index, item in enumerate(reproductions):
                if row.label in item.setting:
                    height, colour = place + lane * (index + 0.5) - 0.22, PALETTE[index % len(PALETTE)]
                    _draw_spread(axes, height, lane / 10.0, item.setting[row.label].spread, colour)
        axes.set_yticks(range(len(TABLE_1)), [row.label for row in TABLE_1])
        axes.set(xlabel="win rate in %", xlim=(-2.0, 102.0), ylim=(len(TABLE_1) - 0.45, -0.55))
        axes.grid(visible=False, axis="y")
        axes.set_title("Table 1: every seed beside the paper", loc="left")
        figure.legend(handles=_legend(reproductions), loc="outside lower center", ncols=3)
    return figure


def _draw_band(axes: Axes, place: int, label: str) -> None:
    band = ROW_BANDS[label]
    low, high = max(band.low, 0.0), min(band.high, 100.0)
    axes.fill_betweenx([place - 0.42, place + 0.42], low, high, color=LIGHT, alpha=0.6, linewidth=0.0, zorder=1)


def _draw_paper(axes: Axes, place: int, percent: float) -> None:
    low, high = paper_rate(percent).clopper_pearson
    axes.plot([low, high], [place - 0.32] * 2, color=INK, linewidth=1.2, zorder=2)
    axes.plot(percent, place - 0.32, marker="D", color=INK, markersize=5.0, linestyle="none", zorder=3)


def _draw_spread(axes: Axes, height: float, step: float, spread: Spread, colour: str) -> None:
    low, high = spread.mean_interval
    if math.isfinite(low):
        axes.plot([low, high], [height] * 2, color=colour, linewidth=3.0, alpha=0.35, zorder=3, solid_capstyle="butt")
    axes.plot(
        spread.values, height + step * _swarm(spread.values), marker="o", markersize=4.5, linestyle="none",
        color=colour, markerfacecolor="none", markeredgewidth=1.0, zorder=4,
    )  # fmt: skip
    axes.plot(
        spread.median,
        height,
        marker="|",
        markersize=15.0,
        markeredgewidth=2.6,
        linestyle="none",
        color=colour,
        zorder=5,
    )


def _swarm(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return each point the steps it is lifted by, so that close ones lie above and below each other; (points,)."""
    heights = np.zeros(values.size)
    for index, value in enumerate(values):
        crowd = int((abs(values[:index] - value) < _CROWDED).sum())
        heights[index] = ((crowd + 1) // 2) * (-1.0) ** crowd
    return heights


def _legend(reproductions: Sequence[Reproduction]) -> list[Line2D | Patch]:
    handles: list[Line2D | Patch] = [
        Line2D([], [], marker="D", color=INK, markersize=5.0, linewidth=1.2, label="paper, exact 95 % interval"),
        Patch(color=LIGHT, alpha=0.6, label="aim for the median of paper and fast"),
        Line2D([], [], marker="o", color=GREY, markerfacecolor="none", linestyle="none", label="one seed"),
        Line2D([], [], marker="|", color=GREY, markersize=12.0, markeredgewidth=2.6, linestyle="none", label="median"),
        Line2D([], [], color=GREY, linewidth=3.0, alpha=0.35, label="95 % t interval of the mean"),
    ]
    colours = [PALETTE[index % len(PALETTE)] for index in range(len(reproductions))]
    handles += [Patch(color=colour, label=item.title) for colour, item in zip(colours, reproductions, strict=True)]
    return handles
