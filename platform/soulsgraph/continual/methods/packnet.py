"""PackNet: every task has parameters of its own, packed into one network by pruning."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from soulsgraph.continual.methods.learning import SkillVersion, TaskWorld, Versions
from soulsgraph.continual.methods.method import Method, MethodOptions
from soulsgraph.continual.methods.pruning import free_mask, free_weights, task_weights
from soulsgraph_policies.agents.inference import Weights
from soulsgraph_policies.learning.constraint import Constraint

if TYPE_CHECKING:
    from soulsgraph_policies.learning.algorithm import SkillDQN


class PackNet(Method):
    """Learn with what is free, keep the largest part of it, and free the rest for the tasks to come.

    After a part of a task the skill is pruned, and what is kept learns on; a task plays by what it and earlier ones
    kept. The share that is kept leaves as much to every task that follows.
    """

    name, source = "packnet", "Mallya & Lazebnik (2018), PackNet; as in Wolczyk et al. (2021)"
    coefficients: ClassVar[tuple[str, ...]] = ("pruned_after",)
    fixes_statistics = True
    has_versions = True
    # It prunes in the middle of the first task already.
    shares_first = False

    def __init__(self, options: MethodOptions, tasks: int, seed: int) -> None:
        super().__init__(options, tasks, seed)
        #: Of each skill the masks of what its stages kept, in their order: a byte for each parameter.
        self.kept: dict[str, list[Weights]] = {}
        #: Of every task so far, how many stages of each skill had ended.
        self.stages: list[dict[str, int]] = []
        self._pruned = False

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
        newest = {name: values.copy() for name, values in algorithm.learner.q_module(skill).weights().items()}
        # As much for every task that is left.
        kept, weights = free_weights(
            newest, free_mask(newest, self.kept.get(skill, [])), 1.0 / max(self.tasks - self.position, 1)
        )
        self.kept.setdefault(skill, []).append({one: mask.astype(np.uint8) for one, mask in kept.items()})
        algorithm.load_weights({skill: weights})
        algorithm.constrain(skill, Constraint(mask=kept))

    def after_task(self, world: TaskWorld) -> None:
        """Note which stages the task plays by."""
        self.stages.append({skill: len(self.kept.get(skill, [])) for skill in self.newest})

    def playing(self, position: int) -> Versions:
        """Return the task's versions: what later stages keep plays as 0."""
        if position >= len(self.stages):
            return self.newest
        played = dict(self.newest)
        for skill, stages in self.stages[position].items():
            if stages:
                version = self.newest[skill]
                weights = task_weights(version.weights, self.kept[skill][:stages])
                played[skill] = SkillVersion(weights, version.normalizer)
        return played
