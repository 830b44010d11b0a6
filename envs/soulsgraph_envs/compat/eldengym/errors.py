"""EldenGym's kinds of error, and checks of what a user gives an environment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

from gymnasium import Space

from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError, shown

_REWARD_METHODS = ("calculate", "is_done")


def check_reward(reward: object) -> None:
    """Raise `RewardTypeError` for anything but an object with the methods of `RewardFunction`, of whatever class."""
    missing = [name for name in _REWARD_METHODS if not callable(getattr(reward, name, None))]
    if missing or isinstance(reward, type):
        lacks = f" without {' and '.join(missing)}" if missing else ", a class: make an object of it"
        raise RewardTypeError(
            f"reward_function: expected an object with the methods {' and '.join(_REWARD_METHODS)}, such as one of a "
            f"class derived from RewardFunction; found {shown(reward)}{lacks}."
        )


def check_action(space: Space[Any], action: object) -> None:
    """Raise `OptionError` for an action outside its space."""
    try:
        # To Gymnasium a bool is an integer.
        known = not isinstance(action, bool) and space.contains(action)
    except Exception:  # A number beyond 64 bits, a ragged list, or whatever an object's own conversion raises.
        known = False
    if not known:
        raise OptionError(f"action: expected one of {space}, found {shown(action)}.")


def check_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Raise `OptionError` for a value that is not among the choices."""
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        listed = ", ".join(map(str, choices))
        raise OptionError(f"{name}: expected one of {listed}; found {shown(value)}, which is not offered.")


def check_between(name: str, value: float, low: float, high: float) -> None:
    """Raise `OptionError` for a number outside [low, high]."""
    if not (isinstance(value, Real) and low <= value <= high):
        raise OptionError(f"{name}: expected a number from {low:g} to {high:g}, found {shown(value)}.")


def check_at_least(name: str, value: float | None, low: float) -> None:
    """Raise `OptionError` for anything but a number of at least `low`; None passes."""
    if value is not None and not (isinstance(value, Real) and low <= value < math.inf):
        raise OptionError(f"{name}: expected at least {low}, found {shown(value)}.")


class OptionError(SoulsGraphError, ValueError):
    """An option that is not offered; EldenGym raises a `ValueError` for its own."""


class UnknownOptionError(UnknownNameError, OptionError):
    """A name that is not offered; EldenGym raises a `ValueError` for its own."""


class RewardTypeError(SoulsGraphError, TypeError):
    """A reward without the methods of a `RewardFunction`; EldenGym raises a `TypeError`."""


class SimulatedGameWarning(UserWarning):
    """A simulated fight stands in for Elden Ring."""
