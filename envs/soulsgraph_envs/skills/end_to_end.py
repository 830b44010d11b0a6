"""The atomic baseline of Appendix B: one policy over all 25 columns and 16 merged actions."""

from __future__ import annotations

from soulsgraph_envs.core.controls import Control
from soulsgraph_envs.core.state import Column
from soulsgraph_envs.skills import camera, heal_attack, lock_on
from soulsgraph_envs.skills.base import Action, ObservationMap, Practice, Skill
from soulsgraph_envs.skills.heal_attack import HealAttackReward

_CARDINALS = (
    ("forward", Control.FORWARD),
    ("back", Control.BACK),
    ("left", Control.LEFT),
    ("right", Control.RIGHT),
)
ACTIONS = (
    *(Action(name, holds=direction) for name, direction in _CARDINALS),
    *(Action(f"dodge_{name}", ticks=5, holds=direction, presses=Control.ROLL) for name, direction in _CARDINALS),
    *camera.ACTIONS[:4],
    lock_on.ACTIONS[0],
    heal_attack.LIGHT_ATTACK,
    heal_attack.HEAL,
    Action("idle"),
)


def end_to_end(reward: HealAttackReward, hp_window: bool) -> Skill:
    """Make the baseline (Appendix B): heal-attack's reward, each action with its skill's duration."""
    return Skill(
        name="end_to_end",
        symbol="E",
        observation=ObservationMap(tuple(Column), hp_window),
        actions=ACTIONS,
        reward=reward.build(),
        horizon=2048,
        practice=Practice(start="mid", refill=False),
    )
