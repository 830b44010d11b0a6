"""Hidden draws: a shipped boss altered from a seed, to try out how well its data come back from recordings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from soulsgraph.calibrate.boss_file import write_tables
from soulsgraph_envs.core.config import find, read_data
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_boss

#: Alterations of a draw, and by how much each, up or down.
ALTERATIONS, LEAST, MOST = 25, 0.08, 0.40
_TRIES = 200
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

    A change that the boss's checks refuse, as a window that ends before it begins, is drawn again.

    Raises:
        SoulsGraphError: if so many numbers cannot be changed.
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
        load_boss(path)
    except SoulsGraphError:
        return False
    return True
