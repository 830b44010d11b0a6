"""The records of a reproduction: win rates, curves and measures of every seed, and whether they are as expected.

The expected ranges are data; medians over seeds decide.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from soulsgraph.paper.study import COLUMNS, DESCRIPTION, REFERENCE, TABLE_1_PARTS, Records
from soulsgraph.results.seeds import SeedValues, paired_difference, paired_ratio, seed_curves
from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import TextTable, read_rows, seeds_text
from soulsgraph.runs.evaluate import TABLE_1
from soulsgraph.runs.study_folder import sessions_of
from soulsgraph_envs.core.config import Where, read_file, to_table, validate
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.skills import END_TO_END as END_TO_END_SKILL

#: The learner of a study that is this package's own.
OWN_LEARNER = "soulsgraph"


@dataclass(frozen=True)
class SettingRates:
    """One row of a table of win rates: a setting, played by the agent of every seed."""

    label: str
    part: str
    scenario: str
    start: str
    #: What the paper reports for the setting, None for a setting that it lacks.
    paper_percent: float | None
    seeds: Mapping[int, WinRate]

    @cached_property
    def spread(self) -> SeedValues:
        """The win rates in percent over seeds."""
        return SeedValues({seed: count.percent for seed, count in self.seeds.items()})


@dataclass(frozen=True)
class Reproduction:
    """The records of one reproduction, under the name that reports give it."""

    name: str
    description: Mapping[str, Any] = field(default_factory=dict)
    rows: Records = field(default_factory=list)
    curves: Records = field(default_factory=list)
    training: Records = field(default_factory=list)
    measures: Records = field(default_factory=list)

    @property
    def plan(self) -> Mapping[str, Any]:
        """What was planned; empty where nothing describes it."""
        plan: Mapping[str, Any] = self.description.get("plan", {})
        return plan

    @property
    def preset(self) -> str:
        """The preset of every record; empty if nothing names one."""
        records = chain(self.rows, self.curves, self.training, self.measures)
        return str(self.plan.get("preset") or next((row["preset"] for row in records), ""))

    @property
    def learner(self) -> str:
        """Who learned: this package's DQN as its preset says, or the package whose DQN it was."""
        return str(self.plan.get("learner") or OWN_LEARNER)

    @property
    def method(self) -> str:
        """What was trained, not to be mistaken for the paper's own figures: the first preset is called `paper` too."""
        if self.learner != OWN_LEARNER:
            return self.learner
        changed = ", ".join(f"{name}={value}" for name, value in self.plan.get("overrides", {}).items())
        return f"preset {self.preset}" + (f" with {changed}" if changed else "")

    @property
    def short_name(self) -> str:
        """The preset, or the learner's package; empty where options were changed or nothing names one."""
        own = self.preset if self.learner == OWN_LEARNER else self.learner
        return "" if self.plan.get("overrides") else own

    @property
    def title(self) -> str:
        """The method, and the name before it where that is another."""
        return self.method if self.name == self.short_name else f"{self.name} ({self.method})"

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """The training seeds in the records; scripted references have none."""
        trained = (row for row in self.rows if row["part"] != REFERENCE)
        return tuple(sorted({row["seed"] for row in chain(trained, self.curves, self.training, self.measures)}))

    @property
    def seeds_told(self) -> str:
        """How many seeds are recorded, and of how many planned ones where some are missing."""
        planned, done = self.plan.get("seeds"), len(self.seeds)
        if isinstance(planned, list) and done < len(planned):
            return f"unfinished: {done} of {seeds_text(len(planned))}"
        return seeds_text(done)

    @cached_property
    def settings(self) -> tuple[SettingRates, ...]:
        """Every evaluated setting, in the order recorded.

        Raises:
            SoulsGraphError: if a seed is recorded twice for a setting.
        """
        groups: dict[tuple[str, ...], Records] = defaultdict(list)
        for row in self.rows:
            groups[row["label"], row["scenario"], row["start"]].append(row)
        return tuple(_setting(rows) for rows in groups.values())

    @cached_property
    def setting(self) -> Mapping[str, SettingRates]:
        """The settings of Table 1 by label, in its order."""
        found = {setting.label: setting for setting in self.settings if setting.part in TABLE_1_PARTS}
        return {row.label: found[row.label] for row in TABLE_1 if row.label in found}

    def rates(self, label: str) -> SeedValues | None:
        """Return the win rates of a row of Table 1 in percent, None where it was not evaluated."""
        return self.setting[label].spread if label in self.setting else None

    @cached_property
    def measure(self) -> Mapping[str, SeedValues]:
        """The measures by name, each over seeds."""
        values: dict[str, dict[int, float]] = defaultdict(dict)
        for row in self.measures:
            values[row["name"]][row["seed"]] = float(row["value"])
        return {name: SeedValues(by_seed) for name, by_seed in values.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return every seed's wins as plain values, rates as ratios; the rows of Table 1 come first, in its order."""
        order = {row.label: place for place, row in enumerate(TABLE_1)}
        rows = [
            {
                "part": setting.part,
                "setting": setting.label,
                "scenario": setting.scenario,
                "start": setting.start,
                "paper_percent": setting.paper_percent,
                "seeds": {
                    str(seed): {"wins": count.wins, "episodes": count.episodes} for seed, count in setting.seeds.items()
                },
                "median_rate": median(count.wins / count.episodes for count in setting.seeds.values()),
            }
            for setting in sorted(self.settings, key=lambda item: (item.part, order.get(item.label, len(order))))
        ]
        return {"name": self.name, "preset": self.preset, "rows": rows}

    def to_rich(self) -> Table:
        """Return every seed's wins as a table for the terminal."""
        table = TextTable(title=f"Win rates, {self.title}")
        for heading in ("setting", "paper", "median", "each seed in %", "wins"):
            table.add_column(heading, justify="left" if heading == "setting" else "right")
        for row in self.to_dict()["rows"]:
            table.add_row(*_cells(row))
        return table


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    papers = "" if row["paper_percent"] is None else f"{row['paper_percent']:g} %"
    seeds = row["seeds"].values()
    rates = " ".join(f"{100 * seed['wins'] / seed['episodes']:.1f}" for seed in seeds)
    wins = " ".join(str(seed["wins"]) for seed in seeds)
    episodes = "/".join(map(str, sorted({seed["episodes"] for seed in seeds})))
    fight = f" ({row['scenario']}, {row['start']})" if row["part"] == REFERENCE else ""
    return row["setting"] + fight, papers, f"{100 * row['median_rate']:.1f} %", rates, f"{wins} of {episodes}"


def load_reproductions(folders: Sequence[Path]) -> tuple[Reproduction, ...]:
    """Load the records of every folder, each named by its preset or learner, or by its folder where that repeats.

    Raises:
        SoulsGraphError: if a folder is given twice, or holds no records, or some that are damaged.
    """
    places = [folder.resolve() for folder in folders]
    if len(set(places)) < len(places):
        raise SoulsGraphError(
            f"report: expected each folder once, found {', '.join(map(str, folders))}; leave one out."
        )
    loaded = [_load(folder) for folder in folders]
    names = [item.short_name for item in loaded]
    names = [name if name and names.count(name) == 1 else place.name for name, place in zip(names, places, strict=True)]
    names = [
        f"{place.parent.name}/{name}" if names.count(name) > 1 else name
        for name, place in zip(names, places, strict=True)
    ]
    return tuple(replace(item, name=name) for item, name in zip(loaded, names, strict=True))


def _load(folder: Path) -> Reproduction:
    records = {name: _read(folder / "records" / f"{name}.parquet", columns) for name, columns in COLUMNS.items()}
    if not any(records.values()):
        found = "no records in it" if folder.exists() else "no such folder"
        raise SoulsGraphError(f"{folder}: expected the folder of a reproduction, found {found}", _remedy(folder))
    return Reproduction("", _described(folder), **records)


def _described(folder: Path) -> Mapping[str, Any]:
    """Read what describes a folder, and check what a report computes with; nothing where it is not there."""
    if not (file := folder / DESCRIPTION).exists():
        return {}
    where, table = Where(file, remedy="restore the file from a copy"), dict[str, Any]
    description = validate(table, read_file(where), where)
    plan = validate(table, description.get("plan", {}), where.at("plan"))
    validate(table, plan.get("overrides", {}), where.at("plan").at("overrides"))
    sessions = sessions_of(folder)
    took_s = round(sum(one.wall_time_s for one in sessions), 1)
    return {**description, "wall_time_s": took_s, "sessions": [to_table(one) for one in sessions]}


def _read(path: Path, columns: Sequence[str]) -> Records:
    if not path.exists():
        return []
    remedy = _remedy(path.parents[1])
    rows = read_rows(path, remedy)
    missing = [name for name in columns if rows and name not in rows[0]]
    if missing:
        raise SoulsGraphError(f"{path}: expected columns {', '.join(columns)}; found no {', '.join(missing)}", remedy)
    for row in rows:
        if not _holds(row):
            raise SoulsGraphError(
                f"{path}: expected a seed, and wins of one or more episodes or a value, found {row!r:.200}", remedy
            )
    return rows


def _remedy(folder: Path) -> str:
    """Return the remedy for missing or damaged records, which are made from what is under `seeds/`."""
    if (folder / DESCRIPTION).exists():
        return "run the same reproduction again, which writes them"
    return "name the folder of a reproduction"


def _holds(row: Mapping[str, Any]) -> bool:
    """Return whether a record's numbers are valid for statistics."""
    wins, episodes = row.get("wins", 0), row.get("episodes", 1)
    whole = all(type(number) is int for number in (row["seed"], wins, episodes))
    numbers = (row.get("value", 0.0), row.get("step", 0))
    return whole and 0 <= wins <= episodes and episodes > 0 and all(isinstance(n, int | float) for n in numbers)


def _setting(rows: Records) -> SettingRates:
    first, rows = rows[0], sorted(rows, key=lambda row: int(row["seed"]))
    seeds = {row["seed"]: WinRate(row["wins"], row["episodes"]) for row in rows}
    if len(seeds) < len(rows):
        found = ", ".join(str(row["seed"]) for row in rows)
        raise SoulsGraphError(
            f"setting {first['label']!r}: expected each seed once, found {found}; write the records again with "
            "the same reproduction."
        )
    percent = first.get("paper_percent")
    paper = None if percent is None or math.isnan(percent) else float(percent)
    return SettingRates(first["label"], first["part"], first["scenario"], first["start"], paper, seeds)


#: Episodes a setting, by the caption of Table 1.
PAPER_EPISODES = 25


def paper_rate(percent: float) -> WinRate:
    """Return the count of at most 25 episodes, as many as possible, whose share rounds to `percent` at one decimal.

    Raises:
        SoulsGraphError: if no count fits.
    """
    for episodes in range(PAPER_EPISODES, 0, -1):
        count = WinRate(round(percent * episodes / 100.0), episodes)
        # Half a unit of the printed decimal, and a little for the float that holds it.
        if abs(count.percent - percent) <= 0.05 + 1e-9:
            return count
    raise SoulsGraphError(
        f"win rate {percent}: expected the share of a count of at most {PAPER_EPISODES} episodes in percent, "
        "found none that fits; correct paper_percent of the row."
    )


@dataclass(frozen=True)
class RangeVerdict:
    """One expected range beside the value found; `inside` is None if nothing was measured."""

    subject: str
    expected: str
    found: str = "not measured"
    inside: bool | None = None


@dataclass(frozen=True)
class ExpectedRange:
    """An expected range, ends included; they are printed with `digits` decimals."""

    low: float = -math.inf
    high: float = math.inf
    unit: str = " %"
    digits: int = 0

    def holds(self, value: float) -> bool:
        """Return whether the value lies within."""
        return self.low <= value <= self.high

    def text(self) -> str:
        """Return the range for readers, as `32-56 %` or `at most 5 %`."""
        low, high = (f"{end:.{self.digits}f}" for end in (self.low, self.high))
        if math.isinf(self.low):
            return f"at most {high}{self.unit}"
        return f"at least {low}{self.unit}" if math.isinf(self.high) else f"{low}-{high}{self.unit}"

    def verdict(self, subject: str, measured: SeedValues | float | None) -> RangeVerdict:
        """Compare a value, or the median of values over seeds, with the range; None stands for no measurement."""
        if measured is None:
            return RangeVerdict(subject, self.text())
        value = measured.median if isinstance(measured, SeedValues) else measured
        return RangeVerdict(subject, self.text(), f"{value:.{self.digits + 1}f}{self.unit}", self.holds(value))


NEITHER, DODGE_TRAINED, HEAL_ATTACK_TRAINED, BOTH, END_TO_END, MID, LONG, FINE_TUNED = (row.label for row in TABLE_1)

#: Pairs of rows whose difference says something, the first minus the second.
CONTRASTS = (
    (BOTH, HEAL_ATTACK_TRAINED),
    (BOTH, DODGE_TRAINED),
    (HEAL_ATTACK_TRAINED, NEITHER),
    (BOTH, END_TO_END),
    (BOTH, MID),
    (MID, LONG),
    (FINE_TUNED, MID),
)
#: Rows that variants of an ablation are compared by.
ABLATION_ROWS = (BOTH, MID, FINE_TUNED)

#: Median win rates in percent.
ROW_RANGES = {
    NEITHER: ExpectedRange(0.0, 3.0),
    DODGE_TRAINED: ExpectedRange(1.0, 10.0),
    HEAL_ATTACK_TRAINED: ExpectedRange(5.0, 28.0),
    BOTH: ExpectedRange(32.0, 56.0),
    END_TO_END: ExpectedRange(high=5.0),
    MID: ExpectedRange(20.0, 46.0),
    LONG: ExpectedRange(5.0, 25.0),
    FINE_TUNED: ExpectedRange(42.0, 65.0),
}
#: Points that the fine-tuned median lies above the zero-shot one at least.
FINE_TUNING_GAIN = ExpectedRange(low=8.0, unit=" points")
#: Mean decisions of a dodge episode (Figure 6).
DODGE_LENGTHS = {
    "random": ExpectedRange(110.0, 200.0, " decisions"),
    "trained": ExpectedRange(220.0, 400.0, " decisions"),
}
#: Seconds of game time survived, trained over random: about twice in the paper (Appendix D.1). Decisions are no
#: measure of survival: an idle one takes one tick, a dodge five.
DODGE_RATIO = ExpectedRange(low=1.8, unit="", digits=1)
#: Seconds of the baseline's episodes, last tenth of its training over the first: hardly any change in Figure 5.
BASELINE_GROWTH = ExpectedRange(high=1.5, unit="", digits=1)
#: Gain over random as a share of the scripted policy's gain.
GAIN_SHARES = {
    "camera": ExpectedRange(low=0.8, unit="", digits=1),
    "lock_on": ExpectedRange(low=0.6, unit="", digits=1),
    "movement": ExpectedRange(low=0.8, unit="", digits=1),
}

#: Presets evaluated against the scripted oracle instead of the paper.
BEYOND_PAPER = ("best", "whole")
#: Median win rate as a share of the oracle's in the same fight.
ORACLE_SHARES = {
    BOTH: ExpectedRange(low=0.88, unit="", digits=2),
    MID: ExpectedRange(low=0.67, unit="", digits=2),
    FINE_TUNED: ExpectedRange(low=0.92, unit="", digits=2),
}
#: Standard deviation over seeds of those rows.
BEST_DEVIATION = ExpectedRange(high=6.0, unit=" points")
#: Win rates that the scripted controls should reach.
ORACLE_RANGE, RESTRICTED_ORACLE_RANGE = ExpectedRange(low=95.0), ExpectedRange(low=60.0)


def verdicts_of(reproduction: Reproduction) -> tuple[RangeVerdict, ...]:
    """Compare the reproduction with every expected range of its preset; what was not recorded stays undecided."""
    verdicts = _against_oracle if reproduction.preset in BEYOND_PAPER else _against_paper
    return (*verdicts(reproduction), *_controls(reproduction))


def gain_share(reproduction: Reproduction, skill: str) -> SeedValues | None:
    """Return each seed's gain over random as a share of the scripted policy's, None if not measured."""
    trained, random, scripted = (
        reproduction.measure.get(f"{skill} return {policy}") for policy in ("trained", "random", "scripted")
    )
    return paired_ratio(paired_difference(trained, random), paired_difference(scripted, random))


def dodge_ratio(reproduction: Reproduction) -> SeedValues | None:
    """Return each seed's seconds survived by trained dodging over those by random dodging, None if not measured."""
    return paired_ratio(*(reproduction.measure.get(f"dodge seconds {policy}") for policy in ("trained", "random")))


def baseline_growth(reproduction: Reproduction) -> SeedValues | None:
    """Return each seed's seconds of an episode in the last tenth of the baseline's training over those in the first.

    None where a seed recorded no episode in either, or none was trained.
    """
    curves = seed_curves(reproduction.training, "episode_seconds", unit="end_to_end", skill=END_TO_END_SKILL)
    if curves is None:
        return None
    tenth = 0.1 * curves.steps[-1]
    first, last = curves.steps <= tenth, curves.steps > curves.steps[-1] - tenth
    if not first.any():
        return None
    growth = curves.values[:, last].mean(axis=1) / curves.values[:, first].mean(axis=1)
    return SeedValues(dict(zip(curves.seeds, growth.tolist(), strict=True)))


def fine_tuning_gain(reproduction: Reproduction) -> SeedValues | None:
    """Return the points of win rate that each seed gained by fine-tuning, None if not measured."""
    return paired_difference(reproduction.rates(FINE_TUNED), reproduction.rates(MID))


def _against_paper(reproduction: Reproduction) -> Iterator[RangeVerdict]:
    for label, expected in ROW_RANGES.items():
        yield expected.verdict(label, reproduction.rates(label))
    yield from _orders(reproduction)
    for policy, expected in DODGE_LENGTHS.items():
        length = reproduction.measure.get(f"dodge length {policy}")
        yield expected.verdict(f"dodge: episode length, {policy}", length)
    yield DODGE_RATIO.verdict("dodge: seconds survived, trained over random", dodge_ratio(reproduction))
    growth = baseline_growth(reproduction)
    yield BASELINE_GROWTH.verdict("end-to-end: seconds of an episode, end over beginning of training", growth)
    for skill, expected in GAIN_SHARES.items():
        subject = f"{skill}: gain over random as a share of the scripted policy's"
        yield expected.verdict(subject, gain_share(reproduction, skill))


def _orders(reproduction: Reproduction) -> Iterator[RangeVerdict]:
    fine_tuned, mid, long = map(reproduction.rates, (FINE_TUNED, MID, LONG))
    order = RangeVerdict("zero-shot from long range below mid-range", "median below that of the mid-range start")
    if long and mid:
        found = f"{long.median:.1f} against {mid.median:.1f} %"
        order = replace(order, found=found, inside=long.median < mid.median)
    yield order
    gain = fine_tuned.median - mid.median if fine_tuned and mid else None
    yield FINE_TUNING_GAIN.verdict("fine-tuned above zero-shot, of medians", gain)
    collapse = RangeVerdict("no seed collapses in fine-tuning", "none below its own zero-shot rate")
    if gains := fine_tuning_gain(reproduction):
        collapsed = [str(seed) for seed, points in sorted(gains.by_seed.items()) if points < 0.0]
        found = f"{len(collapsed)} of {seeds_text(len(gains.by_seed))}"
        found += f" ({', '.join(collapsed)})" if collapsed else ""
        collapse = replace(collapse, found=found, inside=not collapsed)
    yield collapse


def _against_oracle(reproduction: Reproduction) -> Iterator[RangeVerdict]:
    oracles = _oracles(reproduction)
    for label, expected in ORACLE_SHARES.items():
        setting = reproduction.setting.get(label)
        oracle = oracles.get((setting.scenario, setting.start)) if setting else None
        share = setting.spread.median / oracle.spread.median if setting and oracle and oracle.spread.median else None
        yield expected.verdict(f"{label}: share of the oracle's win rate", share)
        spread = setting.spread if setting and len(setting.seeds) > 1 else None
        scatter = BEST_DEVIATION.verdict(
            f"{label}: standard deviation over seeds", spread.deviation if spread else None
        )
        if spread:
            low, high = spread.deviation_interval
            scatter = replace(scatter, found=f"{scatter.found} ({low:.1f}-{high:.1f})")
        yield scatter


def _controls(reproduction: Reproduction) -> Iterator[RangeVerdict]:
    # The restricted oracle answers for the baseline, which fights where Table 1 begins and nowhere else.
    home = (TABLE_1[0].scenario, TABLE_1[0].start)
    restricted = _oracles(reproduction, restricted=True)
    evaluated = [(oracle, ORACLE_RANGE) for oracle in _oracles(reproduction).values()]
    evaluated += [(restricted[home], RESTRICTED_ORACLE_RANGE)] if home in restricted else []
    for oracle, expected in evaluated:
        yield expected.verdict(f"{oracle.label} ({oracle.scenario}, {oracle.start})", oracle.spread)


def _oracles(reproduction: Reproduction, restricted: bool = False) -> dict[tuple[str, str], SettingRates]:
    """Return the scripted oracle's win rates by scenario and start; `restricted` is that of the baseline's 16 actions.

    References are known by their labels: "oracle" is in both, "16" in the restricted one's.
    """
    return {
        (setting.scenario, setting.start): setting
        for setting in reproduction.settings
        if setting.part == REFERENCE and "oracle" in setting.label and ("16" in setting.label) == restricted
    }
