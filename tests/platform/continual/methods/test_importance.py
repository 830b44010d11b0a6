"""Importance of parameters against autograd, sample by sample; units that are dormant."""

from itertools import pairwise

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from soulsgraph.continual.methods.importance import dormant_share, fisher_importance, mas_importance
from soulsgraph_policies.agents.inference import DEVIATION, MEAN, Weights, layer_names_at
from soulsgraph_policies.learning.module import make_network


def make_weights(sizes: tuple[int, ...], seed: int) -> Weights:
    random = np.random.default_rng(seed)
    weights: Weights = {MEAN: random.normal(size=sizes[0]), DEVIATION: random.uniform(0.3, 2.0, sizes[0])}
    for place, (inputs, outputs) in enumerate(pairwise(sizes)):
        weight, bias = layer_names_at(place)
        weights[weight] = random.normal(size=(outputs, inputs)).astype(np.float32)
        weights[bias] = random.normal(size=outputs).astype(np.float32)
    return weights


def by_autograd(weights: Weights, observations: np.ndarray, clip: float, sizes: tuple[int, ...]) -> list[Weights]:
    """Return both importances by one backward pass for every sample and output."""
    network = make_network(sizes).double()
    own = {f"q_network.{name}": part for name, part in network.named_parameters()}
    with torch.no_grad():
        for name, part in own.items():
            part.copy_(torch.from_numpy(weights[name]))
    fisher, mas = ({name: np.zeros(part.shape) for name, part in own.items()} for _ in range(2))
    for row in np.clip((observations - weights[MEAN]) / weights[DEVIATION], -clip, clip).astype(np.float32):
        values = network(torch.from_numpy(row.astype(np.float64))[None])[0]
        losses = [(value, fisher, torch.square) for value in values] + [(values.square().sum(), mas, torch.abs)]
        for loss, found, size in losses:
            gradients = torch.autograd.grad(loss, list(own.values()), retain_graph=True)
            for name, gradient in zip(own, gradients, strict=True):
                found[name] += size(gradient).numpy() / len(observations)
    return [fisher, mas]


@settings(max_examples=12)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=2, max_size=4).map(tuple),
    count=st.integers(1, 7),
    seed=st.integers(0, 10_000),
)
def test_importance_is_that_of_autograd_sample_by_sample(sizes: tuple[int, ...], count: int, seed: int) -> None:
    weights = make_weights(sizes, seed)
    observations = np.random.default_rng(seed + 1).normal(0.0, 3.0, (count, sizes[0])).astype(np.float32)
    expected = by_autograd(weights, observations, 1.5, sizes)
    for importance, reference in zip((fisher_importance, mas_importance), expected, strict=True):
        found = importance(weights, observations, 1.5)
        assert found.keys() == reference.keys()
        for name, values in reference.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-6, err_msg=name)


def test_dormant_units_are_those_far_below_their_layers_mean() -> None:
    # Of 4 units the mean activations are 0, 0.1, 3.9 and 4: their layer's mean is 2, of which 5 % are 0.1.
    weights = {
        MEAN: np.zeros(1),
        DEVIATION: np.ones(1),
        "q_network.0.weight": np.zeros((4, 1), np.float32),
        "q_network.0.bias": np.array([-1.0, 0.1, 3.9, 4.0], np.float32),
        "q_network.2.weight": np.zeros((2, 4), np.float32),
        "q_network.2.bias": np.array([-1.0, -2.0], np.float32),
        "q_network.4.weight": np.ones((3, 2), np.float32),
        "q_network.4.bias": np.zeros(3, np.float32),
    }
    # Where no unit of a layer is ever active all are dormant.
    assert dormant_share(weights, np.ones((5, 1), np.float32)) == (0.25, 1.0)
    assert dormant_share(make_weights((3, 4), 0), np.ones((5, 3), np.float32)) == ()
