"""The fields that can be read from or written to a running game; every link and address map uses these names.

Coordinates are (x, y, z) with z up, angles radians in [-pi, pi], times seconds, lengths metres,
whatever the game's own order and units: a link converts. Flags are 0 or 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

#: One look at the game: a number, or a text for the fields of kind "text".
Reading = Mapping[str, float | str]


class Field(NamedTuple):
    """One value: its unit, and whether an operation may write it."""

    unit: str
    writable: bool = False
    kind: str = "number"


FIELDS: Mapping[str, Field] = {
    **{f"player_{axis}": Field("m", writable=True) for axis in "xyz"},
    "player_angle": Field("rad", writable=True),
    "player_hp": Field("points", writable=True),
    "player_hp_max": Field("points"),
    "player_stamina": Field("points", writable=True),
    "player_stamina_max": Field("points"),
    "player_animation": Field("name", kind="text"),
    "player_animation_id": Field("the game's number"),
    "player_animation_time_s": Field("s"),
    "player_animation_length_s": Field("s"),
    "player_no_gravity": Field("flag", writable=True),
    "flasks": Field("count", writable=True),
    "frost_resistance": Field("points"),
    "frost_resistance_max": Field("points"),
    "frost_effect": Field("points"),
    **{f"boss_{axis}": Field("m", writable=True) for axis in "xyz"},
    "boss_angle": Field("rad", writable=True),
    "boss_hp": Field("points", writable=True),
    "boss_hp_max": Field("points"),
    "boss_name": Field("character name, such as c5110", kind="text"),
    "boss_animation": Field("name", kind="text"),
    "boss_animation_id": Field("the game's number"),
    "boss_attack_id": Field("the game's number, -1 for none"),
    "boss_attack_id_fallback": Field("the game's number, -1 for none"),
    "boss_animation_time_s": Field("s"),
    "boss_animation_length_s": Field("s"),
    **{f"camera_{axis}": Field("unit vector") for axis in "xyz"},
    **{f"camera_position_{axis}": Field("m") for axis in "xyz"},
    "locked": Field("flag"),
    "lock_on_bonus_range_m": Field("m", writable=True),
    "lock_on_sight_time_s": Field("s", writable=True),
    "play_time_s": Field("s"),
    #: Factor of the game's clock; 0 stops it.
    "game_speed": Field("factor", writable=True),
    #: Where the game has one, the factor counts only while this is 1.
    "game_speed_on": Field("flag", writable=True),
    "no_death": Field("flag for everyone", writable=True),
    "no_damage": Field("flag for everyone", writable=True),
    "no_hit": Field("flag for everyone", writable=True),
    "no_attack": Field("flag for everyone", writable=True),
    "no_move": Field("flag for everyone", writable=True),
    "no_ai": Field("flag for everyone", writable=True),
    "last_bonfire": Field("the game's number", writable=True),
    "boss_flags": Field("bits: defeated 7, encountered 6, sword pulled 5", writable=True),
    "ceremony": Field("the game's number", writable=True),
    "gate_open": Field("flag", writable=True),
    "online": Field("flag"),
    "window_width": Field("pixels"),
    "window_height": Field("pixels"),
    "screen_mode": Field("0 windowed"),
}
