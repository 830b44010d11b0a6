"""Pack scenarios with their boss and player data into the record arrays of `layout`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from soulsgraph_envs.core.fighters import BLOWS, Animation, BossData, Move, PlayerData
from soulsgraph_envs.core.scenario import Scenario, load_boss, load_player, supported_controls
from soulsgraph_envs.simulator import layout
from soulsgraph_envs.simulator.layout import PlayerPose, Records, Stance, Tables, as_bytes, frames


class FightData(NamedTuple):
    """One row of the tables: a scenario, or a phase of one, with the data it names."""

    scenario: Scenario
    player: PlayerData
    boss: BossData

    @property
    def stances(self) -> list[Animation | None]:
        """The boss's animations by `Stance`."""
        transition = self.scenario.transition
        return [*vars(self.boss.animations).values(), transition.animation if transition else None]


def load_row(scenario: Scenario) -> FightData:
    """Load the data that a scenario names."""
    return FightData(scenario, load_player(scenario.player), load_boss(scenario.boss))


def pack(rows: Sequence[FightData]) -> Tables:
    """Pack scenarios, in their order, into one set of tables, as bytes."""
    count = len(rows)
    most_moves = max(len(row.boss.moves) for row in rows)
    most_windows = max(len(move.windows) for row in rows for move in row.boss.moves)
    tables = Tables(
        encounters=np.zeros(count, layout.ENCOUNTER),
        players=np.zeros(count, layout.PLAYER),
        actions=np.zeros((count, len(PlayerPose)), layout.ACTION),
        bosses=np.zeros(count, layout.BOSS),
        stances=np.zeros((count, len(Stance)), layout.ACTION),
        moves=np.zeros((count, most_moves), layout.MOVE),
        windows=np.zeros((count, most_moves, most_windows), layout.WINDOW),
    )
    for number, row in enumerate(rows):
        tables.encounters[number] = _encounter(row.scenario)
        _pack_player(tables, number, row.player)
        _pack_boss(tables, number, row)
    return Tables(*map(as_bytes, tables))


def _encounter(scenario: Scenario) -> layout.Encounter:
    arena, start = scenario.arena, scenario.starts[scenario.start]
    placed = (*arena.centre_m, arena.height_m, arena.radius_m, scenario.flasks)
    return layout.Encounter(
        *placed, scenario.boss_hp[0], scenario.boss_hp_full, *start.distance_m, start.facing, scenario.refill
    )


def _pack_player(tables: Tables, row: int, player: PlayerData) -> None:
    _fill(tables.players[row : row + 1], _values(player, controls=int(supported_controls(player))))
    for index, (name, action) in enumerate(vars(player.animations).items()):
        if action is not None:
            _fill(tables.actions[row, index : index + 1], {**_blow(player, name), **_values(action)})


def _blow(player: PlayerData, animation: str) -> dict[str, float]:
    """Return the cost and effect of an animation, and the share of stamina that regenerates meanwhile."""
    for group, names in BLOWS.items():
        if animation in names:
            return _values(getattr(player, group), regeneration=0.0)
    return {"regeneration": player.body.regeneration_drinking if animation.startswith("estus") else 1.0}


def _pack_boss(tables: Tables, number: int, row: FightData) -> None:
    boss, transition, stances = row.boss, row.scenario.transition, row.stances
    lengths = [0 if stance is None else frames(stance.length_s) for stance in stances]
    values = _values(
        boss,
        moves=len(boss.moves),
        rear_counter_move=[move.title for move in boss.moves].index(boss.rear.counter),
        enraged_below_hp=boss.enraged.below_hp_ratio * boss.hp_max,
        transition_below_hp=transition.below_hp_ratio * boss.hp_max if transition else -1.0,
    )
    values["parried_frames"], values["thrown_frames"], values["transition_frames"] = lengths[Stance.PARRIED :]
    _fill(tables.bosses[number : number + 1], values)
    for index, stance in enumerate(stances):
        if stance is not None:
            _fill(tables.stances[number, index : index + 1], _values(stance))
    for index, move in enumerate(boss.moves):
        _pack_move(tables, number, index, move, boss)


def _pack_move(tables: Tables, row: int, index: int, move: Move, boss: BossData) -> None:
    values = _values(move, boss.time_factor, windows=len(move.windows))
    if move.enraged_weight < 0:
        values["enraged_weight"] = move.weight
    _fill(tables.moves[row, index : index + 1], values)
    for place, window in enumerate(move.windows):
        struck = _values(window, boss.time_factor)
        struck["damage"] *= boss.damage_factor
        _fill(tables.windows[row, index, place : place + 1], struck)


def _values(data: Any, time_factor: float = 1.0, **further: float) -> dict[str, float]:
    """Return the numbers of some data by their names in a record, and further ones."""
    return {name: value for name, _, value in layout.numbers(type(data), data, time_factor)} | further


def _fill(record: Records, values: Mapping[str, float]) -> None:
    """Set the fields of a record that have a value; the others stay 0."""
    for name in set(record.dtype.names or ()) & values.keys():
        record[name] = values[name]
