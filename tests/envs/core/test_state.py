"""Eq. 3-9 and 15: the State row from raw values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from soulsgraph_envs.core.state import RAW_SIZE, STATE_SIZE, Column, Control, Raw, state_rows, wrap_angle

FINITE = st.floats(-1e3, 1e3)


def raw_values(**values: float) -> np.ndarray:
    raw = np.zeros((1, RAW_SIZE))
    defaults = {"PLAYER_HP_MAX": 454, "STAMINA_MAX": 95, "BOSS_HP_MAX": 1037, "CAMERA_X": 1.0}
    for name, value in (defaults | values).items():
        raw[0, Raw[name]] = value
    return raw


def test_columns_are_equation_15_in_its_order():
    # kappa_e rho_e kappa_p rho_p sigma h h_e O_e O_p n_estus d dhat(3) c(3) p(3) e(3) alpha lock
    expected = (
        "BOSS_ANIMATION BOSS_PROGRESS PLAYER_ANIMATION PLAYER_PROGRESS STAMINA PLAYER_HP BOSS_HP BOSS_ANGLE "
        "PLAYER_ANGLE FLASKS DISTANCE DIRECTION_X DIRECTION_Y DIRECTION_Z CAMERA_X CAMERA_Y CAMERA_Z PLAYER_X "
        "PLAYER_Y PLAYER_Z BOSS_X BOSS_Y BOSS_Z CAMERA_TARGET_ANGLE LOCKED"
    )
    assert [column.name for column in Column] == expected.split()
    assert STATE_SIZE == 25


def test_every_control_has_a_bit_of_its_own():
    assert [*Control] == [1 << bit for bit in range(17)]


def test_derived_columns_worked_by_hand():
    # Player at the origin, boss at (3, 4, 0): d = 5, dhat = (0.6, 0.8, 0); camera along x: cos(alpha) = 0.6.
    row = state_rows(raw_values(BOSS_X=3, BOSS_Y=4, CAMERA_X=2.0))[0]
    assert row[Column.DISTANCE] == pytest.approx(5.0)
    assert row[Column.DIRECTION_X : Column.DIRECTION_Z + 1] == pytest.approx([0.6, 0.8, 0.0])
    assert row[Column.CAMERA_TARGET_ANGLE] == pytest.approx(math.acos(0.6))


def test_ratios_are_measured_against_their_own_maxima_and_boss_hp_against_1037():
    row = state_rows(raw_values(PLAYER_HP=227, STAMINA=-10, BOSS_HP=622))[0]
    assert row[Column.PLAYER_HP] == pytest.approx(0.5)
    assert row[Column.STAMINA] == 0.0
    assert row[Column.BOSS_HP] == pytest.approx(622 / 1037)


def test_distance_zero_gives_no_direction_and_no_angle():
    row = state_rows(raw_values(PLAYER_X=7, BOSS_X=7))[0]
    assert row[Column.DISTANCE] == 0.0
    assert not row[Column.DIRECTION_X : Column.DIRECTION_Z + 1].any()
    assert row[Column.CAMERA_TARGET_ANGLE] == 0.0


@pytest.mark.parametrize(("camera_x", "angle"), [(1.0 + 1e-9, 0.0), (-1.0 - 1e-9, math.pi)])
def test_angle_is_safe_at_the_ends_of_arccos(camera_x, angle):
    assert state_rows(raw_values(BOSS_X=2, CAMERA_X=camera_x))[0, Column.CAMERA_TARGET_ANGLE] == pytest.approx(angle)


@given(st.lists(FINITE, min_size=RAW_SIZE, max_size=RAW_SIZE))
def test_every_row_is_finite_with_ratios_and_angles_in_range(values):
    row = state_rows(np.array([values]))[0]
    assert np.isfinite(row).all()
    for column in (Column.BOSS_PROGRESS, Column.PLAYER_PROGRESS, Column.STAMINA, Column.PLAYER_HP, Column.BOSS_HP):
        assert 0.0 <= row[column] <= 1.0
    for column in (Column.BOSS_ANGLE, Column.PLAYER_ANGLE):
        assert abs(row[column]) <= np.float32(math.pi)
    assert 0.0 <= row[Column.CAMERA_TARGET_ANGLE] <= np.float32(math.pi)


@given(st.floats(-50, 50))
def test_wrapping_keeps_the_direction(angle):
    wrapped = wrap_angle(angle)
    assert -math.pi - 1e-9 <= wrapped <= math.pi + 1e-9
    assert math.cos(wrapped) == pytest.approx(math.cos(angle), abs=1e-9)
    assert math.sin(wrapped) == pytest.approx(math.sin(angle), abs=1e-9)
