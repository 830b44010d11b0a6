"""The log of finished decisions: what `Combat.finished` gives tick by tick, gathered."""

import numpy as np
import pytest

from soulsgraph_envs.catalogue import load_scenario
from soulsgraph_envs.combat import Combat, Horizon
from soulsgraph_envs.decision_log import DecisionLog
from soulsgraph_envs.errors import GameError
from soulsgraph_envs.games import make_game
from soulsgraph_envs.skills import SKILL_NAMES, make_skill
from soulsgraph_envs.streams import episode_seeds

DODGE = 3


def make_combat(lanes: int) -> Combat:
    skills = tuple(make_skill(name) for name in SKILL_NAMES)
    combat = Combat(make_game(lanes=lanes), skills, load_scenario("iudex-phase1"), Horizon(skills[-1].name, 1024))
    combat.begin(np.arange(lanes), episode_seeds(0, np.arange(lanes), 0))
    return combat


def play(combat: Combat, rng: np.random.Generator) -> None:
    combat.step(np.stack([rng.integers(0, len(skill.actions), combat.lanes) for skill in combat.skills], axis=1))


def test_the_log_holds_the_decisions_that_ended_tick_after_tick():
    combat, rng = make_combat(3), np.random.default_rng(0)
    log = DecisionLog(combat, DODGE)
    log.reserve(100)
    lanes, expected = [], []
    for _ in range(30):
        play(combat, rng)
        over = np.flatnonzero(combat.completed[:, DODGE])
        assert log.append() == len(over)
        lanes.extend(over)
        expected.append(combat.finished(DODGE, over))
    assert log.count == len(lanes) > 20
    found_lanes, found, terminated = log.drain()
    assert found_lanes.tolist() == lanes
    assert not terminated.any()
    for name in vars(found):
        whole = np.concatenate([getattr(one, name) for one in expected])
        np.testing.assert_array_equal(getattr(found, name), whole, err_msg=name)
    assert log.count == 0


def test_a_log_without_room_is_refused_before_anything_is_lost():
    combat, rng = make_combat(4), np.random.default_rng(0)
    log = DecisionLog(combat, 0)
    play(combat, rng)
    assert log.append() == 4
    with pytest.raises(GameError, match="expected room for 8 decisions, found 4"):
        log.append()
    assert len(log.drain()[0]) == 4
