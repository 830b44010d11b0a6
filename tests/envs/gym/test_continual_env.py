"""A sequence of fights as one environment: exact budgets, tasks shown or hidden, one lane as many."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soulsgraph_envs.continual.sequences import ContinualSequence, ContinualTask
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_boss
from soulsgraph_envs.core.state import Column
from soulsgraph_envs.gym.continual_env import ContinualEnv, ContinualVectorEnv
from soulsgraph_envs.gym.skill_env import SkillEnv
from soulsgraph_envs.skills import SkillOptions
from soulsgraph_envs.skills.skill import ANIMATION_COUNTS

#: It returns to its first fight.
FIGHTS = ("iudex-phase1", "generated/timing/10002", "iudex-phase1")
SEQUENCE = ContinualSequence("three", tuple(map(ContinualTask, FIGHTS)))
FAILING = ContinualSequence("one", (ContinualTask("generated/timing/10001"),))
STEPS = 25


def make(**keywords: Any) -> ContinualEnv:
    return ContinualEnv(SEQUENCE, **{"agent": "dodge", "steps_per_task": STEPS, **keywords})


def make_lanes(lanes: int, **keywords: Any) -> ContinualVectorEnv:
    return ContinualVectorEnv(lanes, SEQUENCE, **{"agent": "dodge", "steps_per_task": STEPS, **keywords})


def played(env: ContinualEnv, steps: int) -> tuple[list[str], list[int], int]:
    """Return the fight of each of some decisions, at which the tasks changed, and how many were truncated for it."""
    env.reset(seed=1)
    fights, changes, truncations = [], [], 0
    for step in range(steps):
        fights.append(env.rollout.combat.scenario.name)
        *_, terminated, truncated, _ = env.step(np.int64(step % 2))
        if terminated or truncated:
            before = env.clock.position
            env.reset()
            if env.clock.position != before:
                changes.append(step + 1)
                truncations += truncated
    return fights, changes, truncations


def test_each_task_has_exactly_its_decisions_and_is_left_by_truncating_what_is_under_way() -> None:
    fights, changes, truncations = played(make(), 4 * STEPS)
    assert changes == [STEPS, 2 * STEPS]
    assert fights == [FIGHTS[0]] * STEPS + [FIGHTS[1]] * STEPS + [FIGHTS[2]] * 2 * STEPS
    assert truncations > 0


def test_budgets_are_the_sequences_own_where_no_steps_are_named() -> None:
    own = ContinualSequence("own", SEQUENCE.tasks, first_budget=30, budget=20)
    env = ContinualEnv(own, "dodge")
    assert env.clock.steps == (30, 20, 20)
    assert played(env, 60)[1] == [30, 50]


def test_a_shown_task_stands_behind_the_observation_and_in_info_and_a_fight_that_returns_has_its_number_again() -> None:
    env, hidden = make(task_identity="one-hot"), make()
    observation, info = env.reset(seed=1)
    plain, _ = hidden.reset(seed=1)
    assert np.array_equal(observation[:-2], plain)
    assert (info["task"], info["task_name"], info["task_changed"]) == (0, FIGHTS[0], False)
    shown = {0: observation[-2:].tolist()}
    changed = []
    for _ in range(3 * STEPS - 1):
        observation, _, terminated, truncated, info = env.step(np.int64(0))
        assert not info["task_changed"]
        if terminated or truncated:
            observation, info = env.reset()
            changed += [info["task"]] if info["task_changed"] else []
        shown[info["task"]] = observation[-2:].tolist()
    assert changed == [1, 2]
    assert shown == {0: [1.0, 0.0], 1: [0.0, 1.0], 2: [1.0, 0.0]}


def test_animations_as_indicators_have_one_for_each_of_the_sequences_own_ids_in_every_task() -> None:
    own = ContinualSequence("own", (ContinualTask("iudex-phase1"), ContinualTask("generated/own/10003")))
    options = SkillOptions(animations="one_hot")
    env = ContinualEnv(own, "dodge", 5, options=options)
    move = load_boss("generated/own/10003").moves[0].id
    assert move >= ANIMATION_COUNTS[Column.BOSS_ANIMATION]
    # Ids between the bosses' have none.
    observed = [one for one in env.rollout.skill.observation.names if one.startswith("BOSS_ANIMATION=")]
    assert len(observed) == len({*range(ANIMATION_COUNTS[Column.BOSS_ANIMATION]), *own.boss_animations}) < move
    for task in (0, 1):
        assert env.observation_space.contains(env.reset(seed=0, options={"task": task})[0])
        assert f"BOSS_ANIMATION={move}" in env.rollout.skill.observation.names
    lanes = ContinualVectorEnv(2, own, "dodge", 5, options=options, task=1)
    assert lanes.single_observation_space == env.observation_space


def test_a_task_alone_is_the_skills_own_environment_and_never_ends() -> None:
    alone, own = make(task=1), SkillEnv("dodge", FIGHTS[1])
    assert np.array_equal(alone.reset(seed=5)[0], own.reset(seed=5)[0])
    for _ in range(2 * STEPS):
        ours, theirs = alone.step(np.int64(0)), own.step(np.int64(0))
        assert np.array_equal(ours[0], theirs[0])
        assert ours[1:4] == theirs[1:4]
        if ours[2] or ours[3]:
            assert np.array_equal(alone.reset()[0], own.reset()[0])
    assert alone.clock.position == 1


#: Of a mode, whose fights are played against their filter once.
shown_lanes = cache(partial(make_lanes, 3, steps_per_task=5, task_identity="one-hot"))


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
@given(data=st.data())
@settings(max_examples=4)
def test_any_lanes_may_be_reset_at_any_time(mode: str, data: st.DataObject) -> None:
    lanes, env = 3, shown_lanes(autoreset_mode=mode)
    masks = st.lists(st.booleans(), min_size=lanes, max_size=lanes).map(np.array)
    env.reset(seed=2, options={"task": 0})
    for _ in range(12):
        *_, terminated, truncated, info = env.step(np.zeros(lanes, np.int64))
        mask, before, left = data.draw(masks), info["task"][0], terminated | truncated
        if mask.any():
            observations, info = env.reset(options={"reset_mask": mask})
            changed = info["task"][0] != before
            assert info["task_changed"].tolist() == [changed] * lanes
            assert info["_task_changed"].tolist() == (mask | changed).tolist()
            assert (observations[:, -2:].argmax(axis=1) == info["task"] % 2).all()
            left = left & ~mask & ~changed
        if mode == "Disabled" and left.any():
            env.reset(options={"reset_mask": left})
    assert env.clock.position == 2


def test_the_last_observation_of_a_task_shows_that_task() -> None:
    env = make_lanes(3, task_identity="one-hot", autoreset_mode="SameStep")
    env.reset(seed=2)
    info: dict[str, Any] = {}
    while "task_changed" not in info or not info["task_changed"].any():
        observations, _, _, _, info = env.step(np.zeros(3, np.int64))
    assert [final[-2:].tolist() for final in info["final_obs"]] == [[1.0, 0.0]] * 3
    assert (observations[:, -2:] == [0.0, 1.0]).all()


def test_one_lane_is_played_as_one_environment() -> None:
    one, many = make(), make_lanes(1, autoreset_mode="SameStep")
    alone, together = one.reset(seed=9)[0], many.reset(seed=[9])[0]
    for step in range(3 * STEPS):
        assert np.array_equal(alone, together[0])
        alone, reward, terminated, truncated, _ = one.step(np.int64(step % 2))
        together, rewards, *_ = many.step(np.array([step % 2]))
        assert reward == rewards[0]
        if terminated or truncated:
            alone, _ = one.reset()


@pytest.mark.parametrize(
    ("keywords", "named"),
    [
        ({"sequence": "S9"}, "S9"),
        ({"task_identity": "onehot"}, "task_identity"),
        *(({"steps_per_task": steps}, "steps_per_task") for steps in (0, 10**10, 1.5)),
        *(({"task": task}, "task") for task in (3, True)),
        ({"sequence": FAILING}, "generated/timing/10001"),
    ],
)
def test_bad_keywords_are_refused_by_name(keywords: dict[str, Any], named: str) -> None:
    for face in (ContinualEnv, ContinualVectorEnv):
        with pytest.raises(SoulsGraphError, match=named):
            face(**{"sequence": SEQUENCE, "agent": "dodge", **keywords})


def test_bad_resets_are_refused_and_the_episode_goes_on() -> None:
    env, lanes, alone = make(), make_lanes(2), make(task=1)
    for one in (env, lanes, alone):
        one.reset(seed=0)
    mask = np.array([True, False])
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (env, {"options": {"task": -1}}, "task"),
        (env, {"options": {"tsk": 1}}, "tsk"),
        (lanes, {"seed": -1, "options": {"task": 1}}, "seed"),
        (lanes, {"options": {"task": 1, "reset_mask": mask}}, "task"),
        (alone, {"options": {"task": 2}}, "task"),
    ]
    for one, keywords, named in wrong:
        with pytest.raises(SoulsGraphError, match=named):
            one.reset(**keywords)
    assert [one.clock.position for one in (env, lanes, alone)] == [0, 0, 1]
    env.step(np.int64(0))
    lanes.step(np.zeros(2, np.int64))
