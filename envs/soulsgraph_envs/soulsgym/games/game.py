"""Data of a game that is not running: all of SoulsGym's static tables of one game."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, fields

from soulsgraph_envs.core.errors import UnknownNameError
from soulsgraph_envs.soulsgym.core import static
from soulsgraph_envs.soulsgym.core.static import Table


@dataclass(init=False)
class StaticGameData:
    """The tables of one game, the caller's own to change; `core.static` says what each holds.

    Raises:
        UnknownNameError: for a game other than "DarkSoulsIII".
    """

    keybindings: Table
    keymap: Table
    actions: Table
    coordinates: Table
    player_animations: Table
    critical_player_animations: Table
    boss_animations: Table
    player_stats: Table
    bonfires: Table
    address_bases: Table
    address_offsets: Table
    address_base_patterns: Table

    def __init__(self, game_id: str) -> None:
        if game_id != static.GAME_ID:
            raise UnknownNameError("game", game_id, [static.GAME_ID])
        for table in fields(self):
            setattr(self, table.name, deepcopy(getattr(static, table.name)[game_id]))
