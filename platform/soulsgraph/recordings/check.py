"""Look recordings over: what a folder holds, whether that suffices to `calibrate`, and whether fights play again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np
from rich.console import RenderableType

from soulsgraph.recordings.files import Recording, damaged, read_recording, recording_files
from soulsgraph.recordings.format import CONTROLS, MEASURED, READINGS, Header, RecordingOrigin
from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import first_line, text_table
from soulsgraph.runs.plan import scenario_digest
from soulsgraph_envs.core.errors import SoulsGraphError, reading
from soulsgraph_envs.core.scenario import Scenario, load_boss, load_scenario, started_at
from soulsgraph_envs.core.state import Raw, state_rows
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.games.readings import boss_table, reading_of
from soulsgraph_envs.skills import Skill, make_skill

_LIST_HEADINGS = ("fight", "outcome", "seconds", "boss HP", "player HP", "flasks used")
SUMMARY_HEADINGS = ("player", "fights", "ticks", "won", "95 % interval", "seconds", "dealt", "taken", "flasks")


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


#: Of which fields of the results a summary has the mean, with the digits that are shown.
_MEANS = {"seconds": 1, "damage_dealt": 0, "damage_taken": 0, "flasks_used": 1}


@dataclass(frozen=True)
class Group:
    """The fights of one scenario, source, player and set of versions."""

    scenario: str
    source: str
    player: str
    skills: str
    headers: tuple[Header, ...]

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

    @property
    def ticks(self) -> int:
        """Ticks of all fights."""
        return sum(header.result.ticks for header in self.headers)

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values; means are per fight, rates ratios."""
        rate, who = self.win_rate, {name: getattr(self, name) for name in ("scenario", "source", "player", "skills")}
        wins = {"fights": rate.episodes, "ticks": self.ticks, "wins": rate.wins, "rate": rate.rate}
        return who | wins | rate.interval.columns() | {f"mean_{name}": self.mean(name) for name in _MEANS}

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text, one cell a heading."""
        _, _, *rate, _ = self.win_rate.cells
        means = (_number(self.mean(name), digits) for name, digits in _MEANS.items())
        return (f"{self.player} ({self.skills})", str(len(self.headers)), f"{self.ticks:,}", *rate, *means)


def groups_of(headers: Iterable[Header]) -> Sequence[Group]:
    """Group fights by scenario, source, player and versions, in the order of those."""
    groups: dict[tuple[str, str, str, str], list[Header]] = {}
    for header in headers:
        groups.setdefault((header.scenario, header.source, header.player, skills_text(header)), []).append(header)
    return [Group(*key, tuple(groups[key])) for key in sorted(groups)]


def list_fights(headers: Iterable[Header]) -> list[RenderableType]:
    """Return tables of every fight, one for each group."""
    tables = []
    for group in groups_of(headers):
        rows = []
        for header in group.headers:
            result = header.result
            levels = (_number(one) for one in (result.boss_hp, result.player_hp, result.flasks_used))
            rows.append((header.fight, result.outcome, f"{result.seconds:.1f}", *levels))
        title = f"{group.scenario}, {group.source}, {group.player} ({group.skills})"
        tables.append(text_table(title, _LIST_HEADINGS, rows))
    return tables


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

    def __str__(self) -> str:
        if self.verdict == "damaged":
            return self.note
        tick = f" from tick {self.tick}" if self.tick >= 0 else ""
        return f"{self.fight}: {self.verdict}{tick}; {self.note}"


def check_file(path: Path, on_read: Callable[[Recording], object] = lambda _: None) -> RecordingCheck:
    """Read a recording, and play it again if it is a simulated fight; a damaged file is a verdict, not an error."""
    try:
        recording = read_recording(path)
        on_read(recording)
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
    """Play a simulated fight again from its seed and controls, and compare raw values and observations bit for bit.

    Raises:
        SoulsGraphError: if the data of this version cannot play it.
    """
    header, origin = recording.header, recording.header.origin
    if not header.simulated:
        return RecordingCheck(header.fight, "whole", -1, f"{header.source} fight, which cannot be played again")
    if header.project is not None:
        header.project.check(f"the skills of {header.fight}")
    check_small(header.scenario)
    recorded, present = header.scenario_digest, scenario_digest(header.scenario)
    scenario = replace(started_at(load_scenario(header.scenario), header.start), refill=header.ground.refill)
    skills = [make_skill(skill.name, header.options) for skill in header.skills]
    if present != recorded:
        changed = f"the data of {header.scenario} changed since: {recorded[:16]} then, {present[:16]} now"
        return RecordingCheck(header.fight, "refused", -1, changed)
    tick = _first_difference(recording, scenario, skills)
    if tick < 0:
        return RecordingCheck(header.fight, "same", -1, f"{len(recording):,} ticks")
    by = f"recorded by {origin.soulsgraph}, commit {origin.commit or 'unknown'}"
    if RecordingOrigin.now().processor != origin.processor:
        return RecordingCheck(header.fight, "elsewhere", tick, f"{by}, on {origin.processor}")
    return RecordingCheck(header.fight, "differs", tick, by)


def check_small(scenario: str) -> None:
    """Refuse what a recording calls a scenario's file and is none: it may come from a stranger."""
    if not scenario.endswith(".toml"):
        return
    path = Path(scenario)
    with reading(path):
        small = path.is_file() and path.stat().st_size <= _MOST_SCENARIO_BYTES
    if not small:
        raise SoulsGraphError(f"{path}: expected a scenario's file of at most 1 MiB, found none.")


def _first_difference(recording: Recording, scenario: Scenario, skills: Sequence[Skill]) -> int:
    """Return the first tick whose start differs when the fight is played again; -1 if every bit is the same."""
    game, lane = make_game(), np.zeros(1, np.int64)
    played, controls = np.empty_like(recording.raw), recording.controls
    played[0] = game.reset(lane, scenario, np.array([int(recording.header.seed)], np.uint64))[0]
    for tick in range(len(recording)):
        played[tick + 1] = game.step(controls[tick : tick + 1])[0]
    differing = _rows_differing(played, recording.raw)
    rows = state_rows(recording.raw)
    for skill in skills:
        differing |= _rows_differing(skill.observation(rows, scenario), recording.column(f"{skill.name}/observation"))
    ticks = np.flatnonzero(differing)
    return int(ticks[0]) if ticks.size else -1


def _rows_differing(one: Any, other: Any) -> Any:
    if one.shape != other.shape:
        return np.ones(len(other), np.bool_)
    return (one.view(f"u{one.itemsize}") != np.ascontiguousarray(other).view(f"u{other.itemsize}")).any(axis=1)


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
        bosses = (boss for own in self._bosses.values() for boss in own.bosses if boss.phase in self._phases)
        titles = dict.fromkeys(move.title for boss in bosses for move in boss.moves)
        return [title for title in titles if not self.moves[title]]

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
            self.bosses = [load_boss(phase.boss) for phase in phases]
        except SoulsGraphError:
            phases, self.bosses = (), []
        self._titles = {move.id: move.title for boss in self.bosses for move in boss.moves}
        self._idle = {boss.animations.idle.id for boss in self.bosses}
        self._tables = [
            (boss_table(boss, phase.transition), (*boss.animations.known(), *(move.title for move in boss.moves)))
            for boss, phase in zip(self.bosses, phases, strict=True)
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
