"""The world below an environment: begin a fight, advance it by a step, read it, draw it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from soulsgraph_envs.core.controls import Control
from soulsgraph_envs.core.pictures import Picture
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.soulsgym.core.game_state import GameState
from soulsgraph_envs.soulsgym.data import Fight, Pose


class World(Protocol):
    """One fight at a time, standing still between steps of `step_s` seconds of the game.

    `repeatable`: the same seeds and controls give the same fight. `draws`: there are frames.
    Everything but `close` raises `GameError` where the game does not answer.
    """

    step_s: float
    repeatable: bool
    draws: bool

    def controls(self, scenario: Scenario) -> Control:
        """Return the controls that have an effect in a scenario; refuse one that cannot be fought here."""
        ...

    def begin(self, fight: Fight, scenario: Scenario, start: Pose, seed: int) -> GameState:
        """Begin a fight with the player at `start` and the boss at its own, facing each other with full HP."""
        ...

    def advance(self, controls: Control) -> GameState:
        """Hold and press `controls` for one step; return the state at its end."""
        ...

    def frame(self, height: int, width: int) -> Picture:
        """Draw the fight, if the world `draws`."""
        ...

    def close(self) -> None:
        """Release every key and leave the game playable; a second call does nothing."""
        ...


class AnimationClock:
    """Measure how long an animation has been playing, including the repeats of a looped one."""

    def __init__(self, looped: Collection[str]) -> None:
        self._looped = looped
        self._name, self._elapsed_s = "", 0.0

    def elapsed_s(self, name: str, time_s: float, step_s: float) -> float:
        """Update the clock with the reading of a step later, and return the seconds since the animation began."""
        going_on = name == self._name and name in self._looped
        self._elapsed_s = self._elapsed_s + step_s if going_on else time_s
        self._name = name
        return self._elapsed_s
