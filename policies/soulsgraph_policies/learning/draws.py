"""How the rows of a replay are drawn: by priority from a sum tree (Schaul et al. 2016), or by their sources' shares."""

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


#: A row that no transition was written to.
_EMPTY = -1


class BatchShares:
    """Draw rows of a buffer of `capacity`, so that every batch holds the `shares` (sources,) of its sources.

    What a source without rows lacks is spread over the others in proportion to their shares; where all that have rows
    have a share of 0, every row is drawn equally often. Within a source every row is.
    """

    def __init__(self, capacity: int, shares: Doubles) -> None:
        self._shares = np.array(shares, np.float64)
        self._sources = np.full(capacity, _EMPTY, np.int16)
        self._queues = [_Queue() for _ in self._shares]

    def add(self, rows: Integers, source: int) -> None:
        """Note that `rows` (n,), the next ones in the buffer's order, were written with transitions of a source."""
        rows = rows[-len(self._sources) :]
        overwritten = np.bincount(self._sources[rows] - _EMPTY, minlength=len(self._queues) + 1)[1:]
        for place in overwritten.nonzero()[0]:
            # A buffer overwrites its oldest rows, which are the oldest of their sources.
            self._queues[place].drop(int(overwritten[place]))
        self._sources[rows] = source
        self._queues[source].push(rows)

    def draw(self, count: int, batch_size: int, generator: np.random.Generator) -> Integers:
        """Draw rows of whole batches, one batch after another, with replacement, (count,).

        Of `batch_size` rows a source with the share s gets s * batch_size, rounded down or up at random so that its
        mean is exact: the rows of a batch lie at equal distances on the line of shares, the first at a place that is
        drawn (systematic sampling, Madow & Madow 1944).
        """
        assert not count % batch_size, "rows are drawn for whole batches"
        sizes = np.array([len(queue) for queue in self._queues])
        weights = np.where(sizes > 0, self._shares, 0.0)
        bounds = np.cumsum(weights if weights.any() else sizes)
        places = np.arange(batch_size) + generator.random(count // batch_size)[:, None]
        # The last place may be rounded up to the end of the line.
        places = np.minimum(places.ravel() / batch_size, np.nextafter(1.0, 0.0))
        sources = np.searchsorted(bounds / bounds[-1], places, side="right")
        ranks = (generator.random(count) * sizes[sources]).astype(np.int64)
        drawn = np.empty(count, np.int64)
        for place, queue in enumerate(self._queues):
            chosen = sources == place
            drawn[chosen] = queue.rows[ranks[chosen]]
        return drawn

    def get_state(self) -> dict[str, Any]:
        """Return the shares, and the source of every row that was written; the arrays are not copies."""
        return {"shares": self._shares, "sources": self._sources[: sum(len(queue) for queue in self._queues)]}

    @classmethod
    def restored(cls, capacity: int, state: dict[str, Any], oldest: int) -> BatchShares:
        """Return what goes on from `get_state`; `oldest` is the buffer's oldest row."""
        found = cls(capacity, state["shares"])
        written = len(state["sources"])
        found._sources[:written] = state["sources"]
        rows = (oldest + np.arange(written)) % max(written, 1)
        for place, queue in enumerate(found._queues):
            queue.push(rows[found._sources[rows] == place])
        return found


class _Queue:
    """Rows of one source, the oldest first."""

    def __init__(self) -> None:
        self._kept, self._first, self._end = np.zeros(0, np.int64), 0, 0

    def __len__(self) -> int:
        return self._end - self._first

    @property
    def rows(self) -> Integers:
        """The rows, as a view."""
        return self._kept[self._first : self._end]

    def push(self, rows: Integers) -> None:
        """Add the newest `rows` (n,)."""
        if self._end + len(rows) > len(self._kept):
            # Room for as many again, so that a row is moved about once.
            self._kept = np.concatenate([self.rows, np.zeros(len(self) + len(rows), np.int64)])
            self._first, self._end = 0, self._end - self._first
        self._kept[self._end : self._end + len(rows)] = rows
        self._end += len(rows)

    def drop(self, count: int) -> None:
        """Forget the oldest rows."""
        self._first += count
