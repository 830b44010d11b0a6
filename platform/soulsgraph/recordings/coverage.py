"""Whether fights suffice for `calibrate`: what they hold, what they lack, what they mix, and which moves they show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from soulsgraph.recordings.check import check_small
from soulsgraph.recordings.files import Recording, read_recording
from soulsgraph.recordings.format import CONTROLS, MEASURED, READINGS, Header
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_boss, load_scenario
from soulsgraph_envs.core.state import Raw
from soulsgraph_envs.games.readings import boss_table, reading_of

#: The columns that have to be there, and those without which something is guessed.
_NEEDED = tuple(column.name for column in (*READINGS.values(), *CONTROLS.values()))
_HELPFUL = tuple(column.name for column in MEASURED)
#: What all fights have alike: the header's field, and several of it.
ALIKE = {"scenario": "scenarios", "map": "maps", "game_version": "game versions", "speed": "speeds"}
FEWEST_FIGHTS = 2
#: Of a move seen less often little can be known.
_SELDOM = 10
#: So many moves and columns are named in a line.
_SHOWN = 12


@dataclass(frozen=True)
class Coverage:
    """What fights hold for `calibrate`: their number and seconds, and how often each move of the boss was seen.

    `obstacles` say why `calibrate` refuses them, `missing` are columns without which something is guessed.
    """

    fights: int
    seconds: float
    moves: Mapping[str, int]
    obstacles: tuple[str, ...]
    missing: tuple[str, ...]

    @classmethod
    def of(cls, paths: Iterable[Path]) -> Coverage:
        """Look the fights of files over, but for those that are damaged."""
        count = CoverageCount()
        for path in paths:
            with suppress(SoulsGraphError):
                count.add(read_recording(path))
        return count.coverage

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "fights": self.fights,
            "seconds": self.seconds,
            "moves": dict(self.moves),
            "obstacles": list(self.obstacles),
            "missing": list(self.missing),
        }

    def lines(self) -> Iterator[str]:
        """Yield what a person should know before `calibrate`; nothing of no fight."""
        if not self.fights:
            return
        found = f"{self.fights} fights of {self.seconds / 60.0:.1f} minutes"
        yield f"for calibrate: {found}, {'; '.join(self.obstacles) or 'of one kind'}"
        if self.missing:
            yield f"missing in some, so that it is guessed: {', '.join(self.missing)}"
        if self.moves:
            seen = [f"{name} {count}" for name, count in self.moves.items()]
            more = [f"{len(seen) - _SHOWN} others"] if len(seen) > _SHOWN else []
            yield f"moves seen: {', '.join([*seen[:_SHOWN], *more])}"
        if seldom := sum(count < _SELDOM for count in self.moves.values()):
            yield f"{seldom} of {len(self.moves)} moves were seen less than {_SELDOM} times: record more"


@dataclass
class CoverageCount:
    """What was found in the fights so far."""

    headers: list[Header] = field(default_factory=list)
    lacking: Counter[str] = field(default_factory=Counter)
    phases: set[int] = field(default_factory=set)
    moves: Counter[str] = field(default_factory=Counter)
    _bosses: dict[str, _Moves] = field(default_factory=dict)

    def add(self, recording: Recording) -> None:
        """Count one more fight."""
        header, table = recording.header, recording.table
        self.headers.append(header)
        self.lacking.update(name for name in (*_NEEDED, *_HELPFUL) if table.column(name).null_count == len(table))
        self.phases |= {*table.column("phase").unique().drop_null().to_pylist()}
        if header.scenario not in self._bosses:
            self._bosses[header.scenario] = _Moves(header.scenario)
        self.moves.update(self._bosses[header.scenario].begun(recording))

    @property
    def coverage(self) -> Coverage:
        """What the fights so far hold."""
        seconds = sum(header.result.seconds for header in self.headers)
        missing = tuple(name for name in _HELPFUL if self.lacking[name])
        return Coverage(len(self.headers), seconds, dict(self.moves.most_common()), tuple(self.obstacles()), missing)

    def obstacles(self) -> Iterator[str]:
        """Yield why these fights cannot be calibrated from as they are."""
        if len(self.headers) < FEWEST_FIGHTS:
            yield f"at least {FEWEST_FIGHTS} are needed"
        for name, several in ALIKE.items():
            values = sorted({str(getattr(header, name)) for header in self.headers})
            if len(values) > 1:
                yield f"{several} mixed: {', '.join(value or 'unknown' for value in values)}"
        if len(self.phases) > 1:
            yield f"phases mixed: {', '.join(map(str, sorted(self.phases)))}"
        sources = Counter(str(header.source) for header in self.headers)
        for source, what in (("fleet", "of a fleet's journal, with a row a decision"), ("simulator", "simulated")):
            if sources[source]:
                yield f"{sources[source]} {what}"
        if absent := [name for name in _NEEDED if self.lacking[name]]:
            more = f" and {len(absent) - _SHOWN} others" if len(absent) > _SHOWN else ""
            yield f"without {', '.join(absent[:_SHOWN])}{more}"


class _Moves:
    """The moves of a scenario's boss by the skills' ids, and its other animations; none where its files are gone."""

    def __init__(self, scenario: str) -> None:
        try:
            check_small(scenario)
            phases = load_scenario(scenario).phases()
            bosses = [load_boss(phase.boss) for phase in phases]
        except SoulsGraphError:
            phases, bosses = (), []
        self._titles = {move.id: move.title for boss in bosses for move in boss.moves}
        self._idle = {boss.animations.idle.id for boss in bosses}
        self._tables = [
            (boss_table(boss, phase.transition), (*boss.animations.known(), *(move.title for move in boss.moves)))
            for boss, phase in zip(bosses, phases, strict=True)
        ]

    def begun(self, recording: Recording) -> Counter[str]:
        """Count the moves that began in a fight, those that the data lack by what the game calls them."""
        numbers, times_s = (recording.raw[:, Raw.BOSS_ANIMATION + place] for place in range(2))
        read = recording.table.column("boss_animation_read").to_pylist()
        names = [self._name(number, one) for number, one in zip(numbers.tolist(), read, strict=True)]
        again = np.concatenate([[True], times_s[1:] < times_s[:-1]])
        return Counter(
            name
            for row, name in enumerate(names)
            if name is not None and (row == 0 or again[row] or name != names[row - 1])
        )

    def _name(self, number: float, read: str | None) -> str | None:
        """Return the name of a move; None for another animation."""
        if number in self._titles or read is None or number not in self._idle:
            return self._titles.get(int(number)) if number == number else None
        return None if self._known(read) else read

    def _known(self, read: str) -> bool:
        return any(table.among(reading_of(read), roles) for table, roles in self._tables)
