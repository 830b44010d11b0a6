"""Make scenarios, bosses and players from names `generated/<family>/<seed>`: the same numbers on every machine.

Each number is drawn from the seed and its own name, in whole hundredths, by the integer arithmetic of `core.seeds`: it
depends neither on what else is drawn nor on how a platform prints numbers. Bosses of the same seed in the families
`timing`, `conflict` and `own` differ by the ids of their moves alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import cos, pi, sin
from typing import Any
from zlib import crc32

import numpy as np

from soulsgraph_envs.continual.families import Archetype, BossFamily, ShiftKind, family_names, load_family
from soulsgraph_envs.core.config import Pair, is_generated
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError, shown
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import derive_seeds, uniforms

#: The largest seed of a generated boss.
MOST_SEED = 2**31 - 1
#: Seeds below it are for choosing hyperparameters, those from it on for reporting.
REPORTING_SEED = 10_000

_BOSS_STREAM = 40
_FIRST = np.zeros(1, np.int64)
_WHOLE_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
#: Ids of moves that grow with relative time: the shipped bosses use 0 to 13, from a relative time of 0.20 to 0.50.
_TIMED_IDS = 14
_EARLIEST, _LATEST = 0.20, 0.50
#: Ids of your own begin behind those of shipped animations; each boss has one in every stride.
_FIRST_OWN_ID, _OWN_STRIDE = 20, 89


def generated_name(family: str, seed: int) -> str:
    """Return the scenario's name of a family and a seed."""
    return f"generated/{family}/{seed}"


def tables(name: str) -> Mapping[str, Any]:
    """Return what files of a generated name would hold, by kind: scenario, boss, player.

    Raises:
        UnknownNameError: for an unknown family or kind of shift.
        SoulsGraphError: for a name without a seed in range.
    """
    family, kind, seed = _parts(name)
    return _tables(family, kind, seed)


def shift_of(name: str) -> tuple[str, ShiftKind] | None:
    """Return the kind of labelled shift that a scenario is, its name first, None where it is none; raises as `tables`.

    The kind names the skill that the shift is meant for, and says whether training that skill again wins back the loss.
    """
    if not is_generated(name):
        return None
    family_name, kind, seed = _parts(name)
    family = load_family(family_name)
    if not family.kinds:
        return None
    chosen = kind or _drawn_kind(family, seed)
    return chosen, family.kinds[chosen]


def _parts(name: str) -> tuple[str, str, int]:
    """Return the family, the kind of shift if the name chooses one, and the seed."""
    _, _, rest = name.partition("/")
    named, _, seed = rest.partition("/")
    family, _, kind = named.partition("-")
    if family not in family_names():
        raise UnknownNameError("family of generated bosses", family, family_names())
    if kind or "-" in named:
        kinds = load_family(family).kinds
        if kind not in kinds:
            raise UnknownNameError("family of generated bosses", named, (family, *(f"{family}-{one}" for one in kinds)))
    if not _WHOLE_NUMBER.fullmatch(seed) or int(seed) > MOST_SEED:
        raise SoulsGraphError(
            f"generated scenario: expected a seed from 0 to {MOST_SEED} behind generated/{named}/, without leading "
            f"zeros, found {shown(seed)}; name it as {generated_name(named, REPORTING_SEED + 1)}."
        )
    return family, kind, int(seed)


@lru_cache(maxsize=512)
def _tables(family_name: str, kind: str, seed: int) -> Mapping[str, Any]:
    family = load_family(family_name)
    name = generated_name(f"{family_name}-{kind}" if kind else family_name, seed)
    if family.kinds:
        chosen = kind or _drawn_kind(family, seed)
        return _shifted(family, family.kinds[chosen], name, Draws(seed, "shift", chosen))
    scenario = {"based_on": family.scenario, "name": name, "boss": name}
    return {"scenario": scenario, "boss": _boss(family, name, seed)}


def _drawn_kind(family: BossFamily, seed: int) -> str:
    kinds = list(family.kinds)
    return kinds[Draws(seed, "kind").below(len(kinds))]


class Draws:
    """Numbers drawn from a seed by their names: none depends on another, nor on the order in which they are drawn."""

    def __init__(self, seed: int, *path: str) -> None:
        self._seed, self._path = seed, path
        self._stream = derive_seeds(seed, _BOSS_STREAM, *(crc32(one.encode()) for one in path))

    def at(self, *path: str) -> Draws:
        """Return the draws of a part, by its name."""
        return Draws(self._seed, *self._path, *path)

    def uniform(self, name: str = "") -> float:
        """Return a number in [0, 1)."""
        return float(uniforms(derive_seeds(self._stream, crc32(name.encode())), _FIRST)[0])

    def below(self, count: int, name: str = "") -> int:
        """Return a whole number from 0 to count - 1."""
        return int(self.uniform(name) * count)

    def hundredths(self, ends: Pair[float], name: str = "") -> int:
        """Return a whole number of hundredths from a range, both ends included."""
        low, high = (round(end * 100) for end in ends)
        return low + self.below(high - low + 1, name)

    def number(self, ends: Pair[float], name: str = "") -> float:
        """Return a number of two decimals from a range, both ends included."""
        return self.hundredths(ends, name) / 100

    def order(self, count: int, name: str = "order") -> list[int]:
        """Return the numbers from 0 to count - 1 in a drawn order."""
        left = list(range(count))
        return [left.pop(self.below(len(left), f"{name}{place}")) for place in range(count)]


def _shifted(family: BossFamily, kind: ShiftKind, name: str, draws: Draws) -> Mapping[str, Any]:
    """Return a labelled scenario, and its player where the shift draws one."""
    scenario: dict[Any, Any] = {"based_on": family.scenario, "name": name, **kind.fight}
    made = {}
    if kind.player:
        scenario["player"] = name
        player = {"based_on": load_scenario(family.scenario).player, "name": f"Knight of {name}"}
        made["player"] = _laid(player, {key: draws.number(ends, key) for key, ends in kind.player.items()})
    if kind.moves_of:
        scenario["boss"] = generated_name(kind.moves_of, int(name.rpartition("/")[2]))
    if kind.arena_m[1]:
        x, y = load_scenario(family.scenario).arena.centre_m
        away, turn = draws.number(kind.arena_m, "arena_m"), 2.0 * pi * draws.uniform("arena direction")
        scenario["arena"] = {"centre_m": [round(x + away * cos(turn), 2), round(y + away * sin(turn), 2)]}
    return {"scenario": scenario, **made}


def _laid(table: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with values laid into it at their places, `group.key` each."""
    for place, value in values.items():
        *groups, key = place.split(".")
        inner = table
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[key] = value
    return table


def _boss(family: BossFamily, name: str, seed: int) -> dict[str, Any]:
    """Return a boss as its file would have it."""
    draws = Draws(seed, "boss")
    chosen = _archetypes(family, draws)
    moves = [_move(one, title, draws.at(title)) for title, one in chosen.items()]
    moves.sort(key=_relative_time)
    for move, number in zip(moves, _ids(family, moves, seed), strict=True):
        move["id"], move["name"] = number, move["title"].title().replace(" ", "")
    table = {"based_on": family.boss, "name": f"Boss of {name}", "moves": moves}
    rear = next(title for title, one in chosen.items() if one is family.rear)
    values: dict[str, Any] = {key: draws.number(ends, key) for key, ends in family.ranges.items()}
    for key, (low, high) in family.pairs.items():
        values[key] = [draws.number(low, f"{key} low"), draws.number(high, f"{key} high")]
    farthest = next(move["distance_m"][1] for move in moves if move["title"] == rear)
    return _laid(table, {**values, "rear.counter": rear, "rear.distance_m": farthest})


def _archetypes(family: BossFamily, draws: Draws) -> dict[str, Archetype]:
    """Draw the moves' archetypes by their titles: one that covers distance, the one to the rear, any others."""
    rear = family.rear
    assert rear is not None
    fewest, most = family.moves
    count = fewest + draws.below(most - fewest + 1, "moves")
    known = [*family.archetypes, *family.archetypes]
    places = draws.order(len(known))
    far = next(place for place in places if known[place].covers_distance)
    chosen: dict[str, Archetype] = {}
    for place in [far, *(place for place in places if place != far)][: count - 1]:
        one = known[place]
        chosen[f"second {one.title}" if one.title in chosen else one.title] = one
    return {**chosen, rear.title: rear}


def _move(one: Archetype, title: str, draws: Draws) -> dict[str, Any]:
    """Draw a move's numbers, all in whole hundredths until they are written."""
    wind_up = draws.hundredths(one.wind_up_s, "wind_up_s")
    windows = list(_windows(one, wind_up, draws))
    first, last = windows[0]["time_s"][0], windows[-1]["time_s"][1]
    length = last + draws.hundredths(one.recovery_s, "recovery_s")
    tracks = wind_up * draws.hundredths(one.tracks, "tracks") // 100
    lead = draws.hundredths(one.lunge_lead_s, "lunge_lead_s") or wind_up // 2
    # A charge keeps its line: the boss no longer turns when it begins.
    tracks = min(tracks, first - lead) if one.runs_through else tracks
    lunge_m_s = draws.number(one.lunge_m_s, "lunge_m_s")
    move = {
        "title": title,
        "raw_id": -1,
        "length_s": length / 100,
        "tracks_s": tracks / 100,
        "distance_m": [draws.number(one.nearest_m, "nearest_m"), draws.number(one.farthest_m, "farthest_m")],
        "weight": draws.number(one.weight, "weight"),
        "runs_through": one.runs_through,
        "parryable": one.parryable,
        "leap_s": draws.number(one.leap_s, "leap_s"),
        "lunge_m_s": lunge_m_s,
        "lunge_s": [(first - lead) / 100, last / 100] if lunge_m_s else [0.0, 0.0],
    }
    for window in windows:
        window["time_s"] = [moment / 100 for moment in window["time_s"]]
    return {**move, "windows": windows}


def _windows(one: Archetype, wind_up: int, draws: Draws) -> Iterator[dict[str, Any]]:
    """Yield a move's windows, their times in whole hundredths of a second."""
    start = wind_up
    for blow in range(one.blows):
        own = draws.at(f"blow {blow}")
        end = start + own.hundredths(one.window_s, "window_s")
        yield {
            "time_s": [start, end],
            "reach_m": draws.number(one.reach_m, "reach_m"),
            "half_arc_rad": draws.number(one.half_arc_rad, "half_arc_rad"),
            "damage": float(draws.hundredths(one.damage, "damage") // 100),
            "knockdown": one.knockdown,
            "staggers": one.staggers,
            "every_s": draws.number(one.every_s, "every_s"),
            "offset_m": draws.number(one.offset_m, "offset_m"),
        }
        start = end + own.hundredths(one.between_s, "between_s")


def _relative_time(move: Mapping[str, Any]) -> tuple[float, str]:
    """Return when a move first hits, as a share of its length; moves of the same share in the order of titles."""
    return move["windows"][0]["time_s"][0] / move["length_s"], move["title"]


def _ids(family: BossFamily, moves: Sequence[Mapping[str, Any]], seed: int) -> list[int]:
    """Return the ids of moves that are in order of relative time."""
    if family.ids == "own":
        return [_FIRST_OWN_ID + seed % _OWN_STRIDE + _OWN_STRIDE * place for place in range(len(moves))]
    timed = _timed_ids([_relative_time(move)[0] for move in moves])
    if family.ids == "timing":
        return timed
    order = Draws(seed, "ids").order(_TIMED_IDS)
    return [order[number] for number in timed]


def _timed_ids(shares: Sequence[float]) -> list[int]:
    """Return rising ids for rising relative times: near those that shipped bosses have for the same times."""
    scale = (_TIMED_IDS - 1) / (_LATEST - _EARLIEST)
    numbers: list[int] = []
    for share in shares:
        wanted = min(max(int((share - _EARLIEST) * scale + 0.5), 0), _TIMED_IDS - 1)
        numbers.append(max(wanted, numbers[-1] + 1) if numbers else wanted)
    for place in range(len(numbers)):
        numbers[place] = min(numbers[place], _TIMED_IDS - len(numbers) + place)
    return numbers
