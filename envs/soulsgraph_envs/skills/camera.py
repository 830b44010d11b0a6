"""Camera control (C): keep the boss in the middle of the view."""

from __future__ import annotations

from dataclasses import dataclass

from soulsgraph_envs.core.controls import Control
from soulsgraph_envs.core.state import Column
from soulsgraph_envs.skills.base import Action, Amount, ObservationMap, Practice, Reward, RewardTerm, Skill

OBSERVATION = (
    *(Column.DIRECTION_X, Column.DIRECTION_Y, Column.DIRECTION_Z),
    *(Column.CAMERA_X, Column.CAMERA_Y, Column.CAMERA_Z),
    Column.CAMERA_TARGET_ANGLE,
)
ACTIONS = (
    Action("camera_up", holds=Control.CAMERA_UP),
    Action("camera_down", holds=Control.CAMERA_DOWN),
    Action("camera_left", holds=Control.CAMERA_LEFT),
    Action("camera_right", holds=Control.CAMERA_RIGHT),
    Action("idle"),
)


@dataclass(frozen=True)
class CameraReward:
    """Eq. 10: -alpha, and a bonus inside a tolerance (Appendix A.3's option, on by default)."""

    angle_weight: Amount = 1.0
    bonus: Amount = 1.0
    tolerance_rad: Amount = 0.6

    def build(self) -> Reward:
        """Make the terms."""
        terms = [RewardTerm("angle", -self.angle_weight, lambda d: d.after[:, Column.CAMERA_TARGET_ANGLE])]
        if self.bonus:
            tolerance = self.tolerance_rad
            terms.append(
                RewardTerm("aligned", self.bonus, lambda d: d.after[:, Column.CAMERA_TARGET_ANGLE] < tolerance)
            )
        return Reward(tuple(terms))


def camera(reward: CameraReward, hp_window: bool) -> Skill:
    """Make the camera skill (Tables 2 and 3; horizon of Appendix C)."""
    return Skill(
        name="camera",
        symbol="C",
        observation=ObservationMap(OBSERVATION, hp_window),
        actions=ACTIONS,
        reward=reward.build(),
        horizon=128,
        practice=Practice(start="scattered", refill=True),
    )
