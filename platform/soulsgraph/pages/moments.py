"""Moments of a recorded fight that are worth a look: where each skill's value fell most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from soulsgraph.recordings.files import Recording


@dataclass(frozen=True)
class Fall:
    """The largest fall of a skill's best Q-value from one decision to the next, which begins in `row`.

    `spreads` is the fall in standard deviations of the skill's best values at its decisions of this fight.
    """

    skill: str
    row: int
    before: float
    after: float
    spreads: float


def largest_falls(recording: Recording) -> list[Fall]:
    """Return the largest fall in value of every skill that has values and fell at all, in the skills' order."""
    falls = []
    for skill in recording.header.skills:
        if not skill.valued:
            continue
        rows = np.flatnonzero(recording.column(f"{skill.name}/decides"))
        best = recording.column(f"{skill.name}/values")[rows].max(axis=1).astype(np.float64)
        steps = np.diff(best)
        if steps.size == 0 or not np.isfinite(steps).all() or steps.min() >= 0.0:
            continue
        index, spread = int(steps.argmin()), float(best.std())
        before, after = float(best[index]), float(best[index + 1])
        falls.append(Fall(skill.name, int(rows[index + 1]), before, after, (before - after) / spread))
    return falls
