"""Experience replay: one float32 matrix of raw transitions, normalised as they are sampled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numba import njit

from soulsgraph_envs.combat.episodes import Doubles, Flags, Floats, Integers
from soulsgraph_envs.core.compiling import cached
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.skills.base import PREPROCESSING, Mirror, normalized
from soulsgraph_policies.agents.normalizer import RunningNormalizer
from soulsgraph_policies.learning.draws import BatchShares, Priorities, check_even_draws
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
    discount = np.float32(hyperparameters.discount)
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
        self.capacity, self.size, self._written = hyperparameters.replay_capacity, 0, 0
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
