"""What the ids, the spaces, the infos and the action masks promise, held against play."""

import pickle
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from stable_baselines3.common.env_checker import check_env as check_env_for_stable_baselines

import soulsgraph_envs
from soulsgraph_envs.core.config import shipped_names
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.state import Column
from soulsgraph_envs.gym.skill_env import SkillEnv, SkillVectorEnv
from soulsgraph_envs.skills import END_TO_END, SKILL_NAMES, SkillOptions
from soulsgraph_envs.skills.columns import UNITS, column_limits

SKILLS = (*SKILL_NAMES, END_TO_END)
IDS = {skill: soulsgraph_envs.id_of(skill) for skill in SKILLS}
OURS = [*IDS.values(), "soulsgraph/Skill-v0", "soulsgraph/Continual-v0"]


def random_play(env, steps, seed=0):
    """Yield what every reset and step of drawn actions answers, (observation, info), with the state at hand."""
    random = np.random.default_rng(seed)
    yield env.reset(seed=seed)
    for _ in range(steps):
        observation, _, terminated, truncated, info = env.step(int(random.integers(env.action_space.n)))
        yield observation, info
        if terminated or truncated:
            yield env.reset()


@pytest.mark.parametrize("id", OURS)
def test_gymnasiums_and_stable_baselines_checkers_pass_without_a_warning(id, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(id, render_mode="rgb_array")
        check_env(env.unwrapped)
        check_env_for_stable_baselines(env.unwrapped)
        for observation, info in random_play(env, 30):
            assert env.observation_space.contains(observation)
            assert info["action_mask"].dtype == np.int8
        env.close()


#: The ids of every face, of which one makes environments without a simulated boss's warning.
FACES = {
    "soulsgraph/Dodge-v0": {},
    "soulsgraph/Continual-v0": {},
    "soulsgraph/SoulsGymIudex-v0": {},
    "soulsgraph/EldenGym-v0": {"driver": "simulator"},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("id", FACES)
def test_gymnasium_shows_every_face_in_a_window(id, monkeypatch):
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = gymnasium.make(id, render_mode="human", **FACES[id])
    assert isinstance(env, gymnasium.wrappers.HumanRendering)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    env.close()


@pytest.mark.parametrize("id", OURS)
def test_the_spec_names_the_skills_horizon_unless_another_limit_is_asked_for(id):
    for make in (gymnasium.make, gymnasium.make_vec):
        env = make(id)
        horizon = env.unwrapped.rollout.skill.horizon
        assert env.spec.max_episode_steps == horizon
        assert make(id, max_episode_steps=10).spec.max_episode_steps == 10
    assert gymnasium.make("soulsgraph/Skill-v0", skill="camera").spec.max_episode_steps == 128
    gymnasium.wrappers.TimeAwareObservation(gymnasium.make(id))


_ONE_HOT = SkillOptions(animations="one_hot", observations="extended", hp_window=False)


# The baseline observes every column.
@pytest.mark.parametrize(
    ("skill", "scenario", "options"),
    [*((END_TO_END, name, None) for name in shipped_names("scenario")), ("heal_attack", "iudex-full", _ONE_HOT)],
)
def test_observations_lie_within_their_space_in_every_scenario(skill, scenario, options):
    env = SkillVectorEnv(32, skill, scenario, options=options)
    random, (seen, _) = np.random.default_rng(1), env.reset(seed=1)
    for _ in range(100):
        assert env.observation_space.contains(seen)
        seen, *_ = env.step(random.integers(env.single_action_space.n, size=32))


def test_the_bounds_are_those_of_the_scenario():
    low, high = column_limits(load_scenario("iudex-phase1"))
    assert (low < high).all()
    assert {*UNITS} == {*Column}
    known = {Column.DISTANCE: 28.0, Column.PLAYER_X: 156.0, Column.BOSS_HP: 1.0, Column.FLASKS: 1.0, Column.LOCKED: 1.0}
    assert {column: high[column] for column in known} == known
    assert low[Column.BOSS_Y] == 581.0
    assert column_limits(load_scenario("vordt"))[1][Column.DISTANCE] == 32.0


def test_info_has_the_same_keys_at_reset_and_at_every_step():
    for skill in SKILLS:
        env = SkillEnv(skill)
        keys = {frozenset(info) for _, info in random_play(env, 80)}
        rewards = {f"reward/{name}" for name in env.rollout.skill.reward.names}
        assert keys == {frozenset(rewards | {"won", "died", "seconds", "action_mask"})}
        many = SkillVectorEnv(3, skill)
        first = many.reset(seed=0)[1]
        steps = [many.step(np.zeros(3, np.int64))[4] for _ in range(60)]
        assert {frozenset(info) for info in steps} == {frozenset(first)}


@pytest.mark.parametrize(
    ("values", "controls", "masked"),
    [
        ({"flasks": 0}, "locked", {"heal", "camera_left", "camera_right", "camera_up", "camera_down"}),
        (
            {"stamina": -40.0},
            "free",
            {"light_attack", *(f"dodge_{way}" for way in ("forward", "back", "left", "right"))},
        ),
        ({}, "free", set()),
    ],
)
def test_what_does_nothing_now_is_masked_and_really_does_nothing(values, controls, masked):
    env = SkillEnv(END_TO_END)
    names = [action.name for action in env.rollout.skill.actions]
    env.reset(seed=0)
    env.rollout.combat.game.override(0, no_attack=1, **values)
    env.step(names.index("toggle_lock_on" if controls == "locked" else "idle"))
    _, _, _, _, info = env.step(names.index("idle"))
    assert env.rollout.combat.rows[0, Column.LOCKED] == (controls == "locked")
    assert {name for name, allowed in zip(names, env.action_masks(), strict=True) if not allowed} == masked
    assert (info["action_mask"] == env.action_masks()).all()
    for name in masked - {"heal"}:  # The character reaches for a flask in vain.
        one, other = (pickle.loads(pickle.dumps(env)) for _ in range(2))
        one.step(names.index(name))
        other.step(names.index("idle"))
        if name.startswith("camera"):
            np.testing.assert_array_equal(one.rollout.combat.raw, other.rollout.combat.raw)
        idle_and_run = {0.0, 1.0}
        assert one.rollout.combat.rows[0, Column.PLAYER_ANIMATION] in idle_and_run


def test_skills_upstream_may_be_named():
    alone = SkillEnv("dodge", upstream=())
    assert [skill.name for skill in alone.rollout.combat.skills] == ["dodge"]
    chosen = SkillEnv("heal_attack", upstream=("camera", "lock_on", "movement"))
    assert len(chosen.rollout.combat.skills) == 4
    with pytest.raises(UnknownNameError, match="camra"):
        SkillEnv("dodge", upstream=("camra",))
    for wrong in (("dodge",), ("camera", "camera")):
        with pytest.raises(SoulsGraphError, match="upstream"):
            SkillEnv("dodge", upstream=wrong)
