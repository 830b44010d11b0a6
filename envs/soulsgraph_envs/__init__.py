"""The world of the fight: state, controls, games, skills as tasks, and Gymnasium faces, registered by name only."""

from __future__ import annotations

import gymnasium

from soulsgraph_envs.core.user import stand_in_for_home

_SOULSGYM = {
    "SoulsGymIudex-v0": "IudexEnv",
    "SoulsGymIudexImg-v0": "IudexImgEnv",
    "SoulsGymIudexDemo-v0": "IudexEnvDemo",
    "SoulsGymVordt-v0": "VordtEnv",
}


def register_environments() -> None:
    """Register the faces under the namespace `soulsgraph`."""
    gymnasium.register(
        "soulsgraph/Skill-v0",
        entry_point="soulsgraph_envs.gym.skill_env:SkillEnv",
        vector_entry_point="soulsgraph_envs.gym.skill_env:SkillVectorEnv",
    )
    gymnasium.register("soulsgraph/EndToEnd-v0", entry_point="soulsgraph_envs.gym.skill_env:EndToEndEnv")
    _register_under_both("EldenGym-v0", "soulsgraph_envs.eldengym.env:EldenGymEnv")
    for id, name in _SOULSGYM.items():
        _register_under_both(id, f"soulsgraph_envs.soulsgym:{name}", max_episode_steps=3000)


def _register_under_both(id: str, entry_point: str, max_episode_steps: int | None = None) -> None:
    """Register another project's environment under our namespace, and under its own id if that is free."""
    for found in (f"soulsgraph/{id}", id):
        if found not in gymnasium.registry:
            gymnasium.register(found, entry_point=entry_point, max_episode_steps=max_episode_steps)


stand_in_for_home()
register_environments()
