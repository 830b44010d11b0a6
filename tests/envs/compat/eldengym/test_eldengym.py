"""EldenGym's environment: its constructor, spaces, actions, timing, info and ends."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from fakes.eldengym import faked
from soulsgraph_envs.compat.eldengym import AttributeEnv, EldenGymEnv
from soulsgraph_envs.compat.eldengym.env import FROZEN_SPEED, SimulatedGameWarning
from soulsgraph_envs.compat.eldengym.world import load_keys
from soulsgraph_envs.core.errors import ActionError, DataError, GameError, SoulsGraphError, UnknownNameError

pytestmark = [
    pytest.mark.filterwarnings("ignore::soulsgraph_envs.compat.eldengym.env.SimulatedGameWarning"),
    pytest.mark.filterwarnings("ignore:.*WARN.*:UserWarning"),
]
#: Nobody listens there.
NOBODY = "localhost:1"
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


def action_named(name: str) -> int:
    return list(load_keys().discrete).index(name)


@pytest.mark.parametrize(
    ("made", "options"),
    [
        (make, {}),
        (make, {"observation_mode": "rgb"}),
        (make, {"action_mode": "multi_binary", "freeze_game": True, "game_speed": 0.5}),
        (make_attributes, {"number_shape": ()}),
        (make_attributes, {"number_shape": (1,)}),
    ],
)
def test_passes_gymnasiums_checks(made: Any, options: dict[str, Any]) -> None:
    check_env(made(**options))


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


def test_an_action_taps_its_keys_at_once_and_then_waits_the_skipped_frames() -> None:
    env, keys = make(frame_skip=6, game_fps=30), make(action_mode="multi_binary")
    worlds = [faked(env), faked(keys)]
    for name in ("dodge_left", "attack", "no-op"):
        env.reset(seed=0)
        env.step(action_named(name))
    keys.reset(seed=0)
    keys.step(np.array([1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]))
    keys.step(np.zeros(11, np.int8))
    sent = [[asked for asked in world.asked if asked[0] in ("tap", "wait")] for world in worlds]
    assert sent == [
        [
            *[("tap", ("A", "LEFT_SHIFT"), 100, 200), ("wait", 0.2)],
            *[("tap", ("LEFT_ALT", "LEFT"), 400, 0), ("wait", 0.2)],
            ("wait", 0.2),
        ],
        [("tap", ("W", "LEFT_SHIFT", "LEFT"), 100, 0), ("wait", 4 / 60), ("wait", 4 / 60)],
    ]


def test_actions_and_keys_stand_in_the_documents_order() -> None:
    assert list(load_keys().discrete) == [
        "no-op",
        *("forward", "backward", "left", "right", "jump"),
        *("dodge_forward", "dodge_backward", "dodge_left", "dodge_right"),
        *("interact", "attack", "use_item", "weapon_art"),
    ]
    assert " ".join(load_keys().multi_binary.keys) == "W A S D SPACE LEFT_SHIFT E LEFT_ALT R F LEFT"


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


def test_toggled_keys_are_held_until_their_bit_falls() -> None:
    env = make_attributes(actions=["move_left", "lock_on"])
    world = faked(env)
    env.reset(seed=0)
    world.asked.clear()
    for action in ([1, 0], [1, 1], [0, 1]):
        env.step(np.array(action))
    held = [asked for asked in world.asked if asked[0] == "key"]
    assert held[::2] == [("key", "A", True), ("key", "A", True), ("key", "A", False)]


class Half:
    """A reward without `is_done`."""

    def calculate(self, obs: Any, info: Any, prev_info: Any = None) -> float:
        return 1.0


@pytest.mark.parametrize(
    ("made", "options", "kind", "named"),
    [
        *(
            (make, {name: wrong}, DataError, name)
            for name, wrong in {
                "action_mode": "continuous",
                "observation_mode": "state",
                "render_mode": "ansi",
                "driver": "steam",
                "frame_skip": 0,
                "game_speed": "fast",
                "max_step": 0,
                "frame_size": (0, 9),
                "reward_function": Half(),
            }.items()
        ),
        (make, {"scenario_name": "malenia"}, UnknownNameError, "malenia"),
        (make_attributes, {"save_file": "margit.sl2"}, UnknownNameError, "save_file"),
        (make, {"driver": "siphon", "host": NOBODY}, GameError, "nobody"),
    ],
)
def test_refuses_what_is_not_offered_by_name(made: Any, options: dict[str, Any], kind: type, named: str) -> None:
    with pytest.raises(kind, match=named):
        made(**options)


def test_no_key_is_sent_and_nothing_rendered_before_a_fight() -> None:
    env = make()
    world = faked(env)
    for attempt in (lambda: env.step(1), env.render):
        with pytest.raises(gymnasium.error.ResetNeeded, match="reset") as needed:
            attempt()
        assert isinstance(needed.value, SoulsGraphError)
    assert world.asked == []
    observation, _ = env.reset(seed=0)
    assert (env.render() == observation["frame"]).all()
    for action in (14, -1, [1, 0], 0.5):
        with pytest.raises(ActionError, match="action"):
            env.step(action)


@pytest.mark.parametrize(
    ("made", "options", "named"),
    [
        (EldenGymEnv, {"host": NOBODY}, "localhost"),
        (make_attributes, {"save_file_name": "margit.sl2"}, "save_file_name"),
    ],
)
def test_what_the_simulator_does_in_place_of_the_game_is_warned_of(made: Any, options: Any, named: str) -> None:
    with pytest.warns(SimulatedGameWarning, match=named):
        env = made(**options)
    assert env.reset(seed=0)[1]["simulated"] is True


def test_the_class_of_the_original_is_built_as_there(tmp_path: Any) -> None:
    keys = tmp_path / "keybinds_v2.json"
    bindings = {"attack": {"index": 1, "key": "P", "mouse": "LEFT"}, "move_forward": {"index": 0, "key": "W"}}
    keys.write_text(json.dumps({"actions": bindings, "description": "two of them", "version": "2.0"}))
    assert make_attributes(keybinds_filepath=keys).action_keys == ["move_forward", "attack"]
    offered = {"frame_format": "jpeg", "frame_quality": 85, "launch_game": False, "use_device": "key"}
    nothing = {"save_file_name": None, "save_file_dir": None, "max_steps": None}
    options = {"driver": "simulator", **offered, **nothing}
    env = AttributeEnv("Margit-v0", str(keys), "er_siphon_config.toml", ["HeroHp"], ["attack"], "pc:50051", **options)
    assert (env.action_keys, env.memory_attributes) == (["attack"], ["HeroHp"])
    observation, info = env.reset(seed=0)
    assert set(observation) == set(env.observation_space)
    assert (info["player_hp_normalized"], info["boss_hp_normalized"]) == (1.0, 1.0)
    assert {"player_animation", "boss_animation"} < set(info)
    keys.write_text('{"keybinds": {"W": "go"}}')
    with pytest.raises(DataError, match="actions"):
        make_attributes(keybinds_filepath=keys)
