"""Movement (M): walk to the boss and stay engaged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from soulsgraph_envs.core.controls import Control
from soulsgraph_envs.core.state import Column
from soulsgraph_envs.skills.base import Action, Amount, ObservationMap, Practice, Reward, RewardTerm, Skill

OBSERVATION = (
    *(Column.PLAYER_X, Column.PLAYER_Y, Column.PLAYER_Z),
    *(Column.BOSS_X, Column.BOSS_Y, Column.BOSS_Z),
)
ACTIONS = (
    Action("forward", holds=Control.FORWARD),
    Action("back", holds=Control.BACK),
    Action("left", holds=Control.LEFT),
    Action("right", holds=Control.RIGHT),
    Action("forward_left", holds=Control.FORWARD | Control.LEFT),
    Action("forward_right", holds=Control.FORWARD | Control.RIGHT),
    Action("back_left", holds=Control.BACK | Control.LEFT),
    Action("back_right", holds=Control.BACK | Control.RIGHT),
    Action("idle"),
)
_SIDEWAYS = np.array([action.moves_sideways for action in ACTIONS])


@dataclass(frozen=True)
class MovementReward:
    """Eq. 12: -d / 10, and a bonus for circling close by (Appendix A.3's option, off by default).

    The paper gives no d_min for circling; 4 m is just outside the reach of a light attack.
    """

    distance_weight: Amount = 0.1
    circling: Amount = 0.0
    circling_distance_m: Amount = 4.0

    def build(self) -> Reward:
        """Make the terms."""
        terms = [RewardTerm("distance", -self.distance_weight, lambda d: d.after[:, Column.DISTANCE])]
        if self.circling:
            near = self.circling_distance_m
            terms.append(
                RewardTerm(
                    "circling", self.circling, lambda d: (d.after[:, Column.DISTANCE] < near) & _SIDEWAYS[d.actions]
                )
            )
        return Reward(tuple(terms))


def movement(reward: MovementReward, hp_window: bool) -> Skill:
    """Make the movement skill (Tables 2 and 3; horizon of Appendix C)."""
    return Skill(
        name="movement",
        symbol="M",
        observation=ObservationMap(OBSERVATION, hp_window),
        actions=ACTIONS,
        reward=reward.build(),
        horizon=128,
        practice=Practice(start="scattered", refill=True),
    )
