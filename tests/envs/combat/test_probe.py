"""The probe: what its fights cover, and that it sees no more than a running game shows."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.realtime import FakeTable
from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.combat.probe import Probe
from soulsgraph_envs.combat.rollout import Rollout
from soulsgraph_envs.combat.scripted import ScriptedPlay
from soulsgraph_envs.core.game import Game
from soulsgraph_envs.core.scenario import load_player, load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.skills import SKILL_NAMES, make_skill

SCENARIO = load_scenario("iudex-phase1")
PLAYER = load_player("knight")
LANES, TICKS = 48, 400


def played(game: Game, seeds: np.ndarray, ticks: int) -> tuple[np.ndarray, np.ndarray]:
    """Return raw values (ticks, lanes, 25) and controls (ticks, lanes) of fights; those that ended stand still."""
    combat = Combat(game, [make_skill(name) for name in SKILL_NAMES], SCENARIO, Horizon("camera", 10**9))
    rollout, raws, controls = Rollout(combat, ScriptedPlay(Probe(SCENARIO).scripts)), [], []
    rollout.begin(np.arange(len(seeds)), seeds)
    active = np.ones(len(seeds), np.bool_)
    for _ in range(ticks):
        rollout.tick(active if len(seeds) > 1 else None)
        active &= ~rollout.combat.ended
        raws.append(rollout.combat.raw.copy())
        controls.append(rollout.combat.controls.copy())
        if not active.any():
            break
    return np.array(raws), np.array(controls)


@pytest.fixture(scope="module")
def fights() -> tuple[np.ndarray, np.ndarray]:
    return played(Simulator(LANES), derive_seeds(np.arange(LANES), 1), TICKS)


def test_it_rolls_early_and_late_and_never_strikes(fights: tuple[np.ndarray, np.ndarray]) -> None:
    raw, controls = fights
    rolled = (raw[1:, :, Raw.PLAYER_ANIMATION] == PLAYER.animations.roll.id) & (
        raw[:-1, :, Raw.PLAYER_ANIMATION] != PLAYER.animations.roll.id
    )
    progress = raw[1:, :, Raw.BOSS_ANIMATION_TIME_S] / raw[1:, :, Raw.BOSS_ANIMATION_LENGTH_S]
    counts, _ = np.histogram(progress[rolled], bins=[0.0, 0.2, 0.35, 0.5, 1.0])
    assert rolled.sum() > 80
    assert (counts / rolled.sum() > 0.05).all()
    assert not (controls & np.uint32(Control.LIGHT_ATTACK | Control.HEAVY_ATTACK)).any()
    assert (controls & np.uint32(Control.USE_ITEM)).any()


def test_a_running_game_shows_it_all_that_it_goes_by() -> None:
    table = FakeTable()
    raw, controls = played(table.game, derive_seeds(np.arange(1), 1), 150)
    walked = controls & np.uint32(Control.BACK | Control.LEFT | Control.RIGHT)
    assert walked.any()
    assert (raw[:, 0, Raw.LOCKED] == 1.0).mean() > 0.5
