"""The player's frame: presses wait in a buffer and begin animations, blows land, flasks heal, the camera follows."""

from __future__ import annotations

from math import acos, cos, floor, sin, sqrt
from typing import NamedTuple

import numpy as np

from soulsgraph_envs.core.compiling import compiled, every_frame
from soulsgraph_envs.core.seeds import Seeds, uniform
from soulsgraph_envs.core.state import Control
from soulsgraph_envs.simulator.layout import (
    FRAME_S,
    Lane,
    PlayerPose,
    Record,
    Records,
    Sight,
    Stance,
    Want,
    sight,
    turned,
    wrapped,
)

_FORWARD, _BACK = np.uint32(Control.FORWARD), np.uint32(Control.BACK)
_LEFT, _RIGHT = np.uint32(Control.LEFT), np.uint32(Control.RIGHT)
#: The first of these controls that is pressed is wanted.
_PRESSED = np.array(
    [
        (Control.ROLL, Want.ROLL),
        (Control.LIGHT_ATTACK, Want.ATTACK),
        (Control.USE_ITEM, Want.ITEM),
        (Control.HEAVY_ATTACK, Want.HEAVY),
        (Control.WEAPON_ART, Want.WEAPON_ART),
        (Control.PARRY, Want.PARRY),
        (Control.JUMP, Want.JUMP),
    ],
    np.uint32,
)
_DIAGONAL = sqrt(0.5)
#: How far right of straight ahead a step leads: rows back, none, ahead; columns left, none, right.
_HEADINGS = np.pi * np.array([[-0.75, 1.0, 0.75], [-0.5, 0.0, 0.5], [-0.25, 0.0, 0.25]])


class Step(NamedTuple):
    """A unit step, its heading, and whether there is one."""

    x: float
    y: float
    heading: float
    taken: bool


@every_frame
def boss_seen(lane: Lane) -> Sight:
    """Return the boss as the player sees it."""
    return sight(lane.boss_x - lane.player_x, lane.boss_y - lane.player_y)


@compiled
def press(lane: Lane, player: Record, bits: int) -> None:
    """Put a tick's press into the one-slot buffer; a waiting roll is replaced only by another roll."""
    for row in range(len(_PRESSED)):
        control, want = _PRESSED[row, 0], _PRESSED[row, 1]
        if bits & player.controls & control:
            if lane.buffered != Want.ROLL or want == Want.ROLL:
                lane.buffered, lane.buffer_frames = want, player.body_buffer_frames
            return


@every_frame
def step_towards(lane: Lane, bits: int, target: Sight) -> Step:
    """Return the step of the movement controls: ahead is towards the boss under lock, else where the camera looks."""
    ahead = int((bits & _FORWARD) != 0) - int((bits & _BACK) != 0)
    aside = int((bits & _RIGHT) != 0) - int((bits & _LEFT) != 0)
    if ahead == 0 and aside == 0:
        return Step(0.0, 0.0, 0.0, False)
    if lane.locked:
        yaw, x, y = target.heading, target.x, target.y
    else:
        yaw, x, y = lane.camera_yaw, -sin(lane.camera_yaw), -cos(lane.camera_yaw)
    scale = _DIAGONAL if ahead != 0 and aside != 0 else 1.0
    heading = wrapped(yaw + _HEADINGS[1 + ahead, 1 + aside])
    return Step(scale * (ahead * x + aside * y), scale * (ahead * y - aside * x), heading, True)


@every_frame
def invulnerable(lane: Lane, player: Record) -> bool:
    """Return whether a blow would pass through the player in the frame that `player_frame` just counted."""
    rolling = lane.animation == PlayerPose.ROLL and lane.animation_frame <= player.roll_invulnerable_frames
    return rolling or lane.invulnerable > 0 or lane.animation == PlayerPose.RIPOSTE


@compiled
def above(lane: Lane, player: Record, actions: Records) -> bool:
    """Return whether the player is in the air, so that a low blow passes below."""
    airborne = player.jump_airborne_frames < lane.animation_frame <= actions[PlayerPose.JUMP].hit_frames
    return bool(lane.animation == PlayerPose.JUMP and airborne)


@compiled
def parrying(lane: Lane, player: Record, target: Sight) -> bool:
    """Return whether the player would parry a parryable blow; `target` is the boss as the player sees it."""
    if lane.animation != PlayerPose.PARRY:
        return False
    facing = abs(wrapped(target.heading - lane.player_heading)) <= player.parry_facing_rad
    return bool(facing and player.parry_window_min_frames < lane.animation_frame <= player.parry_window_max_frames)


@compiled
def open_to_counter(lane: Lane) -> bool:
    """Return whether the player is caught striking, drinking or in a parry that failed."""
    return (
        PlayerPose.LIGHT_1 <= lane.animation <= PlayerPose.ESTUS_EMPTY
        or PlayerPose.HEAVY_1_START <= lane.animation <= PlayerPose.PARRY
    )


@compiled
def start_buffered(lane: Lane, player: Record, actions: Records, bits: int, target: Sight) -> None:
    """Begin the buffered action as soon as the present animation and stamina allow; drop it when it waits too long."""
    wanted, frame, action = lane.buffered, lane.animation_frame, actions[lane.animation]
    rolls = wanted in (Want.ROLL, Want.JUMP)
    if frame >= (action.roll_frames if rolls else action.attack_frames):
        if wanted == Want.ITEM:
            _start(lane, PlayerPose.ESTUS if lane.flasks > 0 else PlayerPose.ESTUS_EMPTY)
        elif lane.stamina > 0.0:
            _start_wanted(lane, player, actions, bits, target)
    lane.buffer_frames -= 1
    if lane.buffer_frames <= 0:
        lane.buffered = Want.NOTHING


@compiled
def _start_wanted(lane: Lane, player: Record, actions: Records, bits: int, target: Sight) -> None:
    step, wanted = step_towards(lane, bits, target), lane.buffered
    if wanted == Want.ROLL:
        _start_roll(lane, step, target)
    elif wanted == Want.JUMP:
        _start_jump(lane, step)
    elif wanted == Want.WEAPON_ART and lane.fp < player.weapon_art_fp_cost:
        return
    else:
        _start_blow(lane, player, wanted, step, target)
    lane.stamina -= actions[lane.animation].cost
    lane.regeneration_wait = player.body_regeneration_delay_frames


@compiled
def _start(lane: Lane, animation: int) -> None:
    lane.animation, lane.animation_frame, lane.buffered = animation, 0, Want.NOTHING


@compiled
def _start_roll(lane: Lane, step: Step, target: Sight) -> None:
    if step.taken:
        _start(lane, PlayerPose.ROLL)
        lane.player_heading = step.heading
        lane.roll_x, lane.roll_y = step.x, step.y
    else:
        _start(lane, PlayerPose.BACKSTEP)
        if lane.locked:
            lane.player_heading = target.heading
        lane.roll_x, lane.roll_y = sin(lane.player_heading), cos(lane.player_heading)


@compiled
def _start_jump(lane: Lane, step: Step) -> None:
    _start(lane, PlayerPose.JUMP)
    if step.taken:
        lane.player_heading = step.heading
    lane.roll_x, lane.roll_y = -sin(lane.player_heading), -cos(lane.player_heading)


@compiled
def _start_blow(lane: Lane, player: Record, wanted: int, step: Step, target: Sight) -> None:
    lane.roll_x, lane.roll_y = step.x, step.y
    following = _blow(lane, player, wanted, target)
    if lane.locked or following == PlayerPose.RIPOSTE:
        lane.player_heading = target.heading
    if following == PlayerPose.WEAPON_ART:
        lane.roll_x, lane.roll_y = -sin(lane.player_heading), -cos(lane.player_heading)
        lane.fp -= player.weapon_art_fp_cost
    elif following == PlayerPose.RIPOSTE:
        lane.stance, lane.stance_frame = Stance.THROWN, 0
    _start(lane, following)


@compiled
def _blow(lane: Lane, player: Record, wanted: int, target: Sight) -> int:
    """Return the animation that a blow begins, which depends on the animation before it."""
    if wanted == Want.PARRY:
        return PlayerPose.PARRY
    if wanted == Want.WEAPON_ART:
        return PlayerPose.WEAPON_ART
    if wanted == Want.HEAVY:
        return PlayerPose.HEAVY_2_START if lane.animation == PlayerPose.HEAVY_1 else PlayerPose.HEAVY_1_START
    faces = lane.locked or abs(wrapped(target.heading - lane.player_heading)) <= player.parry_facing_rad
    if faces and lane.stance == Stance.PARRIED and target.distance <= player.parry_reach_m:
        return PlayerPose.RIPOSTE
    if lane.animation == PlayerPose.ROLL:
        return PlayerPose.ROLLING_ATTACK
    return int(lane.animation + 1) if PlayerPose.LIGHT_1 <= lane.animation < PlayerPose.LIGHT_3 else PlayerPose.LIGHT_1


@compiled
def take_effect(lane: Lane, player: Record, action: Record, target: Sight, streams: Seeds, index: int) -> None:
    """Apply the effect of the present animation: a flask heals, a blow lands on a boss within reach."""
    if lane.animation == PlayerPose.ESTUS:
        lane.flasks -= 1
        lane.player_hp = min(lane.player_hp + player.estus_heal, player.body_hp)
        return
    facing = abs(wrapped(target.heading - lane.player_heading)) <= action.facing_rad
    if facing and target.distance <= action.reach_m:
        spread = action.damage_max - action.damage_min
        damage = floor(action.damage_min + spread * uniform(streams, index) + 0.5)
        if not lane.no_damage:
            lane.boss_hp = max(lane.boss_hp - damage, 0.0)


@every_frame
def status_frame(lane: Lane, boss: Record) -> None:
    """Advance the decay of the build-up and the time of slow stamina by one frame."""
    if lane.build_up > 0.0:
        lane.build_up = max(lane.build_up - boss.status_decay_per_s * FRAME_S, 0.0)
    if lane.slowed_frames > 0:
        lane.slowed_frames -= 1


@compiled
def build_up(lane: Lane, player: Record, boss: Record, amount: float) -> None:
    """Add to the build-up; at the threshold it bursts and restarts at 0."""
    lane.build_up += amount
    if lane.build_up < boss.status_threshold:
        return
    lane.build_up = 0.0
    if not lane.no_damage:
        lane.player_hp = max(lane.player_hp - floor(boss.status_burst_hp_ratio * player.body_hp + 0.5), 0.0)
    lane.slowed_frames, lane.slowed_factor = boss.status_slowed_frames, boss.status_regeneration_factor


@every_frame
def player_frame(
    lane: Lane, player: Record, actions: Records, bits: int, target: Sight, streams: Seeds, index: int
) -> None:
    """Advance the player by one frame; `target` is the boss as the player sees it."""
    _count_down(lane, player, actions[lane.animation])
    if lane.buffered != Want.NOTHING:
        start_buffered(lane, player, actions, bits, target)
    action = actions[lane.animation]
    if lane.animation_frame == action.hit_frames:
        take_effect(lane, player, action, target, streams, index)
    _move(lane, player, action, bits, target)
    lane.animation_frame += 1
    if lane.animation_frame >= actions[lane.animation].length_frames:
        lane.animation_frame = 0
        if lane.animation == PlayerPose.HEAVY_1_START or lane.animation == PlayerPose.HEAVY_2_START:
            lane.animation += 1
        elif lane.animation != PlayerPose.RUN:
            lane.animation = PlayerPose.IDLE


@every_frame
def _count_down(lane: Lane, player: Record, action: Record) -> None:
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
def _move(lane: Lane, player: Record, action: Record, bits: int, target: Sight) -> None:
    if lane.push_frames > 0:
        lane.push_frames -= 1
        lane.player_x += lane.push_x * FRAME_S
        lane.player_y += lane.push_y * FRAME_S
    if lane.animation == PlayerPose.ROLL or lane.animation == PlayerPose.BACKSTEP:
        speed = player.roll_speed_m_s if lane.animation == PlayerPose.ROLL else player.roll_backstep_m_s
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
def _run(lane: Lane, player: Record, bits: int, target: Sight) -> None:
    step = step_towards(lane, bits, target)
    if lane.locked and (step.taken or lane.animation == PlayerPose.IDLE):
        lane.player_heading = target.heading
    if (lane.animation == PlayerPose.RUN) != step.taken and (step.taken or lane.animation == PlayerPose.RUN):
        lane.animation = PlayerPose.RUN if step.taken else PlayerPose.IDLE
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


_LOOK_UP, _LOOK_DOWN = np.uint32(Control.CAMERA_UP), np.uint32(Control.CAMERA_DOWN)
_LOOK_LEFT, _LOOK_RIGHT = np.uint32(Control.CAMERA_LEFT), np.uint32(Control.CAMERA_RIGHT)
_LOOK = _LOOK_UP | _LOOK_DOWN | _LOOK_LEFT | _LOOK_RIGHT


@compiled
def toggle_lock(lane: Lane, player: Record, target: Sight) -> None:
    """Release the lock, take it where view and range allow, or else look where the player faces."""
    if lane.relock_frames > 0:
        return
    if lane.locked:
        lane.locked, lane.relock_frames = 0, player.camera_relock_frames
        return
    # The angle between the camera and a target on the player's level, Eq. 9.
    view = acos(cos(lane.camera_pitch) * cos(lane.camera_yaw - target.heading))
    if target.distance < player.camera_lock_range_m and view < player.camera_lock_view_rad:
        lane.locked = 1
    else:
        lane.camera_yaw = lane.player_heading
        lane.camera_pitch = 0.0


@every_frame
def camera_frame(lane: Lane, player: Record, bits: int, target: Sight) -> None:
    """Advance the camera by one frame; `target` is the boss as the player sees it."""
    if lane.relock_frames > 0:
        lane.relock_frames -= 1
    if lane.locked and target.distance > player.camera_lock_break_m:
        lane.locked = 0
    if lane.locked:
        most = player.camera_follow_rad_s * FRAME_S
        lane.camera_yaw = turned(lane.camera_yaw, target.heading, most)
        lane.camera_pitch = turned(lane.camera_pitch, 0.0, most)
    elif bits & _LOOK:
        _turn(lane, player, bits)


@compiled
def _turn(lane: Lane, player: Record, bits: int) -> None:
    aside = int((bits & _LOOK_RIGHT) != 0) - int((bits & _LOOK_LEFT) != 0)
    upward = int((bits & _LOOK_UP) != 0) - int((bits & _LOOK_DOWN) != 0)
    limit = player.camera_pitch_limit_rad
    lane.camera_yaw = wrapped(lane.camera_yaw + aside * player.camera_yaw_rad_s * FRAME_S)
    pitch = lane.camera_pitch + upward * player.camera_pitch_rad_s * FRAME_S
    lane.camera_pitch = min(max(pitch, -limit), limit)
