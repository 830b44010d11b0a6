"""EldenGym's wrappers: pictures, memory attributes, the arena's edge."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from fakes.eldengym import FakeWorld, faked
from soulsgraph_envs.compat.eldengym import AttributeEnv, EldenGymEnv
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

pytestmark = [
    pytest.mark.filterwarnings("ignore::soulsgraph_envs.compat.eldengym.env.SimulatedGameWarning"),
    pytest.mark.filterwarnings("ignore:.*WARN.*:UserWarning"),
]
SQUARE = ArenaBoundary([(-10, -10), (10, -10), (10, 10), (-10, 10)])


def attributes(**options: Any) -> tuple[AttributeEnv, FakeWorld]:
    env = AttributeEnv(driver="simulator", frame_size=(40, 50), **options)
    return env, faked(env)


def go(env: Any, steps: int = 1) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    for _ in range(steps):
        stepped = env.step(np.zeros(13, np.int8))
    return stepped


def test_pictures_are_scaled_grey_and_stacked() -> None:
    env, world = attributes()
    wrapped = DictFrameStack(DictGrayscaleFrame(DictResizeFrame(env, width=36, height=48)), num_stack=3)
    check_env(wrapped)
    first, _ = wrapped.reset(seed=0)
    assert first["frame"].shape == (48, 36, 3)
    world.values["NpcHp"] = 0.0
    second, *_ = go(wrapped)
    assert [int(channel.max()) for channel in np.moveaxis(second["frame"], -1, 0)] == [255, 255, 0]
    # Nothing of the episode before.
    again, _ = wrapped.reset(seed=0)
    assert again["frame"].max() == 0
    colours = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]], np.uint8)
    assert DictGrayscaleFrame(env).picture(colours).ravel().tolist() == [76, 150, 29, 255]
    levels = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(DictGrayscaleFrame(env).picture(np.dstack([levels] * 3)).ravel(), levels)
    plain = EldenGymEnv(driver="simulator", observation_mode="rgb")
    assert FrameStack(GrayscaleFrame(ResizeFrame(plain)), 4).observation_space.shape == (84, 84, 4)


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
    seen = []
    for x in (5.0, 8.0, 12.0):
        world.values["HeroGlobalPosX"] = x
        info = go(wrapped)[4]
        seen.append((info["inside_soft"], info["inside_hard"], info["teleported"]))
    assert seen == [(True, True, False), (False, True, False), (False, False, True)]
    assert info["last_safe_xyz"] == (5.0, 0.0, 0.0)
    # Local places are written: as far as the global ones are from the safe place.
    assert world.values["HeroLocalPosX"] == 5.0 - 12.0


def test_a_dodge_policy_is_rewarded_by_what_happened() -> None:
    env, world = attributes(actions=["move_forward", "dodge_roll/dash"])
    wrapped = DodgePolicyRewardWrapper(OOBSafetyWrapper(HPRefundWrapper(env), SQUARE), dodge_action_idx=1)
    wrapped.reset(seed=0)
    still, dodging = np.zeros(2, np.int8), np.array([0, 1], np.int8)
    assert wrapped.step(dodging)[1] == pytest.approx(-0.01)
    world.values["HeroHp"] = 90.0
    _, reward, _, _, info = wrapped.step(still)
    assert (info["reward_raw"], info["reward_shaped"], reward) == pytest.approx((-0.1, -1.1, -1.1))
    for x, kind, penalty in ((9.0, "danger_zone", -0.1), (11.0, "oob", -1.0)):
        world.values["HeroGlobalPosX"] = x
        assert wrapped.step(still)[4][f"reward_{kind}_penalty"] == penalty


# The arena's edge.

#: Not convex.
CORNER = ArenaBoundary([(0, 0), (10, 0), (10, 4), (4, 4), (4, 10), (0, 10)])


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
    assert SQUARE.get_sdf_normal(*point) == pytest.approx(normal)
    inside, nearest = CORNER.query_batch([(2, 8), (8, 8), (8, 2)])
    assert inside.tolist() == [True, False, True]
    assert nearest.tolist() == pytest.approx([2.0, 4.0, 2.0])


@pytest.mark.parametrize(
    ("arena", "point", "measured"),
    [
        (SQUARE, (3.0, 1.0), (True, 7.0, 9.0, 11.0, 7.0, 13.0)),
        (SQUARE, (13.0, 14.0), (False, -5.0, inf, inf, inf, inf)),
        (SQUARE, (-12.0, 3.0), (False, -2.0, inf, inf, 2.0, inf)),
        (CORNER, (2.0, 8.0), (True, 2.0, 2.0, 8.0, 2.0, 2.0)),
        # The ray runs along the edge from (4, 4) to (10, 4), which begins three metres on.
        (CORNER, (1.0, 4.0), (True, 1.0, 6.0, 4.0, 3.0, 1.0)),
        (CORNER, (11.0, 4.0), (False, -1.0, inf, inf, inf, 1.0)),
    ],
)
def test_a_query_measures_along_the_axes_to_the_nearest_edge(
    arena: ArenaBoundary, point: tuple[float, float], measured: tuple[Any, ...]
) -> None:
    inside, nearest, north, south, east, west = measured
    assert arena.query(*point) == BoundaryDistances(inside, nearest, north=north, south=south, east=east, west=west)


def traced(path: Path, *points: tuple[float, float]) -> Path:
    path.write_text(json.dumps({"player_path": [{"global_x": -y, "global_y": x} for x, y in points]}))
    return path


def test_a_traced_path_is_simplified_or_taken_as_its_hull(tmp_path: Path) -> None:
    path = traced(tmp_path / "path.json", (0, 0), (5, 0.4), (10, 0), (10, 10), (5, 7), (0, 10), (-0.3, 5))
    assert len(ArenaBoundary.from_path_data(path, simplify_tolerance=0.0).corners) == 7
    simple = ArenaBoundary.from_path_data(str(path), resolution=0.25)
    assert (simple.corners.tolist(), simple.resolution) == ([[0, 0], [10, 0], [10, 10], [5, 7], [0, 10]], 0.25)
    hull = ArenaBoundary.from_path_data(path, use_convex_hull=True)
    assert {tuple(corner) for corner in hull.corners} == {(0, 0), (10, 0), (10, 10), (0, 10), (-0.3, 5)}


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


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "arena.json").write_text('{"polygon": ' + "[" * 100_000)
    with pytest.raises(DataError, match=r"arena\.json"):
        ArenaBoundary.load(tmp_path / "arena.json")
