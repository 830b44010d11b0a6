"""A boss's altered data come back from what a running game supplies, within their intervals."""

from dataclasses import replace

import numpy as np
import pytest

from fakes.wandering import disturbed, wandering_fights
from soulsgraph.calibrate.boss_file import write_fitted, write_tables
from soulsgraph.calibrate.calibration import calibrate
from soulsgraph.calibrate.rows import FIRST_UNKNOWN
from soulsgraph_envs.core.config import read_data
from soulsgraph_envs.core.scenario import load_boss, load_player, load_scenario

_BOSS, _PLAYER = load_boss("iudex-phase1"), load_player("knight-full")
#: What differs from the shipped boss, as the game shows it: times are 1.2, damage 0.735 of the file's.
_TRUTH = {
    "motion.walk_m_s": 5.0,
    "motion.back_off_m_s": 1.6,
    "motion.turn_rad_s": 1.8,
    "aggression.wait_s.0": 0.7,
    "aggression.wait_s.1": 2.4,
    "aggression.chain_chance": 0.5,
    "aggression.chain_most": 1.0,
    "rear.counter_chance": 0.6,
    "rear.angle_rad": 1.5,
    "rear.distance_m": 3.4,
    "rear.turn_s": 1.1,
    "damage_spread": 0.14,
    "moves.fast sweep.windows.0.time_s.0": 0.84,
    "moves.fast sweep.windows.0.time_s.1": 1.14,
    "moves.fast sweep.windows.0.reach_m": 3.2,
    "moves.fast sweep.windows.0.damage": 73.5,
    "moves.thrust.lunge_m_s": 6.5,
    "moves.thrust.length_s": 2.76,
    "moves.thrust.tracks_s": 0.66,
}


def _values(found):
    return {value.key: value for value in (*found.boss, *found.player)}


def _holds(value, truth):
    return value.low - 1e-6 <= truth <= value.high + 1e-6


def test_altered_values_come_back_within_their_intervals(found):
    values = _values(found)
    assert {key: values[key].verdict for key in _TRUTH if values[key].estimate is None} == {}
    missed = {key: values[key] for key, truth in _TRUTH.items() if not _holds(values[key], truth)}
    assert len(missed) <= 1
    sure = {key: truth for key, truth in _TRUTH.items() if values[key].verdict == "determined"}
    assert len(sure) >= 9
    assert {key: values[key].estimate for key, truth in sure.items()} == pytest.approx(sure, rel=0.05)


def test_what_was_not_altered_is_found_as_shipped(found):
    kept = [one for one in found.boss if one.verdict == "determined" and one.key not in _TRUTH and one.shipped]
    off = [one for one in kept if abs(float(one.estimate or 0.0) / float(one.shipped or 1.0) - 1.0) > 0.1]
    assert len(kept) > 50
    assert [one for one in off if one.key != "motion.tracking_factor"] == []


def test_a_boss_that_is_never_seen_to_back_off_does_so_nearer_than_anybody_was(fought):
    stands, backs = _BOSS.animations.idle.id, _BOSS.animations.back_off.id
    still = [replace(one, boss=np.where(one.boss == backs, stands, one.boss)) for one in fought.fights]
    found = _values(calibrate(replace(fought, fights=tuple(still)), _BOSS, _PLAYER))["motion.back_off_within_m"]
    near = min(fight.distance_m[fight.boss == stands].min() for fight in still)
    assert found.verdict == "bounded"
    assert near <= found.estimate == found.high <= near + 0.5
    assert found.low == 0.0


def test_how_often_a_move_counters_is_not_known_where_it_is_also_chosen(fought):
    chosen = replace(_BOSS, moves=tuple(replace(move, weight=max(move.weight, 1.0)) for move in _BOSS.moves))
    value = _values(calibrate(fought, chosen, _PLAYER))["rear.counter_chance"]
    assert (value.verdict, value.estimate) == ("not determined", None)


def test_the_player_comes_back(found):
    values = _values(found)
    expected = {"run.speed_m_s": 3.9, "roll.speed_m_s": 4.2, "roll.cost": 18.0, "roll.invulnerable_s": 0.45}
    assert {key: values[key].estimate for key in expected} == pytest.approx(expected, rel=0.02)


def test_a_late_clock_and_missing_ticks_cost_little(fought):
    values = _values(calibrate(disturbed(fought, 3), _BOSS, _PLAYER))
    for key in ("moves.thrust.length_s", "moves.fast sweep.windows.0.time_s.0", "moves.fast sweep.windows.0.reach_m"):
        assert values[key].estimate == pytest.approx(_TRUTH[key], rel=0.06), key
    for key in ("motion.walk_m_s", "motion.turn_rad_s", "aggression.wait_s.1", "moves.thrust.lunge_m_s"):
        assert values[key].estimate == pytest.approx(_TRUTH[key], rel=0.06), key


def test_another_player_is_written_beside_the_boss(tmp_path):
    own = {"name": "quick", "run": {"speed_m_s": 4.6}, "roll": {"cost": 22.0, "invulnerable_s": 0.35}}
    write_tables(tmp_path / "quick.toml", {"based_on": "knight-full", **own})
    write_tables(tmp_path / "fight.toml", {"based_on": "iudex-phase1-whole", "name": "quick", "player": "quick.toml"})
    found = calibrate(wandering_fights(tmp_path / "fight.toml", 8.0, seed=6), _BOSS, _PLAYER)
    _, scenario = write_fitted(tmp_path / "mine.toml", found, "iudex-phase1", "iudex-phase1-whole", _BOSS)
    player = load_player(load_scenario(scenario).player)
    assert player.run.speed_m_s == pytest.approx(4.6, rel=0.01)
    assert player.roll.cost == pytest.approx(22.0, rel=0.01)
    assert player.roll.invulnerable_s == pytest.approx(0.35, abs=0.01)
    assert player.body == _PLAYER.body
    assert player.roll.speed_m_s == _PLAYER.roll.speed_m_s


@pytest.mark.parametrize(
    "rage", [{"damage_factor": 1.3, "wait_factor": 1.0}, {"damage_factor": 1.0, "wait_factor": 0.5}]
)
def test_a_rage_that_the_data_lack_is_named_and_doubted(fought, altered, tmp_path, rage):
    tables = read_data("boss", load_scenario(altered).boss)
    tables["enraged"] = {"below_hp_ratio": 0.9, "chain_chance": 0.5, **rage}
    write_tables(tmp_path / "boss.toml", tables)
    fight = {"based_on": str(altered), "name": "raging", "boss": "boss.toml", "boss_hp": [900.0, 0.5]}
    write_tables(tmp_path / "fight.toml", fight)
    raging = wandering_fights(tmp_path / "fight.toml", 8.0, seed=9)
    found = calibrate(replace(fought, fights=(*fought.fights, *raging.fights)), _BOSS, _PLAYER)
    assert {value.verdict for value in found.boss if value.kind in ("damage", "wait high") and value.known} == {
        "doubtful"
    }
    assert len(found.notices) == 1
    # One in which the boss has less HP from the beginning shows nothing of it by itself.
    assert [value.verdict for value in calibrate(raging, _BOSS, _PLAYER).boss].count("doubtful") == 0


def _without(boss, title):
    return replace(boss, moves=tuple(move for move in boss.moves if move.title != title))


def test_a_move_that_the_data_lack_becomes_one_of_the_file(fought, altered, tmp_path):
    number = next(move.id for move in _BOSS.moves if move.title == "thrust")
    renamed = [replace(one, boss=np.where(one.boss == number, FIRST_UNKNOWN, one.boss)) for one in fought.fights]
    unknown = replace(fought, fights=tuple(renamed), unknown={FIRST_UNKNOWN: "Attack3999"})
    lacking = _without(_BOSS, "thrust")
    found = calibrate(unknown, lacking, _PLAYER)
    assert found.new_moves == {"moves.Attack3999": "Attack3999"}
    boss, scenario = write_fitted(tmp_path / "mine.toml", found, "iudex-phase1", altered, lacking)
    move = load_boss(boss).moves[-1]
    assert (move.title, move.name) == ("Attack3999", "Attack3999")
    assert move.length_s * 1.2 == pytest.approx(2.76, abs=0.02)
    assert move.windows[0].time_s[0] * 1.2 == pytest.approx(1.02, abs=0.02)
    assert move.lunge_m_s == pytest.approx(6.5, rel=0.02)
    assert move.windows[0].damage * 0.735 == pytest.approx(73.5, rel=0.05)
    assert move.weight > 0
    assert load_scenario(scenario).boss == str(boss)


def test_the_files_hold_what_was_found_and_leave_the_rest(found, altered, tmp_path):
    boss, scenario = write_fitted(tmp_path / "mine.toml", found, "iudex-phase1", altered, _BOSS)
    fitted = load_boss(boss)
    assert fitted.motion.walk_m_s == pytest.approx(5.0, rel=0.01)
    assert fitted.motion.leap_short_m == _BOSS.motion.leap_short_m
    moves = {move.title: move for move in fitted.moves}
    assert moves["thrust"].length_s == pytest.approx(2.3, abs=0.01)
    assert moves["thrust"].windows[0].damage == 100.0
    text = boss.read_text(encoding="utf-8")
    assert 'based_on = "iudex-phase1"' in text
    assert text.startswith(f"# Fitted to {found.fights} fights")
    assert load_scenario(scenario).player == "knight-full"
    with pytest.raises(Exception, match="never overwritten"):
        write_fitted(tmp_path / "mine.toml", found, "iudex-phase1", altered, _BOSS)


def test_a_bounded_wait_is_written_as_seen_and_a_bounded_lunge_as_shipped(found, tmp_path):
    bounds = {"aggression.wait_s.1": (2.9, 2.0, 3.5), "moves.thrust.lunge_m_s": (5.5, 4.0, 7.0)}
    values = [
        replace(value, estimate=estimate, low=low, high=high, verdict="bounded")
        for value in found.boss
        if value.key in bounds
        for estimate, low, high in [bounds[value.key]]
    ]
    path, _ = write_fitted(tmp_path / "mine.toml", replace(found, boss=values), "iudex-phase1", "iudex-phase1", _BOSS)
    written = load_boss(path)
    assert written.aggression.wait_s == (_BOSS.aggression.wait_s[0], 2.9)
    assert written.moves == _BOSS.moves


def test_few_rows_determine_little(fought, found):
    short = replace(fought, fights=tuple(fought.fights[:2]))
    some, all_of_it = calibrate(short, _BOSS, _PLAYER).counts, found.counts
    assert some["determined"] < all_of_it["determined"]
    assert some["not determined"] > all_of_it["not determined"]
