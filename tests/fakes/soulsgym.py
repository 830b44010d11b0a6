"""For tests: a world of scripted states that records its calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from soulsgraph_envs.compat.soulsgym.fight import BossFight, GameState, Pose
from soulsgraph_envs.compat.soulsgym.worlds import SoulsGymWorld
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.state import ALL_CONTROLS, Control


def standing(**values: Any) -> GameState:
    """Make a state: Knight and Iudex with full HP and idle, 10 m apart, locked on; `values` replace fields."""
    state = GameState(
        phase=1,
        player_hp=454.0,
        player_max_hp=454.0,
        player_sp=95.0,
        player_max_sp=95.0,
        boss_hp=1037.0,
        boss_max_hp=1037.0,
        player_pose=np.array([141.0, 582.0, -68.8, -np.pi]),
        boss_pose=np.array([141.0, 592.0, -68.8, 0.0]),
        camera_pose=np.array([141.0, 578.0, -67.3, 0.0, 1.0, 0.0]),
        player_animation="Idle",
        player_animation_duration=0.0,
        boss_animation="IdleBattle",
        boss_animation_duration=0.0,
        lock_on=True,
    )
    return replace(state, **values)


class FakeWorld(SoulsGymWorld):
    """Play the states of `script`, one per step, then hold the last; an error in it is raised.

    `sent` keeps the controls of every step, `begun` how often a fight began.

    Raises:
        GameError: for a step before the first fight, or controls that do not exist.
    """

    repeatable = False

    def __init__(self, script: Sequence[GameState | GameError]) -> None:
        self._script, self._place = list(script), -1
        self.sent: list[Control] = []
        self.begun = 0
        self.closed = False

    def begin(self, fight: BossFight, scenario: Scenario, start: Pose, seed: int) -> GameState:
        """Go back to the script's first state."""
        self.begun += 1
        self._place = 0
        return self._show()

    def advance(self, controls: Control) -> GameState:
        """Go one state on."""
        if self._place < 0 or controls & ~ALL_CONTROLS:
            raise GameError(f"the fake world: expected a fight begun and known controls, found {controls!r}.")
        self.sent.append(controls)
        self._place = min(self._place + 1, len(self._script) - 1)
        return self._show()

    def frame(self, height: int, width: int) -> Picture:
        """Return a black picture of the requested size."""
        return np.zeros((height, width, 3), np.uint8)

    def close(self) -> None:
        """Close the world."""
        self.closed = True

    def _show(self) -> GameState:
        found = self._script[self._place]
        if isinstance(found, GameError):
            raise found
        return found
