"""A scenario: boss data, start, number of flasks, HP window. A TOML file."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

from soulsgraph_envs.encounter import Animation
from soulsgraph_envs.schema import Between

#: The ways an episode can begin; a scenario gives each its ranges.
START_NAMES = ("scattered", "mid", "long")


@dataclass(frozen=True)
class Start:
    """Where an episode begins: the distance range, and whether poses are random or face the boss."""

    distance_m: Annotated[tuple[float, float], Between(0.0, 100.0)]
    facing: bool


@dataclass(frozen=True)
class Arena:
    """The flat disc on which the fight takes place, in the game's coordinates (x, y; z is up)."""

    centre_m: Annotated[tuple[float, float], Between(-1e6, 1e6)] = (0.0, 0.0)
    height_m: Annotated[float, Between(-1e6, 1e6)] = 0.0
    radius_m: Annotated[float, Between(2.0, 1000.0)] = 14.0


@dataclass(frozen=True)
class Transition:
    """The change of phase: between moves, at or below a share of full HP, the boss plays `animation`, then is `boss`.

    Meanwhile it neither moves nor strikes, but can be hit.
    """

    below_hp_ratio: Annotated[float, Between(0.0, 1.0)]
    boss: str
    animation: Animation


@dataclass(frozen=True)
class Scenario:
    """One encounter, validated at load by `catalogue.load_scenario`.

    The boss begins at `boss_hp[0]` and is beaten below `boss_hp[1]` (points); the player is dead
    below `death_hp_ratio` of full HP. With `refill` both get full HP after every tick and nobody
    dies or wins: the practice ground of the upstream skills. A `transition` makes it a whole
    fight in two phases.
    """

    name: str
    boss: str
    player: str
    flasks: Annotated[int, Between(0, 99)]
    boss_hp: Annotated[tuple[float, float], Between(0.0, 1e6)]
    #: Points that the boss HP column is measured against in every phase; the boss data's `hp_max`.
    boss_hp_full: Annotated[float, Between(1.0, 1e6)]
    death_hp_ratio: Annotated[float, Between(0.0, 0.99)]
    arena: Arena = field(default_factory=Arena)
    starts: dict[str, Start] = field(default_factory=dict)
    start: str = "mid"
    refill: bool = False
    transition: Transition | None = None

    @property
    def boss_hp_ratios(self) -> tuple[float, float]:
        """Return the HP window as values of the boss HP column: (at the start, at the end)."""
        return self.boss_hp[0] / self.boss_hp_full, self.boss_hp[1] / self.boss_hp_full

    def phases(self) -> tuple[Scenario, ...]:
        """Return the scenario of every phase: this one, and after a transition the same with the next boss."""
        if self.transition is None:
            return (self,)
        return self, replace(self, boss=self.transition.boss, transition=None)
