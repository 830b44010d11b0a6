"""Fights by drawn controls in the simulator, read as a running game's are, and what the simulator knew of each row."""

from __future__ import annotations

from typing import Any

import numpy as np

from soulsgraph.calibrate.rows import ReadFight
from soulsgraph.recordings.format import make_header
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.simulator.layout import FRAME_S

_WAYS = (Control.FORWARD, Control.BACK, Control.LEFT, Control.RIGHT, Control.FORWARD | Control.LEFT, Control.NONE)
_PRESSES = (Control.ROLL, Control.LIGHT_ATTACK, Control.USE_ITEM, Control.NONE, Control.NONE, Control.NONE)


def drawn_fight(
    seed: int, ticks: int = 250, scenario: str = "iudex-phase1", frames: tuple[int, int] = (6, 6), delay: int = 0
) -> tuple[ReadFight, list[dict[str, Any]]]:
    """Fight by drawn controls, each tick of as many frames as are drawn; return the fight and the lane at every row.

    Controls arrive `delay` frames after the row that they belong to.
    """
    draw, loaded = np.random.default_rng(seed), load_scenario(scenario)
    game = Simulator(1, FRAME_S)
    raw = game.reset(np.zeros(1, np.int64), loaded, np.array([seed], np.uint64))
    rows, lanes, controls, clock, way = [raw[0].copy()], [game.values(0)], [], [0], Control.NONE
    before = Control.NONE
    for tick in range(ticks):
        way = _WAYS[draw.integers(len(_WAYS))] if tick % 5 == 0 else way
        lock = Control.LOCK_ON if not raw[0, Raw.LOCKED] and tick % 7 == 0 else Control.NONE
        held = way | (Control.CAMERA_RIGHT if not raw[0, Raw.LOCKED] else Control.NONE)
        bits = held | lock | _PRESSES[draw.integers(len(_PRESSES))]
        length = int(draw.integers(frames[0], frames[1] + 1))
        for frame in range(length):
            sent = before if frame < delay else bits if frame == delay else held
            raw = game.step(np.array([sent], np.uint32))
        before = held
        rows.append(raw[0].copy())
        lanes.append(game.values(0))
        controls.append(int(bits))
        clock.append(clock[-1] + length)
    header = make_header(loaded, scenario=scenario, source="game", driver="memory", player="person")
    whole = np.vstack(rows)
    fight = ReadFight(
        whole,
        np.array([*controls, 0], np.uint32),
        np.array(clock) * FRAME_S,
        whole[:, Raw.PLAYER_HP],
        np.zeros(len(whole), np.int64),
        np.full(len(whole), None),
        header,
    )
    return fight, lanes
