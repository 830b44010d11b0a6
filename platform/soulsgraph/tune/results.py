"""What the trials of a sweep led to: a row each, the settings over seeds, and a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from operator import itemgetter
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from soulsgraph.results.origin import describe_origin
from soulsgraph.results.tables import Printed, Table, frame_of, read_rows, readable_table, write_rows
from soulsgraph.runs.progress import Interruption
from soulsgraph.tune.folder import (
    EPISODES,
    FAILED,
    FINISHED,
    INTERRUPTED,
    OPTIONS,
    RETURN,
    STOPPED,
    TRIALS,
    WIN_RATE,
    SweepFolder,
)
from soulsgraph_envs.core.errors import SoulsGraphError

if TYPE_CHECKING:
    import pandas as pd
    from ray.tune.experiment import Trial

#: How Ray Tune calls a trial that ended.
_ENDED = {"TERMINATED": FINISHED, "ERROR": FAILED}
#: Settings whose curves are drawn.
_MOST_CURVES = 10
#: Of a population each seed has its best member, by its fights while it learned, and the mean of all.
_MEMBERS, _BEST, _MEAN = "members", "best", "mean"


def rows_of(folder: SweepFolder) -> list[dict[str, Any]]:
    """Return the trials so far as rows, those that did not begin included, in the order of their run folders.

    A row has the setting and seed of a trial, how it ended, and its last figures.
    """
    if not folder.plan.searched:
        file = folder.path / folder.tables / f"{TRIALS}.parquet"
        return sorted(read_rows(file) if file.exists() else [], key=itemgetter("run"))
    # Imported here: it takes seconds.
    from soulsgraph.tune.tuners import seed_of, trials_of

    rows = []
    for trial in trials_of(folder):
        reported, state = trial.last_result or {}, _ENDED.get(trial.status, INTERRUPTED)
        state = STOPPED if state == FINISHED and EPISODES not in reported else state
        setting, seed = trial.config[OPTIONS], seed_of(trial.config, folder.plan.seeds)
        rows.append(folder.row(setting, seed, state, reported, _error(trial), trial.trial_id))
    return sorted(rows, key=itemgetter("run"))


def _error(trial: Trial) -> str:
    """Return the last line of what a trial failed by; empty where it did not."""
    if trial.status != "ERROR":
        return ""
    try:
        error = trial.get_pickled_error() or trial.get_error()
    except (EOFError, OSError, UnpicklingError):
        return "its error could not be written whole, as on a full disk."
    return str(getattr(error, "cause", error)).strip().rpartition("\n")[2] if error else ""


@dataclass(frozen=True, repr=False)
class SweepResults(Printed):
    """The trials of a sweep, a row each; printed as a table of the settings over seeds, the best first.

    Example:
        results = soulsgraph.sweep({"gamma": [0.98, 0.99]}, run="runs/gamma")
        results.frame, results.best
    """

    folder: SweepFolder
    rows: Sequence[Mapping[str, Any]]

    @property
    def frame(self) -> Any:
        """A data frame with a row a trial: options, seed, state, decisions of the last skill, figure, run folder."""
        return frame_of([*self.rows])

    @property
    def _metric(self) -> str:
        return self.folder.plan.metric

    @property
    def _axis(self) -> tuple[str, float]:
        """The label of the metric in pictures, and its scale there."""
        return ("win rate, %", 100.0) if self._metric == WIN_RATE else ("mean return", 1.0)

    @property
    def finished(self) -> list[Mapping[str, Any]]:
        """The rows of trials that were trained to the end, those of the best setting first.

        Settings are compared where all seeds of each were seen to the same step, those that were seen furthest: of the
        seeds that ASHA lets go on the luckiest would say most. Where they win alike they stand by their mean return. Of
        populations, whose settings change, the member comes first that was best while it learned.
        """
        whole = [row for row in self._distinct if row["state"] == FINISHED]
        if self._by_members:
            return sorted(whole, key=lambda row: -float(row["training_return"]))
        standings = self._standings
        return sorted(whole, key=lambda row: standings[self._setting(row)], reverse=True)

    @property
    def _distinct(self) -> list[Mapping[str, Any]]:
        """The rows of trials, one a run: a setting that was drawn twice counts once."""
        return list({row["run"]: row for row in self.rows}.values())

    def _setting(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.folder.plan.space.names)

    @cached_property
    def _standings(self) -> dict[tuple[Any, ...], tuple[float, ...]]:
        """By setting the step to which all of its seeds were seen, and its mean figures there; the best is highest."""
        by_setting: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
        for row in self._distinct:
            by_setting.setdefault(self._setting(row), []).append(row)
        seeds, metrics = len(self.folder.plan.seeds), dict.fromkeys((self._metric, RETURN))
        found = {}
        for setting, rows in by_setting.items():
            step = min(row["step"] or 0 for row in rows) if len(rows) == seeds else 0
            if not all(row["state"] == FINISHED for row in rows):
                rows = [self._seen(row, step) for row in rows]
            figures = ([float(row[name]) for row in rows if row.get(name) is not None] for name in metrics)
            found[setting] = (float(step), *(sum(one) / len(one) if one else -math.inf for one in figures))
        return found

    def _seen(self, row: Mapping[str, Any], step: int) -> Mapping[str, Any]:
        """Return the last point of a trial's learning curve up to a step; nothing without one."""
        points = self._points(row)
        seen = None if points is None else points[points["step"] <= step]
        return {} if seen is None or seen.empty else seen.iloc[-1].to_dict()

    @property
    def too_short(self) -> bool:
        """Whether no trial won a fight: settings stand by their mean return, and little can be said of them."""
        return self._metric == WIN_RATE and bool(self.finished) and not any(row[WIN_RATE] for row in self.finished)

    @property
    def _by_members(self) -> bool:
        return self.folder.plan.scheduler == "pbt"

    @property
    def best(self) -> dict[str, Any]:
        """The setting of the highest mean figure, of populations the last one of their best member.

        Empty where nothing was seen of all seeds of a setting.
        """
        names = self.folder.plan.space.names
        if self._by_members:
            return {name: row[name] for row in self.finished[:1] for name in names}
        setting, (step, *_) = max(self._standings.items(), key=itemgetter(1), default=((), (0.0,)))
        return dict(zip(names, setting, strict=True)) if step else {}

    @property
    def _names(self) -> Sequence[str]:
        """What tells the rows over seeds apart."""
        return (_MEMBERS,) if self._by_members else self.folder.plan.space.names

    @property
    def by_seed(self) -> pd.DataFrame:
        """The trials that were trained to the end; of populations the best member of each seed, and the mean of all."""
        if not self._by_members:
            return frame_of(self.finished)
        members: dict[int, list[Mapping[str, Any]]] = {}
        for row in self.finished:
            members.setdefault(row["seed"], []).append(row)
        best = [{_MEMBERS: _BEST, **rows[0]} for rows in members.values()]
        means = [
            {_MEMBERS: _MEAN, "seed": seed, RETURN: sum(row[RETURN] for row in rows) / len(rows)}
            for seed, rows in members.items()
        ]
        return frame_of([*best, *means])

    @property
    def summary(self) -> pd.DataFrame:
        """The mean figure of each setting with its interval over seeds, of win rates in percent; none of no trial."""
        from soulsgraph.results.seeds import summary

        frame = self.by_seed
        if frame.empty:
            return frame
        scaled = frame.assign(figure=self._axis[1] * frame[self._metric])
        name = "win_percent" if self._metric == WIN_RATE else RETURN
        return summary(scaled, self._names, "figure", {"seeds": "seeds", "mean": name})

    @property
    def tables(self) -> list[Table]:
        """The settings over seeds, and each seed's trials; none where no trial finished."""
        from soulsgraph.results.seeds import seed_tables

        sweep = self.folder.plan
        what = "Win rate" if self._metric == WIN_RATE else f"Mean return of {sweep.stage}"
        title = f"{what} in {sweep.scenario}, {sweep.plan.episodes} episodes a seed"
        return seed_tables(title, self.by_seed, self.summary) if len(self.summary) else []

    @property
    def notes(self) -> list[str]:
        """Lines about trials that did not finish, and where the files are."""
        counts = {state: sum(row["state"] == state for row in self.rows) for state in (STOPPED, FAILED, INTERRUPTED)}
        lines = [f"{count} of {self.folder.plan.trials} trials {state}" for state, count in counts.items() if count]
        if self.too_short:
            lines.append(
                "no trial won a fight: these runs are too short to tell settings apart; they stand by mean return"
            )
        elif counts[STOPPED] and (best := self.best):
            step = int(self._standings[tuple(best.values())][0])
            named = ", ".join(f"{name} {value}" for name, value in best.items())
            lines.append(f"best of the settings whose seeds were all seen to decision {step:,}: {named}")
        return [*lines, f"results in {self.folder.path / 'results'}"]

    def save(self) -> None:
        """Write `results/`: `trials.parquet`, and where a trial finished a report, as Markdown and as a page.

        Raises:
            WriteError: if the place cannot be written.
        """
        results, sweep, (label, scale) = self.folder.path / "results", self.folder.plan, self._axis
        write_rows(results / f"{TRIALS}.parquet", self.rows)
        if not (tables := self.tables):
            return
        # Imported here, as above: it takes a moment, and most of a sweep needs none.
        from soulsgraph.pages.report import Report, Section
        from soulsgraph.results.figures import draw_curves, draw_settings

        asked = f"{sweep.trials} trials, search {sweep.search}, scheduler {sweep.scheduler}, preset {sweep.plan.preset}"
        notes = (
            "Means over training seeds with 95 % t intervals.",
            "In the picture a circle is a seed, the tick their median, the band the interval of their mean.",
            f"{asked}.",
        )
        curves, note = self._curves()
        drawn = draw_curves({sweep.stage or sweep.scenario: curves}, label)
        settings = {"settings.png": draw_settings(self.by_seed, self._names, self._metric, label, scale)}
        sections = [
            Section("Settings", notes, tables[:1], settings),
            Section("Learning curves", (note,) if curves else (), pictures={"curves.png": drawn}),
            Section("Trials", self.notes[:-1], (readable_table("", self.rows),)),
        ]
        title = f"Sweep of {', '.join(sweep.space.names)}"
        Report(title, sections).write(results, describe_origin() | self.to_dict(), {})

    def _curves(self) -> tuple[dict[str, pd.DataFrame], str]:
        """Return curves over seeds by their names in a legend, and what the picture shows: of the best settings.

        Of populations those of the best member of each seed, and of all.
        """
        found: dict[Any, list[pd.DataFrame]] = {}
        best = set[int]()
        for row in self.finished:
            if (curve := self._curve_of(row)) is None:
                continue
            for name in (_BEST, _MEAN) if self._by_members else (self._setting(row),):
                if name != _BEST or row["seed"] not in best:
                    found.setdefault(name, []).append(curve)
            best.add(row["seed"])
        if self._by_members:
            note = (
                "Greedy play at each comparison: the mean of the best member of each seed, and that of all members; a "
                "band reaches from the lowest of them to the highest. A member's curve goes on where it copied another."
            )
            return {name: _over_seeds(curves) for name, curves in found.items()}, note
        drawn = dict(islice(found.items(), _MOST_CURVES))
        of_all = f", the {len(drawn)} best of {len(found)} settings" if len(drawn) < len(found) else ""
        note = (
            "Greedy play at each checkpoint, the mean over training seeds; a band reaches from the lowest seed to the "
            f"highest. Settings stand in order, the best first{of_all}."
        )
        options = self.folder.plan.space.names
        alike = len({name.rpartition(".")[0] for name in options}) == 1
        short = [name.rpartition(".")[2] if alike else name for name in options]
        shown = ([f"{one:g}" if isinstance(one, float) else one for one in values] for values in drawn)
        names = [", ".join(f"{name} {one}" for name, one in zip(short, values, strict=True)) for values in shown]
        return dict(zip(names, map(_over_seeds, drawn.values()), strict=True)), note

    def _points(self, row: Mapping[str, Any]) -> pd.DataFrame | None:
        """Return the last stage's points of the learning curves of a trial's run; None where it has none."""
        file = self.folder.path / row["run"] / "results" / "curves.parquet"
        if not file.exists() or (points := frame_of(read_rows(file))).empty:
            return None
        return points[points["stage"] == points["stage"].iloc[-1]].sort_values("step").reset_index()

    def _curve_of(self, row: Mapping[str, Any]) -> pd.DataFrame | None:
        points = self._points(row)
        return None if points is None else points.assign(mean=self._axis[1] * points[self._metric])[["step", "mean"]]

    def check(self) -> None:
        """Refuse results that are not whole.

        Raises:
            SoulsGraphError: if a trial failed, with the first one's error.
            Interruption: if trials are left.
        """
        if failed := [row for row in self.rows if row["state"] == FAILED]:
            first = failed[0]
            raise SoulsGraphError(
                f"sweep {self.folder.path}: expected every trial to finish, found that {len(failed)} of "
                f"{len(self.rows)} failed, the first in {first['run']}: {first['error']} Correct this and run the "
                "same sweep again."
            )
        trials, ended = self.folder.plan.trials, sum(row["state"] != INTERRUPTED for row in self.rows)
        if ended < trials:
            raise Interruption(f"stopped with {trials - ended} of {trials} trials left")

    def to_dict(self) -> dict[str, Any]:
        """Return the settings over seeds, and every trial, as plain values."""
        from soulsgraph.results.seeds import records

        return {"best": self.best, "trials": [dict(row) for row in self.rows], "rows": records(self.summary)}

    def to_rich(self) -> list[RenderableType]:
        """Return the table and the notes for the terminal."""
        tables = [table.to_rich() for table in self.tables]
        return [*tables, *([] if tables else ["no trial finished"]), *self.notes]


def _over_seeds(curves: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the means of curves, checkpoint by checkpoint as far as all go, between the lowest and the highest."""
    import pandas as pd

    points = pd.concat([curve[: min(map(len, curves))] for curve in curves]).groupby(level=0)
    return points.agg(step=("step", "mean"), mean=("mean", "mean"), low=("mean", "min"), high=("mean", "max"))
