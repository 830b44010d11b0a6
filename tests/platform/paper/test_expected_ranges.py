import math

import pytest

from soulsgraph.paper.records import (
    BOTH,
    END_TO_END,
    FINE_TUNED,
    LONG,
    MID,
    ROW_RANGES,
    Reproduction,
    gain_share,
    verdicts_of,
)
from soulsgraph.runs.evaluate import TABLE_1

_ROWS = {row.label: row for row in TABLE_1}


def _row(label, seed, percent, part=None, scenario=None):
    row = _ROWS.get(label, TABLE_1[0])
    place = {"label": label, "part": part or row.part, "scenario": scenario or row.scenario, "start": row.start}
    return {"preset": "paper", "seed": seed, "paper_percent": math.nan, "wins": percent, "episodes": 100} | place


def _reproduction(percents, preset="paper", measures=()):
    rows = [_row(label, seed, percent) for label, each in percents.items() for seed, percent in enumerate(each)]
    kept = [{"preset": preset, "seed": 0, "name": name, "value": value, "count": 1} for name, value in measures]
    return Reproduction(preset, {"plan": {"preset": preset}}, rows=rows, measures=kept)


def _verdicts(reproduction):
    return {verdict.subject: verdict for verdict in verdicts_of(reproduction)}


def test_every_row_of_table_1_has_a_band_that_holds_the_papers_figure():
    assert list(ROW_RANGES) == list(_ROWS)
    for label, expected in ROW_RANGES.items():
        assert expected.holds(_ROWS[label].paper_percent)


def test_the_median_decides_and_outside_stays_outside():
    verdicts = _verdicts(_reproduction({BOTH: [0, 40, 100], END_TO_END: [0, 6, 41]}))
    assert (verdicts[BOTH].found, verdicts[BOTH].inside) == ("40.0 %", True)
    assert (verdicts[END_TO_END].found, verdicts[END_TO_END].inside) == ("6.0 %", False)
    assert verdicts[MID].inside is None


def test_long_range_lies_below_mid_range():
    subject = "zero-shot from long range below mid-range"
    assert _verdicts(_reproduction({MID: [30, 30], LONG: [20, 20]}))[subject].inside
    assert not _verdicts(_reproduction({MID: [20, 20], LONG: [20, 20]}))[subject].inside


def test_one_collapsed_seed_is_told_by_name():
    verdicts = _verdicts(_reproduction({MID: [30, 30, 30], FINE_TUNED: [50, 12, 55]}))
    verdict = verdicts["no seed collapses in fine-tuning"]
    assert (verdict.found, verdict.inside) == ("1 of 3 seeds (1)", False)
    assert verdicts["fine-tuned above zero-shot, of medians"].found == "20.0 points"


@pytest.mark.parametrize(("trained", "inside"), [(90.0, True), (60.0, False)])
def test_a_gain_is_a_share_of_the_scripted_policys(trained, inside):
    measures = [("camera return random", -100.0), ("camera return scripted", 120.0), ("camera return trained", trained)]
    reproduction = _reproduction({}, measures=measures)
    share = gain_share(reproduction, "camera")
    assert share.median() == pytest.approx((trained + 100.0) / 220.0)
    (verdict,) = (verdict for name, verdict in _verdicts(reproduction).items() if name.startswith("camera"))
    assert verdict.inside is inside


def test_dodge_is_compared_by_lengths_and_by_seconds_survived():
    lengths = [("dodge length random", 100.0), ("dodge length trained", 250.0)]
    seconds = [("dodge seconds random", 25.0), ("dodge seconds trained", 20.0)]
    verdicts = _verdicts(_reproduction({}, measures=lengths + seconds))
    assert verdicts["dodge: episode length, random"].inside is False
    assert verdicts["dodge: episode length, trained"].inside is True
    survived = verdicts["dodge: seconds survived, trained over random"]
    assert (survived.found, survived.inside) == ("0.80", False), "more decisions are no longer life"


@pytest.mark.parametrize(("end", "inside"), [(12.0, True), (30.0, False)])
def test_a_baseline_that_learns_to_survive_is_not_the_papers(end, inside):
    place = {"preset": "paper", "unit": "end_to_end", "skill": "end_to_end", "scenario": "iudex-phase1"}
    training = [
        {**place, "seed": seed, "step": step, "episode_seconds": 10.0 if step <= 100 else end}
        for seed in (0, 1)
        for step in range(50, 1001, 50)
    ]
    reproduction = Reproduction("paper", {"plan": {"preset": "paper"}}, training=training)
    verdict = _verdicts(reproduction)["end-to-end: seconds of an episode, end over beginning of training"]
    assert (verdict.found, verdict.inside) == (f"{end / 10.0:.2f}", inside)


def test_best_is_compared_with_the_oracle_and_the_scatter_of_its_seeds():
    reproduction = _reproduction({BOTH: [80, 88, 96], MID: [70, 71, 72]}, preset="best")
    for scenario in ("iudex-phase1", "iudex-phase2"):
        reproduction.rows.append(_row("oracle", 0, 98, "reference", scenario))
    verdicts = _verdicts(reproduction)
    shared, scattered = (
        f"{BOTH}: {what}" for what in ("share of the oracle's win rate", "standard deviation over seeds")
    )
    assert (verdicts[shared].found, verdicts[shared].inside) == (f"{88 / 98:.3f}", True)
    assert (verdicts[scattered].found, verdicts[scattered].inside) == ("8.0 points (4.2-50.3)", False)
    assert verdicts[f"{MID}: standard deviation over seeds"].inside
    assert verdicts[f"{FINE_TUNED}: share of the oracle's win rate"].inside is None
    assert verdicts["oracle (iudex-phase1, mid)"].inside


def test_the_oracle_is_compared_in_every_fight_and_the_restricted_one_where_the_baseline_fights():
    reproduction = _reproduction({BOTH: [40]})
    fights = (("iudex-phase1", "mid", 95, 60), ("iudex-phase2", "mid", 94, 10), ("iudex-phase2", "long", 99, 10))
    for scenario, start, wins, restricted in fights:
        for label, percent in (("oracle", wins), ("oracle, 16 actions", restricted)):
            reproduction.rows.append(_row(label, 0, percent, "reference", scenario) | {"start": start})
    verdicts = {name: verdict.inside for name, verdict in _verdicts(reproduction).items() if "oracle" in name}
    assert verdicts == {
        "oracle (iudex-phase1, mid)": True,
        "oracle (iudex-phase2, mid)": False,
        "oracle (iudex-phase2, long)": True,
        "oracle, 16 actions (iudex-phase1, mid)": True,
    }
