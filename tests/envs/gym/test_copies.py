"""Copies of environments, in this process and in others: they go on as what they were copied from."""

import copy
import pickle
import warnings

import gymnasium
import numpy as np
import pytest

from fakes.realtime import FakeTable
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.gym.rllib import SkillGraphEnv
from soulsgraph_envs.gym.skill_env import SkillEnv, SkillVectorEnv
from soulsgraph_envs.skills import SkillOptions

_ONE_HOT = SkillOptions(animations="one_hot", observations="extended")
MADE = {
    **{name: lambda id=f"soulsgraph/{name}-v0": gymnasium.make(id) for name in ("Continual", "EldenGym")},
    "SoulsGym": lambda: gymnasium.make("soulsgraph/SoulsGymIudex-v0"),
    "pictures": lambda: SkillEnv("heal_attack", render_mode="rgb_array"),
    "options": lambda: SkillEnv("dodge", options=_ONE_HOT),
    "lanes": lambda: SkillVectorEnv(3, "heal_attack"),
    "lanes of the same step": lambda: SkillVectorEnv(2, "lock_on", autoreset_mode="SameStep"),
    "graph": SkillGraphEnv,
}
COPIES = {"pickled": lambda env: pickle.loads(pickle.dumps(env)), "deep": copy.deepcopy}


def play(env, steps, seed):
    """Return what an environment answers to drawn actions, and begin anew where an episode ends."""
    random, found = np.random.default_rng(seed), []
    for _ in range(steps):
        if isinstance(env, SkillGraphEnv):
            actions = {name: int(random.integers(2)) for name in env.skills}
        else:
            high = getattr(env, "single_action_space", env.action_space).n
            actions = random.integers(high, size=getattr(env.unwrapped, "num_envs", ()))
        *answer, _ = env.step(actions if isinstance(actions, dict) else actions[()])
        found.append(answer)
        ended = answer[2]["__all__"] or answer[3]["__all__"] if isinstance(actions, dict) else answer[2:4]
        if not hasattr(env.unwrapped, "num_envs") and np.any(ended):
            found.append(env.reset())
    return found


def _make(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # EldenGym's announces that its fight is simulated.
        return MADE[name]()


SkillGraphEnv.unwrapped = property(lambda self: self)


@pytest.mark.parametrize("name", MADE)
def test_a_copy_goes_on_as_its_original_and_neither_moves_the_other(name):
    original = _make(name)
    original.reset(seed=3)
    play(original, 20, 0)
    copies = [make(original) for make in COPIES.values()]
    # Each by itself: what one does must not show in the others.
    expected = play(original, 60, 1)
    for one in copies:
        np.testing.assert_equal(play(one, 60, 1), expected)
    again = [COPIES["pickled"](original), COPIES["deep"](copies[0])]
    expected = play(original, 20, 2)
    for one in again:
        np.testing.assert_equal(play(one, 20, 2), expected)
        if getattr(original, "render_mode", None) == "rgb_array" and not isinstance(original, gymnasium.Wrapper):
            np.testing.assert_equal(one.render(), original.render())
    for one in (original, *copies, *again):
        one.close()


@pytest.mark.parametrize("copied", COPIES)
def test_a_running_game_is_not_copied(copied):
    with pytest.raises(GameError, match="running game"):
        COPIES[copied](FakeTable().game)
