"""Sweeps: options of the learner searched by Ray Tune, each setting trained on the same seeds."""

from __future__ import annotations

from soulsgraph.tune.sweep import SweepResults, sweep

__all__ = ["SweepResults", "sweep"]
