"""Families of generated bosses: the ranges that each is drawn from, read from `data/families`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Literal

from soulsgraph_envs.core.config import Between, Pair, Where, load_data, shipped_names

#: How animation ids of moves are chosen: by relative time, these exchanged by the seed, or those of no other boss.
Ids = Literal["timing", "shuffled", "own"]
#: Whether training a shift's skill again wins back what the shift costs.
Recoverable = Literal["yes", "no", "unknown"]
#: What one of the two ends of a pair is drawn from.
Range = Pair[Annotated[float, Between(-1e4, 1e4)]]

#: The moves that fit the ids of each way of choosing them.
MOST_MOVES = 11


@dataclass(frozen=True)
class Archetype:
    """A kind of move, each number a range that is drawn from: times before the boss's time factor.

    `blows` windows follow each other after the wind-up, `between_s` from the end of one to the start of the next.
    `tracks` is the share of the wind-up for which the boss turns; a lunge begins `lunge_lead_s` before the first
    window, or with half of the wind-up where that is 0, and ends with the last one. The boss begins it between
    `nearest_m` and `farthest_m`.
    """

    title: str
    wind_up_s: Pair[Annotated[float, Between(0.1, 10.0)]]
    window_s: Pair[Annotated[float, Between(0.05, 10.0)]]
    recovery_s: Pair[Annotated[float, Between(0.0, 10.0)]]
    tracks: Pair[Annotated[float, Between(0.0, 1.0)]]
    reach_m: Pair[Annotated[float, Between(0.0, 100.0)]]
    half_arc_rad: Pair[Annotated[float, Between(0.0, 3.2)]]
    damage: Pair[Annotated[float, Between(0.0, 1e4)]]
    farthest_m: Pair[Annotated[float, Between(0.0, 1000.0)]]
    weight: Pair[Annotated[float, Between(0.0, 1e4)]]
    blows: Annotated[int, Between(1, 9)] = 1
    between_s: Pair[Annotated[float, Between(0.0, 10.0)]] = (0.0, 0.0)
    nearest_m: Pair[Annotated[float, Between(0.0, 1000.0)]] = (0.0, 0.0)
    lunge_m_s: Pair[Annotated[float, Between(0.0, 50.0)]] = (0.0, 0.0)
    lunge_lead_s: Pair[Annotated[float, Between(0.0, 10.0)]] = (0.0, 0.0)
    leap_s: Pair[Annotated[float, Between(0.0, 10.0)]] = (0.0, 0.0)
    every_s: Pair[Annotated[float, Between(0.0, 10.0)]] = (0.0, 0.0)
    offset_m: Pair[Annotated[float, Between(-50.0, 50.0)]] = (0.0, 0.0)
    knockdown: bool = False
    staggers: bool = True
    runs_through: bool = False
    parryable: bool = True

    @property
    def covers_distance(self) -> bool:
        """Whether it reaches a player who keeps away."""
        return self.runs_through or self.leap_s[1] > 0.0


@dataclass(frozen=True)
class ShiftKind:
    """One kind of labelled shift: the skill that it is meant for, and the numbers of the player's file that it draws.

    With `moves_of` the boss is the one of that family and the same seed, with `arena_m` the arena lies as far from its
    own place, in a direction that is drawn. `least_oracle` is the win rate that scripted play that sees ahead must
    reach: less than elsewhere only where the shift takes what no skill can win back.
    """

    skill: Literal["camera", "lock_on", "movement", "dodge", "heal_attack", "none"]
    player: Mapping[str, Range] = field(default_factory=dict)
    moves_of: str = ""
    arena_m: Pair[Annotated[float, Between(0.0, 1e4)]] = (0.0, 0.0)
    recoverable: Recoverable = "unknown"
    least_oracle: Annotated[float, Between(0.0, 1.0)] = 0.9


@dataclass(frozen=True)
class BossFamily:
    """A family of scenarios: bosses of drawn moves, or labelled shifts of one `scenario`.

    `ranges` are drawn for numbers of the boss's file, by their place there, and `pairs` for its pairs, an end each.
    `moves` are the fewest and the most moves, the one against a player behind the boss included.
    """

    name: str
    scenario: str
    boss: str = ""
    ids: Ids = "timing"
    moves: Pair[Annotated[int, Between(3, MOST_MOVES)]] = (5, MOST_MOVES)
    ranges: Mapping[str, Range] = field(default_factory=dict)
    pairs: Mapping[str, tuple[Range, Range]] = field(default_factory=dict)
    archetypes: tuple[Archetype, ...] = ()
    rear: Archetype | None = None
    kinds: Mapping[str, ShiftKind] = field(default_factory=dict)


def family_names() -> tuple[str, ...]:
    """Name the families that are shipped."""
    return shipped_names("family")


@cache
def load_family(name: str) -> BossFamily:
    """Load a family by its name.

    Raises:
        UnknownNameError: if no family has that name.
        DataError: for a missing, misspelt, mistyped or out-of-range value.
    """
    return load_data("family", BossFamily, name, _check_family)


def _check_family(family: BossFamily, where: Where) -> None:
    if family.kinds:
        where.at("archetypes").demand(not family.archetypes, "none in a family of shifts", "some")
        for name, kind in family.kinds.items():
            _check_ranges(kind.player, where.at("kinds").at(name).at("player"))
            _check_ranges({"arena_m": kind.arena_m}, where.at("kinds").at(name))
        return
    where.at("boss").demand(bool(family.boss), "the boss that the drawn ones are based on", "none")
    where.at("rear").demand(family.rear is not None, "the move against a player behind the boss", "none")
    far = [one.title for one in family.archetypes if one.covers_distance]
    where.at("archetypes").demand(bool(far), "one that leaps or runs through", "none")
    fewest, most = family.moves
    where.at("moves").demand(fewest <= most, "two numbers in rising order", [fewest, most])
    # Each archetype may be drawn twice, and one move is against a player behind the boss.
    enough = 2 * len(family.archetypes) + 1
    where.at("moves").demand(most <= enough, f"at most {enough}, twice each archetype and the one to the rear", most)
    titles = [one.title for one in (*family.archetypes, *([family.rear] if family.rear else []))]
    where.at("archetypes").demand(len({*titles}) == len(titles), "every title once", ", ".join(titles))
    _check_ranges(family.ranges, where.at("ranges"))
    for key, (low, high) in family.pairs.items():
        _check_ranges({"0": low, "1": high}, where.at("pairs").at(key))
        where.at("pairs").at(key).demand(low[1] <= high[0], "two ranges in rising order", [low, high])
    for index, one in enumerate(family.archetypes):
        _check_ranges({key: value for key, value in vars(one).items() if isinstance(value, tuple)}, where.at(index))


def _check_ranges(ranges: Mapping[str, Pair[float]], where: Where) -> None:
    for key, (low, high) in ranges.items():
        where.at(key).demand(low <= high, "two numbers in rising order", [low, high])
