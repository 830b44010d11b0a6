"""The style of every figure, values and curves over seeds, curves of runs, and figures as PNG files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from soulsgraph.results.seeds import SeedCurves, seed_values
from soulsgraph.results.statistics import mean_interval
from soulsgraph_envs.core.files import whole_file
from soulsgraph_policies.agents.projects import SkillGraph

# Okabe and Ito's palette (2008), without yellow, which is faint on white.
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
PALETTE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
INK, GREY, LIGHT = "#222222", "#767676", "#DDDDDD"
#: Points closer than this, in percent, are set apart.
_CROWDED = 0.9
#: Settings that one picture shows.
_MOST_SETTINGS = 30
#: Draws a figure in the style of every report.
styled = style.context(Path(__file__).with_name("report.mplstyle"))


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG.

    Raises:
        WriteError: if the place cannot be written.
    """
    with whole_file(path) as temporary:
        temporary.write_bytes(png_of(figure))


@styled
def png_of(figure: Figure) -> bytes:
    """Return a figure as the content of a PNG file of 256 colours, which is less than half as large as one of all."""
    drawn, content, said = BytesIO(), BytesIO(), PngInfo()
    figure.savefig(drawn, format="png", facecolor="white")
    said.add_text("Software", "soulsgraph")
    with Image.open(drawn) as picture:
        few = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        few.save(content, "PNG", optimize=True, pnginfo=said, dpi=picture.info["dpi"])
    return content.getvalue()


def draw_seeds(axes: Axes, curves: SeedCurves, colour: str, label: str, offset: float = 0.0) -> None:
    """Draw the mean over seeds with its t interval, and every seed as a thin line behind it.

    Steps are shown in thousands, counted from `offset` steps.
    """
    steps = (curves.steps + offset) / 1_000.0
    for values in curves.values if len(curves.seeds) > 1 else ():
        axes.plot(steps, values, color=colour, alpha=0.28, linewidth=0.6, zorder=2)
    if curves.interval:
        axes.fill_between(steps, *curves.interval, color=colour, alpha=0.25, linewidth=0.0, zorder=3)
    axes.plot(steps, curves.mean, color=colour, linewidth=1.8, label=label, zorder=4)


def draw_spread(axes: Axes, height: float, step: float, spread: pd.Series, colour: str) -> None:
    """Draw every seed's value as a point on a line, the median and the t interval of the mean.

    Points that would overlap are set apart by whole `step`s, in units of the height.
    """
    low, high = mean_interval(spread)
    if math.isfinite(low):
        axes.plot([low, high], [height] * 2, color=colour, linewidth=3.0, alpha=0.35, zorder=3, solid_capstyle="butt")
    values = spread.to_numpy()
    axes.plot(values, height + step * _swarm(values), "o", color=colour, mfc="none", ms=4.5, zorder=4)
    axes.plot(spread.median(), height, "|", color=colour, markersize=15.0, markeredgewidth=2.6, zorder=5)


@styled
def draw_settings(frame: pd.DataFrame, by: Sequence[str], value: str, label: str, scale: float = 1.0) -> Figure:
    """Draw a value of the first settings of a frame over seeds, the first at the top."""
    drawn = [*frame.groupby([*by], sort=False)][:_MOST_SETTINGS][::-1]
    figure = Figure(figsize=(7.5, 0.9 + 0.4 * len(drawn)))
    axes = figure.subplots()
    for height, (_, rows) in enumerate(drawn):
        draw_spread(axes, height, 0.1, scale * seed_values(rows, value), BLUE)
    keys = [[f"{one:.4g}" if isinstance(one, float) else one for one in key] for key, _ in drawn]
    names = [", ".join(f"{name} {one}" for name, one in zip(by, key, strict=True)) for key in keys]
    axes.set_yticks(range(len(drawn)), list(map(literal, names)))
    axes.set(xlabel=label, ylim=(-0.7, len(drawn) - 0.3))
    return figure


@styled
def draw_curves(panels: Mapping[str, Mapping[str, pd.DataFrame]], label: str) -> Figure | None:
    """Draw curves, by panel and name: frames with columns step, mean, low and high; None where there is none."""
    drawn = {title: curves for title, curves in panels.items() if curves}
    if not drawn:
        return None
    columns = min(len(drawn), 3)
    figure = Figure(figsize=(4.0 * columns + 0.6, 3.0 * -(-len(drawn) // columns) + 0.5))
    grid = figure.subplots(-(-len(drawn) // columns), columns, squeeze=False)
    places = {name: place for place, name in enumerate(dict.fromkeys(name for each in drawn.values() for name in each))}
    for axes in grid.flat[len(drawn) :]:
        axes.set_visible(False)
    for axes, (title, curves) in zip(grid.flat, drawn.items(), strict=False):
        for name, curve in curves.items():
            colour, dashes = PALETTE[places[name] % len(PALETTE)], "-" if places[name] < len(PALETTE) else "--"
            steps = curve["step"] / 1_000.0
            axes.fill_between(steps, curve["low"], curve["high"], color=colour, alpha=0.2, linewidth=0.0)
            axes.plot(steps, curve["mean"], dashes, color=colour, marker=".", label=literal(name))
        axes.set(title=literal(title), xlabel="thousand decisions", ylabel=label)
    known = {text: line for axes in figure.axes for line, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    if len(known) > 1:
        figure.legend([*known.values()], [*known], loc="outside lower center", ncols=2)
    return figure


@styled
def draw_graph(graph: SkillGraph, notes: Mapping[str, str]) -> Figure:
    """Draw a skill graph: what is trained later to the right, with a note below every skill's name."""
    depths: dict[str, int] = {}
    for skill in graph.order:
        depths[skill] = max((depths[before] + 1 for before, after in graph.edges if after == skill), default=0)
    columns = [[skill for skill, depth in depths.items() if depth == place] for place in {*depths.values()}]
    places = {skill: (depth, -columns[depth].index(skill)) for skill, depth in depths.items()}
    high = max(map(len, columns))
    figure = Figure(figsize=(2.0 * len(columns), 0.8 * high))
    axes = figure.subplots()
    for before, after in graph.edges:
        axes.annotate(
            "", places[after], places[before], arrowprops={"arrowstyle": "->", "color": GREY, "shrinkB": 48.0}
        )
    for skill, place in places.items():
        box = {"boxstyle": "round", "facecolor": "white", "edgecolor": BLUE}
        name = f"{skill.replace('_', ' ')}\n{notes.get(skill, '')}"
        axes.text(*place, literal(name), ha="center", va="center", fontsize=8.0, bbox=box)
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(0.5 - high, 0.5))
    axes.axis("off")
    return figure


def _swarm(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return how many steps each point is lifted, so that close points do not overlap, (points,)."""
    heights = np.zeros(values.size)
    for index, value in enumerate(values):
        crowd = int((abs(values[:index] - value) < _CROWDED).sum())
        heights[index] = ((crowd + 1) // 2) * (-1.0) ** crowd
    return heights


def literal(text: str) -> str:
    """Return text in which no character begins a formula."""
    return text.replace("$", r"\$")
