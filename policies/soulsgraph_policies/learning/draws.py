"""How the rows of a replay are drawn by priority, from a sum tree (Schaul et al. 2016)."""

from __future__ import annotations

from typing import Any

import numpy as np

from soulsgraph_envs.combat.rollout import Doubles, Floats, Integers
from soulsgraph_envs.core.compiling import cached

#: Added to every TD error, so that no transition is lost forever.
_LEAST_PRIORITY = 1e-6


@cached()
def _write_leaves(tree: Doubles, rows: Integers, values: Doubles) -> None:
    """Set leaves and the sums above them; leaf i lies at half + i."""
    half = tree.shape[0] // 2
    for i in range(rows.shape[0]):
        node = half + rows[i]
        tree[node] = values[i]
        while node > 1:
            node //= 2
            tree[node] = tree[2 * node] + tree[2 * node + 1]


@cached()
def _find_rows(tree: Doubles, shares: Doubles, rows: Integers) -> None:
    """Return, for every share of the total, in [0, 1), the row whose part of the cumulative sum contains it."""
    half = tree.shape[0] // 2
    for i in range(shares.shape[0]):
        left, node = shares[i] * tree[1], 1
        while node < half:
            node *= 2
            # A share rounded up to the sum of the left half must not lead into an empty right one.
            if left >= tree[node] and tree[node + 1] > 0.0:
                left -= tree[node]
                node += 1
        rows[i] = node - half


class Priorities:
    """Draw rows of a replay in proportion to (|TD error| + epsilon) ** exponent.

    A new row gets the greatest priority that any row ever had, so that it is drawn soon. Draws are
    independent of each other; the publication's strata are left out.
    """

    def __init__(self, capacity: int, exponent: float) -> None:
        self._exponent = exponent
        self._tree: Doubles = np.zeros(2 * (1 << (capacity - 1).bit_length()))
        self._greatest = 1.0

    def add(self, rows: Integers) -> None:
        """Add `rows` (n,) with the greatest priority so far."""
        _write_leaves(self._tree, rows, np.full(len(rows), self._greatest))

    def draw(self, count: int, generator: np.random.Generator) -> Integers:
        """Draw rows with replacement, (count,)."""
        rows = np.empty(count, np.int64)
        _find_rows(self._tree, generator.random(count), rows)
        return rows

    def weights(self, rows: Integers, size: int, correction: float) -> Floats:
        """Return the importance weights of drawn `rows` (n,) among `size`, scaled to a maximum of 1, (n,)."""
        half = len(self._tree) // 2
        scarcity = self._tree[1] / (size * self._tree[half + rows])
        weights = scarcity**correction
        normalized: Floats = (weights / weights.max()).astype(np.float32)
        return normalized

    def update(self, rows: Integers, errors: Floats) -> None:
        """Set the priorities of drawn `rows` (n,) from new TD `errors` (n,); of a row drawn twice, the last counts."""
        values = (np.abs(errors, dtype=np.float64) + _LEAST_PRIORITY) ** self._exponent
        self._greatest = max(self._greatest, float(values.max()))
        _write_leaves(self._tree, rows, values)

    def get_state(self) -> dict[str, Any]:
        """Return everything that later draws depend on; the array is not a copy."""
        half = len(self._tree) // 2
        return {"leaves": self._tree[half:], "greatest": self._greatest}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state` of priorities of the same capacity."""
        _write_leaves(self._tree, np.arange(len(state["leaves"])), state["leaves"])
        self._greatest = float(state["greatest"])
