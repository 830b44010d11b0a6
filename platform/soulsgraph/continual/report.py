"""The report of a continual run: Markdown, a page of HTML, JSON and Parquet, and figures, all from its tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from soulsgraph.continual import figures
from soulsgraph.continual.files import CHOOSING, COSTS, DORMANT, EVALUATIONS, PLASTICITY, SCRATCH, SKILLS, read_folder
from soulsgraph.continual.scoring import MAIN, METRICS, OTHERS, ContinualScores, Rows, score
from soulsgraph.continual.study import ContinualUnit, planned_units
from soulsgraph.pages import page, tag
from soulsgraph.pages.report_section import ReportFolder, ReportSection
from soulsgraph.results import metrics
from soulsgraph.results.figures import png_of
from soulsgraph.results.origin import describe_origin
from soulsgraph.results.seeds import SeedValues, paired_ratio, records, seed_values, summary
from soulsgraph.results.tables import finite, number, with_interval
from soulsgraph.runs.study_folder import StudySession, sessions_of
from soulsgraph_envs.core.files import write_text

REPORT, PAGE = "report.md", "page.html"
#: Totals of a run by their column, with their unit and the digits that are shown.
_COSTS: Mapping[str, tuple[str, int]] = {
    "decisions": ("decisions", 0),
    "selection_decisions": ("of these for selection", 0),
    CHOOSING: ("decisions to choose versions", 0),
    "ticks": ("control ticks", 0),
    "cpu_s": ("CPU seconds", 1),
    "bytes": ("bytes kept at the end", 0),
}
#: Those that are shown as a multiple of training each task from scratch, and drawn against the performance.
_NORMALISED, _DRAWN = ("decisions", "ticks", "cpu_s", "bytes"), ("bytes", "decisions", "ticks")

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
    def totals(self) -> Mapping[str, Mapping[str, SeedValues]]:
        """What each method cost over all tasks, by cost and method; of bytes what it keeps at the end."""
        if self._unit_totals.empty:
            return {}
        costs = [cost for cost in _COSTS if cost != CHOOSING or self.choosing is not None]
        by_method = [*self._unit_totals.groupby("method", sort=False)]
        return {cost: {str(method): seed_values(own, cost) for method, own in by_method} for cost in costs}

    @property
    def played(self) -> Mapping[str, SeedValues]:
        """All decisions that each method played: to learn, to select skills and to choose versions."""
        units = self._unit_totals
        units = units.assign(played=units["decisions"] + units[CHOOSING])
        return {str(method): seed_values(own, "played") for method, own in units.groupby("method", sort=False)}

    @cached_property
    def _unit_totals(self) -> pd.DataFrame:
        """Costs over all tasks, a row for each method and seed; empty where they are not known."""
        if COSTS not in self.found:
            return pd.DataFrame(columns=["method", "seed", *_COSTS])
        by_seed = self.found[COSTS].sort_values("task").groupby(["method", "seed"], sort=False)
        summed = [name for name in _COSTS if name not in ("bytes", CHOOSING)]
        totals = by_seed[summed].sum().assign(bytes=by_seed["bytes"].last(), **{CHOOSING: 0})
        if self.choosing is not None:
            totals[CHOOSING] = self.choosing.set_index(["method", "seed"])["value"].reindex(totals.index, fill_value=0)
        return totals.reset_index()

    def times_scratch(self, cost: str, method: str) -> SeedValues:
        """Return a cost as a multiple of that of training from scratch, by seed; empty where that is unknown."""
        spreads = self.totals[cost]
        return paired_ratio(spreads[method], spreads.get(SCRATCH)) or SeedValues({})

    def rows(self) -> dict[str, Rows]:
        """Return figures over seeds as rows, by table."""
        frames = {
            SKILLS: (self.won_back, ["skill", "method"]),
            PLASTICITY: (self.held_out, ["method", "after"]),
            DORMANT: (self.dormant, ["method", "after"]),
            RETURNING: (self.returning, ["quantity", "method"]),
            "choosing": (self.choosing, ["method"]),
        }
        costs = [
            {"cost": cost, "method": method, **spread.columns()}
            | self.times_scratch(cost, method).columns({"mean": "times_scratch"})
            for cost, spreads in self.totals.items()
            for method, spread in spreads.items()
        ]
        tables = {name: records(summary(rows, by, "value")) for name, (rows, by) in frames.items() if rows is not None}
        return {name: rows for name, rows in {**tables, COSTS: costs}.items() if rows}


def write_continual_report(folder: Path, out: Path | None = None, against: str | None = None) -> Path:
    """Write the report of a run folder and return its Markdown file, in `report` of the folder unless `out` is given.

    Beside it lie `page.html`, `report.json`, `tables/*.parquet` and `figures/*.png`; what the run has no table of is
    left out. `against` is the method that others are compared with.

    Raises:
        SoulsGraphError: if the folder holds no evaluations, or a damaged table.
        WriteError: if the place cannot be written.
    """
    found = read_folder(folder)
    out, scores = out or folder / "report", score(found[EVALUATIONS], against)
    tables = RunTables(found, scores, planned_units(folder), sessions_of(folder))
    title = f"Continual learning: {scores.counted}"
    parts = [part for part in _sections(tables) if not part.empty]
    images = {name: png_of(figure) for part in parts for name, figure in part.drawn.items()}
    report, beside = ReportFolder(out), finite(tables.rows())
    for name, content in images.items():
        report.add_picture(name, content)
    for name, rows in {**finite(scores.tables()), **beside}.items():
        report.add_table(name, rows)
    more = {"missing": [vars(unit) for unit in tables.missing], "tables": beside}
    trained = {"trained_at": tables.commits, "wall_time_s": tables.wall_time_s}
    report.end(describe_origin() | trained | scores.to_dict() | more)
    write_text(out / PAGE, page(title, tag("h1", title), *(part.to_html(images) for part in parts)))
    write_text(out / REPORT, "\n\n".join([f"# {title}", *(part.to_markdown() for part in parts)]) + "\n")
    return out / REPORT


def _sections(tables: RunTables) -> Iterator[ReportSection]:
    """Yield the parts of a report in order; those without anything to show are empty."""
    scores = tables.scores
    note = "Mean over seeds with its 95 % t interval, as shares of fights. The arrow shows where it is better."
    yield ReportSection("Scores", (*tables.missing_note, note, *scores.notes), (scores.table(MAIN),))
    note = (
        "Mean of the middle half of all values, one of each seed and task, with its stratified bootstrap interval "
        "(Agarwal et al. 2021, rliable)."
    )
    yield ReportSection("Interquartile means", (note,), (scores.table(MAIN, "interquartile_mean"),))
    if scores.against is not None:
        note = (
            f"Difference from {scores.against} within each seed with its 95 % t interval over seeds, and the p value "
            "of the paired t test, adjusted by Holm's rule for the number of methods."
        )
        yield ReportSection(f"Beside {scores.against}", (note,), (scores.difference_table(MAIN),))
    note = (
        "Forgetting and forward transfer above are Continual World's (Wolczyk et al. 2021). Here, each under its own "
        "name: GEM (Lopez-Paz & Ranzato 2017), Chaudhry et al. (2018), CORA (Powers et al. 2022), MEAL (Tomilin et "
        "al. 2025)."
    )
    yield ReportSection("By other formulas", (note,), (scores.table(OTHERS),))
    names = ", ".join(f"{place} {name}" for place, name in enumerate(scores.task_names, 1))
    pictures = {"matrices": figures.draw_matrices(scores), "performance": figures.draw_performance(scores)}
    yield ReportSection("Over the sequence", (f"Tasks: {names}.",), (), pictures)
    by_task = {
        "forward-transfer-decisions": ("forward_transfer", "Forward transfer over decisions", "forward transfer"),
        "forward-transfer-ticks": ("forward_transfer_ticks", "Forward transfer over control ticks", "forward transfer"),
        "forgetting": ("forgetting", "Forgetting", "own end minus final win rate"),
    }
    drawn = {name: figures.draw_by_task(scores, *asked) for name, asked in by_task.items()}
    yield ReportSection("Transfer and forgetting by task", (), (), drawn)
    yield _returning(tables)
    yield _skills(tables)
    yield _plasticity(tables)
    yield _costs(tables)
    yield ReportSection("How this was made", tuple(_made(tables)))


def _returning(tables: RunTables) -> ReportSection:
    title, frame = "Tasks that come again", tables.returning
    if frame is None or frame.empty:
        return ReportSection(title)
    spreads = {
        str(method): {quantity: seed_values(own[own["quantity"] == quantity], "value") for quantity in VISITS}
        for method, own in frame.groupby("method", sort=False)
    }
    count = len(metrics.returns_of(tables.scores.task_names))
    note = (
        f"Win rates in the same fight as a task and as a task again, the mean over {count} "
        f"{'returns' if count != 1 else 'return'}: mean over seeds with its 95 % t interval. The last column is a "
        "difference within each seed."
    )
    rows = [[method, *(_text(spread) for spread in by_quantity.values())] for method, by_quantity in spreads.items()]
    return ReportSection(title, (note,), ((["method", *VISITS.values()], rows),))


def _skills(tables: RunTables) -> ReportSection:
    if tables.won_back is None:
        return ReportSection("Forgetting by skill")
    spreads = {
        str(skill): {str(method): seed_values(own, "value") for method, own in rows.groupby("method", sort=False)}
        for skill, rows in tables.won_back.groupby("skill", sort=False)
    }
    note = (
        "The final agent plays each earlier task with one skill's kept version put back: the win rate above that "
        "of its newest versions, the mean over those tasks. That is what forgetting in this skill alone costs."
    )
    methods = tables.scores.methods
    rows = [
        [method, *(_text(by_method.get(method)) for by_method in spreads.values())]
        for method in methods
        if any(method in by_method for by_method in spreads.values())
    ]
    drawn = figures.draw_skills(spreads, methods)
    return ReportSection("Forgetting by skill", (note,), ((["method", *spreads], rows),), {"skills": drawn})


def _plasticity(tables: RunTables) -> ReportSection:
    scores = tables.scores
    quantities = {"win rate on held-out bosses": tables.held_out, "share of dormant units": tables.dormant}
    points = {
        label: {
            str(method): {int(after): seed_values(own, "value") for after, own in rows.groupby("after")}
            for method, rows in frame.groupby("method")
        }
        for label, frame in quantities.items()
        if frame is not None
    }
    if not points and not scores.shown([METRICS["own_performance"]]):
        return ReportSection("Plasticity")
    shown = []
    for label, by_method in points.items():
        moments = _few(sorted({after for known in by_method.values() for after in known}))
        rows = [
            [name, *(_text(by_method[name].get(after)) for after in moments)]
            for name in scores.methods
            if name in by_method
        ]
        shown.append(([label, *(f"after {after}" for after in moments)], rows))
    note = (
        "The end of each task's own training over its position. Held-out bosses are learned for a fixed budget from "
        "the agent after each number of tasks; the share of dormant units is the mean over skills."
    )
    return ReportSection("Plasticity", (note,), tuple(shown), {"plasticity": figures.draw_plasticity(scores, points)})


def _few(moments: Sequence[int]) -> list[int]:
    """Return at most `_COLUMNS` of the moments, evenly spread, with the first and the last."""
    places = range(len(moments)) if len(moments) <= _COLUMNS else np.linspace(0, len(moments) - 1, _COLUMNS).round()
    return [moments[int(place)] for place in places]


def _costs(tables: RunTables) -> ReportSection:
    totals, chosen = tables.totals, tables.choosing
    if not totals:
        means = [] if chosen is None else records(summary(chosen, ["method"], "value"))
        choosing = [[str(row["method"]), number(row["mean"], 0)] for row in means]
        return ReportSection("Costs", tables=((["method", _COSTS[CHOOSING][0]], choosing),))
    methods = list(totals["decisions"])
    rows = [[method, *(_cost_text(tables, cost, method) for cost in totals)] for method in methods]
    notes = [
        f"Over all tasks: mean over seeds (95 % t interval); in brackets as a multiple of {SCRATCH}, which trains "
        "each task from nothing. Decisions are those of all learning skills, selection included."
    ]
    if chosen is not None:
        notes.append(
            "Where nobody says which task is played, versions are chosen by fights before: the decisions of these for "
            "all tasks at the end come on top, and the figure counts both."
        )
    drawn = {_COSTS[cost][0]: tables.played if cost == "decisions" else totals[cost] for cost in _DRAWN}
    headings = ["method", *(_COSTS[cost][0] for cost in totals)]
    pictures = {"costs": figures.draw_costs(tables.scores, drawn)}
    return ReportSection("Costs", tuple(notes), ((headings, rows),), pictures)


def _cost_text(tables: RunTables, cost: str, method: str) -> str:
    spread, times, digits = tables.totals[cost][method], tables.times_scratch(cost, method), _COSTS[cost][1]
    low, high = spread.mean_interval
    text = f"{spread.mean:,.{digits}f}"
    # What every seed spends alike, as a budget, needs no interval.
    if spread.seeds > 1 and low < high:
        text += f" ({low:,.{digits}f} to {high:,.{digits}f})"
    return f"{text} [{number(times.mean, 2)}]" if times.seeds and cost in _NORMALISED else text


def _text(spread: SeedValues | None) -> str:
    return with_interval(spread.mean, spread.mean_interval, 3) if spread and spread.seeds else "-"


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
