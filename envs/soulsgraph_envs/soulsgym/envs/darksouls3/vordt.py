"""Vordt of the Boreal Valley, who builds up frost."""

from __future__ import annotations

from typing import Unpack

from soulsgraph_envs.soulsgym.core.game_state import GameState
from soulsgraph_envs.soulsgym.data import load_fight
from soulsgraph_envs.soulsgym.envs.boss_env import BossEnv, checked_phase
from soulsgraph_envs.soulsgym.envs.soulsenv import Options
from soulsgraph_envs.soulsgym.observation import fight_reward

_FIGHT = load_fight("vordt")
#: What SoulsGym calls the state of this fight.
VordtState = GameState


class VordtEnv(BossEnv):
    """One phase of Vordt from his full HP to nothing: calm in phase 1, raging in phase 2.

    Raises:
        InvalidGameSettings: for a phase other than 1 and 2, and as `SoulsEnv`.
    """

    ENV_ID = "vordt"
    BONFIRE, CAM_SETUP_POSE = _FIGHT.bonfire, list(_FIGHT.camera)
    ARENA_LIM_LOW, ARENA_LIM_HIGH = _FIGHT.limits
    VORDT_MAX_HP = 1328

    def __init__(
        self, game_speed: float = 1.0, phase: int = 1, skip_steps: bool = False, **options: Unpack[Options]
    ) -> None:
        self.phase = checked_phase(phase)
        super().__init__(game_speed, skip_steps, **options)
        self.prepare(f"vordt-phase{self.phase}")

    @staticmethod
    def compute_reward(game_state: GameState, next_game_state: GameState) -> float:
        """Return SoulsGym's reward, which has no term for the place in Vordt's arena."""
        return fight_reward(game_state, next_game_state, _FIGHT.reward_centre_m)
