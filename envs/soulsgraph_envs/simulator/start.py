"""Begin an episode in one lane: poses, facing, full bars."""

from __future__ import annotations

from math import cos, pi, sin, sqrt

from soulsgraph_envs.simulator.boss import draw_wait
from soulsgraph_envs.simulator.compiling import compiled
from soulsgraph_envs.simulator.geometry import heading_to, wrapped
from soulsgraph_envs.simulator.layout import IDLE, NO_MOVE, NOTHING, STAND, Boss, Encounter, Lane, Player
from soulsgraph_envs.streams import Seeds, uniform

_ROUGHLY_FACING_RAD = 0.5


@compiled
def begin_lane(lane: Lane, encounter: Encounter, player: Player, boss: Boss, streams: Seeds, index: int) -> None:
    """Set a lane to the start of an episode, drawing its poses from the lane's stream."""
    _place(lane, encounter, player, boss, streams, index)
    lane.refill = encounter.refill
    lane.player_hp, lane.stamina, lane.flasks = player.body_hp, player.body_stamina, encounter.flasks
    lane.boss_hp, lane.fp = encounter.boss_hp, player.body_fp
    lane.no_attack, lane.no_move, lane.no_damage = 0, 0, 0
    lane.animation, lane.animation_frame = IDLE, 0
    lane.buffered, lane.buffer_frames, lane.regeneration_wait = NOTHING, 0, 0
    lane.invulnerable, lane.push_frames, lane.locked = 0, 0, 0
    lane.roll_x = lane.roll_y = lane.push_x = lane.push_y = lane.leap_x = lane.leap_y = 0.0
    lane.stance, lane.stance_frame, lane.turn_frames = STAND, 0, 0
    lane.move, lane.move_frame, lane.struck, lane.chain_left = NO_MOVE, 0, 0, 0
    lane.build_up, lane.slowed_frames, lane.slowed_factor = 0.0, 0, 1.0
    lane.wait = _draw_wait(lane, boss, streams, index)


@compiled
def begin_phase(lane: Lane, boss: Boss, streams: Seeds, index: int) -> None:
    """Replace the boss by that of the next phase, the scenario's next row, at the same place."""
    lane.scenario += 1
    lane.stance, lane.stance_frame = STAND, 0
    lane.wait = _draw_wait(lane, boss, streams, index)


@compiled
def _draw_wait(lane: Lane, boss: Boss, streams: Seeds, index: int) -> int:
    dx, dy = lane.player_x - lane.boss_x, lane.player_y - lane.boss_y
    return draw_wait(lane, boss, sqrt(dx * dx + dy * dy), streams, index)


@compiled
def _any_heading(streams: Seeds, index: int) -> float:
    heading: float = pi * (2.0 * uniform(streams, index) - 1.0)
    return heading


@compiled
def _place(lane: Lane, encounter: Encounter, player: Player, boss: Boss, streams: Seeds, index: int) -> None:
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
