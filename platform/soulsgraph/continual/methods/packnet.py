"""PackNet: several tasks in one network, each in weights of its own (Mallya & Lazebnik 2018).

A task is trained in what is free, pruned to the largest of these weights, and trained on in them; what was pruned is 0
and free for the next task, and what was kept never changes again. A task plays by its own weights and those of the
tasks before it (`task_weights`). Biases, which the publication does not prune, are the first task's, as in Continual
World: all tasks have them in common. Masks are 1 or 0 for each number of every weight and bias, under their names; the
normaliser has none, and must stay as the first task left it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from soulsgraph.continual.methods.learning import SkillVersion, TaskWorld, Versions
from soulsgraph.continual.methods.method import Method
from soulsgraph.runs.plan import Plan
from soulsgraph_policies.agents.inference import Weights, layer_names
from soulsgraph_policies.learning.constraint import Constraint

if TYPE_CHECKING:
    from soulsgraph_policies.learning.algorithm import SkillDQN


@dataclass
class PackNet(Method):
    """Learn with what is free, keep the largest part of it, and free the rest for the tasks to come.

    After a part of a task the skill is pruned, and what is kept learns on; a task plays by what it and earlier ones
    kept. The share that is kept leaves as much to every task that follows.

    `kept` has of each skill the masks of what its stages kept, in their order, a byte for each parameter; `stages` of
    every task so far how many stages of each skill had ended.
    """

    name, source = "packnet", "Mallya & Lazebnik (2018), PackNet; as in Wolczyk et al. (2021)"
    coefficients: ClassVar[tuple[str, ...]] = ("pruned_after", "packnet_units")
    fixes_statistics = True
    has_versions = True
    # It prunes in the middle of the first task already.
    shares_first = False

    kept: dict[str, list[Weights]] = field(default_factory=dict)
    stages: list[dict[str, int]] = field(default_factory=list)
    _pruned: bool = False

    def planned(self, plan: Plan) -> Plan:
        """Return the plan with networks of this size."""
        return replace(plan, overrides={**plan.overrides, "fcnet_hiddens": (self.options.packnet_units,) * 2})

    def begin_stage(self, algorithm: SkillDQN, skill: str) -> None:
        """Let only free parameters learn."""
        super().begin_stage(algorithm, skill)
        self._pruned = False
        if skill in self.kept:
            algorithm.constrain(skill, Constraint(mask=free_mask(self.newest[skill].weights, self.kept[skill])))

    def during_stage(self, algorithm: SkillDQN, skill: str) -> None:
        """Prune once, and let only what is kept of it learn on."""
        learned = algorithm.training[skill]
        if self._pruned or learned.decisions < self.options.pruned_after * learned.hyperparameters.budget:
            return
        self._pruned = True
        newest, masks = algorithm.learner.q_module(skill).weights(), self.kept.setdefault(skill, [])
        # As much for every task that is left.
        share = 1.0 / max(self.tasks - self.world.position, 1)
        kept, weights = free_weights(newest, free_mask(newest, masks), share)
        masks.append({one: mask.astype(np.uint8) for one, mask in kept.items()})
        algorithm.load_weights({skill: weights})
        algorithm.constrain(skill, Constraint(mask=kept))

    def after_task(self, world: TaskWorld) -> None:
        """Note which stages the task plays by."""
        self.stages.append({skill: len(self.kept.get(skill, [])) for skill in self.newest})

    def playing(self, position: int) -> Versions:
        """Return the task's versions: what later stages keep plays as 0."""
        played = dict(self.newest)
        for skill, stages in self.stages[position].items() if position < len(self.stages) else ():
            if stages:
                weights = task_weights(played[skill].weights, self.kept[skill][:stages])
                played[skill] = SkillVersion(weights, played[skill].normalizer)
        return played


def free_mask(weights: Weights, kept: Sequence[Weights]) -> Weights:
    """Return the mask of what is free in a network (`QNetworkModule.weights`) of which tasks kept some."""
    free = {name: np.ones_like(weights[name]) for pair in layer_names(weights) for name in pair}
    for mask in kept:
        for name, values in free.items():
            values[mask[name] > 0] = 0.0
    return free


def free_weights(weights: Weights, free: Weights, share: float) -> tuple[Weights, Weights]:
    """Keep the largest of the free weights and free the others; return the mask of the kept, and the weights.

    Of every layer this `share` of the free weights is kept by magnitude, rounded, and at least one if one is free; of
    equal ones the first. The others are 0 in the returned copy of the weights. All biases that are free are kept, so
    that after the first task none is.
    """
    kept: Weights = {}
    pruned = {name: values.copy() for name, values in weights.items()}
    for weight, bias in layer_names(weights):
        places = np.flatnonzero(free[weight])
        largest = np.argsort(-np.abs(weights[weight].ravel()[places]), kind="stable")
        count = max(round(share * len(places)), min(len(places), 1))
        kept[weight], kept[bias] = np.zeros_like(weights[weight]), free[bias].copy()
        kept[weight].ravel()[places[largest[:count]]] = 1.0
        pruned[weight].ravel()[places[largest[count:]]] = 0.0
    return kept, pruned


def task_weights(weights: Weights, kept: Sequence[Weights]) -> Weights:
    """Return the weights that a task plays by: those kept by it and the tasks before it, the others 0.

    `kept` are the masks of these tasks, the first one's among them. The normaliser is returned as it is.
    """
    own = {name: np.maximum.reduce([mask[name] for mask in kept]) for name in kept[0]}
    return {name: values * own[name] if name in own else values.copy() for name, values in weights.items()}
