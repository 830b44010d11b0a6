"""Choose by few fights which versions play a task of which nobody said which one it is.

The boss is recognised first: how fast each of its animations passes is all but a fingerprint. Where several tasks look
alike, as where only the player differs, their versions play against each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2

import numpy as np
import numpy.typing as npt

from soulsgraph.continual.cues import tempo
from soulsgraph.continual.methods.learning import PlayedFights, TaskWorld, Versions, versions_digest
from soulsgraph.runs.evaluate import evaluation_seeds, play
from soulsgraph_envs.core.state import Column

#: Fights by which versions are chosen, those of them by which the boss is recognised, and the seed of all: others than
#: those of the evaluation.
CHOOSING_FIGHTS, RECOGNITION_FIGHTS, CHOOSING_SEED = 20, 3, 2_000_000
#: The others, in which versions play against each other.
_COMPARING_FIGHTS = CHOOSING_FIGHTS - RECOGNITION_FIGHTS
#: Fights in which a boss is met that was learned: of few, a move that was not seen would count as another boss's.
KNOWN_FIGHTS = 20
#: Tempos that differ by a larger part are not those of the same animation; tasks whose share of alike ones is this much
#: below the best are others.
_ALIKE, _OTHERS = 0.03, 0.05

#: How fast each animation of a boss passes, in progress a tick, and how often it was seen, by its id.
Fingerprint = Mapping[str, Sequence[float]]


def fingerprint(world: TaskWorld, versions: Versions, fights: int = RECOGNITION_FIGHTS) -> tuple[Fingerprint, int]:
    """Return how a task's boss moves, from a few fights, and the decisions of the last skill that these took."""
    played = play(world.agent(versions), evaluation_seeds(CHOOSING_SEED, fights), keep_decisions=True)
    taken, found = played.taken, {}
    for number in np.unique(taken.rows[:, Column.BOSS_ANIMATION]):
        seen = taken.rows[:, Column.BOSS_ANIMATION] == number
        at = np.flatnonzero(seen[:-1] & (taken.episodes[:-1] == taken.episodes[1:]))
        tempos = tempo(Column.BOSS_ANIMATION, taken.rows[at], taken.rows[at + 1], taken.ticks[at])
        if len(tempos):
            found[str(int(number))] = [float(np.median(tempos)), float(len(tempos))]
    return found, int(played.lengths.sum())


def alike(seen: Fingerprint, known: Fingerprint) -> float:
    """Return the share of what was seen of a boss, by count, that another is known to do at the same tempo."""
    total = sum(count for _, count in seen.values())
    same = sum(
        count
        for number, (now, count) in seen.items()
        if number in known and abs(now - known[number][0]) <= _ALIKE * known[number][0]
    )
    return same / total if total else 1.0


def compared(world: TaskWorld, versions: Versions) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return of each fight that a choice may ask for the score, and the decisions of the last skill.

    A fight counts by the boss's HP lost less the player's: it tells more than who won. All are played at once; a choice
    gets, and is charged for, only those that it asks for.
    """
    seeds = evaluation_seeds(CHOOSING_SEED, CHOOSING_FIGHTS + _COMPARING_FIGHTS)[CHOOSING_FIGHTS:]
    played = play(world.agent(versions), seeds)
    return played.rows[:, Column.PLAYER_HP] - played.rows[:, Column.BOSS_HP] + played.won, played.lengths


def choose(
    world: TaskWorld, by_task: Sequence[Versions], known: Sequence[Fingerprint], fights: PlayedFights
) -> tuple[int, int]:
    """Choose among the versions of the tasks so far in at most `CHOOSING_FIGHTS` fights, by what is known of each boss.

    Return the position of the task whose versions were chosen, and the decisions of the last skill that it took.
    Versions that are the same are tried once, for the first of their tasks.
    """
    distinct = {versions_digest(versions): task for task, versions in reversed([*enumerate(by_task)])}
    if len(distinct) == 1:
        return len(by_task) - 1, 0
    seen, decisions = fights.of(fingerprint, world, by_task[-1])
    shares = [alike(seen, one) for one in known]
    likely = [task for task, share in enumerate(shares) if share >= max(shares) - _OTHERS]
    # Of more versions than fights the newest are tried.
    left = sorted({distinct[versions_digest(by_task[task])] for task in likely})
    left = left[-_COMPARING_FIGHTS:]
    played, totals, counts = 0, dict.fromkeys(left, 0.0), dict.fromkeys(left, 0)
    # Sequential halving (Karnin et al. 2013).
    while len(left) > 1 and played + len(left) <= _COMPARING_FIGHTS:
        # The rounds that are left share the fights that are left.
        each = max((_COMPARING_FIGHTS - played) // (len(left) * int(log2(len(left)))), 1)
        for task in left:
            scores, lengths = fights.of(compared, world, by_task[task])
            asked = slice(counts[task], counts[task] + each)
            totals[task] += float(scores[asked].sum())
            counts[task] += each
            decisions += int(lengths[asked].sum())
        played += each * len(left)
        left = sorted(left, key=lambda task: (-totals[task] / counts[task], -task))[: max(len(left) // 2, 1)]
    return left[0], decisions
