"""Whether a boss fights otherwise with less HP, where its data know no rage."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

import numpy as np

from soulsgraph.calibrate.moves import blows, spells
from soulsgraph.calibrate.rows import FightRows
from soulsgraph_envs.combat.rollout import Doubles
from soulsgraph_envs.core.scenario import PlayerData
from soulsgraph_envs.core.state import Raw

#: By how many standard deviations ranks have to go with those of HP, and the fewest of them.
_SURE, _FEWEST = 3.3, 20


def raging_kinds(fights: Sequence[FightRows], player: PlayerData, stances: Collection[int]) -> list[str]:
    """Return what surely goes with the boss's HP: waits that are shorter with less, and damage.

    It is Spearman's rank correlation, of waits between moves, and of a blow's damage beside the others of its move that
    came as late in it. How far the player is changes in a fight too, and with it waits become a little longer.
    """
    waits, damage = list[tuple[float, float]](), dict[tuple[int, int], list[tuple[float, float]]]()
    for fight in fights:
        hp, moves = fight.raw[:, Raw.BOSS_HP], [one for one in spells(fight) if one.number not in stances]
        waits += [
            (float(hp[after.first]), after.start_s - before.start_s - before.length_s)
            for before, after in pairwise(moves)
            if before.ended
        ]
        for blow in blows(fight, player):
            if np.isfinite(blow.damage) and not blow.counter:
                late = round(10.0 * (float(fight.boss_s[blow.row]) - blow.ago_s))
                damage.setdefault((int(fight.boss[blow.row]), late), []).append((float(hp[blow.row]), blow.damage))
    beside = [
        (hp, lost / max(float(np.median([one for _, one in own])), 1.0)) for own in damage.values() for hp, lost in own
    ]
    found = [("waits", _together(waits) > _SURE), ("damage", abs(_together(beside)) > _SURE)]
    return [kind for kind, sure in found if sure]


def _together(pairs: Sequence[tuple[float, float]]) -> float:
    """Return by how many standard deviations the ranks of pairs (n, 2) go together, 0 of few or equal ones."""
    if len(pairs) < _FEWEST:
        return 0.0
    one, other = map(_ranks, np.array(pairs).T)
    alike = float(np.corrcoef(one, other)[0, 1]) if one.std() and other.std() else 0.0
    return float(alike * (len(pairs) - 1) ** 0.5)


def _ranks(values: Doubles) -> Doubles:
    """Return the ranks of values (n,), equal ones' mean for each of them."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - 0.5 * (counts - 1))[places])
