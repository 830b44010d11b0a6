"""Runs with random weights in place of trained skills, made in no time, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from soulsgraph.domains import save_version
from soulsgraph.plan import Plan, Stage
from soulsgraph.run_folder import RunFolder
from soulsgraph.stage_setup import StageSetup
from soulsgraph.training import trained_artifact
from soulsgraph_policies.artifact import SkillCard
from soulsgraph_policies.normalizer import RunningNormalizer
from soulsgraph_policies.weights import NETWORK, Weights


def pretend_run(path: Path, plan: Plan) -> RunFolder:
    """Begin a run and pretend that every skill was trained."""
    run = RunFolder.create(path, plan)
    pretend_training(run, plan.stages())
    return run


def pretend_training(run: RunFolder, stages: Sequence[Stage]) -> list[SkillCard]:
    """Save a version for each stage as training would, with random weights (the stage's seed and budget decide)."""
    return [card for stage in stages for card in _pretend(run, stage)]


def _pretend(run: RunFolder, stage: Stage) -> list[SkillCard]:
    cards: list[SkillCard] = []
    setup = StageSetup.of(run, stage)
    for part in stage.parts:
        skill, random = setup.skill(part.skill), np.random.default_rng([part.seed, part.budget])
        sizes = (skill.observation.size, *setup.hyperparameters.hidden_sizes, len(skill.actions))
        weights: Weights = {}
        for index, (inputs, outputs) in enumerate(pairwise(sizes)):
            weights[f"{NETWORK}.{2 * index}.weight"] = random.normal(size=(outputs, inputs)).astype(np.float32)
            weights[f"{NETWORK}.{2 * index}.bias"] = random.normal(size=outputs).astype(np.float32)
        normalizer = RunningNormalizer(skill.observation.size)
        artifact = trained_artifact(setup, weights, normalizer, part.budget, part, cards)
        cards.append(save_version(run, part, artifact))
    return cards
