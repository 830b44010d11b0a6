"""One look for every figure: colours that colour-blind readers tell apart, sizes, and how a picture is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from soulsgraph.reports.seed_curves import SeedCurves
from soulsgraph_policies.atomic import whole_file

# Okabe and Ito's palette (2008), without yellow, which is faint on white.
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
PALETTE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
INK, GREY, LIGHT = "#222222", "#767676", "#DDDDDD"
SKILL_COLOURS = {"camera": BLUE, "lock_on": ORANGE, "movement": GREEN, "dodge": VERMILION, "heal_attack": PURPLE}

#: Matplotlib types the keys as literals; `Any` spares a copy of that list.
STYLE: dict[Any, Any] = {
    "font.size": 10.0,
    "axes.titlesize": 11.0,
    "axes.labelsize": 10.0,
    "legend.fontsize": 9.0,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#EBEBEB",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 130.0,
    "figure.dpi": 130.0,
}


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


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG.

    Raises:
        WriteError: if the place cannot be written.
    """
    with rc_context(STYLE), whole_file(path) as temporary:
        figure.savefig(temporary, format="png", facecolor="white", metadata={"Software": "soulsgraph"})
