"""Registration with Gymnasium, called by Gymnasium itself through the package's entry point."""

from __future__ import annotations

import gymnasium


def register_environments() -> None:
    """Register the faces under Gymnasium's namespace `soulsgraph` (the entry point's name)."""
    gymnasium.register(
        "Skill-v0",
        entry_point="soulsgraph_envs.skill_env:SkillEnv",
        vector_entry_point="soulsgraph_envs.skill_env:SkillVectorEnv",
    )
    gymnasium.register("EndToEnd-v0", entry_point="soulsgraph_envs.skill_env:EndToEndEnv")
