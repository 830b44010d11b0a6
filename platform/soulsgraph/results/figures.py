"""The style of every figure, curves over seeds and over steps, and figures as PNG files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from soulsgraph.results.seeds import SeedCurves
from soulsgraph_envs.core.files import whole_file

# Okabe and Ito's palette (2008), without yellow, which is faint on white.
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
PALETTE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
INK, GREY, LIGHT = "#222222", "#767676", "#DDDDDD"
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


@styled
def draw_run_curves(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Draw the learning curves of runs by name, a part for every skill, the stages of a skill one after another."""
    skills = list(dict.fromkeys(row["skill"] for rows in runs.values() for row in rows))
    columns = min(len(skills), 3)
    height = -(-len(skills) // columns)
    figure = Figure(figsize=(3.8 * columns, 2.9 * height + 0.4))
    grid = figure.subplots(height, columns, squeeze=False)
    for axes, skill in zip_longest(grid.flat, skills):
        if skill is None:
            axes.axis("off")
            continue
        for rows, colour in zip(runs.values(), PALETTE, strict=False):
            _draw_stages(axes, [row for row in rows if row["skill"] == skill], colour)
        axes.set_title(skill.replace("_", " "), loc="left")
        axes.set(xlabel="thousand decisions", ylabel="return of an episode")
    if len(runs) > 1:
        handles = [
            Line2D([], [], color=colour, label=_literal(name)) for name, colour in zip(runs, PALETTE, strict=False)
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=1)
    return figure


def _draw_stages(axes: Axes, rows: Sequence[Mapping[str, Any]], colour: str) -> None:
    stages, done = dict.fromkeys(row["stage"] for row in rows), 0.0
    for stage in stages:
        points = sorted((row for row in rows if row["stage"] == stage), key=lambda row: row["step"])
        steps = done + np.array([row["step"] for row in points], float) / 1_000.0
        low, high = (np.array([row.get(end, np.nan) for row in points], float) for end in ("low", "high"))
        axes.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0.0)
        axes.plot(steps, [row["return"] for row in points], "o-", color=colour, linewidth=1.6, markersize=2.5)
        done = float(steps[-1])


def _literal(text: str) -> str:
    """Return text in which no character begins a formula."""
    return text.replace("$", r"\$")
