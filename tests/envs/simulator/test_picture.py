"""What a picture of a fight shows, where, in which colour: held against the fight's own values."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from math import cos, pi, sin

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.simulator import open_fight, press
from soulsgraph_envs.core.scenario import load_boss, load_scenario
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.render import palette
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.simulator.layout import PlayerPose, frames
from soulsgraph_envs.simulator.render import panel_width, render, view_of
from soulsgraph_envs.simulator.scene import WHOLE, Change, Goal, between

SCENARIO, BOSS = load_scenario("iudex-full"), load_boss("iudex-phase1")
X, Y = SCENARIO.arena.centre_m
SIZE, SMALL = (360, 640), (90, 160)
Pixels = npt.NDArray[np.int64]


def fight(**fields: object) -> Simulator:
    """Open a fight four metres apart in the arena's middle, and play one frame without a key."""
    sim = open_fight(SCENARIO, **{"locked": 1, "boss_y": Y - 4.0, **fields})
    press(sim, Control.NONE)
    return sim


def move(title: str) -> int:
    return [one.title for one in BOSS.moves].index(title)


def pixel(sim: Simulator, place: tuple[float, float], size: tuple[int, int] = SIZE) -> Pixels:
    """Return the colour of the picture at a place of the arena."""
    x, y = view_of(sim.scene(), size).pixel(*place)
    return sim.render(0, size)[int(y), int(x)].astype(np.int64)


def ahead_of_boss(sim: Simulator, metres: float, aside_rad: float = 0.0) -> tuple[float, float]:
    raw = sim.scene().raw
    heading = raw[Raw.BOSS_ANGLE] + aside_rad
    return raw[Raw.BOSS_X] - metres * sin(heading), raw[Raw.BOSS_Y] - metres * cos(heading)


def at_window(title: str, offset: int, **fields: object) -> tuple[Simulator, float, float]:
    """Return a fight whose boss is in a move, frames away from its first window; the window's reach and half arc."""
    window = BOSS.moves[move(title)].windows[0]
    first = frames(window.time_s[0] * BOSS.time_factor)
    placed = {"boss_heading": 0.0, "boss_y": Y + 5.0, "locked": 0}
    sim = fight(**{"move": move(title), "move_frame": first + offset, **placed, **fields})
    return sim, window.reach_m, window.half_arc_rad


def is_red(colour: Pixels) -> bool:
    return bool(colour[0] > 150 and colour[1] < 80 and colour[2] < 70)


@pytest.mark.parametrize("size", [SIZE, SMALL])
def test_an_open_window_is_red_where_it_strikes_and_nowhere_else(size: tuple[int, int]) -> None:
    sim, reach, half = at_window("fast sweep", 1)
    inside = [(0.6 * reach, 0.0), (0.92 * reach, 0.0), (0.92 * reach, 0.8 * half), (0.92 * reach, -0.8 * half)]
    outside = [(1.12 * reach, 0.0), (0.92 * reach, 1.25 * half), (0.92 * reach, -1.25 * half), (0.92 * reach, pi)]
    assert all(is_red(pixel(sim, ahead_of_boss(sim, *place), size)) for place in inside)
    assert not any(is_red(pixel(sim, ahead_of_boss(sim, *place), size)) for place in outside)


def test_a_wind_up_fills_the_area_from_the_middle_in_another_colour() -> None:
    shares = []
    for offset in (-25, -5):
        sim, reach, _ = at_window("fast sweep", offset)
        (area,) = sim.scene().areas
        assert not area.open
        near, far = (pixel(sim, ahead_of_boss(sim, part * reach, 0.9)) for part in (0.6, 0.97))
        assert not is_red(near)
        assert near[0] > near[2] + 20  # Amber: more red than blue.
        shares.append((area.winding_up, int(near[0]), int(far[0])))
    (early, near_early, _), (late, near_late, far_late) = shares
    assert early < 0.6 < late
    assert near_late > near_early  # The fuller part is brighter.
    assert near_late > far_late


def test_nothing_is_coloured_when_the_last_window_has_passed() -> None:
    sim, reach, _ = at_window("fast sweep", 60)
    assert sim.scene().areas == ()
    assert not is_red(pixel(sim, ahead_of_boss(sim, 0.8 * reach)))


@pytest.mark.parametrize("share", [0.0, 0.25, 0.8, 1.0])
@pytest.mark.parametrize("size", [SIZE, SMALL])
def test_a_bars_length_is_its_value(share: float, size: tuple[int, int]) -> None:
    sim = fight()
    raw = sim.scene().raw
    full = {"player_hp": Raw.PLAYER_HP_MAX, "stamina": Raw.STAMINA_MAX, "boss_hp": Raw.BOSS_HP_MAX}
    sim.override(0, **{name: share * raw[most] for name, most in full.items()})
    scene = replace(sim.scene(), banner="", hp_windows=WHOLE)
    picture = render(scene, size)
    unit, width = size[0] // 40, size[1] - panel_width(size)
    rows = {"player_hp": (unit, palette.HP), "stamina": (3 * unit, palette.STAMINA)}
    for row, colour in rows.values():
        count = (picture[row, :width] == colour).all(-1).sum()
        assert count == pytest.approx(share * round(0.38 * width), abs=1)
    boss = (picture[size[0] - 2 * unit, :width] == palette.HP).all(-1).sum()
    assert boss == pytest.approx(share * (width - 2 * (width // 6)), abs=2)


def test_bars_count_hp_within_what_the_fight_is_about() -> None:
    sim = open_fight(load_scenario("iudex-phase1"))
    begin, end = sim.scene().hp_windows[1][::-1]
    assert 0.0 < end < begin == 1.0
    row, width = SIZE[0] - 2 * (SIZE[0] // 40), SIZE[1] - panel_width(SIZE)
    for left in (1.0, 0.5, 0.0):
        sim.override(0, boss_hp=(end + left * (begin - end)) * sim.scene().raw[Raw.BOSS_HP_MAX])
        red = (render(replace(sim.scene(), banner=""), SIZE)[row, :width] == palette.HP).all(-1).sum()
        assert red == pytest.approx(left * (width - 2 * (width // 6)), abs=2)


@given(share=st.floats(0.0, 0.999), turned=st.floats(-pi, pi), heading=st.floats(-pi, pi))
def test_between_two_scenes_headings_turn_the_shorter_way(share: float, turned: float, heading: float) -> None:
    first = fight().scene()
    first.raw[Raw.BOSS_ANGLE] = heading
    second = replace(first, raw=first.raw.copy())
    second.raw[Raw.BOSS_ANGLE] = (heading + 0.99 * turned + pi) % (2.0 * pi) - pi
    now = between(first, second, share, 0.1).raw
    assert cos(now[Raw.BOSS_ANGLE] - heading - share * 0.99 * turned) == pytest.approx(1.0)
    assert now[Raw.PLAYER_ANGLE] == pytest.approx(first.raw[Raw.PLAYER_ANGLE])


def test_between_two_scenes_a_window_opens_at_its_frame() -> None:
    sim, _, _ = at_window("fast sweep", -4)
    first = sim.scene()
    press(sim, Control.NONE, 6)
    second = sim.scene()
    assert not first.areas[0].open
    assert second.areas[0].open
    opened = [between(first, second, frame / 6, 0.1).areas[0].open for frame in range(6)]
    assert opened == [False] * round(60 * first.until_hit_s) + [True] * (6 - round(60 * first.until_hit_s))


@pytest.mark.parametrize("boss_y", [Y - 1.3, Y + 1.3])
def test_neither_fighter_hides_the_other(boss_y: float) -> None:
    scene = fight(boss_y=boss_y, locked=0).scene()
    scene = replace(scene, areas=(), boss=replace(scene.boss, name=""))
    view, picture = view_of(scene, SIZE), render(scene, SIZE)
    for who, colour in (("PLAYER", palette.PLAYER), ("BOSS", palette.BOSS)):
        x, y = view.pixel(scene.raw[Raw[f"{who}_X"]], scene.raw[Raw[f"{who}_Y"]])
        around = picture[int(y) - 25 : int(y) + 25, int(x) - 25 : int(x) + 25]
        assert (around == colour).all(-1).sum() > 60


def test_flasks_are_counted() -> None:
    for flasks in (0, 1, 3):
        sim = fight(flasks=flasks)
        unit = SIZE[0] // 40
        row = (sim.render(0, SIZE)[7 * unit + 1] == palette.FLASK).all(-1)
        assert np.flatnonzero(np.diff(row.astype(int)) == 1).size == flasks


def test_invulnerable_frames_have_a_ring_of_their_own() -> None:
    counts = []
    for frame in (2, 50):
        sim = fight(animation=int(PlayerPose.ROLL), animation_frame=frame)
        whole = sim.render(0, SIZE)[:, : SIZE[1] - panel_width(SIZE)]
        counts.append(int((whole == palette.SAFE).all(-1).sum()))
        assert sim.scene().invulnerable == (frame == 2)
    assert counts[0] > 30
    assert counts[1] == 0


def test_a_loss_and_a_drink_are_shown_for_a_second_and_then_gone() -> None:
    window = BOSS.moves[move("spin")].windows[0]
    first = frames(window.time_s[0] * BOSS.time_factor)
    sim = open_fight(SCENARIO, boss_y=Y - 2.0, move=move("spin"), move_frame=first - 1)
    hp = sim.scene().raw[Raw.PLAYER_HP]
    press(sim, Control.NONE, 6)
    struck = sim.scene()
    assert struck.player_change.recent
    assert struck.player_change.points == struck.raw[Raw.PLAYER_HP] - hp < 0.0
    assert not struck.boss_change.recent
    press(sim, Control.NONE, 60)
    assert not sim.scene().player_change.recent


def test_drinking_shows_what_it_healed() -> None:
    sim = open_fight(SCENARIO, boss_y=Y - 9.0, player_hp=100.0, wait=10_000)
    sim.override(0, no_attack=1)
    press(sim, Control.USE_ITEM)
    healed = 0.0
    for _ in range(120):
        press(sim, Control.NONE)
        healed = max(healed, sim.scene().player_change.points)
    assert healed == sim.scene().raw[Raw.PLAYER_HP] - 100.0 > 0.0


def test_the_ends_of_a_fight_are_written_across_it_but_not_in_a_training_scenario() -> None:
    for values, banner in (({"player_hp": 0.0}, "YOU DIED"), ({"boss_hp": 0.0}, "VICTORY"), ({}, "")):
        sim = fight()
        sim.override(0, **values)
        assert sim.scene().banner == banner
    ground = Simulator(1)
    ground.reset(np.zeros(1, np.int64), replace(SCENARIO, refill=True), np.zeros(1, np.uint64))
    ground.override(0, player_hp=0.0)
    assert ground.scene().banner == ""


@pytest.mark.parametrize("size", [(180, 320), SIZE, (720, 1280)])
@pytest.mark.parametrize("boss_y", [Y - 1.5, Y - 4.0, Y - 12.0])
def test_how_a_fight_ended_covers_neither_fighter(size: tuple[int, int], boss_y: float) -> None:
    scene = replace(fight(boss_y=boss_y, boss_hp=0.0).scene(), banner="VICTORY")
    view, picture = view_of(scene, size), render(scene, size)
    without = render(replace(scene, banner=""), size)
    for who, radius_m in zip(("PLAYER", "BOSS"), scene.radii_m, strict=True):
        (x, y), radius = view.pixel(scene.raw[Raw[f"{who}_X"]], scene.raw[Raw[f"{who}_Y"]]), radius_m / view.pixel_m
        around = np.s_[int(y - radius) : int(y + radius) + 1, int(x - radius) : int(x + radius) + 1]
        np.testing.assert_array_equal(picture[around], without[around])
    assert (picture[:, : view.width] == palette.WON).all(-1).sum() > 50


@pytest.mark.parametrize("size", [(180, 320), SIZE])
def test_what_the_boss_does_is_not_written_over_the_values_of_the_bars(size: tuple[int, int]) -> None:
    values = []
    for away_m in (3.0, 18.0):
        sim, _, _ = at_window("fast sweep", -5, boss_y=Y + away_m)
        scene = sim.scene()
        assert scene.until_hit_s > 0.0
        unnamed = replace(scene, boss=replace(scene.boss, name=""))
        differs = (render(scene, size) != render(unnamed, size))[:, : view_of(scene, size).width]
        values.append(np.nonzero(differs)[0].min())
    unit, font = size[0] // 40, max(size[0] // 32, 9)
    assert min(values) > 3 * unit + font


@pytest.mark.parametrize("size", [(180, 320), SIZE, (720, 1280)])
def test_a_bosss_name_is_not_written_over_where_the_fight_is_won(size: tuple[int, int]) -> None:
    scene = replace(fight().scene(), hp_windows=((0.0, 1.0), (0.6, 1.0)), boss_name="")
    pictures = {name: render(replace(scene, boss_name=name), size) for name in ("", "Boss of generated/timing/10003")}
    unwritten = render(replace(scene, hp_windows=((0.0, 1.0), (0.0001, 1.0))), size)
    low = np.s_[-size[0] // 8 : -2 * (size[0] // 40), : view_of(scene, size).width]
    won = (pictures[""][low] != unwritten[low]).any(-1).any(0)
    named = (pictures[""][low] != pictures["Boss of generated/timing/10003"][low]).any(-1).any(0)
    assert np.nonzero(named)[0].max() < np.nonzero(won)[0].min()


def test_a_loss_is_written_beside_the_one_who_lost_in_a_colour_of_his_own() -> None:
    colours = {}
    for who in ("player", "boss"):
        scene = fight().scene()
        changed = replace(scene, **{f"{who}_change": Change(-92.0, 0.3)})
        differs = (render(changed, SIZE) != render(scene, SIZE)).any(-1)
        rows, columns = np.nonzero(differs)
        x, y = view_of(scene, SIZE).pixel(scene.raw[Raw[f"{who.upper()}_X"]], scene.raw[Raw[f"{who.upper()}_Y"]])
        # To the right of the fighter, at his height or a little above it.
        assert x < columns.min() < x + 75
        assert y - 60 < rows.min() < rows.max() < y + 20
        written = render(changed, SIZE)[differs]
        colours[who] = {tuple(map(int, pixel)) for pixel in written} & {palette.LOST, palette.LANDED}
    assert colours == {"player": {palette.LOST}, "boss": {palette.LANDED}}


def test_the_cameras_view_is_lighter_within_its_angle_and_up_to_where_the_lock_takes_hold() -> None:
    scene = fight(locked=0, boss_y=Y - 6.0).scene()
    scene = replace(scene, lock_range_m=4.0)
    raw, view = scene.raw, view_of(scene, SIZE)
    seen, unseen = render(scene, SIZE).astype(int), render(replace(scene, view_rad=0.0), SIZE).astype(int)

    def lighter(metres: float, aside_rad: float) -> bool:
        ahead = np.arctan2(raw[Raw.CAMERA_Y], raw[Raw.CAMERA_X]) + aside_rad
        place = raw[Raw.PLAYER_X] + metres * cos(ahead), raw[Raw.PLAYER_Y] + metres * sin(ahead)
        x, y = view.pixel(*place)
        return bool((seen[int(y), int(x)] > unseen[int(y), int(x)]).all())

    half = scene.view_rad
    assert all(lighter(metres, aside) for metres in (1.5, 3.7) for aside in (-0.85 * half, 0.85 * half))
    assert not any(lighter(3.0, aside) for aside in (-1.2 * half, 1.2 * half, pi))
    assert not lighter(4.4, 0.5 * half)


def test_a_lock_is_a_dashed_line_between_both_with_a_dot_on_the_boss() -> None:
    shares, dots = [], []
    for locked in (0, 1):
        scene = fight(locked=locked, boss_y=Y - 6.0).scene()
        raw, view, picture = scene.raw, view_of(scene, SIZE), render(scene, SIZE)
        ends = [np.array([raw[Raw[f"{who}_X"]], raw[Raw[f"{who}_Y"]]]) for who in ("PLAYER", "BOSS")]
        between = [view.pixel(*(ends[0] + part * (ends[1] - ends[0]))) for part in np.linspace(0.25, 0.7, 200)]
        found = [(picture[int(y), int(x) - 1 : int(x) + 2] == palette.LOCK).all(-1).any() for x, y in between]
        shares.append(float(np.mean(found)))
        x, y = view.pixel(*ends[1])
        dots.append(tuple(map(int, picture[int(y), int(x)])) == palette.LOCK)
    assert dots == [False, True]
    assert shares[0] == 0.0
    assert 0.3 < shares[1] < 0.8


def test_who_does_what_is_named() -> None:
    sim, _, _ = at_window("delayed sweep", -20, animation=int(PlayerPose.ESTUS))
    scene = sim.scene()
    assert (scene.boss.name, scene.player.name) == ("delayed sweep", "drinks")
    assert scene.until_hit_s == pytest.approx(19 / 60)
    near = fight(boss_y=Y - 3.0, wait=600).scene()
    assert (near.boss.name, near.boss_name) == ("waits", "Iudex Gundyr")


def test_an_arrow_leads_to_a_goal_that_is_out_of_sight() -> None:
    scene = fight().scene()
    pictures = [render(replace(scene, goal=Goal(X + away, Y, "gate")), SIZE) for away in (60.0, -60.0)]
    ahead_x, ahead_y = view_of(scene, SIZE).ahead
    for picture, away in zip(pictures, (60.0, -60.0), strict=True):
        columns = np.argwhere((picture[:, :460] == palette.LOCK).all(-1))[:, 1]
        right = away * ahead_y
        assert (columns > 300).sum() > 20 if right > 0 else (columns < 160).sum() > 20
    assert abs(ahead_x) < 0.5


@pytest.mark.parametrize("size", [(1, 1), (3, 200), (36, 36), SMALL, (180, 320), SIZE, (450, 800), (720, 1280)])
def test_every_size_is_drawn_and_the_same_each_time(size: tuple[int, int]) -> None:
    sim, _, _ = at_window("fast sweep", 1, animation=int(PlayerPose.ROLL), player_hp=0.0)
    picture = sim.render(0, size)
    assert (picture.shape, picture.dtype) == ((*size, 3), np.uint8)
    assert (picture == sim.render(0, size)).all()


def test_neither_a_display_nor_pygame_nor_fonts_are_loaded_before_they_are_needed() -> None:
    code = """
import sys
import soulsgraph_envs
from soulsgraph_envs.gym.skill_env import SkillEnv
assert not {"pygame", "PIL.ImageFont", "PIL.ImageDraw"} & set(sys.modules), "loaded too early"
sys.modules["pygame"] = None
env = SkillEnv(render_mode="rgb_array")
env.reset(seed=0)
print(env.render().shape)
"""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert ran.stdout.strip() == "(360, 640, 3)", ran.stderr
