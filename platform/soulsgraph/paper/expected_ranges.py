"""The expected ranges of a reproduction as data, and whether it meets them; medians over seeds decide."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from soulsgraph.paper.records import Reproduction, SettingRates
from soulsgraph.paper.study import REFERENCE
from soulsgraph.results.seeds import SeedValues, paired_difference, paired_ratio, seed_curves
from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import seeds_text
from soulsgraph.runs.evaluate import TABLE_1
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.skills import END_TO_END as END_TO_END_SKILL

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

    def verdict(self, subject: str, value: float | None) -> RangeVerdict:
        """Compare a value with the range; None stands for one that was not measured."""
        if value is None:
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
BEYOND_PAPER = ("best", "best-1", "pqn", "extended")
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
    return paired_difference(_rates(reproduction, FINE_TUNED), _rates(reproduction, MID))


def _against_paper(reproduction: Reproduction) -> Iterator[RangeVerdict]:
    for label, expected in ROW_RANGES.items():
        yield expected.verdict(label, _median(_rates(reproduction, label)))
    yield from _orders(reproduction)
    for policy, expected in DODGE_LENGTHS.items():
        length = reproduction.measure.get(f"dodge length {policy}")
        yield expected.verdict(f"dodge: episode length, {policy}", _median(length))
    yield DODGE_RATIO.verdict("dodge: seconds survived, trained over random", _median(dodge_ratio(reproduction)))
    growth = _median(baseline_growth(reproduction))
    yield BASELINE_GROWTH.verdict("end-to-end: seconds of an episode, end over beginning of training", growth)
    for skill, expected in GAIN_SHARES.items():
        subject = f"{skill}: gain over random as a share of the scripted policy's"
        yield expected.verdict(subject, _median(gain_share(reproduction, skill)))


def _orders(reproduction: Reproduction) -> Iterator[RangeVerdict]:
    fine_tuned, mid, long = (_median(_rates(reproduction, label)) for label in (FINE_TUNED, MID, LONG))
    order = RangeVerdict("zero-shot from long range below mid-range", "median below that of the mid-range start")
    if long is not None and mid is not None:
        order = replace(order, found=f"{long:.1f} against {mid:.1f} %", inside=long < mid)
    yield order
    gain = None if fine_tuned is None or mid is None else fine_tuned - mid
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
        yield expected.verdict(f"{oracle.label} ({oracle.scenario}, {oracle.start})", oracle.spread.median)


def _oracles(reproduction: Reproduction, restricted: bool = False) -> dict[tuple[str, str], SettingRates]:
    """Return the scripted oracle's win rates by scenario and start; `restricted` is that of the baseline's 16 actions.

    References are known by their labels: "oracle" is in both, "16" in the restricted one's.
    """
    return {
        (setting.scenario, setting.start): setting
        for setting in reproduction.settings
        if setting.part == REFERENCE and "oracle" in setting.label and ("16" in setting.label) == restricted
    }


def _rates(reproduction: Reproduction, label: str) -> SeedValues | None:
    setting = reproduction.setting.get(label)
    return setting.spread if setting else None


def _median(spread: SeedValues | None) -> float | None:
    return spread.median if spread else None
