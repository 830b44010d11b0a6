"""Draw a replay's rows by where they came from: every batch holds stated shares of its sources' transitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from soulsgraph_envs.combat.episodes import Doubles, Integers
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_policies.hyperparameters import DQNHyperparameters

#: Options of a replay that does not draw evenly, or is none.
_UNEVEN = ("priority_exponent", "rollout")
#: A row that no transition was written to.
_EMPTY = -1


def check_even_draws(module: str, hyperparameters: DQNHyperparameters) -> None:
    """Refuse shares of batches where a module does not draw them evenly from a replay.

    Raises:
        SoulsGraphError: naming the option.
    """
    for name in _UNEVEN:
        if value := getattr(hyperparameters, name):
            raise SoulsGraphError(
                f"{module}: expected a replay that is drawn from evenly where batches have shares by source, found "
                f"{name} = {value}; leave out that option, or all shares of batches."
            )


class BatchShares:
    """Draw rows of a ring of `capacity`, so that every batch holds the `shares` (sources,) of its sources.

    What a source without rows lacks is spread over the others in proportion to their shares; where all that have rows
    have a share of 0, every row is drawn equally often. Within a source every row is.
    """

    def __init__(self, capacity: int, shares: Doubles) -> None:
        self._shares = np.array(shares, np.float64)
        self._sources = np.full(capacity, _EMPTY, np.int16)
        self._queues = [_Queue() for _ in self._shares]

    def add(self, rows: Integers, source: int) -> None:
        """Note that `rows` (n,) were written with transitions of a source: the next ones of the ring, in its order."""
        rows = rows[-len(self._sources) :]
        overwritten = np.bincount(self._sources[rows] - _EMPTY, minlength=len(self._queues) + 1)[1:]
        for place in overwritten.nonzero()[0]:
            # A ring overwrites its oldest rows, which are the oldest of their sources.
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
        """Return the shares, and the source of every row that was written."""
        return {"shares": self._shares.copy(), "sources": self._sources[self._sources != _EMPTY].copy()}

    @classmethod
    def restored(cls, capacity: int, state: dict[str, Any], oldest: int) -> BatchShares:
        """Return what goes on from `get_state`; `oldest` is the ring's oldest row."""
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
