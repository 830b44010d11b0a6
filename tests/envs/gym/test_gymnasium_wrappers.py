"""Vector environments beside Gymnasium's own vectorizer, and some of its wrappers beside the plain loop."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from soulsgraph_envs.core.errors import ResetNeededError, SeedError, SoulsGraphError
from soulsgraph_envs.gym.skill_env import SkillEnv, SkillVectorEnv

LANES = 3
SEEDS = [8, 10**30, 9]
#: A short episode: 64 decisions unless the target is locked.
SKILL = "lock_on"


def ours(**keywords):
    return SkillVectorEnv(LANES, SKILL, **keywords)


def theirs(mode=AutoresetMode.NEXT_STEP):
    return SyncVectorEnv([lambda: SkillEnv(SKILL)] * LANES, autoreset_mode=mode)


def plain(info):
    """Return an info without what only many lanes have, and without times of the machine."""
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


def drawn(steps=250):
    return np.random.default_rng(0).integers(0, 2, (steps, LANES))


@pytest.mark.parametrize("skill", [SKILL, "heal_attack", "end_to_end"])
def test_next_step_autoreset_is_gymnasiums_own(skill):
    own, reference = SkillVectorEnv(LANES, skill), SyncVectorEnv([lambda: SkillEnv(skill)] * LANES)
    assert own.metadata["autoreset_mode"] is own.autoreset_mode is AutoresetMode.NEXT_STEP
    assert play_beside(own, reference, drawn()) > 0


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
    # Without autoreset the first lane that ends would need another reset.
    for action in drawn(7 if mode == AutoresetMode.DISABLED else 100):
        assert_equal(own.step(action)[:4], reference.step(action)[:4])


def test_a_mask_and_a_mode_that_are_none_are_refused_and_change_nothing():
    own, calm = ours(), ours()
    for env in (own, calm):
        env.reset(seed=SEEDS)
    for mask in (np.zeros(3, bool), np.ones(2, bool), [1, 0, 1], "all", np.ones((3, 1), bool), [None] * 3):
        with pytest.raises(SoulsGraphError, match="reset_mask"):
            own.reset(options={"reset_mask": mask})
    with pytest.raises(SeedError):
        own.reset(seed=-1, options={"reset_mask": np.array([True, False, False])})
    for action in drawn(5):
        assert_equal(own.step(action), calm.step(action))
    with pytest.raises(SoulsGraphError, match="autoreset"):
        SkillVectorEnv(2, autoreset_mode="n")


class _Doubled(gymnasium.ObservationWrapper):
    def observation(self, observation):
        return 2 * observation


@pytest.mark.parametrize("name", ["Dodge", "Skill", "Continual"])
def test_make_vec_limits_the_steps_of_lanes_as_of_single_environments(name):
    own, reference = (
        gymnasium.make_vec(f"soulsgraph/{name}-v0", LANES, vectorization_mode=mode, max_episode_steps=10)
        for mode in ("vector_entry_point", "sync")
    )
    assert play_beside(own, reference, drawn(25)) == 2 * LANES
    for wrong in (0, -1, 1.5, True, "10"):
        with pytest.raises(SoulsGraphError, match="max_episode_steps"):
            gymnasium.make_vec(f"soulsgraph/{name}-v0", LANES, max_episode_steps=wrong)


def test_make_vec_wraps_single_environments_or_makes_lanes():
    options = {
        "SkillVectorEnv NextStep": {},
        "SkillVectorEnv Disabled": {"autoreset_mode": "Disabled"},
        "SyncVectorEnv NextStep": {"vectorization_mode": "sync", "wrappers": [_Doubled]},
        "SyncVectorEnv Disabled": {"vectorization_mode": "sync", "vector_kwargs": {"autoreset_mode": "Disabled"}},
    }
    made = {kind: gymnasium.make_vec("soulsgraph/Skill-v0", LANES, skill=SKILL, **own) for kind, own in options.items()}
    for kind, env in made.items():
        assert f"{type(env).__name__} {env.metadata['autoreset_mode'].value}" == kind
    lanes, _, doubled, singles = (env.reset(seed=SEEDS)[0] for env in made.values())
    assert_equal(lanes, singles)
    assert_equal(2 * lanes, doubled)
    again = gymnasium.make_vec(made["SkillVectorEnv NextStep"].spec)
    assert_equal(again.reset(seed=SEEDS)[0], lanes)
