"""EldenGym's reward functions: one class each, `calculate` for the reward and `is_done` for the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from soulsgraph_envs.compat.eldengym.errors import OptionError

Info = Mapping[str, Any]


class RewardFunction(ABC):
    """Reward one step by its observation and info; `prev_info` is that of the step before, None at first."""

    @abstractmethod
    def calculate(self, obs: Any, info: Info, prev_info: Info | None = None) -> float:
        """Return the step's reward."""

    @abstractmethod
    def is_done(self, obs: Any, info: Info) -> bool:
        """Return whether the fight is over."""


class _FightReward(RewardFunction):
    """A fight that is over when the player or the boss is dead."""

    def is_done(self, obs: Any, info: Info) -> bool:
        """Return whether the player or the boss is dead."""
        return bool(_of(info, "player_hp_normalized") <= 0 or _of(info, "boss_hp_normalized") <= 0)


@dataclass(eq=False)
class ScoreDeltaReward(_FightReward):
    """Reward the change of one number of the info, and the end of the fight."""

    score_key: str = "player_hp_normalized"
    win_bonus: float = 100.0
    loss_penalty: float = -100.0

    def calculate(self, obs: Any, info: Info, prev_info: Info | None = None) -> float:
        """Return the change of the score.

        Raises:
            OptionError: if the info has no such number; EldenGym 0.6.0 takes it for 0 in silence.
        """
        if prev_info is None:
            return 0.0
        change = _of(info, self.score_key) - _of(prev_info, self.score_key)
        return change + _end(info, self.win_bonus, self.loss_penalty)


@dataclass(eq=False)
class BossDefeatReward(_FightReward):
    """Reward only the end of the fight, with a small penalty for every step."""

    boss_defeat_reward: float = 1.0
    player_death_penalty: float = -1.0
    time_penalty: float = -0.001

    def calculate(self, obs: Any, info: Info, prev_info: Info | None = None) -> float:
        """Return the time penalty and, at the end, the bonus of the end."""
        return self.time_penalty + _end(info, self.boss_defeat_reward, self.player_death_penalty)


@dataclass(eq=False)
class CustomReward(_FightReward):
    """Reward the player's HP, damage to the boss, staying alive and the end of the fight, weighted."""

    hp_delta_weight: float = 1.0
    boss_damage_weight: float = 0.5
    survival_bonus: float = 0.01
    win_bonus: float = 100.0
    loss_penalty: float = -100.0

    def calculate(self, obs: Any, info: Info, prev_info: Info | None = None) -> float:
        """Return the weighted sum; HP as shares of the full bars."""
        if prev_info is None:
            return 0.0
        healed = _of(info, "player_hp_normalized") - _of(prev_info, "player_hp_normalized")
        dealt = _of(prev_info, "boss_hp_normalized") - _of(info, "boss_hp_normalized")
        alive = self.survival_bonus if _of(info, "player_hp_normalized") > 0 else 0.0
        end = _end(info, self.win_bonus, self.loss_penalty)
        return self.hp_delta_weight * healed + self.boss_damage_weight * dealt + alive + end


def _end(info: Info, victory: float, defeat: float) -> float:
    if _of(info, "boss_hp_normalized") <= 0:
        return victory
    return defeat if _of(info, "player_hp_normalized") <= 0 else 0.0


def _of(info: Info, key: str) -> float:
    if key not in info:
        raise OptionError(
            f"reward: expected {key!r} in the info, found {', '.join(sorted(info))}: use one of these, or "
            "read the attributes it is made of."
        )
    return float(info[key])
