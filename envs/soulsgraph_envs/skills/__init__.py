"""The five skills of the graph and the end-to-end baseline, what a skill is made of, and how one is declared."""

from soulsgraph_envs.skills.base import (
    Action,
    Decisions,
    Mirror,
    RewardTerm,
    Skill,
    TrainingScenario,
    training_scenario,
)
from soulsgraph_envs.skills.definition import SkillDefinition, Task, budget_of, definition_of, skill_names
from soulsgraph_envs.skills.paper_skills import END_TO_END, SKILL_NAMES, SkillOptions, load_skill_options, make_skill

__all__ = [
    "END_TO_END",
    "SKILL_NAMES",
    "Action",
    "Decisions",
    "Mirror",
    "RewardTerm",
    "Skill",
    "SkillDefinition",
    "SkillOptions",
    "Task",
    "TrainingScenario",
    "budget_of",
    "definition_of",
    "load_skill_options",
    "make_skill",
    "skill_names",
    "training_scenario",
]
