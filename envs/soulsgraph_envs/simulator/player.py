"""The player's frame: buffered input, animations, stamina, blows, drinks and steps."""

from __future__ import annotations

from math import cos, floor, sin, sqrt
from typing import NamedTuple

import numpy as np

from soulsgraph_envs.controls import Control
from soulsgraph_envs.simulator.compiling import compiled, every_frame
from soulsgraph_envs.simulator.geometry import Sight, wrapped
from soulsgraph_envs.simulator.layout import (
    BACKSTEP,
    ESTUS,
    ESTUS_EMPTY,
    FRAME_S,
    IDLE,
    LIGHT_1,
    LIGHT_3,
    NOTHING,
    ROLL,
    ROLLING_ATTACK,
    RUN,
    WANT_ATTACK,
    WANT_ITEM,
    WANT_ROLL,
    Action,
    Lane,
    Player,
    Records,
)
from soulsgraph_envs.streams import Seeds, uniform

_FORWARD, _BACK = np.uint32(Control.FORWARD), np.uint32(Control.BACK)
_LEFT, _RIGHT = np.uint32(Control.LEFT), np.uint32(Control.RIGHT)
_ROLL, _ATTACK = np.uint32(Control.ROLL), np.uint32(Control.LIGHT_ATTACK)
_ITEM = np.uint32(Control.USE_ITEM)
_DIAGONAL = sqrt(0.5)
#: How far right of straight ahead a step leads: rows back, none, ahead; columns left, none, right.
_HEADINGS = np.pi * np.array([[-0.75, 1.0, 0.75], [-0.5, 0.0, 0.5], [-0.25, 0.0, 0.25]])


class Step(NamedTuple):
    """A unit step, the heading it leads to, and whether there is one at all."""

    x: float
    y: float
    heading: float
    taken: bool


@compiled
def press(lane: Lane, player: Player, bits: int) -> None:
    """Put a tick's press into the one-slot buffer; a waiting roll gives way to nothing but a roll."""
    want = NOTHING
    if bits & _ROLL:
        want = WANT_ROLL
    elif bits & _ATTACK:
        want = WANT_ATTACK
    elif bits & _ITEM:
        want = WANT_ITEM
    if want == NOTHING or (lane.buffered == WANT_ROLL and want != WANT_ROLL):
        return
    lane.buffered = want
    lane.buffer_frames = player.body_buffer_frames


@every_frame
def step_towards(lane: Lane, bits: int, target: Sight) -> Step:
    """Give the step the movement controls mean: ahead is the boss under lock, else where the camera looks."""
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
    """Tell whether a blow would pass through the player in the frame that `player_frame` just counted."""
    rolling = lane.animation == ROLL and lane.animation_frame <= player.roll_invulnerable_frames
    return rolling or lane.invulnerable > 0


@compiled
def open_to_counter(lane: Lane) -> bool:
    """Tell whether the player is caught striking or drinking."""
    return LIGHT_1 <= lane.animation <= ESTUS_EMPTY


@every_frame
def player_frame(
    lane: Lane, player: Player, actions: Records, bits: int, target: Sight, streams: Seeds, index: int
) -> None:
    """Advance the player by one frame; `target` is the boss as the player sees it."""
    _count_down(lane, player)
    if lane.buffered != NOTHING:
        _start_buffered(lane, player, actions, bits, target)
    action = actions[lane.animation]
    if lane.animation_frame == action.hit_frames:
        _take_effect(lane, player, target, streams, index)
    _move(lane, player, action, bits, target)
    lane.animation_frame += 1
    if lane.animation_frame >= actions[lane.animation].length_frames:
        lane.animation_frame = 0
        if lane.animation != RUN:
            lane.animation = IDLE


@every_frame
def _count_down(lane: Lane, player: Player) -> None:
    if lane.invulnerable > 0:
        lane.invulnerable -= 1
    if lane.regeneration_wait > 0:
        lane.regeneration_wait -= 1
    elif not ROLL <= lane.animation <= ROLLING_ATTACK:
        rate = player.body_regeneration_per_s
        if lane.animation == ESTUS or lane.animation == ESTUS_EMPTY:
            rate *= player.body_regeneration_drinking
        if lane.slowed_frames > 0:
            rate *= lane.slowed_factor
        lane.stamina = min(lane.stamina + rate * FRAME_S, player.body_stamina)


@compiled
def _start_buffered(lane: Lane, player: Player, actions: Records, bits: int, target: Sight) -> None:
    action, frame = actions[lane.animation], lane.animation_frame
    if lane.buffered == WANT_ROLL:
        if frame >= action.roll_frames and lane.stamina > 0.0:
            _start_roll(lane, player, bits, target)
    elif frame >= action.attack_frames:
        if lane.buffered == WANT_ITEM:
            _start(lane, ESTUS if lane.flasks > 0 else ESTUS_EMPTY)
        elif lane.stamina > 0.0:
            _start_attack(lane, player, bits, target)
    lane.buffer_frames -= 1
    if lane.buffer_frames <= 0:
        lane.buffered = NOTHING


@compiled
def _start(lane: Lane, animation: int) -> None:
    lane.animation = animation
    lane.animation_frame = 0
    lane.buffered = NOTHING


@compiled
def _pay(lane: Lane, player: Player, cost: float) -> None:
    lane.stamina -= cost
    lane.regeneration_wait = player.body_regeneration_delay_frames


@compiled
def _start_roll(lane: Lane, player: Player, bits: int, target: Sight) -> None:
    step = step_towards(lane, bits, target)
    if step.taken:
        _start(lane, ROLL)
        lane.player_heading = step.heading
        lane.roll_x, lane.roll_y = step.x, step.y
    else:
        _start(lane, BACKSTEP)
        if lane.locked:
            lane.player_heading = target.heading
        lane.roll_x, lane.roll_y = sin(lane.player_heading), cos(lane.player_heading)
    _pay(lane, player, player.roll_cost)


@compiled
def _start_attack(lane: Lane, player: Player, bits: int, target: Sight) -> None:
    if lane.animation == ROLL:
        following = ROLLING_ATTACK
    elif LIGHT_1 <= lane.animation < LIGHT_3:
        following = lane.animation + 1
    else:
        following = LIGHT_1
    step = step_towards(lane, bits, target)
    lane.roll_x, lane.roll_y = step.x, step.y
    _start(lane, following)
    if lane.locked:
        lane.player_heading = target.heading
    _pay(lane, player, player.attack_cost)


@compiled
def _take_effect(lane: Lane, player: Player, target: Sight, streams: Seeds, index: int) -> None:
    if lane.animation == ESTUS:
        lane.flasks -= 1
        lane.player_hp = min(lane.player_hp + player.estus_heal, player.body_hp)
        return
    facing = abs(wrapped(target.heading - lane.player_heading)) <= player.attack_facing_rad
    if facing and target.distance <= player.attack_reach_m:
        spread = player.attack_damage_max - player.attack_damage_min
        damage = floor(player.attack_damage_min + spread * uniform(streams, index) + 0.5)
        lane.boss_hp = max(lane.boss_hp - damage, 0.0)


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
    if LIGHT_1 <= lane.animation <= ROLLING_ATTACK and lane.animation_frame < action.hit_frames:
        lane.player_x += lane.roll_x * player.attack_step_m_s * FRAME_S
        lane.player_y += lane.roll_y * player.attack_step_m_s * FRAME_S
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
