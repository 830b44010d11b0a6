from dataclasses import replace
from itertools import pairwise

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import soulsgraph_envs.compat.soulsgym as soulsgym
from fakes.soulsgym import FakeWorld, standing
from soulsgraph_envs import register_environments
from soulsgraph_envs.compat.soulsgym import IudexEnv, IudexEnvDemo, IudexImgEnv, SoulsEnv, VordtEnv
from soulsgraph_envs.compat.soulsgym.fight import NOTHING, LockOn, ResetError, ResetNeeded, player_table
from soulsgraph_envs.core.errors import ActionError, DataError, EpisodeLostError
from soulsgraph_envs.core.scenario import load_player
from soulsgraph_envs.core.state import Control

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
    course = play(env, 3, 150)
    for shown, *_ in course:
        assert space.contains(shown)
        # Every animation of the simulated fight has a number.
        assert not isinstance(shown, dict) or -1 not in (shown["player_animation"], shown["boss_animation"])
    assert env.observation_space is space
    # What becomes tensors has the types for it.
    _, *told, info = course[1]
    assert [type(value) for value in told] == [float, bool, bool]
    assert (info["action_mask"].dtype, info["action_mask"].shape) == (np.bool_, (20,))


@pytest.mark.parametrize("make", EVERY_ENV.values(), ids=EVERY_ENV)
@pytest.mark.filterwarnings("ignore:.*seed.*function is dropped")
def test_gymnasium_accepts_the_environment(make):
    check_env(make(), skip_render_check=True)


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


@pytest.mark.parametrize(("yaw_rad_s", "key"), [(2.4, Control.CAMERA_RIGHT), (-2.4, Control.CAMERA_LEFT)])
def test_the_key_that_turns_the_camera_is_that_of_the_players_axis(yaw_rad_s, key):
    lock = LockOn(replace(load_player("knight").camera, yaw_rad_s=yaw_rad_s))
    ahead_and_aside = np.array([0.0, 0.0, 0.0, 0.0, 1.0, 0.0]), np.array([10.0, 0.0, 0.0])
    assert lock.keys(*ahead_and_aside) == key


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


def test_the_shape_and_the_figures_are_soulsgyms():
    env = IudexEnv()
    spaces = env.observation_space.spaces
    assert env.action_space == gymnasium.spaces.Discrete(20)
    assert spaces["phase"] == gymnasium.spaces.Discrete(2, start=1)
    assert spaces["player_animation"] == gymnasium.spaces.Discrete(51, start=-1)
    assert spaces["boss_animation"] == gymnasium.spaces.Discrete(33, start=-1)
    assert spaces["boss_max_hp"] == gymnasium.spaces.Discrete(1, start=1037)
    assert [spaces[name].shape for name in ("player_hp", "player_pose", "camera_pose")] == [(1,), (4,), (6,)]
    assert spaces["player_pose"].low == pytest.approx([110, 540, -73, -3.1416])
    assert spaces["player_pose"].high == pytest.approx([190, 640, -55, 3.1416])


def test_an_episode_begins_at_the_published_pose_with_the_lock_taken():
    env = IudexEnv()
    assert env.current_valid_actions() == []
    shown, info = env.reset(4)
    assert shown["player_pose"][:2] == pytest.approx([132.176, 575.064])
    assert shown["boss_pose"][:2] == pytest.approx([141.3, 591.9])
    assert (shown["lock_on"], shown["phase"], shown["boss_hp"][0]) == (1, 1, 1037)
    assert info["allowed_actions"] == list(range(20))
    assert info["action_mask"].all()
    # A state is read as a property and as a method, and is a copy.
    assert env.game_state.as_json() == env.game_state().as_json()
    env.game_state.boss_hp = 0.0
    env.game_state().player_pose[:] = 0.0
    assert (env.game_state.boss_hp, env.obs["player_pose"][0] > 0) == (1037, True)


def test_the_same_seed_gives_the_same_fights_and_poses():
    courses = [play(IudexEnv(random_player_pose=True), seed, 100) for seed in (5, 5, 6)]
    assert gymnasium.utils.env_checker.data_equivalence(courses[0], courses[1])
    assert not gymnasium.utils.env_checker.data_equivalence(courses[0], courses[2])
    env, poses = IudexEnv(init_pose_randomization=True), []
    for _ in range(2):
        assert env.seed(11) == [11]
        poses.append([tuple(env.reset()[0]["player_pose"]) for _ in range(60)])
    assert poses[0] == poses[1]
    assert 6 < len(set(poses[0])) <= 11
    with pytest.warns(UserWarning, match="repeatable"):
        assert scripted(standing()).seed(3) == [0]


def test_step_demands_an_episode_under_way_and_an_action_that_exists():
    env = IudexEnv(world=FakeWorld([standing(), standing(player_hp=0.0)]))
    for attempt in (lambda: env.step(NOTHING), lambda: env.obs):
        with pytest.raises(ResetNeeded, match="reset"):
            attempt()
    assert not env.info["action_mask"].any()
    env.reset()
    for action in (20, -1, 3.7, None, [3]):
        with pytest.raises(ActionError, match="action"):
            env.step(action)
    assert env.world.sent == []
    assert env.step(NOTHING)[2:4] == (True, False)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(NOTHING)
    env.close()
    assert env.world.closed


def test_the_reward_counts_both_shares_and_the_way_to_the_middle():
    states = (
        standing(player_pose=np.array([139.0, 582.0, -68.8, 0.0])),
        standing(player_pose=np.array([139.0, 585.0, -68.8, 0.0]), player_hp=227.0, boss_hp=933.3),
        standing(player_pose=np.array([139.0, 593.0, -68.8, 0.0]), player_hp=227.0, boss_hp=933.3),
        standing(player_hp=227.0, boss_hp=0.0),
    )
    rewards = [IudexEnv.compute_reward(*pair) for pair in pairwise(states)]
    # 3 m closer; then within 4 m, where nothing more is gained; then the end.
    assert rewards == pytest.approx([0.1 - 0.5 + 0.03, 0.0, 0.9 + 0.1])
    # Losing costs what victory gives.
    thrown = standing(player_animation="ThrowDef", player_hp=0.0)
    assert scripted(standing(), thrown, standing(), skip_steps=True).step(NOTHING)[1:3] == (pytest.approx(-1.1), True)


@pytest.mark.parametrize(
    ("state", "sent"),
    [
        ({}, Control.LOCK_ON),
        # The camera is turned until the target is in view.
        ({"camera_pose": np.array([141.0, 578.0, -67.3, 1.0, 0.0, 0.0])}, Control.CAMERA_LEFT),
        # There is no lock during a throw.
        ({"player_animation": "ThrowAtk"}, Control.NONE),
    ],
)
def test_a_lost_lock_is_taken_back_in_the_step_after(state, sent):
    env = scripted(standing(), standing(lock_on=False, **state), standing())
    for _ in range(3):
        env.step(NOTHING)
    assert env.world.sent == [Control.NONE, sent, Control.NONE]


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ([EpisodeLostError("no way in")], "no way in"),
        ([standing(lock_on=False)], "lock"),
        ([standing(player_max_hp=500.0)], "500"),
    ],
)
def test_a_fight_that_cannot_begin_is_refused_by_its_reason(script, named):
    world = FakeWorld(script)
    with pytest.raises(ResetError, match=named):
        IudexEnv(world=world).reset()
    assert world.begun == 3


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        *((IudexImgEnv, {"game_speed": speed}) for speed in (0.0, float("inf"))),
        (IudexEnv, {"phase": 3}),
        (IudexImgEnv, {"games": "games.toml"}),
        (IudexImgEnv, {"render_mode": "ansi"}),
        *((IudexImgEnv, {"resolution": size}) for size in (90, (0, 160))),
        (IudexEnv, {"drver": "memory"}),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused_by_name(kind, wrong):
    name = next(reversed(wrong))
    with pytest.raises(DataError, match=name):
        kind(**wrong)


def test_the_demo_goes_through_both_phases_and_shows_the_bosss_end():
    env = IudexEnvDemo()
    env.reset(seed=0)
    env.world.game.override(0, boss_hp=575.0)
    phases = [env.phase]
    while phases[-1] == 1:
        env.world.game.override(0, player_hp=454.0)
        phases.append(env.step(16)[0]["phase"])
    assert (phases[0], env.phase) == (1, 2)
    env.world.game.override(0, boss_hp=0.0)
    _, _, terminated, _, info = env.step(19)
    assert (terminated, info["boss_hp"]) == (True, 0)


def test_a_picture_shows_the_fight_move():
    env = IudexImgEnv(render_mode="rgb_array")
    with pytest.raises(ResetNeeded):
        env.render()
    first, info = env.reset(seed=0)
    assert first.shape == (90, 160, 3)
    assert info["boss_hp"] == 1037
    for _ in range(8):
        later = env.step(0)[0]
    assert (first != later).any()
    assert env.render().shape == (360, 640, 3)
    assert IudexEnv().render() is None
    assert IudexImgEnv(resolution=(1, 1)).reset(seed=0)[0].shape == (1, 1, 3)


@pytest.mark.filterwarnings("ignore:.*Overriding environment")
def test_every_environment_is_found_by_its_id_and_an_id_that_is_taken_stays_its_owners(monkeypatch):
    for name in soulsgym.available_envs:
        assert [gymnasium.spec(found).max_episode_steps for found in (name, f"soulsgraph/{name}")] == [3000, 3000]
        assert isinstance(gymnasium.make(f"soulsgraph/{name}").unwrapped, SoulsEnv)
    theirs = gymnasium.envs.registration.EnvSpec("SoulsGymIudex-v0", entry_point="soulsgym.envs:IudexEnv")
    monkeypatch.setitem(gymnasium.registry, "SoulsGymIudex-v0", theirs)
    register_environments()
    assert gymnasium.spec("SoulsGymIudex-v0") is theirs
    assert gymnasium.spec("soulsgraph/SoulsGymIudex-v0").entry_point == "soulsgraph_envs.compat.soulsgym:IudexEnv"
