"""Distil several networks of a skill into one of fixed size (policy distillation, Rusu et al. 2016).

A fresh network is fitted to what each teacher values on observations of its own, by the sum of two losses. The KL
divergence of softmax(Q / temperature) lets it choose as the teacher does; the squared error of the Q-values keeps their
height, from which learning can go on. Alone, the first leaves values of any height, and the second chooses less alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as functional
from torch import nn

from soulsgraph.continual.methods.importance import layer_outputs
from soulsgraph.continual.methods.learning import SkillVersion
from soulsgraph_envs.combat.rollout import Floats
from soulsgraph_envs.core.machine import compute_on_one_thread
from soulsgraph_envs.skills import Skill
from soulsgraph_policies.agents.inference import RunningNormalizer, Weights
from soulsgraph_policies.learning.cloning import make_module
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.learner import Adam

_LEARNING_RATE = 1e-3
#: In mean standard deviations of a teacher's Q-values within an observation, which differ in size between teachers.
_TEMPERATURE = 0.3
#: Smaller spreads are those of values that are all alike.
_LEAST_SPREAD = 1e-6

#: Weights of a network (`QNetworkModule.weights`), and raw observations (n, size) of its own.
Lesson = tuple[Weights, Floats]


def distil(
    skill: Skill, teachers: Sequence[Lesson], hyperparameters: DQNHyperparameters, seed: int, updates: int
) -> SkillVersion:
    """Fit a fresh network to teachers' Q-values in a number of updates.

    Every batch has as many observations of each teacher, however many it brings. Weights of a teacher are clipped as
    the hyperparameters say, which also have the student's layers. The student's statistics are those of all
    observations.
    """
    compute_on_one_thread()
    size, actions = skill.observation.size, len(skill.actions)
    taught = [layer_outputs(teacher, seen, hyperparameters.observation_clip)[-1] for teacher, seen in teachers]
    module = make_module(size, actions, hyperparameters, seed)
    normalizer = RunningNormalizer(size, skill.observation.indicators)
    observations = np.concatenate([seen for _, seen in teachers])
    normalizer.update(observations)
    module.set_normalizer(normalizer.mean, normalizer.deviation)
    inputs, counts = module.normalize(torch.as_tensor(observations)), [len(values) for values in taught]
    # Each teacher's values have scales of their own.
    temperatures = [_TEMPERATURE * max(float(values.std(axis=1).mean()), _LEAST_SPREAD) for values in taught]
    deviations = [max(float(values.std()), _LEAST_SPREAD) for values in taught]
    columns = (np.repeat(one, counts)[:, None] for one in (temperatures, deviations))
    parts = (np.concatenate(taught), *columns)
    # The teachers' Q-values (n, actions), and by row (n, 1) the temperature and the deviation of all values.
    targets = [torch.as_tensor(part, dtype=torch.float32) for part in parts]
    ends = np.cumsum(counts)
    share = max(hyperparameters.train_batch_size_per_learner // len(taught), 1)
    optimizer, generator = Adam(module.q_network.parameters(), lr=_LEARNING_RATE), np.random.default_rng(seed)
    for _ in range(updates):
        drawn = [generator.integers(end - count, end, share) for count, end in zip(counts, ends.tolist(), strict=True)]
        rows = torch.from_numpy(np.concatenate(drawn))
        optimizer.zero_grad()
        values, (aims, temperature, deviation) = module.q_network(inputs[rows]), (one[rows] for one in targets)
        squared = ((values - aims) / deviation).square().mean()
        own, theirs = ((one / temperature).log_softmax(dim=1) for one in (values, aims))
        loss = squared + functional.kl_div(own, theirs, reduction="batchmean", log_target=True)
        loss.backward()
        nn.utils.clip_grad_norm_(module.q_network.parameters(), hyperparameters.grad_clip)
        optimizer.step()
    return SkillVersion({name: values.copy() for name, values in module.weights().items()}, normalizer.get_state())
