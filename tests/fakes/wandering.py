"""A player that wanders about a boss and rolls: fights as arrays of what a running game supplies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from soulsgraph.calibrate.rows import FightRows, FightSet
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.simulator import Simulator

_LANES = 8


def wandering_fights(scenario: str | Path, minutes: float, seed: int) -> FightSet:
    """Return fights of a player that never strikes, so long together, at distances that change all the time."""
    random, fought = np.random.default_rng(seed), load_scenario(scenario)
    game = Simulator(_LANES)
    raw = game.reset(np.arange(_LANES), fought, derive_seeds(seed, np.arange(_LANES)))
    rows: list[list[np.ndarray]] = [[] for _ in range(_LANES)]
    sent: list[list[int]] = [[] for _ in range(_LANES)]
    goals, sides, until = np.full(_LANES, 3.0), np.zeros(_LANES, np.int64), np.zeros(_LANES, np.int64)
    fights: list[FightRows] = []
    begun, ticks = _LANES, round(minutes * 600 / _LANES)
    for tick in range(ticks):
        controls = np.zeros(_LANES, np.uint32)
        for lane in range(_LANES):
            if until[lane] <= 0:
                goals[lane], sides[lane], until[lane] = random.uniform(1.3, 7.0), random.integers(-1, 2), 12
            until[lane] -= 1
            away = float(np.hypot(raw[lane, 0] - raw[lane, 3], raw[lane, 1] - raw[lane, 4])) - goals[lane]
            bits = Control.FORWARD if away > 0.15 else Control.BACK if away < -0.15 else Control(0)
            bits |= (Control.LEFT, Control(0), Control.RIGHT)[sides[lane] + 1]
            bits |= Control.ROLL if random.random() < 0.06 else Control(0)
            bits |= Control(0) if raw[lane, Raw.LOCKED] else Control.LOCK_ON
            controls[lane] = bits
            rows[lane].append(raw[lane].copy())
            sent[lane].append(int(bits))
        raw = game.step(controls)
        dead = raw[:, Raw.PLAYER_HP] < 0.05 * raw[:, Raw.PLAYER_HP_MAX]
        over = np.flatnonzero(dead | (tick == ticks - 1))
        for lane in over.tolist():
            whole = np.array([*rows[lane], raw[lane]])
            fights.append(_rows(whole, [*sent[lane], 0]))
            rows[lane], sent[lane] = [], []
        if over.size:
            raw = game.reset(over, fought, derive_seeds(seed, np.arange(begun, begun + over.size)))
            begun += over.size
    return FightSet(tuple(fight for fight in fights if len(fight) > 5), {}, str(scenario))


def _rows(raw: np.ndarray, controls: list[int]) -> FightRows:
    clock = np.arange(len(raw), dtype=np.float64) * 0.1
    numbers = raw[:, Raw.BOSS_ANIMATION].astype(np.int64)
    return FightRows(clock, raw, np.array(controls, np.uint32), numbers, raw[:, Raw.PLAYER_HP].copy())


def disturbed(fought: FightSet, seed: int) -> FightSet:
    """Return the same fights as a busy game PC records them: readings late by up to 20 ms, a tenth of them missing."""
    random = np.random.default_rng(seed)
    fights = []
    for fight in fought.fights:
        kept = np.flatnonzero(random.random(len(fight)) > 0.1)
        late = np.sort(fight.clock_s[kept] + random.uniform(0.0, 0.02, len(kept)))
        fights.append(replace(fight.where(kept), clock_s=late))
    return replace(fought, fights=tuple(fights))
