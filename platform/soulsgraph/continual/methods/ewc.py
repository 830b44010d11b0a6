"""Quadratic pulls to where earlier tasks left a skill: elastic weight consolidation, online EWC, and MAS."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from soulsgraph.continual.methods.importance import fisher_importance, mas_importance
from soulsgraph.continual.methods.learning import EndedStage, SkillVersion
from soulsgraph.continual.methods.method import Method, MethodOptions
from soulsgraph_policies.agents.inference import Weights
from soulsgraph_policies.learning.constraint import Constraint

if TYPE_CHECKING:
    from soulsgraph_policies.learning.algorithm import SkillDQN


class MAS(Method):
    """Sum the importances over tasks, and pull every parameter, by its importance, to where the last task ended.

    Importance is how much the outputs depend on a parameter; no rewards are needed.
    """

    name, source = "mas", "Aljundi et al. (2018), Memory aware synapses, Eq. 3 and 4"
    coefficients: ClassVar[tuple[str, ...]] = ("mas", "importance_rows")
    fixes_statistics = True

    def __init__(self, options: MethodOptions, tasks: int, seed: int) -> None:
        super().__init__(options, tasks, seed)
        self.importance: dict[str, Weights] = {}
        self.anchor: dict[str, Weights] = {}
        self._measured: dict[str, Weights] = {}
        #: How importance is measured, by how much the pull's gradient counts, and what remains of earlier importance.
        self._measure, self._strength, self._decay = mas_importance, options.mas, 1.0

    def combined(self, skill: str, measured: Weights, version: SkillVersion) -> tuple[Weights, Weights]:
        """Return importance and anchor when another task has been learned."""
        old = self.importance.get(skill, {})
        importance = {name: new + self._decay * old[name] if old else new for name, new in measured.items()}
        return importance, {name: version.weights[name] for name in measured}

    def begin_stage(self, algorithm: SkillDQN, skill: str) -> None:
        """Pull to where earlier tasks left the skill."""
        super().begin_stage(algorithm, skill)
        if skill in self.importance:
            constraint = Constraint(self.importance[skill], self.anchor[skill], self._strength, None)
            algorithm.constrain(skill, constraint)

    def end_stage(self, skill: str, ended: EndedStage) -> None:
        """Measure what is important to what was just learned."""
        seen = self.drawn(ended, self.options.importance_rows).observations
        self._measured[skill] = self._measure(ended.version.weights, seen, ended.hyperparameters.observation_clip)

    def take(self, skill: str, version: SkillVersion) -> None:
        """Take the version, and the place that its parameters are pulled to."""
        super().take(skill, version)
        self.importance[skill], self.anchor[skill] = self.combined(skill, self._measured.pop(skill), version)


class OnlineEWC(MAS):
    """Pull to where the last task ended, by a Fisher information of which earlier parts fade."""

    name, source = "online-ewc", "Schwarz et al. (2018), Progress & Compress, Eq. 9"
    coefficients: ClassVar[tuple[str, ...]] = ("ewc", "ewc_decay", "importance_rows")

    def __init__(self, options: MethodOptions, tasks: int, seed: int) -> None:
        super().__init__(options, tasks, seed)
        self._measure, self._strength, self._decay = fisher_importance, options.ewc, options.ewc_decay


class EWC(OnlineEWC):
    """Sum the pulls to where each task ended, by the Fisher information there."""

    name, source = "ewc", "Kirkpatrick et al. (2017), Overcoming catastrophic forgetting in neural networks, Eq. 3"
    coefficients: ClassVar[tuple[str, ...]] = ("ewc", "importance_rows")

    def combined(self, skill: str, measured: Weights, version: SkillVersion) -> tuple[Weights, Weights]:
        """Return importance and anchor when another task has been learned.

        Pulls to several places are one to their mean: the sum of F_i (x - a_i)^2 differs from that of
        (sum of F_i) (x - a)^2 by a constant, if a is the mean of a_i weighted by F_i.
        """
        if skill not in self.importance:
            return measured, {name: version.weights[name] for name in measured}
        importance, anchor = {}, {}
        for name, new in measured.items():
            old = self.importance[skill][name]
            importance[name] = old + new
            weighted = old * self.anchor[skill][name] + new * version.weights[name]
            anchor[name] = weighted / importance[name].clip(min=1e-30)
        return importance, anchor
