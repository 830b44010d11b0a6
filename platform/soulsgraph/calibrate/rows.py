"""Recorded fights as arrays of what a running game supplies, with a clock; fights that do not go together are refused.

Of a recording nothing else is read: whatever more a simulated one holds changes no value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from soulsgraph.recordings.clock import rebuilt_clock
from soulsgraph.recordings.coverage import ALIKE, FEWEST_FIGHTS
from soulsgraph.recordings.files import Recording, read_header, read_recording, recording_files
from soulsgraph.recordings.format import Header
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import BossData, PlayerData
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.games.readings import boss_table, reading_of

Doubles = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

#: Numbers of animations that the boss's data lack begin here; ids of the data end below.
FIRST_UNKNOWN = 1000


@dataclass(frozen=True)
class FightRows:
    """What a running game supplies of one fight, a row a tick: (rows,) each, raw (rows, 25).

    `clock_s` is game time; `boss` the number of the boss's animation, from `FIRST_UNKNOWN` on one that the data lack;
    `hp` the player's HP before a training scenario refilled it, NaN where nobody knows.
    """

    name: str
    clock_s: Doubles
    raw: Doubles
    controls: npt.NDArray[np.uint32]
    boss: Integers
    hp: Doubles

    def __len__(self) -> int:
        return len(self.clock_s)

    def pressed(self, control: Control) -> Flags:
        """Return in which rows any of some controls is held or pressed, (rows,)."""
        pressed: Flags = (self.controls & np.uint32(control)) != 0
        return pressed


@dataclass(frozen=True)
class FightSet:
    """The fights that a boss is fitted to, the names of its animations that the data lack, and what they have alike."""

    fights: Sequence[FightRows]
    unknown: Mapping[int, str]
    scenario: str
    map: str
    game_version: str

    @property
    def seconds(self) -> float:
        """Game time of all fights."""
        return float(sum(fight.clock_s[-1] - fight.clock_s[0] for fight in self.fights))


def read_fights(folder: Path, boss: BossData, simulated: bool = False) -> FightSet:
    """Read the fights of a folder for a boss's data.

    Raises:
        SoulsGraphError: for fights of several scenarios, maps, versions, speeds or phases, for a single fight, for a
            fleet's fights, and for simulated ones unless `simulated`.
        RecordingError: for a damaged file, or none.
    """
    paths = recording_files(folder)
    _check_headers(folder, [read_header(path) for path in paths], simulated)
    unknown: dict[str, int] = {}
    fights, phases = list[FightRows](), set[int]()
    first: Header | None = None
    for path in paths:
        recording = read_recording(path)
        first = first or recording.header
        phases |= _phases(recording)
        fights.append(_rows_of(recording, boss, unknown))
    if len(phases) > 1:
        found = ", ".join(map(str, sorted(phases)))
        raise _refusal(folder, "fights of one phase of the boss", f"phases {found}", "record a scenario of one phase")
    assert first is not None, "recording_files returns at least one"
    names = {number: name for name, number in unknown.items()}
    return FightSet(tuple(fights), names, first.scenario, _said(first, "map"), _said(first, "game_version"))


def _refusal(folder: Path, expected: str, found: str, remedy: str) -> SoulsGraphError:
    return SoulsGraphError(f"{folder}: expected {expected}, found {found}", remedy)


def _said(header: Header, name: str) -> str:
    return str(getattr(header, name))


def _check_headers(folder: Path, headers: Sequence[Header], simulated: bool) -> None:
    own = [header.fight for header in headers if header.source == "simulator"]
    # A running game's boss is in none of our files; the simulator's is.
    for name, plural in (ALIKE | ({"scenario_digest": "fights"} if own else {})).items():
        values = sorted({_said(header, name) for header in headers})
        if len(values) > 1:
            found = f"{plural} {', '.join(value or 'unknown' for value in values)}"
            raise _refusal(folder, f"fights of one {name.replace('_', ' ')}", found, "keep each in a folder of its own")
    if fleets := [header.fight for header in headers if header.source == "fleet"]:
        raise _refusal(folder, "fights with a row a tick", f"{fleets[0]} of a fleet's journal", "record fights anew")
    if len(headers) < FEWEST_FIGHTS:
        raise _refusal(folder, f"at least {FEWEST_FIGHTS} fights", f"{len(headers)}", "record some 25, with the probe")
    if own and not simulated:
        found = f"{own[0]} of the simulator itself"
        raise _refusal(folder, "fights of a running game", found, "say that it is meant, to try out how well it works")


def _phases(recording: Recording) -> set[int]:
    phases = recording.column("phase")
    return {int(phase) for phase in phases.astype(np.float64) if np.isfinite(phase)}


def _rows_of(recording: Recording, boss: BossData, unknown: dict[str, int]) -> FightRows:
    raw = recording.raw
    if np.isnan(raw).all(axis=0).any():
        missing = Raw(int(np.flatnonzero(np.isnan(raw).all(axis=0))[0])).name.lower()
        raise SoulsGraphError(f"{recording.path}: expected all readings, found none of {missing}", "record with both")
    keep = ~np.isnan(raw).any(axis=1)
    read = np.array(recording.table.column("boss_animation_read").to_pylist(), dtype=object)
    numbers = boss_numbers(raw[keep, Raw.BOSS_ANIMATION].astype(np.int64), read[keep], boss, unknown)
    clock, hp = rebuilt_clock(recording)[keep], recording.unfilled_hp[keep]
    return FightRows(recording.header.fight, clock, raw[keep], recording.controls[keep], numbers, hp)


def boss_numbers(ids: Integers, read: npt.NDArray[Any], boss: BossData, unknown: dict[str, int]) -> Integers:
    """Return the numbers of the boss's animations, (rows,), from ids and what the game said, (rows,) each.

    A reader that does not know an animation takes it for standing. `unknown` gets a number for each that the data lack.
    """
    table, idle = boss_table(boss), boss.animations.idle.id
    roles = [*boss.animations.known(), *(move.title for move in boss.moves)]
    own = {move.id for move in boss.moves} | {animation.id for animation in boss.animations.known().values()}
    numbers = ids.copy()
    for row, (number, name) in enumerate(zip(ids.tolist(), read.tolist(), strict=True)):
        missed = number == idle and name is not None and not table.among(reading_of(name), roles)
        if missed or number not in own:
            word = f"animation {number}" if name is None else str(name)
            numbers[row] = unknown.setdefault(word, FIRST_UNKNOWN + len(unknown))
    return numbers


def contact_m(boss: BossData, player: PlayerData) -> float:
    """Return the distance of the two centres at which the bodies touch."""
    return boss.radius_m + player.body.radius_m
