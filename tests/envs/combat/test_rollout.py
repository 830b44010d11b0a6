"""Whole episodes of any controller: lost ones played again, decisions logged, ticks bounded."""

import numpy as np
import pytest

from fakes.games import LossyGame
from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.combat.rollout import MOST_REPLAYS, Rollout
from soulsgraph_envs.combat.scripted import ScriptedPlay, engaging
from soulsgraph_envs.core.errors import EpisodeLostError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.skills import SKILL_NAMES, make_skill, training_scenario

SKILLS = tuple(make_skill(name) for name in ("camera", "lock_on", "movement"))
SCENARIO = training_scenario(load_scenario("iudex-phase1"), SKILLS[-1])
SEEDS = np.arange(4, dtype=np.uint64)


def make_player(losses, failures=(), lanes=1):
    game = LossyGame(Simulator(lanes), losses, failures)
    combat = Combat(game, SKILLS, SCENARIO, Horizon("movement", 40))
    return Rollout(combat, ScriptedPlay({name: engaging()[name] for name in ("camera", "lock_on", "movement")}))


def test_a_lost_episode_is_played_again_from_its_seed_as_if_nothing_had_been():
    whole, lossy = make_player({}), make_player({30: EpisodeLostError("frozen"), 90: EpisodeLostError("gone")})
    expected, found = whole.play(SEEDS), lossy.play(SEEDS)
    assert (whole.replays, lossy.replays) == (0, 2)
    for name in ("lengths", "seconds", "terms", "player_hp", "boss_hp"):
        assert np.array_equal(getattr(found, name), getattr(expected, name))


def test_an_episode_lost_in_its_reset_is_begun_again():
    lossy = make_player({}, [EpisodeLostError("keys were dead", 8)])
    expected, found = make_player({}).play(SEEDS), lossy.play(SEEDS)
    assert lossy.replays == 1
    assert np.array_equal(found.terms, expected.terms)


def test_a_game_that_loses_the_same_episode_again_and_again_is_given_up():
    always = {step: EpisodeLostError("broken for good") for step in range(10, 20)}
    player = make_player(always)
    with pytest.raises(EpisodeLostError):
        player.play(SEEDS)
    assert player.replays == MOST_REPLAYS


class Drawn:
    """A controller that draws every action."""

    def __init__(self, seed):
        self._random = np.random.default_rng(seed)

    def begin(self, lanes, seeds):
        pass

    def act(self, combat, actions):
        for column, skill in enumerate(combat.skills):
            actions[:, column] = self._random.integers(0, len(skill.actions), combat.lanes)


def drawn_rollout(lanes) -> Rollout:
    skills = tuple(make_skill(name) for name in SKILL_NAMES[:4])
    combat = Combat(Simulator(lanes), skills, load_scenario("iudex-phase1"), Horizon("dodge", 1024))
    rollout = Rollout(combat, Drawn(0))
    rollout.begin(np.arange(lanes), derive_seeds(0, np.arange(lanes), 0))
    return rollout


def test_the_log_holds_the_decisions_that_ended_tick_after_tick():
    rollout, lanes, expected, dodge = drawn_rollout(3), [], [], 3
    for _ in range(30):
        count = rollout.advance()
        over = np.flatnonzero(rollout.combat.completed[:, dodge])
        assert count == len(over)
        lanes.extend(over)
        expected.append(rollout.combat.finished(dodge, over))
    assert rollout.logged == len(lanes) > 20
    found = rollout.collect()
    assert found.lanes.tolist() == lanes
    assert not found.terminated.any()
    for name in vars(found.decisions):
        whole = np.concatenate([getattr(one, name) for one in expected])
        np.testing.assert_array_equal(getattr(found.decisions, name), whole, err_msg=name)
    assert rollout.logged == 0
    sums = [found.terms[found.lanes == lane].sum(axis=0) for lane in range(3)]
    np.testing.assert_allclose(rollout.sums, sums, rtol=1e-5, atol=1e-6)


def test_kept_decisions_are_those_of_the_episodes_whatever_the_lanes_and_losses():
    players = make_player({}, lanes=4), make_player({}), make_player({30: EpisodeLostError("frozen")})
    whole, alone, lossy = (player.play(SEEDS, keep_decisions=True) for player in players)
    assert len(whole.taken.episodes) == whole.lengths.sum() == 4 * 40
    np.testing.assert_array_equal(np.bincount(whole.taken.episodes), whole.lengths)
    np.testing.assert_allclose(np.bincount(whole.taken.episodes, whole.taken.rewards), whole.returns, rtol=1e-4)
    for other in (alone, lossy):
        for name, column in vars(whole.taken).items():
            np.testing.assert_array_equal(getattr(other.taken, name), column, err_msg=name)


def test_ticks_bound_an_episode():
    whole, bounded = make_player({}).play(SEEDS), make_player({}).play(SEEDS, most_ticks=10)
    assert bounded.seconds.tolist() == pytest.approx([1.0] * len(SEEDS))
    assert (whole.seconds > bounded.seconds).all()
    assert bounded.cut.all()
