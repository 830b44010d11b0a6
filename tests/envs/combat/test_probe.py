"""The probe sees no more than a running game shows; how it plays is held by its golden fights."""

from __future__ import annotations

import numpy as np

from fakes.realtime import FakeTable
from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.combat.probe import Probe
from soulsgraph_envs.combat.rollout import Rollout
from soulsgraph_envs.combat.scripted import ScriptedPlay
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.skills import SKILL_NAMES, make_skill


def test_a_running_game_shows_it_all_that_it_goes_by() -> None:
    scenario = load_scenario("iudex-phase1")
    combat = Combat(FakeTable().game, [make_skill(name) for name in SKILL_NAMES], scenario, Horizon("camera", 10**9))
    rollout, controls, locked = Rollout(combat, ScriptedPlay(Probe(scenario).scripts)), Control.NONE, []
    rollout.begin(np.arange(1), derive_seeds(np.arange(1), 1))
    while len(locked) < 150 and not combat.ended.any():
        rollout.tick()
        controls |= Control(int(combat.controls[0]))
        locked.append(combat.raw[0, Raw.LOCKED])
    assert controls & (Control.BACK | Control.LEFT | Control.RIGHT)
    assert np.mean(locked) > 0.5
