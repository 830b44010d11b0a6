"""Make a project unknown again, as in a process that has not loaded it."""

import sys

import gymnasium

from soulsgraph_envs import id_of
from soulsgraph_envs.combat.scripted import REFERENCES
from soulsgraph_envs.skills.skill import forget
from soulsgraph_policies.agents import projects


def forget_project(name: str) -> None:
    """Make a project and its skills unknown again, and let its modules be imported anew."""
    loaded = projects._LOADED.pop(name)
    for own in loaded.project.skills:
        forget(own.definition.name)
        gymnasium.registry.pop(id_of(own.definition.name), None)
        REFERENCES.pop(own.definition.name, None)
    for module in [one.__name__ for one in projects.modules_of(loaded)]:
        sys.modules.pop(module, None)
