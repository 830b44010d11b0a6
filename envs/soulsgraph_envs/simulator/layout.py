"""What the compiled functions share: the records of a lane and of the data, names for their numbers, plane geometry.

All times in the records are whole frames. A heading a faces (-sin a, -cos a), and grows to the right. Scenarios with
their boss and player data are packed into arrays of these records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from enum import IntEnum
from functools import cache
from math import pi, sqrt
from types import UnionType
from typing import Any, NamedTuple, TypeAlias, get_args, get_type_hints

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.core.compiling import every_frame
from soulsgraph_envs.core.scenario import (
    BLOWS,
    Animation,
    Attack,
    BossData,
    HitWindow,
    Move,
    PlayerAction,
    PlayerData,
    Scenario,
    load_boss,
    load_player,
    supported_controls,
)

FRAMES_PER_S = 60
FRAME_S = 1.0 / FRAMES_PER_S
#: `Lane.move` between moves.
NO_MOVE = -1

Records = npt.NDArray[Any]


class PlayerPose(IntEnum):
    """The player's animations in the order of `PlayerAnimations`."""

    IDLE, RUN, ROLL, BACKSTEP, LIGHT_1, LIGHT_2, LIGHT_3, ROLLING_ATTACK, ESTUS, ESTUS_EMPTY = range(10)
    STAGGER, KNOCKDOWN, HEAVY_1_START, HEAVY_1, HEAVY_2_START, HEAVY_2 = range(10, 16)
    WEAPON_ART, PARRY, RIPOSTE, JUMP = range(16, 20)


class Want(IntEnum):
    """What the one-slot input buffer holds."""

    NOTHING, ITEM, ATTACK, ROLL, HEAVY, WEAPON_ART, PARRY, JUMP = range(8)


class Stance(IntEnum):
    """The boss's stances between moves, in the order of `BossAnimations`, then the change of phase.

    From `PARRIED` on it is bound: it does nothing of its own until they end.
    """

    STAND, APPROACH, BACK_OFF, TURN, PARRIED, THROWN, TRANSITION = range(7)


class Lane:
    """One fight."""

    scenario: int
    refill: int
    player_x: float
    player_y: float
    player_heading: float
    player_hp: float
    stamina: float
    regeneration_wait: int
    animation: int
    animation_frame: int
    roll_x: float
    roll_y: float
    invulnerable: int
    push_x: float
    push_y: float
    push_frames: int
    buffered: int
    buffer_frames: int
    flasks: int
    camera_yaw: float
    camera_pitch: float
    locked: int
    relock_frames: int
    boss_x: float
    boss_y: float
    boss_heading: float
    boss_hp: float
    stance: int
    stance_frame: int
    move: int
    move_frame: int
    struck: int
    chain_left: int
    wait: int
    turn_frames: int
    leap_x: float
    leap_y: float
    build_up: float
    slowed_frames: int
    slowed_factor: float
    fp: float
    #: Set from outside a fight: the boss begins no move, nobody leaves the spot or turns, nobody loses HP.
    no_attack: int
    no_move: int
    no_damage: int
    #: For pictures: the last tick's change of HP that was not 0, above 0 for a flask, and the frames since then.
    player_change: float
    player_change_frames: int
    boss_change: float
    boss_change_frames: int


class Encounter(NamedTuple):
    """A scenario's own numbers."""

    centre_x: float
    centre_y: float
    height: float
    radius: float
    flasks: int
    boss_hp: float
    boss_hp_full: float
    distance_min: float
    distance_max: float
    facing: int
    refill: int


def frames(seconds: float) -> int:
    """Return the nearest whole number of frames; a negative time (never) stays -1."""
    return -1 if seconds < 0 else round(seconds * FRAMES_PER_S)


#: One number of a record: its name, its type, and its value in the data, 0 without data.
Number = tuple[str, type, float]
_hints = cache(get_type_hints)


def numbers(cls: type, data: Any = None, time_factor: float = 1.0, prefix: str = "") -> Iterator[Number]:
    """Yield the numbers of a class of `core.scenario`, and of the groups in it but for the animations.

    Names join those of groups and keys; a pair ends in `_min` and `_max`, before the unit. Seconds become frames.
    """
    for key, hint in _hints(cls).items():
        kind = get_args(hint)[0] if isinstance(hint, UnionType) else hint
        name, value = prefix + key, getattr(data, key, None)
        if isinstance(kind, type) and is_dataclass(kind) and key != "animations":
            yield from numbers(kind, value, time_factor, f"{name}_")
        elif kind == tuple[float, float]:
            for end, one in zip(("_min", "_max"), value or (0.0, 0.0), strict=True):
                yield _number(name, float, one, time_factor, end)
        elif kind in (int, float, bool):
            yield _number(name, kind, value or 0, time_factor)


def _number(name: str, kind: type, value: float, time_factor: float, end: str = "") -> Number:
    for unit in ("_m_s", "_rad_s", "_per_s", "_rad", "_m", "_s"):
        if name.endswith(unit):
            stem = name.removesuffix(unit) + end
            if unit == "_s":
                return f"{stem}_frames", int, frames(value * time_factor)
            return stem + unit, kind, value
    return name + end, kind, value


def _dtype(names: Iterable[tuple[str, type]]) -> np.dtype[np.void]:
    """Make a record layout of int64 and float64 fields.

    Scalars of it have their fields as attributes, so that the code also runs without being compiled.
    """
    return np.dtype((np.record, [(name, np.float64 if kind is float else np.int64) for name, kind in names]))


def _data_dtype(*classes: type, **further: type) -> np.dtype[np.void]:
    """Make the record layout of classes of `core.scenario`, with further fields."""
    names = {name: kind for cls in classes for name, kind, _ in numbers(cls)}
    return _dtype({**names, **further}.items())


LANE, ENCOUNTER = _dtype(get_type_hints(Lane).items()), _dtype(get_type_hints(Encounter).items())
LANE_SIZE = LANE.itemsize
#: `controls` are the bits of `Control` that this player answers to.
PLAYER = _data_dtype(PlayerData, controls=int)
#: An animation of the player, with its blow if it is one, or a stance of the boss (id and length alone). `regeneration`
#: is the share of stamina that comes back meanwhile. Until `hit_frames` it carries the player at `step_m_s`.
ACTION = _data_dtype(PlayerAction, Attack, regeneration=float)
#: A missing stance takes 0 frames; a missing transition is at an HP below 0.
_STANCES = {"parried_frames": int, "thrown_frames": int, "transition_frames": int, "transition_below_hp": float}
BOSS = _data_dtype(BossData, moves=int, rear_counter_move=int, enraged_below_hp=float, **_STANCES)
#: A move, its times already stretched by the boss's time factor.
MOVE = _data_dtype(Move, windows=int)
#: A hit window, its damage already scaled by the boss's damage factor.
WINDOW = _data_dtype(HitWindow)
#: One row of any of these; the type checker does not know its fields.
Record: TypeAlias = np.record


class Tables(NamedTuple):
    """All scenarios' data as record arrays; the first axis is the scenario, or a phase of one.

    encounters, players, bosses (s,); actions (s, 20); stances (s, 7); moves (s, moves);
    windows (s, moves, windows). A scenario with a transition is followed by its next phase.
    """

    encounters: Records
    players: Records
    actions: Records
    bosses: Records
    stances: Records
    moves: Records
    windows: Records


#: One scenario's rows: encounter, player, its actions, boss, its moves, their windows.
FightRecords = tuple[Encounter, Record, Records, Record, Records, Records]


def as_bytes(records: Records) -> Records:
    """View records as bytes: the last axis grows by the record's size, the memory is shared."""
    return records.view(np.uint8)


#: Coefficients of the square's seventh-highest power downwards, after the two that begin the series.
_ARCTANGENT = (0.0429096138, -0.0752896400, 0.1065626393, -0.1420889944, 0.1999355085, -0.3333314528)


class Sight(NamedTuple):
    """One fighter as seen by the other: heading, distance in metres, unit vector."""

    heading: float
    distance: float
    x: float
    y: float


@every_frame
def sight(dx: float, dy: float) -> Sight:
    """Return the sight along (dx, dy)."""
    distance = sqrt(dx * dx + dy * dy)
    scale = 1.0 / distance if distance > 0.0 else 0.0
    return Sight(heading_to(dx, dy), distance, dx * scale, dy * scale)


@every_frame
def seen_back(seen: Sight) -> Sight:
    """Return the same line seen from its other end."""
    return Sight(wrapped(seen.heading + pi), seen.distance, -seen.x, -seen.y)


@every_frame
def heading_to(dx: float, dy: float) -> float:
    """Return the heading that faces along (dx, dy), in [-pi, pi], to within 2e-8 rad.

    The arctangent on [0, 1] is Abramowitz and Stegun's polynomial 4.4.49, folded out over the
    circle: the library's own takes an eighth of a frame.
    """
    across, along = abs(dx), abs(dy)
    longer = max(across, along)
    if longer == 0.0:
        return 0.0
    ratio = min(across, along) / longer
    square = ratio * ratio
    series = -0.0161657367 + 0.0028662257 * square
    for coefficient in _ARCTANGENT:
        series = coefficient + series * square
    angle = ratio * (1.0 + series * square)
    if across > along:
        angle = 0.5 * pi - angle
    if dy > 0.0:
        angle = pi - angle
    return -angle if dx > 0.0 else angle


@every_frame
def wrapped(angle_rad: float) -> float:
    """Wrap the sum or difference of two headings into [-pi, pi]."""
    if angle_rad > pi:
        return angle_rad - 2.0 * pi
    if angle_rad < -pi:
        return angle_rad + 2.0 * pi
    return angle_rad


@every_frame
def turned(heading_rad: float, goal_rad: float, most_rad: float) -> float:
    """Turn a heading towards another by at most an angle."""
    offset = wrapped(goal_rad - heading_rad)
    if offset > most_rad:
        offset = most_rad
    elif offset < -most_rad:
        offset = -most_rad
    return wrapped(heading_rad + offset)


@every_frame
def clamped(x: float, y: float, radius: float) -> tuple[float, float]:
    """Return the nearest point of the disc of that radius around the origin."""
    squared = x * x + y * y
    if squared <= radius * radius:
        return x, y
    factor = radius / sqrt(squared)
    return x * factor, y * factor


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
        encounters=np.zeros(count, ENCOUNTER),
        players=np.zeros(count, PLAYER),
        actions=np.zeros((count, len(PlayerPose)), ACTION),
        bosses=np.zeros(count, BOSS),
        stances=np.zeros((count, len(Stance)), ACTION),
        moves=np.zeros((count, most_moves), MOVE),
        windows=np.zeros((count, most_moves, most_windows), WINDOW),
    )
    for number, row in enumerate(rows):
        tables.encounters[number] = _encounter(row.scenario)
        _pack_player(tables, number, row.player)
        _pack_boss(tables, number, row)
    return Tables(*map(as_bytes, tables))


def _encounter(scenario: Scenario) -> Encounter:
    arena, start = scenario.arena, scenario.starts[scenario.start]
    placed = (*arena.centre_m, arena.height_m, arena.radius_m, scenario.flasks)
    return Encounter(
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
    return {name: value for name, _, value in numbers(type(data), data, time_factor)} | further


def _fill(record: Records, values: Mapping[str, float]) -> None:
    """Set the fields of a record that have a value; the others stay 0."""
    for name in set(record.dtype.names or ()) & values.keys():
        record[name] = values[name]
