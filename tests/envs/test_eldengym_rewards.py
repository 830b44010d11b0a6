"""EldenGym's reward functions and its registries."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest

from soulsgraph_envs import eldengym
from soulsgraph_envs.eldengym import AttributeEnv, BossDefeatReward, CustomReward, EldenGymEnv, ScoreDeltaReward
from soulsgraph_envs.eldengym.errors import OptionError
from soulsgraph_envs.errors import UnknownNameError

pytestmark = pytest.mark.filterwarnings("ignore::soulsgraph_envs.eldengym.errors.SimulatedGameWarning")

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


# Registration.


def test_gymnasium_makes_it_under_both_ids() -> None:
    for id in ("soulsgraph/EldenGym-v0", "EldenGym-v0"):
        env = gymnasium.make(id, driver="simulator", max_step=2)
        assert isinstance(env.unwrapped, EldenGymEnv)


def test_the_own_registry_makes_registers_and_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("soulsgraph_envs.eldengym.registry._REGISTRY", dict(eldengym.registry._REGISTRY))
    assert eldengym.list_envs() == ["Margit-v0"]
    assert isinstance(eldengym.make("Margit-v0", driver="simulator"), AttributeEnv)
    hooked: list[str] = []
    eldengym.register(
        "Short-v0",
        "soulsgraph_envs.eldengym:EldenGymEnv",
        {"driver": "simulator", "frame_skip": 1},
        max_episode_steps=1,
        setup_hook=lambda: hooked.append("set up"),
    )
    env = eldengym.make("Short-v0")
    env.reset(seed=0)
    assert env.step(0)[3]
    assert hooked == ["set up"]
    with pytest.raises(OptionError, match="taken"):
        eldengym.register("Short-v0", EldenGymEnv)
    eldengym.register("Short-v0", EldenGymEnv, force=True)
    with pytest.raises(UnknownNameError, match="environment"):
        eldengym.make("Malenia-v0")
