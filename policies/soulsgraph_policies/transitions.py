"""What a sampler hands to the learner: transitions of the modules that learn, in columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.combat.episodes import Episodes


@dataclass(frozen=True)
class Transitions:
    """Finished decisions played by one module, (n,) or (n, size) each; observations are raw.

    `next_observations` are the last observations of an episode where it ended. `terminated` marks deaths
    and wins only: a horizon bootstraps. `ticks` are the control ticks of a decision. Decisions of the
    same lane and episode follow each other; lanes are numbered over all runners.
    """

    observations: npt.NDArray[np.float32]
    next_observations: npt.NDArray[np.float32]
    actions: npt.NDArray[np.int64]
    rewards: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    ticks: npt.NDArray[np.int64]
    lanes: npt.NDArray[np.int64]
    episodes: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.actions)

    def first(self, count: int) -> Transitions:
        """Return the first `count` transitions."""
        if count >= len(self):
            return self
        return Transitions(*(getattr(self, field.name)[:count] for field in fields(self)))

    @classmethod
    def join(cls, parts: Sequence[Transitions]) -> Transitions:
        """Join one or more parts in their order."""
        if len(parts) == 1:
            return parts[0]
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


@dataclass(frozen=True)
class Chunk:
    """What one call of an env runner's `sample` collected: transitions by module, and ended episodes by skill.

    `lane_ticks` counts the control ticks it took, summed over the lanes; `notes` are a real-time
    game's problems, `failure` why it cannot be opened. Without either there is at least one transition.
    """

    transitions: Mapping[str, Transitions]
    episodes: Mapping[str, Episodes]
    lane_ticks: int
    notes: tuple[str, ...] = ()
    failure: str = ""

    def env_steps(self) -> int:
        """Count the steps, under the name by which RLlib asks: decisions of all modules."""
        return sum(len(transitions) for transitions in self.transitions.values())

    @classmethod
    def join(cls, parts: Sequence[Chunk], notes: tuple[str, ...] = (), failure: str = "") -> Chunk:
        """Put chunks one after another, none included."""
        return cls(
            {name: Transitions.join(found) for name, found in _by_name([part.transitions for part in parts]).items()},
            {name: Episodes.join(found) for name, found in _by_name([part.episodes for part in parts]).items()},
            sum(part.lane_ticks for part in parts),
            notes,
            failure,
        )


def _by_name(parts: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {name: [part[name] for part in parts if name in part] for name in dict.fromkeys(chain(*parts))}
