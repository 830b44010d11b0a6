"""Look recordings over: what a folder of them holds, and whether simulated fights are the same when played again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np
from rich.console import RenderableType

from soulsgraph.recordings.files import Recording, damaged, read_header, read_recording, recording_files
from soulsgraph.recordings.format import Header, RecordingOrigin
from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import first_line, text_table
from soulsgraph.runs.plan import scenario_digest
from soulsgraph_envs.combat.rollout import Doubles
from soulsgraph_envs.core.errors import SoulsGraphError, reading
from soulsgraph_envs.core.scenario import Scenario, load_scenario, started_at
from soulsgraph_envs.core.state import state_rows
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.skills import make_skill

#: What is done with a recording besides.
OnRead = Callable[[Recording], None]
_LIST_HEADINGS = ("fight", "outcome", "seconds", "boss HP", "player HP", "flasks used")
SUMMARY_HEADINGS = ("player", "fights", "ticks", "won", "95 % interval", "seconds", "dealt", "taken", "flasks")


@dataclass(frozen=True)
class FolderContents:
    """The recordings of a folder, and one line for each file that is none or damaged."""

    headers: tuple[Header, ...]
    problems: tuple[str, ...]


def find_recordings(folder: Path, on_read: OnRead | None = None) -> FolderContents:
    """Read what every recording of a folder says of its fight, and with `on_read` all of it.

    Raises:
        RecordingError: if there is no Parquet file.
    """
    headers, problems = [], []
    for path in recording_files(folder):
        try:
            headers.append(read_header(path) if on_read is None else _whole(path, on_read).header)
        except SoulsGraphError as error:
            problems.append(str(error))
    return FolderContents(tuple(headers), tuple(problems))


def _whole(path: Path, on_read: OnRead) -> Recording:
    recording = read_recording(path)
    on_read(recording)
    return recording


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
    return {
        **{name: getattr(header, name) for name in ("fight", "scenario", "start", "source", "player")},
        "skills": {one.name: one.version if one.version >= 0 else one.player for one in header.skills},
        "seed": header.seed,
        **{name: value for name, value in vars(header.result).items() if name != "steps"},
        "created": header.origin.created,
        "commit": header.origin.commit,
    }


def _fight_cells(header: Header) -> tuple[str, ...]:
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
        return WinRate(won, len(self.headers))

    def mean(self, name: str) -> float | None:
        """Return the mean of a field of the results, over the fights that have it."""
        values = [getattr(header.result, name) for header in self.headers]
        known = [float(value) for value in values if value is not None]
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
    groups: dict[tuple[str, str, str, str], list[Header]] = {}
    for header in headers:
        groups.setdefault((header.scenario, header.source, header.player, skills_text(header)), []).append(header)
    return [Group(*key, tuple(groups[key])) for key in sorted(groups)]


def list_fights(headers: Iterable[Header]) -> list[RenderableType]:
    """Return tables of every fight, one for each group."""
    groups = groups_of(headers)
    return [text_table(group.title, _LIST_HEADINGS, map(_fight_cells, group.headers)) for group in groups]


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


#: same: played again bit for bit. differs: not so, under the same conditions. elsewhere: not so, but on another kind
#: of processor. refused: its data are others now. whole: no simulated fight, and not damaged. damaged: no recording.
Verdict = Literal["same", "differs", "elsewhere", "refused", "whole", "damaged"]
#: The verdicts that mean something is wrong.
WRONG: tuple[Verdict, ...] = ("differs", "damaged")
_MOST_SCENARIO_BYTES = 2**20


@dataclass(frozen=True)
class RecordingCheck:
    """What a check of one file found; `tick` is the first that differs, -1 for none."""

    fight: str
    verdict: Verdict
    tick: int
    note: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        if self.verdict == "damaged":
            return self.note
        tick = f" from tick {self.tick}" if self.tick >= 0 else ""
        return f"{self.fight}: {self.verdict}{tick}; {self.note}"


def check_file(path: Path, on_read: OnRead | None = None) -> RecordingCheck:
    """Read a recording, and play it again if it is a simulated fight; a damaged file is a verdict, not an error."""
    try:
        recording = read_recording(path) if on_read is None else _whole(path, on_read)
    except SoulsGraphError as error:
        return RecordingCheck(path.name, "damaged", -1, str(error))
    try:
        return check(recording)
    except SoulsGraphError as error:
        return RecordingCheck(recording.header.fight, "refused", -1, str(error))
    # Values that no writer wrote: one file does not end the check of a folder.
    except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as error:
        return RecordingCheck(path.name, "damaged", -1, str(damaged(path, first_line(error))))


def check(recording: Recording) -> RecordingCheck:
    """Play a simulated fight again from its seed and controls, and compare raw values and observations bit for bit."""
    header = recording.header
    if not header.simulated:
        return RecordingCheck(header.fight, "whole", -1, f"{header.source} fight, which cannot be played again")
    if refusal := _refusal(header):
        return RecordingCheck(header.fight, "refused", -1, refusal)
    here = RecordingOrigin.now()
    scenario = _scenario(header)
    tick = first_difference(recording, scenario)
    if tick < 0:
        return RecordingCheck(header.fight, "same", -1, f"{len(recording):,} ticks")
    recorded = f"recorded by {header.origin.soulsgraph}, commit {header.origin.commit or 'unknown'}"
    if here.processor != header.origin.processor:
        return RecordingCheck(header.fight, "elsewhere", tick, f"{recorded}, on {header.origin.processor}")
    return RecordingCheck(header.fight, "differs", tick, recorded)


def _refusal(header: Header) -> str:
    """Return why a fight cannot be played again with the data of this version; empty where it can."""
    try:
        if header.project is not None:
            header.project.check(f"the skills of {header.fight}")
        check_small(header.scenario)
        present = scenario_digest(header.scenario)
        started_at(load_scenario(header.scenario), header.start)
        for skill in header.skills:
            make_skill(skill.name, header.options)
    except SoulsGraphError as error:
        return str(error)
    if present == header.scenario_digest:
        return ""
    return f"the data of {header.scenario} changed since: {header.scenario_digest[:16]} then, {present[:16]} now"


def check_small(scenario: str) -> None:
    """Refuse what a recording calls a scenario's file and is none: it may come from a stranger."""
    if not scenario.endswith(".toml"):
        return
    path = Path(scenario)
    with reading(path):
        small = path.is_file() and path.stat().st_size <= _MOST_SCENARIO_BYTES
    if not small:
        raise SoulsGraphError(f"{path}: expected a scenario's file of at most 1 MiB, found none.")


def _scenario(header: Header) -> Scenario:
    scenario = started_at(load_scenario(header.scenario), header.start)
    return replace(scenario, refill=header.ground.refill)


def first_difference(recording: Recording, scenario: Scenario) -> int:
    """Return the first tick whose start differs when the fight is played again; -1 if every bit is the same."""
    game, lane = make_game(), np.zeros(1, np.int64)
    raw: Doubles = game.reset(lane, scenario, np.array([int(recording.header.seed)], np.uint64))
    played, controls = np.empty_like(recording.raw), recording.controls
    played[0] = raw[0]
    for tick in range(len(recording)):
        played[tick + 1] = game.step(controls[tick : tick + 1])[0]
    differing = _rows_differing(played, recording.raw)
    rows = state_rows(recording.raw)
    for skill in recording.header.skills:
        observed = make_skill(skill.name, recording.header.options).observation(rows, scenario)
        differing |= _rows_differing(observed, recording.column(f"{skill.name}/observation"))
    ticks = np.flatnonzero(differing)
    return int(ticks[0]) if ticks.size else -1


def _rows_differing(one: Any, other: Any) -> Any:
    if one.shape != other.shape:
        return np.ones(len(other), np.bool_)
    return (one.view(f"u{one.itemsize}") != np.ascontiguousarray(other).view(f"u{other.itemsize}")).any(axis=1)
