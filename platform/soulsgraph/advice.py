"""Keep RLlib's and gymnasium's advice from the user."""

from __future__ import annotations

import logging
import warnings


def silence_advice() -> None:
    """Keep advice on things long decided from the user."""
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    logging.getLogger("ray").setLevel(logging.ERROR)
    logging.getLogger("ray.rllib").setLevel(logging.ERROR)
