"""The player's frame: buffered input, animations, stamina and steps."""

from __future__ import annotations

import numpy as np

from soulsgraph_envs.controls import Control
from soulsgraph_envs.simulator.actions import start_buffered, step_towards, take_effect
from soulsgraph_envs.simulator.compiling import every_frame
from soulsgraph_envs.simulator.geometry import Sight
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
    Lane,
    Player,
    Records,
)
from soulsgraph_envs.streams import Seeds

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
