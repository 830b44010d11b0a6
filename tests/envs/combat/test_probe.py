"""The probe: what its fights cover, and that it sees no more than a running game shows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from fakes.realtime import FakeTable
from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.combat.probe import Probe
from soulsgraph_envs.combat.rollout import Rollout
from soulsgraph_envs.combat.scripted import ScriptedPlay
from soulsgraph_envs.core.game import Game
from soulsgraph_envs.core.scenario import load_boss, load_player, load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.skills import SKILL_NAMES, make_skill

SCENARIO = load_scenario("iudex-phase1")
BOSS, PLAYER = load_boss("iudex-phase1"), load_player("knight")
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


def blows(raw: np.ndarray) -> Iterator[tuple[float, float, bool]]:
    """Yield a fight's blows (ticks, 25): how far beyond their reach and aside the player was, whether they struck."""
    moves = {move.id: move for move in BOSS.moves}
    for tick in range(1, len(raw)):
        move, now_s = moves.get(int(raw[tick, Raw.BOSS_ANIMATION])), raw[tick, Raw.BOSS_ANIMATION_TIME_S]
        for window in () if move is None else move.windows:
            if now_s - 0.1 < window.time_s[1] * BOSS.time_factor <= now_s:
                x, y = raw[tick, Raw.PLAYER_X : Raw.PLAYER_Y + 1] - raw[tick, Raw.BOSS_X : Raw.BOSS_Y + 1]
                aside = np.angle(np.exp(1j * (np.arctan2(-x, -y) - raw[tick, Raw.BOSS_ANGLE])))
                lost = np.diff(raw[max(tick - 4, 0) : tick + 1, Raw.PLAYER_HP]).min()
                yield np.hypot(x, y) - window.reach_m, abs(aside), lost < 0.0


def test_it_meets_blows_inside_outside_and_about_their_edges(fights: tuple[np.ndarray, np.ndarray]) -> None:
    met = [blow for lane in range(LANES) for blow in blows(fights[0][:, lane])]
    assert len(met) > 300
    beyond, aside, struck = map(np.array, zip(*met, strict=True))
    shares, _ = np.histogram(beyond, bins=[-9.0, -1.0, -0.5, 0.0, 0.5, 1.0, 9.0])
    assert (shares / len(met) > 0.03).all()
    assert 0.3 < struck.mean() < 0.85
    assert (aside > 0.3).mean() > 0.05
    assert aside.max() > 1.0


def test_it_is_where_every_move_begins(fights: tuple[np.ndarray, np.ndarray]) -> None:
    seen = {*np.unique(fights[0][:, :, Raw.BOSS_ANIMATION]).astype(int)}
    drawn = {move.id for move in BOSS.moves if move.weight > 0.0}
    assert drawn <= seen


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
