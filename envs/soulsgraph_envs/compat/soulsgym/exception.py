"""SoulsGym's errors under their own names, all of them `SoulsGraphError`.

All errors that agents may catch are here, also those that nothing raises any more.
"""

from __future__ import annotations

import gymnasium

from soulsgraph_envs.core.errors import SoulsGraphError


class SoulsGymException(SoulsGraphError):  # noqa: N818 - SoulsGym's own name
    """Anything that goes wrong in an environment of this package."""


class GameStateError(SoulsGymException):
    """The game is not in a state in which the environment can go on."""


class InvalidPlayerStateError(SoulsGymException):
    """The player is not one the environment can show."""


class InvalidBossStateError(SoulsGymException):
    """The boss is not one the environment can show; drivers refuse such a game themselves."""


class ResetNeeded(SoulsGymException, gymnasium.error.ResetNeeded):
    """A member was used that needs an episode under way."""


class LockOnFailure(SoulsGymException):
    """The lock could not be taken at the start of an episode."""


class InjectionFailure(SoulsGymException):
    """The game's speed could not be set; no driver injects anything into a game."""


class InvalidGameSettings(SoulsGymException):
    """The game, its settings or its driver lack something the environment needs."""


class ResetError(SoulsGymException):
    """No episode could be begun, for the reason of the last attempt."""
