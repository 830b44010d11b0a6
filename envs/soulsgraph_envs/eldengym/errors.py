"""What goes wrong with an environment's options, and the warning that no real game is played."""

from __future__ import annotations

from soulsgraph_envs.errors import SoulsGraphError, UnknownNameError


class OptionError(SoulsGraphError, ValueError):
    """An option that is not offered; EldenGym raises a `ValueError` for its own."""


class UnknownOptionError(UnknownNameError, OptionError):
    """A name that is not offered; EldenGym raises a `ValueError` for its own."""


class RewardTypeError(SoulsGraphError, TypeError):
    """A reward without the methods of a `RewardFunction`; EldenGym raises a `TypeError`."""


class SimulatedGameWarning(UserWarning):
    """A simulated fight stands in for Elden Ring."""
