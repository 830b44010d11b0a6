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
    truth |= {f"aggression.wait_s.{end}": value for end, value in enumerate(boss.aggression.wait_s)}
    truth |= {"aggression.chain_chance": boss.aggression.chain_chance}
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
