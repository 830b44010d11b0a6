"""The five skills of the graph and the end-to-end baseline, and what a skill is made of."""

from soulsgraph_envs.skills.base import Decisions, Mirror, Skill, practice_ground
from soulsgraph_envs.skills.paper_skills import END_TO_END, SKILL_NAMES, SkillOptions, load_skill_options, make_skill

__all__ = [
    "END_TO_END",
    "SKILL_NAMES",
    "Decisions",
    "Mirror",
    "Skill",
    "SkillOptions",
    "load_skill_options",
    "make_skill",
    "practice_ground",
]
