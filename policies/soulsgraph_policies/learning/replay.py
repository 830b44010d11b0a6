"""A module's replay: one float32 matrix of raw transitions, normalised as they are sampled.

They are drawn evenly or by priority. Behind the module's own lie rows that are kept for good: demonstrations, and
reserves of earlier tasks (experience replay, Rolnick et al. 2019; cloning of what was done, Wolczyk et al. 2022).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numba import njit

from soulsgraph_envs.combat.rollout import Doubles, Floats, Integers
from soulsgraph_envs.core.compiling import cached
from soulsgraph_envs.skills.skill import PREPROCESSING, normalized
from soulsgraph_policies.agents.inference import RunningNormalizer
from soulsgraph_policies.learning.draws import Priorities
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
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
    for i in range(out.shape[0]):
        # Of slices, the loop over the columns is vectorised.
        row, place = rows[indices[i], first : first + out.shape[1]], out[i]
        for column in range(out.shape[1]):
            place[column] = normalized(row[column], mean[column], inverse[column], clip)


def _build_gather(sources: int) -> Callable[..., int]:
    """Compile `gather`, cached on disk; `sources` is the checksum of the code that it calls."""

    @cached(error_model="numpy")
    def gather(
        rows: Floats,
        indices: Integers,
        statistics: tuple[Doubles, Doubles],
        clip: float,
        following: tuple[Integers, int],
        out: tuple[Floats, Floats, Integers, Floats, Floats],
    ) -> int:
        """Write drawn transitions: returns of several decisions along `links`."""
        links, steps = following
        observations, next_observations, actions, rewards, discounts = out
        normalizer, size = (statistics[0], 1.0 / statistics[1]), observations.shape[1]
        lasts = indices
        _take(rows, indices, actions, rewards, discounts)
        if steps > 1:
            lasts = indices.copy()
            _follow(rows, links, steps, lasts, rewards, discounts)
        _normalize(rows, indices, 0, normalizer, clip, observations)
        _normalize(rows, lasts, size, normalizer, clip, next_observations)
        return sources

    return cast(Callable[..., int], gather)


_gather = _build_gather(PREPROCESSING)


@dataclass(frozen=True)
class KeptRows:
    """Transitions that a replay keeps for good, packed, (n, columns).

    `share` of every batch is drawn from them; None draws each as often as one of the module's own. `weight` is that of
    their temporal-difference loss, `margin` that of the large-margin loss, 0 for none.
    """

    rows: Floats
    share: float | None
    weight: float
    margin: float


class ReplayBuffer:
    """Keep the latest transitions of one skill, observations (size,) raw, and beside them those of others for good.

    The hyperparameters set how many, and how they are drawn: returns of several decisions, discounts
    by decision or by tick, priorities.
    """

    def __init__(self, hyperparameters: DQNHyperparameters, observation_size: int) -> None:
        self._hyperparameters = hyperparameters
        self.capacity, self.size, self._written = hyperparameters.capacity, 0, 0
        self._observation_size = observation_size
        self._rows: Floats = np.zeros((self.capacity, 2 * observation_size + _EXTRA), np.float32)
        self._links: Integers = np.full(self.capacity if hyperparameters.n_step > 1 else 0, -1, np.int64)
        #: What lies behind the buffer's rows, demonstrations first; their rows are views of it.
        self._kept: list[KeptRows] = []
        self._latest: Integers = np.zeros((0, 2), np.int64)
        self._priorities = Priorities(self.capacity, power) if (power := hyperparameters.alpha) else None
        self._drawn: Integers = np.zeros(0, np.int64)
        self._memory = Batch.empty(0, observation_size)

    def keep(self, transitions: Transitions, share: float | None = None, td: bool = True, margin: float = 0.0) -> None:
        """Keep transitions for good, and draw this share of every batch from them, on average.

        Without a share they are decisions of somebody else, of which each is drawn as often as one of the module's own,
        with the hyperparameters' `margin`. Of those of an earlier task every call adds a reserve with a share of its
        own; all others have the rest. Rows are learned from with returns of one decision. Without `td` they have no
        temporal-difference loss. A `margin`, in standard deviations of their rewards, lets their actions be worth more
        than any other (as `DQNHyperparameters.margin`). They are part of the state, which replaces those kept before it
        is set.
        """
        if share is None:
            margin = self._hyperparameters.margin
        spread = float(transitions.rewards.std(dtype=np.float64))
        # Rewards that are all alike say nothing of their size.
        margin *= spread if spread > 1e-6 else 1.0
        rows = pack(transitions, self._hyperparameters)
        self._lay_out([*self._kept, KeptRows(rows, share, float(td), margin)])

    def _lay_out(self, kept: Sequence[KeptRows]) -> None:
        """Lay what is kept behind the module's own rows, demonstrations first: draws go by that order."""
        kept = sorted(kept, key=lambda one: one.share is not None)
        self._rows = np.concatenate([self._rows[: self.capacity], *(one.rows for one in kept)])
        ends = self.capacity + np.cumsum([len(one.rows) for one in kept], dtype=np.int64)
        self._kept = [
            replace(one, rows=self._rows[end - len(one.rows) : end])
            for one, end in zip(kept, ends.tolist(), strict=True)
        ]
        if len(self._links):
            none = np.full(len(self._rows) - self.capacity, -1, np.int64)
            self._links = np.concatenate([self._links[: self.capacity], none])

    def reserve(self, count: int, generator: np.random.Generator) -> Transitions:
        """Return a uniform sample without replacement of the module's own transitions, all if there are no more.

        They are single decisions, each an episode of its own, as `keep` takes them, and `vars` of them may be saved.
        Where discounts do not go by ticks, or an episode terminated, a decision's ticks are not known: they are 1.
        """
        numbers, size = self._hyperparameters, self._observation_size
        chosen = generator.choice(self.size, min(count, self.size), replace=False)
        rows = self._rows[np.sort(chosen)]
        observations, following, rest = rows[:, :size], rows[:, size : 2 * size], rows[:, 2 * size :]
        discounts, ticks = rest[:, _DISCOUNT].astype(np.float64), np.ones(len(rows), np.int64)
        if numbers.semi_markov and 0.0 < numbers.gamma < 1.0:
            alive = discounts > 0.0
            ticks[alive] = np.rint(np.log(discounts[alive]) / np.log(np.float64(np.float32(numbers.gamma))))
        return Transitions(
            observations=observations.copy(),
            next_observations=following.copy(),
            actions=rest[:, _ACTION].astype(np.int64),
            rewards=rest[:, _REWARD].copy(),
            terminated=discounts == 0.0,
            ticks=ticks,
            lanes=np.zeros(len(rows), np.int64),
            episodes=np.arange(len(rows)),
        )

    def add(self, transitions: Transitions) -> None:
        """Store transitions in order, replacing the oldest once the buffer is full."""
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
        self._written += count
        self.size = min(self._written, self.capacity)

    def sample(
        self, count: int, generator: np.random.Generator, normalizer: RunningNormalizer, decisions: int = 0
    ) -> Batch:
        """Draw `count` transitions with replacement, normalised by the present statistics, after `decisions` decisions.

        The batch is overwritten by the next call.
        """
        assert self.size or self._kept, "there is something to sample from"
        # New memory for every batch would take longer than to fill it.
        if count > len(self._memory.actions):
            self._memory = Batch.empty(count, self._observation_size)
        batch = self._memory.part(0, count)
        if self._priorities is None or not self.size:
            self._drawn = generator.integers(0, max(self.size, 1), count)
        else:
            self._drawn = self._priorities.draw(count, generator)
            correction = self._hyperparameters.correction(decisions)
            batch.weights[:] = self._priorities.weights(self._drawn, self.size, correction)
        if self._kept:
            self._draw_kept(batch, generator)
        statistics, clip = (normalizer.mean, normalizer.deviation), self._hyperparameters.observation_clip
        out = (batch.observations, batch.next_observations, batch.actions, batch.rewards, batch.discounts)
        _gather(self._rows, self._drawn, statistics, clip, (self._links, self._hyperparameters.n_step), out)
        return batch

    def _draw_kept(self, batch: Batch, generator: np.random.Generator) -> None:
        """Draw rows that are kept in the place of a part of the module's own."""
        if self._priorities is None or not self.size:
            batch.weights[:] = 1.0
        batch.margins[:] = 0.0
        drawn, places = self._drawn, generator.random(len(self._drawn))
        low, first = 0.0, self.capacity
        for one, high in zip(self._kept, self._bounds(), strict=True):
            chosen, count = (low <= places) & (places < high), len(one.rows)
            drawn[chosen] = first + generator.integers(0, count, int(chosen.sum()))
            batch.weights[chosen], batch.margins[chosen] = one.weight, one.margin
            low, first = high, first + count

    def _bounds(self) -> list[float]:
        """Return where each one's part of a batch ends, of 1; beyond the last are the module's own rows."""
        left = max(1.0 - sum(one.share or 0.0 for one in self._kept), 0.0)
        others = self.size + sum(len(one.rows) for one in self._kept if one.share is None)
        parts = [left * len(one.rows) / others if one.share is None else one.share for one in self._kept]
        bounds: list[float] = np.cumsum(parts).tolist()
        if not self.size:
            # What the module has not done yet is not drawn, whatever is left for it.
            bounds = [bound / bounds[-1] for bound in bounds]
            bounds[-1] = np.inf
        return bounds

    def learned(self, errors: Floats) -> None:
        """Record the TD errors (n,) of the last drawn transitions."""
        assert errors.shape == self._drawn.shape
        if self._priorities is not None and (own := self._drawn < self.capacity).any():
            self._priorities.update(self._drawn[own], errors[own])

    def get_state(self) -> dict[str, Any]:
        """Return everything that later samples depend on; rows not yet written are left out.

        The arrays are the buffer's own, which may fill half of the memory: write them before it changes.
        """
        state = {
            "rows": self._rows[: self.size],
            "written": self._written,
            "links": self._links[: self.capacity],
            "latest": self._latest,
        }
        if self._kept:
            state["kept"] = [vars(one) for one in self._kept]
        return state if self._priorities is None else state | {"priorities": self._priorities.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state`."""
        rows = state["rows"]
        if "kept" in state or self._kept:
            self._lay_out([KeptRows(**one) for one in state.get("kept", ())])
        self.size, self._written = len(rows), int(state["written"])
        self._rows[: self.size] = rows
        self._links[: self.capacity], self._latest = state["links"], state["latest"].copy()
        if self._priorities is not None:
            self._priorities.set_state(state["priorities"])
