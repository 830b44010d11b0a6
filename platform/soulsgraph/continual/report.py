"""The report of a continual run: Markdown, a page of HTML, JSON and Parquet, and figures, all from its tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from soulsgraph.continual import figures
from soulsgraph.continual.files import CHOOSING, COSTS, DORMANT, EVALUATIONS, PLASTICITY, SCRATCH, SKILLS, read_tables
from soulsgraph.continual.scoring import MAIN, METRICS, OTHERS, ContinualScores, scored
from soulsgraph.continual.study import ContinualUnit, planned_units
from soulsgraph.pages.report import Report, Section
from soulsgraph.results import metrics
from soulsgraph.results.origin import describe_origin
from soulsgraph.results.seeds import interval_cell, records, summary
from soulsgraph.results.tables import Table, number
from soulsgraph.runs.study_folder import StudySession, sessions_of

#: Totals of a run by their column, with their unit and the digits that are shown.
_COSTS: Mapping[str, tuple[str, int]] = {
    "decisions": ("decisions", 0),
    "selection_decisions": ("of these for selection", 0),
    CHOOSING: ("decisions to choose versions", 0),
    "ticks": ("control ticks", 0),
    "cpu_s": ("CPU seconds", 1),
    "bytes": ("bytes kept at the end", 0),
}
#: Those that are shown as a multiple of training each task from scratch, and what is drawn in place of one.
_NORMALISED, _DRAWN = ("decisions", "ticks", "cpu_s", "bytes"), {"decisions": "played"}

#: What is measured of tasks that come again, by name, with its heading.
RETURNING = "returning"
VISITS: Mapping[str, str] = {
    "first_end": "end of the first visit",
    "before_return": "before the next",
    "return_end": "end of the next",
    "return_gain": "end minus first end",
}
#: Moments of a sequence that a table has a column for, at most.
_COLUMNS = 11


@dataclass(frozen=True)
class RunTables:
    """What the tables of a run hold beside its evaluations, by method and seed; None or empty where it has none."""

    found: Mapping[str, pd.DataFrame]
    scores: ContinualScores
    #: The units that its study plans.
    planned: Sequence[ContinualUnit] = ()
    #: When and where they were trained, where its folder says.
    sessions: Sequence[StudySession] = ()

    @property
    def commits(self) -> list[str]:
        """The commits of the sessions, in order."""
        return [commit for commit in dict.fromkeys(one.commit for one in self.sessions) if commit]

    @property
    def wall_time_s(self) -> float | None:
        """Seconds of all sessions; None without one, or where one was killed."""
        took_s = [one.wall_time_s for one in self.sessions]
        return sum(took_s) if took_s and all(took_s) else None

    @cached_property
    def missing(self) -> list[ContinualUnit]:
        """The planned units that left nothing yet."""
        frame = self.found[EVALUATIONS]
        there = {*zip(frame["method"], frame["seed"], strict=True)}
        return [unit for unit in self.planned if (unit.method, unit.seed) not in there]

    @property
    def missing_note(self) -> tuple[str, ...]:
        """A sentence that names the units that are missing; none where all are there."""
        if not self.missing:
            return ()
        seeds: dict[str, list[str]] = {}
        for unit in self.missing:
            seeds.setdefault(unit.method, []).append(str(unit.seed))
        named = "; ".join(f"{method} {', '.join(those)}" for method, those in seeds.items())
        count = f"{len(self.missing)} of {len(self.planned)} units {'is' if len(self.missing) == 1 else 'are'} missing"
        return (f"{count}: {named}. Scores are of those that are there.",)

    @cached_property
    def won_back(self) -> pd.DataFrame | None:
        """The mean win rate that a skill's kept versions win back, by skill, method and seed.

        The last task does not count: what plays there was trained last.
        """
        if SKILLS not in self.found:
            return None
        final = {(one.method, one.seed): one.rates[-1] for one in self.scores.trajectories}
        frame = self.found[SKILLS]
        frame = frame[frame["task"] < self.scores.tasks]
        rates = [
            final[method, seed][task - 1] if (method, seed) in final else float("nan")
            for method, seed, task in zip(frame["method"], frame["seed"], frame["task"], strict=True)
        ]
        back = frame.assign(value=frame["wins"] / frame["episodes"] - rates)
        return back.groupby(["skill", "method", "seed"], sort=False)["value"].mean().reset_index()

    @cached_property
    def held_out(self) -> pd.DataFrame | None:
        """The mean win rate over the held-out bosses, by method, seed and number of tasks."""
        if PLASTICITY not in self.found:
            return None
        frame = self.found[PLASTICITY]
        rates = frame.assign(value=frame["wins"] / frame["episodes"])
        return rates.groupby(["method", "seed", "after"], sort=False)["value"].mean().reset_index()

    @cached_property
    def dormant(self) -> pd.DataFrame | None:
        """The mean share of dormant units over the skills, by method, seed and number of tasks."""
        if DORMANT not in self.found:
            return None
        shares = self.found[DORMANT].groupby(["method", "seed", "after"], sort=False)["share"].mean()
        return shares.rename("value").reset_index()

    @cached_property
    def returning(self) -> pd.DataFrame | None:
        """The mean win rates over the tasks that come again, by quantity, method and seed; None if none does."""
        scores = self.scores
        if not (returns := metrics.returns_of(scores.task_names)):
            return None
        means = {(one.method, one.seed): metrics.returning_rates(one.matrix, returns).mean(axis=0)
                 for method in scores.methods for one in scores.of(method)}  # fmt: skip
        rows = [
            (quantity, *of, value)
            for of, values in means.items()
            for quantity, value in zip(VISITS, values, strict=True)
        ]
        return pd.DataFrame(rows, columns=["quantity", "method", "seed", "value"]).dropna()

    @cached_property
    def choosing(self) -> pd.DataFrame | None:
        """The decisions that choosing versions took at the end for all tasks, by method and seed; None if none."""
        frame = self.found[EVALUATIONS]
        if CHOOSING not in frame:
            return None
        last = frame[(frame["after"] == self.scores.tasks) & (frame["decisions"] == 0) & frame[CHOOSING].notna()]
        by_seed = last.groupby(["method", "seed"], sort=False)[CHOOSING].sum()
        rows = by_seed[by_seed > 0].rename("value").reset_index()
        return rows if len(rows) else None

    @cached_property
    def costs(self) -> pd.DataFrame:
        """What each unit spent over all tasks, by cost, also as a multiple of training from scratch; empty if unknown.

        Of bytes it is what is kept at the end; `played` are all decisions: to learn, to select and to choose versions.
        """
        if COSTS not in self.found:
            return pd.DataFrame()
        by_seed = self.found[COSTS].sort_values("task").groupby(["method", "seed"], sort=False)
        summed = [name for name in _COSTS if name not in ("bytes", CHOOSING)]
        totals = by_seed[summed].sum().assign(bytes=by_seed["bytes"].last(), played=lambda spent: spent["decisions"])
        if self.choosing is not None:
            choosing = self.choosing.set_index(["method", "seed"])["value"].reindex(totals.index, fill_value=0)
            totals = totals.assign(played=totals["played"] + choosing, **{CHOOSING: choosing})
        costs = [cost for cost in (*_COSTS, "played") if cost in totals]
        rows = totals.reset_index().melt(["method", "seed"], costs, "cost")
        scratch = rows[rows["method"] == SCRATCH].set_index(["cost", "seed"])["value"]
        alone = scratch.reindex(pd.MultiIndex.from_frame(rows[["cost", "seed"]])).to_numpy()
        return rows.assign(times=rows["value"] / np.where(alone == 0, np.nan, alone))

    @classmethod
    def read(cls, path: Path, against: str | None = None) -> RunTables:
        """Read a run folder or a file of evaluations; `against` is the method that others are compared with.

        Raises:
            SoulsGraphError: if there are no evaluations, or damaged ones, or `against` is no method of them.
        """
        found = read_tables(path)
        scores = scored(found[EVALUATIONS], str(path), against)
        return cls(found, scores, planned_units(path), sessions_of(path))

    def write(self, out: Path) -> Path:
        """Write the report into a folder and return its Markdown file; raises WriteError."""
        report = Report(f"Continual learning: {self.scores.counted}", [*_sections(self)])
        beside = {name: records(frame) for name, frame in self.summaries.items()}
        values = describe_origin() | {"trained_at": self.commits, "wall_time_s": self.wall_time_s}
        values |= {**self.scores.to_dict(), "missing": [vars(unit) for unit in self.missing], "tables": beside}
        return report.write(out, values, self.scores.tables() | beside)

    @cached_property
    def summaries(self) -> dict[str, pd.DataFrame]:
        """Figures over seeds, by table."""
        frames = {
            SKILLS: (self.won_back, ["skill", "method"]),
            PLASTICITY: (self.held_out, ["method", "after"]),
            DORMANT: (self.dormant, ["method", "after"]),
            RETURNING: (self.returning, ["quantity", "method"]),
            "choosing": (self.choosing, ["method"]),
            COSTS: (self.costs, ["cost", "method"]),
        }
        known = {name: (frame, by) for name, (frame, by) in frames.items() if frame is not None and len(frame)}
        made = {name: summary(frame, by, "value") for name, (frame, by) in known.items()}
        if COSTS in made:
            times = summary(self.costs, ["cost", "method"], "times", {"mean": "times_scratch"})
            made[COSTS] = made[COSTS].merge(times, on=["cost", "method"])
        return made


def _sections(tables: RunTables) -> Iterator[Section]:
    """Yield the parts of a report in order; those without anything to show are empty."""
    scores = tables.scores
    note = "Mean over seeds with its 95 % t interval, as shares of fights. The arrow shows where it is better."
    yield Section("Scores", (*tables.missing_note, note, *scores.notes), (scores.table(MAIN),))
    note = (
        "Mean of the middle half of all values, one of each seed and task, with its stratified bootstrap interval "
        "(Agarwal et al. 2021, rliable)."
    )
    yield Section("Interquartile means", (note,), (scores.table(MAIN, "interquartile_mean"),))
    if scores.against is not None:
        note = (
            f"Difference from {scores.against} within each seed with its 95 % t interval over seeds, and the p value "
            "of the paired t test, adjusted by Holm's rule for the number of methods."
        )
        yield Section(f"Beside {scores.against}", (note,), (scores.difference_table(MAIN),))
    note = (
        "Forgetting and forward transfer above are Continual World's (Wolczyk et al. 2021). Here, each under its own "
        "name: GEM (Lopez-Paz & Ranzato 2017), Chaudhry et al. (2018), CORA (Powers et al. 2022), MEAL (Tomilin et "
        "al. 2025)."
    )
    yield Section("By other formulas", (note,), (scores.table(OTHERS),))
    names = ", ".join(f"{place} {name}" for place, name in enumerate(scores.task_names, 1))
    pictures = {"matrices.png": figures.draw_matrices(scores), "performance.png": figures.draw_performance(scores)}
    yield Section("Over the sequence", (f"Tasks: {names}.",), pictures=pictures)
    by_task = {
        "forward-transfer-decisions.png": ("forward_transfer", "Forward transfer over decisions", "forward transfer"),
        "forward-transfer-ticks.png": (
            "forward_transfer_ticks",
            "Forward transfer over control ticks",
            "forward transfer",
        ),
        "forgetting.png": ("forgetting", "Forgetting", "own end minus final win rate"),
    }
    drawn = {name: figures.draw_by_task(scores, *asked) for name, asked in by_task.items()}
    yield Section("Transfer and forgetting by task", pictures=drawn)
    yield _returning(tables)
    yield _skills(tables)
    yield _plasticity(tables)
    yield _costs(tables)
    yield Section("How this was made", tuple(_made(tables)))


def _crossed(tables: RunTables, name: str, heading: str, column: str, columns: Mapping[Any, str]) -> Table:
    """Return means with intervals of a summary: a row for each method, a column for each of some values of a column."""
    texts = {
        (row["method"], row[column]): interval_cell(row, "mean", 3) for row in tables.summaries[name].to_dict("records")
    }
    rows = [
        [method, *(texts.get((method, value), "-") for value in columns)]
        for method in tables.scores.methods
        if any(of == method for of, _ in texts)
    ]
    return Table("", [heading, *columns.values()], rows)


def _returning(tables: RunTables) -> Section:
    if RETURNING not in tables.summaries:
        return Section("")
    count = len(metrics.returns_of(tables.scores.task_names))
    note = (
        f"Win rates in the same fight as a task and as a task again, the mean over {count} "
        f"{'returns' if count != 1 else 'return'}: mean over seeds with its 95 % t interval. The last column is a "
        "difference within each seed."
    )
    return Section("Tasks that come again", (note,), (_crossed(tables, RETURNING, "method", "quantity", VISITS),))


def _skills(tables: RunTables) -> Section:
    if SKILLS not in tables.summaries:
        return Section("")
    note = (
        "The final agent plays each earlier task with one skill's kept version put back: the win rate above that "
        "of its newest versions, the mean over those tasks. That is what forgetting in this skill alone costs."
    )
    summed = tables.summaries[SKILLS]
    table = _crossed(tables, SKILLS, "method", "skill", {skill: str(skill) for skill in summed["skill"]})
    drawn = figures.draw_skills(summed, tables.scores.methods)
    return Section("Forgetting by skill", (note,), (table,), {"skills.png": drawn})


def _plasticity(tables: RunTables) -> Section:
    labels = {PLASTICITY: "win rate on held-out bosses", DORMANT: "share of dormant units"}
    known = {name: label for name, label in labels.items() if name in tables.summaries}
    if not known and not tables.scores.shown([METRICS["own_performance"]]):
        return Section("")
    shown = [
        _crossed(tables, name, label, "after", {after: f"after {after}" for after in _few(moments)})
        for name, label in known.items()
        for moments in [sorted({*tables.summaries[name]["after"]})]
    ]
    note = (
        "The end of each task's own training over its position. Held-out bosses are learned for a fixed budget from "
        "the agent after each number of tasks; the share of dormant units is the mean over skills."
    )
    points = {label: tables.summaries[name] for name, label in known.items()}
    drawn = figures.draw_plasticity(tables.scores, points)
    return Section("Plasticity", (note,), shown, {"plasticity.png": drawn})


def _few(moments: Sequence[int]) -> list[int]:
    """Return at most `_COLUMNS` of the moments, evenly spread, with the first and the last."""
    places = range(len(moments)) if len(moments) <= _COLUMNS else np.linspace(0, len(moments) - 1, _COLUMNS).round()
    return [moments[int(place)] for place in places]


def _costs(tables: RunTables) -> Section:
    chosen = tables.summaries.get("choosing")
    if COSTS not in tables.summaries:
        choosing = [] if chosen is None else [[row["method"], number(row["mean"], 0)] for row in records(chosen)]
        return Section("Costs", tables=(Table("", ["method", _COSTS[CHOOSING][0]], choosing),))
    summed = tables.summaries[COSTS]
    found = {(row["method"], row["cost"]): _cost_text(row) for row in summed.to_dict("records")}
    costs = [cost for cost in _COSTS if cost in {*summed["cost"]}]
    rows = [[method, *(found[method, cost] for cost in costs)] for method in dict.fromkeys(summed["method"])]
    notes = [
        f"Over all tasks: mean over seeds (95 % t interval); in brackets as a multiple of {SCRATCH}, which trains "
        "each task from nothing. Decisions are those of all learning skills, selection included."
    ]
    if chosen is not None:
        notes.append(
            "Where nobody says which task is played, versions are chosen by fights before: the decisions of these for "
            "all tasks at the end come on top, and the figure counts both."
        )
    drawn = {_COSTS[cost][0]: summed[summed["cost"] == _DRAWN.get(cost, cost)] for cost in ("bytes", *_DRAWN, "ticks")}
    table = Table("", ["method", *(_COSTS[cost][0] for cost in costs)], rows)
    return Section("Costs", notes, (table,), {"costs.png": figures.draw_costs(tables.scores, drawn)})


def _cost_text(row: Mapping[str, Any]) -> str:
    low, high, digits = row["mean_low"], row["mean_high"], _COSTS.get(row["cost"], ("", 0))[1]
    text = f"{row['mean']:,.{digits}f}"
    # What every seed spends alike, as a budget, needs no interval.
    if row["seeds"] > 1 and low < high:
        text += f" ({low:,.{digits}f} to {high:,.{digits}f})"
    known = row["cost"] in _NORMALISED and pd.notna(row["times_scratch"])
    return f"{text} [{number(row['times_scratch'], 2)}]" if known else text


def _made(tables: RunTables) -> Iterator[str]:
    frame = tables.found[EVALUATIONS]
    fights = sorted(set(frame[frame["decisions"] == 0]["episodes"]))
    played = f"{fights[0]:,}" if len(fights) == 1 else f"{fights[0]:,} to {fights[-1]:,}"
    yield (
        f"{played} fights an evaluation between tasks. A seed is one observation: fights are never pooled over seeds."
    )
    seeds = ", ".join(map(str, tables.scores.seeds))
    trained = f"trained at commit {', '.join(tables.commits)}, " if tables.commits else ""
    yield f"Seeds {seeds}; {trained}written at commit {describe_origin()['commit'] or 'unknown'}."
    if tables.wall_time_s is not None:
        machines = dict.fromkeys(_machine(one) for one in tables.sessions if one.machine)
        what = "The sessions so far" if tables.missing else "All units"
        started = f", started on {', then on '.join(machines)}" if machines else ""
        yield f"{what} took {tables.wall_time_s / 60.0:,.0f} minutes{started}."


def _machine(session: StudySession) -> str:
    return f"{session.machine.get('cores')} cores ({session.machine.get('processor')})"
