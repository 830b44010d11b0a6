"""Heal-attack (H): strike when it is safe, drink when it is needed, else wait."""

from __future__ import annotations

from dataclasses import dataclass

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
    Column.PLAYER_ANIMATION,
    Column.PLAYER_PROGRESS,
    Column.STAMINA,
    Column.PLAYER_HP,
    Column.BOSS_HP,
    Column.BOSS_ANGLE,
    Column.PLAYER_ANGLE,
    Column.FLASKS,
    Column.DISTANCE,
)
LIGHT_ATTACK = Action("light_attack", ticks=2, presses=Control.LIGHT_ATTACK)
HEAL = Action("heal", ticks=3, presses=Control.USE_ITEM, ticks_when_empty=5)
ACTIONS = (LIGHT_ATTACK, HEAL, Action("idle"))


@dataclass(frozen=True)
class HealAttackReward:
    """Eq. 14: HP change, boss HP change, death, success; no stamina term by default.

    The paper speaks of a maximum of about 15. With the boss HP column as HP / 1037, Eq. 14 gives
    15 x (1037 - 622) / 1037 + 5 = 11.0 in Phase 1 and 15 x 500 / 1037 + 5 = 12.2 in Phase 2; measured
    in the scenario's HP window it would give 20. Eq. 14 with HP / 1037 is kept.
    """

    damage: Amount = 5.0
    hit: Amount = 15.0
    dead: Amount = 5.0
    success: Amount = 5.0
    stamina: StaminaTerm = "none"
    stamina_threshold: Amount = 0.05

    def build(self) -> Reward:
        """Make the terms."""
        return Reward(
            (
                RewardTerm("damage", self.damage, lambda d: d.change(Column.PLAYER_HP)),
                RewardTerm("hit", -self.hit, lambda d: d.change(Column.BOSS_HP)),
                RewardTerm("dead", -self.dead, lambda d: d.died),
                RewardTerm("success", self.success, lambda d: d.won),
                *stamina_terms(self.stamina, self.stamina_threshold),
            )
        )


def heal_attack(reward: HealAttackReward, hp_window: bool) -> Skill:
    """Make the heal-attack skill (Tables 2 and 3; horizon and step durations of Appendix C)."""
    return Skill(
        name="heal_attack",
        symbol="H",
        observation=ObservationMap(OBSERVATION, hp_window),
        actions=ACTIONS,
        reward=reward.build(),
        horizon=1024,
        practice=Practice(start="mid", refill=False),
    )
