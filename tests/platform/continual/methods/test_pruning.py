"""PackNet's pruning, worked by hand and over tasks of any shares."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from soulsgraph.continual.methods.packnet import free_mask, free_weights, task_weights
from soulsgraph_policies.agents.inference import DEVIATION, MEAN, Weights

HAND: Weights = {
    MEAN: np.array([5.0, 6.0]),
    DEVIATION: np.array([2.0, 3.0]),
    "q_network.0.weight": np.array([[0.5, -3.0], [2.0, 0.1], [-0.2, 1.0]], np.float32),
    "q_network.0.bias": np.array([0.1, -9.0, 0.0], np.float32),
    "q_network.2.weight": np.array([[1.0, -1.0, 1.0]], np.float32),
    "q_network.2.bias": np.array([7.0], np.float32),
}


def test_the_largest_share_of_every_layer_is_kept() -> None:
    first, weights = free_weights(HAND, free_mask(HAND, []), 0.5)
    # The three largest of six are -3, 2 and 1; of the three equal ones of the last layer 1.5 are kept, rounded 2.
    np.testing.assert_array_equal(first["q_network.0.weight"], [[0, 1], [1, 0], [0, 1]])
    np.testing.assert_array_equal(weights["q_network.0.weight"], [[0, -3], [2, 0], [0, 1]])
    np.testing.assert_array_equal(first["q_network.2.weight"], [[1, 1, 0]])
    np.testing.assert_array_equal(weights["q_network.2.weight"], [[1, -1, 0]])
    for name in ("q_network.0.bias", "q_network.2.bias", MEAN, DEVIATION):
        np.testing.assert_array_equal(weights[name], HAND[name])
    free = free_mask(HAND, [first])
    np.testing.assert_array_equal(free["q_network.0.weight"], [[1, 0], [0, 1], [1, 0]])
    assert not free["q_network.0.bias"].any()
    # A third of what is left, 1.02 of three weights and one of one, is one of each.
    second, _ = free_weights(weights, free, 0.34)
    assert [int(second[name].sum()) for name in ("q_network.0.weight", "q_network.2.weight")] == [1, 1]
    assert not second["q_network.2.bias"].any()


@settings(max_examples=40)
@given(shares=st.lists(st.floats(0.01, 1.0), min_size=1, max_size=6), seed=st.integers(0, 1_000))
def test_tasks_never_share_a_weight_nor_change_an_earlier_ones_play(shares: list[float], seed: int) -> None:
    random = np.random.default_rng(seed)
    weights = {name: random.normal(size=values.shape).astype(np.float32) for name, values in HAND.items()}
    free, masks, plays = free_mask(weights, []), [], []
    for share in shares:
        weights = {
            name: values + random.normal(size=values.shape) * free.get(name, 0.0) for name, values in weights.items()
        }
        kept, weights = free_weights(weights, free, share)
        masks.append(kept)
        free = free_mask(weights, masks)
        plays.append(task_weights(weights, masks))
    for name in free:
        assert (sum(mask[name] for mask in masks) + free[name] == 1.0).all()
        assert not weights[name][free[name] > 0.0].any()
    for count, played in enumerate(plays, 1):
        np.testing.assert_equal(task_weights(weights, masks[:count]), played)
