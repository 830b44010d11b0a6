"""What a folder of recordings holds: a row a fight, and a row for each scenario, source and player."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from soulsgraph.recordings.files import read_header, recording_files
from soulsgraph.recordings.header import Header
from soulsgraph.tables import WinRate
from soulsgraph_envs.core.errors import SoulsGraphError

LIST_HEADINGS = ("fight", "outcome", "seconds", "boss HP", "player HP", "flasks used")
SUMMARY_HEADINGS = ("player", "fights", "ticks", "won", "95 % interval", "seconds", "dealt", "taken", "flasks")


@dataclass(frozen=True)
class Found:
    """The recordings of a folder, and one line for each file that is none or damaged."""

    headers: tuple[Header, ...]
    problems: tuple[str, ...]


def find_recordings(folder: Path) -> Found:
    """Read what every recording of a folder says of its fight.

    Raises:
        RecordingError: if there is no Parquet file.
    """
    headers, problems = [], []
    for path in recording_files(folder):
        try:
            headers.append(read_header(path))
        except SoulsGraphError as error:
            problems.append(str(error))
    return Found(tuple(headers), tuple(problems))


def skills_text(header: Header) -> str:
    """Return who played the skills, in few words: versions of networks, scripts or random actions."""
    players = {one.name: f"v{one.version}" if one.version >= 0 else one.player for one in header.skills}
    common = Counter(players.values()).most_common(1)
    if not common:
        return "a person" if header.source == "person" else "unknown"
    others = [f"{name} {player}" for name, player in players.items() if player != common[0][0]]
    return ", ".join([*others, f"others {common[0][0]}"]) if others else common[0][0]


def fight_row(header: Header) -> dict[str, Any]:
    """Return a fight as plain values: HP in points."""
    result = header.result
    return {
        "fight": header.fight,
        "scenario": header.scenario,
        "start": header.start,
        "source": header.source,
        "player": header.player,
        "skills": {one.name: one.version if one.version >= 0 else one.player for one in header.skills},
        "seed": header.seed,
        "outcome": result.outcome,
        "ticks": result.ticks,
        "seconds": result.seconds,
        "boss_hp": result.boss_hp,
        "player_hp": result.player_hp,
        "damage_dealt": result.damage_dealt,
        "damage_taken": result.damage_taken,
        "flasks_used": result.flasks_used,
        "created": header.origin.created,
        "commit": header.origin.commit,
    }


def fight_cells(header: Header) -> tuple[str, ...]:
    """Return a fight's row as text, one cell a heading."""
    result = header.result
    levels = (_number(result.boss_hp), _number(result.player_hp), _number(result.flasks_used))
    return (header.fight, result.outcome, f"{result.seconds:.1f}", *levels)


@dataclass(frozen=True)
class Group:
    """The fights of one scenario, source, player and set of versions."""

    scenario: str
    source: str
    player: str
    skills: str
    headers: tuple[Header, ...]

    @property
    def title(self) -> str:
        """The keys of the group in one line."""
        return f"{self.scenario}, {self.source}, {self.player} ({self.skills})"

    @property
    def win_rate(self) -> WinRate:
        """The share of fights won."""
        won = sum(header.result.outcome == "won" for header in self.headers)
        return WinRate("", won, len(self.headers))

    def mean(self, name: str) -> float | None:
        """Return the mean of a field of the results, over the fights that have it."""
        found = [getattr(header.result, name) for header in self.headers]
        known = [float(value) for value in found if value is not None]
        return fmean(known) if known else None

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values; means are per fight, rates ratios."""
        rate, who = self.win_rate, {name: getattr(self, name) for name in ("scenario", "source", "player", "skills")}
        counts = {"fights": rate.episodes, "ticks": sum(header.result.ticks for header in self.headers)}
        wins = {"wins": rate.wins, "rate": rate.rate, **rate.interval.columns()}
        names = ("seconds", "damage_dealt", "damage_taken", "flasks_used")
        return who | counts | wins | {f"mean_{name}": self.mean(name) for name in names}

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text, one cell a heading."""
        _, _, rate, interval, _ = self.win_rate.cells
        ticks = sum(header.result.ticks for header in self.headers)
        damage = (_number(self.mean("damage_dealt")), _number(self.mean("damage_taken")))
        means = (_number(self.mean("seconds"), 1), *damage, _number(self.mean("flasks_used"), 1))
        return (f"{self.player} ({self.skills})", str(len(self.headers)), f"{ticks:,}", rate, interval, *means)


def groups_of(headers: Iterable[Header]) -> Sequence[Group]:
    """Group fights by scenario, source, player and versions, in the order of those."""
    found: dict[tuple[str, str, str, str], list[Header]] = {}
    for header in headers:
        found.setdefault((header.scenario, header.source, header.player, skills_text(header)), []).append(header)
    return [Group(*key, tuple(found[key])) for key in sorted(found)]


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
