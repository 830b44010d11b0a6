"""The link contract: the fields of a running game, its settings file, and how it is found, read, written and played."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, NamedTuple, Protocol, runtime_checkable

from soulsgraph_envs.core.config import Between, Where, load
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.pictures import Picture
from soulsgraph_envs.drivers.keyboard.device import KeyDevice

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


@dataclass(frozen=True)
class GameSettings:
    """One game: its address map, process, window and bindings, checked when it is opened.

    An empty text means the default: `process` and `window` are the address map's, `bindings` too;
    `display` is the environment's. `launch` starts the game again when it is gone.
    """

    driver: str = "memory"
    #: Name or path of an address map; with Siphon, of an attribute file.
    map: str = "dark-souls-3-1.15.2"
    process: str = ""
    #: Process id; 0 finds the process by its name.
    pid: Annotated[int, Between(0, 2**31)] = 0
    window: str = ""
    #: X display, such as ":99"; Linux only.
    display: str = ""
    bindings: str = ""
    speed: Annotated[float, Between(0.1, 3.0)] = 1.0
    launch: tuple[str, ...] = ()
    #: Load the game's world anew after so long, as SoulsGym does: a game's input lags after hours; 0 is never.
    reload_after_s: Annotated[float, Between(0.0, 1e6)] = 900.0
    #: Show what would be written to the game instead of writing it.
    dry_run: bool = False
    #: Siphon server, as HOST:PORT.
    host: str = "localhost:50051"
    #: File (mode 600) with the token of a Siphon server that asks for one.
    token_file: str = ""
    #: PEM file with the certificate of a Siphon server that encrypts.
    certificate: str = ""


@dataclass(frozen=True)
class _Games:
    games: tuple[GameSettings, ...]


def load_games(path: Path) -> tuple[GameSettings, ...]:
    """Load the tables `[[games]]` of a file: one serves every env runner, more are one each.

    Raises:
        DataError: for a missing, misspelt or mistyped value.
    """
    return load(_Games, Where(path)).games


def check_side_by_side(games: Sequence[GameSettings]) -> None:
    """Refuse games that cannot be played from one machine at once.

    Raises:
        GameError: if two share a display or a server, where keys reach the window in front alone.
    """
    screen = os.environ.get("DISPLAY", "")
    places = [one.host if one.driver == "siphon" else f"display {one.display or screen}".strip() for one in games]
    for place in places:
        if (count := places.count(place)) > 1:
            raise GameError(
                f"games: expected a display or a server for each, as only the window in front gets keys; found {count} "
                f"at {place}; give each a display of its own, such as Xvfb's."
            )


def save_game(path: Path, settings: GameSettings) -> None:
    """Write a file of one game for `load_games`, whole or not at all: driver, map, and what is not the default.

    Raises:
        GameError: if it cannot be written.
    """
    default, named = GameSettings(), ("driver", "map")
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    lines = [
        f"{name} = {json.dumps(value)}\n"
        for name, value in values.items()
        if name in named or value != getattr(default, name)
    ]
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        partial.write_text("[[games]]\n" + "".join(lines), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise GameError(f"{path}: expected a games file that can be written, found {error.strerror}.") from error


class LinkError(GameError):
    """The game cannot be reached now: not running, loading, its process gone, its server away."""


class RefusedError(LinkError):
    """The game runs but cannot be played like this: starting it again would not help."""


@runtime_checkable
class Link(Protocol):
    """Reach one running game.

    `supplies` names the fields that `read` returns, `writes` those that `write` takes; both are known
    before `attach`, and so is `bindings`, the name or path of the key bindings: those of the settings, else
    of the map. Every method but `close` raises `LinkError` when the game cannot be reached, at
    once and never after more than a second; only `attach` waits, up to its timeout.
    """

    supplies: frozenset[str]
    writes: frozenset[str]
    bindings: str

    @property
    def keys(self) -> KeyDevice:
        """The device that presses the game's keys."""
        ...

    def attach(self, timeout_s: float, process_id: int = 0) -> None:
        """Find the game and resolve its addresses; a second call searches again.

        `process_id` is that of a game just launched, which replaces the settings' own; 0 for none.
        """
        ...

    def read(self) -> Reading:
        """Return every field of `supplies`, read in one go."""
        ...

    def write(self, values: Mapping[str, float]) -> None:
        """Write fields of `writes`; adjacent ones in one piece."""
        ...

    def focus(self) -> None:
        """Bring the game's window to the front, so that keys reach it; nothing if it is there already."""
        ...

    def focused(self) -> bool:
        """Return whether keys reach the game's window."""
        ...

    def close(self) -> None:
        """Release every key and disconnect from the game; a second call does nothing."""
        ...


@runtime_checkable
class PicturedLink(Link, Protocol):
    """A link that can capture the game's window too."""

    def capture(self) -> Picture:
        """Photograph the inside of the game's window, (height, width, 3), as the game last drew it."""
        ...
