"""Pack scenarios with their boss and player data into the record arrays of `layout`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from soulsgraph_envs.catalogue import load_boss, load_player
from soulsgraph_envs.encounter import BossData, PlayerData
from soulsgraph_envs.scenario import Scenario
from soulsgraph_envs.simulator import layout
from soulsgraph_envs.simulator.layout import (
    BOSS_STANCES,
    FRAMES_PER_S,
    PLAYER_ANIMATIONS,
    Records,
    Tables,
    as_bytes,
)


def frames(seconds: float) -> int:
    """Give the nearest whole number of frames; a negative time (never) stays -1."""
    return -1 if seconds < 0 else round(seconds * FRAMES_PER_S)


def pack(scenarios: Sequence[Scenario]) -> Tables:
    """Pack scenarios, in their order, into one set of tables, as bytes."""
    bosses = [load_boss(scenario.boss) for scenario in scenarios]
    count = len(scenarios)
    most_moves = max(len(boss.moves) for boss in bosses)
    most_windows = max(len(move.windows) for boss in bosses for move in boss.moves)
    tables = Tables(
        encounters=np.zeros(count, layout.dtype_of(layout.Encounter)),
        players=np.zeros(count, layout.dtype_of(layout.Player)),
        actions=np.zeros((count, PLAYER_ANIMATIONS), layout.dtype_of(layout.Action)),
        bosses=np.zeros(count, layout.dtype_of(layout.Boss)),
        stances=np.zeros((count, BOSS_STANCES), layout.dtype_of(layout.Action)),
        moves=np.zeros((count, most_moves), layout.dtype_of(layout.Move)),
        windows=np.zeros((count, most_moves, most_windows), layout.dtype_of(layout.Window)),
    )
    for row, (scenario, boss) in enumerate(zip(scenarios, bosses, strict=True)):
        _pack_encounter(tables, row, scenario)
        _pack_player(tables, row, load_player(scenario.player))
        _pack_boss(tables, row, boss)
    return Tables(*map(as_bytes, tables))


def _pack_encounter(tables: Tables, row: int, scenario: Scenario) -> None:
    start = scenario.starts[scenario.start]
    values = {
        "centre_x": scenario.arena.centre_m[0],
        "centre_y": scenario.arena.centre_m[1],
        "height": scenario.arena.height_m,
        "radius": scenario.arena.radius_m,
        "flasks": scenario.flasks,
        "boss_hp": scenario.boss_hp[0],
        "boss_hp_full": scenario.boss_hp_full,
        "distance_min": start.distance_m[0],
        "distance_max": start.distance_m[1],
        "facing": start.facing,
        "refill": scenario.refill,
    }
    _fill(tables.encounters[row : row + 1], values)


def _pack_player(tables: Tables, row: int, player: PlayerData) -> None:
    _fill(tables.players[row : row + 1], dict(_flat(player)))
    for index, field in enumerate(fields(player.animations)):
        action = getattr(player.animations, field.name)
        _fill(tables.actions[row, index : index + 1], dict(_flat(action)))


def _pack_boss(tables: Tables, row: int, boss: BossData) -> None:
    counter = [move.title for move in boss.moves].index(boss.rear.counter)
    values = {**dict(_flat(boss)), "moves": len(boss.moves), "rear_counter_move": counter}
    values["enraged_below_hp"] = boss.enraged.below_hp_ratio * boss.hp_max
    _fill(tables.bosses[row : row + 1], values)
    for index, field in enumerate(fields(boss.animations)):
        stance = dict(_flat(getattr(boss.animations, field.name)))
        bindings = {"attack_frames": 0, "roll_frames": 0, "move_frames": 0, "hit_frames": -1}
        _fill(tables.stances[row, index : index + 1], {**stance, **bindings})
    for index, move in enumerate(boss.moves):
        moved = {**dict(_flat(move, boss.time_factor)), "windows": len(move.windows)}
        moved["enraged_weight"] = move.weight if move.enraged_weight < 0 else move.enraged_weight
        _fill(tables.moves[row, index : index + 1], moved)
        for place, window in enumerate(move.windows):
            struck = dict(_flat(window, boss.time_factor))
            struck["damage"] = window.damage * boss.damage_factor
            _fill(tables.windows[row, index, place : place + 1], struck)


def _flat(data: Any, time_factor: float = 1.0, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Name every number of nested data as the record classes do: groups joined, seconds as frames."""
    for field in fields(data):
        name, value = prefix + field.name, getattr(data, field.name)
        if is_dataclass(value):
            yield from _flat(value, time_factor, f"{name}_")
        elif isinstance(value, tuple) and isinstance(value[0], float):
            yield _number(name, value[0], time_factor, "_min")
            yield _number(name, value[1], time_factor, "_max")
        elif isinstance(value, int | float):
            yield _number(name, value, time_factor)


def _number(name: str, value: float, time_factor: float, suffix: str = "") -> tuple[str, float]:
    for unit in ("_m_s", "_rad_s", "_per_s", "_rad", "_m", "_s"):
        if name.endswith(unit):
            stem = name.removesuffix(unit) + suffix
            return (f"{stem}_frames", frames(value * time_factor)) if unit == "_s" else (stem + unit, value)
    return name + suffix, value


def _fill(record: Records, values: dict[str, Any]) -> None:
    for name in record.dtype.names or ():
        record[name] = values[name]
