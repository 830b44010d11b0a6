"""Dueling streams and quantiles: what they compute, what they cost, and the plain layer they fold to."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from ray.rllib.core.columns import Columns

from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.agents.inference import FrozenNetwork, FusedNetworks
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.module import QNetworkModule, QuantileHead, _quantile_huber, minibatch_loss

HEADS = [(0, True), (5, False), (5, True)]
SKILL, SCENARIO = make_skill("heal_attack"), load_scenario("iudex-phase1")


def make_module(quantiles: int, dueling: bool, seed: int = 0, **options: Any) -> QNetworkModule:
    module = QNetworkModule(
        observation_space=Box(-np.inf, np.inf, (SKILL.observation.size,), np.float32),
        action_space=Discrete(len(SKILL.actions)),
        model_config={"hidden_sizes": (16, 9), "observation_clip": 10.0, "seed": seed, "head": (quantiles, dueling)},
        **options,
    )
    if not options:
        module.make_target_networks()
    return module


def test_dueling_takes_the_mean_advantage_away() -> None:
    # Wang et al. 2016, Eq. 9: value 10, advantages 1, 2 and 6 with mean 3.
    head = QuantileHead(hidden=2, actions=3, quantiles=1, dueling=True)
    with torch.no_grad():
        head.value.weight.fill_(10.0), head.value.bias.zero_()
        head.advantage.weight.copy_(torch.tensor([[1.0], [2.0], [6.0]])), head.advantage.bias.zero_()
    assert head(torch.ones(1, 2)).flatten().tolist() == [8.0, 9.0, 13.0]


@pytest.mark.parametrize(("quantiles", "dueling"), HEADS)
def test_folded_network_plays_exactly_as_the_head(quantiles: int, dueling: bool) -> None:
    module, rows = make_module(quantiles, dueling), np.random.default_rng(0).normal(0, 3, (50, 25)).astype(np.float32)
    observations = torch.from_numpy(SKILL.observation(rows, SCENARIO))
    with torch.no_grad():
        trained = module.compute_q_values({Columns.OBS: module.normalize(observations)})["qf_preds"].numpy()
    network = FrozenNetwork.of(SKILL, SCENARIO, module.weights(), 10.0)
    assert network.weights["q_network.4.weight"].shape == (3, 9)
    np.testing.assert_allclose(FusedNetworks([network]).q_values(0, rows), trained, atol=1e-5)
    light = make_module(quantiles, dueling, inference_only=True)
    light.load_weights(module.weights() | module.head_weights())
    np.testing.assert_array_equal(light.weights()["q_network.4.weight"], module.weights()["q_network.4.weight"])


def test_quantile_huber_loss_is_that_of_dabney_2018() -> None:
    # Two quantiles at 1/4 and 3/4, predictions 0 and 1, targets 0.5 and 3; errors (target - prediction):
    # 0.5 and 3 for the first, -0.5 and 2 for the second; Huber 0.125, 2.5, 0.125, 1.5.
    expected = (0.25 * 0.125 + 0.25 * 2.5) / 2 + (0.25 * 0.125 + 0.75 * 1.5) / 2
    found = _quantile_huber(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 3.0]]))
    assert found.tolist() == pytest.approx([expected])


@pytest.mark.parametrize(("double", "expected"), [(False, 1.0 + 0.5 * 9.0), (True, 1.0 + 0.5 * 4.0)])
def test_double_dqn_values_by_the_target_what_the_network_chooses(double: bool, expected: float) -> None:
    # van Hasselt et al. 2016, Eq. 4: the network prefers action 1, which the target network values at 4.
    module = make_module(0, dueling=False)
    with torch.no_grad():
        for network, biases in ((module.q_network, [0.0, 5.0, 1.0]), (module.target_network, [9.0, 4.0, 2.0])):
            network[-1].weight.zero_()
            network[-1].bias.copy_(torch.tensor(biases))
    one = torch.ones(1, SKILL.observation.size)
    columns = (one, one, torch.tensor([2]), torch.ones(1), torch.full((1,), 0.5), torch.ones(1), torch.zeros(1))
    numbers = DQNHyperparameters(budget=1, buffer_size=1, double=double)
    assert minibatch_loss(module, columns, numbers).errors.tolist() == pytest.approx([1.0 - expected])


@pytest.mark.parametrize(
    # Hester et al. 2018, Eq. 2: the values are 0, 5 and 1; of action 2 the best other one with the margin is 5 + 0.5,
    # of action 1 it is below. The mean is over both rows, and the loss has a weight of 0.3.
    ("shown", "expected"),
    [((2, 1), 0.3 * 4.5 / 2), ((2, 2), 0.3 * 4.5), ((1, 1), 0.0)],
)
def test_the_margin_loss_raises_what_was_shown_above_every_other_action(shown, expected) -> None:
    module = make_module(0, dueling=False)
    with torch.no_grad():
        module.q_network[-1].weight.zero_()
        module.q_network[-1].bias.copy_(torch.tensor([0.0, 5.0, 1.0]))
    two, actions = torch.ones(2, SKILL.observation.size), torch.tensor(shown)
    # The rewards are what the network predicts: nothing is left of the temporal difference.
    columns = (two, two, actions, torch.tensor([0.0, 5.0, 1.0])[actions], torch.zeros(2), torch.ones(2))
    own = DQNHyperparameters(budget=1, buffer_size=1)
    others = replace(own, margin=0.8)
    assert minibatch_loss(module, (*columns, torch.full((2,), 0.5)), others).loss.item() == pytest.approx(expected)
    assert minibatch_loss(module, (*columns, torch.zeros(2)), others).loss.item() == 0.0
    # What is kept of earlier tasks may have a margin where the preset has none: rows decide, as in the kernel.
    assert minibatch_loss(module, (*columns, torch.full((2,), 0.5)), own).loss.item() == pytest.approx(expected)
