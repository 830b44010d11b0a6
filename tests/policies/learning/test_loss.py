"""The loss of a minibatch, by hand: whose action the target values, and how far a shown action is raised."""

from dataclasses import replace

import pytest
import torch

from soulsgraph_policies.learning.cloning import make_module
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.module import minibatch_loss

SIZE, NUMBERS = 4, DQNHyperparameters(budget=1, capacity=1)


@pytest.mark.parametrize(("double", "expected"), [(False, 1.0 + 0.5 * 9.0), (True, 1.0 + 0.5 * 4.0)])
def test_double_dqn_values_by_the_target_what_the_network_chooses(double: bool, expected: float) -> None:
    # van Hasselt et al. 2016, Eq. 4: the network prefers action 1, which the target network values at 4.
    module = make_module(SIZE, 3, NUMBERS, 0)
    with torch.no_grad():
        for network, biases in ((module.q_network, [0.0, 5.0, 1.0]), (module.target_network, [9.0, 4.0, 2.0])):
            network[-1].weight.zero_()
            network[-1].bias.copy_(torch.tensor(biases))
    one = torch.ones(1, SIZE)
    columns = (one, one, torch.tensor([2]), torch.ones(1), torch.full((1,), 0.5), torch.ones(1), torch.zeros(1))
    errors = minibatch_loss(module, columns, replace(NUMBERS, double_q=double)).errors
    assert errors.tolist() == pytest.approx([1.0 - expected])


@pytest.mark.parametrize(
    # Hester et al. 2018, Eq. 2: the values are 0, 5 and 1; of action 2 the best other one with the margin is 5 + 0.5,
    # of action 1 it is below. The mean is over both rows, and the loss has a weight of 0.3.
    ("shown", "expected"),
    [((2, 1), 0.3 * 4.5 / 2), ((2, 2), 0.3 * 4.5), ((1, 1), 0.0)],
)
def test_the_margin_loss_raises_what_was_shown_above_every_other_action(shown, expected) -> None:
    module = make_module(SIZE, 3, NUMBERS, 0)
    with torch.no_grad():
        module.q_network[-1].weight.zero_()
        module.q_network[-1].bias.copy_(torch.tensor([0.0, 5.0, 1.0]))
    two, actions = torch.ones(2, SIZE), torch.tensor(shown)
    # The rewards are what the network predicts: nothing is left of the temporal difference.
    columns = (two, two, actions, torch.tensor([0.0, 5.0, 1.0])[actions], torch.zeros(2), torch.ones(2))
    margins = torch.full((2,), 0.5)
    assert minibatch_loss(module, (*columns, margins), replace(NUMBERS, margin=0.8)).loss.item() == pytest.approx(
        expected
    )
    # What is kept of earlier tasks may have a margin where the preset has none: rows decide, as in the kernel.
    assert minibatch_loss(module, (*columns, margins), NUMBERS).loss.item() == pytest.approx(expected)
    assert minibatch_loss(module, (*columns, torch.zeros(2)), NUMBERS).loss.item() == 0.0
