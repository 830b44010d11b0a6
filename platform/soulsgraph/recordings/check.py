"""Check recordings: whole, and simulated fights the same bit for bit when they are played again."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from soulsgraph.plan import scenario_digest
from soulsgraph.recordings.files import Recording, damaged, read_recording
from soulsgraph.recordings.header import Header, Origin
from soulsgraph_envs.combat.episodes import Doubles
from soulsgraph_envs.core.errors import SoulsGraphError, reading
from soulsgraph_envs.core.scenario import Scenario, load_scenario, started_at
from soulsgraph_envs.core.state import state_rows
from soulsgraph_envs.drivers.opening import make_game
from soulsgraph_envs.skills import make_skill

#: same: played again bit for bit. differs: not so, under the same conditions. elsewhere: not so, but on another kind
#: of processor. refused: its data are others now. whole: no simulated fight, and not damaged. damaged: no recording.
Verdict = Literal["same", "differs", "elsewhere", "refused", "whole", "damaged"]
#: The verdicts that mean something is wrong.
WRONG: tuple[Verdict, ...] = ("differs", "damaged")
_MOST_SCENARIO_BYTES = 2**20


@dataclass(frozen=True)
class Checked:
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
        place = f" from tick {self.tick}" if self.tick >= 0 else ""
        return f"{self.fight}: {self.verdict}{place}; {self.note}"


def check_file(path: Path) -> Checked:
    """Read a recording, and play it again if it is a simulated fight; a damaged file is a verdict, not an error."""
    try:
        recording = read_recording(path)
    except SoulsGraphError as error:
        return Checked(path.name, "damaged", -1, str(error))
    try:
        return check(recording)
    except SoulsGraphError as error:
        return Checked(recording.header.fight, "refused", -1, str(error))
    # Values that no writer wrote: one file does not end the check of a folder.
    except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as error:
        return Checked(path.name, "damaged", -1, str(damaged(path, error)))


def check(recording: Recording) -> Checked:
    """Play a simulated fight again from its seed and controls, and compare raw values and observations bit for bit."""
    header = recording.header
    if not header.simulated:
        return Checked(header.fight, "whole", -1, f"{header.source} fight, which cannot be played again")
    if refusal := _refusal(header):
        return Checked(header.fight, "refused", -1, refusal)
    here = Origin.now()
    scenario = _scenario(header)
    tick = first_difference(recording, scenario)
    if tick < 0:
        return Checked(header.fight, "same", -1, f"{len(recording):,} ticks")
    recorded = f"recorded by {header.origin.soulsgraph}, commit {header.origin.commit or 'unknown'}"
    if here.processor != header.origin.processor:
        return Checked(header.fight, "elsewhere", tick, f"{recorded}, on {header.origin.processor}")
    return Checked(header.fight, "differs", tick, recorded)


def _refusal(header: Header) -> str:
    """Return why a fight cannot be played again with the data of this version; empty where it can."""
    try:
        if header.project is not None:
            header.project.check(f"the skills of {header.fight}")
        if header.scenario.endswith(".toml"):
            _check_small(Path(header.scenario))
        found = scenario_digest(header.scenario)
        started_at(load_scenario(header.scenario), header.start)
        for skill in header.skills:
            make_skill(skill.name, header.options)
    except SoulsGraphError as error:
        return str(error)
    if found == header.scenario_digest:
        return ""
    return f"the data of {header.scenario} changed since: {header.scenario_digest[:16]} then, {found[:16]} now"


def _check_small(path: Path) -> None:
    """Refuse what a recording calls a scenario's file and is none: it may come from a stranger."""
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
    found = np.flatnonzero(differing)
    return int(found[0]) if found.size else -1


def _rows_differing(one: Any, other: Any) -> Any:
    if one.shape != other.shape:
        return np.ones(len(other), np.bool_)
    return (one.view(f"u{one.itemsize}") != np.ascontiguousarray(other).view(f"u{other.itemsize}")).any(axis=1)
