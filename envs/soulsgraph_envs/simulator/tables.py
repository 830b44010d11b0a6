"""Pack scenarios with their boss and player data into the record arrays of `layout`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple, get_type_hints

import numpy as np

from soulsgraph_envs.core.fighters import BossData, Move, PlayerData
from soulsgraph_envs.core.scenario import Scenario, Transition, load_boss, load_player, supported_controls
from soulsgraph_envs.simulator import layout
from soulsgraph_envs.simulator.layout import (
    BOSS_STANCES,
    FRAMES_PER_S,
    PARRIED,
    PLAYER_ANIMATIONS,
    Records,
    Tables,
    as_bytes,
)

#: The animations that each group of a player's data pays for.
_BLOWS = {
    "roll": ("roll", "backstep"),
    "attack": ("light_1", "light_2", "light_3", "rolling_attack"),
    "heavy": ("heavy_1_start", "heavy_1", "heavy_2_start", "heavy_2"),
    "weapon_art": ("weapon_art",),
    "parry": ("parry", "riposte"),
    "jump": ("jump",),
}
_NO_BLOW = {"cost": 0.0, "regeneration": 1.0} | dict.fromkeys(
    ("damage_min", "damage_max", "reach_m", "facing_rad", "step_m_s"), 0.0
)
_UNBOUND = {"attack_frames": 0, "roll_frames": 0, "move_frames": 0, "hit_frames": -1}
#: The numbers of the groups that a player need not have.
_WITHOUT_GROUPS = {
    name: 0 for name in get_type_hints(layout.Player) if name.startswith(("weapon_art", "parry", "jump"))
}


def frames(seconds: float) -> int:
    """Return the nearest whole number of frames; a negative time (never) stays -1."""
    return -1 if seconds < 0 else round(seconds * FRAMES_PER_S)


class Row(NamedTuple):
    """One row of the tables: a scenario, or a phase of one, with the data it names."""

    scenario: Scenario
    player: PlayerData
    boss: BossData


def load_row(scenario: Scenario) -> Row:
    """Load the data that a scenario names."""
    return Row(scenario, load_player(scenario.player), load_boss(scenario.boss))


def pack(rows: Sequence[Row]) -> Tables:
    """Pack scenarios, in their order, into one set of tables, as bytes."""
    count = len(rows)
    most_moves = max(len(row.boss.moves) for row in rows)
    most_windows = max(len(move.windows) for row in rows for move in row.boss.moves)
    tables = Tables(
        encounters=np.zeros(count, layout.dtype_of(layout.Encounter)),
        players=np.zeros(count, layout.dtype_of(layout.Player)),
        actions=np.zeros((count, PLAYER_ANIMATIONS), layout.dtype_of(layout.Action)),
        bosses=np.zeros(count, layout.dtype_of(layout.Boss)),
        stances=np.zeros((count, BOSS_STANCES), layout.dtype_of(layout.Action)),
        moves=np.zeros((count, most_moves), layout.dtype_of(layout.Move)),
        windows=np.zeros((count, most_moves, most_windows), layout.dtype_of(layout.Window)),
    )
    for number, (scenario, player, boss) in enumerate(rows):
        _pack_encounter(tables, number, scenario)
        _pack_player(tables, number, player)
        _pack_boss(tables, number, boss, scenario.transition)
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
    values = {**_WITHOUT_GROUPS, **dict(_flat(player)), "controls": int(supported_controls(player))}
    _fill(tables.players[row : row + 1], values)
    for index, field in enumerate(fields(player.animations)):
        action = getattr(player.animations, field.name)
        if action is not None:
            _fill(tables.actions[row, index : index + 1], {**_blow(player, field.name), **dict(_flat(action))})


def _blow(player: PlayerData, animation: str) -> dict[str, float]:
    """Return the cost and effect of an animation, and the share of stamina that regenerates meanwhile."""
    if animation.startswith("estus"):
        return {**_NO_BLOW, "regeneration": player.body.regeneration_drinking}
    group = next((group for group, names in _BLOWS.items() if animation in names), None)
    return {**_NO_BLOW, **dict(_flat(getattr(player, group))), "regeneration": 0.0} if group else _NO_BLOW


def _pack_boss(tables: Tables, row: int, boss: BossData, transition: Transition | None) -> None:
    counter = [move.title for move in boss.moves].index(boss.rear.counter)
    values = {**dict(_flat(boss)), "moves": len(boss.moves), "rear_counter_move": counter}
    values["enraged_below_hp"] = boss.enraged.below_hp_ratio * boss.hp_max
    values["transition_below_hp"] = transition.below_hp_ratio * boss.hp_max if transition else -1.0
    stances = [*vars(boss.animations).values(), transition.animation if transition else None]
    lengths = [0 if stance is None else frames(stance.length_s) for stance in stances]
    values["parried_frames"], values["thrown_frames"], values["transition_frames"] = lengths[PARRIED:]
    _fill(tables.bosses[row : row + 1], values)
    for index, stance in enumerate(stances):
        if stance is not None:
            _fill(tables.stances[row, index : index + 1], {**_NO_BLOW, **_UNBOUND, **dict(_flat(stance))})
    for index, move in enumerate(boss.moves):
        _pack_move(tables, row, index, move, boss)


def _pack_move(tables: Tables, row: int, index: int, move: Move, boss: BossData) -> None:
    values = {**dict(_flat(move, boss.time_factor)), "windows": len(move.windows)}
    values["enraged_weight"] = move.weight if move.enraged_weight < 0 else move.enraged_weight
    _fill(tables.moves[row, index : index + 1], values)
    for place, window in enumerate(move.windows):
        struck = dict(_flat(window, boss.time_factor))
        struck["damage"] = window.damage * boss.damage_factor
        _fill(tables.windows[row, index, place : place + 1], struck)


def _flat(data: Any, time_factor: float = 1.0, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Return the numbers of nested data by the names of the record classes: groups joined, seconds as frames."""
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
