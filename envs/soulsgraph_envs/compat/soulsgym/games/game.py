"""Data of a game that is not running: all of SoulsGym's static tables of one game."""

from __future__ import annotations

from copy import deepcopy

from soulsgraph_envs.compat.soulsgym.core import static
from soulsgraph_envs.core.errors import UnknownNameError


class StaticGameData:
    """The tables of one game, each under its name in `core.static` and the caller's own to change.

    Raises:
        UnknownNameError: for a game other than "DarkSoulsIII".
    """

    def __init__(self, game_id: str) -> None:
        if game_id != static.GAME_ID:
            raise UnknownNameError("game", game_id, [static.GAME_ID])
        for name, by_game in vars(static).items():
            if isinstance(by_game, dict) and game_id in by_game:
                setattr(self, name, deepcopy(by_game[game_id]))
