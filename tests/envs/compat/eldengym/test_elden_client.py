"""The game behind EldenGym's environments by the names of EldenGym's client."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fakes.eldengym import faked
from soulsgraph_envs.compat.eldengym import AttributeEnv, EldenClient, EldenGymEnv
from soulsgraph_envs.core.errors import GameError, UnknownNameError

pytestmark = pytest.mark.filterwarnings("ignore::soulsgraph_envs.compat.eldengym.env.SimulatedGameWarning")


def make() -> EldenGymEnv:
    return EldenGymEnv(driver="simulator")


def test_the_game_is_at_hand_by_the_names_of_the_original() -> None:
    env = make()
    world = faked(env)
    env.reset(0)
    world.values.update(HeroHp=24.5, NpcHp=500.0, NpcGlobalPosX=3.0, NpcGlobalPosZ=4.0)
    client = env.unwrapped.client
    assert client.get_attribute("HeroHp") == {"success": True, "message": "read", "value": 25, "value_type": "int"}
    assert client.get_attribute("HeroGlobalPosX")["value_type"] == "float"
    assert (client.player_hp, client.player_max_hp, client.player_animation_id) == (25, 100, 1)
    assert (client.target_hp, client.target_max_hp, client.target_animation_id) == (500, 1000, 2)
    assert client.target_player_distance == 5.0
    assert client.set_attribute("NpcHp", 400, "int")["success"]
    assert client.target_hp == 400
    client.set_player_hp(60.0)
    assert env.step(0)[4]["player_hp"] == 60
    client.reset_game()
    assert env.step(0)[2]
    with pytest.raises(UnknownNameError, match="HeroRunes"):
        client.get_attribute("HeroRunes")


def test_the_client_sends_keys_as_siphons_client_does_and_teleports_by_local_places() -> None:
    env = make()
    world = faked(env)
    env.reset(0)
    world.values.update(HeroGlobalPosX=107.0, HeroLocalPosX=7.0, NpcGlobalPosY=4.0)
    client = env.unwrapped.client
    assert (client.local_player_coords, client.global_player_coords) == ((7.0, 0.0, 0.0), (107.0, 0.0, 0.0))
    assert (client.global_target_coords, client.local_target_coords) == ((0.0, 4.0, 0.0), (0.0, 0.0, 0.0))
    world.asked.clear()
    assert client.input_key_tap(["W", "E"], 200, 100)["success"]
    assert client.send_key(["R"])["success"]
    client.teleport(108.0, 1.0, 0.0)
    assert world.asked == [
        ("tap", ("W", "E"), 200, 100),
        ("tap", ("R",), 50, 0),
        ("write", {"HeroLocalPosX": 8.0, "HeroLocalPosY": 1.0, "HeroLocalPosZ": 0.0}),
    ]


def test_the_client_captures_pictures_as_siphons_client_does_and_has_no_mouse() -> None:
    env = make()
    env.reset(seed=0)
    frame, image, packed = env.client.get_frame(), env.client.capture_frame(), env.client.capture_frame(as_image=False)
    assert len(np.unique(frame.reshape(-1, 3), axis=0)) > 3
    assert (image.mode, image.size) == ("RGBA", (packed["width"], packed["height"])) == ("RGBA", (160, 90))
    assert (np.asarray(image)[:, :, :3] == frame).all()
    bgra = np.frombuffer(packed["pixels"], np.uint8).reshape(90, 160, 4)
    assert (bgra[:, :, 2::-1] == frame).all()
    assert (bgra[:, :, 3] == 255).all()
    with pytest.raises(GameError, match="mouse"):
        env.client.move_mouse(10, 0)


def test_distances_are_taken_in_one_frame_of_coordinates() -> None:
    """The boss's "global" place lies in the frame of the player's local one, as version 0.6.0 takes it."""
    there = {"HeroGlobalPosX": 1000.0, "HeroLocalPosX": 10.0, "HeroGlobalPosZ": 50.0, "HeroLocalPosZ": 5.0}
    there |= {"NpcGlobalPosX": 13.0, "NpcGlobalPosY": 4.0, "NpcGlobalPosZ": 5.0}
    by_taps, by_bits = make(), AttributeEnv(driver="simulator")
    for env in (by_taps, by_bits):
        faked(env).values.update(there)
    assert by_taps.reset(seed=0)[1]["distance"] == by_taps.client.target_player_distance == 5.0
    observation, info = by_bits.reset(seed=0)
    assert (observation["dist_to_boss"], observation["boss_z_relative"]) == (5.0, 0.0)
    assert (info["player_xyz"], info["boss_xyz"]) == ((1000.0, 0.0, 50.0), (1003.0, 4.0, 50.0))


def test_a_place_from_an_observation_is_written_as_numbers_of_the_server() -> None:
    kinds = []

    class Recording(EldenClient):
        def __init__(self) -> None:
            """Connect to nothing."""

        def set_attribute(self, name: str, value: Any, value_type: str) -> dict[str, Any]:
            kinds.append((type(value).__name__, value_type))
            return {"success": True, "message": ""}

    Recording().write({"x": np.float64(1.5), "y": 2, "z": np.int64(3), "on": True})
    assert kinds == [("float64", "float"), ("int", "int"), ("int64", "int"), ("bool", "bool")]
