"""The compiled fight: begin lanes, advance them by a tick, write their raw values, look ahead.

Nothing of a lane is read from another, so a lane's course never depends on how many there are.
"""

from __future__ import annotations

from collections.abc import Callable
from math import cos, inf, pi, sin, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.core import compiling, fighters, seeds, state
from soulsgraph_envs.core.compiling import cached, checksum, compiled, every_frame
from soulsgraph_envs.core.game import ActiveLanes, LaneIndices
from soulsgraph_envs.core.seeds import Seeds, uniform
from soulsgraph_envs.core.state import ALL_CONTROLS, Control, Controls, Raw, RawValues
from soulsgraph_envs.simulator import layout
from soulsgraph_envs.simulator.boss import boss_blow, draw_wait, keep_apart, move_motion, next_hit, stance_frame
from soulsgraph_envs.simulator.layout import (
    FRAME_S,
    NO_MOVE,
    Encounter,
    FightRecords,
    Lane,
    Record,
    Stance,
    Tables,
    heading_to,
    seen_back,
    wrapped,
)
from soulsgraph_envs.simulator.player import boss_seen, camera_frame, player_frame, press, status_frame, toggle_lock

_ROUGHLY_FACING_RAD = 0.5


@compiled
def begin_lane(lane: Lane, encounter: Encounter, player: Record, boss: Record, streams: Seeds, index: int) -> None:
    """Set a lane of zeros to the start of an episode, drawing its poses from the lane's stream."""
    _place(lane, encounter, player, boss, streams, index)
    lane.refill = encounter.refill
    lane.player_hp, lane.stamina, lane.flasks = player.body_hp, player.body_stamina, encounter.flasks
    lane.boss_hp, lane.fp = encounter.boss_hp, player.body_fp
    lane.move, lane.slowed_factor = NO_MOVE, 1.0
    lane.wait = draw_wait(lane, boss, boss_seen(lane).distance, streams, index)


@compiled
def begin_phase(lane: Lane, boss: Record, streams: Seeds, index: int) -> None:
    """Replace the boss by that of the next phase, the scenario's next row, at the same place."""
    lane.scenario += 1
    lane.stance, lane.stance_frame = Stance.STAND, 0
    lane.wait = draw_wait(lane, boss, boss_seen(lane).distance, streams, index)


@compiled
def _any_heading(streams: Seeds, index: int) -> float:
    heading: float = pi * (2.0 * uniform(streams, index) - 1.0)
    return heading


@compiled
def _place(lane: Lane, encounter: Encounter, player: Record, boss: Record, streams: Seeds, index: int) -> None:
    span = encounter.distance_max - encounter.distance_min
    distance = encounter.distance_min + span * uniform(streams, index)
    # The midpoint of the two is uniform over the disc in which both are inside, whatever their bearing.
    room = encounter.radius - player.body_radius_m - boss.radius_m - 0.5 * distance
    away, bearing = _any_heading(streams, index), _any_heading(streams, index)
    offset = max(room, 0.0) * sqrt(uniform(streams, index))
    x, y = encounter.centre_x - sin(away) * offset, encounter.centre_y - cos(away) * offset
    dx, dy = -0.5 * distance * sin(bearing), -0.5 * distance * cos(bearing)
    lane.player_x, lane.player_y = x - dx, y - dy
    lane.boss_x, lane.boss_y = x + dx, y + dy
    if encounter.facing:
        lane.player_heading = lane.camera_yaw = bearing
        lane.camera_pitch = 0.0
        spread = _ROUGHLY_FACING_RAD * (2.0 * uniform(streams, index) - 1.0)
        lane.boss_heading = wrapped(heading_to(-dx, -dy) + spread)
    else:
        lane.player_heading, lane.camera_yaw = _any_heading(streams, index), _any_heading(streams, index)
        lane.camera_pitch = player.camera_pitch_limit_rad * (2.0 * uniform(streams, index) - 1.0)
        lane.boss_heading = _any_heading(streams, index)


@compiled
def write_raw(lane: Lane, tables: Tables, raw: RawValues, index: int) -> None:
    """Fill the lane's row of raw (lanes, 25)."""
    encounter, player = tables.encounters[lane.scenario], tables.players[lane.scenario]
    raw[index, Raw.PLAYER_X], raw[index, Raw.PLAYER_Y] = lane.player_x, lane.player_y
    raw[index, Raw.BOSS_X], raw[index, Raw.BOSS_Y] = lane.boss_x, lane.boss_y
    raw[index, Raw.PLAYER_Z] = raw[index, Raw.BOSS_Z] = encounter.height
    level = cos(lane.camera_pitch)
    raw[index, Raw.CAMERA_X] = -sin(lane.camera_yaw) * level
    raw[index, Raw.CAMERA_Y] = -cos(lane.camera_yaw) * level
    raw[index, Raw.CAMERA_Z] = sin(lane.camera_pitch)
    raw[index, Raw.PLAYER_ANGLE], raw[index, Raw.BOSS_ANGLE] = lane.player_heading, lane.boss_heading
    raw[index, Raw.PLAYER_HP], raw[index, Raw.PLAYER_HP_MAX] = lane.player_hp, player.body_hp
    raw[index, Raw.STAMINA], raw[index, Raw.STAMINA_MAX] = lane.stamina, player.body_stamina
    raw[index, Raw.BOSS_HP], raw[index, Raw.BOSS_HP_MAX] = lane.boss_hp, encounter.boss_hp_full
    raw[index, Raw.LOCKED], raw[index, Raw.FLASKS] = lane.locked, lane.flasks
    if lane.move == NO_MOVE:
        stance = tables.stances[lane.scenario, lane.stance]
        _write_animation(raw, index, Raw.BOSS_ANIMATION, stance.id, lane.stance_frame, stance.length_frames)
    else:
        move = tables.moves[lane.scenario, lane.move]
        _write_animation(raw, index, Raw.BOSS_ANIMATION, move.id, lane.move_frame, move.length_frames)
    action = tables.actions[lane.scenario, lane.animation]
    _write_animation(raw, index, Raw.PLAYER_ANIMATION, action.id, lane.animation_frame, action.length_frames)


@compiled
def _write_animation(raw: RawValues, index: int, column: int, animation: int, frame: int, length: int) -> None:
    raw[index, column] = animation
    raw[index, column + 1] = (frame % length) * FRAME_S
    raw[index, column + 2] = length * FRAME_S


_LOCK_ON, _KNOWN = np.uint32(Control.LOCK_ON), np.uint32(ALL_CONTROLS)
Bytes = npt.NDArray[np.uint8]
Kernel = Callable[..., Any]


class Kernels(NamedTuple):
    """The compiled entry points: `begin`, `advance`, `look_ahead`."""

    begin: Kernel
    advance: Kernel
    look_ahead: Kernel


@compiled
def _records(data: Tables) -> Tables:
    """View byte tables as records, the inverse of `layout.as_bytes`."""
    return Tables(
        data.encounters.view(layout.ENCOUNTER),
        data.players.view(layout.PLAYER),
        data.actions.view(layout.ACTION),
        data.bosses.view(layout.BOSS),
        data.stances.view(layout.ACTION),
        data.moves.view(layout.MOVE),
        data.windows.view(layout.WINDOW),
    )


@every_frame
def _fight_frame(lane: Lane, data: FightRecords, bits: int, streams: Seeds, index: int) -> None:
    encounter, player, actions, boss, moves, windows = data
    target = boss_seen(lane)
    player_frame(lane, player, actions, bits, target, streams, index)
    status_frame(lane, boss)
    if lane.move == NO_MOVE:
        stance_frame(lane, boss, moves, seen_back(target), streams, index)
    if lane.move != NO_MOVE:
        contact = player.body_radius_m + boss.radius_m
        move_motion(lane, boss, moves[lane.move], windows[lane.move, 0], contact, seen_back(target))
    keep_apart(lane, encounter, player, boss, moves)
    if lane.move != NO_MOVE:
        boss_blow(lane, data, streams, index)
    camera_frame(lane, player, bits, target)


@compiled
def _note_changes(lane: Lane, player_hp: float, boss_hp: float, frames: int) -> None:
    lane.player_change_frames += frames
    lane.boss_change_frames += frames
    if lane.player_hp != player_hp:
        lane.player_change, lane.player_change_frames = lane.player_hp - player_hp, 0
    if lane.boss_hp != boss_hp:
        lane.boss_change, lane.boss_change_frames = lane.boss_hp - boss_hp, 0


@compiled
def _tick(lane: Lane, tables: Tables, bits: int, frames: int, streams: Seeds, index: int) -> None:
    scenario = lane.scenario
    encounter, player, boss = tables.encounters[scenario], tables.players[scenario], tables.bosses[scenario]
    data = (encounter, player, tables.actions[scenario], boss, tables.moves[scenario], tables.windows[scenario])
    player_hp, boss_hp = lane.player_hp, lane.boss_hp
    press(lane, player, bits)
    if bits & _LOCK_ON:
        toggle_lock(lane, player, boss_seen(lane))
    for _ in range(frames):
        spots = (lane.player_x, lane.player_y, lane.player_heading, lane.boss_x, lane.boss_y, lane.boss_heading)
        _fight_frame(lane, data, bits, streams, index)
        if lane.no_move:
            lane.player_x, lane.player_y, lane.player_heading, lane.boss_x, lane.boss_y, lane.boss_heading = spots
    _note_changes(lane, player_hp, boss_hp, frames)
    if lane.stance == Stance.TRANSITION and lane.stance_frame >= boss.transition_frames:
        begin_phase(lane, tables.bosses[scenario + 1], streams, index)
    if lane.refill:
        lane.player_hp = player.body_hp
        lane.boss_hp = encounter.boss_hp


def build_kernels(sources: int) -> Kernels:
    """Compile the entry points, cached on disk.

    `sources`, the checksum of every file the code comes from, is enclosed by each of them. Records are
    passed as bytes, whose types numba recognises about ten times as fast in a call.
    """
    options = {"error_model": "numpy", "_nrt": False}

    @cached(**options)
    def begin(
        fights: Bytes, data: Tables, streams: Seeds, raw: RawValues, which: LaneIndices, scenario: int, seeds: Seeds
    ) -> int:
        lanes, tables = fights.view(layout.LANE), _records(data)
        for i in range(len(which)):
            index = which[i]
            fights[index * layout.LANE_SIZE : (index + 1) * layout.LANE_SIZE] = 0
            lane = lanes[index]
            streams[index] = seeds[i]
            lane.scenario = scenario
            begin_lane(
                lane, tables.encounters[scenario], tables.players[scenario], tables.bosses[scenario], streams, index
            )
            write_raw(lane, tables, raw, index)
        return sources

    @cached(**options)
    def advance(
        fights: Bytes, data: Tables, streams: Seeds, raw: RawValues, bits: Controls, active: ActiveLanes, frames: int
    ) -> int:
        """Advance every active lane; return the first lane with an unknown control, nothing advanced, or -1."""
        lanes, tables = fights.view(layout.LANE), _records(data)
        for index in range(len(lanes)):
            if bits[index] & ~_KNOWN:
                return index
        for index in range(len(lanes)):
            if active[index]:
                _tick(lanes[index], tables, bits[index], frames, streams, index)
                write_raw(lanes[index], tables, raw, index)
        return -1 if sources >= 0 else 0

    @cached(**options)
    def look_ahead(fights: Bytes, data: Tables, scratch_fight: Bytes, out: npt.NDArray[np.float64]) -> int:
        lanes, scratch, tables = fights.view(layout.LANE), scratch_fight.view(layout.LANE), _records(data)
        for index in range(len(lanes)):
            out[index, 0] = out[index, 1] = inf
            if lanes[index].move != NO_MOVE:
                scratch[0] = lanes[index]
                out[index, 0], out[index, 1] = next_hit(scratch[0], tables)
        return sources

    return Kernels(begin, advance, look_ahead)


def sources_checksum() -> int:
    """Return a checksum of every source file that goes into the compiled code."""
    modules = (compiling, fighters, seeds, state)
    return checksum([*Path(__file__).parent.glob("*.py"), *(Path(str(module.__file__)) for module in modules)])


KERNELS = build_kernels(sources_checksum())
