"""The state of the fight as SoulsGym's agents know it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GameState:
    """One look at a fight.

    Poses are (x, y, z, angle), z up and radians in [-pi, pi]; the camera's is (x, y, z) and the unit
    vector of where it looks. HP and stamina are points; stamina may be below 0. Durations are the
    seconds since an animation began. Frost is that of Vordt's blows, 0 elsewhere: the resistance that
    is left, and the share of its effect that is left.
    """

    phase: int
    player_hp: float
    player_max_hp: float
    player_sp: float
    player_max_sp: float
    boss_hp: float
    boss_max_hp: float
    player_pose: Floats
    boss_pose: Floats
    camera_pose: Floats
    player_animation: str
    player_animation_duration: float
    boss_animation: str
    boss_animation_duration: float
    lock_on: bool
    frost_resistance: float = 0.0
    frost_effect: float = 0.0

    def copy(self) -> GameState:
        """Give a state of its own, arrays included."""
        poses = {name: getattr(self, name).copy() for name in ("player_pose", "boss_pose", "camera_pose")}
        return replace(self, **poses)


class AnimationClock:
    """Count how long an animation has been played, over the rounds of one that is played in a loop."""

    def __init__(self, looped: Collection[str]) -> None:
        self._looped = looped
        self._name, self._elapsed_s = "", 0.0

    def elapsed_s(self, name: str, time_s: float, step_s: float) -> float:
        """Take what the game says a step later, and give the seconds since the animation began."""
        going_on = name == self._name and name in self._looped
        self._elapsed_s = self._elapsed_s + step_s if going_on else time_s
        self._name = name
        return self._elapsed_s
