"""Vordt of the Boreal Valley, who builds up frost."""

from soulsgraph_envs.compat.soulsgym.core.fights import load_fight
from soulsgraph_envs.compat.soulsgym.core.game_state import GameState
from soulsgraph_envs.compat.soulsgym.envs.soulsenv import BossEnv

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
