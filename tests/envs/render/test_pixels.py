"""Small pictures to learn from: what is where in them, and that they are of the State alone."""

from math import hypot

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_boss, load_scenario
from soulsgraph_envs.core.state import STATE_SIZE, Column
from soulsgraph_envs.gym.continual_env import ContinualEnv
from soulsgraph_envs.gym.skill_env import SkillEnv
from soulsgraph_envs.render import palette
from soulsgraph_envs.render.pixels import FIELD, PIXEL_M, PLAYER_AT, SIZE, PixelTables

SCENARIO = load_scenario("iudex-phase1")
TABLES = PixelTables.of(SCENARIO, "rgb")


def state(**values):
    """Return a State in the arena's centre with the boss 5 m north of the player, and the camera to the north."""
    row = np.zeros((1, STATE_SIZE), np.float32)
    x, y = SCENARIO.arena.centre_m
    here = {"PLAYER_X": x, "PLAYER_Y": y, "BOSS_X": x, "BOSS_Y": y + 5.0, "CAMERA_Y": 1.0, "PLAYER_HP": 1.0}
    for name, value in (here | {"BOSS_HP": 1.0, "STAMINA": 1.0, "FLASKS": 1.0} | values).items():
        row[0, Column[name]] = value
    return row


def places_of(picture, colour):
    """Return the mean place (from the left, from the top) of a colour's pixels in the field; None where it has none."""
    rows, columns = np.nonzero((picture[FIELD[0] : FIELD[1]] == np.array(colour, np.uint8)).all(axis=-1))
    return None if not len(rows) else (columns.mean(), rows.mean() + FIELD[0])


@settings(max_examples=25)
@given(turned=st.floats(-3.1, 3.1), bearing=st.floats(-3.1, 3.1), distance=st.floats(2.5, 4.8))
def test_the_boss_is_where_the_state_has_it_with_the_camera_up(turned, bearing, distance):
    x, y = SCENARIO.arena.centre_m
    dx, dy = distance * np.sin(bearing), distance * np.cos(bearing)
    camera = {"CAMERA_X": np.sin(turned), "CAMERA_Y": np.cos(turned)}
    picture = TABLES.draw(state(BOSS_X=x + dx, BOSS_Y=y + dy, **camera))[0]
    found = places_of(picture, palette.BOSS)
    right, up = distance * np.sin(bearing - turned), distance * np.cos(bearing - turned)
    expected = PLAYER_AT[0] + right / PIXEL_M, PLAYER_AT[1] - up / PIXEL_M
    # Its nose covers a part of it.
    assert hypot(found[0] - expected[0], found[1] - expected[1]) < 2.0


def test_a_blow_brightens_as_it_comes_and_changes_colour_as_it_falls():
    boss = load_boss(SCENARIO.boss)
    move = max(boss.moves, key=lambda move: move.windows[0].reach_m)
    begins, ends = (moment_s / move.length_s for moment_s in move.windows[0].time_s)
    at = {"BOSS_ANIMATION": move.id, "BOSS_ANGLE": 0.0}  # A heading of 0 looks south, at the player.
    moments = (0.05 * begins, 0.95 * begins, 0.5 * (begins + ends))
    early, late, falls = (TABLES.draw(state(BOSS_PROGRESS=progress, **at))[0].astype(int) for progress in moments)
    nothing = TABLES.draw(state())[0].astype(int)
    area = (slice(int(PLAYER_AT[1]) - 12, int(PLAYER_AT[1]) - 8), slice(38, 46))
    red = [picture[area][..., 0].mean() for picture in (nothing, early, late, falls)]
    assert red == sorted(red)
    assert falls[area][..., 1].mean() < late[area][..., 1].mean()


def test_bars_flasks_lock_and_pitch_show_their_values():
    half, full = TABLES.draw(state(PLAYER_HP=0.5, FLASKS=0, LOCKED=1, CAMERA_Z=0.5))[0], TABLES.draw(state())[0]
    assert (half[74] == np.array(palette.HP, np.uint8)).all(axis=-1).sum() == SIZE // 2
    assert (full[82] == np.array(palette.FLASK, np.uint8)).all(axis=-1).any()
    assert not (half[82] == np.array(palette.FLASK, np.uint8)).all(axis=-1).any()
    assert places_of(half, palette.LOCK) is not None
    assert places_of(full, palette.LOCK) is None
    assert places_of(half, palette.TEXT)[1] < places_of(full, palette.TEXT)[1]


@pytest.mark.parametrize(("kind", "channels"), [("pixels", 1), ("pixels-rgb", 3)])
def test_an_id_shows_pictures_in_its_space(kind, channels):
    env = gymnasium.make("soulsgraph/Dodge-v0", observation=kind)
    assert env.observation_space == gymnasium.spaces.Box(0, 255, (SIZE, SIZE, channels), np.uint8)
    check_env(env.unwrapped, skip_render_check=True)


def test_a_sequence_shows_pictures_of_every_task_but_of_no_unknown_kind():
    env = ContinualEnv("S8", steps_per_task=2, observation="pixels")
    env.reset(seed=0)
    for _ in range(10):
        seen, _, terminated, truncated, _ = env.step(0)
        assert env.observation_space.contains(seen)
        if terminated or truncated:
            env.reset()
    with pytest.raises(SoulsGraphError, match="task_identity"):
        ContinualEnv("S8", task_identity="one-hot", observation="pixels")
    with pytest.raises(SoulsGraphError, match="observation"):
        SkillEnv(observation="picture")
