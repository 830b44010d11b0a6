"""The directed skill graph: which skill trains on top of which, and the stages that follow."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from soulsgraph_envs.core.config import to_json
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.skills import END_TO_END, SKILL_NAMES


@dataclass(frozen=True)
class SkillGraph:
    """Skills and their training dependencies, a DAG; an edge (i, j) trains j with i fixed (Eq. 2).

    Raises:
        UnknownNameError: if an edge names a skill outside the graph.
        SoulsGraphError: if the edges form a cycle.
    """

    name: str
    skills: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        for edge in self.edges:
            for skill in edge:
                if skill not in self.skills:
                    raise UnknownNameError("skill in an edge", skill, self.skills)
        try:
            self._sorter().prepare()
        except CycleError as error:
            raise SoulsGraphError(
                f"skill graph {self.name!r}: expected no cycle, found {' -> '.join(error.args[1])}; remove an edge."
            ) from error

    def _sorter(self) -> TopologicalSorter[str]:
        return TopologicalSorter({skill: [a for a, b in self.edges if b == skill] for skill in self.skills})

    @property
    def order(self) -> tuple[str, ...]:
        """Return the skills in training order, every skill after all it depends on."""
        return tuple(self._sorter().static_order())

    @property
    def leaves(self) -> tuple[str, ...]:
        """Return the skills that no other is trained on, in training order."""
        built_on = {before for before, _ in self.edges}
        return tuple(name for name in self.order if name not in built_on)

    def upstream(self, skill: str) -> tuple[str, ...]:
        """Return every skill that `skill` depends on, directly or not, in training order.

        Raises:
            UnknownNameError: if the skill is not of this graph.
        """
        if skill not in self.skills:
            raise UnknownNameError("skill", skill, self.skills)
        found = {skill}
        for candidate in reversed(self.order):
            if any(edge[0] == candidate and edge[1] in found for edge in self.edges):
                found.add(candidate)
        return tuple(name for name in self.order if name in found - {skill})

    @property
    def digest(self) -> str:
        """Identify the graph by its content: sha256 over its skills and edges."""
        content = to_json([self.skills, sorted(self.edges)])
        return hashlib.sha256(content.encode()).hexdigest()


#: The chain of Eq. 2: camera -> lock-on -> movement -> dodge -> heal-attack.
PAPER_GRAPH = SkillGraph("paper", SKILL_NAMES, tuple(pairwise(SKILL_NAMES)))

#: The atomic agent of Appendix B: a graph of one skill.
END_TO_END_GRAPH = SkillGraph("end-to-end", (END_TO_END,), ())

GRAPHS = {graph.name: graph for graph in (PAPER_GRAPH, END_TO_END_GRAPH)}
