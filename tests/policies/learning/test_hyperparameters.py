"""The schedules of learning, against stable-baselines3's."""

from dataclasses import replace

import pytest
from stable_baselines3.common.utils import LinearSchedule

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.machine import Memory
from soulsgraph_policies.learning.hyperparameters import (
    DQNHyperparameters,
    baseline_hyperparameters,
    check_memory,
    skill_hyperparameters,
)
from soulsgraph_policies.learning.replay import ReplayBuffer


@pytest.mark.parametrize("decisions", [0, 1, 777, 2_000, 2_001, 20_000])
def test_exploration_is_stable_baselines3s_schedule(decisions: int) -> None:
    schedule = LinearSchedule(1.0, 0.05, 0.1)
    expected = schedule(1.0 - decisions / 20_000)
    assert skill_hyperparameters(20_000).epsilon(decisions) == pytest.approx(expected, abs=1e-12)


def test_first_update_follows_the_first_whole_round_after_the_learning_start() -> None:
    numbers = skill_hyperparameters(20_000)
    assert [numbers.updates_owed(decisions, 0) for decisions in (0, 100, 103, 104, 228)] == [0, 0, 0, 1, 32]


def test_updates_done_are_not_owed_again() -> None:
    numbers = skill_hyperparameters(20_000)
    done, rounds = 0, [3, 128, 1, 97, 128, 40]
    for count in range(1, len(rounds) + 1):
        done += numbers.updates_owed(sum(rounds[:count]), done)
    assert done == (sum(rounds) - 100) // 4


def test_target_copy_falls_on_multiples_of_its_period() -> None:
    numbers = skill_hyperparameters(80_000)
    assert numbers.target_copy(9_999, 10_000) == 10_000
    assert numbers.target_copy(10_000, 10_100) is None
    assert numbers.target_copy(19_950, 20_050) == 20_000


def test_replay_holds_a_third_of_a_skills_budget_and_100k_for_the_baseline() -> None:
    assert skill_hyperparameters(90_000).buffer_size == 30_000
    assert baseline_hyperparameters(250_000).buffer_size == 100_000


def test_polyak_averaging_takes_the_place_of_target_copies() -> None:
    numbers = replace(skill_hyperparameters(80_000), tau=0.005)
    assert numbers.target_copy(9_999, 10_000) is None


def test_prioritised_draws_are_fully_corrected_at_the_end_of_the_budget() -> None:
    numbers = replace(skill_hyperparameters(1_000), importance_exponent=0.4)
    assert [numbers.correction(d) for d in (0, 500, 1_000, 1_100)] == pytest.approx([0.4, 0.7, 1.0, 1.0])


def test_only_networks_of_the_last_part_of_the_budget_are_averaged() -> None:
    numbers = replace(skill_hyperparameters(1_000), averaged_fraction=0.25)
    assert [numbers.averages(decisions) for decisions in (700, 750, 751, 1_000)] == [False, False, True, True]
    assert not skill_hyperparameters(1_000).averages(1_000)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"budget": 0}, {"gamma": 1.1}, {"learning_rate": 0.0}, {"epsilon_fraction": 0.0}),
        *({"hidden_sizes": ()}, {"hidden_sizes": (8, 1), "dueling": True}, {"n_step": 0}, {"quantiles": -1}),
        *({"buffer_size": 10**8 + 1}, {"batch_size": 65_537}, {"hidden_sizes": (4_097,)}, {"n_step": True}),
        *({"learning_rate": float("inf")}, {"max_grad_norm": 10**400}, {"hidden_sizes": 64}, {"budget": 2.0}),
        *({"tau": 1.5}, {"priority_exponent": -0.1}, {"averaged_fraction": 2.0}),
    ],
)
def test_value_out_of_range_is_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(SoulsGraphError, match=next(iter(wrong))):
        DQNHyperparameters(**{"budget": 100, "buffer_size": 10, **wrong})


def test_only_updates_due_at_or_after_a_copy_see_it_however_many_come_in_a_round():
    # Updates fall due at decisions 104, 108, ...: of the 32 between 9,900 and 10,028, those due at
    # 9,904 ... 9,996 are 24; the copy at 10,000 comes before the update that is due at 10,000 itself.
    numbers = DQNHyperparameters(budget=20_000, buffer_size=100)
    done = numbers.updates_owed(9_900, 0)
    assert numbers.updates_owed(10_028, done) == 32
    assert numbers.updates_before(10_000, done) == 24
    assert numbers.updates_before(10_000, numbers.updates_owed(10_000, 0)) == 0


def test_a_replay_takes_half_of_the_memory_at_most(monkeypatch):
    monkeypatch.setattr(
        "soulsgraph_policies.learning.hyperparameters.usable_memory", lambda: Memory(1_000_000, 900_000)
    )
    # Two observations of 10 values, reward, discount and action, of 4 bytes each: 92 bytes a row.
    fits = DQNHyperparameters(budget=100, buffer_size=500_000 // 92)
    check_memory({"camera": fits.replay_bytes(10)})
    for beyond in (replace(fits, buffer_size=500_000 // 92 + 1), replace(fits, n_step=2)):
        with pytest.raises(SoulsGraphError, match="replay: expected at most half of the memory") as caught:
            check_memory({"camera": beyond.replay_bytes(10)})
        assert "`scale`" in str(caught.value)
        with pytest.raises(SoulsGraphError, match="half of the memory"):
            ReplayBuffer(beyond, 10)
    assert ReplayBuffer(fits, 10).capacity == 5_434


def test_the_replays_of_a_joint_stage_are_counted_together_and_so_is_what_others_use(monkeypatch):
    numbers = DQNHyperparameters(budget=100, buffer_size=300_000 // 92)
    monkeypatch.setattr(
        "soulsgraph_policies.learning.hyperparameters.usable_memory", lambda: Memory(1_000_000, 900_000)
    )
    check_memory({"dodge": numbers.replay_bytes(10)})
    with pytest.raises(SoulsGraphError, match=r"0.0 GiB of transitions of dodge, drink"):
        check_memory(dict.fromkeys(("dodge", "drink"), numbers.replay_bytes(10)))
    monkeypatch.setattr(
        "soulsgraph_policies.learning.hyperparameters.usable_memory", lambda: Memory(1_000_000, 200_000)
    )
    with pytest.raises(SoulsGraphError, match="what is free of the memory"):
        check_memory({"dodge": numbers.replay_bytes(10)})
