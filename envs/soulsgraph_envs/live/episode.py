"""One episode in a running game: check its readings, translate them, keep its levels."""

from __future__ import annotations

from soulsgraph_envs.controls import Control
from soulsgraph_envs.errors import EpisodeLostError
from soulsgraph_envs.live.animations import Tables, shows
from soulsgraph_envs.live.fields import Reading
from soulsgraph_envs.live.key_effects import KeyEffects
from soulsgraph_envs.live.operations import Operations
from soulsgraph_envs.live.plausibility import Plausibility
from soulsgraph_envs.live.translation import Flasks, Row, translate
from soulsgraph_envs.live.world import World
from soulsgraph_envs.scenario import Scenario
from soulsgraph_envs.state import Raw


class Episode:
    """The state of a driver from tick to tick; it reports the boss's change of phase to the world."""

    def __init__(self, scenario: Scenario, world: World, tables: Tables, first: Reading) -> None:
        self._scenario, self._world, self._tables = scenario, world, tables
        self._plausibility = Plausibility(world.arena, first)
        self._effects = KeyEffects(tables.player, first)
        self._flasks = Flasks(scenario.flasks, tables.drinking, first)
        self._phase, self._changing = 0, False

    @property
    def doubtful_ticks(self) -> int:
        """The number of latest ticks that must be dropped if keys turn out not to reach the game."""
        return self._effects.doubtful_ticks

    def judge(self, reading: Reading, sent: Control, elapsed_s: float) -> None:
        """Accept or refuse a tick's reading; raises as `Plausibility.judge` and `KeyEffects.judge` do."""
        self._plausibility.judge(reading, elapsed_s)
        self._effects.judge(reading, sent)
        if (transition := self._world.arena.transition) is not None:
            self._follow(shows(reading, "boss", transition.animation))

    def stands_still(self, reading: Reading) -> bool:
        """Return whether a reading shows the same moment as the tick before."""
        return self._plausibility.stands_still(reading)

    def row(self, reading: Reading) -> Row:
        """Translate a reading into raw values, (25,)."""
        return translate(reading, self._tables.player, self._tables.phases[self._phase], self._flasks)

    def keep_levels(self, reading: Reading, row: Row, operations: Operations) -> None:
        """Refill on a practice ground, `row` (25,) included; else hold the boss at its lowest HP: it must not die."""
        start, floor = self._scenario.boss_hp
        if self._scenario.refill:
            row[Raw.PLAYER_HP], row[Raw.BOSS_HP] = row[Raw.PLAYER_HP_MAX], start
            if reading["player_hp"] != reading["player_hp_max"]:
                operations.run("restore_player", player_hp=float(reading["player_hp_max"]))
            if reading["boss_hp"] != start:
                operations.run("set_boss_hp", boss_hp=start)
        elif 0.0 < float(reading["boss_hp"]) < max(floor, 1.0):
            operations.run("set_boss_hp", boss_hp=max(floor, 1.0))

    def _follow(self, changing: bool) -> None:
        """Count a phase when the animation of its change is over; one that the scenario lacks ends the episode."""
        if changing and not self._changing:
            self._world.phase += 1
        if self._changing and not changing:
            self._phase += 1
        self._changing = changing
        if changing and self._phase + 1 == len(self._tables.phases):
            raise EpisodeLostError(f"the boss passes into a phase that scenario {self._scenario.name} does not have")
