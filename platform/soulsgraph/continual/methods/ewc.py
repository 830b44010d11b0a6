"""Elastic weight consolidation: what was important to earlier tasks is pulled back to where they left it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from soulsgraph.continual.methods.importance import fisher_importance
from soulsgraph.continual.methods.learning import EndedStage, SkillVersion
from soulsgraph.continual.methods.method import Method, MethodOptions
from soulsgraph_policies.agents.inference import Weights
from soulsgraph_policies.learning.constraint import Constraint

if TYPE_CHECKING:
    from soulsgraph_policies.learning.algorithm import SkillDQN


class Importances(Method):
    """A quadratic pull of every parameter, by its importance, to where it was: what EWC and MAS share."""

    fixes_statistics = True
    kept_in_state: ClassVar[tuple[str, ...]] = ("newest", "importance", "anchor")

    def __init__(self, options: MethodOptions, tasks: int, seed: int) -> None:
        super().__init__(options, tasks, seed)
        self.importance: dict[str, Weights] = {}
        self.anchor: dict[str, Weights] = {}
        self._measured: dict[str, Weights] = {}

    @property
    def strength(self) -> float:
        """By how much the gradient of the quadratic pull counts."""
        return self.options.ewc

    def measure(self, ended: EndedStage) -> Weights:
        """Return the importance of every parameter to what was just learned."""
        rows = self.drawn(ended, self.options.importance_rows)
        return fisher_importance(ended.version.weights, rows.observations, ended.hyperparameters.observation_clip)

    def combined(self, skill: str, measured: Weights, version: SkillVersion) -> tuple[Weights, Weights]:
        """Return importance and anchor when another task has been learned.

        Pulls to several places are one to their mean: the sum of F_i (x - a_i)^2 differs from that of
        (sum of F_i) (x - a)^2 by a constant, if a is the mean of a_i weighted by F_i.
        """
        if skill not in self.importance:
            return measured, {name: version.weights[name] for name in measured}
        importance, anchor = dict[str, Any](), dict[str, Any]()
        for name, new in measured.items():
            old = self.importance[skill][name]
            total = old + new
            weighted = old * self.anchor[skill][name] + new * version.weights[name]
            importance[name] = total
            anchor[name] = weighted / total.clip(min=1e-30)
        return importance, anchor

    def begin_stage(self, algorithm: SkillDQN, skill: str) -> None:
        """Pull to where earlier tasks left the skill."""
        super().begin_stage(algorithm, skill)
        if skill in self.importance:
            constraint = Constraint(self.importance[skill], self.anchor[skill], self.strength, None)
            algorithm.constrain(skill, constraint)

    def end_stage(self, skill: str, ended: EndedStage) -> None:
        """Measure what is important."""
        self._measured[skill] = self.measure(ended)

    def take(self, skill: str, version: SkillVersion) -> None:
        """Take the version, and the place that its parameters are pulled to."""
        super().take(skill, version)
        self.importance[skill], self.anchor[skill] = self.combined(skill, self._measured.pop(skill), version)


class EWC(Importances):
    """Sum the pulls to where each task ended, by the Fisher information there."""

    name, source = "ewc", "Kirkpatrick et al. (2017), Overcoming catastrophic forgetting in neural networks, Eq. 3"
    coefficients: ClassVar[tuple[str, ...]] = ("ewc", "importance_rows")


class OnlineEWC(Importances):
    """Pull to where the last task ended, by a Fisher information of which earlier parts fade."""

    name, source = "online-ewc", "Schwarz et al. (2018), Progress & Compress, Eq. 9"
    coefficients: ClassVar[tuple[str, ...]] = ("ewc", "ewc_decay", "importance_rows")

    def combined(self, skill: str, measured: Weights, version: SkillVersion) -> tuple[Weights, Weights]:
        """Return the faded sum of importances, and the last place."""
        old, decay = self.importance.get(skill, {}), self.options.ewc_decay
        importance = {name: new + decay * old[name] if old else new for name, new in measured.items()}
        return importance, {name: version.weights[name] for name in measured}
