"""The status effect of the boss's data on the player: it builds up, decays, bursts."""

from __future__ import annotations

from math import floor

from soulsgraph_envs.simulator.compiling import compiled, every_frame
from soulsgraph_envs.simulator.layout import FRAME_S, Boss, Lane, Player


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
