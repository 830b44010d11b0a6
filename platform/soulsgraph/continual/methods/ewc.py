"""Quadratic pulls to where earlier tasks left a skill: elastic weight consolidation, online EWC, and MAS."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from soulsgraph.continual.methods.importance import fisher_importance, mas_importance
from soulsgraph.continual.methods.learning import EndedStage
from soulsgraph.continual.methods.method import Method
from soulsgraph_policies.agents.inference import Weights
from soulsgraph_policies.learning.constraint import Constraint

if TYPE_CHECKING:
    from soulsgraph_policies.learning.algorithm import SkillDQN


@dataclass
class MAS(Method):
    """Sum the importances over tasks, and pull every parameter, by its importance, to where the last task ended.

    Importance is how much the outputs depend on a parameter; no rewards are needed.
    """

    name, source = "mas", "Aljundi et al. (2018), Memory aware synapses, Eq. 3 and 4"
    coefficients: ClassVar[tuple[str, ...]] = ("mas", "importance_rows")
    fixes_statistics = True
    measure = staticmethod(mas_importance)

    importance: dict[str, Weights] = field(default_factory=dict)
    anchor: dict[str, Weights] = field(default_factory=dict)

    @property
    def pull(self) -> tuple[float, float]:
        """By how much the pull's gradient counts, and what remains of earlier importance after a task."""
        return self.options.mas, 1.0

    def begin_stage(self, algorithm: SkillDQN, skill: str) -> None:
        """Pull to where earlier tasks left the skill."""
        super().begin_stage(algorithm, skill)
        if skill in self.importance:
            constraint = Constraint(self.importance[skill], self.anchor[skill], self.pull[0], None)
            algorithm.constrain(skill, constraint)

    def end_stage(self, skill: str, ended: EndedStage) -> None:
        """Measure what is important to what was just learned, and note where its parameters are pulled to."""
        seen = self.drawn(ended, self.options.importance_rows).observations
        measured = self.measure(ended.version.weights, seen, ended.hyperparameters.observation_clip)
        weights = {name: ended.version.weights[name] for name in measured}
        if skill in self.importance:
            measured, weights = self.combined(skill, measured, weights)
        self.importance[skill], self.anchor[skill] = measured, weights

    def combined(self, skill: str, measured: Weights, weights: Weights) -> tuple[Weights, Weights]:
        """Return importance and anchor when another task has been learned, which led to these weights."""
        old, (_, decay) = self.importance[skill], self.pull
        return {name: new + decay * old[name] for name, new in measured.items()}, weights


class OnlineEWC(MAS):
    """Pull to where the last task ended, by a Fisher information of which earlier parts fade."""

    name, source = "online-ewc", "Schwarz et al. (2018), Progress & Compress, Eq. 9"
    coefficients: ClassVar[tuple[str, ...]] = ("ewc", "ewc_decay", "importance_rows")
    measure = staticmethod(fisher_importance)

    @property
    def pull(self) -> tuple[float, float]:
        """By how much the pull's gradient counts, and what remains of earlier importance after a task."""
        return self.options.ewc, self.options.ewc_decay


class EWC(OnlineEWC):
    """Sum the pulls to where each task ended, by the Fisher information there."""

    name, source = "ewc", "Kirkpatrick et al. (2017), Overcoming catastrophic forgetting in neural networks, Eq. 3"
    coefficients: ClassVar[tuple[str, ...]] = ("ewc", "importance_rows")

    def combined(self, skill: str, measured: Weights, weights: Weights) -> tuple[Weights, Weights]:
        """Return importance and anchor when another task has been learned, which led to these weights.

        Pulls to several places are one to their mean: the sum of F_i (x - a_i)^2 differs from that of
        (sum of F_i) (x - a)^2 by a constant, if a is the mean of a_i weighted by F_i.
        """
        old, anchor = self.importance[skill], self.anchor[skill]
        importance = {name: old[name] + new for name, new in measured.items()}
        return importance, {
            name: (old[name] * anchor[name] + new * weights[name]) / importance[name].clip(min=1e-30)
            for name, new in measured.items()
        }
