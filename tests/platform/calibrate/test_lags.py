"""Readings that come late are put right, and doubted where that can't be."""

from dataclasses import replace

import numpy as np
import pytest

from soulsgraph.calibrate.calibration import calibrate
from soulsgraph.calibrate.lags import align, clock_is_right
from soulsgraph_envs.core.scenario import load_boss, load_player
from soulsgraph_envs.core.state import Raw

_BOSS, _PLAYER = load_boss("iudex-phase1"), load_player("knight-full")
_BOSS_COLUMNS, _PLAYER_COLUMNS = ([first, first + 1, first + 2] for first in (Raw.BOSS_ANIMATION, Raw.PLAYER_ANIMATION))


def _read_late(fight, source, rows):
    """Return a fight in which one source is read late by a number of rows."""
    at = np.clip(np.arange(len(fight)) - rows, 0, len(fight) - 1)
    raw = fight.raw.copy()
    columns = {
        "the boss's animation": _BOSS_COLUMNS,
        "the player's animation": _PLAYER_COLUMNS,
        "the player's HP": [Raw.PLAYER_HP],
    }[source]
    raw[:, columns] = fight.raw[at][:, columns]
    boss = fight.boss[at] if source == "the boss's animation" else fight.boss
    hp = fight.hp[at] if source == "the player's HP" else fight.hp
    return replace(fight, raw=raw, boss=boss, hp=hp)


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("source", ["the boss's animation", "the player's animation", "the player's HP"])
def test_a_late_source_is_found_and_put_right(fought, source, rows):
    late = [_read_late(fight, source, rows) for fight in fought.fights]
    fights, lags = align(late, _BOSS, _PLAYER)
    assert {name: lag.rows for name, lag in lags.items() if lag.rows} == {source: rows}
    for before, after in zip(fought.fights, fights, strict=True):
        assert after.raw == pytest.approx(before.raw[: len(after)])
        assert (after.boss == before.boss[: len(after)]).all()


def test_fights_that_are_read_at_once_stay_as_they_are(fought):
    fights, lags = align(fought.fights, _BOSS, _PLAYER)
    assert [(lag.rows, lag.steady) for lag in lags.values()] == [(0, True)] * 3
    assert all(after is before for after, before in zip(fights, fought.fights, strict=True))


def test_a_boss_that_stands_more_often_than_it_walks_is_not_taken_for_one_that_is_read_late(fought):
    stands, backs = _BOSS.animations.idle.id, _BOSS.animations.back_off.id
    still = [replace(one, boss=np.where(one.boss == backs, stands, one.boss)) for one in fought.fights]
    _, lags = align(still, _BOSS, _PLAYER)
    assert [(lag.rows, lag.steady) for lag in lags.values()] == [(0, True)] * 3


def _determined(fought):
    found = calibrate(fought, _BOSS, _PLAYER)
    return {value.key: value.estimate for value in found.boss if value.verdict == "determined"}


def test_late_readings_change_no_determined_value(fought):
    def late(fight):
        hurt = _read_late(_read_late(fight, "the player's animation", 1), "the player's HP", 1)
        return _read_late(hurt, "the boss's animation", 1)

    before = _determined(fought)
    after = _determined(replace(fought, fights=tuple(map(late, fought.fights))))
    assert len(after) > 0.9 * len(before)
    both = after.keys() & before.keys()
    assert {key: after[key] for key in both} == pytest.approx({key: before[key] for key in both}, rel=0.03, abs=0.02)


def _doubted(fought, read):
    found = calibrate(replace(fought, fights=tuple(map(read, fought.fights))), _BOSS, _PLAYER)
    return {value.kind for value in found.boss if value.verdict == "doubtful"}, len(found.notices)


def test_animations_of_other_fights_make_what_they_date_doubtful(fought):
    kinds, notices = _doubted(fought, lambda fight: _read_late(fight, "the boss's animation", 40))
    assert {"start", "damage", "arc"} <= kinds
    assert notices


def test_a_clock_that_misses_ticks_makes_times_doubtful(fought):
    def without(fight):
        kept = np.flatnonzero(np.random.default_rng(3).random(len(fight)) > 0.1)
        return replace(fight.where(kept), clock_s=np.arange(len(kept)) * 0.1)

    assert clock_is_right(fought.fights)
    assert not clock_is_right([without(fight) for fight in fought.fights])
    kinds, notices = _doubted(fought, without)
    assert {"start", "damage"} <= kinds
    assert notices
