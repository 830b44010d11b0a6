"""Memory aware synapses: importance is how much the outputs depend on a parameter; no rewards are needed."""

from __future__ import annotations

from typing import ClassVar

from soulsgraph.continual.methods.ewc import Importances
from soulsgraph.continual.methods.importance import mas_importance
from soulsgraph.continual.methods.learning import EndedStage, SkillVersion
from soulsgraph_policies.agents.inference import Weights


class MAS(Importances):
    """Sum the importances over tasks, and pull to where the last task ended."""

    name, source = "mas", "Aljundi et al. (2018), Memory aware synapses, Eq. 3 and 4"
    coefficients: ClassVar[tuple[str, ...]] = ("mas", "importance_rows")

    @property
    def strength(self) -> float:
        """By how much the gradient of the quadratic pull counts."""
        return self.options.mas

    def measure(self, ended: EndedStage) -> Weights:
        """Return the importance of every parameter to what was just learned."""
        rows = self.drawn(ended, self.options.importance_rows)
        return mas_importance(ended.version.weights, rows.observations, ended.hyperparameters.observation_clip)

    def combined(self, skill: str, measured: Weights, version: SkillVersion) -> tuple[Weights, Weights]:
        """Return the sum of importances, and the last place."""
        old = self.importance.get(skill, {})
        importance = {name: old[name] + new if old else new for name, new in measured.items()}
        return importance, {name: version.weights[name] for name in measured}
