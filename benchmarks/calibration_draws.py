"""Hidden draws: a shipped boss altered from a seed, to try out how well its data come back from recordings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from math import inf, pi
from pathlib import Path
from typing import Any

import numpy as np

from soulsgraph.calibrate.boss_file import write_tables
from soulsgraph.calibrate.values import ValueFit, Verdict
from soulsgraph_envs.core.config import find, read_data
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import BossData, load_boss
from soulsgraph_envs.simulator.layout import FRAMES_PER_S

#: Alterations of a draw, and by how much each, up or down.
ALTERATIONS, LEAST, MOST = 25, 0.08, 0.40
_TRIES = 200
#: Numbers are written with five digits behind the point.
_ROUNDING = 1e-5
_MOTION = ("walk_m_s", "back_off_m_s", "turn_rad_s", "tracking_factor")
_MOVE = ("length_s", "tracks_s", "lunge_m_s", "weight")
_WINDOW = ("reach_m", "half_arc_rad", "damage")
#: Half an arc that is the whole circle, where nothing more can be seen of it.
_CIRCLE = 3.1

#: The keys from the file's root to a number.
Keys = tuple[str | int, ...]


@dataclass(frozen=True)
class Alteration:
    """One number of the boss's file, and the factor by which it is changed."""

    keys: Keys
    factor: float


def alterable(tables: Mapping[str, Any]) -> Iterator[Keys]:
    """Yield the keys of every number of a boss's tables that a draw may change; those that are 0 stay."""
    for keys in _candidates(tables):
        value = _at(tables, keys)
        if value and not (keys[-1] == "half_arc_rad" and value >= _CIRCLE):
            yield keys


def _candidates(tables: Mapping[str, Any]) -> Iterator[Keys]:
    yield from (("motion", key) for key in _MOTION)
    yield from (("aggression", "wait_s", end) for end in (0, 1))
    for number, move in enumerate(tables["moves"]):
        yield from (("moves", number, key) for key in _MOVE if key in move)
        for place, window in enumerate(move["windows"]):
            yield from (("moves", number, "windows", place, key) for key in _WINDOW if key in window)
            yield from (("moves", number, "windows", place, "time_s", end) for end in (0, 1))


def _at(tables: Any, keys: Keys) -> Any:
    for key in keys:
        tables = tables[key]
    return tables


def draw_alterations(boss: str, seed: int, folder: Path, count: int = ALTERATIONS) -> tuple[Path, list[Alteration]]:
    """Alter a shipped boss at random and write it as a file of a folder; return that and what was changed.

    A change that the boss's checks refuse, as a window that ends before it begins, is drawn again, and so is one after
    which a window is shorter than a frame: it would never strike.

    Raises:
        SoulsGraphError: if fewer numbers can be changed.
    """
    random = np.random.default_rng(seed)
    tables = read_data("boss", find("boss", boss))
    tables["name"] = f"{tables['name']}, draw {seed}"
    left, done = list(alterable(tables)), list[Alteration]()
    path = folder / f"draw-{seed}.toml"
    for _ in range(_TRIES * count):
        if len(done) == count or not left:
            break
        keys = left[int(random.integers(len(left)))]
        factor = 1.0 + float(random.choice((-1.0, 1.0))) * float(random.uniform(LEAST, MOST))
        changed = deepcopy(tables)
        _at(changed, keys[:-1])[keys[-1]] = round(_at(tables, keys) * factor, 4)
        write_tables(path, changed)
        if _is_valid(path):
            tables = changed
            done.append(Alteration(keys, factor))
            left.remove(keys)
    if len(done) < count:
        raise SoulsGraphError(f"{boss}: expected {count} numbers that can change, found {len(done)}; ask for fewer.")
    write_tables(path, tables)
    return path, done


#: Factors, or numbers, that a whole draw has a value from, each by itself.
_WIND_UP, _RECOVERY, _LASTS = (0.8, 1.25), (0.6, 1.5), (0.65, 1.5)
_FACTORS = {
    "reach_m": (0.82, 1.22), "half_arc_rad": (0.7, 1.4), "damage": (0.7, 1.35), "lunge_m_s": (0.7, 1.4),
    "leap_s": (0.8, 1.25), "walk_m_s": (0.7, 1.4), "back_off_m_s": (0.7, 1.4), "turn_rad_s": (0.7, 1.4),
    "tracking_factor": (0.8, 1.3), "time_factor": (0.85, 1.2), "damage_factor": (0.85, 1.2),
}  # fmt: skip
_NUMBERS = {"damage_spread": (0.03, 0.18), "chain_chance": (0.05, 0.45), "low": (0.5, 1.4), "high": (2.2, 4.2)}
_WEIGHT = 0.9
#: Of values that a boss may have otherwise as well, and of the player.
_NEAR_WAIT, _REAR_CHANCE = ((0.0, 0.4), (0.5, 1.2)), (0.1, 0.9)
_NEAR_M = (2.0, 4.0)
_REAR = {"angle_rad": (1.4, 2.4), "distance_m": (3.2, 6.0), "turn_s": (0.5, 1.1)}
_KEPT = {"approach_beyond_m": (3.2, 4.8), "back_off_within_m": (1.2, 3.0)}
_PLAYER = {
    "run": ("speed_m_s",), "roll": ("cost", "speed_m_s", "invulnerable_s"), "attack": ("cost",),
    "body": ("regeneration_per_s",),
}  # fmt: skip
_PLAYERS_FACTOR = (0.85, 1.2)


def draw_whole(boss: str, seed: int, folder: Path, others: bool = False) -> Path:
    """Alter nearly all values of a shipped boss at once and write it as a file of a folder.

    `others` alters more as well: waits beside the player, chains' length, what is behind the boss and what comes for a
    player there, and the distances that it keeps. Returns the file's path.
    """
    random = np.random.default_rng(seed)
    while True:
        tables = deepcopy(read_data("boss", find("boss", boss)))
        tables["name"] = f"{tables['name']}, draw {seed}"
        for table in (tables, tables["motion"]):
            _scale(table, random)
        _renumber(tables, random, "damage_spread")
        _renumber(tables["aggression"], random, "chain_chance")
        tables["aggression"]["wait_s"] = [_drawn(random, _NUMBERS[end]) for end in ("low", "high")]
        for move in tables["moves"]:
            _alter_move(move, random)
        if others:
            tables["aggression"]["near_wait_s"] = [_drawn(random, ends) for ends in _NEAR_WAIT]
            tables["aggression"]["chain_most"] += 1
            tables["rear"]["counter_chance"] = _drawn(random, _REAR_CHANCE)
            tables["aggression"]["near_m"] = _drawn(random, _NEAR_M)
            for table, ranges in (("rear", _REAR), ("motion", _KEPT)):
                tables[table] |= {name: _drawn(random, span) for name, span in ranges.items()}
        path = folder / f"draw-{seed}.toml"
        write_tables(path, tables)
        if _is_valid(path):
            return path


def _drawn(random: np.random.Generator, span: tuple[float, float]) -> float:
    return round(float(random.uniform(*span)), 4)


def _scale(table: dict[str, Any], random: np.random.Generator) -> None:
    for name in (name for name in _FACTORS if name in table and name != "half_arc_rad"):
        table[name] = round(table[name] * _drawn(random, _FACTORS[name]), 4)
    if table.get("half_arc_rad", _CIRCLE) < _CIRCLE:
        table["half_arc_rad"] = round(table["half_arc_rad"] * _drawn(random, _FACTORS["half_arc_rad"]), 4)


def _renumber(table: dict[str, Any], random: np.random.Generator, name: str) -> None:
    table[name] = _drawn(random, _NUMBERS[name])


def _alter_move(move: dict[str, Any], random: np.random.Generator) -> None:
    """Scale a move's times up to its last window, each window's length, the rest, and all else by factors."""
    wind_up, recovery = _drawn(random, _WIND_UP), _drawn(random, _RECOVERY)
    ends = max(window["time_s"][1] for window in move["windows"])
    _scale(move, random)
    move["weight"] = round(move["weight"] * float(np.exp(random.uniform(-_WEIGHT, _WEIGHT))), 4)
    rest = (move["length_s"] - ends) * recovery
    for window in move["windows"]:
        first, last = window["time_s"]
        begins = first * wind_up
        window["time_s"] = [round(begins, 4), round(begins + (last - first) * _drawn(random, _LASTS), 4)]
        _scale(window, random)
    latest = max(window["time_s"][1] for window in move["windows"])
    move["length_s"] = round(latest + rest, 4)
    move["tracks_s"] = round(min(move["tracks_s"] * wind_up, move["length_s"]), 4)
    if "lunge_s" in move:
        move["lunge_s"] = [round(one * wind_up, 4) for one in move["lunge_s"]]


def draw_player(player: str, seed: int, folder: Path) -> Path:
    """Alter a shipped player's speeds, costs and invulnerability and write it as a file of a folder."""
    random = np.random.default_rng(seed)
    tables = deepcopy(read_data("player", find("player", player)))
    tables["name"] = f"{tables['name']}, draw {seed}"
    for table, names in _PLAYER.items():
        for name in names:
            tables[table][name] = round(tables[table][name] * _drawn(random, _PLAYERS_FACTOR), 4)
    path = folder / f"player-{seed}.toml"
    write_tables(path, tables)
    return path


def _is_valid(path: Path) -> bool:
    try:
        boss = load_boss(path)
    except SoulsGraphError:
        return False
    ends = (window.time_s for move in boss.moves for window in move.windows)
    return all((last - first) * boss.time_factor >= 1.0 / FRAMES_PER_S for first, last in ends)


def truth_of(boss: BossData, shipped: BossData) -> dict[str, float]:
    """Return the values of a boss by the keys of a calibration: times and damage as the game shows them.

    Weights have the sum of the shipped ones; half an arc beyond the circle is the circle.
    """
    factor, weights = boss.time_factor, sum(move.weight for move in boss.moves)
    truth = {f"motion.{name}": float(value) for name, value in vars(boss.motion).items()}
    waits = {"wait_s": boss.aggression.wait_s, "near_wait_s": boss.aggression.near_wait_s}
    truth |= {f"aggression.{name}.{end}": value for name, ends in waits.items() for end, value in enumerate(ends)}
    truth |= {f"aggression.{name}": float(getattr(boss.aggression, name)) for name in ("chain_chance", "chain_most")}
    truth |= {
        f"rear.{name}": getattr(boss.rear, name) for name in ("counter_chance", "angle_rad", "distance_m", "turn_s")
    }
    truth["aggression.near_m"] = boss.aggression.near_m
    truth |= {"radius_m": boss.radius_m, "damage_spread": boss.damage_spread}
    for move in boss.moves:
        key = f"moves.{move.title}"
        truth |= {f"{key}.{name}": getattr(move, name) * factor for name in ("length_s", "tracks_s", "leap_s")}
        truth |= {f"{key}.lunge_s.{end}": value * factor for end, value in enumerate(move.lunge_s)}
        truth |= {f"{key}.distance_m.{end}": value for end, value in enumerate(move.distance_m)}
        truth[f"{key}.lunge_m_s"] = move.lunge_m_s
        truth[f"{key}.weight"] = move.weight / weights * sum(one.weight for one in shipped.moves)
        for place, window in enumerate(move.windows):
            inside = f"{key}.windows.{place}"
            truth |= {f"{inside}.time_s.{end}": value * factor for end, value in enumerate(window.time_s)}
            truth[f"{inside}.reach_m"] = window.reach_m
            truth[f"{inside}.half_arc_rad"] = min(window.half_arc_rad, pi)
            truth[f"{inside}.damage"] = window.damage * boss.damage_factor
    return truth


@dataclass(frozen=True)
class ScoredValue:
    """One value beside its truth: `error` is a share of the truth, None where nothing was found.

    `covered` is whether the 95 % interval holds the truth, `altered` whether the draw had changed it.
    """

    key: str
    kind: str
    verdict: Verdict
    truth: float
    estimate: float | None
    low: float | None
    high: float | None
    count: int
    error: float | None
    covered: bool | None
    altered: bool


def score_values(found: Sequence[ValueFit], truth: Mapping[str, float], shipped: BossData) -> list[ScoredValue]:
    """Return what was found of a boss beside its truth."""
    before = truth_of(shipped, shipped)
    return [_scored(value, truth[value.key], before[value.key]) for value in found]


def _scored(value: ValueFit, truth: float, before: float) -> ScoredValue:
    error = covered = None
    if value.estimate is not None:
        error = float(abs(value.estimate - truth) / (abs(truth) or 1.0))
        low = -inf if value.low is None else value.low
        high = inf if value.high is None else value.high
        covered = bool(low - _ROUNDING <= truth <= high + _ROUNDING)
    # The weights share a sum: where one was altered all others move a little.
    altered = bool(abs(truth - before) > 0.07 * abs(before))
    return ScoredValue(
        value.key, value.kind, value.verdict, truth, value.estimate, value.low, value.high, value.count,
        error, covered, altered,
    )  # fmt: skip


@dataclass(frozen=True)
class KindScore:
    """How well the values of one kind came back: counts, the median and the largest error, the share covered."""

    kind: str
    values: int
    determined: int
    bounded: int
    median_error: float | None
    largest_error: float | None
    covered: float | None


def score_kinds(scored: Sequence[ScoredValue]) -> list[KindScore]:
    """Return the scores by kind of value, and of all together; errors are those of determined values alone."""
    kinds = dict.fromkeys(one.kind for one in scored)
    return [_kind_score(kind, [one for one in scored if one.kind == kind]) for kind in kinds] + [
        _kind_score("all", scored)
    ]


def _kind_score(kind: str, scored: Sequence[ScoredValue]) -> KindScore:
    sure = [one.error for one in scored if one.verdict == "determined" and one.error is not None]
    covered = [one.covered for one in scored if one.covered is not None]
    bounded = sum(one.verdict == "bounded" for one in scored)
    median, largest = (float(np.median(sure)), max(sure)) if sure else (None, None)
    share = sum(covered) / len(covered) if covered else None
    return KindScore(kind, len(scored), len(sure), bounded, median, largest, share)
