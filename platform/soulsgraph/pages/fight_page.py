"""A page about a recorded fight: scrubbed by tick, drawn from its readings, with what every skill saw and chose.

It names the moments in which a skill's value fell most, and the last decision of a lost fight that mattered: with
another action there the agent lives on. For that the fight is played again from its own seed, in a lane for each
decision and each other action; in its lane that action is taken in place of the recorded one, and after it the agent
decides as before. What was found is recorded once more, and stands in the picture as a ghost beside the fight as it
was.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from soulsgraph.pages import page
from soulsgraph.recordings.files import Recording, read_recording
from soulsgraph.recordings.format import Header
from soulsgraph.recordings.recording import Fighter, FightRecorder
from soulsgraph.runs.plan import scenario_digest
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.watch.watching import observed_lines
from soulsgraph_envs.combat.loop import Actions, Combat
from soulsgraph_envs.core.files import temporary_folder, write_text
from soulsgraph_envs.core.game import LaneIndices
from soulsgraph_envs.core.scenario import load_scenario, started_at
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.render import palette
from soulsgraph_envs.simulator.scene import hp_windows
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.agents.agent import Agent


@dataclass(frozen=True)
class Fall:
    """The largest fall of a skill's best Q-value from one decision to the next, which begins in `row`.

    `spreads` is the fall in standard deviations of the skill's best values at its decisions of this fight.
    """

    skill: str
    row: int
    before: float
    after: float
    spreads: float


def largest_falls(recording: Recording) -> list[Fall]:
    """Return the largest drop in Q-value of every skill that has values and fell at all, in the skills' order."""
    falls = []
    for skill in recording.header.skills:
        if not skill.valued:
            continue
        rows = np.flatnonzero(recording.column(f"{skill.name}/decides"))
        best = recording.column(f"{skill.name}/values")[rows].max(axis=1).astype(np.float64)
        steps = np.diff(best)
        if steps.size == 0 or not np.isfinite(steps).all() or steps.min() >= 0.0:
            continue
        index, spread = int(steps.argmin()), float(best.std())
        before, after = float(best[index]), float(best[index + 1])
        falls.append(Fall(skill.name, int(rows[index + 1]), before, after, (before - after) / spread))
    return falls


#: Game time by which the agent must live longer, how far an attempt is followed, and how far back they go.
LONGER_S, _FOLLOWED_S, _BACK_S = 2.0, 10.0, 30.0
#: Ticks whose decisions are tried at once.
_BLOCK = 40


class PivotalDecision(NamedTuple):
    """A decision that mattered: the row in which it began, what was chosen, and what would have come of another action.

    `outcome` continues "the player would have": won, lived 5.1 s longer.
    """

    row: int
    skill: str
    chosen: str
    other: str
    outcome: str


@dataclass(frozen=True)
class Search:
    """What was found, a sentence about how, and the fight from that decision on as it would have gone."""

    note: str
    found: PivotalDecision | None = None
    ghost: Recording | None = None


class _Attempt(NamedTuple):
    row: int
    skill: int
    action: int


#: Of a lane that plays the fight as it was.
_AS_IT_WAS = _Attempt(-1, 0, 0)


class _OtherAction:
    """A controller that takes the other action of each lane's attempt."""

    def __init__(self, attempts: Sequence[_Attempt]) -> None:
        self._rows, self._skills, self._actions = np.array(attempts, np.int64).T

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Do nothing: attempts are of the lanes."""

    def act(self, combat: Combat, actions: Actions) -> None:
        """Write the other action where its moment has come."""
        lanes = np.flatnonzero(combat.ticks == self._rows)
        lanes = lanes[combat.due[lanes, self._skills[lanes]]]
        actions[lanes, self._skills[lanes]] = self._actions[lanes]


_NOTE = (
    f"The latest decision for which another action, with the same seeds, lives at least {LONGER_S:.0f} s longer; "
    "after it the agent decides as before."
)


def last_decision(recording: Recording, run: RunFolder | None) -> Search:
    """Look for the latest decision for which another action lives on at least `LONGER_S` longer.

    `run` holds the networks that fought; their digests are compared.

    Raises:
        SoulsGraphError: if the run's library is damaged.
    """
    header = recording.header
    if reason := _not_to_search(recording, run):
        return Search(reason)
    assert run is not None
    agent = _agent(header, run)
    if isinstance(agent, str):
        return Search(agent)
    most = max(len(recording) - round(_BACK_S / header.tick_s), 0)
    for first in range(len(recording) - _BLOCK, most - _BLOCK, -_BLOCK):
        attempts = _attempts(recording, range(max(first, most), first + _BLOCK))
        if not attempts:
            continue
        # The fight in a lane as it was, and in one for every attempt.
        game, most_ticks = make_game(len(attempts) + 1), len(recording) + round(_FOLLOWED_S / header.tick_s)
        seeds = np.full(game.lanes, int(header.seed), np.uint64)
        played = agent.rollout(game, _OtherAction([_AS_IT_WAS, *attempts])).play(seeds, most_ticks=most_ticks)
        # Who wins, or whose time is over, lives to the end.
        ends = np.where(played.died, np.rint(played.seconds / game.tick_s).astype(np.int64), most_ticks)
        if ends[0] != len(recording):
            return Search("Not looked for: the fight takes another course on this machine, or with these data.")
        longer, won = (ends[1:] - len(recording)) * header.tick_s, played.won[1:]
        better = np.flatnonzero(won | (longer >= LONGER_S - 1e-9))
        if better.size:
            best = max(better, key=lambda index: (attempts[index].row, won[index], longer[index]))
            row, number, action = attempts[best]
            outcome = f"lived {longer[best]:.1f} s longer"
            if longer[best] >= _FOLLOWED_S:
                outcome = f"lived at least {_FOLLOWED_S:.0f} s longer"
            skill = header.skills[number]
            chosen = skill.actions[int(recording.column(f"{skill.name}/action")[row])]
            outcome = "won" if won[best] else outcome
            found = PivotalDecision(row, skill.name, chosen, skill.actions[action], outcome)
            return Search(_NOTE, found, _other_course(agent, recording, attempts[best]))
    return Search(f"No single other action in the last {_BACK_S:.0f} s lives {LONGER_S:.0f} s longer.")


def _not_to_search(recording: Recording, run: RunFolder | None) -> str:
    """Return why there is nothing to look for; empty where there is."""
    header = recording.header
    if not header.simulated:
        return "Not looked for: only a fight in the simulator can be played again with another action."
    if not header.skills:
        return "Not looked for: a person fought, who cannot be asked to decide again."
    if header.result.outcome != "died":
        return "The agent did not die in this fight."
    if run is None:
        return "Not looked for: the agent that fought is not at hand."
    drawn = [
        skill.name
        for skill in header.skills
        if skill.player == "network" and any(recording.table.column(f"{skill.name}/random").to_pylist())
    ]
    if drawn := [*drawn, *(skill.name for skill in header.skills if skill.player == "script")]:
        return f"Not looked for: {', '.join(drawn)} did not always decide by a network."
    if scenario_digest(header.scenario) != header.scenario_digest:
        return "Not looked for: the scenario's data changed since the fight."
    return ""


def _agent(header: Header, run: RunFolder) -> Agent | str:
    """Return the agent that fought, or why a run has it not; raises SoulsGraphError if it is damaged."""
    scenario = started_at(load_scenario(header.scenario), header.start)
    skills = tuple(make_skill(skill.name, header.options) for skill in header.skills)
    networks = {}
    for played, skill in zip(header.skills, skills, strict=True):
        if played.player != "network":
            continue
        known = skill.name in run.plan.skill_graph.skills and played.version in run.library.versions(skill.name)
        artifact = run.library.load(skill.name, played.version) if known else None
        if artifact is None or artifact.card.digest != played.digest:
            return f"Not looked for: {run.path.name} has another {played.name} than fought."
        networks[skill.name] = artifact.network(skill, scenario)
    random = [played.name for played in header.skills if played.player == "random"]
    return Agent(scenario, skills, networks, dict.fromkeys(random, "random"))


def _attempts(recording: Recording, rows: range) -> list[_Attempt]:
    """Return every other action of every decision that begins in some rows."""
    attempts = []
    for number, skill in enumerate(recording.header.skills):
        decides, taken = recording.column(f"{skill.name}/decides"), recording.column(f"{skill.name}/action")
        for row in rows:
            if row >= 0 and decides[row]:
                others = (action for action in range(len(skill.actions)) if action != taken[row])
                attempts += [_Attempt(row, number, action) for action in others]
    return attempts


def _other_course(agent: Agent, recording: Recording, attempt: _Attempt) -> Recording:
    """Play the fight once more with another action, and return what is recorded from that decision on."""
    header, written = recording.header, list[Path]()
    fighter = Fighter(header.player, header.scenario, agent, tuple(header.skills), header.options)
    with temporary_folder("soulsgraph-replay-") as folder:
        recorder = FightRecorder(fighter, Path(folder), header, written.append)
        recorder.rollout(make_game(), _OtherAction([attempt])).play(np.array([int(header.seed)], np.uint64))
        whole = read_recording(written[0])
    table = whole.table.slice(attempt.row, len(recording) + round(_FOLLOWED_S / header.tick_s) - attempt.row)
    result = replace(whole.header.result, steps=len(table) - 1)
    if attempt.row + len(table) <= len(whole):
        result = replace(result, outcome="cut")
    return replace(whole, header=replace(whole.header, result=result), table=table)


#: Width and height of the fight's picture, in pixels of a wide page.
SIZE = (720, 480)
_AREA = ("reach_m", "half_arc_rad", "offset_m", "winding_up", "open")
_PART = ("first", "last")
_UNKNOWN = 2
_COLOURS = (
    *("ABYSS", "FLOOR", "TILE", "EDGE", "PLAYER", "PLAYER_HEAD", "BOSS", "BOSS_HEAD", "WIND_UP", "STRIKE", "LOCK"),
    *("SAFE", "VIEW", "HP", "STAMINA", "FLASK", "HEAL", "LOST", "LANDED", "EMPTY", "COURSE", "NOSE", "TEXT", "FAINT"),
    *("DIED", "WON", "STEEL", "HALBERD", "SHIELD"),
)
Arrays = dict[str, npt.NDArray[Any]]
_SCRIPTS = ("three.min.js", "stage.js", "replay.js")


def write_fight_page(path: Path, recording: Recording, search: Search) -> None:
    """Write the page of a fight; `search` is what was found of its last decision that mattered.

    Raises:
        WriteError: if the place cannot be written.
    """
    header = recording.header
    result = header.result
    title = f"{header.player} in {header.scenario}: {result.outcome} after {result.seconds:.1f} s"
    shown = {"header": header, "search": search, "falls": largest_falls(recording), "size": SIZE}
    shown |= {"times_s": recording.column("time_s"), "colours": vars(palette)}
    write_text(path, page(title, "fight.html.jinja", _data(recording, search), _SCRIPTS, **shown))


def _data(recording: Recording, search: Search) -> dict[str, Any]:
    header, ground = recording.header, recording.header.ground
    texts: dict[str, int] = {"": 0}
    arrays = _seen_arrays(recording, texts) | {"controls": recording.controls}
    skills = []
    for skill in header.skills:
        of = f"{skill.name}/"
        arrays[f"{of}decides"] = recording.column(f"{of}decides").astype(np.uint8)
        arrays[f"{of}action"] = recording.column(f"{of}action").astype(np.int16)
        random = recording.table.column(f"{of}random").to_pylist()
        arrays[f"{of}random"] = np.array([_UNKNOWN if one is None else one for one in random], np.uint8)
        terms = (f"term/{term}" for term in skill.terms)
        for name in ("observation", *(["values"] if skill.valued else []), "reward", *terms):
            arrays[of + name] = recording.column(of + name).astype(np.float32)
        version = f" v{skill.version}" if skill.version >= 0 else ""
        inputs = [{"name": name, "places": list(places)} for name, places in observed_lines(tuple(skill.observation))]
        names = {"actions": list(skill.actions), "terms": list(skill.terms), "inputs": inputs}
        skills.append({"name": skill.name, "note": f"{skill.player}{version}", "valued": skill.valued, **names})
    ghost = None
    if search.ghost and search.found:
        arrays |= {f"ghost/{name}": values for name, values in _seen_arrays(search.ghost, texts).items()}
        label, outcome = f"with {search.found.other.replace('_', ' ')}", search.ghost.header.result.outcome
        ghost = {"first": search.found.row, "rows": len(search.ghost) + 1, "label": label, "outcome": outcome}
    content, described = _packed(arrays)
    (x, y), radii = ground.arena.centre_m, {phase.phase: phase.radius_m for phase in ground.phases}
    return {
        "rows": len(recording) + 1,
        "outcome": header.result.outcome,
        "size": list(SIZE),
        "yaw": _side_rad(recording),
        "raw": [raw.name for raw in Raw],
        "controls": [(control.name or "").lower() for control in Control if control],
        "words": list(texts),
        "arena": {"x": x, "y": y, "radius": ground.arena.radius_m, "height": ground.arena.height_m},
        "ghost": ghost,
        "boss": " / ".join(dict.fromkeys(phase.boss for phase in ground.phases)),
        "bossRadii": radii,
        "bossRadius": ground.phases[0].radius_m,
        "playerRadius": ground.player_radius_m,
        "viewRad": ground.view_rad,
        "lockRange": ground.lock_range_m,
        "hpWindows": hp_windows(ground),
        "colours": {name: getattr(palette, name) for name in _COLOURS},
        "skills": skills,
        "arrays": described,
        "packed": content,
    }


def _side_rad(recording: Recording) -> float:
    """Return from where a fight is seen at first, as an angle of the floor: aside, where neither hides the other."""
    player, boss = (recording.raw[0, [Raw[f"{who}_X"], Raw[f"{who}_Y"]]] for who in ("PLAYER", "BOSS"))
    x, y = (player - boss).tolist()
    return (math.atan2(-y, x) if math.isfinite(x + y) else 0.0) - 1.2


def _seen_arrays(recording: Recording, texts: dict[str, int]) -> Arrays:
    """Return what the picture of a fight is drawn from."""
    arrays: Arrays = {"raw": recording.raw.astype(np.float32)}
    for name in ("time_s", "until_hit_s", "player_change", "player_change_age_s", "boss_change", "boss_change_age_s"):
        arrays[name] = recording.column(name).astype(np.float32)
    seen = recording.table.select(
        ["invulnerable", "phase", "hit_areas", "boss_parts", "player_moment", *_NAMED["player"], *_NAMED["boss"]]
    ).to_pydict()
    arrays["invulnerable"] = np.array([bool(one) for one in seen["invulnerable"]], np.uint8)
    arrays["player_moment"] = np.array([-1.0 if one is None else one for one in seen["player_moment"]], np.float32)
    arrays["phase"] = np.array([one or 0 for one in seen["phase"]], np.uint8)
    arrays |= _listed("areas", seen["hit_areas"], _AREA) | _listed("boss_parts", seen["boss_parts"], _PART)
    for who, (doing, animation) in _NAMED.items():
        named = [one or other or "" for one, other in zip(seen[doing], seen[animation], strict=True)]
        arrays[f"{who}_doing"] = np.array([texts.setdefault(one, len(texts)) for one in named], np.int32)
    return arrays


_NAMED = {who: (f"{who}_doing", f"{who}_animation_name") for who in ("player", "boss")}


def _listed(name: str, rows: Sequence[Sequence[Mapping[str, float]] | None], keys: Iterable[str]) -> Arrays:
    """Return lists of records, one list a row, side by side as (records, keys), and where each row's begin."""
    keys = tuple(keys)
    flat = [[record[key] for key in keys] for row in rows for record in row or ()]
    begins = np.cumsum([0, *(len(row or ()) for row in rows)])
    return {name: np.array(flat, np.float32).reshape(-1, len(keys)), f"{name}_rows": begins.astype(np.int32)}


def _packed(arrays: Arrays) -> tuple[str, list[dict[str, Any]]]:
    """Return all arrays as one compressed text in base64, and type, shape and place of each."""
    parts, described, offset = list[bytes](), list[dict[str, Any]](), 0
    for name, values in arrays.items():
        content = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()
        described.append({"name": name, "type": values.dtype.name, "shape": list(values.shape), "offset": offset})
        # A script reads an array at a place that is a multiple of its numbers' size.
        parts.append(content + b"\0" * (-len(content) % 4))
        offset += len(parts[-1])
    return base64.b64encode(zlib.compress(b"".join(parts), 9)).decode("ascii"), described
