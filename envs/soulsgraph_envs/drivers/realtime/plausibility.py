"""A boss's arena as a real game has it, and whether a reading can be a moment of the fight."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import dist, hypot, isfinite
from typing import Annotated

from soulsgraph_envs.core.config import Between
from soulsgraph_envs.core.data_files import load_data, shipped_names
from soulsgraph_envs.core.errors import EpisodeLostError
from soulsgraph_envs.core.scenario import Arena, Scenario, Transition, load_scenario
from soulsgraph_envs.drivers.realtime.animations import RAW_FIELDS
from soulsgraph_envs.drivers.realtime.link import Reading

Point = tuple[float, float, float]
_COORDINATE = Between(-1e6, 1e6)
#: A disc's edge is where the simulator's fighters stop, not where the game's ground does.
_MARGIN_M = 5.0


@dataclass(frozen=True)
class Entrance:
    """The fog gate: where to stand and look when interacting with it, and where the player comes out."""

    outside_m: Annotated[Point, _COORDINATE]
    outside_angle_rad: Annotated[float, Between(-3.2, 3.2)]
    camera: Annotated[Point, Between(-1.0, 1.0)]
    inside_m: Annotated[Point, _COORDINATE]


@dataclass(frozen=True)
class LiveArena:
    """One boss's arena in the game's coordinates, z up; `reload` is written before the world is reloaded."""

    name: str
    #: Beginnings of the names of the boss data that fight here.
    bosses: tuple[str, ...]
    #: The boss's character name in the game.
    character: str
    low_m: Annotated[Point, _COORDINATE]
    high_m: Annotated[Point, _COORDINATE]
    floor_m: tuple[Point, ...] = ()
    entrance: Entrance | None = None
    #: The scenario of the boss's whole fight, which knows its change of phase; empty if it has none.
    whole_fight: str = ""
    reload: dict[str, float] = field(default_factory=dict)

    @cached_property
    def transition(self) -> Transition | None:
        """The boss's change of phase."""
        return load_scenario(self.whole_fight).transition if self.whole_fight else None

    def holds(self, x: float, y: float, z: float) -> bool:
        """Return whether a place lies within the arena's bounds."""
        return all(low <= value <= high for low, value, high in zip(self.low_m, (x, y, z), self.high_m, strict=True))

    def floor(self, x: float, y: float) -> float:
        """Return the height of the known floor point nearest to a place, metres."""
        return min(self.floor_m, key=lambda point: hypot(point[0] - x, point[1] - y))[2]


def arena_of(scenario: Scenario, boss: str) -> LiveArena:
    """Return the arena in which a boss, by the name in its data, is fought.

    It is the scenario's own disc if the boss has no file, or if the file's arena is another place.
    """
    (x, y), z = scenario.arena.centre_m, scenario.arena.height_m
    for name in shipped_names("arena"):
        arena = load_data("arena", LiveArena, name)
        if boss.startswith(arena.bosses) and arena.holds(x, y, z):
            return arena
    return _disc(scenario.arena, boss)


def _disc(arena: Arena, boss: str) -> LiveArena:
    (x, y), z, reach = arena.centre_m, arena.height_m, arena.radius_m + _MARGIN_M
    return LiveArena(
        name=f"the disc of {boss}",
        bosses=(boss,),
        character="",
        low_m=(x - reach, y - reach, z - _MARGIN_M),
        high_m=(x + reach, y + reach, z + _MARGIN_M),
        floor_m=((x, y, z),),
    )


#: Fields that run on whether or not the fight does.
_OUTSIDE_THE_FIGHT = {"play_time_s", "game_speed"}
_LEVELS = (("player_hp", "player_hp_max"), ("player_stamina", "player_stamina_max"), ("boss_hp", "boss_hp_max"))
#: How far from 1 the length of the camera's direction may be.
_UNIT_TOLERANCE = 0.05


@dataclass(frozen=True)
class Limits:
    """How much a fight can change over time; seconds are the game's."""

    player_m_s: float = 15.0
    boss_m_s: float = 40.0
    #: A step that a teleport of the game itself may take, such as being set upright beside a wall.
    slack_m: float = 1.0
    #: The fight went on unobserved for longer than this.
    gap_s: float = 1.0


def same_moment(one: Reading, other: Reading) -> bool:
    """Return whether two readings show the same moment: even a fighter at rest is animated."""
    return all(_same(value, other[name]) for name, value in one.items() if name not in _OUTSIDE_THE_FIGHT)


def _same(one: float | str, other: float | str) -> bool:
    return one == other or (one != one and other != other)


def blank_fields(reading: Reading) -> frozenset[str]:
    """Return the numbers that cannot be read: an address map may have unverified fields."""
    return frozenset(name for name, value in reading.items() if not isinstance(value, str) and not isfinite(value))


def check_values(reading: Reading, arena: LiveArena, blank: frozenset[str]) -> None:
    """Check one reading by itself; the fields in `blank` were unreadable from the start.

    Raises:
        EpisodeLostError: for a NaN, a level above its maximum, a camera without a direction, or a
            place outside the arena.
    """
    for name in sorted(blank_fields(reading) - blank):
        raise EpisodeLostError(f"{name} reads {reading[name]}, which is no number")
    for name, maximum in _LEVELS:
        if name in reading and maximum in reading and not float(reading[name]) <= float(reading[maximum]) > 0.0:
            raise EpisodeLostError(f"{name} reads {reading[name]} of at most {reading[maximum]}")
    if "camera_x" in reading and abs(hypot(*position(reading, "camera")) - 1.0) > _UNIT_TOLERANCE:
        raise EpisodeLostError("the camera reads a direction that is no unit vector")
    for who in ("player", "boss"):
        place = position(reading, who)
        if not arena.holds(*place):
            shown = ", ".join(f"{value:.1f}" for value in place)
            raise EpisodeLostError(f"the {who} reads at ({shown}), outside {arena.name}")


def position(reading: Reading, who: str) -> tuple[float, float, float]:
    """Return the place of the player or the boss, metres; of the camera, its direction."""
    x, y, z = (float(reading[f"{who}_{axis}"]) for axis in "xyz")
    return x, y, z


class Plausibility:
    """Check an episode's readings tick by tick, by themselves and against the tick before."""

    def __init__(self, arena: LiveArena, first: Reading, limits: Limits | None = None) -> None:
        self._arena = arena
        self._limits = limits or Limits()
        self._last = first
        self._blank = blank_fields(first)
        if lacking := sorted(self._blank & RAW_FIELDS):
            raise EpisodeLostError(f"{', '.join(lacking)} cannot be read")
        check_values(first, arena, self._blank)

    def judge(self, reading: Reading, elapsed_s: float) -> None:
        """Accept or refuse a tick's reading, `elapsed_s` of game time after the one before.

        Raises:
            EpisodeLostError: with the reason, and how many ticks before it are in doubt.
        """
        if same_moment(reading, self._last):
            raise EpisodeLostError("the game's values no longer change", doubtful_ticks=1)
        if elapsed_s > self._limits.gap_s:
            raise EpisodeLostError(f"the control loop stood still for {elapsed_s:.1f} s of the fight")
        check_values(reading, self._arena, self._blank)
        self._check_jump(reading, elapsed_s)
        self._last = reading

    def stands_still(self, reading: Reading) -> bool:
        """Return whether a reading shows the same moment as the tick before."""
        return same_moment(reading, self._last)

    def _check_jump(self, reading: Reading, elapsed_s: float) -> None:
        for who, most_m_s in (("player", self._limits.player_m_s), ("boss", self._limits.boss_m_s)):
            moved_m = dist(position(reading, who), position(self._last, who))
            if moved_m > most_m_s * elapsed_s + self._limits.slack_m:
                raise EpisodeLostError(f"the {who} reads {moved_m:.1f} m away from {elapsed_s:.2f} s before")
