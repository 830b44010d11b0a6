"""The schedules of learning, against stable-baselines3's, and the memory that a replay may take."""

from dataclasses import replace

import pytest
from stable_baselines3.common.utils import LinearSchedule

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.machine import Memory
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters, check_memory, skill_hyperparameters


def test_exploration_is_stable_baselines3s_schedule() -> None:
    schedule, numbers = LinearSchedule(1.0, 0.05, 0.1), skill_hyperparameters(20_000)
    for decisions in (0, 1, 777, 2_000, 2_001, 20_000):
        assert numbers.exploration(decisions) == pytest.approx(schedule(1.0 - decisions / 20_000), abs=1e-12)


def test_prioritised_draws_are_fully_corrected_at_the_end_of_the_budget() -> None:
    numbers = replace(skill_hyperparameters(1_000), beta=0.4)
    assert [numbers.correction(d) for d in (0, 500, 1_000, 1_100)] == pytest.approx([0.4, 0.7, 1.0, 1.0])


def test_only_updates_due_at_or_after_a_copy_see_it_however_many_come_in_a_round():
    # Updates fall due at decisions 104, 108, ...: of the 32 between 9,900 and 10,028, those due at
    # 9,904 ... 9,996 are 24; the copy at 10,000 comes before the update that is due at 10,000 itself.
    numbers = DQNHyperparameters(budget=20_000, capacity=100)
    assert [numbers.updates_owed(decisions, 0) for decisions in (0, 103, 104)] == [0, 0, 1]
    assert numbers.least_budget == 104
    done = numbers.updates_owed(9_900, 0)
    assert numbers.updates_owed(10_028, done) == 32
    assert numbers.updates_before(10_000, done) == 24
    assert numbers.updates_before(10_000, numbers.updates_owed(10_000, 0)) == 0


def test_a_replay_takes_half_of_the_memory_at_most_and_those_of_a_joint_stage_count_together(monkeypatch):
    def memory(available):
        monkeypatch.setattr(
            "soulsgraph_policies.learning.hyperparameters.usable_memory", lambda: Memory(1_000_000, available)
        )

    memory(900_000)
    # Two observations of 10 values, reward, discount and action, of 4 bytes each: 92 bytes a row.
    fits = DQNHyperparameters(budget=100, capacity=500_000 // 92)
    check_memory({"camera": fits.replay_bytes(10)})
    for beyond in ({"capacity": 500_000 // 92 + 1}, {"n_step": 2}, {"alpha": 0.5}):
        with pytest.raises(SoulsGraphError, match="replay"):
            check_memory({"camera": replace(fits, **beyond).replay_bytes(10)})
    part = replace(fits, capacity=300_000 // 92).replay_bytes(10)
    check_memory({"dodge": part})
    with pytest.raises(SoulsGraphError, match="dodge, drink"):
        check_memory({"dodge": part, "drink": part})
    memory(200_000)
    with pytest.raises(SoulsGraphError, match="dodge"):
        check_memory({"dodge": part})
