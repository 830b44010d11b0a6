"""EldenGym's reward functions and its registries."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest

from soulsgraph_envs import eldengym
from soulsgraph_envs.compat.eldengym import AttributeEnv, BossDefeatReward, CustomReward, EldenGymEnv, ScoreDeltaReward
from soulsgraph_envs.core.errors import UnknownNameError

pytestmark = pytest.mark.filterwarnings("ignore::soulsgraph_envs.compat.eldengym.env.SimulatedGameWarning")

BEFORE = {"player_hp_normalized": 1.0, "boss_hp_normalized": 0.5, "score": 7.0}


@pytest.mark.parametrize(
    ("reward", "change", "expected"),
    [
        (ScoreDeltaReward(), {"player_hp_normalized": 0.75}, -0.25),
        (ScoreDeltaReward("score"), {"score": 9.0}, 2.0),
        (ScoreDeltaReward("score"), {"boss_hp_normalized": 0.0}, 100.0),
        (ScoreDeltaReward("score"), {"player_hp_normalized": 0.0}, -100.0),
        (BossDefeatReward(), {}, -0.001),
        (BossDefeatReward(), {"boss_hp_normalized": 0.0}, 0.999),
        (BossDefeatReward(), {"player_hp_normalized": 0.0}, -1.001),
        (CustomReward(), {}, 0.01),
        (CustomReward(), {"player_hp_normalized": 0.5, "boss_hp_normalized": 0.25}, -0.5 + 0.125 + 0.01),
        (CustomReward(), {"player_hp_normalized": 0.0}, -1.0 - 100.0),
        (CustomReward(), {"boss_hp_normalized": 0.0}, 0.25 + 0.01 + 100.0),
    ],
)
def test_rewards_have_the_published_weights(reward: Any, change: dict[str, float], expected: float) -> None:
    after = {**BEFORE, **change}
    assert reward.calculate({}, after, BEFORE) == pytest.approx(expected)
    assert reward.is_done({}, after) == (0.0 in change.values())


class ForeignReward:
    """A reward of a third party."""

    def calculate(self, obs: Any, info: Any, prev_info: Any = None) -> float:
        assert prev_info is not None
        return 2.5

    def is_done(self, obs: Any, info: Any) -> bool:
        return bool(info["player_hp_normalized"] <= 1.0)


@pytest.mark.parametrize("kind", [AttributeEnv, EldenGymEnv])
def test_a_reward_of_a_foreign_class_is_taken(kind: Any) -> None:
    env = kind(driver="simulator", reward_function=ForeignReward())
    env.reset(seed=0)
    assert env.step(env.action_space.sample())[1:3] == (2.5, True)


# Registration.


@pytest.mark.parametrize("kind", [AttributeEnv, EldenGymEnv, "soulsgraph_envs.compat.eldengym:EldenGymEnv"])
def test_the_own_registry_makes_environments_with_their_arguments_limit_and_hook(kind: Any) -> None:
    hooked: list[Any] = []
    registry = eldengym.EnvRegistry()
    registry.register("Short-v0", kind, {"driver": "simulator"}, max_episode_steps=2, setup_hook=hooked.append)
    env = registry.make("Short-v0")
    assert hooked == [env]
    assert (env.max_step, env.max_steps) == (2, 2)
    assert registry.make("Short-v0", max_steps=5).max_step == 5
    with pytest.raises(ValueError, match="Short-v0"):
        registry.register("Short-v0", EldenGymEnv)
    registry.register("Short-v0", dict, {"seen": []}, force=True)
    first, second = registry.make("Short-v0", host="pc:1"), registry.make("Short-v0")
    assert (first, second) == ({"seen": [], "host": "pc:1"}, {"seen": []})
    assert first["seen"] is not second["seen"]


def test_the_shared_registry_and_gymnasiums_know_its_ids() -> None:
    assert eldengym.list_envs() == eldengym.registry.registry.list() == ["Margit-v0"]
    assert isinstance(eldengym.make("Margit-v0", driver="simulator"), AttributeEnv)
    with pytest.raises(UnknownNameError, match="Malenia-v0"):
        eldengym.make("Malenia-v0")
    for name in ("soulsgraph/EldenGym-v0", "EldenGym-v0"):
        assert isinstance(gymnasium.make(name, driver="simulator", max_step=2).unwrapped, EldenGymEnv)
