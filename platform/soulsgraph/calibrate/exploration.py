"""What a probe should play next: where the intervals of a calibration are widest, and moves that were seldom seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log, pi
from pathlib import Path

import numpy as np

from soulsgraph.calibrate.boss_file import write_fitted
from soulsgraph.calibrate.calibration import Calibration, calibrate
from soulsgraph.calibrate.rows import contact_m, read_fights
from soulsgraph.calibrate.values import ValueFit
from soulsgraph_envs.combat.probe import BlowDoubt, Focus
from soulsgraph_envs.core.files import temporary_folder
from soulsgraph_envs.core.scenario import BossData, Move, PlayerData, load_boss, load_player, load_scenario

#: An interval whose upper end is this many times the lower one says nothing of a value.
_VAGUE = 2.0
#: Between which shares of a value it may be where nothing was seen.
_UNSEEN = (0.6, 1.7)
#: A move seen so often is seldom no more.
_OFTEN = 30
#: Distances at which the probe waits: from contact on so far, in steps; and how many of its waits go by what is open.
_FARTHEST_M, _STEP_M, _FOCUSED = 9.0, 0.5, 0.7
#: How often it waits in contact, going round the boss, where nothing is known of arcs.
_ORBITS = 0.3
#: How often it goes round the boss behind a blow, where moves for who is behind are known, and where not.
_BEHIND, _BEHIND_MORE = 0.3, 0.7


def focus_after(folder: Path, scenario: str, simulated: bool = False) -> Focus:
    """Return what the fights of a folder leave open of a scenario's boss.

    Raises:
        SoulsGraphError: for fights that `calibrate` refuses.
    """
    fought = load_scenario(scenario)
    boss, player = load_boss(fought.boss), load_player(fought.player)
    found = calibrate(read_fights(folder, boss, simulated), boss, player)
    return focus_of(found, fought.boss, scenario, boss, player)


def focus_of(found: Calibration, base: str, scenario: str, shipped: BossData, player: PlayerData) -> Focus:
    """Return what a calibration leaves open of a boss, of the name `base` in a scenario."""
    with temporary_folder("soulsgraph-focus") as folder:
        path, _ = write_fitted(folder / "boss.toml", found, base, scenario, shipped)
        boss = load_boss(path)
    values = {value.key: value for value in found.boss}
    known = {move.id for move in shipped.moves}
    doubts, needs = dict[int, Sequence[BlowDoubt]](), dict[int, float]()
    for move in boss.moves:
        if move.id in known:
            doubts[move.id] = own = _doubts(move, values, boss.time_factor)
            # How much more should be seen of it, 0 to 2: what is open of its blows, and how seldom it came.
            seen = values.get(f"moves.{move.title}.length_s")
            seldom = 1.0 - min((seen.count if seen else 0) / _OFTEN, 1.0)
            needs[move.id] = seldom + sum(doubt.total for doubt in own) / (4.0 * max(len(own), 1))
    behind = max((needs[move.id] for move in shipped.moves if move.title == boss.rear.counter), default=0.0)
    shares = _waiting_shares(boss, needs, contact_m(boss, player))
    arcs = [doubt.open["arc"] for own in doubts.values() for doubt in own]
    orbits = _ORBITS * float(np.mean(arcs)) if arcs else 0.0
    return Focus(boss, doubts, shares, orbits, _BEHIND_MORE if behind > 0.5 else _BEHIND, found.fights)


def openness(value: ValueFit | None) -> float:
    """Return how little is known of a value: 0 of one that is determined or unlike the model, 1 of one never seen."""
    if value is None or value.verdict in ("determined", "unlike the model"):
        return 0.0
    if value.estimate is None or not value.low or value.high is None:
        return 1.0
    return min(max(log(value.high / value.low), 0.0) / log(_VAGUE), 1.0)


def _doubts(move: Move, values: Mapping[str, ValueFit], time_factor: float) -> Sequence[BlowDoubt]:
    doubts, names = [], ("time_s.0", "time_s.1", "reach_m", "half_arc_rad", "damage")
    for place, window in enumerate(move.windows):
        first, end, reach, arc, damage = (values.get(f"moves.{move.title}.windows.{place}.{name}") for name in names)
        share = {
            "reach": openness(reach),
            # Nobody is farther aside than behind.
            "arc": openness(arc) if window.half_arc_rad < pi else 0.0,
            "end": openness(end),
            "blow": 0.5 * (openness(first) + openness(damage)),
        }
        least, most = _span(arc, window.half_arc_rad)
        ends_s = _span(end, window.time_s[1] * time_factor)
        doubts.append(BlowDoubt(_span(reach, window.reach_m), (least, min(most, pi)), ends_s, share))
    return tuple(doubts)


def _span(value: ValueFit | None, fitted: float) -> tuple[float, float]:
    """Return between which values one may be; where nothing was seen, about the fitted one."""
    if value is None or value.low is None or value.high is None:
        return fitted * _UNSEEN[0], fitted * _UNSEEN[1]
    return value.low, value.high


def _waiting_shares(boss: BossData, needs: Mapping[int, float], contact: float) -> dict[float, float]:
    """Return how often to wait at each distance: where the moves that are needed are those that the boss chooses."""
    distances = np.arange(contact, contact + _FARTHEST_M, _STEP_M)
    chosen = np.zeros((2, len(distances)))
    for move in boss.moves:
        within = (move.distance_m[0] <= distances) & (distances <= move.distance_m[1])
        chosen += np.array([[1.0], [needs.get(move.id, 0.0)]]) * move.weight * within
    # The need of what is chosen there, on the mean.
    wanted = np.where(chosen[0] > 0.0, chosen[1] / np.maximum(chosen[0], 1e-9), 0.0)
    even = np.full(len(distances), 1.0 / len(distances))
    shares = (1.0 - _FOCUSED) * even + _FOCUSED * (wanted / wanted.sum() if wanted.sum() > 0.0 else even)
    return dict(zip(distances.tolist(), shares.tolist(), strict=True))
