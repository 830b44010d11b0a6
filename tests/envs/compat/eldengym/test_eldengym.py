"""EldenGym's environment: its constructor, spaces, actions, timing, info and ends."""

from __future__ import annotations

import json
import socket
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from fakes.eldengym import FakeWorld
from soulsgraph_envs.compat.eldengym import AttributeEnv, EldenGymEnv
from soulsgraph_envs.compat.eldengym.env import FROZEN_SPEED, OptionError, RewardTypeError, SimulatedGameWarning
from soulsgraph_envs.compat.eldengym.world import load_keys
from soulsgraph_envs.core.errors import DataError, GameError, ResetNeededError, SoulsGraphError, UnknownNameError

pytestmark = [
    pytest.mark.filterwarnings("ignore::soulsgraph_envs.compat.eldengym.env.SimulatedGameWarning"),
    pytest.mark.filterwarnings("ignore:.*WARN.*:UserWarning"),
]
INFO_OF_THE_DOCUMENT = {
    "player_hp": int,
    "player_max_hp": int,
    "target_hp": int,
    "target_max_hp": int,
    "distance": float,
    "player_animation_id": int,
    "target_animation_id": int,
    "step_count": int,
}


def make(**options: Any) -> EldenGymEnv:
    return EldenGymEnv(**{"driver": "simulator", **options})


def make_attributes(**options: Any) -> AttributeEnv:
    return AttributeEnv(**{"driver": "simulator", **options})


def faked(env: Any) -> FakeWorld:
    world = env.world = FakeWorld(env.observation_space["frame"].shape[:2])
    return world


def action_named(name: str) -> int:
    return list(load_keys().discrete).index(name)


@pytest.mark.parametrize(
    "options",
    [{}, {"observation_mode": "rgb"}, {"action_mode": "multi_binary"}, {"freeze_game": True, "game_speed": 0.5}],
    ids=lambda options: ",".join(options) or "default",
)
def test_passes_gymnasiums_checks(options: dict[str, Any]) -> None:
    check_env(make(**options))


@pytest.mark.parametrize("number_shape", [(), (1,)])
def test_the_attribute_environment_passes_gymnasiums_checks(number_shape: tuple[int, ...]) -> None:
    check_env(make_attributes(number_shape=number_shape))


def test_spaces_are_complete_before_the_first_reset() -> None:
    env, keys = make(), make(action_mode="multi_binary")
    assert env.action_space == gymnasium.spaces.Discrete(14)
    assert keys.action_space == gymnasium.spaces.MultiBinary(11)
    assert make(observation_mode="rgb").observation_space == gymnasium.spaces.Box(0, 255, (90, 160, 3), np.uint8)
    assert set(env.observation_space) == {
        "frame",
        "boss_hp",
        "player_hp",
        "distance",
        "boss_animation_id",
        "player_animation_id",
        "last_animation_id",
    }
    assert make_attributes().action_space == gymnasium.spaces.MultiBinary(13)


def test_info_holds_every_key_of_the_documents_table_with_its_type() -> None:
    env = make()
    _, reset_info = env.reset(seed=3)
    *_, step_info = env.step(1)
    for info in (reset_info, step_info):
        assert {key: type(info[key]) for key in INFO_OF_THE_DOCUMENT} == INFO_OF_THE_DOCUMENT
        assert info["boss_hp"] == info["target_hp"]
        assert info["simulated"] is True
    assert (reset_info["step_count"], step_info["step_count"]) == (0, 1)


def test_an_action_taps_the_listings_keys_and_then_waits_the_skipped_frames() -> None:
    env = make(frame_skip=6, game_fps=30)
    world = faked(env)
    env.reset(seed=0)
    world.asked.clear()
    for name in ("dodge_left", "attack", "no-op"):
        env.step(action_named(name))
    assert world.asked == [
        ("tap", ("A", "LEFT_SHIFT"), 100, 200),
        ("wait", 0.2),
        ("tap", ("LEFT_ALT", "LEFT"), 400, 0),
        ("wait", 0.2),
        ("wait", 0.2),
    ]


def test_actions_and_keys_stand_in_the_documents_order() -> None:
    assert list(load_keys().discrete) == [
        "no-op",
        *("forward", "backward", "left", "right", "jump"),
        *("dodge_forward", "dodge_backward", "dodge_left", "dodge_right"),
        *("interact", "attack", "use_item", "weapon_art"),
    ]
    assert " ".join(load_keys().multi_binary.keys) == "W A S D SPACE LEFT_SHIFT E LEFT_ALT R F LEFT"


def test_multi_binary_taps_every_chosen_key_at_once() -> None:
    env = make(action_mode="multi_binary")
    world = faked(env)
    env.reset(seed=0)
    world.asked.clear()
    env.step(np.array([1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]))
    env.step(np.zeros(11, np.int8))
    assert world.asked == [("tap", ("W", "LEFT_SHIFT", "LEFT"), 100, 0), ("wait", 4 / 60), ("wait", 4 / 60)]


def test_a_frozen_game_runs_at_its_speed_only_within_a_step() -> None:
    env = make(freeze_game=True, game_speed=0.5)
    world = faked(env)
    env.reset(seed=0)
    env.step(0)
    speeds = [asked[1] for asked in world.asked if asked[0] == "speed"]
    assert speeds == [0.5, FROZEN_SPEED, 0.5, FROZEN_SPEED]


@pytest.mark.parametrize("limit", [{"max_step": 3}, {"max_steps": 3}, {"max_step": 3, "max_steps": 3}])
@pytest.mark.parametrize("made", [make, make_attributes])
def test_truncates_after_exactly_so_many_steps_and_counts_anew(made: Any, limit: dict[str, int]) -> None:
    env = made(**limit)
    still = env.action_space.sample() * 0
    for _ in range(2):
        env.reset(seed=0)
        assert [env.step(still)[3] for _ in range(3)] == [False, False, True]


def test_default_reward_is_the_change_of_the_players_points_and_of_the_end() -> None:
    env = make()
    world = faked(env)
    env.reset(seed=0)
    world.values["HeroHp"] = 60.0
    assert env.step(0)[1:3] == (-40.0, False)
    world.values["NpcHp"] = 0.0
    assert env.step(0)[1:3] == (100.0, True)
    env.reset(seed=0)
    world.values.update(NpcHp=10.0, HeroHp=0.0)
    assert env.step(0)[1:3] == (-160.0, True)


def test_observation_shows_shares_of_the_bars_and_the_animation_before() -> None:
    env = make()
    world = faked(env)
    env.reset(seed=0)
    world.values.update(HeroHp=25.0, NpcHp=500.0, HeroAnimId=63_010_001.0, NpcGlobalPosX=3.0, NpcGlobalPosZ=4.0)
    observation, *_ = env.step(0)
    shown = {key: value[0] for key, value in observation.items() if key != "frame"}
    assert shown == {
        "boss_hp": 0.5,
        "player_hp": 0.25,
        "distance": 5.0,
        "boss_animation_id": 2,
        "player_animation_id": 63_010_001,
        "last_animation_id": 1,
    }


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"action_mode": "continuous"}, "discrete, multi_binary; found 'continuous'"),
        ({"observation_mode": "state"}, "dict, rgb"),
        ({"frame_skip": 0}, "at least 1"),
        ({"game_speed": 0.0}, "from 0.1 to 3"),
        ({"frame_skip": "4"}, "at least 1"),
        ({"game_speed": "fast"}, "from 0.1 to 3"),
        ({"max_step": 0}, "at least 1"),
        ({"max_step": 5, "max_steps": 7}, "max_steps: expected one of None, 5"),
        *(({"frame_size": size}, "frame_size: expected") for size in (5, (0, 9), (9, 9, 3), (9.5, 9))),
        ({"render_mode": "ansi"}, "rgb_array, human"),
    ],
)
def test_refuses_what_is_not_offered_naming_what_is(options: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        make(**options)


def test_attributes_refuse_what_is_not_offered() -> None:
    with pytest.raises(OptionError, match="actions, how many of them: expected at least 1"):
        make_attributes(actions=[])
    with pytest.raises(OptionError, match="number_shape: expected one of"):
        make_attributes(number_shape=(2,))


def test_no_key_is_sent_before_a_fight() -> None:
    env = make()
    world = faked(env)
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset first"):
        env.step(1)
    assert world.asked == []
    assert issubclass(ResetNeededError, SoulsGraphError)


def test_refuses_a_reward_that_is_no_reward_function() -> None:
    with pytest.raises(RewardTypeError, match="without calculate and is_done"):
        make(reward_function=lambda obs, info, terminated, truncated: 1.0)
    assert issubclass(RewardTypeError, TypeError)
    assert issubclass(OptionError, ValueError)
    assert issubclass(OptionError, SoulsGraphError)


@pytest.mark.parametrize("action", [14, -1, [1, 0], 0.5, True])
def test_refuses_an_action_outside_the_space(action: Any) -> None:
    env = make()
    env.reset(seed=0)
    with pytest.raises(OptionError, match="action: expected"):
        env.step(action)


def test_render_gives_the_observed_frame_and_nothing_before_a_fight() -> None:
    env = make()
    with pytest.raises(ResetNeededError, match="call reset first"):
        env.render()
    observation, _ = env.reset(seed=0)
    assert isinstance(observation, dict)
    assert (env.render() == observation["frame"]).all()


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return f"localhost:{probe.getsockname()[1]}"


def test_without_a_server_the_fight_is_simulated_and_says_so() -> None:
    with pytest.warns(SimulatedGameWarning, match="stands in for Elden Ring's"):
        env = EldenGymEnv(host=free_address())
    assert env.reset(seed=0)[1]["simulated"] is True


def test_a_server_that_is_insisted_on_must_answer() -> None:
    pytest.importorskip("pysiphon")
    with pytest.raises(GameError, match="found nobody there"):
        EldenGymEnv(host=free_address(), driver="siphon")


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="driver"):
        make(driver="steam")
    with pytest.raises(UnknownNameError, match="scenario"):
        make(scenario_name="malenia")
    with pytest.raises(UnknownNameError, match="memory attribute"):
        make_attributes(memory_attributes=["HeroRunes"])
    with pytest.raises(UnknownNameError, match="action"):
        make_attributes(actions=["taunt"])


def test_keys_without_effect_are_told() -> None:
    with pytest.warns(SimulatedGameWarning, match="C \\(crouching\\)"):
        make_attributes()


def test_toggled_keys_are_held_until_their_bit_falls() -> None:
    env = make_attributes(actions=["move_left", "lock_on"])
    world = faked(env)
    env.reset(seed=0)
    world.asked.clear()
    for action in ([1, 0], [1, 1], [0, 1]):
        env.step(np.array(action))
    held = [asked for asked in world.asked if asked[0] == "key"]
    assert held[::2] == [("key", "A", True), ("key", "A", True), ("key", "A", False)]


def test_the_attribute_observation_derives_places_and_distances() -> None:
    env = make_attributes(memory_attributes=["HeroHp"])
    world = faked(env)
    world.values.update(NpcGlobalPosX=3.0, NpcGlobalPosY=4.0, NpcGlobalPosZ=2.0)
    observation, info = env.reset(seed=0)
    assert set(observation) == set(env.observation_space)
    assert (observation["dist_to_boss"], observation["boss_z_relative"], observation["boss_y"]) == (5.0, 2.0, 4.0)
    assert (info["player_hp_normalized"], info["boss_hp_normalized"]) == (1.0, 1.0)
    assert (info["player_xyz"], info["boss_xyz"]) == ((0.0, 0.0, 0.0), (3.0, 4.0, 2.0))
    assert (info["player_animation"], info["boss_animation"]) == (1.0, 2.0)


def test_the_class_of_the_original_is_built_as_there(tmp_path: Any) -> None:
    keys = tmp_path / "keybinds_v2.json"
    bindings = {"move_forward": {"index": 0, "key": "W"}, "attack": {"index": 1, "key": "P", "mouse": "LEFT"}}
    keys.write_text(json.dumps({"actions": bindings, "description": "two of them", "version": "2.0"}))
    attributes = tmp_path / "er_siphon_config.toml"
    offered = {"frame_format": "jpeg", "frame_quality": 85, "launch_game": False, "use_device": "key"}
    nothing = {"save_file_name": None, "save_file_dir": None, "max_steps": None}
    options = {"driver": "simulator", **offered, **nothing}
    env = AttributeEnv("Margit-v0", str(keys), str(attributes), ["HeroHp"], ["attack"], "localhost:50051", **options)
    assert (env.action_keys, env.memory_attributes) == (["attack"], ["HeroHp"])
    observation, info = env.reset(seed=0)
    assert observation["HeroHp"] > 0
    assert {"player_hp_normalized", "boss_hp_normalized", "player_animation", "boss_animation"} < set(info)


def test_names_that_are_not_there_are_a_value_error_as_in_the_original() -> None:
    for options in ({"actions": ["taunt"]}, {"memory_attributes": ["HeroRunes"]}, {"save_file": "margit.sl2"}):
        with pytest.raises(ValueError, match="unknown"):
            make_attributes(**options)


def test_another_scenario_of_the_simulator_can_be_fought() -> None:
    _, info = make(scenario_name="iudex-full").reset(seed=0)
    assert info["target_max_hp"] == 1037


def test_options_of_the_original_without_effect_are_told_and_unknown_ones_refused() -> None:
    with pytest.warns(SimulatedGameWarning, match="save_file_name: expected None, found 'margit.sl2'"):
        make_attributes(save_file_name="margit.sl2", launch_game=False)
    with pytest.raises(UnknownNameError, match="option"):
        make_attributes(save_file="margit.sl2")


def test_points_of_the_weapon_art_are_observed() -> None:
    env = make_attributes(memory_attributes=["HeroFp", "HeroMaxFp"], actions=["skill"])
    observation, _ = env.reset(seed=0)
    assert observation["HeroFp"] == observation["HeroMaxFp"] > 0
    observation, *_ = env.step(np.array([1]))
    assert observation["HeroFp"] < observation["HeroMaxFp"]


def test_reads_a_key_binding_file_of_the_original(tmp_path: Any) -> None:
    path = tmp_path / "keys.json"
    path.write_text('{"actions": {"hit": {"index": 1, "key": "L"}, "go": {"index": 0, "key": "W"}}}')
    assert make_attributes(keybinds_filepath=path).action_keys == ["go", "hit"]
    path.write_text('{"keybinds": {"W": "go"}}')
    with pytest.raises(DataError, match="actions"):
        make_attributes(keybinds_filepath=path)
