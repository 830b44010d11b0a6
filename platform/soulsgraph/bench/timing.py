"""Measure work in CPU and wall seconds, and summarise rounds by median and spread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass
class Measurement:
    """Rates of one contender over several rounds, in units per CPU second and per wall second."""

    name: str
    unit: str
    per_cpu_s: list[float] = field(default_factory=list)
    per_wall_s: list[float] = field(default_factory=list)
    notes: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def round(self, units: Callable[[], float]) -> Iterator[None]:
        """Time one round; `units` is asked afterwards how many units were done in all so far."""
        before, cpu, wall = units(), time.process_time(), time.perf_counter()
        yield
        done = units() - before
        self.per_cpu_s.append(done / (time.process_time() - cpu))
        self.per_wall_s.append(done / (time.perf_counter() - wall))

    def to_dict(self) -> dict[str, Any]:
        """Return medians and spread as plain values."""
        return {
            "name": self.name,
            "unit": self.unit,
            "rounds": len(self.per_cpu_s),
            "per_cpu_s": {
                "median": median(self.per_cpu_s),
                "lowest": min(self.per_cpu_s),
                "highest": max(self.per_cpu_s),
            },
            "per_wall_s": {"median": median(self.per_wall_s)},
            **self.notes,
        }


def interleave(rounds: int, contenders: Sequence[Callable[[], None]]) -> None:
    """Run every contender once a round, so that drift of the machine meets them all."""
    for _ in range(rounds):
        for contender in contenders:
            contender()


def quantile(sorted_values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the sorted values lie."""
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Return median, 99th and 99.9th percentile and the highest of some values."""
    ordered = sorted(values)
    return {
        "median": median(ordered),
        "p99": quantile(ordered, 0.99),
        "p99.9": quantile(ordered, 0.999),
        "highest": ordered[-1],
    }
