"""Forward transfer, backward transfer and forgetting as continual-learning benchmarks define them.

Win rates are the performances: `matrix[i, j]` is the win rate in domain j after training on domain i.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]


def forward_transfer(matrix: Doubles, chance: Doubles) -> float:
    """Return how much training on the domains before helps in one not trained on yet.

    FWT = 1 / (T - 1) * sum over i = 2..T of R[i-1, i] - b[i], with b the performance of the untrained
    agent: Lopez-Paz & Ranzato (2017), "Gradient episodic memory for continual learning", Eq. 4. The
    untrained agent here is one whose every skill plays by chance.
    """
    ahead = np.diagonal(matrix, 1) - chance[1:]
    return float(ahead.mean())


def backward_transfer(matrix: Doubles) -> float:
    """Return what later training did to the earlier domains; below 0 it did harm.

    BWT = 1 / (T - 1) * sum over i = 1..T-1 of R[T, i] - R[i, i]: Lopez-Paz & Ranzato (2017), Eq. 3.
    """
    return float((matrix[-1, :-1] - np.diagonal(matrix)[:-1]).mean())


def forgetting(matrix: Doubles) -> Doubles:
    """Return what each domain lost from the end of its own training to the end of all, (domains,).

    F_i = p_i(i * D) - p_i(T * D), D being the budget of a domain: Wolczyk et al. (2021), "Continual
    World: a robotic benchmark for continual reinforcement learning". The last one's is 0.
    """
    lost: Doubles = np.diagonal(matrix) - matrix[-1]
    return lost


def isolated_forgetting(matrix: Doubles) -> Doubles:
    """Return what training on domain j took from an earlier domain i, (domain i, domain j); nan elsewhere.

    F[i, j] = (r[i, j-1, end] - r[i, j, end]) / |r[i, all, max]| for i < j: Powers et al. (2022), "CORA:
    benchmarks, baselines, and metrics as a platform for continual reinforcement learning agents".
    """
    return _isolated(matrix, earlier=True)


def zero_shot_forward_transfer(matrix: Doubles) -> Doubles:
    """Return what training on domain j brought to a later domain i, (domain i, domain j); nan elsewhere.

    Z[i, j] = (r[i, j, end] - r[i, j-1, end]) / |r[i, all, max]| for i > j: Powers et al. (2022). Before
    the first domain nothing is trained, so j = 1 has no value.
    """
    return -_isolated(matrix, earlier=False)


def _isolated(matrix: Doubles, earlier: bool) -> Doubles:
    size = len(matrix)
    out = np.full((size, size), np.nan)
    for i in range(size):
        # Where a domain was never won nothing can be lost or gained.
        best = max(float(np.abs(matrix[:, i]).max()), np.finfo(float).tiny)
        for j in range(1, size):
            if (i < j) == earlier and i != j:
                out[i, j] = (matrix[j - 1, i] - matrix[j, i]) / best
    return out


def training_forward_transfer(area: float, area_alone: float) -> float | None:
    """Return FT_i = (AUC_i - AUC_i^b) / (1 - AUC_i^b): what came before helped while domain i was trained.

    `area` is the mean success rate over the steps in the domain, `area_alone` that of training it from
    scratch for the same steps: Wolczyk et al. (2021), "Continual World". 0 is no help, 1 success from the
    first step on; None where training from scratch succeeded throughout.
    """
    return (area - area_alone) / (1.0 - area_alone) if area_alone < 1.0 else None
