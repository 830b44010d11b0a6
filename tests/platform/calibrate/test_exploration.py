"""What a probe should play next follows from what a calibration leaves open."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from soulsgraph.calibrate.calibration import calibrate
from soulsgraph.calibrate.exploration import focus_of, openness
from soulsgraph.calibrate.values import ValueFit
from soulsgraph_envs.core.scenario import load_boss, load_player

_BOSS, _PLAYER = load_boss("iudex-phase1"), load_player("knight-full")


@given(estimate=st.floats(0.5, 20.0), half=st.floats(0.0, 0.9), wider=st.floats(0.0, 0.09))
def test_the_wider_an_interval_the_more_is_open(estimate, half, wider):
    def of(share):
        return openness(
            ValueFit("a", "reach", None).fit(estimate, (estimate * (1.0 - share), estimate * (1.0 + share)), 9)
        )

    assert 0.0 <= of(half) <= of(half + wider) <= 1.0
    assert of(0.05) == 0.0


def test_nothing_is_as_open_as_what_was_never_seen():
    assert openness(ValueFit("a", "reach", 2.0)) == 1.0
    assert openness(ValueFit("a", "reach", 2.0).fit(2.0, (1.0, 4.0), 9, unlike=True)) == 0.0


def _focus(found):
    return focus_of(found, "iudex-phase1", "iudex-phase1-whole", _BOSS, _PLAYER)


def test_more_fights_leave_less_open(fought, found):
    few = _focus(calibrate(replace(fought, fights=fought.fights[:2]), _BOSS, _PLAYER))
    many = _focus(found)
    least, most = (sum(doubt.total for own in one.doubts.values() for doubt in own) for one in (many, few))
    assert least < 0.8 * most
    assert (few.fights, many.fights) == (2, len(fought.fights))
    assert {*many.doubts} == {move.id for move in _BOSS.moves}
    assert [sum(focus.keeps_m.values()) for focus in (few, many)] == pytest.approx([1.0, 1.0])
    # The boss of the second is the one that was seen.
    assert many.boss.motion.walk_m_s == pytest.approx(5.0, rel=0.01)


def test_it_waits_where_moves_come_that_were_seldom_seen(fought, found):
    leaps = {move.id: move.distance_m[0] for move in _BOSS.moves if move.leap_s}
    seen = sum(int(np.isin(fight.boss, [*leaps]).sum()) for fight in fought.fights)
    assert seen < 0.1 * sum(map(len, fought.fights))
    distances, shares = map(np.array, zip(*_focus(found).keeps_m.items(), strict=True))
    afar = distances > min(leaps.values())
    assert shares[afar].mean() > shares[~afar].mean()
