"""Begin an episode in a running game as the simulator does from the same seed."""

from __future__ import annotations

from collections.abc import Callable
from math import asin, atan2, isfinite, nan

import numpy as np

from soulsgraph_envs.errors import GameError
from soulsgraph_envs.live.animations import Tables
from soulsgraph_envs.live.arena import LiveArena
from soulsgraph_envs.live.fields import Reading
from soulsgraph_envs.live.placing import Pose, aim, place, unlock
from soulsgraph_envs.live.session import Session
from soulsgraph_envs.live.translation import Row
from soulsgraph_envs.scenario import Scenario
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.state import Raw
from soulsgraph_envs.streams import Seeds

_STANCES = ("idle", "approach", "back_off", "turn")
_RESTORING_S, _IDLE_S = 3.0, 12.0

#: Gives the raw values (25,) with which an episode of a scenario begins, from a seed (1,).
Draw = Callable[[Scenario, Seeds], Row]


def draw_start(scenario: Scenario, seeds: Seeds) -> Row:
    """Return the raw values (25,) with which the simulator begins an episode from a seed (1,)."""
    row: Row = Simulator(1).reset(np.zeros(1, np.int64), scenario, seeds)[0]
    return row


class Start:
    """Freeze both fighters, restore, teleport, aim, release: the paper's reset, with death disabled throughout."""

    def __init__(self, session: Session, arena: LiveArena, tables: Tables) -> None:
        self._session, self._arena, self._tables = session, arena, tables

    def begin(self, scenario: Scenario, drawn: Row, answer_s: float) -> Reading:
        """Return the first reading of an episode that begins as `drawn` (25,).

        Raises:
            UnansweredError: if the game does not answer to a key within `answer_s`.
            NotReachedError: naming the part of the start that failed.
            GameError: if the map cannot write what a start needs.
        """
        session, operations = self._session, self._session.operations
        operations.run("prevent_death", no_death=1.0)
        operations.run("hold", no_attack=1.0, no_move=1.0, no_damage=1.0)
        try:
            session.until("the player idle and the boss between moves", self._at_rest, _IDLE_S)
            unlock(session, answer_s)
            self._place(drawn)
            aim(session, atan2(-drawn[Raw.CAMERA_X], -drawn[Raw.CAMERA_Y]), asin(drawn[Raw.CAMERA_Z]))
            self._restore(scenario)
        finally:
            session.pad.release()
            operations.run("let_go", no_attack=0.0, no_move=0.0, no_damage=0.0)
        return session.link.read()

    def _at_rest(self, reading: Reading) -> bool:
        player, phases = self._tables.player, self._tables.phases
        idle = player.among(reading, ("idle",)) or not player.recognises(reading)
        return idle and any(boss.among(reading, _STANCES) or not boss.recognises(reading) for boss in phases)

    def _place(self, drawn: Row) -> None:
        for who, at, facing in (("boss", Raw.BOSS_X, Raw.BOSS_ANGLE), ("player", Raw.PLAYER_X, Raw.PLAYER_ANGLE)):
            x, y = float(drawn[at]), float(drawn[at + 1])
            place(self._session, who, Pose(x, y, self._arena.floor(x, y), float(drawn[facing])))

    def _restore(self, scenario: Scenario) -> None:
        """Write HP, stamina and flasks until the game shows them."""

        def whole(reading: Reading) -> bool:
            full = reading["player_hp"] == reading["player_hp_max"]
            boss = abs(float(reading["boss_hp"]) - scenario.boss_hp[0]) < 1.0
            return full and boss and (not refillable or reading["flasks"] == scenario.flasks)

        def write(reading: Reading) -> None:
            operations.run("restore_player", player_hp=float(reading["player_hp_max"]))
            if "player_stamina_max" in reading:
                operations.run("restore_stamina", player_stamina=float(reading["player_stamina_max"]))
            operations.run("set_boss_hp", boss_hp=scenario.boss_hp[0])
            if refillable:
                operations.run("set_flasks", flasks=float(scenario.flasks))

        operations, reading = self._session.operations, self._session.link.read()
        refillable = operations.can("set_flasks") and isfinite(float(reading.get("flasks", nan)))
        write(reading)
        if not operations.dry_run:
            self._session.until("HP, stamina and flasks restored", whole, _RESTORING_S, write)


def check_fits(scenario: Scenario, reading: Reading, character: str) -> None:
    """Refuse a game that cannot be the scenario's: another boss, or another journey.

    Raises:
        GameError: naming what does not fit.
    """
    found = str(reading.get("boss_name", character))
    if character and found and found != character:
        raise GameError(f"expected the boss {character} of scenario {scenario.name}, found {found}; go to its arena.")
    most = float(reading["boss_hp_max"])
    if abs(most - scenario.boss_hp_full) > 1.0:
        raise GameError(
            f"expected a boss of {scenario.boss_hp_full:g} HP as scenario {scenario.name} says, found {most:g}; "
            "play in the first journey, or with another scenario."
        )
