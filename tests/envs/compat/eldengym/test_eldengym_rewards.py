"""EldenGym's reward functions and its registries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from soulsgraph_envs.compat import eldengym
from soulsgraph_envs.compat.eldengym import AttributeEnv, BossDefeatReward, CustomReward, EldenGymEnv, ScoreDeltaReward
from soulsgraph_envs.compat.eldengym.env import OptionError, RewardTypeError
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


def test_a_score_that_the_info_lacks_is_an_error_and_not_a_reward_of_zero() -> None:
    with pytest.raises(OptionError, match="expected 'runes' in the info"):
        ScoreDeltaReward("runes").calculate({}, BEFORE, BEFORE)


class ForeignBase(ABC):
    """A third-party base class, as EldenGym's own is."""

    @abstractmethod
    def calculate(self, obs: Any, info: Any, prev_info: Any = None) -> float: ...

    @abstractmethod
    def is_done(self, obs: Any, info: Any) -> bool: ...


class ForeignReward(ForeignBase):
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


@pytest.mark.parametrize("reward", [ForeignReward, lambda *step: 1.0, 0.5, SimpleNamespace(calculate=len)])
def test_what_lacks_a_rewards_methods_is_refused(reward: Any) -> None:
    with pytest.raises(RewardTypeError, match=r"methods calculate and is_done.*(without|make an object)"):
        EldenGymEnv(driver="simulator", reward_function=reward)


# Registration.


def test_gymnasium_makes_it_under_both_ids() -> None:
    for id in ("soulsgraph/EldenGym-v0", "EldenGym-v0"):
        env = gymnasium.make(id, driver="simulator", max_step=2)
        assert isinstance(env.unwrapped, EldenGymEnv)


def test_the_own_registry_makes_registers_and_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = eldengym.registry.registry
    monkeypatch.setattr(registry, "env_specs", dict(registry.env_specs))
    assert eldengym.list_envs() == registry.list() == ["Margit-v0"]
    assert isinstance(eldengym.make("Margit-v0", driver="simulator"), AttributeEnv)
    eldengym.register("Short-v0", EldenGymEnv, {"driver": "simulator"})
    assert eldengym.list_envs() == ["Margit-v0", "Short-v0"]
    assert isinstance(eldengym.make("Short-v0"), EldenGymEnv)
    with pytest.raises(ValueError, match="taken"):
        eldengym.register("Short-v0", AttributeEnv)
    eldengym.register("Short-v0", AttributeEnv, force=True)
    assert registry.env_specs["Short-v0"].entry_point is AttributeEnv
    with pytest.raises(ValueError, match="unknown environment"):
        eldengym.make("Malenia-v0")
    with pytest.raises(UnknownNameError):
        eldengym.make("Malenia-v0")


@pytest.mark.parametrize("kind", [AttributeEnv, EldenGymEnv, "soulsgraph_envs.compat.eldengym:EldenGymEnv"])
def test_a_hook_gets_the_environment_itself_which_ends_after_its_most_steps(kind: Any) -> None:
    hooked: list[Any] = []
    registry = eldengym.EnvRegistry()
    registry.register("Short-v0", kind, {"driver": "simulator"}, max_episode_steps=2, setup_hook=hooked.append)
    env = registry.make("Short-v0")
    assert hooked == [env]
    assert (env.max_step, env.max_steps, env.scenario_name.lower()[:6]) == (2, 2, "margit")
    env.reset(seed=0)
    still = 0 if kind is not AttributeEnv else [0] * 13
    assert [env.step(np.array(still))[3] for _ in range(2)] == [False, True]
    assert registry.make("Short-v0", max_steps=5).max_step == 5


def test_a_specification_makes_any_class_with_arguments_of_its_own_each_time() -> None:
    class Foreign:
        def __init__(self, **options: Any) -> None:
            self.options = options

    spec = eldengym.EnvSpec("Foreign-v0", Foreign, {"seen": []}, max_episode_steps=7)
    first, second = spec.make(host="pc:1"), spec.make(max_step=3)
    assert (first.options, second.options) == ({"seen": [], "host": "pc:1", "max_step": 7}, {"seen": [], "max_step": 3})
    assert first.options["seen"] is not second.options["seen"]
