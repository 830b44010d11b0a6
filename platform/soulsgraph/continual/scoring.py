"""Score methods of continual learning by their evaluations: each metric with its interval over seeds, and differences.

A seed is one observation: fights are never pooled over seeds. Differences between methods are taken within each seed,
on the same tasks; p values are those of paired t tests, adjusted for their number in each metric by Holm's rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from rich.console import RenderableType

from soulsgraph.continual.files import EVALUATIONS, SCRATCH
from soulsgraph.results import metrics, statistics
from soulsgraph.results.seeds import difference, difference_columns, figures_of, interval_cell
from soulsgraph.results.tables import Table, finite, number, seeds_text
from soulsgraph_envs.core.config import Where
from soulsgraph_envs.core.errors import UnknownNameError

Values = npt.NDArray[np.float64]
Rows = list[dict[str, Any]]
#: The method that others are compared with, where it is there and none is named.
KEPT = "kept"
#: Columns of a curve's points.
_DECISIONS, _TICKS, _RATE = range(3)


@dataclass(frozen=True)
class Trajectory:
    """What one method did with one seed over a sequence of tasks.

    `rates` (tasks + 1, tasks) has the win rate in each task (columns) after each number of tasks (rows), nan where it
    was not played. `areas` are the mean win rates in each task while it was trained, (tasks,), and those of training it
    from scratch, by the column of a curve over which they are taken.
    """

    method: str
    seed: int
    rates: Values
    areas: Mapping[int, Sequence[Values]]

    @property
    def untrained(self) -> Values:
        """Win rates before any training, (tasks,)."""
        return np.asarray(self.rates[0])

    @property
    def matrix(self) -> Values:
        """Win rates after each task, (tasks, tasks)."""
        return np.asarray(self.rates[1:])


def trajectories(frame: pd.DataFrame) -> list[Trajectory]:
    """Return what each method did with each seed, in the order of the file, of checked evaluations.

    The budget of a task, over which areas are taken, is the longest curve that any method but the one from scratch has
    in it with the same seed. From scratch nothing is transferred: its 0 would say nothing.
    """
    tasks = int(frame["task"].max())
    rates, curves = dict[tuple[str, int], Values](), dict[int, dict[str, list[Values]]]()
    for (method, seed), rows in frame.groupby(["method", "seed"], sort=False):
        own, between = np.full((tasks + 1, tasks), np.nan), rows[rows["decisions"] == 0]
        own[between["after"], between["task"] - 1] = between["wins"] / between["episodes"]
        rates[str(method), int(seed)] = own
        curves.setdefault(int(seed), {})[str(method)] = [_curve(rows, own, task) for task in range(1, tasks + 1)]
    made = []
    for (method, seed), own in rates.items():
        beside = [one for other, one in curves[seed].items() if other != SCRATCH]
        pair = curves[seed][method], [] if method == SCRATCH else curves[seed].get(SCRATCH, [])
        areas = {axis: [_areas(one, beside, axis, tasks) for one in pair] for axis in (_DECISIONS, _TICKS)}
        made.append(Trajectory(method, seed, own, areas))
    return made


def _curve(frame: pd.DataFrame, rates: Values, task: int) -> Values:
    """Return a task's learning curve, its beginning first: (points, 3) of decisions, ticks and win rate, maybe none."""
    rows = frame[(frame["decisions"] > 0) & (frame["task"] == task)].sort_values("decisions")
    ticks, start = rows.get("ticks", np.full(len(rows), np.nan)), rates[task - 1, task - 1]
    points = np.column_stack([rows["decisions"], ticks, rows["wins"] / rows["episodes"]]).astype(np.float64)
    return points if rows.empty or np.isnan(start) else np.vstack([[0.0, 0.0, start], points])


def _areas(curves: Sequence[Values], beside: Sequence[Sequence[Values]], axis: int, tasks: int) -> Values:
    """Return the area below a method's curve of each task, nan without one."""
    areas = np.full(tasks, np.nan)
    for task, curve in enumerate(curves):
        ends = [other[task][-1, axis] for other in beside if len(other[task])]
        if len(curve) and ends and not np.isnan([*curve[:, axis], *ends]).any():
            areas[task] = metrics.curve_area(curve[:, axis], curve[:, _RATE], max(ends))
    return areas


@dataclass(frozen=True)
class Metric:
    """A metric: what it is for people, its parts by task or pair of tasks, and the cells of R that these need.

    The value of a seed is the mean of the parts that are defined; nan where a cell that is `needed` was not played. The
    interquartile mean is over seeds and tasks where it is `by_task`, else over seeds alone.
    """

    title: str
    parts: Callable[[Trajectory], Values]
    needed: Callable[[Trajectory], Values]
    better: str = "higher"
    by_task: bool = True


def _last(one: Trajectory) -> Values:
    return np.asarray(one.rates[-1])


def _own(one: Trajectory) -> Values:
    return np.diagonal(one.matrix)


def _own_and_last(one: Trajectory) -> Values:
    return np.concatenate([_own(one), _last(one)])


def _every(one: Trajectory) -> Values:
    return one.matrix


def _untrained(one: Trajectory) -> Values | None:
    return None if np.isnan(one.untrained).any() else one.untrained


def _transfer(title: str, formula: Callable[[Values, Values], Values], axis: int) -> Metric:
    return Metric(title, lambda one: formula(*one.areas[axis]), lambda one: np.concatenate(one.areas[axis]))


#: The metrics by name; those of `MAIN` are shown first, and methods are compared by them.
METRICS: Mapping[str, Metric] = {
    "average_performance": Metric("average performance", lambda one: metrics.final_performance(one.matrix), _last),
    "forgetting": Metric("forgetting", lambda one: metrics.forgetting(one.matrix), _own_and_last, "lower"),
    "forward_transfer": _transfer("forward transfer, by decisions", metrics.forward_transfer, _DECISIONS),
    "forward_transfer_ticks": _transfer("forward transfer, by control ticks", metrics.forward_transfer, _TICKS),
    "own_performance": Metric("own end", lambda one: metrics.own_performance(one.matrix), _own),
    "forgetting_from_peak": Metric(
        "forgetting from the peak (Chaudhry)", lambda one: metrics.forgetting_from_peak(one.matrix), _every, "lower"
    ),
    "backward_transfer": Metric(
        "backward transfer (GEM)", lambda one: metrics.backward_transfer(one.matrix), _own_and_last
    ),
    "zero_shot_transfer": Metric(
        "zero-shot transfer (GEM)",
        lambda one: metrics.zero_shot_transfer(one.matrix, one.untrained),
        lambda one: np.concatenate([np.diagonal(one.matrix, 1), one.untrained[1:]]),
    ),
    "plasticity_slope": Metric(
        "change of the own end a task",
        lambda one: np.array([metrics.plasticity_slope(one.matrix)]),
        _own,
        by_task=False,
    ),
    "cora_isolated_forgetting": Metric(
        "isolated forgetting (CORA)",
        lambda one: metrics.isolated_forgetting(one.matrix, _untrained(one))[np.triu_indices(len(one.matrix), 1)],
        _every,
        "lower",
        by_task=False,
    ),
    "cora_zero_shot_transfer": Metric(
        "zero-shot forward transfer (CORA)",
        lambda one: metrics.zero_shot_forward_transfer(one.matrix, _untrained(one))[
            np.tril_indices(len(one.matrix), -1)
        ],
        _every,
        by_task=False,
    ),
    "meal_forgetting": Metric(
        "weighted forgetting (MEAL)",
        lambda one: metrics.meal_forgetting(one.matrix),
        lambda one: one.matrix[np.tril_indices(len(one.matrix))],
        "lower",
    ),
    "meal_peak_forgetting": Metric(
        "forgetting, peak to final (MEAL)", lambda one: metrics.meal_peak_forgetting(one.matrix), _every, "lower"
    ),
    "meal_forward_transfer": _transfer("forward transfer ratio (MEAL)", metrics.meal_forward_transfer, _DECISIONS),
}
MAIN, OTHERS = tuple(METRICS)[:5], tuple(METRICS)[5:]


@dataclass(frozen=True)
class Score:
    """A metric of one method: its parts by seed (rows) and task or pair of tasks, nan where one is not defined."""

    metric: Metric
    parts: pd.DataFrame

    @cached_property
    def values(self) -> pd.Series:
        """The metric by seed; seeds for which it is not defined are left out."""
        return pd.Series([*map(metrics.mean_of, self.parts.to_numpy())], self.parts.index, float).dropna()

    @cached_property
    def columns(self) -> dict[str, Any]:
        """The figures over seeds as columns; the interquartile mean is over tasks too where the metric has some.

        Tasks for which a seed has no value are left out of it.
        """
        row = figures_of(self.values)
        whole = self.parts.dropna(axis=1).to_numpy()
        if self.metric.by_task and whole.size:
            row["interquartile_mean"] = statistics.interquartile_mean(whole)
            row |= statistics.interquartile_mean_interval(whole).columns("interquartile_mean_")
        return row


@dataclass(frozen=True)
class ContinualScores:
    """What every method scored; `against` is the method that the others are compared with, None where there is none.

    `methods` are those that are scored, in the order of the file.
    """

    trajectories: Sequence[Trajectory]
    task_names: tuple[str, ...]
    methods: tuple[str, ...]
    scores: Mapping[tuple[str, str], Score]
    against: str | None

    @property
    def tasks(self) -> int:
        """Length of the sequence."""
        return len(self.task_names)

    @property
    def seeds(self) -> list[int]:
        """All seeds in order."""
        return sorted({one.seed for one in self.trajectories if one.method in self.methods})

    @property
    def counted(self) -> str:
        """How many methods, tasks and seeds there are, in words."""
        numbers = {"method": len(self.methods), "task": self.tasks}
        counted = (f"{number} {what}{'s' if number != 1 else ''}" for what, number in numbers.items())
        return ", ".join((*counted, seeds_text(len(self.seeds))))

    @cached_property
    def notes(self) -> list[str]:
        """Lines that say what is not defined, which others have."""
        lines = []
        if all(one.method != SCRATCH for one in self.trajectories):
            lines.append(f"forward transfer is not defined: it needs a method named {SCRATCH}, trained from scratch")
        for method in (method for method in self.methods if method != SCRATCH):
            lacking = []
            for name in self.shown(METRICS):
                one = self.scores[name, method]
                if seeds := [str(seed) for seed in one.parts.index if seed not in one.values]:
                    lacking.append(f"{METRICS[name].title} of seed {', '.join(seeds)}")
            lines += [f"{method}: not defined: {'; '.join(lacking)}"] if lacking else []
        return lines

    def of(self, method: str) -> list[Trajectory]:
        """Return what a method did, one of each seed."""
        return [one for one in self.trajectories if one.method == method]

    def shown(self, names: Iterable[str]) -> list[str]:
        """Return those of some metrics that a method has a value of."""
        return [name for name in names if any(len(self.scores[name, method].values) for method in self.methods)]

    @cached_property
    def differences(self) -> Rows:
        """A row for each metric and method: it minus the one that all are compared with, paired by seed."""
        made: Rows = []
        for name in METRICS if self.against is not None else ():
            reference, rows = self.scores[name, str(self.against)].values, list[dict[str, Any]]()
            for method in self.methods:
                values = self.scores[name, method].values
                if method != self.against and len(apart := difference(values, reference)):
                    row = {"metric": name, "method": method, "against": self.against}
                    rows.append({**row, **difference_columns(values, reference), "p": statistics.mean_test(apart)})
            adjusted = statistics.holm([row["p"] for row in rows if not np.isnan(row["p"])])
            made += [row | {"adjusted_p": float("nan") if np.isnan(row["p"]) else adjusted.pop(0)} for row in rows]
        return made

    def tables(self) -> dict[str, Rows]:
        """Return the tables for machines, by the names of their files; nan or None where something is not defined."""
        scores = [({"metric": name, "method": method}, one) for (name, method), one in self.scores.items()]
        return {
            "scores": [of | one.columns for of, one in scores if len(one.values)],
            "scores-differences": self.differences,
            "scores-seeds": [
                of | {"seed": seed, "value": one.values.get(seed)} for of, one in scores for seed in one.parts.index
            ],
            "scores-tasks": [
                of | {"task": task, "seed": seed, "value": value}
                for of, one in scores
                if one.metric.by_task
                for (seed, task), value in one.parts.T.unstack().items()
            ],
        }

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON; None where something is not defined."""
        tables = self.tables()
        rows = {"scores": tables["scores"], "differences": self.differences, "seeds": tables["scores-seeds"]}
        named = {"tasks": [*self.task_names], "methods": [*self.methods], "against": self.against}
        plain: dict[str, Any] = finite({**named, **rows, "notes": self.notes})
        return plain

    def table(self, names: Sequence[str], figure: str = "mean", title: str = "") -> Table:
        """Return a row for each method: a figure of each metric over seeds with its interval.

        The figure is the mean or the interquartile mean.
        """
        cells = {}
        for method in self.methods:
            known = {name: one for name in names if len((one := self.scores[name, method]).values)}
            cells[method, ""] = str(max((len(one.values) for one in known.values()), default=0))
            cells |= {(method, name): interval_cell(one.columns, figure, 3) for name, one in known.items()}
        return by_method(self.methods, {"": "seeds", **self._headings(names)}, cells, title)

    def difference_table(self, title: str = "") -> Table:
        """Return a row for each method compared: differences of the main metrics, each with its adjusted p."""
        cells = {}
        for row in self.differences:
            p = "<0.001" if row["adjusted_p"] < 0.001 else number(row["adjusted_p"], 3)
            text = interval_cell(row, "mean", 3) + ("" if np.isnan(row["adjusted_p"]) else f", p {p}")
            cells[row["method"], row["metric"]] = text
        methods = dict.fromkeys(method for method, _ in cells)
        return by_method(methods, self._headings(MAIN), cells, title)

    def _headings(self, names: Sequence[str]) -> dict[str, str]:
        arrows = {"higher": "↑", "lower": "↓"}
        return {name: f"{METRICS[name].title} {arrows[METRICS[name].better]}" for name in self.shown(names)}

    def to_rich(self) -> list[RenderableType]:
        """Return tables for the terminal, and what is not defined."""
        tables = [self.table(MAIN, title=f"{self.counted}: mean (95 % t interval)")]
        if self.shown(OTHERS):
            tables.append(self.table(OTHERS, title="By other formulas"))
        title = f"Difference from {self.against}, paired by seed (95 % t interval), and p adjusted by Holm's rule"
        tables.append(self.difference_table(title))
        return [*(table.to_rich() for table in tables if table.rows), *self.notes]


def by_method(
    methods: Iterable[str], headings: Mapping[Any, str], cells: Mapping[tuple[str, Any], str], title: str = ""
) -> Table:
    """Return a row for each method, with a cell, or a dash, for what each further column is about."""
    rows = [[method, *(cells.get((method, about), "-") for about in headings)] for method in methods]
    return Table(title, ["method", *headings.values()], rows)


def score(frame: pd.DataFrame, against: str | None = None) -> ContinualScores:
    """Score evaluations, a frame as `files.check_frame` returns it.

    Methods are compared with `against`; where none is named with `kept` if that is one, else with the one of the best
    average performance. A method is scored where a seed has the win rates in all tasks at the end.

    Raises:
        SoulsGraphError: if no method can be scored, or `against` is none that is.
    """
    found = trajectories(frame)
    ended = dict.fromkeys(one.method for one in found if not np.isnan(one.rates[-1]).any())
    methods = tuple(method for method in dict.fromkeys(one.method for one in found) if method in ended)
    own = {method: [one for one in found if one.method == method] for method in methods}
    scores = {}
    for name, metric in METRICS.items():
        for method, ones in own.items():
            values = [np.where(np.isnan(metric.needed(one)).any(), np.nan, metric.parts(one)) for one in ones]
            parts = pd.DataFrame(values, [one.seed for one in ones])
            # Zero-shot transfer has no part for the first task, where nothing came before.
            parts.columns += 1 + (name == "zero_shot_transfer")
            scores[name, method] = Score(metric, parts)
    if not methods:
        raise Where(EVALUATIONS).error("a method with the win rate in every task at the end", "none")
    if against is not None and against not in methods:
        raise UnknownNameError("method", against, methods)
    if against is None and len(methods) > 1:
        best = (method for method in methods if method != SCRATCH)
        averages = {method: scores["average_performance", method].values.mean() for method in best}
        against = KEPT if KEPT in methods else max(averages, key=averages.__getitem__)
    names = []
    for task, rows in frame.groupby("task"):
        named = {*rows.get("task_name", ())} - {""}
        names.append(str(named.pop()) if len(named) == 1 else f"task {task}")
    return ContinualScores(found, tuple(names), methods, scores, against)
