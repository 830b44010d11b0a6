"""Vector environments beside Gymnasium's own vectorizer, and every wrapper of Gymnasium's beside the plain loop."""

import warnings
from collections import Counter

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as vector_wrappers

from soulsgraph_envs.core.errors import ResetNeededError, SeedError, SoulsGraphError, UnknownNameError
from soulsgraph_envs.gym.skill_env import SkillEnv, SkillVectorEnv

LANES, STEPS = 3, 250
SEEDS = [8, 10**30, 9]
#: A short episode: 64 decisions unless the target is locked.
SKILL = "lock_on"


def ours(**keywords):
    return SkillVectorEnv(LANES, SKILL, **keywords)


def theirs(mode=AutoresetMode.NEXT_STEP, **keywords):
    return SyncVectorEnv([lambda: SkillEnv(SKILL, **keywords)] * LANES, autoreset_mode=mode)


def plain(info):
    """Return an info without what only many lanes have, and without times of the machine."""
    if isinstance(info, list):
        return [plain(one) for one in info]
    kept = {key: value for key, value in info.items() if key.lstrip("_") != "terms"}
    return {
        key: {name: own for name, own in value.items() if name != "t"} if key == "episode" else
        plain(value) if isinstance(value, dict) else value
        for key, value in kept.items()
    }  # fmt: skip


def assert_equal(one, other):
    np.testing.assert_equal(one, other)


def play_beside(own, reference, actions):
    """Step two vector environments side by side; return how many episodes ended."""
    ended = 0
    (seen, info), (other, others_info) = (env.reset(seed=SEEDS) for env in (own, reference))
    assert_equal([seen, plain(info)], [other, plain(others_info)])
    for action in actions:
        # Some wrappers write into the actions that they were passed.
        *found, info = own.step(action.copy())
        *expected, others_info = reference.step(action.copy())
        assert_equal([*found, plain(info)], [*expected, plain(others_info)])
        ended += int(np.sum(np.asarray(found[2]) | np.asarray(found[3])))
    return ended


def drawn(steps=STEPS):
    return np.random.default_rng(0).integers(0, 2, (steps, LANES))


@pytest.mark.parametrize("skill", [SKILL, "heal_attack"])
def test_next_step_autoreset_is_gymnasiums_own(skill):
    own = SkillVectorEnv(LANES, skill)
    reference = SyncVectorEnv([lambda: SkillEnv(skill)] * LANES)
    assert own.metadata["autoreset_mode"] is own.autoreset_mode is AutoresetMode.NEXT_STEP
    assert play_beside(own, reference, drawn(400)) > LANES


def test_same_step_autoreset_has_gymnasiums_last_observations_and_infos():
    own, reference = ours(autoreset_mode="SameStep"), theirs(AutoresetMode.SAME_STEP)
    assert own.metadata["autoreset_mode"] is own.autoreset_mode is AutoresetMode.SAME_STEP
    for env in (own, reference):
        env.reset(seed=SEEDS)
    ended = 0
    for action in drawn():
        *found, info = own.step(action)
        *expected, others = reference.step(action)
        assert_equal(found, expected)
        assert ("final_info" in info) == ("final_info" in others)
        if "final_info" in info:
            ended += info["_final_obs"].sum()
            for key in ("final_obs", "_final_obs", "_final_info"):
                assert_equal(list(info[key]), list(others[key]))
            last = [plain(one) for one in (info["final_info"], others["final_info"])]
            assert last[0].keys() == last[1].keys()
            lanes = info["_final_info"]
            assert_equal(*({key: value[lanes] for key, value in one.items()} for one in last))
    assert ended > LANES


def test_without_autoreset_lanes_stand_until_they_are_reset():
    own, reference = ours(autoreset_mode=AutoresetMode.DISABLED), theirs(AutoresetMode.DISABLED)
    for env in (own, reference):
        env.reset(seed=SEEDS)
    resets = 0
    for action in drawn():
        found, expected = own.step(action), reference.step(action)
        assert_equal(found[:4], expected[:4])
        if (ended := found[2] | found[3]).any():
            resets += 1
            with pytest.raises(ResetNeededError):
                own.step(action)
            assert_equal(*(env.reset(options={"reset_mask": ended.copy()})[0] for env in (own, reference)))
    assert resets > 1


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_a_reset_with_a_mask_begins_those_lanes_anew_and_no_other(mode):
    own, reference = ours(autoreset_mode=mode), theirs(mode)
    mask = np.array([False, True, False])
    with pytest.raises(ResetNeededError):
        own.reset(options={"reset_mask": mask})
    for env in (own, reference):
        env.reset(seed=SEEDS)
    for seed in (None, [1, 2, 3]):
        for action in drawn(7):
            assert_equal(own.step(action)[:4], reference.step(action)[:4])
        before = own.rollout.combat.rows[~mask].copy()
        options = {"reset_mask": mask}
        observations = own.reset(seed=seed, options=options)[0]
        assert options == {"reset_mask": mask}
        assert_equal(observations, reference.reset(seed=seed, options={"reset_mask": mask})[0])
        assert_equal(own.rollout.combat.rows[~mask], before)
    for action in drawn(100):
        assert_equal(own.step(action)[:4], reference.step(action)[:4]) if mode != AutoresetMode.DISABLED else None


def test_a_mask_and_a_mode_that_are_none_are_refused_and_change_nothing():
    own, calm = ours(), ours()
    for env in (own, calm):
        env.reset(seed=SEEDS)
    for mask in (np.zeros(3, bool), np.ones(2, bool), [1, 0, 1], "all", np.ones((3, 1), bool), [None] * 3):
        with pytest.raises(SoulsGraphError, match="reset_mask: expected 3 bools, one of them true, found ") as refused:
            own.reset(options={"reset_mask": mask})
        assert "\n" not in str(refused.value)
    with pytest.raises(SeedError):
        own.reset(seed=-1, options={"reset_mask": np.array([True, False, False])})
    for action in drawn(5):
        assert_equal(own.step(action), calm.step(action))
    with pytest.raises(
        UnknownNameError, match="autoreset mode: expected one of NextStep, SameStep, Disabled; found 'n'"
    ):
        SkillVectorEnv(2, autoreset_mode="n")


def test_the_baseline_has_lanes_too():
    own = gymnasium.make_vec("soulsgraph/EndToEnd-v0", LANES)
    assert isinstance(own.unwrapped, SkillVectorEnv)
    actions = np.random.default_rng(0).integers(0, 16, (300, LANES))
    assert play_beside(own, SyncVectorEnv([lambda: SkillEnv("end_to_end")] * LANES), actions) > 0


def test_make_vec_wraps_single_environments_or_makes_lanes():
    made = {
        "lanes": gymnasium.make_vec("soulsgraph/Skill-v0", LANES, skill=SKILL),
        "lanes of a mode": gymnasium.make_vec("soulsgraph/Skill-v0", LANES, skill=SKILL, autoreset_mode="Disabled"),
        "wrapped": gymnasium.make_vec("soulsgraph/Skill-v0", LANES, wrappers=[_Doubled], skill=SKILL),
        "one by one": gymnasium.make_vec(
            "soulsgraph/Skill-v0", LANES, vector_kwargs={"autoreset_mode": "Disabled"}, skill=SKILL
        ),
    }
    kinds = {name: (type(env).__name__, env.metadata["autoreset_mode"].value) for name, env in made.items()}
    assert kinds == {
        "lanes": ("SkillVectorEnv", "NextStep"),
        "lanes of a mode": ("SkillVectorEnv", "Disabled"),
        "wrapped": ("SyncVectorEnv", "NextStep"),
        "one by one": ("SyncVectorEnv", "Disabled"),
    }
    first = {name: env.reset(seed=SEEDS)[0] for name, env in made.items()}
    assert_equal(first["lanes"], first["one by one"])
    assert_equal(2 * first["lanes"], first["wrapped"])
    assert_equal(gymnasium.make_vec(made["lanes"].spec).reset(seed=SEEDS)[0], first["lanes"])
    assert gymnasium.spec("soulsgraph/Skill-v0").vector_entry_point is not None


class _Doubled(gymnasium.ObservationWrapper):
    def observation(self, observation):
        return 2 * observation


#: How each wrapper of lanes is made.
_OF_LANES = {
    "ClipReward": lambda env: vector_wrappers.ClipReward(env, -0.5, 0.5),
    "DictInfoToList": vector_wrappers.DictInfoToList,
    "DtypeObservation": lambda env: vector_wrappers.DtypeObservation(env, np.float64),
    "FlattenObservation": vector_wrappers.FlattenObservation,
    "NormalizeObservation": vector_wrappers.NormalizeObservation,
    "NormalizeReward": vector_wrappers.NormalizeReward,
    "RecordEpisodeStatistics": vector_wrappers.RecordEpisodeStatistics,
    "RescaleObservation": lambda env: vector_wrappers.RescaleObservation(env, np.float32(0), np.float32(1)),
    "ReshapeObservation": lambda env: vector_wrappers.ReshapeObservation(
        env, (1, *env.single_observation_space.shape)
    ),
    "TransformAction": lambda env: vector_wrappers.TransformAction(env, lambda actions: 1 - np.asarray(actions)),
    "TransformObservation": lambda env: vector_wrappers.TransformObservation(env, lambda seen: 2 * seen),
    "TransformReward": lambda env: vector_wrappers.TransformReward(env, lambda rewards: 2 * rewards),
    "VectorizeTransformAction": lambda env: vector_wrappers.VectorizeTransformAction(
        env, wrappers.TransformAction, func=lambda action: 1 - action, action_space=env.single_action_space
    ),
    "VectorizeTransformObservation": lambda env: vector_wrappers.VectorizeTransformObservation(
        env, wrappers.TransformObservation, func=lambda seen: 2 * seen, observation_space=env.single_observation_space
    ),
    "VectorizeTransformReward": lambda env: vector_wrappers.VectorizeTransformReward(
        env, wrappers.TransformReward, func=lambda reward: 2 * reward
    ),
}  # fmt: skip
_CONTINUOUS = "an action of ours is one of a few: there is nothing to clip, scale or divide"
_PICTURES = "observations of ours are no pictures, and it needs OpenCV"
_JAX = "it needs JAX"
_CONVERTED = "it needs array-api-compat, and converts what is the same for every environment"
_DICTIONARIES = "an observation of ours is one array"
#: Those of lanes that do not apply, with the reason.
_NOT_OF_LANES = {
    "ClipAction": _CONTINUOUS,
    "RescaleAction": _CONTINUOUS,
    "GrayscaleObservation": _PICTURES,
    "ResizeObservation": _PICTURES,
    "ArrayConversion": _CONVERTED,
    "NumpyToTorch": _CONVERTED,
    "JaxToNumpy": _JAX,
    "JaxToTorch": _JAX,
    "FilterObservation": _DICTIONARIES,
    "HumanRendering": "it needs OpenCV",
    "RecordVideo": "its own test, below",
}


def test_every_wrapper_of_lanes_is_compared_or_does_not_apply():
    assert {*_OF_LANES, *_NOT_OF_LANES} == {*vector_wrappers.__all__}


#: Gymnasium's DtypeObservation compares bounds of float32 with the least float64.
_WIDER = pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")


@_WIDER
@pytest.mark.parametrize("name", _OF_LANES)
def test_a_wrapper_of_lanes_makes_of_ours_what_it_makes_of_gymnasiums_lanes(name):
    make = _OF_LANES[name]
    assert play_beside(make(ours()), make(theirs()), drawn()) > LANES


def test_statistics_of_lanes_are_those_of_the_plain_loop():
    recorded = vector_wrappers.RecordEpisodeStatistics(ours())
    recorded.reset(seed=SEEDS)
    found = [[] for _ in range(LANES)]
    for action in drawn():
        *_, info = recorded.step(action)
        for lane in np.flatnonzero(info.get("_episode", ())):
            found[lane].append((info["episode"]["r"][lane], info["episode"]["l"][lane]))
    for lane, episodes in enumerate(found):
        env, expected, begins = SkillEnv(SKILL), [], False
        env.reset(seed=SEEDS[lane])
        total = length = 0
        for action in drawn()[:, lane]:
            if begins:  # The step that begins an episode ignores its action.
                env.reset()
                total, length, begins = 0, 0, False
                continue
            _, reward, terminated, truncated, _ = env.step(action)
            total, length, begins = total + reward, length + 1, terminated or truncated
            if begins:
                expected.append((total, length))
        assert len(expected) > 1
        assert episodes == expected


def test_lanes_are_recorded_by_gymnasiums_wrapper(tmp_path):
    pytest.importorskip("moviepy")
    shown = ours(render_mode="rgb_array")
    recorded = vector_wrappers.RecordVideo(
        shown, str(tmp_path / "videos"), step_trigger=lambda step: step == 0, video_length=5
    )
    recorded.reset(seed=SEEDS)
    for action in drawn(8):
        recorded.step(action)
    recorded.close()
    assert [file.suffix for file in (tmp_path / "videos").iterdir()] == [".mp4"]


def _same(value):
    return value


#: How each wrapper of one environment is made, and what it makes of the plain loop's observations and rewards; None
#: is not compared with it.
_OF_ONE = {
    "AddRenderObservation": (lambda env: wrappers.AddRenderObservation(env, False), lambda seen: seen["state"], _same),
    "AddWhiteNoise": (lambda env: wrappers.AddWhiteNoise(env, 0.5), _same, _same),
    "Autoreset": (wrappers.Autoreset, _same, _same),
    "ClipReward": (lambda env: wrappers.ClipReward(env, -1e9, 1e9), _same, _same),
    "DelayObservation": (lambda env: wrappers.DelayObservation(env, 0), _same, _same),
    "DiscretizeObservation": (lambda env: wrappers.DiscretizeObservation(env, 4), None, _same),
    "DtypeObservation": (lambda env: wrappers.DtypeObservation(env, np.float64), _same, _same),
    "FlattenObservation": (wrappers.FlattenObservation, _same, _same),
    "FrameStackObservation": (lambda env: wrappers.FrameStackObservation(env, 3), lambda seen: seen[-1], _same),
    "MaxAndSkipObservation": (lambda env: wrappers.MaxAndSkipObservation(env, 2), None, None),
    "NormalizeObservation": (wrappers.NormalizeObservation, None, _same),
    "NormalizeReward": (wrappers.NormalizeReward, _same, None),
    "ObstructView": (lambda env: wrappers.ObstructView(env, 0.5, 20), _same, _same),
    "OrderEnforcing": (wrappers.OrderEnforcing, _same, _same),
    "PassiveEnvChecker": (wrappers.PassiveEnvChecker, _same, _same),
    "RecordEpisodeStatistics": (wrappers.RecordEpisodeStatistics, _same, _same),
    "RenderCollection": (wrappers.RenderCollection, _same, _same),
    "RescaleObservation": (
        lambda env: wrappers.RescaleObservation(env, np.float32(0), np.float32(1)),
        None,
        _same,
    ),
    "ReshapeObservation": (lambda env: wrappers.ReshapeObservation(env, (1, 2)), np.ravel, _same),
    "StickyAction": (lambda env: wrappers.StickyAction(env, 0.0), _same, _same),
    "TimeAwareObservation": (
        lambda env: wrappers.TimeAwareObservation(wrappers.TimeLimit(env, 10**6)),
        lambda seen: seen[:-1].astype(np.float32),
        _same,
    ),
    "TimeLimit": (lambda env: wrappers.TimeLimit(env, 10**6), _same, _same),
    "TransformAction": (lambda env: wrappers.TransformAction(env, _same, env.action_space), _same, _same),
    "TransformObservation": (
        lambda env: wrappers.TransformObservation(env, lambda seen: 2 * seen, env.observation_space),
        lambda seen: seen / 2,
        _same,
    ),
    "TransformReward": (lambda env: wrappers.TransformReward(env, lambda paid: 2 * paid), _same, lambda paid: paid / 2),
}  # fmt: skip
_NOT_OF_ONE = {
    "AtariPreprocessing": "it is Atari's",
    "ClipAction": _CONTINUOUS,
    "DiscretizeAction": _CONTINUOUS,
    "RescaleAction": _CONTINUOUS,
    "FilterObservation": _DICTIONARIES,
    "GrayscaleObservation": _PICTURES,
    "ResizeObservation": _PICTURES,
    "ArrayConversion": _CONVERTED,
    "NumpyToTorch": _CONVERTED,
    "JaxToNumpy": _JAX,
    "JaxToTorch": _JAX,
    "HumanRendering": "the windows of tests/envs/render/test_rendering.py",
    "RecordVideo": "the same",
    "vector": "those of lanes",
}


def test_every_wrapper_of_one_environment_is_compared_or_does_not_apply():
    assert {*_OF_ONE, *_NOT_OF_ONE} == {*wrappers.__all__}


@_WIDER
@pytest.mark.parametrize("name", _OF_ONE)
def test_a_wrapper_leaves_the_plain_loop_as_it_is(name):
    make, seen, paid = _OF_ONE[name]
    env, reference = make(SkillEnv(SKILL, render_mode="rgb_array")), SkillEnv(SKILL)
    ends, beginning = Counter(), False
    assert_equal(*_first(env.reset(seed=4)[0], reference.reset(seed=4)[0], seen))
    for action in drawn(150)[:, 0]:
        if beginning:
            expected = (reference.reset()[0], 0.0, False, False)
            # Gymnasium's own wrapper begins the next episode with this step.
            found = env.step(action) if name == "Autoreset" else (env.reset()[0], 0.0, False, False)
            beginning = False
        else:
            found = env.step(int(action))
            expected = reference.step(action)
            if name == "MaxAndSkipObservation" and not (expected[2] or expected[3]):
                expected = reference.step(action)
            beginning = expected[2] or expected[3]
        assert [*map(bool, found[2:4])] == [*expected[2:4]]
        assert_equal(*_first(found[0], expected[0], seen))
        assert paid is None or paid(found[1]) == pytest.approx(expected[1])
        ends["ended"] += beginning
    assert ends["ended"] > 1


def _first(found, expected, seen):
    return (None, None) if seen is None else (seen(found), expected)


OTHERS = [spec.id for spec in gymnasium.registry.values() if "soulsgym:" in str(spec.entry_point)]
OTHERS += ["soulsgraph/EldenGym-v0"]


@pytest.mark.parametrize("id", sorted(id for id in OTHERS if id.startswith("soulsgraph/")))
def test_statistics_of_the_other_environments_are_those_of_the_plain_loop(id):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # EldenGym's announces that its fight is simulated.
        env, reference = (gymnasium.make(id, max_episode_steps=25) for _ in range(2))
        lanes = gymnasium.make_vec(id, 2, vectorization_mode="sync", max_episode_steps=25)
    recorded, many = wrappers.RecordEpisodeStatistics(env), vector_wrappers.RecordEpisodeStatistics(lanes)
    many.reset(seed=3)
    for one in (recorded, reference):
        one.reset(seed=3)
    totals, total, length = [], 0.0, 0
    for step in range(60):
        action = (step * 7) % reference.action_space.n
        *_, info = recorded.step(action)
        _, reward, terminated, truncated, _ = reference.step(action)
        total, length = total + reward, length + 1
        if terminated or truncated:
            assert (info["episode"]["r"], info["episode"]["l"]) == (pytest.approx(total), length)
            totals.append(total)
            total, length = 0.0, 0
            for one in (recorded, reference):
                one.reset()
    for step in range(25):
        *_, info = many.step([(step * 7) % reference.action_space.n] * 2)
    assert totals[0] in map(pytest.approx, many.return_queue)
    for one in (env, reference, lanes):
        one.close()
