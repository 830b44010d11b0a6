"""Sweeps: options of the learner searched by Ray Tune, each setting trained on the same seeds."""

from __future__ import annotations

from soulsgraph.tune.results import SweepResults
from soulsgraph.tune.sweep import sweep

__all__ = ["SweepResults", "sweep"]
