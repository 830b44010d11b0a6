"""The report's figures: win rates of Table 1 as points, learning curves, and their style."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from soulsgraph.paper.records import BEYOND_PAPER, ROW_RANGES, Reproduction, paper_rate
from soulsgraph.results.figures import (
    BLUE,
    GREEN,
    GREY,
    INK,
    LIGHT,
    ORANGE,
    PALETTE,
    PURPLE,
    VERMILION,
    draw_seeds,
    draw_spread,
    styled,
)
from soulsgraph.results.seeds import SeedCurves, seed_curves
from soulsgraph.results.statistics import clopper_pearson_interval
from soulsgraph.runs.evaluate import EPISODES, TABLE_1
from soulsgraph_envs.skills import END_TO_END, SKILL_NAMES

#: Points that a moving average is over.
_PERIODS = 10
#: Height of a row's part that points take, of the whole row's 1.
_LANE = 0.62
SKILL_COLOURS = {"camera": BLUE, "lock_on": ORANGE, "movement": GREEN, "dodge": VERMILION, "heal_attack": PURPLE}
PHASE_1, PHASE_2 = TABLE_1[0].scenario, TABLE_1[-1].scenario
#: Mean length of the paper's dodge episodes at the start and at the end of training (Appendix D.1).
PAPER_DODGE_LENGTHS = (150.0, 300.0)
_BASELINES = {"end_to_end": ("250k-step budget", BLUE), "end_to_end_long": ("500k-step budget", ORANGE)}


@styled
def draw_win_rates(reproductions: Sequence[Reproduction]) -> Figure | None:
    """Draw every seed's win rate in each row of Table 1, with the paper's and its interval; None without a row."""
    if not any(row.label in item.setting for row in TABLE_1 for item in reproductions):
        return None
    lane = _LANE / len(reproductions)
    figure = Figure(figsize=(9.5, 1.6 + (0.38 + 0.3 * len(reproductions)) * len(TABLE_1)))
    axes = figure.subplots()
    for place, row in enumerate(TABLE_1):
        if any(item.preset not in BEYOND_PAPER for item in reproductions):
            low, high = max(ROW_RANGES[row.label].low, 0.0), min(ROW_RANGES[row.label].high, 100.0)
            axes.fill_betweenx([place - 0.42, place + 0.42], low, high, color=LIGHT, alpha=0.6, linewidth=0.0, zorder=1)
        assert row.paper_percent is not None, "every row of Table 1 has one"
        paper = paper_rate(row.paper_percent)
        exact = clopper_pearson_interval(paper.wins, paper.episodes).scaled(100.0)
        axes.plot(exact, [place - 0.32] * 2, color=INK, linewidth=1.2, zorder=2)
        axes.plot(row.paper_percent, place - 0.32, "D", color=INK, markersize=5.0, zorder=3)
        for index, item in enumerate(reproductions):
            if row.label in item.setting:
                height, colour = place + lane * (index + 0.5) - 0.22, PALETTE[index % len(PALETTE)]
                draw_spread(axes, height, lane / 10.0, item.setting[row.label].spread, colour)
    axes.set_yticks(range(len(TABLE_1)), [row.label for row in TABLE_1])
    axes.set(xlabel="win rate in %", xlim=(-2.0, 102.0), ylim=(len(TABLE_1) - 0.45, -0.55))
    axes.grid(visible=False, axis="y")
    axes.set_title("Table 1: every seed beside the paper", loc="left")
    handles = [
        Line2D([], [], marker="D", color=INK, markersize=5.0, linewidth=1.2, label="paper, exact 95 % interval"),
        Patch(color=LIGHT, alpha=0.6, label="expected range of the median, paper and fast"),
        Line2D([], [], marker="o", color=GREY, markerfacecolor="none", linestyle="none", label="one seed"),
        Line2D([], [], marker="|", color=GREY, markersize=12.0, markeredgewidth=2.6, linestyle="none", label="median"),
        Line2D([], [], color=GREY, linewidth=3.0, alpha=0.35, label="95 % t interval of the mean"),
        *(Patch(color=PALETTE[i % len(PALETTE)], label=item.title) for i, item in enumerate(reproductions)),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


@styled
def draw_skill_returns(reproduction: Reproduction) -> Figure | None:
    """Draw return over steps of the five skills (Figures 2 and 3); None without a curve."""
    if seed_curves(reproduction.curves, "episode_return", unit="skills") is None:
        return None
    figure = Figure(figsize=(11.0, 6.2))
    grid = figure.subplots(2, 3)
    for axes, skill in zip(grid.flat, SKILL_NAMES, strict=False):
        axes.set(title=skill.replace("_", "-"), xlabel="thousand decisions")
        end = 0.0
        for scenario in (PHASE_1, PHASE_2):
            place = {"unit": "skills", "skill": skill, "scenario": scenario}
            curves = seed_curves(reproduction.curves, "episode_return", **place)
            if curves is None:
                continue
            if end:
                axes.axvline(end / 1_000.0, color=INK, linestyle="--", linewidth=1.2, zorder=5)
            draw_seeds(axes, curves, SKILL_COLOURS[skill], scenario, offset=end)
            # One seed has no interval over seeds; the paper's own, over the episodes of its one agent, stands in.
            low, high = (seed_curves(reproduction.curves, column, **place) for column in ("low", "high"))
            if len(curves.seeds) == 1 and low and high and low.steps.shape == high.steps.shape:
                bounds = (low.values[0], high.values[0])
                steps = (low.steps + end) / 1_000.0
                axes.fill_between(steps, *bounds, color=SKILL_COLOURS[skill], alpha=0.2, linewidth=0.0)
            end += float(curves.steps[-1])
    for axes in (grid[0, 0], grid[1, 0]):
        axes.set_ylabel("return of an episode")
    _explain(grid[1, 2], reproduction)
    figure.suptitle(f"Return while learning (Figures 2 and 3): {_whose(reproduction)}")
    return figure


@styled
def draw_baseline(reproduction: Reproduction) -> Figure | None:
    """Draw return and episode length of the end-to-end baseline while it trains (Figure 5); None without it.

    Lengths are drawn in decisions, as in the paper, and in seconds of game time, which measure survival.
    """
    if not any(seed_curves(reproduction.training, "episode_return", unit=unit) for unit in _BASELINES):
        return None
    figure = Figure(figsize=(14.0, 4.2))
    quantities = {"return": "return", "length": "decisions", "seconds": "seconds"}
    for axes, (quantity, label) in zip(figure.subplots(1, 3), quantities.items(), strict=True):
        for unit, (budget, colour) in _BASELINES.items():
            raw = seed_curves(reproduction.training, f"episode_{quantity}", unit=unit, skill=END_TO_END)
            if raw is None:
                continue
            averages = pd.DataFrame(raw.values.T).rolling(_PERIODS, 1).mean().to_numpy().T
            smooth = SeedCurves(raw.seeds, raw.steps, averages)
            shade = " with its 95 % t interval" if smooth.interval else ""
            mean = f"{budget}: mean over seeds"
            axes.plot(raw.steps / 1_000.0, raw.mean, ":", color=colour, alpha=0.5, linewidth=0.9, label=mean, zorder=3)
            draw_seeds(axes, smooth, colour, f"{budget}: {_PERIODS}-period average{shade}")
        axes.set(xlabel="thousand decisions", ylabel=f"{label} of an episode")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.suptitle(f"End-to-end baseline while training (Figure 5): {_whose(reproduction)}")
    return figure


@styled
def draw_dodge_lengths(reproduction: Reproduction) -> Figure | None:
    """Draw how long dodge's episodes last, in decisions (Figure 6) and in seconds; None without a curve."""
    place = {"unit": "skills", "skill": "dodge", "scenario": PHASE_1}
    training = seed_curves(reproduction.training, "episode_length", **place)
    if training is None and seed_curves(reproduction.curves, "length", **place) is None:
        return None
    figure = Figure(figsize=(13.0, 4.4))
    for axes, unit in zip(figure.subplots(1, 2), ("length", "seconds"), strict=True):
        greedy = seed_curves(reproduction.curves, unit, **place)
        training = seed_curves(reproduction.training, f"episode_{unit}", **place)
        if greedy:
            draw_seeds(axes, greedy, SKILL_COLOURS["dodge"], f"greedy, {EPISODES} episodes a checkpoint")
        if training:
            draw_seeds(axes, training, BLUE, "while training, exploring")
        for policy, dashes in (("random", "--"), ("idle", "-.")):
            if len(measured := reproduction.measured(f"dodge {unit} {policy}")):
                label = f"{policy if policy == 'random' else 'no'} dodging, mean over seeds"
                axes.axhline(measured.mean(), color=INK, linestyle=dashes, linewidth=1.4, label=label)
        for length in PAPER_DODGE_LENGTHS if unit == "length" else ():
            papers = "paper: from about 150 to 300" if length == PAPER_DODGE_LENGTHS[0] else None
            axes.axhline(length, color=GREY, linestyle=":", linewidth=1.2, label=papers)
        what = "decisions" if unit == "length" else "seconds"
        axes.set(xlabel="thousand decisions", ylabel=f"{what} of an episode", ylim=(0.0, None))
    figure.suptitle(f"Length of dodge episodes (Figure 6): {_whose(reproduction)}")
    title = "mean over seeds,\n95 % t interval shaded" if len(reproduction.seeds) > 1 else None
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", title=title, alignment="left")
    return figure


def _explain(axes: Axes, reproduction: Reproduction) -> None:
    axes.axis("off")
    several = len(reproduction.seeds) > 1
    shade = "95 % t interval over seeds" if several else f"95 % interval over its {EPISODES} episodes"
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=GREY, linewidth=1.8, label="mean over seeds" if several else "the one seed"),
        Patch(color=GREY, alpha=0.25, linewidth=0.0, label=shade),
    ]
    if several:
        handles.append(Line2D([], [], color=GREY, alpha=0.6, linewidth=0.6, label="single seeds"))
    if seed_curves(reproduction.curves, "episode_return", unit="skills", scenario=PHASE_2):
        handles.append(Line2D([], [], color=INK, linestyle="--", linewidth=1.2, label="Phase 1 to 2 (fine-tuning)"))
    axes.legend(handles=handles, loc="center left", fontsize=10, title_fontsize=10, alignment="left",
                title=f"greedy play, {EPISODES} episodes a checkpoint")  # fmt: skip


def _whose(reproduction: Reproduction) -> str:
    return f"{reproduction.title}, {reproduction.seeds_told}"
