"""The report of a continual run: Markdown, a page of HTML, JSON and Parquet, and figures, all from its tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from soulsgraph.continual import figures
from soulsgraph.continual.files import CHOOSING, COSTS, DORMANT, EVALUATIONS, PLASTICITY, SCRATCH, SKILLS, read_tables
from soulsgraph.continual.scoring import MAIN, OTHERS, ContinualScores, by_method, score
from soulsgraph.continual.study import HELD_OUT_AFTER, ContinualUnit, planned_units
from soulsgraph.pages.report import Report, Section
from soulsgraph.results import metrics
from soulsgraph.results.origin import describe_origin
from soulsgraph.results.seeds import interval_cell, records, summary
from soulsgraph.results.tables import number, write_rows
from soulsgraph.runs.study_folder import StudySession, sessions_of

#: Totals of a run by their column, with their unit and the digits that are shown.
_COSTS: Mapping[str, tuple[str, int]] = {
    "decisions": ("decisions", 0),
    "selection_decisions": ("of these for selection", 0),
    CHOOSING: ("decisions to choose versions", 0),
    "played": ("decisions in all", 0),
    "ticks": ("control ticks", 0),
    "cpu_s": ("CPU seconds", 1),
    "bytes": ("bytes kept at the end", 0),
}
#: Those that are shown as a multiple of training each task from scratch, and those that are drawn.
_NORMALISED, _DRAWN = ("decisions", "ticks", "cpu_s", "bytes"), ("bytes", "played", "ticks")

#: What is measured of tasks that come again, by name, with its heading.
RETURNING = "returning"
VISITS: Mapping[str, str] = {
    "first_end": "end of the first visit",
    "before_return": "before the next",
    "return_end": "end of the next",
    "return_gain": "end minus first end",
}


@dataclass(frozen=True)
class RunTables:
    """What the tables of a run hold beside its evaluations, by method and seed; None or empty where it has none."""

    found: Mapping[str, pd.DataFrame]
    scores: ContinualScores
    #: The units that its study plans.
    planned: Sequence[ContinualUnit] = ()
    #: When and where they were trained, where its folder says.
    sessions: Sequence[StudySession] = ()
    #: The folder that they were read from, where there is one.
    source: Path | None = None

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

    @classmethod
    def read(cls, path: Path, against: str | None = None) -> RunTables:
        """Read a run folder or a file of evaluations; `against` is the method that others are compared with.

        Raises:
            SoulsGraphError: if there are no evaluations, or damaged ones, or `against` is no method of them.
        """
        found = read_tables(path)
        scores = score(found[EVALUATIONS], against)
        source = path / "results" if path.is_dir() else path.parent
        return cls(found, scores, planned_units(path), sessions_of(path), source)

    def write(self, out: Path) -> Path:
        """Write the report into a folder and return its Markdown file; raises WriteError.

        What its figures are computed from is below the folder, too: it can be read again in the run's place.
        """
        rows = out / "results"
        # What was read is not written over: it may hold more than is needed here.
        if self.source is None or rows.resolve() != self.source.resolve():
            for name, frame in self.found.items():
                write_rows(rows / f"{name}.parquet", records(frame))
        report = Report(f"Continual learning: {self.scores.counted}", [*_sections(self)])
        beside = {name: records(frame) for name, frame in self.summaries.items()}
        values = describe_origin() | {"trained_at": self.commits, "wall_time_s": self.wall_time_s}
        values |= {**self.scores.to_dict(), "missing": [vars(unit) for unit in self.missing], "tables": beside}
        return report.write(out, values, self.scores.tables() | beside)

    @cached_property
    def summaries(self) -> dict[str, pd.DataFrame]:
        """Figures over seeds, by table."""
        found, scores, made = self.found, self.scores, dict[str, pd.DataFrame]()
        if SKILLS in found:
            # What a skill's kept versions win back; the last task does not count: what plays there was trained last.
            final = {(one.method, one.seed): one.rates[-1] for one in scores.trajectories}
            earlier = found[SKILLS][found[SKILLS]["task"] < scores.tasks]
            places = zip(earlier["method"], earlier["seed"], earlier["task"], strict=True)
            rates = [final[method, seed][task - 1] for method, seed, task in places]
            made[SKILLS] = _summed(earlier, ["skill", "method"], earlier["wins"] / earlier["episodes"] - rates)
        if PLASTICITY in found:
            rates = found[PLASTICITY]["wins"] / found[PLASTICITY]["episodes"]
            made[PLASTICITY] = _summed(found[PLASTICITY], ["method", "after"], rates)
        if DORMANT in found:
            made[DORMANT] = _summed(found[DORMANT], ["method", "after"], found[DORMANT]["share"])
        if returns := metrics.returns_of(scores.task_names):
            visits = [
                (quantity, method, one.seed, rate)
                for method in scores.methods
                for one in scores.of(method)
                for quantity, rate in zip(
                    VISITS, metrics.returning_rates(one.matrix, returns).mean(axis=0), strict=True
                )
            ]
            rows = pd.DataFrame(visits, columns=["quantity", "method", "seed", "value"]).dropna()
            made[RETURNING] = summary(rows, ["quantity", "method"], "value")
        if COSTS in found:
            costs = self._costs
            times = summary(costs, ["cost", "method"], "times", {"mean": "times_scratch"})
            made[COSTS] = summary(costs, ["cost", "method"], "value").merge(times, on=["cost", "method"])
        return {name: frame for name, frame in made.items() if len(frame)}

    @property
    def _costs(self) -> pd.DataFrame:
        """What each unit spent over all tasks, by cost, also as a multiple of training from scratch.

        Of bytes it is what is kept at the end; `played` are all decisions: to learn, to select, and at the end to
        choose versions for all tasks.
        """
        by_seed = self.found[COSTS].sort_values("task").groupby(["method", "seed"], sort=False)
        totals = by_seed[["decisions", "selection_decisions", "ticks", "cpu_s"]].sum()
        totals = totals.assign(bytes=by_seed["bytes"].last(), played=totals["decisions"])
        frame = self.found[EVALUATIONS]
        if CHOOSING in frame:
            last = frame[(frame["after"] == self.scores.tasks) & (frame["decisions"] == 0)]
            choosing = last.groupby(["method", "seed"])[CHOOSING].sum().reindex(totals.index, fill_value=0)
            totals = totals.assign(played=totals["played"] + choosing, **{CHOOSING: choosing})
        rows = totals.reset_index().melt(["method", "seed"], [cost for cost in _COSTS if cost in totals], "cost")
        scratch = rows[rows["method"] == SCRATCH].set_index(["cost", "seed"])["value"]
        alone = scratch.reindex(pd.MultiIndex.from_frame(rows[["cost", "seed"]])).to_numpy()
        return rows.assign(times=rows["value"] / np.where(alone == 0, np.nan, alone))


def _summed(frame: pd.DataFrame, by: list[str], values: pd.Series) -> pd.DataFrame:
    """Return figures over seeds of each seed's mean of some values."""
    means = frame.assign(value=values).groupby([*by, "seed"], sort=False)["value"].mean()
    return summary(means.reset_index(), by, "value")


def _sections(tables: RunTables) -> Iterator[Section]:
    """Yield the parts of a report in order; those without anything to show are empty."""
    scores = tables.scores
    note = "Mean over seeds with its 95 % t interval, as shares of fights. The arrow shows where it is better."
    missing: tuple[str, ...] = ()
    if tables.missing:
        verb = "is" if len(tables.missing) == 1 else "are"
        count = f"{len(tables.missing)} of {len(tables.planned)} units {verb} missing"
        named = ", ".join(unit.name for unit in tables.missing)
        missing = (f"{count}: {named}. Scores are of those that are there.",)
    yield Section("Scores", (*missing, note, *scores.notes), (scores.table(MAIN),))
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
        yield Section(f"Beside {scores.against}", (note,), (scores.difference_table(),))
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
        "forward-transfer.png": ("forward_transfer", "Forward transfer over decisions"),
        "forgetting.png": ("forgetting", "Forgetting, own end minus final win rate"),
        "own-end.png": ("own_performance", "Win rate at the end of its own training"),
    }
    drawn = {name: figures.draw_by_task(scores, *asked) for name, asked in by_task.items()}
    yield Section("By task", pictures=drawn)
    crossed = {
        RETURNING: (
            "Tasks that come again",
            "Win rates in the same fight as a task and as a task again, the mean over all returns; the last column is "
            "a difference within each seed.",
        ),
        SKILLS: (
            "Forgetting by skill",
            "The final agent plays each earlier task with one skill's kept version put back: the win rate above that "
            "of its newest versions, the mean over those tasks. That is what forgetting in this skill alone costs.",
        ),
        PLASTICITY: (
            "Plasticity",
            "Win rates on held-out bosses, learned for a fixed budget from the agent after each number of tasks.",
        ),
        DORMANT: ("Dormant units", "Their share after each number of tasks, the mean over skills."),
    }
    for name, (title, note) in crossed.items():
        if (summed := tables.summaries.get(name)) is None:
            continue
        (column,) = {*summed.columns} & {"quantity", "skill", "after"}
        cells = {(row["method"], row[column]): interval_cell(row, "mean", 3) for row in summed.to_dict("records")}
        headings = {value: VISITS.get(value, value) for value in summed[column]}
        if column == "after":
            moments = sorted({*summed[column]})
            headings = {after: f"after {after}" for after in moments if after in (*HELD_OUT_AFTER, moments[-1])}
        yield Section(title, (note,), (by_method(dict.fromkeys(summed["method"]), headings, cells),))
    if COSTS in tables.summaries:
        yield _costs(scores, tables.summaries[COSTS])
    yield Section("How this was made", tuple(_made(tables)))


def _costs(scores: ContinualScores, summed: pd.DataFrame) -> Section:
    cells = {}
    for row in summed.to_dict("records"):
        low, high, digits = row["mean_low"], row["mean_high"], _COSTS[row["cost"]][1]
        text = f"{row['mean']:,.{digits}f}"
        # What every seed spends alike, as a budget, needs no interval.
        if row["seeds"] > 1 and low < high:
            text += f" ({low:,.{digits}f} to {high:,.{digits}f})"
        if row["cost"] in _NORMALISED and pd.notna(row["times_scratch"]):
            text += f" [{number(row['times_scratch'], 2)}]"
        cells[row["method"], row["cost"]] = text
    headings = {cost: name for cost, (name, _) in _COSTS.items() if cost in {*summed["cost"]}}
    note = (
        f"Over all tasks: mean over seeds (95 % t interval); in brackets as a multiple of {SCRATCH}, which trains "
        "each task from nothing. Decisions are those of all learning skills, selection included. Where nobody says "
        "which task is played, versions are chosen by fights before: the decisions of these for all tasks at the end "
        "come on top."
    )
    drawn = {headings[cost]: summed[summed["cost"] == cost] for cost in _DRAWN}
    table = by_method(dict.fromkeys(summed["method"]), headings, cells)
    return Section("Costs", (note,), (table,), {"costs.png": figures.draw_costs(scores, drawn)})


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
        used = [one.machine for one in tables.sessions if one.machine]
        machines = dict.fromkeys(f"{one.get('cores')} cores ({one.get('processor')})" for one in used)
        what = "The sessions so far" if tables.missing else "All units"
        started = f", started on {', then on '.join(machines)}" if machines else ""
        yield f"{what} took {tables.wall_time_s / 60.0:,.0f} minutes{started}."
