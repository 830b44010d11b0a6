"""Cloning of old behaviour: on kept observations the skill goes on to choose what it chose."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from soulsgraph.continual.methods.importance import layer_outputs
from soulsgraph.continual.methods.learning import EndedStage
from soulsgraph.continual.methods.replay import Replay
from soulsgraph_policies.learning.sampler import Transitions

if TYPE_CHECKING:
    from soulsgraph_policies.learning.algorithm import SkillDQN


class ClonEx(Replay):
    """Keep observations of every task with what was chosen there, and raise these actions above the others.

    The paper clones an actor by the divergence from its old distribution; a greedy Q-network is cloned by a large
    margin, as decisions of people are.
    """

    name = "clonex"
    source = "Wolczyk et al. (2022), Disentangling transfer in continual reinforcement learning"
    coefficients: ClassVar[tuple[str, ...]] = ("reserve", "reserve_share", "cloning_margin")

    def keep(self, algorithm: SkillDQN, skill: str, parts: list[Transitions]) -> None:
        """Clone what was chosen: kept decisions have no temporal-difference loss."""
        replay, options = algorithm.training[skill].replay, self.options
        replay.keep(Transitions.join(parts), options.reserve_share, td=False, margin=options.cloning_margin)

    def end_stage(self, skill: str, ended: EndedStage) -> None:
        """Keep observations with the actions that are best there now: those that were played include random ones."""
        rows = self.drawn(ended, self.options.reserve)
        clip = ended.hyperparameters.observation_clip
        chosen = layer_outputs(ended.version.weights, rows.observations, clip)[-1].argmax(axis=1).astype(np.int64)
        # What followed is not learned from; rewards scale the margin.
        kept = replace(rows, actions=chosen, next_observations=rows.observations)
        self.reserve.setdefault(skill, []).append(kept)
