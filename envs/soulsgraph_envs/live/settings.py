"""Where a real-time game is and how it is reached: a TOML file with one table a game PC or window."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from soulsgraph_envs.schema import Between, Where, read_table, read_toml


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
    return read_table(_Games, read_toml(path), Where(path)).games
