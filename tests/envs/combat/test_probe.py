"""The probe: what its fights cover, that it sees no more than a running game shows, and that a seed is a fight."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

from fakes.realtime import FakeTable
from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.combat.probe import BlowDoubt, Focus, Probe
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


def probing(game: Game, scenario: str = "iudex-phase1", focus: Focus | None = None) -> Rollout:
    fought = load_scenario(scenario)
    combat = Combat(game, [make_skill(name) for name in SKILL_NAMES], fought, Horizon("camera", 10**9))
    return Rollout(combat, ScriptedPlay(Probe(fought, focus).scripts))


def played(
    game: Game, seeds: np.ndarray, ticks: int, scenario: str = "iudex-phase1", focus: Focus | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return raw values (ticks, lanes, 25) and controls (ticks, lanes) of fights; those that ended stand still."""
    rollout, raws, controls = probing(game, scenario, focus), [], []
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


class Blow(NamedTuple):
    """One blow of the boss: how far the player was beyond its reach, and how it went."""

    beyond_m: float
    aside_rad: float
    struck: bool


def blows(raw: np.ndarray) -> Iterator[Blow]:
    """Yield every blow of one fight, from its raw values (ticks, 25)."""
    moves = {move.id: move for move in BOSS.moves}
    for tick in range(1, len(raw)):
        move, now_s = moves.get(int(raw[tick, Raw.BOSS_ANIMATION])), raw[tick, Raw.BOSS_ANIMATION_TIME_S]
        if move is None:
            continue
        for window in move.windows:
            ends_s = window.time_s[1] * BOSS.time_factor
            if not now_s - 0.1 < ends_s <= now_s:
                continue
            x, y = raw[tick, Raw.PLAYER_X : Raw.PLAYER_Y + 1] - raw[tick, Raw.BOSS_X : Raw.BOSS_Y + 1]
            aside = np.angle(np.exp(1j * (np.arctan2(-x, -y) - raw[tick, Raw.BOSS_ANGLE])))
            lost = np.diff(raw[max(tick - 4, 0) : tick + 1, Raw.PLAYER_HP]).min()
            yield Blow(np.hypot(x, y) - window.reach_m, abs(aside), lost < 0.0)


def test_it_meets_blows_inside_outside_and_about_their_edges(fights: tuple[np.ndarray, np.ndarray]) -> None:
    met = [blow for lane in range(LANES) for blow in blows(fights[0][:, lane])]
    assert len(met) > 300
    beyond, struck = np.array([one.beyond_m for one in met]), np.array([one.struck for one in met])
    shares, _ = np.histogram(beyond, bins=[-9.0, -1.0, -0.5, 0.0, 0.5, 1.0, 9.0])
    assert (shares / len(met) > 0.03).all()
    assert 0.3 < struck.mean() < 0.85
    aside = np.array([one.aside_rad for one in met])
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


def test_a_fight_hangs_on_its_seed_alone(fights: tuple[np.ndarray, np.ndarray]) -> None:
    seeds = derive_seeds(np.arange(LANES), 1)
    raw, controls = played(Simulator(2), seeds[[7, 3]], 80)
    np.testing.assert_array_equal(raw, fights[0][:80, [7, 3]])
    np.testing.assert_array_equal(controls, fights[1][:80, [7, 3]])
    assert (controls[:, 0] != controls[:, 1]).any()


def test_a_running_game_shows_it_all_that_it_goes_by() -> None:
    table = FakeTable()
    raw, controls = played(table.game, derive_seeds(np.arange(1), 1), 150)
    walked = controls & np.uint32(Control.BACK | Control.LEFT | Control.RIGHT)
    assert walked.any()
    assert (raw[:, 0, Raw.LOCKED] == 1.0).mean() > 0.5


@pytest.mark.parametrize("scenario", ["iudex-full", "vordt", "margit"])
def test_it_plays_every_boss(scenario: str) -> None:
    raw, _ = played(Simulator(4), derive_seeds(np.arange(4), 2), 200, scenario)
    assert np.isfinite(raw).all()


def focused(share: dict[str, float], keeps_m: float) -> Focus:
    """Return a focus in which as much is open of every blow, and one distance is waited at."""
    doubts = {
        move.id: [
            BlowDoubt(
                (window.reach_m - 0.2, window.reach_m + 0.2), (0.8, 1.2), (0.9 * window.time_s[1], window.time_s[1]),
                {"reach": 0.0, "arc": 0.0, "end": 0.0, "blow": 0.0} | share,
            )
            for window in move.windows
        ]
        for move in BOSS.moves
    }  # fmt: skip
    return Focus(BOSS, doubts, {keeps_m: 1.0}, 0.0, 0.0, 9)


def test_what_is_open_is_played_more_often(fights: tuple[np.ndarray, np.ndarray]) -> None:
    seeds = derive_seeds(np.arange(LANES), 1)

    def met(focus: Focus) -> list[Blow]:
        raw, _ = played(Simulator(LANES), seeds, TICKS, focus=focus)
        return [blow for lane in range(LANES) for blow in blows(raw[:, lane])]

    near = met(focused({"reach": 1.0}, 3.0))
    drawn = [blow for lane in range(LANES) for blow in blows(fights[0][:, lane])]
    edges = [np.mean([abs(blow.beyond_m) < 0.6 for blow in found]) for found in (near, drawn)]
    assert edges[0] > edges[1]
    aside = met(focused({"arc": 1.0}, 2.0))
    shares = [np.mean([0.6 < blow.aside_rad < 1.4 for blow in found]) for found in (aside, drawn)]
    assert shares[0] > shares[1]


def test_moves_from_afar_are_waited_for_afar(fights: tuple[np.ndarray, np.ndarray]) -> None:
    raw, _ = played(Simulator(LANES), derive_seeds(np.arange(LANES), 1), TICKS, focus=focused({}, 9.0))
    leaps = [move.id for move in BOSS.moves if move.leap_s]
    seen, drawn = (np.isin(one[:, :, Raw.BOSS_ANIMATION], leaps).mean() for one in (raw, fights[0]))
    assert seen > 2.0 * drawn
