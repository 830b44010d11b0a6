import copy
import pickle
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import soulsgraph_envs.compat.soulsgym as soulsgym
from fakes.soulsgym import FakeWorld, standing
from soulsgraph_envs import register_environments
from soulsgraph_envs.compat.soulsgym import IudexEnv, IudexEnvDemo, IudexImgEnv, SoulsEnv, SoulsEnvDemo, VordtEnv
from soulsgraph_envs.compat.soulsgym.fight import (
    NOTHING,
    GameStateError,
    InvalidGameSettings,
    LockOn,
    ResetError,
    ResetNeeded,
    player_table,
)
from soulsgraph_envs.core.errors import EpisodeLostError, SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.scenario import load_player
from soulsgraph_envs.core.state import ALL_CONTROLS, Control

EVERY_ENV = {
    "iudex-1": lambda: IudexEnv(random_player_pose=True),
    "iudex-2": lambda: IudexEnv(phase=2, skip_steps=True),
    "img": lambda: IudexImgEnv(resolution=(36, 64)),
    "demo": IudexEnvDemo,
    "vordt-1": VordtEnv,
    "vordt-2": lambda: VordtEnv(phase=2),
}


def scripted(*states, **options):
    env = IudexEnv(world=FakeWorld(states), **options)
    env.reset(seed=0)
    return env


def play(env, seed, steps):
    """Play random valid actions; return the observations and rewards."""
    rng = np.random.default_rng(seed)
    course = [env.reset(seed=seed)]
    for _ in range(steps):
        course.append(env.step(rng.choice(env.current_valid_actions())))
        if course[-1][2]:
            course.append(env.reset())
    return course


@pytest.mark.parametrize("make", EVERY_ENV.values(), ids=EVERY_ENV)
def test_whatever_is_shown_lies_in_the_space_that_was_complete_before(make):
    env = make()
    space = env.observation_space
    for shown in play(env, 3, 400):
        assert space.contains(shown[0])
    assert env.observation_space is space


@pytest.mark.parametrize("make", EVERY_ENV.values(), ids=EVERY_ENV)
@pytest.mark.filterwarnings("ignore:.*seed.*function is dropped")
def test_gymnasium_accepts_the_environment(make):
    check_env(make(), skip_render_check=True)


def test_the_shape_is_soulsgyms():
    env = IudexEnv()
    spaces = env.observation_space.spaces
    assert env.action_space == gymnasium.spaces.Discrete(20)
    assert spaces["phase"] == gymnasium.spaces.Discrete(2, start=1)
    assert spaces["player_animation"] == gymnasium.spaces.Discrete(51, start=-1)
    assert spaces["boss_animation"] == gymnasium.spaces.Discrete(33, start=-1)
    assert spaces["boss_max_hp"] == gymnasium.spaces.Discrete(1, start=1037)
    assert {name: spaces[name].shape for name in ("player_hp", "player_pose", "camera_pose")} == {
        "player_hp": (1,),
        "player_pose": (4,),
        "camera_pose": (6,),
    }
    assert soulsgym.available_envs[0] == "SoulsGymIudex-v0"
    assert isinstance(soulsgym.available_envs, list)
    assert (env.game_id, env.step_size, env.current_valid_actions()) == ("DarkSoulsIII", 0.1, [])


def test_an_episode_begins_at_the_published_pose_with_the_lock_taken():
    env = IudexEnv()
    shown, info = env.reset(4)
    assert shown["player_pose"][:2] == pytest.approx([132.176, 575.064])
    assert shown["boss_pose"][:2] == pytest.approx([141.3, 591.9])
    assert (shown["lock_on"], shown["phase"], shown["boss_hp"][0]) == (1, 1, 1037)
    assert info["allowed_actions"] == list(range(20))
    assert info["action_mask"].all()


def test_random_poses_are_the_eleven_published_ones():
    env = IudexEnv(init_pose_randomization=True)
    places = {tuple(env.reset(seed=seed)[0]["player_pose"][:2].round(2)) for seed in range(60)}
    assert 6 < len(places) <= 11


def test_the_same_seed_gives_the_same_fight():
    courses = [play(IudexEnv(random_player_pose=True), seed, 300) for seed in (5, 5, 6)]
    assert gymnasium.utils.env_checker.data_equivalence(courses[0], courses[1])
    assert not gymnasium.utils.env_checker.data_equivalence(courses[0], courses[2])


def test_seed_seeds_the_episodes_to_come():
    env = IudexEnv(random_player_pose=True)
    poses = []
    for _ in range(2):
        assert env.seed(11) == [11]
        poses.append([env.reset()[0]["player_pose"] for _ in range(4)])
    assert np.array_equal(*poses)


def test_a_running_game_cannot_be_seeded_and_says_so():
    env = scripted(standing())
    with pytest.warns(UserWarning, match="not make its fights repeatable"):
        assert env.seed(3) == [0]


def test_step_demands_an_episode_under_way():
    env = IudexEnv(world=FakeWorld([standing(), standing(player_hp=0.0)]))
    for attempt in (lambda: env.step(NOTHING), lambda: env.obs):
        with pytest.raises(ResetNeeded, match="call reset first"):
            attempt()
    assert not env.info["action_mask"].any()
    env.reset()
    assert env.step(NOTHING)[2:4] == (True, False)
    with pytest.raises(gymnasium.error.ResetNeeded, match="found it over"):
        env.step(NOTHING)
    assert issubclass(ResetNeeded, SoulsGraphError)


@pytest.mark.parametrize(
    ("animation", "played_s", "stamina", "valid"),
    [
        ("RollingMedium", 0.68, 50.0, {19}),
        ("RollingMedium", 0.70, 50.0, {16, 17, 18, 19}),
        ("RollingMedium", 0.74, 50.0, {*range(8, 20)}),
        ("RollingMedium", 0.76, 50.0, {*range(20)}),
        ("ThrowDef", 8.25, 50.0, {*range(8, 20)}),
        ("Idle", 0.0, 0.0, {*range(8), 19}),
        ("NeverHeardOf", 0.0, 50.0, {*range(20)}),
    ],
)
def test_actions_are_valid_once_their_time_in_the_animation_has_come(animation, played_s, stamina, valid):
    state = standing(player_animation=animation, player_animation_duration=played_s, player_sp=stamina)
    env = scripted(state)
    assert set(env.current_valid_actions()) == valid
    assert set(np.flatnonzero(env.info["action_mask"])) == valid == set(env.info["allowed_actions"])


def test_an_action_that_cannot_begin_is_left_out():
    rolling = standing(player_animation="RollingMedium", player_animation_duration=0.3)
    env = scripted(standing(), rolling, standing())
    for action in (9, 16, 16):
        env.step(action)
    ahead_right = Control.FORWARD | Control.RIGHT
    assert env.world.sent == [ahead_right | Control.ROLL, Control.NONE, Control.LIGHT_ATTACK]


def test_an_action_that_does_not_exist_is_refused():
    env = scripted(standing())
    for action in (20, -1, 3.7, None, [3], True):
        with pytest.raises(UnknownNameError, match="action: expected one of 0 to 19; found"):
            env.step(action)
    assert env.world.sent == []


def test_the_reward_counts_both_shares_and_the_way_to_the_middle():
    env = scripted(
        standing(player_pose=np.array([139.0, 582.0, -68.8, 0.0])),
        standing(player_pose=np.array([139.0, 585.0, -68.8, 0.0]), player_hp=227.0, boss_hp=933.3),
        standing(player_pose=np.array([139.0, 593.0, -68.8, 0.0]), player_hp=227.0, boss_hp=933.3),
        standing(player_hp=227.0, boss_hp=0.0),
    )
    rewards = [env.step(NOTHING)[1] for _ in range(3)]
    # 3 m closer; then within 4 m, where nothing more is gained; then the end.
    assert rewards == pytest.approx([0.1 - 0.5 + 0.03, 0.0, 0.9 + 0.1])


def test_losing_costs_what_victory_gives():
    assert scripted(standing(), standing(player_hp=0.0)).step(NOTHING)[1] == pytest.approx(-1.1)


def test_skipped_steps_are_rewarded_as_one_span():
    bound = {"player_animation": "DamageSmall", "player_animation_duration": 0.1}
    states = (
        standing(),
        standing(boss_hp=1000.0, **bound),
        standing(boss_hp=950.0, **bound),
        standing(boss_hp=900.0),
        standing(boss_hp=850.0),
    )
    env = scripted(*states, skip_steps=True)
    _, reward, *_ = env.step(16)
    assert env.game_state.boss_hp == 900.0
    assert reward == pytest.approx(IudexEnv.compute_reward(states[0], states[3]))
    assert env.world.sent == [Control.LIGHT_ATTACK, Control.NONE, Control.NONE]


def test_skipping_stops_at_the_end_of_the_fight():
    thrown = standing(player_animation="ThrowDef", player_hp=0.0)
    assert scripted(standing(), thrown, standing(), skip_steps=True).step(NOTHING)[2]


def test_a_lost_lock_is_taken_back_in_the_step_after():
    env = scripted(standing(), standing(lock_on=False), standing())
    for _ in range(3):
        env.step(NOTHING)
    assert env.world.sent == [Control.NONE, Control.LOCK_ON, Control.NONE]


def test_the_camera_is_turned_until_the_target_is_in_view():
    away = standing(lock_on=False, camera_pose=np.array([141.0, 578.0, -67.3, 1.0, 0.0, 0.0]))
    env = scripted(standing(), away)
    env.step(NOTHING)
    env.step(NOTHING)
    assert env.world.sent[-1] == Control.CAMERA_LEFT
    env._queued = Control.NONE
    env._lock_on(target_pose=np.array([151.0, 578.0, -67.3, 0.0]))
    assert env._queued == Control.LOCK_ON


@pytest.mark.parametrize(("yaw_rad_s", "key"), [(2.4, Control.CAMERA_RIGHT), (-2.4, Control.CAMERA_LEFT)])
def test_the_key_that_turns_the_camera_is_that_of_the_players_axis(yaw_rad_s, key):
    lock = LockOn(replace(load_player("knight").camera, yaw_rad_s=yaw_rad_s))
    ahead_and_aside = np.array([0.0, 0.0, 0.0, 0.0, 1.0, 0.0]), np.array([10.0, 0.0, 0.0])
    assert lock.keys(*ahead_and_aside) == key


def test_there_is_no_lock_during_a_throw():
    env = scripted(standing(), standing(lock_on=False, player_animation="ThrowAtk"))
    env.step(NOTHING)
    env.step(NOTHING)
    assert env.world.sent[-1] == Control.NONE


def test_a_lost_episode_is_an_error_and_no_transition():
    env = scripted(standing(), EpisodeLostError("the game froze", 2), standing())
    with pytest.raises(GameStateError, match="the game froze"):
        env.step(NOTHING)
    with pytest.raises(ResetNeeded):
        env.step(NOTHING)
    env.reset()


def test_reset_gives_up_after_three_attempts_with_the_reason():
    world = FakeWorld([EpisodeLostError("no way in")])
    with pytest.raises(ResetError, match="3 attempts: no way in"):
        IudexEnv(world=world).reset()
    assert world.begun == 3


def test_a_lock_that_cannot_be_taken_ends_the_reset():
    with pytest.raises(ResetError, match="lock on Iudex Gundyr"):
        IudexEnv(world=FakeWorld([standing(lock_on=False)])).reset()


def test_a_driver_without_an_action_is_refused_with_the_action():
    world = FakeWorld([standing()], able=ALL_CONTROLS & ~Control.PARRY)
    with pytest.raises(InvalidGameSettings, match=r"found none of \[18\]"):
        IudexEnv(world=world)


@pytest.mark.parametrize(
    "wrong",
    [
        {"game_speed": 0.0},
        {"game_speed": float("inf")},
        {"game_speed": "fast"},
        {"phase": 3},
        {"driver": "memory", "game_speed": 9.0},
        {"games": "games.toml"},
        {"render_mode": "ansi"},
        *({"resolution": size} for size in (90, (0, 160), (90, 160, 3), (9.5, 16))),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(InvalidGameSettings, match=f"{next(reversed(wrong))}: expected"):
        IudexImgEnv(**wrong)


def test_the_whole_fight_begins_in_no_other_phase():
    with pytest.raises(InvalidGameSettings, match="phase: expected 1, found 2"):
        IudexEnvDemo(phase=2)


def test_an_option_that_does_not_exist_is_refused():
    with pytest.raises(TypeError, match="drver"):
        IudexEnv(drver="memory")


def test_a_copy_fights_on_alike():
    env = IudexEnv()
    play(env, 2, 60)
    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    for action in [8, 16, 19] * 20:
        (_, *told, info), *others = [each.step(action) for each in (env, *copies)]
        assert all(other[1:4] == tuple(told) for other in others)
        assert all(other[4]["allowed_actions"] == info["allowed_actions"] for other in others)
        if told[1]:
            break


def test_every_action_does_something_on_the_simulator():
    seen = set()
    env = IudexEnv()
    env.reset(seed=0)
    for action in (0, 16, 17, 18, 8):
        while not {16, 17, 18} <= set(env.current_valid_actions()):
            env.step(NOTHING)
        env.step(action)
        seen.add(env.game_state.player_animation)
    assert seen == {"AttackRightLight1", "AttackRightHeavy1Sta", "ParryLeftStart", "RollingMedium", "Move"}
    assert seen <= set(player_table().numbers)


def test_the_demo_goes_through_both_phases():
    env = IudexEnvDemo()
    env.reset(seed=0)
    phases = {env.obs["phase"]}
    env.world.game.override(0, boss_hp=575.0)
    for _ in range(600):
        env.world.game.override(0, player_hp=454.0)
        phases.add(env.step(16)[0]["phase"])
    assert phases == {1, 2}
    assert isinstance(env, SoulsEnvDemo)


def test_a_picture_shows_the_fight_move():
    env = IudexImgEnv(render_mode="rgb_array")
    first, info = env.reset(seed=0)
    assert first.shape == (90, 160, 3)
    assert info["boss_hp"] == 1037
    for _ in range(8):
        later = env.step(0)[0]
    assert (first != later).any()
    assert env.render().shape == (360, 640, 3)
    assert IudexEnv().render() is None
    with pytest.raises(ResetNeeded):
        IudexImgEnv(render_mode="rgb_array").render()


def test_the_smallest_picture_is_one_pixel():
    assert IudexImgEnv(resolution=(1, 1)).reset(seed=0)[0].shape == (1, 1, 3)


def test_every_environment_is_found_by_its_id():
    for name in soulsgym.available_envs:
        for found in (name, f"soulsgraph/{name}"):
            spec = gymnasium.spec(found)
            assert spec.max_episode_steps == 3000
        assert isinstance(gymnasium.make(f"soulsgraph/{name}").unwrapped, SoulsEnv)


def test_another_player_is_refused():
    with pytest.raises(ResetError, match="454 HP and 95 stamina, found 500 and 95"):
        IudexEnv(world=FakeWorld([standing(player_max_hp=500.0)])).reset()


def test_closing_closes_the_world():
    env = scripted(standing())
    env.close()
    assert env.world.closed


@pytest.mark.filterwarnings("ignore:.*Overriding environment")
def test_an_id_that_is_taken_stays_its_owners(monkeypatch):
    theirs = gymnasium.envs.registration.EnvSpec("SoulsGymIudex-v0", entry_point="soulsgym.envs:IudexEnv")
    monkeypatch.setitem(gymnasium.registry, "SoulsGymIudex-v0", theirs)
    register_environments()
    assert gymnasium.spec("SoulsGymIudex-v0") is theirs
    assert gymnasium.spec("soulsgraph/SoulsGymIudex-v0").entry_point == "soulsgraph_envs.compat.soulsgym:IudexEnv"


def test_the_classes_say_what_soulsgyms_say():
    iudex, vordt = IudexEnv, VordtEnv
    assert (iudex.ENV_ID, iudex.BONFIRE, iudex.step_size) == ("iudex", "Cemetery of Ash", 0.1)
    assert (iudex.ARENA_LIM_LOW, iudex.ARENA_LIM_HIGH) == ([110, 540, -73, -3.1416], [190, 640, -55, 3.1416])
    assert (iudex.IUDEX_MAX_HP, iudex.HARD_RESET_INTERVAL, iudex.CAM_SETUP_POSE) == (1037, 900, [0.378, 0.926, 0.0])
    assert (vordt.ENV_ID, vordt.BONFIRE, vordt.VORDT_MAX_HP) == ("vordt", "Dancer of the Boreal Valley", 1328)
    assert (vordt.ARENA_LIM_LOW, vordt.ARENA_LIM_HIGH) == ([13, -7, -27, -3.1416], [42, 46, -15, 3.1416])
    assert SoulsEnv.ENV_ID == ""
    for env in (iudex(), vordt()):
        box = env.observation_space["player_pose"]
        assert np.array_equal(box.low, np.array(env.ARENA_LIM_LOW, np.float32))
        assert np.array_equal(box.high, np.array(env.ARENA_LIM_HIGH, np.float32))


def test_the_state_is_read_as_a_property_and_as_a_method_and_is_a_copy():
    env = IudexEnv()
    env.reset(seed=0)
    assert env.game_state.as_json() == env.game_state().as_json()
    env.game_state.boss_hp = 0.0
    env.game_state().player_pose[:] = 0.0
    assert env.game_state.boss_hp == 1037
    assert env.obs["player_pose"][0] > 0
