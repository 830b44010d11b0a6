"""Whether fights suffice for `calibrate`: what they hold, what they lack, what they mix, and which moves they show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from soulsgraph.recordings.check import check_small
from soulsgraph.recordings.files import Recording, read_recording, recording_files
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


def mixed(headers: Sequence[Header], digest: bool = False) -> list[str]:
    """Return what fights that should be alike differ in, their scenario's data too where the `digest` counts."""
    names = ALIKE | ({"scenario_digest": "data of the scenario"} if digest else {})
    values = {several: sorted({str(getattr(header, name)) for header in headers}) for name, several in names.items()}
    return [
        f"{several} mixed: {', '.join(one or 'unknown' for one in found)}"
        for several, found in values.items()
        if len(found) > 1
    ]


@dataclass
class Coverage:
    """What fights hold for `calibrate`: their headers, and how often each move of the boss was seen.

    `problems` has a line for each file that is no recording, or a damaged one.
    """

    headers: list[Header] = field(default_factory=list)
    moves: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    _lacking: Counter[str] = field(default_factory=Counter)
    _phases: set[int] = field(default_factory=set)
    _bosses: dict[str, _Moves] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> Coverage:
        """Read every recording of a folder.

        Raises:
            RecordingError: if there is no Parquet file.
        """
        coverage = cls()
        for path in recording_files(folder):
            try:
                coverage.add(read_recording(path))
            except SoulsGraphError as error:
                coverage.problems.append(str(error))
        return coverage

    def add(self, recording: Recording) -> None:
        """Count one more fight."""
        header, table = recording.header, recording.table
        self.headers.append(header)
        self._lacking.update(name for name in (*_NEEDED, *_HELPFUL) if table.column(name).null_count == len(table))
        self._phases |= {*table.column("phase").unique().drop_null().to_pylist()}
        if header.scenario not in self._bosses:
            self._bosses[header.scenario] = _Moves(header.scenario)
        self.moves.update(self._bosses[header.scenario].begun(recording))

    @property
    def unseen(self) -> list[str]:
        """The moves of the bosses in the phases that were fought which never began."""
        known = [own.titles for own in self._bosses.values()]
        fought = [title for own in known for phase, titles in own.items() if phase in self._phases for title in titles]
        return [title for title in dict.fromkeys(fought) if not self.moves[title]]

    @property
    def missing(self) -> list[str]:
        """The columns that a fight lacks, so that something is guessed."""
        return [name for name in _HELPFUL if self._lacking[name]]

    def obstacles(self, simulated: bool = False) -> list[str]:
        """Return why `calibrate` refuses these fights as they are; it takes `simulated` ones where it is meant."""
        sources = Counter(str(header.source) for header in self.headers)
        found = [] if len(self.headers) >= FEWEST_FIGHTS else [f"at least {FEWEST_FIGHTS} are needed"]
        # A running game's boss is in none of our files; the simulator's is.
        found += mixed(self.headers, digest=simulated and bool(sources["simulator"]))
        if len(self._phases) > 1:
            found.append(f"phases mixed: {', '.join(map(str, sorted(self._phases)))}")
        kinds = {"fleet": "of a fleet's journal, with a row a decision"} | (
            {} if simulated else {"simulator": "simulated"}
        )
        found += [f"{sources[source]} {what}" for source, what in kinds.items() if sources[source]]
        if absent := [name for name in _NEEDED if self._lacking[name]]:
            more = f" and {len(absent) - _SHOWN} others" if len(absent) > _SHOWN else ""
            found.append(f"without {', '.join(absent[:_SHOWN])}{more}")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        seconds = sum(header.result.seconds for header in self.headers)
        whole = {"fights": len(self.headers), "seconds": seconds, "moves": dict(self.moves.most_common())}
        return {**whole, "unseen": self.unseen, "obstacles": self.obstacles(), "missing": self.missing}

    def lines(self) -> Iterator[str]:
        """Yield what a person should know before `calibrate`; nothing of no fight."""
        if not self.headers:
            return
        minutes = sum(header.result.seconds for header in self.headers) / 60.0
        kind = "; ".join(self.obstacles()) or "of one kind"
        yield f"for calibrate: {len(self.headers)} fights of {minutes:.1f} minutes, {kind}"
        if self.missing:
            yield f"missing in some, so that it is guessed: {', '.join(self.missing)}"
        if self.moves:
            seen = [f"{name} {count}" for name, count in self.moves.most_common()]
            more = [f"{len(seen) - _SHOWN} others"] if len(seen) > _SHOWN else []
            yield f"moves seen: {', '.join([*seen[:_SHOWN], *more])}"
        if self.unseen:
            yield f"never seen: {', '.join(self.unseen)}"
        if seldom := sum(count < _SELDOM for count in self.moves.values()):
            yield f"{seldom} of {len(self.moves)} moves were seen less than {_SELDOM} times: record more"


class _Moves:
    """The moves of a scenario's boss by the skills' ids, and its other animations; none where its files are gone."""

    def __init__(self, scenario: str) -> None:
        try:
            check_small(scenario)
            phases = load_scenario(scenario).phases()
            bosses = [load_boss(phase.boss) for phase in phases]
        except SoulsGraphError:
            phases, bosses = (), []
        #: Titles of moves by the phase that they are of.
        self.titles = {boss.phase: [move.title for move in boss.moves] for boss in bosses}
        self._titles = {move.id: move.title for boss in bosses for move in boss.moves}
        self._idle = {boss.animations.idle.id for boss in bosses}
        self._tables = [
            (boss_table(boss, phase.transition), (*boss.animations.known(), *(move.title for move in boss.moves)))
            for boss, phase in zip(bosses, phases, strict=True)
        ]

    def begun(self, recording: Recording) -> Counter[str]:
        """Count the moves that began in a fight, those that the data lack by what the game calls them."""
        numbers, times_s = (recording.raw[:, Raw.BOSS_ANIMATION + place] for place in range(2))
        read = recording.column("boss_animation_read").tolist()
        names = [self._name(number, one) for number, one in zip(numbers.tolist(), read, strict=True)]
        again = np.append(True, times_s[1:] < times_s[:-1])
        pairs = zip(names, [None, *names[:-1]], again, strict=True)
        return Counter(name for name, before, anew in pairs if name is not None and (anew or name != before))

    def _name(self, number: float, read: str | None) -> str | None:
        """Return the name of a move; None for another animation."""
        if number in self._titles or read is None or number not in self._idle:
            return self._titles.get(int(number)) if number == number else None
        return None if any(table.among(reading_of(read), roles) for table, roles in self._tables) else read
