"""Check whether a reading can be a moment of the fight: nothing may be learned from one that cannot."""

from __future__ import annotations

from dataclasses import dataclass
from math import dist, hypot, isfinite

from soulsgraph_envs.errors import EpisodeLostError
from soulsgraph_envs.live.arena import LiveArena
from soulsgraph_envs.live.fields import Reading
from soulsgraph_envs.live.translation import RAW_FIELDS

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
    return all(_same(value, other[field]) for field, value in one.items() if field not in _OUTSIDE_THE_FIGHT)


def _same(one: float | str, other: float | str) -> bool:
    return one == other or (one != one and other != other)


def blank_fields(reading: Reading) -> frozenset[str]:
    """Return the numbers that cannot be read: an address map may have unverified fields."""
    return frozenset(field for field, value in reading.items() if not isinstance(value, str) and not isfinite(value))


def check_values(reading: Reading, arena: LiveArena, blank: frozenset[str]) -> None:
    """Check one reading by itself; the fields in `blank` were unreadable from the start.

    Raises:
        EpisodeLostError: for a NaN, a level above its maximum, a camera without a direction, or a
            place outside the arena.
    """
    for field in sorted(blank_fields(reading) - blank):
        raise EpisodeLostError(f"{field} reads {reading[field]}, which is no number")
    for field, maximum in _LEVELS:
        if field in reading and maximum in reading and not float(reading[field]) <= float(reading[maximum]) > 0.0:
            raise EpisodeLostError(f"{field} reads {reading[field]} of at most {reading[maximum]}")
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
