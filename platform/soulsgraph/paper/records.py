"""The records of a reproduction: win rates, curves and measures of every seed, and whether they are as expected.

The expected ranges are data; medians over seeds decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from soulsgraph.paper.study import COLUMNS, DESCRIPTION, REFERENCE, TABLE_1_PARTS, Records
from soulsgraph.results.seeds import NO_SEEDS, difference, ratio, seed_curves, seed_values
from soulsgraph.results.statistics import WinRate, deviation_interval
from soulsgraph.results.tables import Table, read_rows, seeds_text
from soulsgraph.runs.evaluate import TABLE_1
from soulsgraph.runs.study_folder import sessions_of
from soulsgraph_envs.core.config import Where, read_file, to_table
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.skills import END_TO_END as END_TO_END_SKILL
from soulsgraph_policies.learning.hyperparameters import PRESETS

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
    def spread(self) -> pd.Series:
        """The win rates in percent by seed."""
        return pd.Series({seed: count.percent for seed, count in self.seeds.items()})


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
        """Every evaluated setting, in the order recorded."""
        found = []
        frame = pd.DataFrame(self.rows, columns=[*COLUMNS["rows"]])
        for (label, scenario, start), own in frame.groupby(["label", "scenario", "start"], sort=False):
            rows = own.sort_values("seed").to_dict("records")
            part, percent = rows[0]["part"], rows[0]["paper_percent"]
            seeds = {row["seed"]: WinRate(row["wins"], row["episodes"]) for row in rows}
            paper = None if pd.isna(percent) else float(percent)
            found.append(SettingRates(label, part, scenario, start, paper, seeds))
        return tuple(found)

    @cached_property
    def setting(self) -> Mapping[str, SettingRates]:
        """The settings of Table 1 by label, in its order."""
        found = {setting.label: setting for setting in self.settings if setting.part in TABLE_1_PARTS}
        return {row.label: found[row.label] for row in TABLE_1 if row.label in found}

    def rates(self, label: str) -> pd.Series:
        """Return the win rates of a row of Table 1 in percent by seed, of no seed where it was not evaluated."""
        return self.setting[label].spread if label in self.setting else NO_SEEDS

    @cached_property
    def measure(self) -> Mapping[str, pd.Series]:
        """The measures by name, each by seed."""
        groups = pd.DataFrame(self.measures, columns=[*COLUMNS["measures"]]).groupby("name", sort=False)
        return {str(name): seed_values(own, "value") for name, own in groups}

    def measured(self, name: str) -> pd.Series:
        """Return a measure by seed, of no seed where it is not recorded."""
        return self.measure.get(name, NO_SEEDS)

    @property
    def table(self) -> Table:
        """What every seed won, a row for each setting, those of Table 1 first."""
        rows = []
        for one in (*self.setting.values(), *(one for one in self.settings if one.part not in TABLE_1_PARTS)):
            fight = f" ({one.scenario}, {one.start})" if one.part == REFERENCE else ""
            paper = "" if one.paper_percent is None else f"{one.paper_percent:g} %"
            counts = (f"{rate.wins}/{rate.episodes}" for rate in one.seeds.values())
            each = " ".join(f"{percent:.1f}" for percent in one.spread)
            rows.append((one.label + fight, paper, f"{one.spread.median():.1f} %", each, " ".join(counts)))
        return Table(f"Win rates, {self.title}", ("setting", "paper", "median", "each seed in %", "wins"), rows)


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
    loaded = []
    for folder in folders:
        paths = {name: folder / "records" / f"{name}.parquet" for name in COLUMNS}
        records = {name: read_rows(path) if path.exists() else [] for name, path in paths.items()}
        if not any(records.values()):
            found = "no records in it" if folder.exists() else "no such folder"
            raise SoulsGraphError(f"{folder}: expected the folder of a reproduction, found {found}; name another.")
        file, sessions = folder / DESCRIPTION, [to_table(one) for one in sessions_of(folder)]
        took = {"wall_time_s": round(sum(one["wall_time_s"] for one in sessions), 1), "sessions": sessions}
        loaded.append(Reproduction("", read_file(Where(file)) | took if file.exists() else {}, **records))
    names = [item.short_name for item in loaded]
    names = [name if name and names.count(name) == 1 else place.name for name, place in zip(names, places, strict=True)]
    names = [
        f"{place.parent.name}/{name}" if names.count(name) > 1 else name
        for name, place in zip(names, places, strict=True)
    ]
    return tuple(replace(item, name=name) for item, name in zip(loaded, names, strict=True))


#: Episodes a setting, by the caption of Table 1.
PAPER_EPISODES = 25


def paper_rate(percent: float) -> WinRate:
    """Return the count of at most 25 episodes, as many as possible, whose share rounds to `percent` at one decimal."""
    counts = (WinRate(round(percent * many / 100.0), many) for many in range(PAPER_EPISODES, 0, -1))
    # Half a unit of the printed decimal, and a little for the float that holds it.
    return next(count for count in counts if abs(count.percent - percent) <= 0.05 + 1e-9)


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
        return bool(self.low <= value <= self.high)

    def text(self) -> str:
        """Return the range for readers, as `32-56 %` or `at most 5 %`."""
        low, high = (f"{end:.{self.digits}f}" for end in (self.low, self.high))
        if math.isinf(self.low):
            return f"at most {high}{self.unit}"
        return f"at least {low}{self.unit}" if math.isinf(self.high) else f"{low}-{high}{self.unit}"

    def verdict(self, subject: str, measured: pd.Series | float) -> RangeVerdict:
        """Compare a value, or the median of values over seeds, with the range; nan stands for no measurement."""
        value = measured.median() if isinstance(measured, pd.Series) else measured
        if math.isnan(value):
            return RangeVerdict(subject, self.text())
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
BEYOND_PAPER = tuple(preset.name for preset in PRESETS.values() if preset.learning)
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


def gain_share(reproduction: Reproduction, skill: str) -> pd.Series:
    """Return each seed's gain over random as a share of the scripted policy's."""
    trained, random, scripted = (
        reproduction.measured(f"{skill} return {policy}") for policy in ("trained", "random", "scripted")
    )
    return ratio(difference(trained, random), difference(scripted, random))


def dodge_ratio(reproduction: Reproduction) -> pd.Series:
    """Return each seed's seconds survived by trained dodging over those by random dodging."""
    return ratio(*(reproduction.measured(f"dodge seconds {policy}") for policy in ("trained", "random")))


def baseline_growth(reproduction: Reproduction) -> pd.Series:
    """Return each seed's seconds of an episode in the last tenth of the baseline's training over those in the first.

    Of no seed where a seed recorded no episode in either, or none was trained.
    """
    curves = seed_curves(reproduction.training, "episode_seconds", unit="end_to_end", skill=END_TO_END_SKILL)
    if curves is None:
        return NO_SEEDS
    tenth = 0.1 * curves.steps[-1]
    first, last = curves.steps <= tenth, curves.steps > curves.steps[-1] - tenth
    if not first.any():
        return NO_SEEDS
    growth = curves.values[:, last].mean(axis=1) / curves.values[:, first].mean(axis=1)
    return pd.Series(growth, curves.seeds)


def _against_paper(reproduction: Reproduction) -> Iterator[RangeVerdict]:
    for label, expected in ROW_RANGES.items():
        yield expected.verdict(label, reproduction.rates(label))
    fine_tuned, mid, long = (float(reproduction.rates(label).median()) for label in (FINE_TUNED, MID, LONG))
    order = RangeVerdict("zero-shot from long range below mid-range", "median below that of the mid-range start")
    if math.isfinite(long + mid):
        order = replace(order, found=f"{long:.1f} against {mid:.1f} %", inside=long < mid)
    yield order
    yield FINE_TUNING_GAIN.verdict("fine-tuned above zero-shot, of medians", fine_tuned - mid)
    collapse = RangeVerdict("no seed collapses in fine-tuning", "none below its own zero-shot rate")
    if len(gains := difference(reproduction.rates(FINE_TUNED), reproduction.rates(MID))):
        collapsed = [str(seed) for seed, points in gains.items() if points < 0.0]
        found = f"{len(collapsed)} of {seeds_text(len(gains))}"
        found += f" ({', '.join(collapsed)})" if collapsed else ""
        collapse = replace(collapse, found=found, inside=not collapsed)
    yield collapse
    for policy, expected in DODGE_LENGTHS.items():
        yield expected.verdict(f"dodge: episode length, {policy}", reproduction.measured(f"dodge length {policy}"))
    yield DODGE_RATIO.verdict("dodge: seconds survived, trained over random", dodge_ratio(reproduction))
    growth = baseline_growth(reproduction)
    yield BASELINE_GROWTH.verdict("end-to-end: seconds of an episode, end over beginning of training", growth)
    for skill, expected in GAIN_SHARES.items():
        subject = f"{skill}: gain over random as a share of the scripted policy's"
        yield expected.verdict(subject, gain_share(reproduction, skill))


def _against_oracle(reproduction: Reproduction) -> Iterator[RangeVerdict]:
    oracles = _oracles(reproduction)
    for label, expected in ORACLE_SHARES.items():
        setting, spread = reproduction.setting.get(label), reproduction.rates(label)
        oracle = oracles.get((setting.scenario, setting.start)) if setting else None
        best = oracle.spread.median() if oracle else 0.0
        yield expected.verdict(f"{label}: share of the oracle's win rate", spread.median() / best if best else math.nan)
        scatter = BEST_DEVIATION.verdict(f"{label}: standard deviation over seeds", spread.std())
        if len(spread) > 1:
            low, high = deviation_interval(spread)
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
