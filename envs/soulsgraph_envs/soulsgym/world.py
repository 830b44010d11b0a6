"""The world below an environment: begin a fight, move it on by a step, look at it, draw it."""

from __future__ import annotations

from typing import Protocol

from soulsgraph_envs.controls import Control
from soulsgraph_envs.pictures import Picture
from soulsgraph_envs.scenario import Scenario
from soulsgraph_envs.soulsgym.data import Fight, Pose
from soulsgraph_envs.soulsgym.game_state import GameState


class World(Protocol):
    """One fight at a time, standing still between steps of `step_s` seconds of the game.

    `repeatable`: the same seeds and controls give the same fight. `draws`: there are frames.
    Everything but `close` raises `GameError` where the game does not answer.
    """

    step_s: float
    repeatable: bool
    draws: bool

    def controls(self, scenario: Scenario) -> Control:
        """Name the controls that have an effect in a scenario; refuse one that cannot be fought here."""
        ...

    def begin(self, fight: Fight, scenario: Scenario, start: Pose, seed: int) -> GameState:
        """Begin a fight with the player at `start` and the boss at its own, both facing each other, whole."""
        ...

    def advance(self, controls: Control) -> GameState:
        """Hold and press `controls` for one step; give the state at its end."""
        ...

    def frame(self, height: int, width: int) -> Picture:
        """Draw the fight, if the world `draws`."""
        ...

    def close(self) -> None:
        """Release every key and leave the game playable; a second call does nothing."""
        ...
