"""Score methods of continual learning by their evaluations: each metric with its interval over seeds, and differences.

A seed is one observation: fights are never pooled over seeds. Differences between methods are taken within each seed,
on the same tasks; p values are those of paired t tests, adjusted for their number in each metric by Holm's rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from rich.console import RenderableType

from soulsgraph.continual.files import EVALUATIONS, SCRATCH, Trajectory, check_frame, trajectories
from soulsgraph.results import metrics, statistics
from soulsgraph.results.seeds import difference, difference_columns, figures_of
from soulsgraph.results.tables import Table, finite, number, seeds_text, with_interval
from soulsgraph_envs.core.errors import UnknownNameError

Values = npt.NDArray[np.float64]
Rows = list[dict[str, Any]]
#: The method that others are compared with, where it is there and none is named.
KEPT = "kept"
#: Columns of a curve's points.
_DECISIONS, _TICKS, _RATE = range(3)
_UNITS = {_DECISIONS: "decisions", _TICKS: "control ticks"}


@dataclass(frozen=True)
class CurveAreas:
    """The mean win rate in each task while it was trained, (tasks,), and that of training it from scratch, (tasks,)."""

    own: Values
    scratch: Values


@dataclass(frozen=True)
class Metric:
    """A metric: its name in files, what it is for people, who defined it, and its parts by task or pair of tasks.

    The value of a seed is the mean of the parts that are defined; nan where a cell of R that is `needed` was not
    played. The interquartile mean is over seeds and tasks where it is `by_task`, else over seeds alone.
    """

    name: str
    title: str
    source: str
    parts: Callable[[Trajectory, Mapping[int, CurveAreas]], Values]
    better: str = "higher"
    by_task: bool = True

    def of(self, one: Trajectory, areas: Mapping[int, CurveAreas]) -> Values:
        """Return the parts of a method's seed, (parts,); nan where one is not defined."""
        return self.parts(one, areas)

    @property
    def heading(self) -> str:
        """The title, with an arrow to where it is better."""
        return f"{self.title} {'↑' if self.better == 'higher' else '↓'}"


def _final(one: Trajectory, areas: Mapping[int, CurveAreas]) -> Values:
    return metrics.final_performance(one.matrix)


def _whole(values: Values, needed: Values) -> Values:
    """Return values where all cells that they are to be compared over were played, else nan of each."""
    return np.full_like(values, np.nan) if np.isnan(needed).any() else values


def _of_own(formula: Callable[[Values], Values]) -> Callable[..., Values]:
    """Return the parts by a formula that needs the end of each task's own training."""

    def parts(one: Trajectory, areas: Mapping[int, CurveAreas]) -> Values:
        return _whole(formula(one.matrix), np.diagonal(one.matrix))

    return parts


def _lower(matrix: Values) -> Values:
    return matrix[np.tril_indices(len(matrix))]


def _cora_forgetting(one: Trajectory, areas: Mapping[int, CurveAreas]) -> Values:
    pairs = metrics.isolated_forgetting(one.matrix, _known(one.untrained))
    return _whole(pairs[np.triu_indices(len(pairs), 1)], one.matrix)


def _cora_transfer(one: Trajectory, areas: Mapping[int, CurveAreas]) -> Values:
    pairs = metrics.zero_shot_forward_transfer(one.matrix, _known(one.untrained))
    return _whole(pairs[np.tril_indices(len(pairs), -1)], one.matrix)


def _known(untrained: Values) -> Values | None:
    return None if np.isnan(untrained).any() else untrained


def _transfer(formula: Callable[[Values, Values], Values], axis: int) -> Callable[..., Values]:
    def parts(one: Trajectory, areas: Mapping[int, CurveAreas]) -> Values:
        values = formula(areas[axis].own, areas[axis].scratch)
        # From scratch nothing is transferred; its 0 would say nothing.
        return np.full_like(values, np.nan) if one.method == SCRATCH else values

    return parts


_WORLD, _GEM, _CORA, _MEAL = "Continual World", "GEM", "CORA", "MEAL"
#: Those that are shown first, and by which methods are compared.
MAIN = (
    Metric("average_performance", "average performance", _WORLD, _final),
    Metric("forgetting", "forgetting", _WORLD, _of_own(metrics.forgetting), "lower"),
    Metric(
        "forward_transfer", "forward transfer, by decisions", _WORLD, _transfer(metrics.forward_transfer, _DECISIONS)
    ),
    Metric(
        "forward_transfer_ticks",
        "forward transfer, by control ticks",
        f"{_WORLD}, over control ticks",
        _transfer(metrics.forward_transfer, _TICKS),
    ),
    Metric("own_performance", "own end", "learning accuracy of Riemer et al.", _of_own(metrics.own_performance)),
)
#: Others, each under the name of who defined it.
OTHERS = (
    Metric(
        "forgetting_from_peak",
        "forgetting from the peak (Chaudhry)",
        "Chaudhry et al.",
        lambda one, _: _whole(metrics.forgetting_from_peak(one.matrix), one.matrix),
        "lower",
    ),
    Metric("backward_transfer", "backward transfer (GEM)", _GEM, _of_own(metrics.backward_transfer)),
    Metric(
        "zero_shot_transfer",
        "zero-shot transfer (GEM)",
        _GEM,
        lambda one, _: metrics.zero_shot_transfer(one.matrix, one.untrained),
    ),
    Metric(
        "plasticity_slope",
        "change of the own end a task",
        "least squares",
        lambda one, _: np.array([metrics.plasticity_slope(one.matrix)]),
        by_task=False,
    ),
    Metric("cora_isolated_forgetting", "isolated forgetting (CORA)", _CORA, _cora_forgetting, "lower", by_task=False),
    Metric("cora_zero_shot_transfer", "zero-shot forward transfer (CORA)", _CORA, _cora_transfer, by_task=False),
    Metric(
        "meal_forgetting",
        "weighted forgetting (MEAL)",
        _MEAL,
        lambda one, _: _whole(metrics.meal_forgetting(one.matrix), _lower(one.matrix)),
        "lower",
    ),
    Metric(
        "meal_peak_forgetting",
        "forgetting, peak to final (MEAL)",
        _MEAL,
        lambda one, _: _whole(metrics.meal_peak_forgetting(one.matrix), one.matrix),
        "lower",
    ),
    Metric(
        "meal_forward_transfer",
        "forward transfer ratio (MEAL)",
        _MEAL,
        _transfer(metrics.meal_forward_transfer, _DECISIONS),
    ),
)
METRICS: Mapping[str, Metric] = {metric.name: metric for metric in (*MAIN, *OTHERS)}


@dataclass(frozen=True)
class Score:
    """A metric of one method: its parts with every seed, (seeds, parts), nan where one is not defined."""

    metric: Metric
    method: str
    seeds: tuple[int, ...]
    parts: Values

    @cached_property
    def values(self) -> pd.Series:
        """The metric by seed; seeds for which it is not defined are left out."""
        return pd.Series(map(metrics.mean_of, self.parts), self.seeds, float).dropna()

    @cached_property
    def columns(self) -> dict[str, Any]:
        """The figures over seeds as columns; the interquartile mean is over tasks too where the metric has some.

        Tasks for which a seed has no value are left out of it.
        """
        row = figures_of(self.values)
        whole = self.parts[:, ~np.isnan(self.parts).any(axis=0)]
        if self.metric.by_task and whole.size:
            row["interquartile_mean"] = statistics.interquartile_mean(whole)
            row |= statistics.interquartile_mean_interval(whole).columns("interquartile_mean_")
        return row


@dataclass(frozen=True)
class ContinualScores:
    """What every method scored; `against` is the method that the others are compared with, None where there is none."""

    trajectories: Sequence[Trajectory]
    task_names: tuple[str, ...]
    scores: Mapping[tuple[str, str], Score]
    against: str | None
    notes: tuple[str, ...] = field(default=())

    @property
    def tasks(self) -> int:
        """Length of the sequence."""
        return len(self.task_names)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that are scored, in the order of the file."""
        return tuple(dict.fromkeys(method for _, method in self.scores))

    @property
    def seeds(self) -> tuple[int, ...]:
        """All seeds in order."""
        return tuple(sorted({seed for score in self.scores.values() for seed in score.seeds}))

    @property
    def counted(self) -> str:
        """How many methods, tasks and seeds there are, in words."""
        numbers = {"method": len(self.methods), "task": self.tasks}
        counted = (f"{number} {what}{'s' if number != 1 else ''}" for what, number in numbers.items())
        return ", ".join((*counted, seeds_text(len(self.seeds))))

    def of(self, method: str) -> list[Trajectory]:
        """Return what a method did, one of each seed."""
        return [one for one in self.trajectories if one.method == method]

    def shown(self, chosen: Sequence[Metric]) -> list[Metric]:
        """Return those of some metrics that a method has a value of."""
        valued = {name for (name, _), score in self.scores.items() if len(score.values)}
        return [metric for metric in chosen if metric.name in valued]

    def summary(self) -> Rows:
        """Return a row for each metric and method: its figures over seeds, with their intervals."""
        return [
            {"metric": name, "method": method, **score.columns}
            for (name, method), score in self.scores.items()
            if len(score.values)
        ]

    def by_seed(self) -> Rows:
        """Return a row for each metric, method and seed; None where it is not defined."""
        return [
            {"metric": name, "method": method, "seed": seed, "value": score.values.get(seed)}
            for (name, method), score in self.scores.items()
            for seed in score.seeds
        ]

    def by_task(self) -> Rows:
        """Return a row for each metric by task, method, task and seed; None where it is not defined."""
        return [
            {"metric": name, "method": method, "task": self._task(name, place), "seed": seed, "value": float(value)}
            for (name, method), score in self.scores.items()
            if score.metric.by_task
            for seed, parts in zip(score.seeds, score.parts, strict=True)
            for place, value in enumerate(parts)
        ]

    def _task(self, name: str, place: int) -> int:
        # It has no part for the first task, where nothing came before.
        return place + 2 if name == "zero_shot_transfer" else place + 1

    @cached_property
    def differences(self) -> Rows:
        """A row for each metric and method: it minus the one that all are compared with, paired by seed."""
        return [row for name in METRICS for row in self._differences(name)]

    def _differences(self, name: str) -> Rows:
        if self.against is None or self.scores[name, self.against].values.empty:
            return []
        reference = self.scores[name, self.against].values
        rows: Rows = []
        for method in self.methods:
            values = self.scores[name, method].values
            if method != self.against and len(apart := difference(values, reference)):
                named = {"metric": name, "method": method, "against": self.against}
                columns = {**difference_columns(values, reference), "p": statistics.mean_test(apart)}
                rows.append({**named, **columns, "adjusted_p": float("nan")})
        tested = [row for row in rows if row["p"] == row["p"]]
        for row, adjusted in zip(tested, statistics.holm([row["p"] for row in tested]), strict=True):
            row["adjusted_p"] = adjusted
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON; None where something is not defined."""
        described = {
            metric.name: {"title": metric.title, "source": metric.source, "better": metric.better}
            for metric in self.shown([*METRICS.values()])
        }
        rows = {"scores": self.summary(), "differences": self.differences, "seeds": self.by_seed()}
        values = {"tasks": [*self.task_names], "methods": [*self.methods], "against": self.against}
        plain: dict[str, Any] = finite({**values, "metrics": described, **rows, "notes": [*self.notes]})
        return plain

    def table(self, chosen: Sequence[Metric], figure: str = "mean", title: str = "") -> Table:
        """Return a row for each method: a figure of each metric over seeds with its interval.

        The figure is the mean or the interquartile mean.
        """
        found = self.shown(chosen)
        headings = ["method", "seeds", *(metric.heading for metric in found)]
        rows = []
        for method in self.methods:
            scores = [self.scores[metric.name, method] for metric in found]
            seeds = max((len(score.values) for score in scores), default=0)
            rows.append([method, str(seeds), *(_cell(score.columns, figure) for score in scores)])
        return Table(title, headings, rows)

    def difference_table(self, chosen: Sequence[Metric], title: str = "") -> Table:
        """Return a row for each method compared: differences, each with its adjusted p."""
        found = self.shown(chosen)
        by_name = {(row["metric"], row["method"]): row for row in self.differences}
        methods = [method for method in self.methods if any((metric.name, method) in by_name for metric in found)]
        rows = [
            [method, *(_difference_cell(by_name.get((metric.name, method))) for metric in found)] for method in methods
        ]
        return Table(title, ["method", *(metric.heading for metric in found)], rows)

    def to_rich(self) -> list[RenderableType]:
        """Return tables for the terminal, and what is not defined."""
        tables = [self.table(MAIN, title=f"{self.counted}: mean (95 % t interval)")]
        if self.shown(OTHERS):
            tables.append(self.table(OTHERS, title="By other formulas"))
        title = f"Difference from {self.against}, paired by seed (95 % t interval), and p adjusted by Holm's rule"
        tables.append(self.difference_table(MAIN, title))
        return [*(table.to_rich() for table in tables if table.rows), *self.notes]

    def tables(self) -> dict[str, Rows]:
        """Return the tables for machines, by the names of their files."""
        return {
            "scores": self.summary(),
            "scores-differences": self.differences,
            "scores-seeds": self.by_seed(),
            "scores-tasks": self.by_task(),
        }


def _cell(row: Mapping[str, Any], figure: str = "mean") -> str:
    if row[figure] is None:
        return "-"
    return with_interval(row[figure], statistics.Interval(row[f"{figure}_low"], row[f"{figure}_high"]), 3)


def _difference_cell(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "-"
    if np.isnan(row["adjusted_p"]):
        return _cell(row)
    p = "<0.001" if row["adjusted_p"] < 0.001 else number(row["adjusted_p"], 3)
    return f"{_cell(row)}, p {p}"


def score(frame: pd.DataFrame, against: str | None = None) -> ContinualScores:
    """Score evaluations, a frame as `files.check_frame` has it.

    Methods are compared with `against`; where none is named with `kept` if that is one, else with the one of the best
    average performance. `scratch` is scored where it has the win rates in all tasks at the end.

    Raises:
        SoulsGraphError: naming what is wrong with the frame, or if `against` is no method of it.
    """
    return scored(check_frame(frame), EVALUATIONS, against)


def scored(frame: pd.DataFrame, source: str, against: str | None) -> ContinualScores:
    """Score evaluations that were checked; raises as `score`."""
    found = trajectories(frame, source)
    areas, notes = _areas(found)
    methods = [method for method in dict.fromkeys(one.method for one in found) if _ends(found, method)]
    if against is not None and against not in methods:
        raise UnknownNameError("method", against, methods)
    scores = {}
    for metric in METRICS.values():
        for method in methods:
            ones = [one for one in found if one.method == method]
            parts = np.array([metric.of(one, areas[one.method, one.seed]) for one in ones])
            scores[metric.name, method] = Score(metric, method, tuple(one.seed for one in ones), parts)
    names = _task_names(frame)
    return ContinualScores(found, names, scores, _compared(scores, methods, against), (*notes, *_undefined(scores)))


def _ends(found: Sequence[Trajectory], method: str) -> bool:
    """Return whether a method played every task at the end; from scratch there may be curves alone."""
    return not any(np.isnan(one.rates[-1]).any() for one in found if one.method == method)


def _compared(scores: Mapping[tuple[str, str], Score], methods: Sequence[str], against: str | None) -> str | None:
    """Return the method that the others are compared with."""
    if against is not None or len(methods) < 2:
        return against
    if KEPT in methods:
        return KEPT
    return max(
        (method for method in methods if method != SCRATCH),
        key=lambda method: scores["average_performance", method].values.mean(),
    )


def _task_names(frame: pd.DataFrame) -> tuple[str, ...]:
    """Return the name of each task in order; its position where the file has none, or several."""
    names = {}
    for task, rows in frame.groupby("task"):
        found = set(rows["task_name"]) - {""} if "task_name" in frame else set()
        names[task] = str(found.pop()) if len(found) == 1 else f"task {task}"
    return tuple(names[task] for task in sorted(names))


def _areas(found: Sequence[Trajectory]) -> tuple[dict[tuple[str, int], dict[int, CurveAreas]], list[str]]:
    """Return the areas below every curve and below that from scratch, by method, seed and column of the steps.

    A task's budget is the longest curve that any method but the one from scratch has in it with the same seed.
    """
    scratch = {one.seed: one for one in found if one.method == SCRATCH}
    areas, notes = {}, []
    for one in found:
        beside = [other for other in found if other.seed == one.seed and (other.method != SCRATCH or other is one)]
        areas[one.method, one.seed] = {
            axis: CurveAreas(_curve_areas(one, beside, axis), _curve_areas(scratch.get(one.seed), beside, axis))
            for axis in _UNITS
        }
    lacking = sorted({one.seed for one in found} - scratch.keys())
    if not scratch:
        notes.append(f"forward transfer is not defined: it needs a method named {SCRATCH}, trained from scratch")
    elif lacking:
        notes.append(f"forward transfer is not defined for seeds {', '.join(map(str, lacking))}: {SCRATCH} lacks them")
    return areas, notes


def _curve_areas(one: Trajectory | None, beside: Sequence[Trajectory], axis: int) -> Values:
    """Return the area below a method's curve of each task, nan without one."""
    tasks = len(beside[0].curves)
    if one is None:
        return np.full(tasks, np.nan)
    areas = []
    for task, curve in enumerate(one.curves):
        ends = [float(other.curves[task][-1, axis]) for other in beside if len(other.curves[task])]
        known = len(curve) and not np.isnan(curve[:, axis]).any() and ends and not np.isnan(ends).any()
        areas.append(metrics.curve_area(curve[:, axis], curve[:, _RATE], max(ends)) if known else np.nan)
    return np.array(areas)


def _undefined(scores: Mapping[tuple[str, str], Score]) -> list[str]:
    """Return a line for each method that lacks metrics which others have."""
    valued = {name for (name, _), score in scores.items() if len(score.values)}
    lacking: dict[str, list[str]] = {}
    for (name, method), score in scores.items():
        if name in valued and len(score.values) < len(score.seeds) and method != SCRATCH:
            seeds = [str(seed) for seed in score.seeds if seed not in score.values]
            which = METRICS[name].title if score.values.empty else f"{METRICS[name].title} of seed {', '.join(seeds)}"
            lacking.setdefault(method, []).append(which)
    return [f"{method}: not defined: {'; '.join(names)}" for method, names in lacking.items()]
