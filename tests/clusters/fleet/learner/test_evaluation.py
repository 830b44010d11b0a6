"""A fleet evaluates: which fights count, whatever becomes of the games, and that they are the simulator's fights."""

import threading
import time

import numpy as np
import pytest

from fakes.fleet_here import played_for, random_weights
from fakes.waiting import PATIENCE_S, until
from soulsgraph_clusters.fleet.learner.evaluation import LOST_AFTER_S, Fights, play_in_fleet
from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetSettings
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_clusters.fleet.protocol.tokens import Tokens
from soulsgraph_clusters.sessions.local_ray import free_port
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.games.opening import make_game
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters

_SKILLS = ("camera", "lock_on", "movement", "dodge", "heal_attack")
#: As an evaluation asks for: trained skills but two, which are random.
TASK = StageTask(
    "iudex-phase1", {name: name for name in _SKILLS}, {}, 10.0, start="long", random=("dodge", "heal_attack")
)
PLAY = ("00000000", 0)


def test_every_fight_counts_that_began_before_enough_had_ended():
    fights = Fights(3)
    fights.see("attic/1", 4, 0.0)
    fights.see("attic/2", 2, 0.0)
    assert fights.take("attic/1", PLAY, [0, 0], 1.0).tolist() == [True, True]
    # The third ends it: of lanes 0, 2, 3 there and of 0, 1 of the other game one more counts, and of lane 1 none.
    assert fights.take("attic/1", PLAY, [1, 1, 0, 0, 2], 2.0).tolist() == [True, False, True, False, True]
    assert fights.under_way == 3
    assert fights.take("attic/2", PLAY, [1, 1, 0], 3.0).tolist() == [True, False, True]
    assert not fights.over
    assert fights.take("attic/1", PLAY, [0, 3], 4.0).tolist() == [False, True]
    assert fights.over
    assert (fights.counted, fights.lost) == (8, 0)


def test_a_game_that_joined_late_or_was_out_of_play_is_not_waited_for():
    fights = Fights(1)
    fights.see("attic/1", 2, 0.0)
    fights.see("attic/2", 1, LOST_AFTER_S + 1.0)
    assert fights.take("attic/2", PLAY, [0], LOST_AFTER_S + 1.0).tolist() == [True]
    assert fights.over
    fights.see("attic/3", 8, LOST_AFTER_S + 2.0)
    assert fights.over
    assert not fights.take("attic/3", PLAY, [0], LOST_AFTER_S + 3.0).any()


def test_fights_under_way_are_lost_with_their_game_and_counted_as_lost():
    fights = Fights(1)
    for game in ("stays", "silent", "gone", "again"):
        fights.see(game, 2, 0.0)
    fights.take("again", PLAY, [], 0.0)
    fights.take("stays", PLAY, [0], 0.0)
    assert fights.under_way == 7
    # The play of a game that began anew is another one.
    assert not fights.take("again", ("00000000", 1), [0, 1], 1.0).any()
    assert (fights.under_way, fights.lost) == (5, 2)
    for game in ("stays", "silent"):
        fights.see(game, 2, LOST_AFTER_S + 1.0)
    fights.lose(LOST_AFTER_S + 1.0, alone_for_s=60.0)
    assert (fights.under_way, fights.lost) == (3, 4)
    for game in ("stays", "silent"):
        fights.see(game, 2, 70.0)
    fights.take("stays", PLAY, [], 69.0)
    fights.lose(70.0, alone_for_s=60.0)
    assert (fights.under_way, fights.lost) == (1, 6)
    assert fights.take("stays", PLAY, [1], 71.0).tolist() == [True]
    assert fights.over


def test_a_task_of_an_evaluation_is_the_scenario_as_it_is():
    assert TASK.ground.start == "long"
    assert not TASK.ground.refill
    assert TASK.modules == ("camera", "lock_on", "movement")
    assert TASK.sampled == ("dodge", "heal_attack")
    assert StageTask.from_json(TASK.to_json()) == TASK
    plays = {"camera": "camera", "dodge": "dodge"}
    greedy = StageTask("iudex-phase1", plays, {}, 10.0, start="mid")
    assert StageTask.from_json(greedy.to_json()) == greedy
    assert greedy.sampled == ("dodge",)
    assert StageTask("iudex-phase1", plays, {}, 10.0, start="mid", random=("camera",)).sampled == ("camera", "dodge")
    numbers = DQNHyperparameters(budget=1, capacity=1)
    for learns, start, random in (({}, "afar", ()), ({}, "", ("movement",)), ({"dodge": numbers}, "", ("dodge",))):
        with pytest.raises(SoulsGraphError):
            StageTask("iudex-phase1", plays, learns, 10.0, start=start, random=random)


def test_random_skills_draw_every_action_and_the_others_are_greedy():
    sampler = TASK.sampler(make_game(8), seed=5)
    sampler.set_networks(TASK.networks(random_weights(TASK)))
    chunk = sampler.sample(4000)
    for name, share in (("dodge", 1 / 2), ("heal_attack", 1 / 3)):
        actions = chunk.transitions[name].actions
        found = np.bincount(actions) / len(actions)
        # Seed 5; 5 standard errors, two in a million seeds for each action.
        assert np.allclose(found, share, atol=5.0 * np.sqrt(share * (1 - share) / len(actions)))


def _fleet(folder, alone_for_s=PATIENCE_S):
    return Fleet(FleetSettings(f"127.0.0.1:{free_port()}", alone_for_s=alone_for_s), folder)


@pytest.mark.slow
def test_a_fleet_fights_as_the_simulator_does(tmp_path):
    fleet, finished = _fleet(tmp_path), []
    weights = random_weights(TASK, seed=3)

    def count(fights):
        # One game may end it before the other has found its head, and that one would never hear that it is over.
        until(lambda: lines.count("playing") >= 2, "two games that play")
        finished.append(fights)

    with played_for(fleet, lanes=(16, 1)) as lines:
        found = play_in_fleet(fleet, TASK, weights, 100, count)
        until(lambda: sum("the evaluation is over" in line for line in lines) == 2, "the games to stop")
    assert sum(finished) == 100
    assert found.lost == 0
    assert 100 <= len(found.episodes) == len(found.names) <= 100 + 16
    # On a busy machine one game may have ended it before the other began.
    assert found.games
    assert {game.name: game.lanes for game in found.games}.items() <= {"attic/1": 16, "attic/2": 1}.items()
    assert sum(game.fights for game in found.games) == len(found.episodes)
    lanes = {(name, lane) for name, lane in zip(found.names, found.episodes.lanes.tolist(), strict=True)}
    assert lanes == {(game.name, lane) for game in found.games for lane in range(game.lanes)}
    replaced = dict.fromkeys(TASK.random, "random")
    networks = {one.skill: one for one in TASK.networks(weights) if one.skill not in replaced}
    agent = Agent(TASK.ground, TASK.skills, networks, replaced)
    here = agent.rollout(make_game(64)).play(derive_seeds(np.uint64(9), np.arange(400)))
    assert here.seconds.std() > 0.1 * here.seconds.mean()
    # The simulator's fights are of seed 9, the fleet's of random seeds: 400 and at least 100, alike if both are right;
    # 4.5 standard errors for each mean, a false alarm in less than 50,000 runs.
    for measure in ("seconds", "returns", "lengths", "boss_hp", "won"):
        there, ours = (np.asarray(getattr(part, measure), np.float64) for part in (found.episodes, here))
        error = np.sqrt(there.var() / len(there) + ours.var() / len(ours))
        assert abs(there.mean() - ours.mean()) <= 4.5 * error, measure
    assert found.episodes.died.mean() > 0.5  # No training scenario, on which nobody dies.


def test_a_fleet_without_a_trained_skill_plays_at_random(tmp_path):
    plays = {"camera": "camera", "heal_attack": "heal_attack"}
    task = StageTask("iudex-phase1", plays, {}, 10.0, start="mid", random=("camera", "heal_attack"))
    fleet = _fleet(tmp_path)
    with played_for(fleet, lanes=(2,)):
        found = play_in_fleet(fleet, task, {}, 1)
    assert 1 <= len(found.episodes) <= 2


def test_an_evaluation_that_nobody_plays_ends(tmp_path):
    began_s = time.monotonic()
    with pytest.raises(SoulsGraphError, match="game"):
        play_in_fleet(_fleet(tmp_path, alone_for_s=1.0), TASK, random_weights(TASK), 1)
    assert time.monotonic() - began_s < PATIENCE_S


@pytest.mark.slow
def test_an_evaluation_waits_for_a_pc_that_a_person_drained(tmp_path):
    alone_for_s = 5.0
    fleet = _fleet(tmp_path, alone_for_s=alone_for_s)
    tokens = Tokens(tmp_path / "tokens.json")
    tokens.issue("attic")
    tokens.drain("attic", True)

    def undo():
        until(lambda: "drained" in " ".join(lines), "a drained game")
        time.sleep(alone_for_s + 1.0)
        tokens.drain("attic", False)

    with played_for(fleet, lanes=(2,)) as lines:
        thread = threading.Thread(target=undo)
        thread.start()
        found = play_in_fleet(fleet, TASK, random_weights(TASK), 1)
        thread.join()
    assert len(found.episodes) >= 1


def test_an_evaluation_that_is_interrupted_stops_its_games(tmp_path):
    def interrupt(count):
        raise KeyboardInterrupt

    fleet = _fleet(tmp_path)
    with played_for(fleet, lanes=(2,)) as lines:
        with pytest.raises(KeyboardInterrupt):
            play_in_fleet(fleet, TASK, random_weights(TASK), 1000, interrupt)
        until(lambda: any("the evaluation is over" in line for line in lines), "the game to stop")
