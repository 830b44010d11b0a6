"""Score methods of continual learning by their evaluations: each metric with its interval over seeds, and differences.

A seed is one observation: fights are never pooled over seeds. Differences between methods are taken within each seed,
on the same tasks; p values are those of paired t tests, adjusted for their number in each metric by Holm's rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from rich.console import RenderableType

from soulsgraph.continual.files import EVALUATIONS, SCRATCH, Trajectory, trajectories
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

    def of(self, one: Trajectory) -> Values:
        """Return the parts of a method's seed, (parts,); nan where one is not defined."""
        values = self.parts(one)
        return np.full_like(values, np.nan) if np.isnan(self.needed(one)).any() else values

    @property
    def heading(self) -> str:
        """The title, with an arrow to where it is better."""
        return f"{self.title} {'↑' if self.better == 'higher' else '↓'}"


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
    """A metric of one method: its parts with every seed, (seeds, parts), nan where one is not defined."""

    metric: Metric
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
                if seeds := [str(seed) for seed in one.seeds if seed not in one.values]:
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
        """Return the tables for machines, by the names of their files; None where something is not defined."""
        return {
            "scores": [
                {"metric": name, "method": method, **score.columns}
                for (name, method), score in self.scores.items()
                if len(score.values)
            ],
            "scores-differences": self.differences,
            "scores-seeds": [
                {"metric": name, "method": method, "seed": seed, "value": score.values.get(seed)}
                for (name, method), score in self.scores.items()
                for seed in score.seeds
            ],
            "scores-tasks": [
                # Zero-shot transfer has no part for the first task, where nothing came before.
                {
                    "metric": name,
                    "method": method,
                    "task": place + 1 + (name == "zero_shot_transfer"),
                    "seed": seed,
                    "value": float(value),
                }
                for (name, method), score in self.scores.items()
                if score.metric.by_task
                for seed, parts in zip(score.seeds, score.parts, strict=True)
                for place, value in enumerate(parts)
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
        shown, rows = self.shown(names), []
        for method in self.methods:
            scores = [self.scores[name, method] for name in shown]
            cells = [interval_cell(one.columns, figure, 3) if len(one.values) else "-" for one in scores]
            rows.append([method, str(max((len(one.values) for one in scores), default=0)), *cells])
        return Table(title, ["method", "seeds", *(METRICS[name].heading for name in shown)], rows)

    def difference_table(self, title: str = "") -> Table:
        """Return a row for each method compared: differences of the main metrics, each with its adjusted p."""
        shown, cells = self.shown(MAIN), dict[str, dict[str, str]]()
        for row in self.differences:
            p = "<0.001" if row["adjusted_p"] < 0.001 else number(row["adjusted_p"], 3)
            text = interval_cell(row, "mean", 3) + ("" if np.isnan(row["adjusted_p"]) else f", p {p}")
            cells.setdefault(row["method"], {})[row["metric"]] = text
        rows = [[method, *(own.get(name, "-") for name in shown)] for method, own in cells.items()]
        return Table(title, ["method", *(METRICS[name].heading for name in shown)], rows)

    def to_rich(self) -> list[RenderableType]:
        """Return tables for the terminal, and what is not defined."""
        tables = [self.table(MAIN, title=f"{self.counted}: mean (95 % t interval)")]
        if self.shown(OTHERS):
            tables.append(self.table(OTHERS, title="By other formulas"))
        title = f"Difference from {self.against}, paired by seed (95 % t interval), and p adjusted by Holm's rule"
        tables.append(self.difference_table(title))
        return [*(table.to_rich() for table in tables if table.rows), *self.notes]


def score(frame: pd.DataFrame, against: str | None = None) -> ContinualScores:
    """Score evaluations, a frame as `files.check_frame` returns it.

    Methods are compared with `against`; where none is named with `kept` if that is one, else with the one of the best
    average performance. A method is scored where a seed has the win rates in all tasks at the end.

    Raises:
        SoulsGraphError: if no method can be scored, or `against` is none that is.
    """
    found = _with_areas(trajectories(frame))
    ended = dict.fromkeys(one.method for one in found if not np.isnan(one.rates[-1]).any())
    methods = [method for method in dict.fromkeys(one.method for one in found) if method in ended]
    scores = {}
    for name, metric in METRICS.items():
        for method in methods:
            ones = [one for one in found if one.method == method]
            scores[name, method] = Score(metric, tuple(one.seed for one in ones), np.array([*map(metric.of, ones)]))
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
    return ContinualScores(found, tuple(names), scores, against)


def _with_areas(found: Sequence[Trajectory]) -> list[Trajectory]:
    """Return trajectories with the areas below their curves and below those of training from scratch.

    The budget of a task is the longest curve that any method but the one from scratch has in it with the same seed.
    From scratch nothing is transferred: its 0 would say nothing.
    """
    scratch = {one.seed: one for one in found if one.method == SCRATCH}
    made = []
    for one in found:
        beside = [other for other in found if other.seed == one.seed and other.method != SCRATCH]
        alone, count = None if one.method == SCRATCH else scratch.get(one.seed), len(one.curves)
        areas = {
            axis: (_areas(one, beside, axis, count), _areas(alone, beside, axis, count))
            for axis in (_DECISIONS, _TICKS)
        }
        made.append(replace(one, areas=areas))
    return made


def _areas(one: Trajectory | None, beside: Sequence[Trajectory], axis: int, tasks: int) -> Values:
    """Return the area below a method's curve of each task, nan without one."""
    areas = np.full(tasks, np.nan)
    for task, curve in enumerate(one.curves if one else ()):
        ends = [float(other.curves[task][-1, axis]) for other in beside if len(other.curves[task])]
        if len(curve) and ends and not np.isnan([*curve[:, axis], *ends]).any():
            areas[task] = metrics.curve_area(curve[:, axis], curve[:, _RATE], max(ends))
    return areas
