"""What scripts may count on: the horizon of their fight, streams of their own, and a game that tells its future."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fakes.games import FakeGame
from fakes.scripted import scripted_fights
from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.combat.scripted import ConstantScript, OracleDodge, ScriptedPlay, Uniform, references
from soulsgraph_envs.core.errors import GameError, UnknownNameError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.skills import END_TO_END, make_skill

PHASE_1 = load_scenario("iudex-phase1")


def test_fights_end_with_their_horizon() -> None:
    idle = {END_TO_END: ConstantScript(len(make_skill(END_TO_END).actions) - 1)}
    harmless, seeds = replace(PHASE_1, refill=True), derive_seeds(np.arange(3), 1)
    fought = scripted_fights(harmless, idle, seeds, most_ticks=100, horizon=Horizon(END_TO_END, 20))
    assert not (fought.won | fought.died).any()
    # A decision to idle takes one tick; the first falls on a random phase of a clock of at most five.
    assert (fought.seconds >= 1.95).all()
    assert (fought.seconds < 2.45).all()


def test_a_lanes_random_actions_do_not_depend_on_the_others() -> None:
    skill, seeds = make_skill("dodge"), derive_seeds(np.arange(4), 1)
    taken = []
    for lanes in (4, 1):
        combat = Combat(Simulator(lanes), [skill], PHASE_1, Horizon("dodge", 10**9))
        play, actions = ScriptedPlay({"dodge": Uniform(skill, lanes, stream=0)}), np.zeros((lanes, 1), np.int64)
        for part in (combat, play):
            part.begin(np.arange(lanes), seeds[:lanes])
        taken.append([])
        for _ in range(60):
            play.act(combat, actions)
            taken[-1].append(int(actions[0, 0]))
            combat.step(actions)
    assert taken[0] == taken[1]
    assert set(taken[0]) == {0, 1}


def test_an_oracle_refuses_a_game_that_cannot_tell_its_future_and_skills_without_a_script_are_named() -> None:
    combat = Combat(FakeGame(), [make_skill("dodge")], PHASE_1, Horizon("dodge", 10))
    combat.begin(np.arange(1), np.zeros(1, np.uint64))
    combat.due[:] = True
    with pytest.raises(GameError, match="simulator"):
        ScriptedPlay({"dodge": OracleDodge()}).act(combat, np.zeros((1, 1), np.int64))
    with pytest.raises(UnknownNameError, match="doge"):
        references(["doge"], PHASE_1)
