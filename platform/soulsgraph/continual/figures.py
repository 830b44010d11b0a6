"""Figures of continual learning: R, performance over the sequence, metrics by task, and costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import zip_longest

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter

from soulsgraph.continual.scoring import METRICS, ContinualScores
from soulsgraph.results.figures import GREY, INK, PALETTE, literal, styled
from soulsgraph.results.seeds import summary

#: Tasks up to which a heat map has its figures in it.
_READABLE = 10
#: Costs that differ by more than this factor are drawn on a logarithmic scale.
_WIDE = 5.0
_MAP, _DASHES, _MARKERS = "viridis", ("-", "--", ":"), "osD^vPX"


@styled
def draw_matrices(scores: ContinualScores) -> Figure:
    """Draw R of every method as a heat map, the mean over seeds; what was not played stays white."""
    names = scores.methods
    columns = min(len(names), 4)
    height = -(-len(names) // columns)
    side = 2.9 if scores.tasks <= _READABLE else 3.4
    figure = Figure(figsize=(side * columns + 0.9, (side + 0.1) * height + 0.3))
    grid = figure.subplots(height, columns, squeeze=False)
    for axes, name in zip_longest(grid.flat, names):
        if name is None:
            axes.axis("off")
            continue
        rates = np.mean([one.rates for one in scores.of(name)], axis=0)
        rows, tasks = rates.shape
        extent = (0.5, tasks + 0.5, rows - 0.5, -0.5)
        axes.imshow(rates, cmap=_MAP, vmin=0.0, vmax=1.0, extent=extent, aspect="auto")
        axes.set_title(literal(name), loc="left")
        axes.set_xlabel("task")
        axes.grid(visible=False)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        for (after, task), rate in np.ndenumerate(rates) if tasks <= _READABLE else ():
            if not math.isnan(rate):
                colour, text = "white" if rate < 0.6 else INK, f"{rate:.2f}".removeprefix("0")
                axes.text(task + 1, after, text, color=colour, ha="center", va="center", size=7)
    for axes in grid[:, 0]:
        axes.set_ylabel("after tasks")
    scale = ScalarMappable(Normalize(0.0, 1.0), _MAP)
    figure.colorbar(scale, ax=grid, label="win rate", shrink=0.85 / height, anchor=(0.0, 1.0), aspect=16)
    figure.suptitle("R: win rate in each task (columns) after each number of tasks (rows), mean over seeds")
    return figure


@styled
def draw_performance(scores: ContinualScores) -> Figure | None:
    """Draw the mean win rate over the tasks so far after each, with its interval over seeds; None without a line.

    A row that lacks one of these tasks is left out: it is no mean over all of them.
    """
    figure = Figure(figsize=(8.5, 4.6))
    axes = figure.subplots()
    drawn = False
    for place, name in enumerate(scores.methods):
        means = [[row[:after].mean() if after else math.nan for after, row in enumerate(one.rates)]
                 for one in scores.of(name)]  # fmt: skip
        rows = pd.DataFrame(means).dropna(axis=1).melt(var_name="after", ignore_index=False)
        if rows.empty:
            continue
        summed = summary(rows.reset_index(names="seed"), ["after"], "value")
        drawn |= len(summed) > 1
        x, dashes = summed["after"], _DASHES[place // len(PALETTE) % len(_DASHES)]
        axes.plot(x, summed["mean"], dashes, marker="o" if len(x) <= 2 * _READABLE else "", markersize=3.5,
                  color=_colour(place), label=literal(name), linewidth=1.7)  # fmt: skip
        if (summed["seeds"] > 1).all():
            low, high = summed["mean_low"], summed["mean_high"]
            axes.fill_between(x, low, high, color=_colour(place), alpha=0.15, linewidth=0.0)
    if not drawn:
        return None
    axes.set(xlabel="tasks finished", ylabel="mean win rate over these tasks", ylim=(-0.02, 1.02))
    title = "Performance over the sequence: mean over the tasks so far, 95 % t interval over seeds"
    return _with_legend(figure, axes, title)


@styled
def draw_by_task(scores: ContinualScores, metric: str, title: str) -> Figure | None:
    """Draw a metric by task for every method, with intervals over seeds; None where no method has it."""
    found = {name: scores.scores[metric, name] for name in scores.methods if len(scores.scores[metric, name].values)}
    if not found:
        return None
    figure = Figure(figsize=(max(8.5, min(0.28 * min(scores.tasks, _READABLE) * len(found), 16.0)), 4.4))
    axes = figure.subplots()
    for place, (name, score) in enumerate(found.items()):
        rows = score.parts.melt(var_name="task", ignore_index=False).dropna()
        summed = summary(rows.reset_index(names="seed"), ["task"], "value")
        x, number = summed["task"] + 0.7 * ((place + 0.5) / len(found) - 0.5), scores.methods.index(name)
        marker = _MARKERS[number // len(PALETTE) % len(_MARKERS)]
        axes.errorbar(x, summed["mean"], _errors(summed), fmt=marker, color=_colour(number), label=literal(name),
                      markersize=4.0, linewidth=1.1)  # fmt: skip
    axes.axhline(0.0, color=GREY, linewidth=0.9, zorder=1)
    axes.set(xlabel="task", ylabel=METRICS[metric].title, xlim=(0.4, scores.tasks + 0.6))
    axes.grid(visible=False, axis="x")
    return _with_legend(figure, axes, f"{title}: mean over seeds, 95 % t interval")


@styled
def draw_costs(scores: ContinualScores, costs: Mapping[str, pd.DataFrame]) -> Figure | None:
    """Draw the average performance against each cost in all, by its name, with intervals; None without a cost."""
    known = {cost: summed.set_index("method") for cost, summed in costs.items() if len(summed)}
    if not known:
        return None
    figure = Figure(figsize=(max(4.4 * len(known), 6.0), 4.6))
    grid = figure.subplots(1, len(known), sharey=True, squeeze=False)[0]
    for axes, (cost, summed) in zip(grid, known.items(), strict=True):
        for place, name in enumerate(scores.methods):
            if name in summed.index:
                x, y = summed.loc[[name]], pd.DataFrame([scores.scores["average_performance", name].columns])
                # Hollow and each of its own shape: all may cost the same.
                axes.errorbar(x["mean"], y["mean"], _errors(y), _errors(x), _MARKERS[place % len(_MARKERS)], mfc="none",
                              color=_colour(place), label=literal(name), capsize=2.0, markersize=7.0)  # fmt: skip
        means = [mean for name, mean in summed["mean"].items() if name in scores.methods]
        if 0.0 < min(means) < max(means) / _WIDE:
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.xaxis.set_minor_formatter(NullFormatter())
        else:
            axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(EngFormatter())
        axes.set_xlabel(cost)
    grid[0].set_ylabel("average performance")
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    figure.suptitle("Average performance against what it costs in all, 95 % t intervals over seeds")
    return figure


def _errors(summed: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Return how far each t interval reaches below and above its mean, (2, rows); 0 of one seed, which has none."""
    ends = np.array([summed["mean"] - summed["mean_low"], summed["mean_high"] - summed["mean"]])
    return np.where(np.isfinite(ends), ends, 0.0)


def _colour(place: int) -> str:
    return PALETTE[place % len(PALETTE)]


def _with_legend(figure: Figure, axes: Axes, title: str) -> Figure:
    axes.set_title(title, loc="left")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return figure
