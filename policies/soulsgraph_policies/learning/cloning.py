"""Clone decisions that a player made: Q-values by which the network chooses as the player did.

Behavioural cloning alone leaves values of no scale, and learning on from them loses what was cloned. So the network
learns the player's decisions as DQfD does before its first own one (Hester et al. 2018): the temporal-difference loss
makes its values those of the player's play, and a large-margin loss makes the player's action the best one by a margin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import gymnasium
import numpy as np
import torch

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.machine import compute_on_one_thread
from soulsgraph_envs.skills import Skill
from soulsgraph_policies.agents.inference import RunningNormalizer, Weights
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.learner import AUTOGRAD, ModuleUpdates, make_adam
from soulsgraph_policies.learning.module import QNetworkModule
from soulsgraph_policies.learning.replay import ReplayBuffer
from soulsgraph_policies.learning.sampler import Transitions

#: Updates, their learning rate, and those between two copies into the target network.
UPDATES, _LEARNING_RATE, _TARGET_PERIOD = 2_000, 1e-3, 250


@dataclass(frozen=True)
class Clone:
    """A network that chooses as a player did: its weights and its normaliser.

    `same` is the share of the player's decisions that it makes itself.
    """

    weights: Weights
    normalizer: RunningNormalizer
    same: float


def check_cloning(skill: str, decisions: int) -> None:
    """Refuse to clone a skill of which nothing is shown; raises SoulsGraphError."""
    if not decisions:
        raise SoulsGraphError(
            f"{skill}: expected decisions to clone, found none; record fights in which the skill decides."
        )


def clone(
    skill: Skill,
    shown: Transitions,
    hyperparameters: DQNHyperparameters,
    seed: int,
    on_update: Callable[[], None] | None = None,
) -> Clone:
    """Fit a network to the decisions that were shown, in `UPDATES`, each reported by `on_update`.

    Raises:
        SoulsGraphError: as `check_cloning`.
    """
    compute_on_one_thread()
    check_cloning(skill.name, len(shown))
    size, actions = skill.observation.size, len(skill.actions)
    module = make_module(size, actions, hyperparameters, seed)
    normalizer = RunningNormalizer(size, skill.observation.indicators)
    normalizer.update(shown.observations)
    module.set_normalizer(normalizer.mean, normalizer.deviation)
    numbers = replace(hyperparameters, capacity=1)
    replay, generator = ReplayBuffer(numbers, size), np.random.default_rng(seed)
    replay.keep(shown)
    optimizer = make_adam(module.q_network, _LEARNING_RATE)
    updates = ModuleUpdates(module, optimizer, numbers, AUTOGRAD, torch.device("cpu"))
    for update in range(UPDATES):
        updates.learn(replay.sample(numbers.train_batch_size_per_learner, generator, normalizer), 0)
        if (update + 1) % _TARGET_PERIOD == 0:
            module.target_network.load_state_dict(module.q_network.state_dict())
        if on_update is not None:
            on_update()
    weights = {name: values.copy() for name, values in module.weights().items()}
    return Clone(weights, normalizer, _share_alike(module, shown))


def share_alike(skill: Skill, weights: Weights, shown: Transitions, hyperparameters: DQNHyperparameters) -> float:
    """Return the share of decisions, from 0 to 1, that a network with some weights makes alike."""
    module = make_module(skill.observation.size, len(skill.actions), hyperparameters, 0)
    module.load_weights(weights)
    return _share_alike(module, shown)


def _share_alike(module: QNetworkModule, shown: Transitions) -> float:
    with torch.no_grad():
        values = module.q_network(module.normalize(torch.as_tensor(shown.observations)))
    return float((values.argmax(dim=1).numpy() == shown.actions).mean())


def make_module(size: int, actions: int, numbers: DQNHyperparameters, seed: int) -> QNetworkModule:
    """Make a module of a skill that observes `size` values, with first weights of a seed, and its target."""
    module = QNetworkModule(
        observation_space=gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32),
        action_space=gymnasium.spaces.Discrete(actions),
        model_config={**numbers.model_config(), "seed": seed},
    )
    module.make_target_networks()
    return module
