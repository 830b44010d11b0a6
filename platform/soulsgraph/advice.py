"""Silence the deprecation warnings and log messages of RLlib and gymnasium."""

from __future__ import annotations

import logging
import warnings


def silence_advice() -> None:
    """Silence deprecation warnings, and Ray's log below errors."""
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    logging.getLogger("ray").setLevel(logging.ERROR)
    logging.getLogger("ray.rllib").setLevel(logging.ERROR)
