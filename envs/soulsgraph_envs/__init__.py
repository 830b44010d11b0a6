"""The world of the fight: state, controls, games, skills as tasks, and Gymnasium faces, registered by name only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from soulsgraph_envs.core.machine import stand_in_for_home

#: Every shipped skill has an id of its own, by which a command line names it. The skills themselves are not imported.
_SKILLS = ("camera", "lock_on", "movement", "dodge", "heal_attack", "end_to_end")
_SOULSGYM = {
    "SoulsGymIudex-v0": "IudexEnv",
    "SoulsGymIudexImg-v0": "IudexImgEnv",
    "SoulsGymIudexDemo-v0": "IudexEnvDemo",
    "SoulsGymVordt-v0": "VordtEnv",
}


def id_of(skill: str) -> str:
    """Return the id of a skill's environment: `soulsgraph/LockOn-v0` for lock_on."""
    return f"soulsgraph/{skill.title().replace('_', '')}-v0"


def register_skill(skill: str, upstream: Sequence[str] | None = None) -> None:
    """Register a skill's environment, `id_of(skill)`; scripts play those `upstream`."""
    _register_lanes(
        id_of(skill), "skill_env:Skill", {"skill": skill} | ({} if upstream is None else {"upstream": tuple(upstream)})
    )


def _register_lanes(id: str, faces: str, keywords: dict[str, Any]) -> None:
    entry_point = f"soulsgraph_envs.gym.{faces}"
    spec = EnvSpec(id, f"{entry_point}Env", kwargs=keywords, vector_entry_point=f"{entry_point}VectorEnv")
    gymnasium.registry[id] = spec


def register_environments() -> None:
    """Register the environments under the namespace `soulsgraph`."""
    _register_lanes("soulsgraph/Skill-v0", "skill_env:Skill", {})
    _register_lanes("soulsgraph/Continual-v0", "continual_env:Continual", {})
    for skill in _SKILLS:
        register_skill(skill)
    _register_under_both("EldenGym-v0", "soulsgraph_envs.compat.eldengym.env:EldenGymEnv")
    for id, name in _SOULSGYM.items():
        _register_under_both(id, f"soulsgraph_envs.compat.soulsgym:{name}", max_episode_steps=3000)


def _register_under_both(id: str, entry_point: str, max_episode_steps: int | None = None) -> None:
    """Register another project's environment under our namespace, and under its own id if that is free."""
    for found in (f"soulsgraph/{id}", id):
        if found not in gymnasium.registry:
            gymnasium.register(found, entry_point=entry_point, max_episode_steps=max_episode_steps)


stand_in_for_home()
register_environments()
