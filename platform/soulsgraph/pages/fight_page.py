"""A page about a recorded fight: scrubbed by tick, drawn from its readings, with what every skill saw and chose.

It names the moments in which a skill's value fell most.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from soulsgraph.pages.document import Html, page, tag
from soulsgraph.pages.what_if import Search
from soulsgraph.recordings.files import Recording
from soulsgraph.recordings.format import Header, PlayedSkill
from soulsgraph.watch.showing import observed_lines
from soulsgraph_envs.combat.rollout import Doubles
from soulsgraph_envs.core.files import write_text
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.render import palette


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
    """Return the largest fall in value of every skill that has values and fell at all, in the skills' order."""
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


#: Width and height of the fight's picture, in pixels of the page.
SIZE = (720, 480)
_AREA = ("reach_m", "half_arc_rad", "offset_m", "winding_up", "open")
_PART = ("first", "last")
_UNKNOWN = 2
_COLOURS = (
    *("ABYSS", "FLOOR", "TILE", "EDGE", "PLAYER", "BOSS", "WIND_UP", "STRIKE", "LOCK", "SAFE", "VIEW", "HP"),
    *("STAMINA", "FLASK", "HEAL", "LOST", "LANDED", "EMPTY", "COURSE", "NOSE", "TEXT", "FAINT", "DIED", "WON"),
)
Arrays = dict[str, npt.NDArray[Any]]


def write_fight_page(path: Path, recording: Recording, search: Search) -> None:
    """Write the page of a fight; `search` is what was found of its last decision that mattered.

    Raises:
        WriteError: if the place cannot be written.
    """
    header = recording.header
    parts = (
        tag("h1", header.fight),
        tag("p", _title(header), class_="faint"),
        tag("div", _canvas(), tag("div", _about(header), _moments(recording, search), class_="about"), class_="fight"),
        _controls(),
        tag("div", tag("canvas", id="tracks"), tag("div", id="cursor"), class_="tracks"),
        tag("div", id="skills"),
    )
    write_text(path, page(header.fight, *parts, data=_data(recording), script="replay.js"))


def _title(header: Header) -> str:
    result = header.result
    ends = {"won": "won", "died": "died", "time over": "time over", "cut": "cut"}[result.outcome]
    return f"{header.player} in {header.scenario}: {ends} after {result.seconds:.1f} s"


def _canvas() -> Html:
    return tag("canvas", id="fight", width=SIZE[0], height=SIZE[1])


def _about(header: Header) -> Html:
    shown = {
        "player": header.player,
        "scenario": f"{header.scenario}, start {header.start}",
        "source": ", ".join(dict.fromkeys((header.source, header.driver))),
        "seed": header.seed or "-",
        "recorded": f"{header.origin.created[:16].replace('T', ' ')} UTC, soulsgraph {header.origin.soulsgraph}",
    }
    live = (("the boss", "boss-doing"), ("the player", "player-doing"))
    lines = [(tag("dt", name), tag("dd", value)) for name, value in shown.items()]
    lines += [(tag("dt", f"{name} does"), tag("dd", "-", id=place)) for name, place in live]
    lines += [(tag("dt", "controls"), tag("dd", "-", id="held"))]
    return tag("dl", [part for pair in lines for part in pair])


def _moments(recording: Recording, search: Search) -> Html:
    times_s = recording.column("time_s")
    falls = [_fall(fall, times_s) for fall in largest_falls(recording)]
    title = "Largest fall in value, in standard deviations of the skill's values"
    shown = [tag("h3", title), *falls] if falls else []
    return tag("div", tag("h3", "Last decision that mattered"), _found(search, times_s), shown)


def _fall(fall: Fall, times_s: Doubles) -> Html:
    words = f"{fall.skill.replace('_', ' ')}: {fall.before:.2f} to {fall.after:.2f} ({fall.spreads:.1f} deviations)"
    return _moment(f"{words} at {times_s[fall.row]:.1f} s", fall.row)


def _moment(words: str, row: int) -> Html:
    return tag("button", words, class_="moment", data_row=row)


def _found(search: Search, times_s: Doubles) -> Html:
    found = search.found
    if found is None:
        return tag("p", search.note, class_="faint")
    skill, other = found.skill.replace("_", " "), found.other.replace("_", " ")
    words = f"{skill} at {times_s[found.row]:.1f} s: {found.chosen.replace('_', ' ')}; {other} instead {found.outcome}"
    return tag("div", _moment(words, found.row), tag("p", search.note, class_="faint"))


def _controls() -> Html:
    slider = tag("input", type="range", id="slider", min=0, value=0, aria_label="tick")
    buttons = [tag("button", name, id=place) for name, place in (("play", "play"), ("◂", "back"), ("▸", "on"))]
    return tag("div", buttons, slider, tag("span", "", id="time"), class_="bar")


def _data(recording: Recording) -> dict[str, Any]:
    header, ground = recording.header, recording.header.ground
    texts: dict[str, int] = {"": 0}
    content, described = _packed(_arrays(recording, texts))
    (x, y), radii = ground.arena.centre_m, {phase.phase: phase.radius_m for phase in ground.phases}
    return {
        "rows": len(recording) + 1,
        "outcome": header.result.outcome,
        "size": list(SIZE),
        "raw": [raw.name for raw in Raw],
        "controls": [(control.name or "").lower() for control in Control if control],
        "words": list(texts),
        "arena": {"x": x, "y": y, "radius": ground.arena.radius_m},
        "boss": " / ".join(dict.fromkeys(phase.boss for phase in ground.phases)),
        "bossRadii": radii,
        "bossRadius": ground.phases[0].radius_m,
        "playerRadius": ground.player_radius_m,
        "viewRad": ground.view_rad,
        "lockRange": ground.lock_range_m,
        "wonBelow": 0.0 if ground.refill else ground.boss_hp[1] / ground.boss_hp_full,
        "colours": {name: getattr(palette, name) for name in _COLOURS},
        "skills": [_skill(skill) for skill in header.skills],
        "arrays": described,
        "packed": content,
    }


def _skill(skill: PlayedSkill) -> dict[str, Any]:
    version = f" v{skill.version}" if skill.version >= 0 else ""
    inputs = [{"name": name, "places": list(places)} for name, places in observed_lines(tuple(skill.observation))]
    names = {"actions": list(skill.actions), "terms": list(skill.terms), "inputs": inputs}
    return {"name": skill.name, "note": f"{skill.player}{version}", "valued": skill.valued, **names}


def _arrays(recording: Recording, texts: dict[str, int]) -> Arrays:
    """Return every array of the page by name, numbers as float32; words are numbered in `texts`."""
    arrays: Arrays = {"raw": recording.raw.astype(np.float32), "controls": recording.controls}
    for name in ("time_s", "until_hit_s", "player_change", "player_change_age_s", "boss_change", "boss_change_age_s"):
        arrays[name] = recording.column(name).astype(np.float32)
    seen = recording.table.select(
        ["invulnerable", "phase", "hit_areas", "boss_parts", *_NAMED["player"], *_NAMED["boss"]]
    ).to_pydict()
    arrays["invulnerable"] = np.array([bool(one) for one in seen["invulnerable"]], np.uint8)
    arrays["phase"] = np.array([one or 0 for one in seen["phase"]], np.uint8)
    arrays |= _listed("areas", seen["hit_areas"], _AREA) | _listed("boss_parts", seen["boss_parts"], _PART)
    for who, (doing, animation) in _NAMED.items():
        named = [one or other or "" for one, other in zip(seen[doing], seen[animation], strict=True)]
        arrays[f"{who}_doing"] = np.array([texts.setdefault(one, len(texts)) for one in named], np.int32)
    for skill in recording.header.skills:
        arrays |= _skill_arrays(recording, skill)
    return arrays


_NAMED = {who: (f"{who}_doing", f"{who}_animation_name") for who in ("player", "boss")}


def _skill_arrays(recording: Recording, skill: PlayedSkill) -> Arrays:
    random = recording.table.column(f"{skill.name}/random").to_pylist()
    arrays: Arrays = {
        "decides": recording.column(f"{skill.name}/decides").astype(np.uint8),
        "action": recording.column(f"{skill.name}/action").astype(np.int16),
        "random": np.array([_UNKNOWN if one is None else one for one in random], np.uint8),
    }
    whole = ("observation", *(["values"] if skill.valued else []), "reward", *(f"term/{term}" for term in skill.terms))
    arrays |= {name: recording.column(f"{skill.name}/{name}").astype(np.float32) for name in whole}
    return {f"{skill.name}/{name}": values for name, values in arrays.items()}


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
