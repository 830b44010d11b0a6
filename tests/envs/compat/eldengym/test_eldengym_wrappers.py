"""EldenGym's wrappers: pictures, memory attributes, the arena's edge."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from fakes.eldengym import FakeWorld
from soulsgraph_envs.compat.eldengym import AttributeEnv, EldenGymEnv
from soulsgraph_envs.compat.eldengym.env import OptionError
from soulsgraph_envs.compat.eldengym.wrappers import (
    AnimFrameWrapper,
    ArenaBoundary,
    BoundaryDistances,
    DictFrameStack,
    DictGrayscaleFrame,
    DictResizeFrame,
    DodgePolicyRewardWrapper,
    FrameStack,
    GrayscaleFrame,
    HPRefundWrapper,
    NormalizeMemoryAttributes,
    OOBSafetyWrapper,
    ResizeFrame,
    SDFObsWrapper,
)
from soulsgraph_envs.core.errors import DataError
from soulsgraph_envs.core.scenario import load_scenario

pytestmark = [
    pytest.mark.filterwarnings("ignore::soulsgraph_envs.compat.eldengym.env.SimulatedGameWarning"),
    pytest.mark.filterwarnings("ignore:.*WARN.*:UserWarning"),
]
SQUARE = ArenaBoundary([(-10, -10), (10, -10), (10, 10), (-10, 10)])


def attributes(**options: Any) -> tuple[AttributeEnv, FakeWorld]:
    env = AttributeEnv(driver="simulator", frame_size=(40, 50), **options)
    env.world = world = FakeWorld((40, 50))
    return env, world


def go(env: Any, steps: int = 1) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    for _ in range(steps):
        stepped = env.step(np.zeros(13, np.int8))
    return stepped


def test_dictionary_pictures_are_scaled_grey_and_stacked() -> None:
    env, world = attributes()
    wrapped = DictFrameStack(DictGrayscaleFrame(DictResizeFrame(env, width=36, height=48)), num_stack=3)
    check_env(wrapped)
    first, _ = wrapped.reset(seed=0)
    assert first["frame"].shape == (48, 36, 3)
    world.values["NpcHp"] = 0.0
    second, *_ = go(wrapped)
    assert [int(channel.max()) for channel in np.moveaxis(second["frame"], -1, 0)] == [255, 255, 0]
    world.values["NpcHp"] = 1000.0
    go(wrapped)
    world.values["NpcHp"] = 0.0
    again, _ = wrapped.reset(seed=0)
    assert again["frame"].max() == 0


def test_plain_pictures_are_scaled_grey_and_stacked() -> None:
    env = EldenGymEnv(driver="simulator", observation_mode="rgb")
    wrapped = FrameStack(GrayscaleFrame(ResizeFrame(env)), 4)
    check_env(wrapped)
    assert wrapped.observation_space.shape == (84, 84, 4)


def test_grey_is_the_brightness_of_the_colours() -> None:
    grey = DictGrayscaleFrame(attributes()[0])
    colours = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]], np.uint8)
    assert grey.picture(colours).ravel().tolist() == [76, 149, 29, 255]


def test_wrappers_refuse_observations_without_what_they_need() -> None:
    plain = EldenGymEnv(driver="simulator", observation_mode="rgb")
    with pytest.raises(OptionError, match="expected a picture"):
        ResizeFrame(attributes()[0])
    with pytest.raises(OptionError, match="dictionary observation with HeroHp"):
        HPRefundWrapper(plain)
    with pytest.raises(OptionError, match="NpcAnimId"):
        AnimFrameWrapper(attributes(memory_attributes=["HeroHp"])[0])
    with pytest.raises(OptionError, match="live_plot"):
        SDFObsWrapper(attributes()[0], SQUARE, live_plot=True)


def test_numbers_are_scaled_by_their_range_or_by_what_was_seen() -> None:
    env, world = attributes()
    wrapped = NormalizeMemoryAttributes(env, {"HeroHp": (0, 200)})
    wrapped.reset(seed=0)
    world.values.update(HeroHp=50.0, NpcHp=600.0)
    assert (go(wrapped)[0]["HeroHp"], go(wrapped)[0]["NpcHp"]) == (0.25, 0.0)
    world.values["NpcHp"] = 800.0
    observation, *_ = go(wrapped)
    assert (observation["NpcHp"], observation["NpcMaxHp"]) == (0.5, 0.0)
    assert wrapped.observation_space.contains(observation)


def test_damage_is_told_and_refunded_to_whom_it_is_promised() -> None:
    env, world = attributes()
    wrapped = HPRefundWrapper(env, refund_player=True, refund_boss=True)
    wrapped.reset(seed=0)
    assert go(wrapped)[4]["player_damage_taken"] == 0.0
    world.values.update(HeroHp=70.0, NpcHp=900.0)
    info = go(wrapped)[4]
    assert (info["player_damage_taken"], info["player_damage_taken_normalized"]) == (30.0, 0.3)
    assert (info["boss_damage_dealt"], info["boss_damage_dealt_normalized"]) == (100.0, 0.1)
    assert (world.values["HeroHp"], world.values["NpcHp"]) == (100.0, 1000.0)
    lone = HPRefundWrapper(env)
    lone.reset(seed=0)
    assert "boss_damage_dealt" not in go(lone)[4]


def test_steps_of_one_animation_are_counted() -> None:
    env, world = attributes(number_shape=(1,))
    wrapped = AnimFrameWrapper(env)
    counted = [wrapped.reset(seed=0)[0], go(wrapped)[0], go(wrapped)[0]]
    world.values["NpcAnimId"] = 9.0
    counted += [go(wrapped)[0], go(wrapped)[0]]
    assert [int(each["elapsed_frames"][0]) for each in counted] == [0, 1, 2, 0, 1]
    assert [int(each["boss_anim_id"][0]) for each in counted] == [2, 2, 2, 9, 9]
    assert all(wrapped.observation_space.contains(each) for each in counted)


def test_the_distance_to_the_edge_is_observed() -> None:
    env, world = attributes()
    wrapped = SDFObsWrapper(env, SQUARE)
    world.values.update(HeroGlobalPosX=-7.0, HeroGlobalPosY=1.0)
    observation, _ = wrapped.reset(seed=0)
    # The map shows (y, -x): the player stands at (1, 7), 3 m from its upper edge.
    assert [float(observation[f"sdf_{name}"]) for name in ("value", "normal_x", "normal_y")] == [-3.0, 0.0, 1.0]
    assert wrapped.observation_space.contains(observation)


def test_a_player_outside_is_taken_back_to_the_last_safe_place() -> None:
    env, world = attributes()
    wrapped = OOBSafetyWrapper(env, SQUARE, soft_margin=3.0)
    wrapped.reset(seed=0)
    for x, inside_soft, inside_hard in ((5.0, True, True), (8.0, False, True), (12.0, False, False)):
        world.values["HeroGlobalPosX"] = x
        info = go(wrapped)[4]
        assert (info["inside_soft"], info["inside_hard"], info["teleported"]) == (
            inside_soft,
            inside_hard,
            not inside_hard,
        )
    assert info["last_safe_xyz"] == (5.0, 0.0, 0.0)
    # Local places are written: as far as the global ones are from the safe place.
    assert world.values["HeroLocalPosX"] == 5.0 - 12.0


def test_a_dodge_policy_is_rewarded_by_what_happened() -> None:
    env, world = attributes(actions=["move_forward", "dodge_roll/dash"])
    wrapped = DodgePolicyRewardWrapper(OOBSafetyWrapper(HPRefundWrapper(env), SQUARE), dodge_action_idx=1)
    wrapped.reset(seed=0)
    dodging = np.array([0, 1], np.int8)
    assert wrapped.step(dodging)[1] == pytest.approx(-0.01)
    world.values["HeroHp"] = 90.0
    _, reward, _, _, info = wrapped.step(np.zeros(2, np.int8))
    assert info["reward_raw"] == pytest.approx(-0.1)
    assert reward == info["reward_shaped"] == pytest.approx(-1.1)
    world.values["HeroGlobalPosX"] = 9.0
    assert wrapped.step(np.zeros(2, np.int8))[4]["reward_danger_zone_penalty"] == -0.1
    world.values["HeroGlobalPosX"] = 11.0
    assert wrapped.step(np.zeros(2, np.int8))[4]["reward_oob_penalty"] == -1.0
    bare = DodgePolicyRewardWrapper(env, 1)
    bare.reset(seed=0)
    with pytest.raises(OptionError, match="HPRefundWrapper and OOBSafetyWrapper"):
        bare.step(dodging)


def test_refunds_and_rescues_work_in_the_simulated_fight() -> None:
    env = AttributeEnv(driver="simulator")
    arena = load_scenario("margit").arena
    boundary = ArenaBoundary.disc(arena.centre_m, arena.radius_m)
    wrapped = OOBSafetyWrapper(HPRefundWrapper(env), boundary, soft_margin=1.0)
    _, info = wrapped.reset(seed=0)
    start = info["last_safe_xyz"]
    taken = 0.0
    for _ in range(1500):
        _, _, terminated, _, info = wrapped.step(np.zeros(13, np.int8))
        taken += info["player_damage_taken"]
        assert not terminated
    assert taken > env.client.get("HeroMaxHp")
    env.client.teleport_to(*start)
    assert env.world.read(["HeroGlobalPosX"])["HeroGlobalPosX"] == pytest.approx(start[0], abs=0.01)


# The arena's edge.


@pytest.mark.parametrize(
    ("point", "distance", "normal"),
    [
        ((9.0, 0.0), -1.0, (1.0, 0.0)),
        ((0.0, -8.0), -2.0, (0.0, -1.0)),
        ((13.0, 14.0), 5.0, (0.6, 0.8)),
        ((-12.0, 3.0), 2.0, (-1.0, 0.0)),
    ],
)
def test_signed_distances_are_exact(point: tuple[float, float], distance: float, normal: tuple[float, float]) -> None:
    assert SQUARE.query_sdf(*point) == pytest.approx((distance, *normal))
    assert SQUARE.nearest_distance(*point) == pytest.approx(distance)
    assert SQUARE.get_sdf_normal(*point) == pytest.approx(normal)
    assert SQUARE.is_inside(*point) == (distance < 0)


def test_an_arena_need_not_be_convex() -> None:
    corner = ArenaBoundary([(0, 0), (10, 0), (10, 4), (4, 4), (4, 10), (0, 10)])
    inside, nearest = corner.query_batch([(2, 8), (8, 8), (8, 2)])
    assert inside.tolist() == [True, False, True]
    assert nearest.tolist() == pytest.approx([2.0, 4.0, 2.0])


def test_a_query_measures_along_the_axes_of_the_map() -> None:
    assert SQUARE.query(3.0, 1.0) == BoundaryDistances(True, 7.0, north=9.0, south=11.0, east=7.0, west=13.0)
    outside = SQUARE.query(13.0, 14.0)
    assert (outside.inside, outside.nearest) == (False, -5.0)
    assert {outside.north, outside.south, outside.east, outside.west} == {inf}
    assert SQUARE.query(-12.0, 3.0) == BoundaryDistances(False, -2.0, inf, inf, east=2.0, west=inf)


def test_a_query_meets_the_nearest_of_several_edges_and_those_it_runs_along() -> None:
    corner = ArenaBoundary([(0, 0), (10, 0), (10, 4), (4, 4), (4, 10), (0, 10)])
    assert corner.query(2.0, 8.0) == BoundaryDistances(True, 2.0, north=2.0, south=8.0, east=2.0, west=2.0)
    assert corner.query(9.0, 8.0).south == 4.0
    # The ray runs along the edge from (4, 4) to (10, 4), which begins three metres on.
    assert corner.query(1.0, 4.0).east == 3.0
    assert corner.query(11.0, 4.0).west == 1.0


def test_the_arguments_of_the_original_are_taken() -> None:
    ring = SimpleNamespace(coords=[*SQUARE.corners.tolist(), SQUARE.corners[0].tolist()])
    boundary = ArenaBoundary(polygon=SimpleNamespace(exterior=ring), resolution=0.25, padding=5.0)
    assert (boundary.corners == SQUARE.corners).all()
    assert (boundary.resolution, boundary.padding) == (0.25, 5.0)
    assert (boundary.x_min, boundary.x_max, boundary.y_min, boundary.y_max) == (-15.0, 15.0, -15.0, 15.0)
    assert boundary.query_sdf(9.0, 0.0) == SQUARE.query_sdf(9.0, 0.0)
    for corners in ([(0, 0), (1, 1)], "abc", [(0, 0), (1,), (2, 2)], [(0, 0), (1, 1), (2, float("nan"))]):
        with pytest.raises(OptionError, match="three or more corners"):
            ArenaBoundary(corners)
    for wrong in ({"resolution": 0.0}, {"padding": -1.0}, {"resolution": "fine"}):
        with pytest.raises(OptionError, match="expected a number"):
            ArenaBoundary(SQUARE.corners, **wrong)  # type: ignore[arg-type]


def traced(path: Path, points: Sequence[tuple[float, float]]) -> Path:
    steps = [{"global_x": -y, "global_y": x} for x, y in points]
    path.write_text(json.dumps({"player_path": steps}))
    return path


def test_a_traced_path_is_simplified_or_taken_as_its_hull(tmp_path: Path) -> None:
    around = [(0, 0), (5, 0.4), (10, 0), (10, 10), (5, 7), (0, 10), (-0.3, 5)]
    path = traced(tmp_path / "path.json", around)
    assert len(ArenaBoundary.from_path_data(path, simplify_tolerance=0.0).corners) == 7
    simple = ArenaBoundary.from_path_data(str(path), resolution=0.25)
    assert simple.corners.tolist() == [[0, 0], [10, 0], [10, 10], [5, 7], [0, 10]]
    assert simple.resolution == 0.25
    hull = ArenaBoundary.from_path_data(path, use_convex_hull=True)
    assert {tuple(corner) for corner in hull.corners} == {(0, 0), (10, 0), (10, 10), (0, 10), (-0.3, 5)}
    with pytest.raises(OptionError, match="points on a line"):
        ArenaBoundary.from_path_data(traced(path, [(0, 0), (5, 0), (9, 0)]), use_convex_hull=True)
    with pytest.raises(OptionError, match="three or more corners"):
        ArenaBoundary.from_path_data(traced(path, [(0, 0), (5, 0.1), (9, 0)]))


def test_boundaries_are_saved_and_loaded(tmp_path: Path) -> None:
    path = tmp_path / "arena.json"
    ArenaBoundary(SQUARE.corners, 0.25, 5.0).save(path)
    # What the original reads.
    assert set(json.loads(path.read_text())) == {"polygon", "resolution", "padding"}
    loaded = ArenaBoundary.load(path)
    assert (loaded.corners == SQUARE.corners).all()
    assert (loaded.resolution, loaded.padding) == (0.25, 5.0)
    # As the original writes them: the first corner again at the end.
    path.write_text('{"polygon": [[0, 0], [4, 0], [4, 4], [0, 0]], "resolution": 0.5, "padding": 10.0}')
    assert len(ArenaBoundary.load(path).corners) == 3
    with pytest.raises(OptionError, match="three or more corners"):
        ArenaBoundary.from_path_data(traced(path, [(1, 2), (5, 2)]))
    with pytest.raises(DataError, match="polygon"):
        ArenaBoundary.load(path)
    path.write_text('{"player_path": [{"global_x": 1, "global_y": NaN}, {"global_x": 2, "global_y": 2}, 3]}')
    with pytest.raises(DataError, match=r"player_path\[0\].global_y: expected a finite number"):
        ArenaBoundary.from_path_data(path)
    path.write_text('{"player_path": [{"x": 1}]}')
    with pytest.raises(DataError, match="global_x"):
        ArenaBoundary.from_path_data(path)
    path.write_text('{"polygon": ' + "[" * 100_000)
    with pytest.raises(DataError, match=r"arena\.json"):
        ArenaBoundary.load(path)
