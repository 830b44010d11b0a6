"""PackNet: every task has parameters of its own, packed into one network by pruning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from soulsgraph.continual.learning import SkillVersion, Versions
from soulsgraph.continual.methods.method import Method, MethodOptions
from soulsgraph_policies.agents.inference import Weights
from soulsgraph_policies.learning.algorithm import SkillDQN
from soulsgraph_policies.learning.constraint import Constraint
from soulsgraph_policies.learning.pruning import prune


class PackNet(Method):
    """Learn with what is free, keep the largest part of it, and free the rest for the tasks to come.

    After a part of a task the skill is pruned, and what is kept learns on; a task plays by what it and earlier ones
    kept. The share that is kept leaves as much to every task that follows.
    """

    name, source = "packnet", "Mallya & Lazebnik (2018), PackNet; as in Wolczyk et al. (2021)"
    fixes_statistics = True
    has_versions = True
    # It prunes in the middle of the first task already.
    shares_first = False

    def __init__(self, options: MethodOptions, tasks: int, seed: int) -> None:
        super().__init__(options, tasks, seed)
        #: Of every parameter of a skill the number of the stage that keeps it, 0 where it is free.
        self.owners: dict[str, Weights] = {}
        #: Of every task so far, how many stages of each skill had ended.
        self.stages: list[dict[str, int]] = []
        self._pruned = False

    def begin_stage(self, algorithm: SkillDQN, skill: str) -> None:
        """Let only free parameters learn."""
        super().begin_stage(algorithm, skill)
        self._pruned = False
        if skill in self.owners:
            free = {name: (owner == 0).astype(np.float32) for name, owner in self.owners[skill].items()}
            algorithm.constrain(skill, Constraint(None, None, 0.0, free))

    def during_stage(self, algorithm: SkillDQN, skill: str) -> None:
        """Prune once, and let only what is kept of it learn on."""
        learned = algorithm.training[skill]
        if self._pruned or learned.decisions < self.options.pruned_after * learned.hyperparameters.budget:
            return
        self._pruned = True
        number = self._stages(skill) + 1
        share = 1.0 / max(self.tasks - self.position, 1)
        newest = algorithm.learner.learning[skill].newest_weights()
        owners = self.owners.get(skill)
        free = None if owners is None else {name: owner == 0 for name, owner in owners.items()}
        weights, kept = prune(newest, free, share)
        previous = owners or {name: np.zeros(mask.shape, np.int32) for name, mask in kept.items()}
        self.owners[skill] = {name: np.where(mask, number, previous[name]) for name, mask in kept.items()}
        algorithm.load_weights({skill: {**newest, **weights}})
        mask = {name: mask.astype(np.float32) for name, mask in kept.items()}
        algorithm.constrain(skill, Constraint(None, None, 0.0, mask))

    def after_task(self, world: Any) -> None:
        """Note which stages the task plays by."""
        self.stages.append({skill: self._stages(skill) for skill in self.newest})

    def _stages(self, skill: str) -> int:
        owners = self.owners.get(skill)
        return max((int(owner.max()) for owner in owners.values()), default=0) if owners else 0

    def playing(self, position: int) -> Versions:
        """Return the task's versions: what later stages keep plays as 0."""
        if position >= len(self.stages):
            return self.newest
        return {skill: self._masked(skill, self.stages[position].get(skill, 0)) for skill in self.newest}

    def candidates(self) -> Sequence[Versions]:
        """Return every task's versions."""
        return [self.playing(position) for position in range(len(self.stages))] or [self.newest]

    def _masked(self, skill: str, stages: int) -> SkillVersion:
        version, owners = self.newest[skill], self.owners.get(skill)
        if owners is None:
            return version
        weights = dict(version.weights)
        for name, owner in owners.items():
            weights[name] = np.where((owner > 0) & (owner <= max(stages, 1)), weights[name], np.float32(0.0))
        return SkillVersion(weights, version.normalizer)

    def state(self) -> dict[str, Any]:
        """Return everything that later tasks depend on."""
        return super().state() | {"owners": self.owners, "stages": self.stages}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`."""
        super().restore(state)
        self.owners = {skill: {n: np.array(v) for n, v in owners.items()} for skill, owners in state["owners"].items()}
        self.stages = [dict(one) for one in state["stages"]]
