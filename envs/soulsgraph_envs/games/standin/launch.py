"""What a stand-in is started with, and what surrounds its fight: bonfire, fog gate, loading."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from math import hypot
from pathlib import Path
from typing import Annotated, Any, Literal

from soulsgraph_envs.core.config import Between, load_data
from soulsgraph_envs.core.errors import SoulsGraphError, plain_number, plain_range
from soulsgraph_envs.core.seeds import checked_seed
from soulsgraph_envs.games.link import GameSettings

#: (x, y, z) in metres, z up, and the angle in radians.
Pose = tuple[float, float, float, float]


@dataclass(frozen=True)
class Places:
    """The places where the player wakes, of both sides of the fog gate, and where the boss rests."""

    bonfire: Pose
    gate_outside: Pose
    gate_inside: Pose
    boss: Pose

    def ground_z(self, x: float, y: float) -> float:
        """Return the height of the ground beside the way from the bonfire through the gate to the boss."""
        way = (self.bonfire, self.gate_outside, self.gate_inside, self.boss)
        legs = [_nearest(start, end, x, y) for start, end in pairwise(way)]
        return min(legs)[1]


@dataclass(frozen=True)
class Interlude:
    """A time in which the player acts by itself: its animation and its length."""

    name: str
    length_s: Annotated[float, Between(0.02, 60.0)]


@dataclass(frozen=True)
class Surroundings:
    """One encounter of the stand-in game; `map` is the address map of its memory, if none is named."""

    name: str
    map: str
    scenario: str
    boss_name: str
    #: The bits of the boss's flags without which it rests.
    awake_flags: Annotated[int, Between(0, 127)]
    places: Places
    pass_gate: Interlude
    die: Interlude
    rise: Interlude
    load: Interlude
    #: Fields that the game only keeps, with what they are at first.
    switches: dict[str, float]


def load_surroundings(name_or_path: str | Path) -> Surroundings:
    """Load the surroundings of an encounter, shipped or the user's own.

    Raises:
        UnknownNameError: if nothing of that name is shipped.
        DataError: for a missing, misspelt, mistyped or out-of-range value.
    """
    return load_data("encounter", Surroundings, name_or_path)


def _nearest(start: Pose, end: Pose, x: float, y: float) -> tuple[float, float]:
    """Return (distance, height) of the point of a leg that lies nearest."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    along = ((x - start[0]) * dx + (y - start[1]) * dy) / max(dx * dx + dy * dy, 1e-9)
    along = min(max(along, 0.0), 1.0)
    distance = hypot(start[0] + along * dx - x, start[1] + along * dy - y)
    return distance, start[2] + along * (end[2] - start[2])


@dataclass(frozen=True)
class StandInOptions:
    """One stand-in game: its encounter and its speed."""

    encounter: str = "iudex"
    """Encounter to play: iudex, vordt, vordt-in-place, or a TOML file."""
    map: str = ""
    """Address map its memory is laid out by: the encounter's own, stand-in, or a TOML file."""
    scenario: str = ""
    """Scenario that fights as the encounter's boss: a name or a TOML file; the encounter's own if not given."""
    at: Literal["arena", "bonfire", "new-game"] = "arena"
    """Where the player begins: in the fight, or at the bonfire before the fog gate; in a new game it has not met the
    boss, whose sword must be pulled first."""
    speed: float = 1.0
    """Factor of the game's clock, 0.1 to 3."""
    seed: int = 0
    """Seed of the boss's random choices."""
    display: str = ""
    """X display of the window, such as :99; the environment's if not given."""
    settings: Path | None = None
    """Games file to write for other commands, once a driver can attach."""
    until_eof: bool = False
    """End when standard input ends: with the program that started it."""

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            SoulsGraphError: for one out of its range.
        """
        checked_seed(self.seed)
        if not 0.1 <= self.speed <= 3.0:
            raise SoulsGraphError(
                f"`speed`: expected a number from {plain_range(0.1, 3.0)}, found {plain_number(self.speed)}."
            )

    def command(self) -> list[str]:
        """Return the command that starts a stand-in with these options, without what `soulsgraph` loads beside it."""
        words = [sys.executable, "-P", "-m", "soulsgraph_envs.games.standin"]
        for option in fields(self):
            value = getattr(self, option.name)
            if value != option.default:
                flag = f"--{option.name.replace('_', '-')}"
                words += [flag] if value is True else [flag, str(value)]
        return words


DEFAULT_STAND_IN = StandInOptions()


def settings_of(options: StandInOptions, address_map: str, window: str) -> GameSettings:
    """Return the settings with which clients find this stand-in; their launch command starts it again."""
    files = {name: getattr(options, name) for name in ("map", "encounter", "scenario")}
    changes: dict[str, Any] = {name: str(Path(file).resolve()) for name, file in files.items() if file[-5:] == ".toml"}
    changes["display"] = options.display or os.environ.get("DISPLAY", "")
    settings = options.settings and options.settings.resolve()
    again = replace(options, **changes, settings=settings, until_eof=False)
    return GameSettings(
        map=again.map or address_map,
        pid=os.getpid(),
        display=again.display,
        window=window,
        speed=options.speed,
        launch=tuple(again.command()),
    )
