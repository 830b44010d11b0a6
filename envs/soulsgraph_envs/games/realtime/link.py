"""The link contract: the fields of a running game, its settings file, and how it is found, read, written and played."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Protocol, runtime_checkable

from soulsgraph_envs.core.config import Between, Where, load, read_file, read_value, to_json, to_table
from soulsgraph_envs.core.errors import DataError, GameError, shown
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.games.keyboard.device import KeyDevice

#: One look at the game: a number, or a text for the fields of kind "text".
Reading = Mapping[str, float | str]


@dataclass(frozen=True)
class Field:
    """One value: its unit, and whether an operation may write it."""

    unit: str
    writable: bool = False
    kind: Literal["number", "text"] = "number"


_FIELDS_FILE = Where(Path(__file__).parents[2] / "data" / "fields.toml")
FIELDS: Mapping[str, Field] = read_value(Mapping[str, Field], read_file(_FIELDS_FILE), _FIELDS_FILE)


#: The fastest that a running game is played.
_MOST_SPEED = 3.0


#: How a real-time driver reaches its game: module and class of its link.
LINKS = {
    "memory": ("soulsgraph_envs.games.memory.link", "MemoryLink"),
    "siphon": ("soulsgraph_envs.games.siphon.link", "SiphonLink"),
}
SIMULATOR = "simulator"
DRIVERS = (SIMULATOR, *LINKS)


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
    #: Of a running game at most 3.
    speed: Annotated[float, Between(0.1, 100.0)] = 1.0
    #: Speed of the game's clock between two fights, where it can be set and `speed` is less; SoulsGym's is 3 too.
    reset_speed: Annotated[float, Between(0.0, 3.0)] = 3.0
    #: Fights beside each other; of a running game one.
    lanes: Annotated[int, Between(1, 256)] = 1
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

    def __post_init__(self) -> None:
        if self.driver == SIMULATOR:
            return
        for name, most in (("speed", _MOST_SPEED), ("lanes", 1)):
            if getattr(self, name) > most:
                expected = f"at most {most:g} for a running game"
                raise DataError(None, name, expected, getattr(self, name), "correct the value")


@dataclass(frozen=True)
class _Games:
    games: tuple[GameSettings, ...]


def load_games(path: Path) -> tuple[GameSettings, ...]:
    """Load the tables `[[games]]` of a file, a game each.

    Raises:
        DataError: for a missing, misspelt or mistyped value, or a driver that is none.
    """
    where, games = Where(path), load(_Games, Where(path)).games
    for place, game in enumerate(games):
        key = where.at("games").at(place).at("driver")
        key.demand(game.driver in DRIVERS, f"one of {', '.join(DRIVERS)}", shown(game.driver))
    return games


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
    # Driver and map are written in any case.
    default = to_table(GameSettings(driver="", map=""))
    lines = [
        f"{name} = {to_json(value, ensure_ascii=False)}\n"
        for name, value in to_table(settings).items()
        if value != default[name]
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

    def attach(self, timeout_s: float, process_id: int = 0) -> None:
        """Find the game and resolve its addresses; a second call searches again.

        `process_id` is that of a game just launched, which replaces the settings' own; 0 for none.
        """

    def read(self) -> Reading:
        """Return every field of `supplies`, read in one go."""

    def write(self, values: Mapping[str, float]) -> None:
        """Write fields of `writes`; adjacent ones in one piece."""

    def focus(self) -> None:
        """Bring the game's window to the front, so that keys reach it; nothing if it is there already."""

    def focused(self) -> bool:
        """Return whether keys reach the game's window."""

    def close(self) -> None:
        """Release every key and disconnect from the game; a second call does nothing."""


@runtime_checkable
class PicturedLink(Link, Protocol):
    """A link that can capture the game's window too."""

    def capture(self) -> Picture:
        """Photograph the inside of the game's window, (height, width, 3), as the game last drew it."""
