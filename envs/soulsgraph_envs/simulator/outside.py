"""Access to a fight from outside, between ticks: values that may be written, and animation names."""

from __future__ import annotations

from math import inf, isfinite, pi
from typing import NamedTuple

from soulsgraph_envs.encounter import Window
from soulsgraph_envs.errors import GameError, UnknownNameError
from soulsgraph_envs.simulator.layout import NO_MOVE
from soulsgraph_envs.simulator.render import Sector
from soulsgraph_envs.simulator.tables import Row, frames
from soulsgraph_envs.state import Raw


class Target(NamedTuple):
    """One value that may be written: the raw value that shows it, if one does, and the one that bounds it."""

    shown: Raw | None
    most: Raw | float = inf
    least: float = 0.0


#: What `Simulator.override` writes, by the names of `layout.Lane`.
TARGETS = {
    "player_x": Target(Raw.PLAYER_X, least=-inf),
    "player_y": Target(Raw.PLAYER_Y, least=-inf),
    "player_heading": Target(Raw.PLAYER_ANGLE, pi, -pi),
    "player_hp": Target(Raw.PLAYER_HP, Raw.PLAYER_HP_MAX),
    "stamina": Target(Raw.STAMINA, Raw.STAMINA_MAX, -inf),
    "fp": Target(None),
    "flasks": Target(Raw.FLASKS, 99.0),
    "boss_x": Target(Raw.BOSS_X, least=-inf),
    "boss_y": Target(Raw.BOSS_Y, least=-inf),
    "boss_heading": Target(Raw.BOSS_ANGLE, pi, -pi),
    "boss_hp": Target(Raw.BOSS_HP, Raw.BOSS_HP_MAX),
    "no_attack": Target(None, 1.0),
    "no_move": Target(None, 1.0),
    "no_damage": Target(None, 1.0),
}


def target(name: str, value: float) -> Target:
    """Return the target of a written value.

    Raises:
        UnknownNameError: for a name that is not among `TARGETS`.
        GameError: for a value that is no number.
    """
    if name not in TARGETS:
        raise UnknownNameError("value of a fight", name, TARGETS)
    if not isfinite(value):
        raise GameError(f"{name}: expected a finite number, found {value}.")
    return TARGETS[name]


class AnimationNames(NamedTuple):
    """The game's names of the animations that play; the boss's attack number is -1 if it has none."""

    player: str
    boss: str
    boss_attack: int


class Cast:
    """A scenario's player and boss as seen from outside: the meaning of the table's indices."""

    def __init__(self, row: Row) -> None:
        scenario, player, boss = row
        self.phase, self.player_radius_m, self.boss_radius_m = boss.phase, player.body.radius_m, boss.radius_m
        self._player = [action.name if action else "" for action in vars(player.animations).values()]
        stances = [*vars(boss.animations).values(), scenario.transition and scenario.transition.animation]
        self._stances = [(stance.name, stance.raw_id) if stance else ("", -1) for stance in stances]
        self._moves = [(move.name, move.raw_id) for move in boss.moves]
        self._windows = [[_timed(window, boss.time_factor) for window in move.windows] for move in boss.moves]

    def names(self, animation: int, stance: int, move: int) -> AnimationNames:
        """Name the animations of a lane that has these."""
        return AnimationNames(
            self._player[animation], *(self._stances[stance] if move == NO_MOVE else self._moves[move])
        )

    def open_sectors(self, move: int, frame: int) -> list[Sector]:
        """Return the sectors in which the boss strikes in a frame of a move."""
        if move == NO_MOVE:
            return []
        return [sector for first, end, sector in self._windows[move] if first <= frame < end]


def _timed(window: Window, time_factor: float) -> tuple[int, int, Sector]:
    first, end = (frames(time_s * time_factor) for time_s in window.time_s)
    return first, end, Sector(window.reach_m, window.half_arc_rad, window.offset_m)
