"""The report of a scenario's fidelity: Markdown, a page of HTML and JSON, with figures, all from its measurements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from soulsgraph.calibrate.comparison import BETWEEN, HORIZONS_S, MEASURES, WITHIN, FightComparison
from soulsgraph.calibrate.fidelity import (
    Fidelity,
    ScenarioFidelity,
    behaviour_table,
    error_table,
    move_table,
    struck_table,
    win_table,
)
from soulsgraph.pages.report import Report, Section
from soulsgraph.results.figures import BLUE, LIGHT, PALETTE, VERMILION, literal, styled
from soulsgraph.results.origin import describe_origin
from soulsgraph_envs.combat.rollout import Doubles

#: Moves that a figure tells apart; the others are drawn as one.
_MOST_MOVES = len(PALETTE)
_OTHERS = "others"
#: Quantities beside each other in a figure.
_PANELS = 3


def write_fidelity(folder: Path, fidelity: Fidelity) -> Path:
    """Write the report into a folder and return its Markdown file; raises WriteError."""
    report = Report("How wrong the simulator is", [*_sections(fidelity)])
    return report.write(folder, describe_origin() | fidelity.to_dict(), {})


def _sections(fidelity: Fidelity) -> Iterator[Section]:
    """Yield the parts of the report in order."""
    scenarios = fidelity.scenarios
    floors = [f"{one.scenario}: {one.floor_fights} simulated fights of {one.floor_players}" for one in scenarios]
    yield Section(
        "What was compared",
        (
            f"{fidelity.recorded}.",
            "Recorded rows were put into the simulator, and the recorded controls played on from there. What a row "
            "does not show was guessed from the rows before it. The floor is the same measured on fights that the "
            f"simulator itself fought by the same scenario: {'; '.join(floors)}.",
            "Rows of one fight follow each other closely, so that the number of rows is not a number of independent "
            "ones.",
        ),
    )
    drawn = {"errors.png": draw_errors(scenarios)}
    yield Section("Errors within a move", (_CELL,), (error_table(scenarios, WITHIN),), drawn)
    yield Section("Errors between moves", (_CELL,), (error_table(scenarios, BETWEEN),))
    yield Section("Blows", (_STRUCK,), (struck_table(scenarios),))
    yield Section("Distributions", (_APART,), (behaviour_table(scenarios),))
    for place, one in enumerate(scenarios):
        pictures = {
            f"moves-{place}.png": draw_moves(one.measured),
            f"distributions-{place}.png": draw_distributions(one.measured),
        }
        yield Section(f"Moves in {one.scenario}", (_MOVES,), (move_table(one.measured),), pictures)
    yield Section("Win rates", (_WINS,), (win_table(scenarios),))
    origin = describe_origin()
    yield Section("How this was made", (f"Commit {origin['commit'] or 'unknown'}.",))


_CELL = "The median, the 90th percentile and the mean of the error, or the share of rows; the floor in brackets."
_STRUCK = (
    "Rows within a move in which the player was struck before the time was up: in both of those struck in either; the "
    "floor in brackets."
)
_APART = (
    "What followed each recorded move was drawn four times, by the recorded controls. Moves by distance: total "
    "variation distance, the mean over bins of the recorded distances. Waits and damage: Wasserstein distance. Small "
    "samples alone lie apart: compare with the floor."
)
_MOVES = "Struck: the share of moves of which a blow arrived. Damage: the median of what such a move cost."
_WINS = "Recorded fights won, and what the same player wins in the scenario, with 95 % Wilson intervals."


@styled
def draw_errors(scenarios: Sequence[ScenarioFidelity]) -> Figure:
    """Draw the 90th percentile of each error within a move over time: of each scenario, its floor dotted."""
    shown = [name for name in MEASURES if any(_tops(one.measured, name).size for one in scenarios)]
    height = -(-max(len(shown), 1) // _PANELS)
    figure = Figure(figsize=(3.4 * _PANELS, 2.9 * height + 0.5))
    grid = figure.subplots(height, _PANELS, squeeze=False)
    for axes, name in zip_longest(grid.flat, shown):
        if name is None:
            axes.axis("off")
            continue
        for place, one in enumerate(scenarios):
            colour = PALETTE[place % len(PALETTE)]
            for comparison, dashes, label in ((one.measured, "o-", ""), (one.floor, "o:", ", floor")):
                tops = _tops(comparison, name)
                axes.plot(
                    tops[:, 0], tops[:, 1], dashes, color=colour, markersize=3.5, label=literal(one.scenario) + label
                )
        axes.set_title(MEASURES[name].title, loc="left")
        axes.set(xlabel="seconds after the row", ylabel=f"90 % of errors below, {MEASURES[name].unit}")
        # What is rounding alone is not drawn as if it were an error.
        axes.set_ylim(0.0, max(axes.get_ylim()[1], 0.1 ** MEASURES[name].digits))
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _tops(comparison: FightComparison, name: str) -> Doubles:
    """Return the 90th percentile of an error within a move by horizon, (horizons that are known, 2)."""
    found = [(at, comparison.spans[WITHIN, at].summary(name)["p90"]) for at in HORIZONS_S]
    return np.array([(at, top) for at, top in found if top is not None], np.float64).reshape(-1, 2)


@styled
def draw_moves(comparison: FightComparison) -> Figure | None:
    """Draw which moves began in each bin of distance, recorded beside simulated; None where none did."""
    titles = comparison.titles
    if not len(comparison.recorded.titles):
        return None
    counts = [(comparison.recorded.titles == title).sum() for title in titles]
    shown = [titles[place] for place in np.argsort(counts)[::-1][:_MOST_MOVES]]
    recorded, simulated = (comparison.shares(one) for one in (comparison.recorded, comparison.simulated))
    figure = Figure(figsize=(8.5, 3.8))
    axes = figure.subplots()
    for offset, shares, alpha in ((-0.21, recorded, 1.0), (0.21, simulated, 0.55)):
        bottom = np.zeros(len(shares))
        for title, colour in zip_longest([*shown, _OTHERS], PALETTE[: len(shown)], fillvalue=LIGHT):
            own = [place for place, one in enumerate(titles) if one == title or (title == _OTHERS and one not in shown)]
            heights = np.nan_to_num(shares[:, own].sum(axis=1))
            axes.bar(
                np.arange(len(shares)) + offset, heights, 0.38, bottom, color=colour, alpha=alpha, edgecolor="white"
            )
            bottom += heights
    edges = [f"{edge:.1f}" for edge in comparison.bin_edges_m]
    labels = [f"{low} to {high} m" for low, high in pairwise(edges)]
    labels = [f"below {edges[0]} m", *labels, f"above {edges[-1]} m"] if edges else ["all"]
    axes.set_xticks(range(len(recorded)), labels)
    axes.set(ylabel="share of the moves begun", xlabel="distance as the move begins (left recorded, right simulated)")
    axes.grid(visible=False, axis="x")
    handles = [Patch(color=colour, label=literal(title)) for title, colour in zip(shown, PALETTE, strict=False)]
    figure.legend(handles=[*handles, Patch(color=LIGHT, label=_OTHERS)], loc="outside lower center", ncols=4)
    return figure


@styled
def draw_distributions(comparison: FightComparison) -> Figure | None:
    """Draw the shares of waits between moves, and of the damage of moves that struck, up to each value."""
    sides = comparison.recorded, comparison.simulated
    pairs = {
        "wait until the next move, s": [side.waits_s for side in sides],
        "damage of a move that struck, HP": [side.damage_hp for side in sides],
    }
    drawn = {label: pair for label, pair in pairs.items() if all(np.isfinite(one).any() for one in pair)}
    if not drawn:
        return None
    figure = Figure(figsize=(4.3 * len(drawn), 3.4))
    grid = figure.subplots(1, len(drawn), squeeze=False)[0]
    for axes, (label, (recorded, simulated)) in zip(grid, drawn.items(), strict=True):
        for values, colour, side in ((recorded, BLUE, "recorded"), (simulated, VERMILION, "simulated")):
            known = np.sort(values[np.isfinite(values)])
            shares = np.arange(1, len(known) + 1) / len(known)
            axes.step(known, shares, where="post", color=colour, label=side, linewidth=1.6)
        axes.set(xlabel=label, ylabel="share up to here", ylim=(0.0, 1.02))
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure
