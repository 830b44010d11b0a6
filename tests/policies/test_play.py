import numpy as np
import pytest

from soulsgraph_envs.catalogue import load_scenario
from soulsgraph_envs.combat import Combat, Horizon
from soulsgraph_envs.errors import EpisodeLostError
from soulsgraph_envs.oracles import ScriptedPlay, engaging
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.skill_task import practice_ground
from soulsgraph_envs.skills import make_skill
from soulsgraph_envs.testing import LossyGame
from soulsgraph_policies.play import MOST_REPLAYS, EpisodePlayer

SKILLS = tuple(make_skill(name) for name in ("camera", "lock_on", "movement"))
SCENARIO = practice_ground(load_scenario("iudex-phase1"), SKILLS[-1])
SEEDS = np.arange(4, dtype=np.uint64)


def make_player(losses, failures=()):
    game = LossyGame(Simulator(1), losses, failures)
    combat = Combat(game, SKILLS, SCENARIO, Horizon("movement", 40))
    return EpisodePlayer(combat, ScriptedPlay({name: engaging()[name] for name in ("camera", "lock_on", "movement")}))


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
    with pytest.raises(EpisodeLostError, match="broken for good"):
        player.play(SEEDS)
    assert player.replays == MOST_REPLAYS
