"""SoulsGym's static tables, each by game and then as SoulsGym has it, made of this package's own data.

Names are SoulsGym's: a key's name to the key, a key to its Windows code, an action's number to key names, an
animation to its number and times. Addresses are in the address maps of the drivers.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict
from string import ascii_lowercase
from typing import Any

import numpy as np

from soulsgraph_envs.compat.soulsgym.fight import STATIC, BossFight, load_fight, player_table
from soulsgraph_envs.games.keys import load_bindings

#: The game whose tables there are; every table is a dictionary with this one key.
GAME_ID = "DarkSoulsIII"
Table = dict[str, Any]


def _keybindings() -> Table:
    presses = {name: load_bindings("dark-souls-3").keys_for(press) for name, press in STATIC.presses.items()}
    named = {name: "".join((*held, *tapped)) for name, (held, tapped) in presses.items()}
    named["lockon"] = named["lock_on"]  # the name in 1.1.0
    return {name: " " if key == "space" else key for name, key in named.items()}


def _boss_animations(fight: BossFight) -> Table:
    kinds = {kind: list(names) for kind, names in vars(fight.animations).items()}
    named = {name: {"ID": fight.boss_numbers[name], "type": kind} for kind, names in kinds.items() for name in names}
    return {**kinds, "unused": list(fight.unused_animations), "all": named}


def _coordinates(fight: BossFight) -> Table:
    return {name: np.array(place) for name, place in asdict(fight.coordinates).items() if place}


_FIGHTS = {name: load_fight(name) for name in ("iudex", "vordt")}

keybindings = {GAME_ID: _keybindings()}
keymap = {GAME_ID: {key: ord(key.upper()) for key in (*ascii_lowercase, " ")}}
actions = {GAME_ID: {number: action.split() for number, action in enumerate(STATIC.actions)}}
coordinates = {GAME_ID: {name: _coordinates(fight) for name, fight in _FIGHTS.items()}}
player_animations = {
    GAME_ID: {
        name: {"timings": list(times), "ID": number}
        for number, (name, times) in enumerate(player_table().animations.items())
    }
}
critical_player_animations = {GAME_ID: {k: list(v) for k, v in STATIC.critical_player_animations.items()}}
boss_animations = {GAME_ID: {name: _boss_animations(fight) for name, fight in _FIGHTS.items()}}
player_stats = {GAME_ID: {name: list(stats) for name, stats in STATIC.player_stats.items()}}
bonfires = {GAME_ID: STATIC.bonfires}


class StaticGameData:
    """The tables of one game, "DarkSoulsIII", each under its name here and the caller's own to change."""

    def __init__(self, game_id: str) -> None:
        for name, by_game in globals().items():
            if isinstance(by_game, dict) and GAME_ID in by_game:
                setattr(self, name, deepcopy(by_game[game_id]))
