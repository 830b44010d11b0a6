"""Recorded fights as arrays of what a running game supplies, with a clock; fights that do not go together are refused.

Of a recording nothing else is read: whatever more a simulated one holds changes no value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from soulsgraph.recordings.check import Coverage, mixed
from soulsgraph.recordings.clock import rebuilt_clock
from soulsgraph.recordings.files import Recording, RecordingError, read_recording, recording_files
from soulsgraph.recordings.format import Header
from soulsgraph_envs.combat.rollout import Doubles, Flags, Integers
from soulsgraph_envs.core.scenario import BossData, PlayerData
from soulsgraph_envs.core.state import Control, Controls, Raw, RawValues
from soulsgraph_envs.games.readings import boss_table, reading_of
from soulsgraph_envs.simulator.layout import FRAMES_PER_S

#: Numbers of animations that the boss's data lack begin here; ids of the data end below.
FIRST_UNKNOWN = 1000


@dataclass(frozen=True)
class ReadFight:
    """What a running game supplies of one fight, a row a tick and one for its end, and the file's header.

    `raw` is (rows, 25) with NaN for what was not read, `controls` (rows,) of bits, none in the last row, `clock_s`
    (rows,) game time, `hp` (rows,) the player's HP before a training scenario refilled it, `phase` (rows,) from 1 and 0
    where it is not known, `boss_read` (rows,) the boss's animation as the game said it, None where that is not known.
    """

    raw: RawValues
    controls: Controls
    clock_s: Doubles
    hp: Doubles
    phase: Integers
    boss_read: npt.NDArray[Any]
    header: Header

    @classmethod
    def of(cls, recording: Recording) -> ReadFight:
        """Return what may be read of a recording.

        Raises:
            RecordingError: if it has a row a decision instead of a tick, and no controls.
        """
        if recording.header.source == "fleet":
            found = "one of a fleet's journal, which has a row a decision and no controls"
            raise RecordingError(recording.path, "a fight with a row a control tick", found, "leave it out")
        phase = np.nan_to_num(recording.column("phase").astype(np.float64)).astype(np.int64)
        read, clock_s = recording.column("boss_animation_read"), rebuilt_clock(recording)
        return cls(recording.raw, recording.controls, clock_s, recording.unfilled_hp, phase, read, recording.header)

    @cached_property
    def frames(self) -> Integers:
        """Game time in whole frames of the simulator, (rows,), never falling."""
        frames = np.maximum.accumulate(np.rint(self.clock_s * FRAMES_PER_S).astype(np.int64))
        return np.asarray(frames - frames[0])


@dataclass(frozen=True)
class FightRows:
    """Rows of a fight in which everything was read: (rows,) each, raw (rows, 25).

    `clock_s` is game time; `boss` the number of the boss's animation, from `FIRST_UNKNOWN` on one that the data lack;
    `hp` the player's HP before a training scenario refilled it, NaN where nobody knows.
    """

    clock_s: Doubles
    raw: Doubles
    controls: Controls
    boss: Integers
    hp: Doubles

    def __len__(self) -> int:
        return len(self.clock_s)

    def where(self, kept: Any) -> FightRows:
        """Return the rows of a slice, of their numbers, or those that are `kept` (rows,)."""
        return FightRows(*(getattr(self, one.name)[kept] for one in fields(self)))

    def pressed(self, control: Control) -> Flags:
        """Return in which rows any of some controls is held or pressed, (rows,)."""
        return np.asarray((self.controls & np.uint32(control)) != 0)

    @property
    def player(self) -> Integers:
        """The id of the player's animation, (rows,)."""
        return self.raw[:, Raw.PLAYER_ANIMATION].astype(np.int64)

    @property
    def player_s(self) -> Doubles:
        """How long the player's animation has played, (rows,)."""
        return self.raw[:, Raw.PLAYER_ANIMATION_TIME_S]

    @property
    def boss_s(self) -> Doubles:
        """How long the boss's animation has played, (rows,)."""
        return self.raw[:, Raw.BOSS_ANIMATION_TIME_S]

    @property
    def player_m(self) -> Doubles:
        """The player's place in the plane, (rows, 2)."""
        return self.raw[:, [Raw.PLAYER_X, Raw.PLAYER_Y]]

    @property
    def boss_m(self) -> Doubles:
        """The boss's place in the plane, (rows, 2)."""
        return self.raw[:, [Raw.BOSS_X, Raw.BOSS_Y]]

    @property
    def distance_m(self) -> Doubles:
        """How far the two stand apart, (rows,)."""
        return np.asarray(np.hypot(*(self.player_m - self.boss_m).T))

    @property
    def aside_rad(self) -> Doubles:
        """By how much the boss would have to turn to face the player, (rows,)."""
        dx, dy = (self.player_m - self.boss_m).T
        return wrapped_angles(np.arctan2(-dx, -dy) - self.raw[:, Raw.BOSS_ANGLE])


def wrapped_angles(angles: Doubles) -> Doubles:
    """Wrap angles into [-pi, pi]."""
    return np.asarray((angles + np.pi) % (2.0 * np.pi) - np.pi)


def pairs_of(fights: Sequence[FightRows]) -> tuple[FightRows, FightRows]:
    """Return all rows but the last of every fight, and the row behind each: (pairs,) rows each."""
    before, after = ([fight.where(part) for fight in fights] for part in (slice(-1), slice(1, None)))
    return joined(before), joined(after)


def joined(fights: Sequence[FightRows]) -> FightRows:
    """Return the rows of fights one behind the other."""
    return FightRows(*(np.concatenate([getattr(one, own.name) for one in fights]) for own in fields(FightRows)))


@dataclass(frozen=True)
class FightSet:
    """The fights that a boss is fitted to, the names of its animations that the data lack, and their scenario."""

    fights: Sequence[FightRows]
    unknown: Mapping[int, str]
    scenario: str

    @property
    def seconds(self) -> float:
        """Game time of all fights."""
        return float(sum(fight.clock_s[-1] - fight.clock_s[0] for fight in self.fights))


def read_alike(folder: Path) -> list[ReadFight]:
    """Read recorded fights of one scenario.

    Raises:
        RecordingError: for a file that is damaged or without control ticks, and fights of several scenarios, maps,
            versions or speeds.
    """
    fights = [ReadFight.of(read_recording(path)) for path in recording_files(folder)]
    if found := mixed([fight.header for fight in fights], digest=True):
        raise RecordingError(folder, "fights that are alike", "; ".join(found), "keep each kind in a folder of its own")
    return fights


def read_fights(folder: Path, boss: BossData, simulated: bool = False) -> FightSet:
    """Read the fights of a folder for a boss's data.

    Raises:
        RecordingError: for a damaged file, or none; for what `Coverage` has as an obstacle, but that they are simulated
            where they may be `simulated`.
    """
    coverage, read = Coverage(), list[ReadFight]()
    for path in recording_files(folder):
        recording = read_recording(path)
        coverage.add(recording)
        read.append(ReadFight.of(recording))
    if obstacles := coverage.obstacles(simulated):
        found = "; ".join(obstacles)
        remedy = "keep some 25 of one kind in a folder, as the probe plays them; say it where simulated ones are meant"
        raise RecordingError(folder, "fights of one kind of a running game", found, remedy)
    unknown: dict[str, int] = {}
    fights = tuple(_rows_of(fight, boss, unknown) for fight in read)
    return FightSet(fights, {number: name for name, number in unknown.items()}, read[0].header.scenario)


def _rows_of(fight: ReadFight, boss: BossData, unknown: dict[str, int]) -> FightRows:
    keep = ~np.isnan(fight.raw).any(axis=1)
    raw = fight.raw[keep]
    numbers = boss_numbers(raw[:, Raw.BOSS_ANIMATION].astype(np.int64), fight.boss_read[keep], boss, unknown)
    return FightRows(fight.clock_s[keep], raw, fight.controls[keep], numbers, fight.hp[keep])


def boss_numbers(ids: Integers, read: npt.NDArray[Any], boss: BossData, unknown: dict[str, int]) -> Integers:
    """Return the numbers of the boss's animations, (rows,), from ids and what the game said, (rows,) each.

    A reader that does not know an animation takes it for standing. `unknown` gets a number for each that the data lack.
    """
    table, known = boss_table(boss), boss.animations.known()
    roles = [*known, *(move.title for move in boss.moves)]
    own = {*(move.id for move in boss.moves), *(one.id for one in known.values())}
    numbers = ids.copy()
    for row, (number, name) in enumerate(zip(ids.tolist(), read.tolist(), strict=True)):
        missed = number == known["idle"].id and name is not None and not table.among(reading_of(name), roles)
        if missed or number not in own:
            word = f"animation {number}" if name is None else str(name)
            numbers[row] = unknown.setdefault(word, FIRST_UNKNOWN + len(unknown))
    return numbers


def contact_m(boss: BossData, player: PlayerData) -> float:
    """Return the distance of the two centres at which the bodies touch."""
    return boss.radius_m + player.body.radius_m
