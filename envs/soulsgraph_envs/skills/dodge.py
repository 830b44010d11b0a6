"""Dodge (D): survive; roll through the boss's hit windows without wasting stamina."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from soulsgraph_envs.core.controls import Control
from soulsgraph_envs.core.state import Column
from soulsgraph_envs.skills.base import (
    Action,
    Amount,
    ObservationMap,
    Practice,
    Reward,
    RewardTerm,
    Skill,
    StaminaTerm,
    stamina_terms,
)

OBSERVATION = (
    Column.BOSS_ANIMATION,
    Column.BOSS_PROGRESS,
    Column.BOSS_ANGLE,
    Column.PLAYER_ANGLE,
    Column.STAMINA,
    Column.PLAYER_HP,
    Column.DISTANCE,
)
ACTIONS = (Action("dodge", ticks=5, presses=Control.ROLL), Action("idle"))


@dataclass(frozen=True)
class DodgeReward:
    """Eq. 13: alive bonus, HP change, death, stamina.

    The paper's stated maximum of about 10 is 512 decisions at 0.02. The dense stamina change is the
    default; Eq. 13's indicator is the option "indicator".
    """

    alive: Amount = 0.02
    damage: Amount = 5.0
    dead: Amount = 5.0
    stamina: StaminaTerm = "change"
    stamina_threshold: Amount = 0.05

    def build(self) -> Reward:
        """Make the terms."""
        return Reward(
            (
                RewardTerm("alive", self.alive, lambda d: np.ones(len(d.actions), np.float32)),
                RewardTerm("damage", self.damage, lambda d: d.change(Column.PLAYER_HP)),
                RewardTerm("dead", -self.dead, lambda d: d.died),
                *stamina_terms(self.stamina, self.stamina_threshold),
            )
        )


def dodge(reward: DodgeReward, hp_window: bool) -> Skill:
    """Make the dodge skill (Tables 2 and 3; horizon and step durations of Appendix C)."""
    return Skill(
        name="dodge",
        symbol="D",
        observation=ObservationMap(OBSERVATION, hp_window),
        actions=ACTIONS,
        reward=reward.build(),
        horizon=512,
        practice=Practice(start="mid", refill=False),
    )
