"""What a module learns from: a replay of its transitions, or those since the last updates (PQN).

A replay is one float32 matrix of raw transitions, normalised as they are sampled. They are drawn evenly, by priority
from a sum tree over its rows (Schaul et al. 2016), or with stated shares of its sources' transitions.

Without a replay many lanes take its place, and returns of the trace lambda that of a target network: Gallici et al.,
"Simplifying Deep Temporal Difference Learning" (ICLR 2025). Layers are not normalised here, but observations are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numba import njit
from torch import nn

from soulsgraph_envs.combat.rollout import Doubles, Flags, Floats, Integers
from soulsgraph_envs.core.compiling import cached
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.skills.skill import PREPROCESSING, Mirror, normalized
from soulsgraph_policies.agents.inference import RunningNormalizer
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters, check_memory
from soulsgraph_policies.learning.sampler import Transitions

# Columns behind the two observations.
_REWARD, _DISCOUNT, _ACTION, _EXTRA = 0, 1, 2, 3
# Columns of the table of lanes: the number of the lane's latest transition, and its episode.
_LATEST, _EPISODE = 0, 1


@dataclass(frozen=True)
class Batch:
    """Sampled transitions with normalised, clipped observations; (n, size) or (n,) each.

    A target is reward + discount * value of the next observation: `rewards` are returns of several
    decisions where n-step returns are on, and `discounts` are 0 where the episode terminated. `weights`
    correct prioritised draws, 1 without. By `margins` an action that was shown is to be worth more than any other;
    0 for the module's own.
    """

    observations: Floats
    next_observations: Floats
    actions: Integers
    rewards: Floats
    discounts: Floats
    weights: Floats
    margins: Floats

    @classmethod
    def empty(cls, count: int, size: int) -> Batch:
        """Return memory for `count` transitions of observations (size,), all of weight 1."""
        observations, following = (np.empty((count, size), np.float32) for _ in range(2))
        rewards, discounts = (np.empty(count, np.float32) for _ in range(2))
        weights, margins = np.ones(count, np.float32), np.zeros(count, np.float32)
        return cls(observations, following, np.empty(count, np.int64), rewards, discounts, weights, margins)

    def part(self, start: int, end: int) -> Batch:
        """Return the rows from `start` to `end`, as views."""
        return Batch(*(values[start:end] for values in vars(self).values()))


def pack(transitions: Transitions, hyperparameters: DQNHyperparameters) -> Floats:
    """Return raw transitions as rows of one matrix, (n, columns); where an episode terminated the discount is 0."""
    discount = np.float32(hyperparameters.gamma)
    alive = np.float32(1.0) - transitions.terminated
    discounts = alive * (discount**transitions.ticks if hyperparameters.semi_markov else discount)
    observations = (transitions.observations, transitions.next_observations)
    rows = np.column_stack((*observations, transitions.rewards, discounts, transitions.actions))
    return rows.astype(np.float32, copy=False)


@cached()
def link(rows: Floats, first: int, links: Integers, latest: Integers, lanes: Integers, episodes: Integers) -> None:
    """Link every decision to the row of the next one of its episode, or to -1.

    `rows` (capacity, columns) are packed, `links` are (capacity,). The decisions have `lanes` (n,), `episodes` (n,) and
    numbers from `first` on; `latest` (lanes, 2) holds each lane's latest number and episode. Where a transition was
    lost, the observations on both sides differ, and there is no link.
    """
    capacity, size = rows.shape[0], (rows.shape[1] - _EXTRA) // 2
    for i in range(lanes.shape[0]):
        number, lane = first + i, latest[lanes[i]]
        row, before = number % capacity, lane[_LATEST] % capacity
        links[row] = -1
        if lane[_LATEST] >= 0 and lane[_EPISODE] == episodes[i] and number - lane[_LATEST] < capacity:
            follows = True
            for column in range(size):
                follows = follows and rows[before, size + column] == rows[row, column]
            if follows:
                links[before] = row
        lane[_LATEST], lane[_EPISODE] = number, episodes[i]


@njit(error_model="numpy")
def _take(rows: Floats, indices: Integers, actions: Integers, rewards: Floats, discounts: Floats) -> None:
    behind = rows.shape[1] - _EXTRA
    for i in range(indices.shape[0]):
        row = indices[i]
        rewards[i], discounts[i] = rows[row, behind + _REWARD], rows[row, behind + _DISCOUNT]
        actions[i] = np.int64(rows[row, behind + _ACTION])


@njit(error_model="numpy")
def _follow(rows: Floats, links: Integers, steps: int, lasts: Integers, rewards: Floats, discounts: Floats) -> None:
    """Add the returns of up to `steps` - 1 further decisions, and set `lasts` to the rows of the last ones."""
    behind = rows.shape[1] - _EXTRA
    for i in range(lasts.shape[0]):
        for _ in range(steps - 1):
            if links[lasts[i]] < 0 or discounts[i] == 0.0:
                break
            lasts[i] = links[lasts[i]]
            rewards[i] += discounts[i] * rows[lasts[i], behind + _REWARD]
            discounts[i] *= rows[lasts[i], behind + _DISCOUNT]


@njit(error_model="numpy")
def _normalize(
    rows: Floats, indices: Integers, first: int, statistics: tuple[Doubles, Doubles], clip: float, out: Floats
) -> None:
    """Normalise the raw observations that begin at column `first`."""
    mean, inverse = statistics
    values = np.empty(indices.shape[0], np.float32)
    for column in range(out.shape[1]):
        # The first and the last loop jump through memory; the one between them is vectorised.
        place, centre, scale = np.uint64(first + column), mean[column], inverse[column]
        for i in range(values.shape[0]):
            # Unsigned, an index is not checked for counting from the end.
            values[i] = rows[np.uint64(indices[i]), place]
        for i in range(values.shape[0]):
            values[i] = normalized(values[i], centre, scale, clip)
        for i in range(values.shape[0]):
            out[i, column] = values[i]


@njit(error_model="numpy")
def _reflect(
    rows: Floats,
    indices: Integers,
    first: int,
    statistics: tuple[Doubles, Doubles],
    clip: float,
    mirror: tuple[Flags, Floats, Floats],
    out: Floats,
) -> None:
    """Normalise the observations of the reflected rows once more, reflected."""
    mean, inverse = statistics
    reflected, sign, shift = mirror
    for i in range(indices.shape[0]):
        if reflected[i]:
            for column in range(out.shape[1]):
                seen = sign[column] * rows[indices[i], first + column] + shift[column]
                out[i, column] = normalized(seen, mean[column], inverse[column], clip)


def _build_gather(sources: int) -> Callable[..., int]:
    """Compile `gather`, cached on disk; `sources` is the checksum of the code that it calls."""

    @cached(error_model="numpy")
    def gather(
        rows: Floats,
        indices: Integers,
        statistics: tuple[Doubles, Doubles],
        clip: float,
        following: tuple[Integers, int],
        mirror: tuple[Flags, Floats, Floats, Integers],
        out: tuple[Floats, Floats, Integers, Floats, Floats],
    ) -> int:
        """Write drawn transitions: returns of several decisions along `links`, some of them mirrored."""
        links, steps = following
        reflected, sign, shift, counterparts = mirror
        observations, next_observations, actions, rewards, discounts = out
        normalizer, size = (statistics[0], 1.0 / statistics[1]), observations.shape[1]
        lasts = indices
        _take(rows, indices, actions, rewards, discounts)
        if steps > 1:
            lasts = indices.copy()
            _follow(rows, links, steps, lasts, rewards, discounts)
        _normalize(rows, indices, 0, normalizer, clip, observations)
        _normalize(rows, lasts, size, normalizer, clip, next_observations)
        if reflected.shape[0]:
            reflection = (reflected, sign, shift)
            _reflect(rows, indices, 0, normalizer, clip, reflection, observations)
            _reflect(rows, lasts, size, normalizer, clip, reflection, next_observations)
            for i in range(reflected.shape[0]):
                if reflected[i]:
                    actions[i] = counterparts[actions[i]]
        return sources

    return cast(Callable[..., int], gather)


_gather = _build_gather(PREPROCESSING)
#: For transitions that are learned from as they are: none follows another, none is mirrored.
_ALONE = np.zeros(0, np.int64), 1
_AS_SEEN = np.zeros(0, np.bool_), np.zeros(0, np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64)


def read_rows(
    rows: Floats,
    indices: Integers,
    normalizer: RunningNormalizer,
    clip: float,
    batch: Batch,
    following: tuple[Integers, int] = _ALONE,
    mirror: tuple[Flags, Floats, Floats, Integers] = _AS_SEEN,
) -> None:
    """Write packed transitions at `indices` (n,) into a batch of n, normalised by the present statistics.

    `following` are the links and the decisions that a return sums, `mirror` which ones are mirrored and how.
    """
    out = (batch.observations, batch.next_observations, batch.actions, batch.rewards, batch.discounts)
    _gather(rows, indices, (normalizer.mean, normalizer.deviation), clip, following, mirror, out)


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


#: Options of a replay that does not draw evenly, or is none.
_UNEVEN = ("priority_exponent", "num_steps")
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


class ReplayBuffer:
    """Keep the latest transitions of one skill, observations (size,) raw, and beside them those that were shown to it.

    The hyperparameters set how many, and how they are drawn: returns of several decisions, discounts
    by decision or by tick, priorities, mirroring by `mirror`.

    Raises:
        DataError: if it would fill more than half of the memory.
    """

    def __init__(
        self, hyperparameters: DQNHyperparameters, observation_size: int, mirror: Mirror | None = None
    ) -> None:
        check_memory({"a skill": hyperparameters.replay_bytes(observation_size)})
        self._hyperparameters, self._mirrored = hyperparameters, mirror is not None
        nothing = np.zeros(0, np.float32)
        mirror = mirror or Mirror(nothing, nothing, np.zeros(0, np.int64))
        self._mirror = (mirror.sign, mirror.shift, mirror.actions)
        self.capacity, self.size, self._written = hyperparameters.buffer_size, 0, 0
        self._observation_size = observation_size
        self._rows: Floats = np.zeros((self.capacity, 2 * observation_size + _EXTRA), np.float32)
        self._links: Integers = np.full(self.capacity if hyperparameters.n_step > 1 else 0, -1, np.int64)
        #: Transitions shown, behind the buffer's rows, and their margin.
        self._shown, self._margin = 0, 0.0
        self._latest: Integers = np.zeros((0, 2), np.int64)
        self._priorities = Priorities(self.capacity, power) if (power := hyperparameters.priority_exponent) else None
        self._by_source: BatchShares | None = None
        self._drawn: Integers = np.zeros(0, np.int64)
        self._memory = Batch.empty(0, observation_size)

    def show(self, transitions: Transitions) -> None:
        """Keep decisions of somebody else for good, and draw each as often as one of the module's own."""
        self._rows = np.concatenate([self._rows, pack(transitions, self._hyperparameters)])
        if len(self._links):
            self._links = np.concatenate([self._links, np.full(len(transitions), -1, np.int64)])
        self._shown += len(transitions)
        spread = float(transitions.rewards.std(dtype=np.float64))
        # Rewards that are all alike say nothing of their size.
        self._margin = self._hyperparameters.margin * (spread if spread > 1e-6 else 1.0)

    def share_batches(self, shares: Doubles) -> None:
        """From the first transition on, draw each batch by the sources' `shares` (sources,).

        A buffer that has shares keeps them. Of decisions that were shown as many are drawn as without shares.

        Raises:
            SoulsGraphError: if the hyperparameters do not draw evenly.
        """
        check_even_draws("replay", self._hyperparameters)
        if self._by_source is None:
            assert not self.size, "shares are set before the first transition"
            self._by_source = BatchShares(self.capacity, shares)

    def add(self, transitions: Transitions, source: int = 0) -> None:
        """Store transitions of one source in order, replacing the oldest once the buffer is full."""
        count, first = len(transitions), self._written
        rows = (first + np.arange(count)) % self.capacity
        self._rows[rows] = pack(transitions, self._hyperparameters)
        if self._hyperparameters.n_step > 1:
            missing = int(transitions.lanes.max(initial=0)) + 1 - len(self._latest)
            if missing > 0:
                self._latest = np.concatenate([self._latest, np.full((missing, 2), -1, np.int64)])
            link(self._rows[: self.capacity], first, self._links, self._latest, transitions.lanes, transitions.episodes)
        if self._priorities is not None:
            self._priorities.add(rows)
        if self._by_source is not None:
            self._by_source.add(rows, source)
        self._written += count
        self.size = min(self._written, self.capacity)

    def sample(
        self, count: int, generator: np.random.Generator, normalizer: RunningNormalizer, decisions: int = 0
    ) -> Batch:
        """Draw `count` transitions with replacement, normalised by the present statistics, after `decisions` decisions.

        The batch is overwritten by the next call.

        Raises:
            SoulsGraphError: if the buffer is empty.
        """
        if not self.size and not self._shown:
            raise SoulsGraphError("replay: expected transitions to sample from, found none; add some first.")
        # New memory for every batch would take longer than to fill it.
        if count > len(self._memory.actions):
            self._memory = Batch.empty(count, self._observation_size)
        batch = self._memory.part(0, count)
        if self._by_source is not None and self.size:
            self._drawn = self._by_source.draw(count, self._hyperparameters.batch_size, generator)
        elif self._priorities is None or not self.size:
            self._drawn = generator.integers(0, max(self.size, 1), count)
        else:
            self._drawn = self._priorities.draw(count, generator)
            correction = self._hyperparameters.correction(decisions)
            batch.weights[:] = self._priorities.weights(self._drawn, self.size, correction)
        if self._shown:
            shown = generator.random(count) < self._shown / (self._shown + self.size)
            self._drawn[shown] = self.capacity + generator.integers(0, self._shown, int(shown.sum()))
            batch.weights[shown], batch.margins[:] = 1.0, np.where(shown, self._margin, 0.0)
        following, clip = (self._links, self._hyperparameters.n_step), self._hyperparameters.observation_clip
        reflected = generator.random(count) < 0.5 if self._mirrored else np.zeros(0, np.bool_)
        read_rows(self._rows, self._drawn, normalizer, clip, batch, following, (reflected, *self._mirror))
        return batch

    def learned(self, errors: Floats) -> None:
        """Record the TD errors (n,) of the last drawn transitions."""
        if self._priorities is not None and (own := self._drawn < self.capacity).any():
            self._priorities.update(self._drawn[own], errors[own])

    def get_state(self) -> dict[str, Any]:
        """Return everything that later samples depend on; rows not yet written or shown are left out.

        The arrays are the buffer's own, which may fill half of the memory: write them before it changes.
        """
        state = {
            "rows": self._rows[: self.size],
            "written": self._written,
            "links": self._links[: self.capacity],
            "latest": self._latest,
        }
        parts = {"priorities": self._priorities, "by_source": self._by_source}
        return state | {name: part.get_state() for name, part in parts.items() if part is not None}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state`.

        Raises:
            SoulsGraphError: if the state does not fit this buffer.
        """
        rows, width = state["rows"], self._rows.shape[1]
        if rows.ndim != 2 or rows.shape[1] != width or len(rows) > self.capacity:
            raise SoulsGraphError(
                f"replay: expected at most {self.capacity} rows of {width} values, found {rows.shape}; "
                "resume with the plan that the run was started with."
            )
        self.size, self._written = len(rows), int(state["written"])
        self._rows[: self.size] = rows
        self._links[: self.capacity], self._latest = state["links"], state["latest"].copy()
        if self._priorities is not None:
            self._priorities.set_state(state["priorities"])
        shared, oldest = state.get("by_source"), self._written % max(self.size, 1)
        self._by_source = BatchShares.restored(self.capacity, shared, oldest) if shared else None


@cached()
def _trace_returns(links: Integers, discounts: Floats, values: Floats, decay: float, returns: Floats) -> None:
    """Turn rewards into lambda returns in place, (n,), from the last decision to the first.

    `values` are those of the states after the decisions, `links` the places of the decisions that follow, or -1.
    """
    for i in range(links.shape[0] - 1, -1, -1):
        ahead = values[i]
        if links[i] >= 0:
            ahead += decay * (returns[links[i]] - ahead)
        returns[i] += discounts[i] * ahead


class RecentDecisions:
    """Keep one skill's transitions since the last updates, for learning from them in `update_epochs` passes.

    It stands in the place of a `ReplayBuffer`. `network` is the one that learns: normalised observations (n, size) to
    Q-values (n, actions).
    """

    def __init__(self, hyperparameters: DQNHyperparameters, network: nn.Module) -> None:
        self._hyperparameters, self._network = hyperparameters, network
        self._parts: list[Transitions] = []

    def add(self, transitions: Transitions, source: int = 0) -> None:
        """Store transitions in order, whatever their source."""
        if len(transitions):
            self._parts.append(transitions)

    def sample(
        self, count: int, generator: np.random.Generator, normalizer: RunningNormalizer, decisions: int = 0
    ) -> Batch:
        """Return `count` rows, every epoch its share of all whole rollouts in an order of its own, and forget those.

        Their rewards are the whole targets: lambda returns by the present network. What was kept beyond whole
        rollouts enters the returns and stays for the next call.
        """
        numbers, recent = self._hyperparameters, Transitions.join(self._parts)
        every, rows = Batch.empty(len(recent), recent.observations.shape[1]), pack(recent, numbers)
        read_rows(rows, np.arange(len(recent)), normalizer, numbers.observation_clip, every)
        links, latest = np.full(len(recent), -1), np.full((recent.lanes.max() + 1, 2), -1)
        link(rows, 0, links, latest, recent.lanes, recent.episodes)
        values = self._values(every.next_observations)
        _trace_returns(links, every.discounts, values, numbers.td_lambda, every.rewards)
        whole, share = len(recent) // numbers.num_steps * numbers.num_steps, count // numbers.update_epochs
        self._parts = [recent.last(len(recent) - whole)] if len(recent) > whole else []
        drawn = np.concatenate([generator.permutation(whole)[:share] for _ in range(numbers.update_epochs)])
        assert len(drawn) == count, "updates are owed by whole rollouts"
        # No value of a later state is added to a return: any observations do.
        seen, nothing = every.observations[drawn], np.zeros(count, np.float32)
        return Batch(seen, seen, every.actions[drawn], every.rewards[drawn], nothing, every.weights[drawn], nothing)

    @torch.no_grad()
    def _values(self, observations: Floats) -> Floats:
        device = next(self._network.parameters()).device
        greatest = self._network(torch.as_tensor(observations, device=device)).max(dim=1).values
        values: Floats = greatest.cpu().numpy()
        return values

    def learned(self, errors: Floats) -> None:
        """Record nothing of `errors` (n,): what was learned from is gone."""

    def get_state(self) -> dict[str, Any]:
        """Return the transitions kept, as arrays."""
        return {"recent": vars(Transitions.join(self._parts)) if self._parts else {}}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state`."""
        # A large array lies in the checkpoint's file.
        kept: dict[str, Any] = {
            name: None if part is None else np.array(part) for name, part in state["recent"].items()
        }
        self._parts = [Transitions(**kept)] if kept else []
