"""Vordt of the Boreal Valley, who builds up frost."""

from __future__ import annotations

from typing import Unpack

from soulsgraph_envs.soulsgym.boss_env import BossEnv, checked_phase
from soulsgraph_envs.soulsgym.data import load_fight
from soulsgraph_envs.soulsgym.game_state import GameState
from soulsgraph_envs.soulsgym.reward import fight_reward
from soulsgraph_envs.soulsgym.souls_env import Options


class VordtEnv(BossEnv):
    """One phase of Vordt from his full HP to nothing: calm in phase 1, raging in phase 2.

    Raises:
        InvalidGameSettings: for a phase other than 1 and 2, and as `SoulsEnv`.
    """

    def __init__(
        self, game_speed: float = 1.0, phase: int = 1, skip_steps: bool = False, **options: Unpack[Options]
    ) -> None:
        self.phase = checked_phase(phase)
        super().__init__(game_speed, skip_steps, **options)
        self.prepare("vordt", f"vordt-phase{self.phase}")

    @staticmethod
    def compute_reward(game_state: GameState, next_game_state: GameState) -> float:
        """Give SoulsGym's reward of a fight, about the middle of Vordt's arena."""
        return fight_reward(game_state, next_game_state, load_fight("vordt").reward_centre_m)
