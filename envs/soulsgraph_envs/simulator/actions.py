"""The player's actions: presses wait in a buffer, then begin an animation; blows land and flasks heal."""

from __future__ import annotations

from math import cos, floor, sin, sqrt
from typing import NamedTuple

import numpy as np

from soulsgraph_envs.core.compiling import compiled, every_frame
from soulsgraph_envs.core.controls import Control
from soulsgraph_envs.core.streams import Seeds, uniform
from soulsgraph_envs.simulator.geometry import Sight, wrapped
from soulsgraph_envs.simulator.layout import (
    BACKSTEP,
    ESTUS,
    ESTUS_EMPTY,
    HEAVY_1,
    HEAVY_1_START,
    HEAVY_2_START,
    JUMP,
    LIGHT_1,
    LIGHT_3,
    NOTHING,
    PARRIED,
    PARRY,
    RIPOSTE,
    ROLL,
    ROLLING_ATTACK,
    THROWN,
    WANT_ATTACK,
    WANT_HEAVY,
    WANT_ITEM,
    WANT_JUMP,
    WANT_PARRY,
    WANT_ROLL,
    WANT_WEAPON_ART,
    WEAPON_ART,
    Action,
    Lane,
    Player,
    Records,
)

_FORWARD, _BACK = np.uint32(Control.FORWARD), np.uint32(Control.BACK)
_LEFT, _RIGHT = np.uint32(Control.LEFT), np.uint32(Control.RIGHT)
_ROLL, _ATTACK = np.uint32(Control.ROLL), np.uint32(Control.LIGHT_ATTACK)
_ITEM, _HEAVY = np.uint32(Control.USE_ITEM), np.uint32(Control.HEAVY_ATTACK)
_ART, _PARRY, _JUMP = np.uint32(Control.WEAPON_ART), np.uint32(Control.PARRY), np.uint32(Control.JUMP)
_DIAGONAL = sqrt(0.5)
#: How far right of straight ahead a step leads: rows back, none, ahead; columns left, none, right.
_HEADINGS = np.pi * np.array([[-0.75, 1.0, 0.75], [-0.5, 0.0, 0.5], [-0.25, 0.0, 0.25]])


class Step(NamedTuple):
    """A unit step, its heading, and whether there is one."""

    x: float
    y: float
    heading: float
    taken: bool


@compiled
def press(lane: Lane, player: Player, bits: int) -> None:
    """Put a tick's press into the one-slot buffer; a waiting roll is replaced only by another roll."""
    want, bits = NOTHING, bits & player.controls
    if bits & _ROLL:
        want = WANT_ROLL
    elif bits & _ATTACK:
        want = WANT_ATTACK
    elif bits & _ITEM:
        want = WANT_ITEM
    elif bits & _HEAVY:
        want = WANT_HEAVY
    elif bits & _ART:
        want = WANT_WEAPON_ART
    elif bits & _PARRY:
        want = WANT_PARRY
    elif bits & _JUMP:
        want = WANT_JUMP
    if want == NOTHING or (lane.buffered == WANT_ROLL and want != WANT_ROLL):
        return
    lane.buffered = want
    lane.buffer_frames = player.body_buffer_frames


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
def invulnerable(lane: Lane, player: Player) -> bool:
    """Return whether a blow would pass through the player in the frame that `player_frame` just counted."""
    rolling = lane.animation == ROLL and lane.animation_frame <= player.roll_invulnerable_frames
    return rolling or lane.invulnerable > 0 or lane.animation == RIPOSTE


@compiled
def above(lane: Lane, player: Player, actions: Records) -> bool:
    """Return whether the player is in the air, so that a low blow passes below."""
    airborne = player.jump_airborne_frames < lane.animation_frame <= actions[JUMP].hit_frames
    return bool(lane.animation == JUMP and airborne)


@compiled
def parrying(lane: Lane, player: Player, target: Sight) -> bool:
    """Return whether the player would parry a parryable blow; `target` is the boss as the player sees it."""
    if lane.animation != PARRY:
        return False
    facing = abs(wrapped(target.heading - lane.player_heading)) <= player.parry_facing_rad
    return bool(facing and player.parry_window_min_frames < lane.animation_frame <= player.parry_window_max_frames)


@compiled
def open_to_counter(lane: Lane) -> bool:
    """Return whether the player is caught striking, drinking or in a parry that failed."""
    return LIGHT_1 <= lane.animation <= ESTUS_EMPTY or HEAVY_1_START <= lane.animation <= PARRY


@compiled
def start_buffered(lane: Lane, player: Player, actions: Records, bits: int, target: Sight) -> None:
    """Begin the buffered action as soon as the present animation and stamina allow; drop it when it waits too long."""
    wanted, frame, action = lane.buffered, lane.animation_frame, actions[lane.animation]
    rolls = wanted in (WANT_ROLL, WANT_JUMP)
    if frame >= (action.roll_frames if rolls else action.attack_frames):
        if wanted == WANT_ITEM:
            _start(lane, ESTUS if lane.flasks > 0 else ESTUS_EMPTY)
        elif lane.stamina > 0.0:
            _start_wanted(lane, player, actions, bits, target)
    lane.buffer_frames -= 1
    if lane.buffer_frames <= 0:
        lane.buffered = NOTHING


@compiled
def _start_wanted(lane: Lane, player: Player, actions: Records, bits: int, target: Sight) -> None:
    step, wanted = step_towards(lane, bits, target), lane.buffered
    if wanted == WANT_ROLL:
        _start_roll(lane, step, target)
    elif wanted == WANT_JUMP:
        _start_jump(lane, step)
    elif wanted == WANT_WEAPON_ART and lane.fp < player.weapon_art_fp_cost:
        return
    else:
        _start_blow(lane, player, wanted, step, target)
    lane.stamina -= actions[lane.animation].cost
    lane.regeneration_wait = player.body_regeneration_delay_frames


@compiled
def _start(lane: Lane, animation: int) -> None:
    lane.animation = animation
    lane.animation_frame = 0
    lane.buffered = NOTHING


@compiled
def _start_roll(lane: Lane, step: Step, target: Sight) -> None:
    if step.taken:
        _start(lane, ROLL)
        lane.player_heading = step.heading
        lane.roll_x, lane.roll_y = step.x, step.y
    else:
        _start(lane, BACKSTEP)
        if lane.locked:
            lane.player_heading = target.heading
        lane.roll_x, lane.roll_y = sin(lane.player_heading), cos(lane.player_heading)


@compiled
def _start_jump(lane: Lane, step: Step) -> None:
    _start(lane, JUMP)
    if step.taken:
        lane.player_heading = step.heading
    lane.roll_x, lane.roll_y = -sin(lane.player_heading), -cos(lane.player_heading)


@compiled
def _start_blow(lane: Lane, player: Player, wanted: int, step: Step, target: Sight) -> None:
    lane.roll_x, lane.roll_y = step.x, step.y
    following = _blow(lane, player, wanted, target)
    if lane.locked or following == RIPOSTE:
        lane.player_heading = target.heading
    if following == WEAPON_ART:
        lane.roll_x, lane.roll_y = -sin(lane.player_heading), -cos(lane.player_heading)
        lane.fp -= player.weapon_art_fp_cost
    elif following == RIPOSTE:
        lane.stance, lane.stance_frame = THROWN, 0
    _start(lane, following)


@compiled
def _blow(lane: Lane, player: Player, wanted: int, target: Sight) -> int:
    """Return the animation that a blow begins, which depends on the animation before it."""
    if wanted == WANT_PARRY:
        return PARRY
    if wanted == WANT_WEAPON_ART:
        return WEAPON_ART
    if wanted == WANT_HEAVY:
        return HEAVY_2_START if lane.animation == HEAVY_1 else HEAVY_1_START
    if lane.stance == PARRIED and target.distance <= player.parry_reach_m:
        facing = lane.locked or abs(wrapped(target.heading - lane.player_heading)) <= player.parry_facing_rad
        if facing:
            return RIPOSTE
    if lane.animation == ROLL:
        return ROLLING_ATTACK
    return int(lane.animation + 1) if LIGHT_1 <= lane.animation < LIGHT_3 else LIGHT_1


@compiled
def take_effect(lane: Lane, player: Player, action: Action, target: Sight, streams: Seeds, index: int) -> None:
    """Apply the effect of the present animation: a flask heals, a blow lands on a boss within reach."""
    if lane.animation == ESTUS:
        lane.flasks -= 1
        lane.player_hp = min(lane.player_hp + player.estus_heal, player.body_hp)
        return
    facing = abs(wrapped(target.heading - lane.player_heading)) <= action.facing_rad
    if facing and target.distance <= action.reach_m:
        spread = action.damage_max - action.damage_min
        damage = floor(action.damage_min + spread * uniform(streams, index) + 0.5)
        if not lane.no_damage:
            lane.boss_hp = max(lane.boss_hp - damage, 0.0)
