"""Rows put into the simulator: what a row does not show is guessed as it was, and the fight goes on as it did."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fakes.drawn_fights import drawn_fight
from soulsgraph.calibrate.comparison import BETWEEN, HORIZONS_S, WITHIN, compare, row_errors
from soulsgraph.calibrate.replay import RowReplay
from soulsgraph_envs.core.scenario import load_boss, load_scenario
from soulsgraph_envs.core.state import Raw
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.simulator.layout import NO_MOVE, Stance

#: Fields of a lane that a row does not show, and that are known again from the rows before it.
_FOUND_AGAIN = (
    "invulnerable",
    "push_frames",
    "regeneration_wait",
    "buffered",
    "buffer_frames",
    "struck",
    "turn_frames",
)


@settings(max_examples=8, derandomize=True)
@given(seed=st.integers(0, 10_000), jitter=st.booleans())
def test_what_a_row_does_not_show_is_known_again_from_the_rows_before_it(seed, jitter):
    fight, lanes = drawn_fight(seed, frames=(3, 8) if jitter else (6, 6))
    guessed = RowReplay([fight], load_scenario("iudex-phase1")).hidden_state()
    for name in _FOUND_AGAIN:
        true = np.array([lane[name] for lane in lanes])
        if name == "buffer_frames":
            true = np.where([lane["buffered"] > 0 for lane in lanes], true, 0)
        if name in ("struck", "turn_frames"):
            shown = [(lane["move"] != NO_MOVE) == (name == "struck") for lane in lanes]
            true, found = true[shown], guessed[name][shown]
        else:
            found = guessed[name]
        # An action that a blow breaks off within its own tick leaves no trace: rare.
        assert (true == found).mean() > 0.98, name


@settings(max_examples=6, derandomize=True)
@given(seed=st.integers(0, 10_000), jitter=st.booleans())
def test_the_true_data_go_on_as_the_fight_did_also_by_a_clock_that_is_not_even(seed, jitter):
    fight, _ = drawn_fight(seed, frames=(3, 8) if jitter else (6, 6))
    rows = RowReplay([fight], load_scenario("iudex-phase1"))
    starts = np.flatnonzero(rows.usable[:-1] & (rows.instance[1:] == rows.instance[:-1]))
    frames = rows.at[starts + 1] - rows.at[starts]
    played = rows.play(starts, frames, np.arange(len(starts), dtype=np.uint64), no_attack=1)
    errors = row_errors(played.raw, fight.raw[starts + 1])
    assert len(starts) > 150
    for name, most in (("player_place", 0.02), ("boss_place", 0.02), ("boss_heading", 0.001), ("stamina", 0.01)):
        assert np.quantile(errors[name], 0.9) <= most, name
    assert errors["player_animation"].mean() < 0.02
    assert (played.struck != rows.struck[starts + 1]).mean() < 0.02


def test_a_fight_in_two_phases_is_replayed_in_both():
    scenario = load_scenario("iudex-full")
    fight, _ = drawn_fight(3, 60, "iudex-full")
    # The boss is hurt enough for its change of phase.
    game = Simulator(1)
    game.reset(np.zeros(1, np.int64), scenario, np.array([3], np.uint64))
    game.override(0, boss_hp=500.0)
    raw = np.vstack([game.step(np.zeros(1, np.uint32))[0].copy() for _ in range(250)])
    count = len(raw)
    fight = replace(
        fight,
        raw=raw,
        controls=np.zeros(count, np.uint32),
        clock_s=np.arange(count) * 0.1,
        hp=raw[:, Raw.PLAYER_HP],
        phase=np.zeros(count, np.int64),
        boss_read=np.full(count, None),
    )
    rows = RowReplay([fight], scenario)
    assert set(rows.phase.tolist()) == {0, 1}
    assert (rows.stance == Stance.TRANSITION).any()
    span = compare([fight], scenario).spans[WITHIN, HORIZONS_S[0]]
    assert len(span) > 50
    assert np.quantile(span.errors["boss_place"], 0.9) < 0.01


def test_the_boss_is_known_by_what_the_game_says_of_it_and_an_unknown_move_is_left_out():
    scenario = load_scenario("iudex-phase1")
    fight, _ = drawn_fight(5)
    before = RowReplay([fight], scenario)
    moving, moves = np.flatnonzero(before.move >= 0), load_boss("iudex-phase1").moves
    read = np.array([None if move < 0 else moves[move].name for move in before.move], object)
    # As where the recorder did not know the move: its id is that of standing.
    idle = fight.raw.copy()
    idle[moving, Raw.BOSS_ANIMATION] = before.stances["id"][0][Stance.STAND]
    after = RowReplay([replace(fight, raw=idle, boss_read=read)], scenario)
    assert_array_equal(after.move, before.move)
    unknown = np.where(before.move < 0, None, "Attack9999")
    lost = RowReplay([replace(fight, boss_read=unknown)], scenario)
    assert not lost.usable[moving].any()
    assert lost.usable.any()


def test_what_a_game_does_not_say_is_an_error_that_is_not_known():
    fight, _ = drawn_fight(7)
    raw = fight.raw.copy()
    raw[:, [Raw.STAMINA, Raw.CAMERA_X, Raw.CAMERA_Y, Raw.CAMERA_Z, Raw.FLASKS, Raw.BOSS_HP]] = np.nan
    span = compare([replace(fight, raw=raw)], load_scenario("iudex-phase1")).spans[WITHIN, 0.1]
    assert span.summary("stamina") == dict.fromkeys(("median", "p90", "mean"))
    assert span.summary("boss_heading")["p90"] == pytest.approx(0.0, abs=1e-3)


def test_a_boss_that_waits_begins_no_move_of_its_own_between_moves():
    fight, _ = drawn_fight(9, 400)
    span = compare([fight], load_scenario("iudex-phase1")).spans[BETWEEN, 0.5]
    assert len(span) > 20
    assert span.errors["boss_animation"].mean() < 0.1
