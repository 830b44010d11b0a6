"""A learning stage as a continual method sees it: what it asked of the algorithm, on a real replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from soulsgraph.continual.methods.learning import EndedStage, SkillVersion
from soulsgraph.runs.evaluate import load_artifacts
from soulsgraph.runs.plan import Plan
from soulsgraph.zoo import open_run
from soulsgraph_policies.agents.inference import DEVIATION, MEAN, Weights
from soulsgraph_policies.learning.constraint import Constraint
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.replay import ReplayBuffer
from soulsgraph_policies.learning.sampler import Transitions

SKILL = "dodge"
#: Layers of the smallest network: one input, two hidden layers of one unit, two actions.
SHAPES = {
    "q_network.0.weight": (1, 1),
    "q_network.0.bias": (1,),
    "q_network.2.weight": (1, 1),
    "q_network.2.bias": (1,),
    "q_network.4.weight": (2, 1),
    "q_network.4.bias": (2,),
}


def weights_of(value: float) -> Weights:
    """Return a network whose every parameter has one value, with statistics that leave observations as they are."""
    layers: Weights = {name: np.full(shape, value, np.float32) for name, shape in SHAPES.items()}
    return {MEAN: np.zeros(1), DEVIATION: np.ones(1), **layers}


def version_of(value: float) -> SkillVersion:
    """Return a version of such weights."""
    return SkillVersion(weights_of(value), {"mean": np.zeros(1), "variance": np.ones(1), "count": 1.0})


def versions_of(name: str) -> tuple[Plan, dict[str, SkillVersion]]:
    """Return the versions that an agent of the zoo plays by."""
    run = open_run(Path(name))
    artifacts = load_artifacts(run, run.plan.scenario, run.plan.skill_graph.order)
    return run.plan, {
        skill: SkillVersion(one.weights, one.card.normalizer.normalizer().get_state())
        for skill, one in artifacts.items()
    }


def decisions_of(observations: Sequence[float], action: int = 0) -> Transitions:
    """Return decisions in some observations, (n,)."""
    seen = np.asarray(observations, np.float32)[:, None]
    count = len(seen)
    return Transitions(
        seen,
        seen,
        np.full(count, action, np.int64),
        np.arange(count, dtype=np.float32),
        np.ones(count, np.bool_),
        np.ones(count, np.int64),
        np.zeros(count, np.int64),
        np.arange(count),
    )


def numbers(budget: int = 100) -> DQNHyperparameters:
    """Return hyperparameters of a small stage."""
    return DQNHyperparameters(budget=budget, capacity=budget)


def ended(value: float, observations: Sequence[float] = (1.0, 2.0), action: int = 0) -> EndedStage:
    """Return what a stage left that led to weights of one value."""
    kept = decisions_of(observations, action)
    return EndedStage(SKILL, version_of(value), numbers(), lambda count, random: kept.first(count))


@dataclass
class StageInProgress:
    """The algorithm of a stage: records what is asked of it."""

    newest: float = 1.0
    decisions: int = 0
    constraints: list[Constraint] = field(default_factory=list)
    frozen: list[str] = field(default_factory=list)
    loaded: list[Weights] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.replay = ReplayBuffer(numbers(), 1)
        learned = SimpleNamespace(replay=self.replay, decisions=self.decisions, hyperparameters=numbers())
        self.training = {SKILL: learned}
        module = SimpleNamespace(weights=lambda: weights_of(self.newest))
        self.learner = SimpleNamespace(q_module={SKILL: module}.get)

    def constrain(self, skill: str, constraint: Constraint) -> None:
        assert skill == SKILL
        self.constraints.append(constraint)

    def freeze_normalizer(self, skill: str) -> None:
        self.frozen.append(skill)

    def load_weights(self, weights: Mapping[str, Weights]) -> None:
        self.loaded.append(weights[SKILL])
