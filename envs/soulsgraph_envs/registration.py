"""Registration with Gymnasium, as names only: nothing is imported before an environment is made."""

from __future__ import annotations

import gymnasium


def register_environments() -> None:
    """Register the faces under the namespace `soulsgraph`."""
    gymnasium.register(
        "soulsgraph/Skill-v0",
        entry_point="soulsgraph_envs.skill_env:SkillEnv",
        vector_entry_point="soulsgraph_envs.skill_env:SkillVectorEnv",
    )
    gymnasium.register("soulsgraph/EndToEnd-v0", entry_point="soulsgraph_envs.skill_env:EndToEndEnv")
