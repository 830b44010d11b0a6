"""Whether a calibration notices recordings that are otherwise than its model: sixteen draws, each in seven ways.

python benchmarks/misspecified_draws.py --first 700 --out docs/results/calibration

Of each altered boss an agent of the zoo and the probe play twenty minutes as recorded well, without one of the moves,
with one more, with a rage, with readings of the boss's or the player's animation (and HP) a tick late, and with a tenth
of the readings missing and the clock hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import common
from calibration import BOSS, SCENARIO, record_fighter
from calibration_draws import draw_whole, score_values, truth_of
from soulsgraph.calibrate.boss_file import write_tables
from soulsgraph.calibrate.calibration import Calibration, calibrate
from soulsgraph.calibrate.rows import FIRST_UNKNOWN, FightRows, FightSet
from soulsgraph.results.origin import describe_run
from soulsgraph_envs.core.config import read_data
from soulsgraph_envs.core.files import write_json
from soulsgraph_envs.core.scenario import load_boss, load_player, load_scenario
from soulsgraph_envs.core.state import Raw
from whole_draws import PROBE_SEED, fighter_in, fights_of, is_wrong, measured_draws, probe_in

DRAWS, MINUTES, MISSING = 16, 20.0, 0.1
#: The move that is left out, and the one that is added: it strikes around a point ahead of the boss.
ABSENT, ADDED_ID = "thrust", 77
ADDED = {"id": ADDED_ID, "name": "Attack3999", "title": "unknown stamp", "raw_id": -1, "weight": 1.0}
#: From its first blows on, as most recorded fights end before half of its HP.
RAGE = {"below_hp_ratio": 0.8, "damage_factor": 1.3, "wait_factor": 0.5, "chain_chance": 0.5}
STAMP = {"offset_m": 2.8, "reach_m": 2.0, "half_arc_rad": 3.2}


def _late(columns: Sequence[Raw], boss: bool = False, hp: bool = False) -> Callable[[FightRows], FightRows]:
    """Return what makes some columns of a fight a reading late."""

    def after(fight: FightRows) -> FightRows:
        before = np.maximum(np.arange(len(fight)) - 1, 0)
        raw = fight.raw.copy()
        raw[:, list(columns)] = fight.raw[np.ix_(before, list(columns))]
        numbers, left = (fight.boss[before] if boss else fight.boss), (fight.hp[before] if hp else fight.hp)
        return replace(fight, raw=raw, boss=numbers, hp=left)

    return after


def _with_missing(fight: FightRows) -> FightRows:
    kept = np.flatnonzero(np.random.default_rng(len(fight)).random(len(fight)) > MISSING)
    clock = np.arange(len(kept)) * 0.1
    return replace(fight.where(kept), clock_s=clock)


OTHER_BOSSES = ("a move absent", "a move added", "a rage")
_ANIMATION = (0, 1, 2)
READ: Mapping[str, Callable[[FightRows], FightRows]] = {
    "as it is": lambda fight: fight,
    "the boss late": _late([Raw(Raw.BOSS_ANIMATION + place) for place in _ANIMATION], boss=True),
    "the player late": _late([*(Raw(Raw.PLAYER_ANIMATION + place) for place in _ANIMATION), Raw.PLAYER_HP], hp=True),
    "ticks missing": _with_missing,
}


def _other_boss(boss: Path, way: str) -> Path:
    """Write a boss without a move, or with one more, beside it."""
    tables = deepcopy(read_data("boss", boss))
    shipped = next(move for move in tables["moves"] if move["title"] == ABSENT)
    if way == "a move absent":
        shipped["weight"] = 0.0
    elif way == "a rage":
        tables["enraged"] = RAGE
    else:
        windows = [dict(shipped["windows"][0]) | STAMP]
        tables["moves"].append(deepcopy(shipped) | ADDED | {"windows": windows})
    path = boss.with_name(f"{boss.stem}-{way.replace(' ', '-')}.toml")
    write_tables(path, tables)
    return path


def _recorded(boss: Path, seed: int) -> FightSet:
    scenario = boss.with_name(f"{boss.stem}-fight.toml")
    write_tables(scenario, {"based_on": SCENARIO, "name": boss.stem, "boss": boss.name})
    agent = record_fighter(fighter_in(str(scenario)), seed, MINUTES / 2)
    return fights_of(agent, record_fighter(probe_in(str(scenario)), seed + PROBE_SEED, MINUTES / 2), MINUTES)


def _unknown(found: FightSet) -> FightSet:
    """Return fights with the added move as an animation that the data lack."""
    fights = [replace(one, boss=np.where(one.boss == ADDED_ID, FIRST_UNKNOWN, one.boss)) for one in found.fights]
    return replace(found, fights=tuple(fights), unknown={FIRST_UNKNOWN: str(ADDED["name"])})


def measure(seed: int, folder: Path) -> dict[str, Any]:
    """Return by way what a calibration notices of a draw, and how many determined values are wrong."""
    drawn, shipped = draw_whole(BOSS, seed, folder), load_boss(BOSS)
    player, truth = load_player(load_scenario(SCENARIO).player), truth_of(load_boss(drawn), shipped)

    def row(found: Calibration) -> dict[str, Any]:
        scored = score_values([value for value in found.boss if value.key in truth], truth, shipped)
        sure = sum(value.verdict == "determined" for value in scored)
        added = {value.key.rpartition(".")[2]: value.verdict for value in found.boss if str(ADDED["name"]) in value.key}
        wrong = [value.key for value in scored if is_wrong(value)]
        return {"notices": list(found.notices), "determined": sure, "wrong": wrong, "added": added}

    played = _recorded(drawn, seed)
    ways = {
        way: row(calibrate(replace(played, fights=tuple(map(read, played.fights))), shipped, player))
        for way, read in READ.items()
    }
    for way in OTHER_BOSSES:
        other = _recorded(_other_boss(drawn, way), seed)
        ways[way] = row(calibrate(_unknown(other) if way == "a move added" else other, shipped, player))
    return {"seed": seed, "ways": ways}


def page_rows(results: dict[str, Any]) -> list[str]:
    """Return the rows of a table of docs/fitting.md: how often each way was noticed, and what is wrong all the same."""
    draws = results["draws"]
    rows = []
    for way in draws[0]["ways"]:
        own = [draw["ways"][way] for draw in draws]
        noticed, wrong = sum(bool(one["notices"]) for one in own), sum(len(one["wrong"]) for one in own)
        mean = sum(one["determined"] for one in own) / len(own)
        rows.append(f"| {way} | {noticed} of {len(own)} | {mean:.0f} | {wrong} |")
    return rows


def main() -> None:
    """Measure, print, write."""
    parser = common.make_parser(__doc__)
    parser.add_argument("--first", type=int, default=700, help="the first of the sixteen seeds")
    parser.add_argument("--out", type=Path, help="folder for the results")
    asked = parser.parse_args()
    results = {"draws": measured_draws(measure, ((asked.first + number,) for number in range(DRAWS)))}
    print("\n".join(page_rows(results)))
    if asked.out is not None:
        write_json(asked.out / "misspecified.json", {**describe_run(), "first": asked.first, "results": results})


if __name__ == "__main__":
    main()
