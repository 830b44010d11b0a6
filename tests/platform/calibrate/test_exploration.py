"""What a probe should play next follows from what a calibration leaves open."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soulsgraph.calibrate.calibration import calibrate
from soulsgraph.calibrate.exploration import focus_of, openness
from soulsgraph.calibrate.rows import FightSet
from soulsgraph.calibrate.values import ValueFit, fit
from soulsgraph_envs.combat.probe import Focus
from soulsgraph_envs.core.scenario import load_boss, load_player

_BOSS, _PLAYER = load_boss("iudex-phase1"), load_player("knight-full")


@given(estimate=st.floats(0.5, 20.0), half=st.floats(0.0, 0.9), wider=st.floats(0.0, 0.09))
def test_the_wider_an_interval_the_more_is_open(estimate: float, half: float, wider: float) -> None:
    def of(share: float) -> float:
        return openness(fit("a", "reach", None, estimate, (estimate * (1.0 - share), estimate * (1.0 + share)), 9))

    assert 0.0 <= of(half) <= of(half + wider) <= 1.0
    assert of(0.05) == 0.0


def test_nothing_is_as_open_as_what_was_never_seen() -> None:
    assert openness(ValueFit("a", "reach", 2.0)) == 1.0
    assert openness(fit("a", "reach", 2.0, 2.0, (1.0, 4.0), 9, unlike=True)) == 0.0


def _focus(fought: FightSet) -> Focus:
    return focus_of(calibrate(fought, _BOSS, _PLAYER), "iudex-phase1", "iudex-phase1-whole", _BOSS, _PLAYER)


def test_more_fights_leave_less_open(fought: FightSet) -> None:
    few, many = _focus(replace(fought, fights=fought.fights[:2])), _focus(fought)

    def left(focus: Focus) -> float:
        return sum(doubt.total for doubts in focus.doubts.values() for doubt in doubts)

    assert left(many) < 0.8 * left(few)
    assert (few.fights, many.fights) == (2, len(fought.fights))
    assert {*many.doubts} == {move.id for move in _BOSS.moves}
    for focus in (few, many):
        assert sum(focus.keeps_m.values()) == pytest.approx(1.0)
    # The boss of the second is the one that was seen.
    assert many.boss.motion.walk_m_s == pytest.approx(5.0, rel=0.01)


def test_it_waits_where_moves_come_that_were_seldom_seen(fought: FightSet) -> None:
    focus = _focus(fought)
    leaps = [move.distance_m[0] for move in _BOSS.moves if move.leap_s]
    seen = [
        spells for fight in fought.fights for spells in fight.boss.tolist()
        if spells in [move.id for move in _BOSS.moves if move.leap_s]
    ]  # fmt: skip
    assert len(seen) < 0.1 * sum(map(len, fought.fights))
    afar = sum(share for distance, share in focus.keeps_m.items() if distance > min(leaps))
    near = sum(share for distance, share in focus.keeps_m.items() if distance <= min(leaps))
    beyond = sum(distance > min(leaps) for distance in focus.keeps_m)
    assert afar / beyond > near / (len(focus.keeps_m) - beyond)
