"""The player's frame: buffered input, animations, stamina, steps, a status effect; and the camera that follows."""

from __future__ import annotations

from math import acos, cos, floor

import numpy as np

from soulsgraph_envs.core.compiling import compiled, every_frame
from soulsgraph_envs.core.controls import Control
from soulsgraph_envs.core.streams import Seeds
from soulsgraph_envs.simulator.actions import start_buffered, step_towards, take_effect
from soulsgraph_envs.simulator.geometry import Sight, turned, wrapped
from soulsgraph_envs.simulator.layout import (
    BACKSTEP,
    FRAME_S,
    HEAVY_1_START,
    HEAVY_2_START,
    IDLE,
    NOTHING,
    ROLL,
    RUN,
    Action,
    Boss,
    Lane,
    Player,
    Records,
)


@every_frame
def status_frame(lane: Lane, boss: Boss) -> None:
    """Advance the decay of the build-up and the time of slow stamina by one frame."""
    if lane.build_up > 0.0:
        lane.build_up = max(lane.build_up - boss.status_decay_per_s * FRAME_S, 0.0)
    if lane.slowed_frames > 0:
        lane.slowed_frames -= 1


@compiled
def build_up(lane: Lane, player: Player, boss: Boss, amount: float) -> None:
    """Add to the build-up; at the threshold it bursts and restarts at 0."""
    lane.build_up += amount
    if lane.build_up < boss.status_threshold:
        return
    lane.build_up = 0.0
    if not lane.no_damage:
        lane.player_hp = max(lane.player_hp - floor(boss.status_burst_hp_ratio * player.body_hp + 0.5), 0.0)
    lane.slowed_frames, lane.slowed_factor = boss.status_slowed_frames, boss.status_regeneration_factor


_FORWARD = np.uint32(Control.FORWARD)


@every_frame
def player_frame(
    lane: Lane, player: Player, actions: Records, bits: int, target: Sight, streams: Seeds, index: int
) -> None:
    """Advance the player by one frame; `target` is the boss as the player sees it."""
    _count_down(lane, player, actions[lane.animation])
    if lane.buffered != NOTHING:
        start_buffered(lane, player, actions, bits, target)
    action = actions[lane.animation]
    if lane.animation_frame == action.hit_frames:
        take_effect(lane, player, action, target, streams, index)
    _move(lane, player, action, bits, target)
    lane.animation_frame += 1
    if lane.animation_frame >= actions[lane.animation].length_frames:
        lane.animation_frame = 0
        if lane.animation == HEAVY_1_START or lane.animation == HEAVY_2_START:
            lane.animation += 1
        elif lane.animation != RUN:
            lane.animation = IDLE


@every_frame
def _count_down(lane: Lane, player: Player, action: Action) -> None:
    if lane.invulnerable > 0:
        lane.invulnerable -= 1
    if lane.regeneration_wait > 0:
        lane.regeneration_wait -= 1
    else:
        rate = player.body_regeneration_per_s * action.regeneration
        if lane.slowed_frames > 0:
            rate *= lane.slowed_factor
        lane.stamina = min(lane.stamina + rate * FRAME_S, player.body_stamina)


@every_frame
def _move(lane: Lane, player: Player, action: Action, bits: int, target: Sight) -> None:
    if lane.push_frames > 0:
        lane.push_frames -= 1
        lane.player_x += lane.push_x * FRAME_S
        lane.player_y += lane.push_y * FRAME_S
    if lane.animation == ROLL or lane.animation == BACKSTEP:
        speed = player.roll_speed_m_s if lane.animation == ROLL else player.roll_backstep_m_s
        if lane.animation_frame >= player.roll_slow_after_frames:
            speed *= player.roll_slow_factor
        lane.player_x += lane.roll_x * speed * FRAME_S
        lane.player_y += lane.roll_y * speed * FRAME_S
    elif lane.animation_frame < action.hit_frames:
        lane.player_x += lane.roll_x * action.step_m_s * FRAME_S
        lane.player_y += lane.roll_y * action.step_m_s * FRAME_S
    if lane.animation_frame >= action.move_frames:
        _run(lane, player, bits, target)


@every_frame
def _run(lane: Lane, player: Player, bits: int, target: Sight) -> None:
    step = step_towards(lane, bits, target)
    if lane.locked and (step.taken or lane.animation == IDLE):
        lane.player_heading = target.heading
    if (lane.animation == RUN) != step.taken and (step.taken or lane.animation == RUN):
        lane.animation = RUN if step.taken else IDLE
        lane.animation_frame = 0
    if not step.taken:
        return
    speed = player.run_speed_m_s
    if not lane.locked:
        lane.player_heading = step.heading
    elif not bits & _FORWARD:
        speed *= player.run_locked_factor
    lane.player_x += step.x * speed * FRAME_S
    lane.player_y += step.y * speed * FRAME_S


_UP, _DOWN = np.uint32(Control.CAMERA_UP), np.uint32(Control.CAMERA_DOWN)
_LEFT, _RIGHT = np.uint32(Control.CAMERA_LEFT), np.uint32(Control.CAMERA_RIGHT)
_KEYS = np.uint32(Control.CAMERA_UP | Control.CAMERA_DOWN | Control.CAMERA_LEFT | Control.CAMERA_RIGHT)


@compiled
def view_angle(lane: Lane, bearing: float) -> float:
    """Return the angle between the camera and a target on the player's level, Eq. 9."""
    return acos(cos(lane.camera_pitch) * cos(lane.camera_yaw - bearing))


@compiled
def toggle_lock(lane: Lane, player: Player, target: Sight) -> None:
    """Release the lock, take it where view and range allow, or else look where the player faces."""
    if lane.locked:
        lane.locked = 0
    elif (
        target.distance < player.camera_lock_range_m and view_angle(lane, target.heading) < player.camera_lock_view_rad
    ):
        lane.locked = 1
    else:
        lane.camera_yaw = lane.player_heading
        lane.camera_pitch = 0.0


@every_frame
def camera_frame(lane: Lane, player: Player, bits: int, target: Sight) -> None:
    """Advance the camera by one frame; `target` is the boss as the player sees it."""
    if lane.locked and target.distance > player.camera_lock_break_m:
        lane.locked = 0
    if lane.locked:
        most = player.camera_follow_rad_s * FRAME_S
        lane.camera_yaw = turned(lane.camera_yaw, target.heading, most)
        lane.camera_pitch = turned(lane.camera_pitch, 0.0, most)
    elif bits & _KEYS:
        _turn(lane, player, bits)


@compiled
def _turn(lane: Lane, player: Player, bits: int) -> None:
    aside = int((bits & _RIGHT) != 0) - int((bits & _LEFT) != 0)
    upward = int((bits & _UP) != 0) - int((bits & _DOWN) != 0)
    limit = player.camera_pitch_limit_rad
    lane.camera_yaw = wrapped(lane.camera_yaw + aside * player.camera_yaw_rad_s * FRAME_S)
    pitch = lane.camera_pitch + upward * player.camera_pitch_rad_s * FRAME_S
    lane.camera_pitch = min(max(pitch, -limit), limit)
