"""Settings of every test: none depends on how busy the machine is, and files are tested beside each other."""

import os

import pytest
from hypothesis import HealthCheck, settings

#: A worker may start a Ray and a game of its own: more workers than this wait for memory, not for processors.
_MOST_WORKERS = 4

# Before numpy and torch are imported: threads of two workers would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return how many workers `-n auto` starts: two for a processor, for tests of games and Ray mostly wait."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(2 * processors, _MOST_WORKERS)
