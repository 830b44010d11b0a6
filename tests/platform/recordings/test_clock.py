"""The clock of a recording: measured, or rebuilt from what the animations' clocks show."""

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fakes.recordings import read_all
from soulsgraph.recordings.clock import measured_clock, rebuilt_clock
from soulsgraph.recordings.files import Recording
from soulsgraph_envs.core.state import RAW_SIZE, Raw

FRAME_S = 1.0 / 60.0


class Shown(SimpleNamespace):
    """The columns and raw values of a fight that is not on the disk."""

    def column(self, name):
        return getattr(self, name)


def shown(raw, clock_s=None, tick_s=0.1):
    missing = np.full(len(raw), np.nan) if clock_s is None else clock_s
    return cast(Recording, Shown(raw=raw, clock_s=missing, time_s=np.arange(len(raw)) * tick_s))


def animate(raw, animation, times_s, lengths_s, cut):
    """Show animations that follow one another, each cut after a share of its length, at readings (rows,)."""
    played_s = np.array(lengths_s) * np.array(cut)
    begins_s = np.concatenate([[0.0], np.cumsum(played_s)])
    which = np.searchsorted(begins_s, times_s, side="right") - 1
    raw[:, animation] = which % 7
    raw[:, animation + 1] = times_s - begins_s[which]
    raw[:, animation + 2] = np.array(lengths_s)[which]


@st.composite
def fights(draw):
    """Draw the times of readings, whole frames of 0.03 to 0.13 s, and what two fighters show at them."""
    frames = draw(st.lists(st.integers(2, 8), min_size=20, max_size=80))
    times_s = np.concatenate([[0.0], np.cumsum(frames)]) * FRAME_S
    raw = np.zeros((len(times_s), RAW_SIZE))
    for animation in (Raw.PLAYER_ANIMATION, Raw.BOSS_ANIMATION):
        count = int(times_s[-1] / 0.4) + 2
        lengths = draw(st.lists(st.floats(0.8, 4.0), min_size=count, max_size=count))
        cut = draw(st.lists(st.sampled_from([0.5, 1.0]), min_size=count, max_size=count))
        animate(raw, animation, times_s, lengths, cut)
    return times_s, raw


@settings(max_examples=30, deadline=None)
@given(fights())
def test_a_jittered_clock_is_rebuilt_but_for_steps_in_which_both_fighters_begin_anew(fight):
    times_s, raw = fight
    rebuilt = rebuilt_clock(shown(raw))
    anew = [np.diff(raw[:, one]) != 0.0 for one in (Raw.PLAYER_ANIMATION, Raw.BOSS_ANIMATION)]
    wrong = np.abs(np.diff(rebuilt) - np.diff(times_s))
    assert wrong[~(anew[0] & anew[1])].max() < 1e-9
    assert wrong.max() < 0.12
    assert (np.diff(rebuilt) > 0.0).all()


def test_steps_without_a_clock_take_their_nominal_time_at_the_others_rate():
    times_s = np.arange(40) * 0.08
    raw = np.zeros((40, RAW_SIZE))
    animate(raw, Raw.BOSS_ANIMATION, times_s, [10.0], [1.0])
    raw[20:22, Raw.BOSS_ANIMATION + 1] = [9.0, 0.5]
    assert_allclose(rebuilt_clock(shown(raw)), times_s, atol=1e-9)


def test_loops_and_animations_that_stand_at_their_end_are_told_apart():
    times_s = np.arange(30) * 0.07
    raw = np.zeros((30, RAW_SIZE))
    raw[:, Raw.BOSS_ANIMATION + 1], raw[:, Raw.BOSS_ANIMATION + 2] = times_s % 1.0, 1.0
    assert_allclose(rebuilt_clock(shown(raw)), times_s, atol=1e-9)
    # The player's animation is over after a second and stands; the boss's alone shows the time.
    raw[:, Raw.PLAYER_ANIMATION + 1], raw[:, Raw.PLAYER_ANIMATION + 2] = np.minimum(times_s, 1.0), 1.0
    assert_allclose(rebuilt_clock(shown(raw)), times_s, atol=1e-9)


def test_a_measured_clock_is_taken_unless_it_lacks_a_row_or_runs_back():
    raw = np.full((5, RAW_SIZE), np.nan)
    measured = np.array([0.0, 0.11, 0.2, 0.33, 0.4])
    assert_array_equal(rebuilt_clock(shown(raw, measured)), measured)
    for wrong in (np.array([0.0, 0.1, np.nan, 0.3, 0.4]), measured[::-1], np.full(5, np.inf)):
        assert_allclose(rebuilt_clock(shown(raw, wrong)), np.arange(5) * 0.1)
    assert rebuilt_clock(shown(raw[:1])).tolist() == [0.0]


@pytest.mark.parametrize("name", ["finer", "twice the same", "missing", "coarse", "standing", "back"])
def test_the_games_own_clock_is_taken_where_it_is_fine_and_moves(name):
    elapsed_s = np.array([0.0, 0.104, 0.211, 0.299])
    game_s = {
        "finer": np.array([7.003, 7.103, 7.21, 7.303]),
        "missing": np.array([7.003, np.nan, 7.21, 7.303]),
        "coarse": np.array([7.0, 7.1, 7.2, 7.3]),
        "twice the same": np.array([7.003, 7.103, 7.103, 7.303]),
        "standing": np.array([7.003, 7.103, 7.103, 7.103]),
        "back": np.array([7.003, 7.103, 7.101, 7.303]),
    }[name]
    expected = game_s - game_s[0] if name in ("finer", "twice the same") else elapsed_s
    assert_allclose(measured_clock(elapsed_s, game_s), expected)


def test_a_simulated_fight_has_the_simulators_clock_which_its_animations_show(fights):
    recording = read_all(fights)[0]
    clock_s = recording.column("clock_s")
    assert_allclose(clock_s, np.arange(len(recording) + 1) * 0.1, atol=1e-9)
    assert_allclose(rebuilt_clock(shown(recording.raw)), clock_s, atol=0.1)


@pytest.mark.parametrize("factor", [1.0, 1.7])
def test_a_measured_clock_that_runs_on_without_the_game_is_not_taken(factor):
    times_s = np.arange(60) * 6 * FRAME_S
    raw = np.zeros((len(times_s), RAW_SIZE))
    for animation in (Raw.PLAYER_ANIMATION, Raw.BOSS_ANIMATION):
        animate(raw, animation, times_s, [2.0] * 4, [1.0] * 4)
    assert_allclose(rebuilt_clock(shown(raw, times_s * factor)), times_s, atol=FRAME_S)
