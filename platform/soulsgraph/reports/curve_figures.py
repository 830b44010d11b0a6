"""The learning curves of the paper's Figures 2, 3, 5 and 6, over several seeds."""

from __future__ import annotations

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from soulsgraph.curves import EPISODES
from soulsgraph.reports.figure_style import BLUE, GREY, INK, ORANGE, SKILL_COLOURS, STYLE, draw_seeds
from soulsgraph.reports.reproduction_records import Reproduction
from soulsgraph.reports.seed_curves import SeedCurves, moving_average, seed_curves
from soulsgraph.table_1 import TABLE_1
from soulsgraph_envs.skills import END_TO_END, SKILL_NAMES

PHASE_1, PHASE_2 = TABLE_1[0].scenario, TABLE_1[-1].scenario
#: Mean length of the paper's dodge episodes at the start and at the end of training (Appendix D.1).
PAPER_DODGE_LENGTHS = (150.0, 300.0)
_PERIODS = 10
_SHADED = "mean over seeds,\n95 % t interval shaded"
_BASELINES = {"end_to_end": ("250k-step budget", BLUE), "end_to_end_long": ("500k-step budget", ORANGE)}


def draw_skill_returns(reproduction: Reproduction) -> Figure | None:
    """Draw return over steps of the five skills (Figures 2 and 3); None without a curve."""
    if seed_curves(reproduction.curves, "episode_return", unit="skills") is None:
        return None
    with rc_context(STYLE):
        figure = Figure(figsize=(11.0, 6.2))
        grid = figure.subplots(2, 3)
        for axes, skill in zip(grid.flat, SKILL_NAMES, strict=False):
            _draw_skill(axes, reproduction, skill)
        for axes in (grid[0, 0], grid[1, 0]):
            axes.set_ylabel("return of an episode")
        _explain(grid[1, 2], reproduction)
        figure.suptitle(f"Return while learning (Figures 2 and 3): {_whose(reproduction)}")
    return figure


def draw_baseline(reproduction: Reproduction) -> Figure | None:
    """Draw return and episode length of the end-to-end baseline while it trains (Figure 5); None without it.

    Lengths are drawn in decisions, as in the paper, and in seconds of game time, which survival is.
    """
    columns = {
        "episode_return": "return of an episode",
        "episode_length": "decisions of an episode",
        "episode_seconds": "seconds of an episode",
    }
    if not any(seed_curves(reproduction.training, "episode_return", unit=unit) for unit in _BASELINES):
        return None
    with rc_context(STYLE):
        figure = Figure(figsize=(14.0, 4.2))
        for axes, (column, label) in zip(figure.subplots(1, 3), columns.items(), strict=True):
            for unit, (budget, colour) in _BASELINES.items():
                raw = seed_curves(reproduction.training, column, unit=unit, skill=END_TO_END)
                if raw:
                    _draw_smoothed(axes, raw, colour, budget)
            axes.set(xlabel="thousand decisions", ylabel=label)
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        figure.suptitle(f"End-to-end baseline while training (Figure 5): {_whose(reproduction)}")
    return figure


def draw_dodge_lengths(reproduction: Reproduction) -> Figure | None:
    """Draw how long dodge's episodes last, in decisions (Figure 6) and in seconds; None without a curve."""
    place = {"unit": "skills", "skill": "dodge", "scenario": PHASE_1}
    training = seed_curves(reproduction.training, "episode_length", **place)
    if training is None and seed_curves(reproduction.curves, "length", **place) is None:
        return None
    with rc_context(STYLE):
        figure = Figure(figsize=(13.0, 4.4))
        for axes, unit in zip(figure.subplots(1, 2), ("length", "seconds"), strict=True):
            _draw_survival(axes, reproduction, unit, place)
        figure.suptitle(f"Length of dodge episodes (Figure 6): {_whose(reproduction)}")
        shaded = len(reproduction.seeds) > 1
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper", title=_SHADED if shaded else None, alignment="left")
    return figure


def _draw_survival(axes: Axes, reproduction: Reproduction, unit: str, place: dict[str, str]) -> None:
    greedy = seed_curves(reproduction.curves, unit, **place)
    training = seed_curves(reproduction.training, f"episode_{unit}", **place)
    if greedy:
        draw_seeds(axes, greedy, SKILL_COLOURS["dodge"], f"greedy, {EPISODES} episodes a checkpoint")
    if training:
        draw_seeds(axes, training, BLUE, "while training, exploring")
    for policy, style in (("random", "--"), ("idle", "-.")):
        measured = reproduction.measure.get(f"dodge {unit} {policy}")
        if measured:
            label = f"{policy if policy == 'random' else 'no'} dodging, mean over seeds"
            axes.axhline(measured.mean, color=INK, linestyle=style, linewidth=1.4, label=label)
    for length in PAPER_DODGE_LENGTHS if unit == "length" else ():
        papers = "paper: from about 150 to 300" if length == PAPER_DODGE_LENGTHS[0] else None
        axes.axhline(length, color=GREY, linestyle=":", linewidth=1.2, label=papers)
    what = "decisions" if unit == "length" else "seconds"
    axes.set(xlabel="thousand decisions", ylabel=f"{what} of an episode", ylim=(0.0, None))


def _draw_skill(axes: Axes, reproduction: Reproduction, skill: str) -> None:
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
        if len(curves.seeds) == 1:
            _draw_episode_interval(axes, reproduction, place, end)
        end += float(curves.steps[-1])


def _draw_episode_interval(axes: Axes, reproduction: Reproduction, place: dict[str, str], offset: float) -> None:
    # One seed has no interval over seeds; the paper's own, over the episodes of its one agent, stands in.
    low, high = (seed_curves(reproduction.curves, column, **place) for column in ("low", "high"))
    if low and high and low.steps.shape == high.steps.shape:
        steps = (low.steps + offset) / 1_000.0
        colour = SKILL_COLOURS[place["skill"]]
        axes.fill_between(steps, low.values[0], high.values[0], color=colour, alpha=0.2, linewidth=0.0)


def _draw_smoothed(axes: Axes, raw: SeedCurves, colour: str, label: str) -> None:
    smooth = SeedCurves(raw.seeds, raw.steps, moving_average(raw.values, _PERIODS))
    steps = raw.steps / 1_000.0
    axes.plot(
        steps,
        raw.mean,
        color=colour,
        alpha=0.5,
        linewidth=0.9,
        linestyle=":",
        label=f"{label}: mean over seeds",
        zorder=3,
    )
    shade = " with its 95 % t interval" if smooth.interval else ""
    draw_seeds(axes, smooth, colour, f"{label}: {_PERIODS}-period average{shade}")


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
