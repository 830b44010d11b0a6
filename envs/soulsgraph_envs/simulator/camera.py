"""The third-person camera: keys turn it, the lock makes it follow, a failed lock re-centres it."""

from __future__ import annotations

from math import acos, cos

import numpy as np

from soulsgraph_envs.controls import Control
from soulsgraph_envs.simulator.compiling import compiled, every_frame
from soulsgraph_envs.simulator.geometry import Sight, turned, wrapped
from soulsgraph_envs.simulator.layout import FRAME_S, Lane, Player

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
