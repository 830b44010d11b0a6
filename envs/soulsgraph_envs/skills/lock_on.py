"""Target lock-on (L): take the lock when the boss is in view, and keep it."""

from __future__ import annotations

from dataclasses import dataclass

from soulsgraph_envs.core.controls import Control
from soulsgraph_envs.core.state import Column
from soulsgraph_envs.skills.base import Action, Amount, ObservationMap, Practice, Reward, RewardTerm, Skill

OBSERVATION = (Column.CAMERA_TARGET_ANGLE, Column.LOCKED)
ACTIONS = (Action("toggle_lock_on", presses=Control.LOCK_ON), Action("idle"))


@dataclass(frozen=True)
class LockOnReward:
    """Eq. 11: plus one while locked, minus one while not."""

    locked_weight: Amount = 1.0
    unlocked_weight: Amount = 1.0

    def build(self) -> Reward:
        """Make the terms."""
        return Reward(
            (
                RewardTerm("locked", self.locked_weight, lambda d: d.after[:, Column.LOCKED] == 1.0),
                RewardTerm("unlocked", -self.unlocked_weight, lambda d: d.after[:, Column.LOCKED] == 0.0),
            )
        )


def lock_on(reward: LockOnReward, hp_window: bool) -> Skill:
    """Make the lock-on skill (Tables 2 and 3; horizon of Appendix C)."""
    return Skill(
        name="lock_on",
        symbol="L",
        observation=ObservationMap(OBSERVATION, hp_window),
        actions=ACTIONS,
        reward=reward.build(),
        horizon=64,
        practice=Practice(start="scattered", refill=True),
    )
