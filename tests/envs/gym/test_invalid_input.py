"""Invalid actions and seeds: an error that names them, and an environment that continues unchanged."""

from __future__ import annotations

import warnings
from decimal import Decimal
from typing import Any

import gymnasium
import numpy as np
import pytest

from soulsgraph_envs.compat.eldengym import AttributeEnv, EldenGymEnv
from soulsgraph_envs.core.errors import ActionError, ResetNeededError, SeedError, SoulsGraphError
from soulsgraph_envs.gym.rllib import SkillGraphEnv
from soulsgraph_envs.gym.skill_env import SkillEnv, SkillVectorEnv
from soulsgraph_envs.skills import SKILL_NAMES

OWN = {"skill": lambda: SkillEnv("heal_attack"), "graph": SkillGraphEnv, "vector": lambda: SkillVectorEnv(3)}


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no array")


def nonsense() -> list[Any]:
    """Return values that are neither an action nor a seed."""
    numbers = [-1, -(10**5000), 1.5, 0.0, np.float32(1), np.nan, 1j, np.int8(-3), np.bool_(True)]
    arrays = [[], [0], [[0], [0, 1]], np.array([[0]]), np.array(0.0), np.array(1, object), np.array("0")]
    return [*numbers, *arrays, "0", b"1", Decimal(1), Unprintable(), {"dodge": 0}, iter(())]


def make(id: str) -> gymnasium.Env[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # EldenGym's announces that its fight is simulated.
        return gymnasium.make(id)


@pytest.mark.parametrize(
    "id", [f"soulsgraph/{name}-v0" for name in ("Skill", "Continual", "SoulsGymIudex", "EldenGym")]
)
def test_invalid_actions_and_seeds_leave_every_environment_as_it_was(id: str) -> None:
    disturbed, calm = make(id), make(id)
    valid = [int(action) for action in np.random.default_rng(1).integers(0, disturbed.action_space.n, 6)]
    for env in (disturbed, calm):
        env.reset(seed=11)
        env.step(valid[0])
    # To Gymnasium a bool is an integer.
    own = [10**30, 10**5000, 2**63, np.uint64(2**64 - 1), True, False, *nonsense()]
    for value in (disturbed.action_space.n, -1, 1.5, None, "0", [0], *(() if "Gym" in id else own)):
        with pytest.raises(SoulsGraphError):
            disturbed.step(value)
    for value in nonsense():
        with pytest.raises(SeedError):
            disturbed.reset(seed=value)
    for action in valid[1:]:
        np.testing.assert_equal(disturbed.step(action), calm.step(action))
    np.testing.assert_equal(disturbed.reset(), calm.reset())
    for env in (disturbed, calm):
        env.close()


@pytest.mark.filterwarnings("ignore::soulsgraph_envs.compat.eldengym.env.SimulatedGameWarning")
@pytest.mark.parametrize("make", [AttributeEnv, lambda: EldenGymEnv(action_mode="multi_binary")], ids=["0.6.0", "1.0"])
def test_eldengyms_keys_take_one_bit_each(make: Any) -> None:
    env = make()
    env.reset(seed=0)
    bits = [0] * env.action_space.n
    for wrong in (bits[1:], [*bits, 0], [*bits[1:], 2], None, 0):
        with pytest.raises(ActionError, match="action"):
            env.step(wrong)
    assert env.step_count == 0
    env.step(np.array(bits))


@pytest.mark.parametrize(
    "actions",
    [
        *([0, 1, -1], [0, 1, 3], [0, 1], [[0, 1, 2]], None, [0.0, 1.0, 2.0], [True, False, True], [0, [1], 2]),
        *([0, 10**30, 1], np.array([0, 1, 2**64 - 1], np.uint64)),
    ],
    ids=str,
)
def test_the_vector_face_takes_one_integer_a_lane(actions: Any) -> None:
    env = SkillVectorEnv(3, "heal_attack")
    observations, _ = env.reset(seed=5)
    ticks = env.rollout.combat.ticks.copy()
    with pytest.raises(gymnasium.error.InvalidAction, match="heal_attack"):
        env.step(actions)
    assert np.array_equal(env.rollout.observations, observations)
    assert np.array_equal(env.rollout.combat.ticks, ticks)


class Stray:
    """A controller that plays an action which does not exist."""

    def begin(self, lanes, seeds):
        """Do nothing."""

    def act(self, combat, actions):
        """Play far beyond the last action of the camera."""
        actions[:, 0] = 10**7


def test_a_controller_cannot_play_what_does_not_exist() -> None:
    with pytest.raises(ActionError, match="camera"):
        SkillEnv("dodge", controller=Stray()).reset(seed=0)


def test_a_skill_graph_refuses_what_is_no_action_of_each_due_skill_and_takes_no_notice_of_others() -> None:
    env, calm = SkillGraphEnv(), SkillGraphEnv()
    (seen, _), _ = env.reset(seed=3), calm.reset(seed=3)
    actions = dict.fromkeys(seen, 0)
    name = next(iter(actions))
    for wrong in (-1, 10**7, 1.5, True, None, "0", [0]):
        with pytest.raises(ActionError, match=name):
            env.step(actions | {name: wrong})
    for other in ("parry", 7, "__all__"):
        with pytest.raises(ActionError, match=str(other)):
            env.step(actions | {other: 0})
    for _ in range(60):
        with pytest.raises(ActionError, match=next(iter(actions))):
            env.step({})
        ignored = {name: "whatever" for name in SKILL_NAMES if name not in actions}
        found = env.step(actions | ignored)
        np.testing.assert_equal(found, calm.step(actions))
        actions = dict.fromkeys(found[0], 0)
    assert len(actions) < len(SKILL_NAMES)


def idle(env: Any) -> Any:
    """Return an action for every skill or lane."""
    if isinstance(env, SkillGraphEnv):
        return dict.fromkeys(SKILL_NAMES, 1)
    return [1, 1, 1] if isinstance(env, SkillVectorEnv) else 1


@pytest.mark.parametrize("make", OWN.values(), ids=OWN)
def test_a_step_needs_an_open_episode(make: Any) -> None:
    env = make()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(idle(env))
    env.reset(seed=0)
    # Lanes begin anew by themselves.
    ended = isinstance(env, SkillVectorEnv)
    while not ended:
        _, _, *ends, _ = env.step(idle(env))
        ended = any(one["__all__"] if isinstance(one, dict) else one for one in ends)
    if not isinstance(env, SkillVectorEnv):
        with pytest.raises(ResetNeededError):
            env.step(idle(env))
    env.reset()
    env.step(idle(env))
    env.close()
    with pytest.raises(ResetNeededError):
        env.step(idle(env))


@pytest.mark.parametrize("make", OWN.values(), ids=OWN)
class TestSeeds:
    def test_a_seed_of_any_size_repeats_the_episodes_and_differs_from_others(self, make: Any) -> None:
        seeds = [0, 1, 2**63, 2**64 - 1, 2**64, 2**64 + 1, 10**400, np.int8(3), np.uint64(2**64 - 2)]
        env = make()
        first = [str(env.reset(seed=seed)[0]) + str(env.reset()[0]) for seed in seeds]
        assert len(set(first)) == len(seeds)
        assert first == [str(env.reset(seed=seed)[0]) + str(env.reset()[0]) for seed in seeds]

    def test_environments_without_a_seed_differ(self, make: Any) -> None:
        # Starts are drawn with 53 bits a number: equal ones do not happen.
        assert len({str(make().reset()[0]) for _ in range(4)}) == 4


def test_a_list_of_seeds_has_one_a_lane_and_a_lane_without_one_goes_on() -> None:
    env, calm = SkillVectorEnv(3), SkillVectorEnv(3)
    for each in (env, calm):
        each.reset(seed=(1, 2, 3))
    for wrong in ([1, 2], [1, 2, 3, 4], [1, 2, -1], [1, 2, 0.5], np.zeros((3, 1), int), ["1", 2, 3]):
        with pytest.raises(SeedError):
            env.reset(seed=wrong)
    partly, on = env.reset(seed=[None, np.int64(7), None])[0], calm.reset()[0]
    assert (partly == on).all(axis=1).tolist() == [True, False, True]
    assert np.array_equal(partly[1], SkillEnv().reset(seed=7)[0])
