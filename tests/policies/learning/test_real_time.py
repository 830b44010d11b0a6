"""Sampling in a thread of its own: the last transitions of a lost game are dropped, and no others."""

import threading
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from fakes.games import LossyGame
from fakes.waiting import PATIENCE_S, until
from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.core.errors import MOST_DOUBTFUL_TICKS, EpisodeLostError, GameError, UnknownNameError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.games.cycle_timer import stoppable
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.skills import make_skill, training_scenario
from soulsgraph_policies.agents.inference import FrozenNetwork
from soulsgraph_policies.learning import real_time
from soulsgraph_policies.learning.real_time import RealTimeSampling
from soulsgraph_policies.learning.sampler import SampledModule, Sampler

CAMERA = make_skill("camera")
SCENARIO = training_scenario(load_scenario("iudex-phase1"), CAMERA)


def network(action: int = 0) -> FrozenNetwork:
    size = CAMERA.observation.size
    bias = np.zeros(len(CAMERA.actions), np.float32)
    bias[action] = 1.0
    weights = {"observation_mean": np.zeros(size), "observation_deviation": np.ones(size)}
    layer = {"q_network.0.weight": np.zeros((len(bias), size)), "q_network.0.bias": bias}
    return FrozenNetwork.of(CAMERA, SCENARIO, weights | layer, 10.0)


def make_sampler(losses=None, failures=(), exploration=0.0):
    game = LossyGame(Simulator(1), losses or {}, failures)
    combat = Combat(game, (CAMERA,), SCENARIO, Horizon("camera", CAMERA.horizon))
    return Sampler(combat, 7, [SampledModule("camera", ("camera",), lambda _: exploration)]), game


def threaded(sampler: Sampler, plays: bool = True) -> RealTimeSampling:
    sampling = RealTimeSampling(lambda _: sampler, make_sampler()[0])
    if plays:
        sampling.set_networks([network()])
    return sampling


def play(sampling: RealTimeSampling, wanted: int, most: int = 64):
    chunks, count = [], 0
    while count < wanted:
        chunk = sampling.sample(most, PATIENCE_S)
        assert chunk is not None
        chunks.append(chunk)
        count += chunk.env_steps()
    return chunks


def played(wanted: int, *game, **sampler):
    """Return what a game of its own is sampled to, and the sampling, which is over."""
    with closing(threaded(make_sampler(*game, **sampler)[0])) as sampling:
        return play(sampling, wanted), sampling


def column(chunks, name):
    return np.concatenate([getattr(chunk.transitions["camera"], name) for chunk in chunks if chunk.transitions])


def notes(chunks):
    return [note for chunk in chunks for note in chunk.notes]


def test_the_thread_collects_what_the_plain_loop_would():
    sampler, game = make_sampler(exploration=0.4)
    with closing(threaded(sampler)) as sampling:
        collected = play(sampling, 300)
    assert game.closed
    plain, _ = make_sampler(exploration=0.4)
    plain.set_networks([network()])
    expected = plain.sample(400).transitions["camera"]
    for name in ("observations", "actions", "rewards", "next_observations", "episodes"):
        found = column(collected, name)
        np.testing.assert_array_equal(found, getattr(expected, name)[: len(found)])
    assert all(chunk.env_steps() <= 64 for chunk in collected)


@pytest.mark.parametrize("doubtful", [0, 9, MOST_DOUBTFUL_TICKS])
def test_doubtful_transitions_never_reach_the_learner(doubtful):
    lost_at = 50
    chunks, _ = played(120, {lost_at: EpisodeLostError("frozen", doubtful)})
    # The camera decides every tick, so the first episode has a transition for every tick before the loss.
    assert np.sum(column(chunks, "episodes") == 1) == lost_at - doubtful
    (note,) = notes(chunks)
    assert "frozen" in note


def test_lost_episodes_are_counted_by_their_reason_without_its_numbers_and_are_no_episodes():
    reasons = ["the boss reads 7.1 m away from 0.10 s before", "the boss reads -12 m away from 3.5 s before", "gone"]
    losses = {10 + place: EpisodeLostError(reason) for place, reason in enumerate(reasons)}
    chunks, sampling = played(2 * CAMERA.horizon, losses)
    assert sampling.lost_episodes == {"the boss reads # m away from # s before": 2, "gone": 1}
    lengths = np.concatenate([chunk.episodes["camera"].lengths for chunk in chunks if chunk.episodes])
    assert len(lengths) >= 1
    assert (lengths == CAMERA.horizon).all()


def test_a_game_that_is_not_ready_is_tried_again_and_noted(monkeypatch):
    monkeypatch.setattr(real_time, "RETRY_AFTER_S", 0.01)
    sampler, game = make_sampler({5: EpisodeLostError("crashed", 3)}, [GameError("loading") for _ in range(3)])
    with closing(threaded(sampler)) as sampling:
        first, second, *_ = notes(play(sampling, 60))
    assert "crashed" in first
    assert "loading" in second
    assert game.resets >= 5


def test_the_game_goes_on_while_nobody_drains():
    sampler, game = make_sampler()
    with closing(threaded(sampler)) as sampling:
        play(sampling, 1)
        before = game.steps
        until(lambda: game.steps >= before + 200, "a game that goes on")


def test_newer_networks_are_played_at_once_and_every_decision_has_its_version_and_the_tick_with_which_it_ended(
    monkeypatch,
):
    # However long this thread stands still, none is dropped.
    monkeypatch.setattr(real_time, "MOST_WAITING", 10**9)
    with closing(threaded(make_sampler()[0], plays=False)) as sampling:
        sampling.set_networks([network(0)], 4)
        chunks = play(sampling, 10)
        sampling.set_networks([network(3)], 9)

        def newer():
            chunks.extend(play(sampling, 1, most=512))
            return 9 in chunks[-1].moments["camera"].versions

        until(newer, "decisions of the newer weights")
    actions = column(chunks, "actions")
    versions, ticks = (
        np.concatenate([getattr(chunk.moments["camera"], name) for chunk in chunks]) for name in ("versions", "ticks")
    )
    # A camera's decision takes one tick: the first ends with the first one.
    assert ticks.tolist() == list(range(1, len(actions) + 1))
    assert versions.tolist() == sorted(versions.tolist())
    assert versions.tolist() == [4 if action == 0 else 9 for action in actions]
    assert set(versions) == {4, 9}


def test_a_decision_that_takes_several_ticks_has_the_weights_that_played_as_it_began():
    """The weights change while a roll of five ticks is under way: it was decided by those before."""
    sampling, roll = threaded(make_sampler()[0], plays=False), make_sampler()[0]
    roll.set_networks([network()])
    sampling._changes.extend([(0, 1), (7, 2), (9, 3)])
    played = roll.sample(4).transitions["camera"]
    long = replace(played, ticks=np.full(len(played), 5))
    assert [int(sampling._moments(long, now).versions[0]) for now in (5, 11, 12, 13, 14, 20)] == [1, 1, 2, 2, 3, 3]


def test_a_defect_in_the_thread_reaches_the_caller_and_new_networks_do_not_hide_it():
    sampler, game = make_sampler()
    game.step = None
    with closing(threaded(sampler, plays=False)) as sampling:
        for _ in range(2):
            sampling.set_networks([network()])
            with pytest.raises(TypeError):
                play(sampling, 1)
            until(lambda: all(one.name != "real-time sampling" for one in threading.enumerate()), "the thread's end")


def last_fight(sampling):
    """Play one fight, and return all that is to be learned from it."""
    sampling.finish_fight()
    sampling.set_networks([network()])
    until(lambda: sampling.over, "the end of the last fight")
    chunks = []
    while (chunk := sampling.sample(64, 0.0)) is not None:
        chunks.append(chunk)
    sampling.close()
    return chunks


@pytest.mark.parametrize("doubtful", [0, 8])
def test_the_last_fight_is_returned_to_its_end_but_for_what_the_reset_puts_in_doubt(doubtful):
    sampler, game = make_sampler(failures=[EpisodeLostError("keys were dead", doubtful)] if doubtful else [])
    sampling = threaded(sampler, plays=False)
    episodes = column(last_fight(sampling), "episodes")
    assert len(episodes) == CAMERA.horizon - doubtful
    assert set(episodes) == {1}
    assert (sampling.finished, sampling.lost.total()) == (CAMERA.horizon, doubtful)
    assert game.steps <= CAMERA.horizon + 1


def test_a_last_fight_is_over_where_the_game_cannot_be_opened_or_reset(monkeypatch):
    monkeypatch.setattr(real_time, "RETRY_AFTER_S", 0.01)

    def refuse(_):
        raise GameError("no display")

    (chunk,) = last_fight(RealTimeSampling(refuse, make_sampler()[0]))
    assert chunk.failure == "no display"
    sampler, game = make_sampler({5: EpisodeLostError("crashed", 3)}, [GameError("loading")] * 10_000)
    with closing(threaded(sampler)) as sampling:
        until(lambda: game.resets >= 2, "a reset that failed")
        sampling.finish_fight()
        until(lambda: sampling.over, "the end")


def test_a_game_that_cannot_be_opened_is_told_of_and_tried_again(monkeypatch):
    monkeypatch.setattr(real_time, "RETRY_AFTER_S", 0.01)
    opened, _ = make_sampler()
    refusals = [UnknownNameError("driver", "memry", ["memory"]), GameError("no display")]

    def open_sampler(_):
        if refusals:
            raise refusals.pop(0)
        return opened

    sampling = RealTimeSampling(open_sampler, make_sampler()[0])
    sampling.receive({"camera": 900})
    sampling.set_networks([network()])
    first = sampling.sample(64, PATIENCE_S)
    assert "memry" in first.failure
    assert not first.transitions
    chunks = play(sampling, 20)
    assert opened.decisions["camera"] > 900
    sampling.close()
    assert not chunks[-1].failure


def test_closing_does_not_wait_for_a_game_that_loads():
    def open_sampler(stop):
        loading.set()
        while True:
            stoppable(stop).sleep(0.01)

    loading = threading.Event()
    sampling = RealTimeSampling(open_sampler, make_sampler()[0])
    sampling.set_networks([network()])
    assert loading.wait(PATIENCE_S)
    ending = threading.Thread(target=sampling.close)
    ending.start()
    ending.join(PATIENCE_S)
    assert not ending.is_alive()
