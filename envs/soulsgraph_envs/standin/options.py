"""The options of a stand-in."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import UseAppendAction

from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_envs.streams import checked_seed


@dataclass(frozen=True)
class StandInOptions:
    """One stand-in game: its encounter, its speed, and its misbehaviours."""

    map: str = "dark-souls-3-1.15.2"
    """Address map its memory is laid out by: stand-in, dark-souls-3-1.15.2, elden-ring-1.16.1, or a TOML file."""
    encounter: str = ""
    """Encounter to play: iudex, vordt, vordt-in-place, margit; the map's own if not given."""
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
    """File to write once it can be attached: a games file for other commands."""
    seconds: float = 0.0
    """End after this many seconds; 0 never."""
    misbehave: Annotated[tuple[str, ...], UseAppendAction] = ()
    """KIND@START or KIND@START+SECONDS, again and again: crash, move, hang, freeze, stall, drop."""
    until_eof: bool = False
    """End when standard input ends: with the program that started it."""
    json: bool = False
    """Print lines as JSON, for machines."""

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            SoulsGraphError: for one out of its range.
        """
        checked_seed(self.seed)
        for name, least, most in (("speed", 0.1, 3.0), ("seconds", 0.0, 1e9)):
            value = getattr(self, name)
            if not least <= value <= most:
                raise SoulsGraphError(f"`{name}`: expected a number from {least:g} to {most:g}, found {value:g}.")

    def arguments(self) -> list[str]:
        """Return the command-line arguments that mean these options."""
        words: list[str] = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value == field.default:
                continue
            flag = f"--{field.name.replace('_', '-')}"
            if isinstance(value, bool):
                words.append(flag)
            elif isinstance(value, tuple):
                words += [word for item in value for word in (flag, str(item))]
            else:
                words += [flag, str(value.resolve() if isinstance(value, Path) else value)]
        return words


DEFAULT_STAND_IN = StandInOptions()
