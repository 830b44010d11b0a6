"""The five skills of the graph and the end-to-end baseline, what a skill is made of, and how one is declared."""

from soulsgraph_envs.skills.paper_skills import END_TO_END, SKILL_NAMES, SkillOptions, load_skill_options, make_skill
from soulsgraph_envs.skills.skill import (
    Action,
    Decisions,
    RewardTerm,
    Skill,
    SkillDefinition,
    Task,
    TrainingScenario,
    budget_of,
    definition_of,
    skill_names,
    training_scenario,
)

__all__ = [
    "END_TO_END",
    "SKILL_NAMES",
    "Action",
    "Decisions",
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
