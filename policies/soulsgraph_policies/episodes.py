"""Finished episodes in columns, and the tally that makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
from numba import njit

from soulsgraph_envs.combat import Combat
from soulsgraph_envs.game import LaneIndices
from soulsgraph_envs.state import Column

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Episodes:
    """Finished episodes of one judged skill; every field has one row an episode.

    `lengths` counts decisions of the judged skill, `seconds` game time; `terms` (n, terms) sums
    each reward term; `boss_hp` and `player_hp` are the State's ratios at the end.
    """

    lanes: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    seconds: npt.NDArray[np.float64]
    won: npt.NDArray[np.bool_]
    died: npt.NDArray[np.bool_]
    boss_hp: Floats
    player_hp: Floats
    terms: Floats

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def returns(self) -> Floats:
        """Undiscounted returns, (n,)."""
        returns: Floats = self.terms.sum(axis=1)
        return returns

    @classmethod
    def join(cls, parts: Sequence[Episodes]) -> Episodes:
        """Put episodes one after another."""
        names = [field.name for field in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    @classmethod
    def none(cls, terms: int) -> Episodes:
        """No episode at all, of a skill with so many reward terms."""
        counts, times = np.zeros(0, np.int64), np.zeros(0)
        flags, ratios = np.zeros(0, np.bool_), np.zeros(0, np.float32)
        return cls(counts, counts, times, flags, flags, ratios, ratios, np.zeros((0, terms), np.float32))


@njit(cache=True)
def _add_rows(sums: Floats, lanes: LaneIndices, terms: Floats) -> None:
    for row in range(len(lanes)):
        sums[lanes[row], :] += terms[row, :]


class EpisodeTally:
    """Sum the judged skill's reward terms lane by lane and close a row when an episode ends."""

    def __init__(self, combat: Combat, skill: str) -> None:
        self._combat, self._position = combat, combat.position(skill)
        self.sums = np.zeros((combat.lanes, len(combat.skills[self._position].reward.terms)), np.float32)
        self._closed: list[Episodes] = []

    def add(self, lanes: LaneIndices, terms: Floats) -> None:
        """Add the terms (n, terms) of decisions that ended in `lanes` (n,), which may occur more than once."""
        _add_rows(self.sums, lanes, terms)

    def close(self, lanes: LaneIndices) -> None:
        """Close the episodes that ended in `lanes` (n,) with the last tick."""
        combat = self._combat
        self._closed.append(
            Episodes(
                lanes=lanes,
                lengths=combat.decisions[lanes, self._position],
                seconds=combat.seconds[lanes],
                won=combat.won[lanes],
                died=combat.died[lanes],
                boss_hp=combat.rows[lanes, Column.BOSS_HP],
                player_hp=combat.rows[lanes, Column.PLAYER_HP],
                terms=self.sums[lanes],
            )
        )
        self.sums[lanes] = 0.0

    def drain(self) -> Episodes:
        """Give the episodes closed since the last call."""
        closed, self._closed = self._closed, []
        return Episodes.join(closed) if closed else Episodes.none(self.sums.shape[1])
