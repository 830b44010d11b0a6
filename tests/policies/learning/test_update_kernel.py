"""The compiled kernel's products, and that no width of vectors changes what is learned."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import binding

from fakes.stages import drawn_batch, make_learner, update
from fakes.waiting import PATIENCE_S
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.agents.inference import SPAN, _plain_tile, linear, product
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.learner import CPU_KERNEL

#: Both hidden layers and rows: some fill neither tiles nor vectors.
NETWORKS = ((64, 64, 256), (30, 50, 100), (1, 2, 7))


def all_updated() -> np.ndarray:
    """Return networks' parameters and targets after some updates."""
    skill, found = make_skill("heal_attack"), []
    for *hidden, rows in NETWORKS:
        numbers = DQNHyperparameters(
            1_000, 1, train_batch_size_per_learner=rows, fcnet_hiddens=tuple(hidden), double_q=True
        )
        learner = make_learner([skill], numbers, CPU_KERNEL)
        update(learner, skill.name, drawn_batch(skill, 3 * rows, rows))
        found += [values.detach().numpy().ravel() for values in learner.q_module(skill.name).parameters()]
    return np.concatenate(found)


def matrices(n: int, k: int, m: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    shapes = ((n + 2, k + 3), (k, m), (m,), (n, m))
    left, right, bias, mask = (random.normal(size=shape).astype(np.float32) for shape in shapes)
    return left, right, bias, mask


@settings(max_examples=40)
@given(n=st.integers(1, 20), k=st.integers(1, 40), vectors=st.integers(1, 6), seed=st.integers(0, 1000))
def test_a_product_is_the_one_of_numpy(n: int, k: int, vectors: int, seed: int) -> None:
    left, right, bias, mask = matrices(n, k, SPAN * vectors, seed)
    plain = left[:n, :k].astype(np.float64) @ right
    transposed = np.ascontiguousarray(left.T).T
    out = np.full((n, SPAN * vectors), np.nan, np.float32)
    for multiply, expected, arguments in (
        (product, plain, (left, right, None, None)),
        (product, np.maximum(plain + bias, 0.0), (left, right, bias, None)),
        (product, np.where(mask > 0.0, plain, 0.0), (left, right, None, mask)),
        (product, plain, (transposed, right, None, None)),
        (linear, plain + bias, (left, right, bias, None)),
    ):
        out[:] = np.nan
        multiply(out, *arguments)
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
        again = np.full_like(out, np.nan)
        _plain_tile(multiply is product, n, vectors, (0, 0), (again, *arguments))
        np.testing.assert_allclose(again, expected, rtol=1e-5, atol=1e-5)


def test_a_product_takes_float32_alone_and_hides_no_nan() -> None:
    left, right, bias, _ = matrices(4, 5, SPAN, 0)
    out = np.empty((4, SPAN), np.float32)
    with pytest.raises(AssertionError):
        product(out, left.astype(np.float64), right, None, None)
    left[2, 0] = np.nan
    product(out, left, right, bias, None)
    assert np.isnan(out).all(axis=1).tolist() == [False, False, True, False]


@pytest.mark.slow
def test_updates_are_the_same_at_every_width_of_vectors(tmp_path: Path) -> None:
    features = binding.get_host_cpu_features()
    for name in features:
        features[name] = features[name] and not name.startswith("avx512")
    chosen = {"NUMBA_CPU_FEATURES": features.flatten(), "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, __file__, str(tmp_path / "updated.npy")]
    subprocess.run(command, env=os.environ | chosen, check=True, timeout=PATIENCE_S)
    np.testing.assert_array_equal(np.load(tmp_path / "updated.npy"), all_updated())


if __name__ == "__main__":
    np.save(sys.argv[1], all_updated())
