"""Families of generated bosses: the ranges that each is drawn from, read from `data/families`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Literal

from soulsgraph_envs.core.config import Between, Rising, load_data, require, shipped_names

#: How animation ids of moves are chosen: by relative time, these exchanged by the seed, or those of no other boss.
Ids = Literal["timing", "shuffled", "own"]
#: Whether training a shift's skill again wins back what the shift costs.
Recoverable = Literal["yes", "no", "unknown"]
#: What one of the two ends of a pair is drawn from.
Range = Rising[Annotated[float, Between(-1e4, 1e4)]]

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
    wind_up_s: Rising[Annotated[float, Between(0.1, 10.0)]]
    window_s: Rising[Annotated[float, Between(0.05, 10.0)]]
    recovery_s: Rising[Annotated[float, Between(0.0, 10.0)]]
    tracks: Rising[Annotated[float, Between(0.0, 1.0)]]
    reach_m: Rising[Annotated[float, Between(0.0, 100.0)]]
    half_arc_rad: Rising[Annotated[float, Between(0.0, 3.2)]]
    damage: Rising[Annotated[float, Between(0.0, 1e4)]]
    farthest_m: Rising[Annotated[float, Between(0.0, 1000.0)]]
    weight: Rising[Annotated[float, Between(0.0, 1e4)]]
    blows: Annotated[int, Between(1, 9)] = 1
    between_s: Rising[Annotated[float, Between(0.0, 10.0)]] = (0.0, 0.0)
    nearest_m: Rising[Annotated[float, Between(0.0, 1000.0)]] = (0.0, 0.0)
    lunge_m_s: Rising[Annotated[float, Between(0.0, 50.0)]] = (0.0, 0.0)
    lunge_lead_s: Rising[Annotated[float, Between(0.0, 10.0)]] = (0.0, 0.0)
    leap_s: Rising[Annotated[float, Between(0.0, 10.0)]] = (0.0, 0.0)
    every_s: Rising[Annotated[float, Between(0.0, 10.0)]] = (0.0, 0.0)
    offset_m: Rising[Annotated[float, Between(-50.0, 50.0)]] = (0.0, 0.0)
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

    `fight` holds `flasks`, `boss_hp` or `death_hp_ratio` of the scenario's file, the same in every shift of the kind.
    With `moves_of` the boss is the one of that family and the same seed, with `arena_m` the arena lies as far from its
    own place, in a direction that is drawn. `least_oracle` is the win rate that scripted play that sees ahead must
    reach: less than elsewhere only where the shift takes what no skill can win back.
    """

    skill: Literal["camera", "lock_on", "movement", "dodge", "heal_attack", "none"]
    player: Mapping[str, Range] = field(default_factory=dict)
    fight: Mapping[Literal["flasks", "boss_hp", "death_hp_ratio"], Any] = field(default_factory=dict)
    moves_of: str = ""
    arena_m: Rising[Annotated[float, Between(0.0, 1e4)]] = (0.0, 0.0)
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
    moves: Rising[Annotated[int, Between(3, MOST_MOVES)]] = (5, MOST_MOVES)
    ranges: Mapping[str, Range] = field(default_factory=dict)
    pairs: Mapping[str, tuple[Range, Range]] = field(default_factory=dict)
    archetypes: tuple[Archetype, ...] = ()
    rear: Archetype | None = None
    kinds: Mapping[str, ShiftKind] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kinds:
            require(not self.archetypes, "archetypes", "not be there in a family of shifts")
            return
        require(bool(self.boss), "boss", "be the one that the drawn ones are based on")
        require(self.rear is not None, "rear", "be the move against a player behind the boss")
        covering = any(one.covers_distance for one in self.archetypes)
        require(covering, "archetypes", "have one that leaps or runs through")
        # Each archetype may be drawn twice, and one move is against a player behind the boss.
        enough = 2 * len(self.archetypes) + 1
        require(self.moves[1] <= enough, "moves", f"be at most {enough}, twice each archetype and the one to the rear")
        titles = {one.title for one in (*self.archetypes, self.rear) if one}
        require(len(titles) == len(self.archetypes) + 1, "archetypes", "have every title once")
        for key, (low, high) in self.pairs.items():
            require(low[1] <= high[0], f"pairs.{key}", "be two ranges in rising order")


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
    return load_data("family", BossFamily, name)
