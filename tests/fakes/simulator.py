"""The simulator frame by frame: a fight opened with chosen values, and controls pressed in it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.core.scenario import BossData, Scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Control
from soulsgraph_envs.simulator.driver import Simulator
from soulsgraph_envs.simulator.layout import frames

FRAME_S = 1.0 / 60.0
#: Longer than any test lasts.
_REST_FRAMES = 60 * 3600
#: Raw values of some ticks, (ticks, lanes, 25).
Course = npt.NDArray[np.float64]


def open_fight(scenario: Scenario, lanes: int = 1, tick_s: float = FRAME_S, **fields: object) -> Simulator:
    """Open a fight with the boss 6 m south of the player, both facing each other at rest, and `fields` set.

    The fields are those of `layout.Lane`; each is set in every lane.
    """
    sim = Simulator(lanes, tick_s)
    sim.reset(np.arange(lanes), scenario, derive_seeds(np.arange(lanes), 1))
    x, y = scenario.arena.centre_m
    places = {"player_x": x, "player_y": y, "boss_x": x, "boss_y": y - 6.0, "boss_heading": np.pi}
    state = sim.get_state()
    at_rest = {"player_heading": 0.0, "camera_yaw": 0.0, "wait": _REST_FRAMES}
    for name, value in {**places, **at_rest, **fields}.items():
        state["fights"][name][:] = value
    sim.set_state(state)
    return sim


def press(sim: Simulator, control: Control, ticks: int = 1, then: Control = Control.NONE) -> Course:
    """Press in the first tick, hold `then` afterwards; raw values (ticks, lanes, 25)."""
    bits = [control] + [then] * (ticks - 1)
    return np.array([sim.step(np.full(sim.lanes, int(bit), np.uint32)).copy() for bit in bits])


def move_of(boss: BossData, title: str) -> int:
    """Return the number of a move."""
    return [move.title for move in boss.moves].index(title)


def opens_at(boss: BossData, title: str) -> int:
    """Return the frame of a move in which its first window opens."""
    return frames(boss.moves[move_of(boss, title)].windows[0].time_s[0] * boss.time_factor)
