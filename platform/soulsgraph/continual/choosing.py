"""Choose by few fights which versions play a task of which nobody said which one it is.

The boss is recognised first: how fast each of its animations passes is all but a fingerprint. Where several tasks look
alike, as where only the player differs, their versions play against each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2

import numpy as np
import numpy.typing as npt

from soulsgraph.continual.cues import tempo
from soulsgraph.continual.methods.learning import TaskWorld, Versions, versions_digest
from soulsgraph.runs.evaluate import evaluation_seeds, play
from soulsgraph_envs.combat.rollout import Episodes
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


@dataclass(frozen=True)
class ChosenVersions:
    """The position of the task whose versions were chosen, and the decisions of the last skill that it took."""

    task: int
    decisions: int


def fingerprint(world: TaskWorld, versions: Versions, fights: int = RECOGNITION_FIGHTS) -> tuple[Fingerprint, int]:
    """Return how a task's boss moves, from a few fights, and the decisions that these took."""
    seeds = evaluation_seeds(CHOOSING_SEED, fights)
    return _fingerprint(played := play(world.agent(versions), seeds, keep_decisions=True)), int(played.lengths.sum())


def _fingerprint(played: Episodes) -> Fingerprint:
    taken, found = played.taken, {}
    for number in np.unique(taken.rows[:, Column.BOSS_ANIMATION]):
        seen = taken.rows[:, Column.BOSS_ANIMATION] == number
        at = np.flatnonzero(seen[:-1] & (taken.episodes[:-1] == taken.episodes[1:]))
        tempos = tempo(Column.BOSS_ANIMATION, taken.rows[at], taken.rows[at + 1], taken.ticks[at])
        if len(tempos):
            found[str(int(number))] = [float(np.median(tempos)), float(len(tempos))]
    return found


def alike(seen: Fingerprint, known: Fingerprint) -> float:
    """Return the share of what was seen of a boss, by count, that another is known to do at the same tempo."""
    total = sum(count for _, count in seen.values())
    same = sum(
        count
        for number, (now, count) in seen.items()
        if number in known and abs(now - known[number][0]) <= _ALIKE * known[number][0]
    )
    return same / total if total else 1.0


class ChoosingFights:
    """Fights by which versions are chosen, kept for the next choice: they are repeatable, and most versions stay.

    All that a choice may ask for are played at once; it gets, and is charged for, only those that it asks for.
    """

    def __init__(self) -> None:
        self._recognised: dict[tuple[int, bytes], tuple[Fingerprint, int]] = {}
        #: Of each fight the score, and the decisions of the last skill.
        self._tried: dict[tuple[int, bytes], tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]] = {}

    def fingerprint(self, world: TaskWorld, versions: Versions) -> tuple[Fingerprint, int]:
        """Return how a task's boss moves, and the decisions that it took to see it."""
        key = world.position, versions_digest(versions)
        if key not in self._recognised:
            self._recognised[key] = fingerprint(world, versions)
        return self._recognised[key]

    def scores(self, world: TaskWorld, versions: Versions, first: int, count: int) -> tuple[float, int]:
        """Return the sum of the scores of some fights, and the decisions that they took.

        A fight counts by the boss's HP lost less the player's: it tells more than who won.
        """
        key = world.position, versions_digest(versions)
        if key not in self._tried:
            seeds = evaluation_seeds(CHOOSING_SEED, CHOOSING_FIGHTS + _COMPARING_FIGHTS)[CHOOSING_FIGHTS:]
            played = play(world.agent(versions), seeds)
            ends = played.rows
            scores = ends[:, Column.PLAYER_HP] - ends[:, Column.BOSS_HP] + played.won
            self._tried[key] = scores, played.lengths
        score, decisions = (values[first : first + count].sum() for values in self._tried[key])
        return float(score), int(decisions)


def choose(
    world: TaskWorld, by_task: Sequence[Versions], known: Sequence[Fingerprint], fights: ChoosingFights | None = None
) -> ChosenVersions:
    """Choose among the versions of the tasks so far in at most `CHOOSING_FIGHTS` fights, by what is known of each boss.

    Versions that are the same are tried once, for the first of their tasks. `fights` keeps what was played.
    """
    fights = fights or ChoosingFights()
    distinct = {versions_digest(versions): task for task, versions in reversed([*enumerate(by_task)])}
    if len(distinct) == 1:
        return ChosenVersions(len(by_task) - 1, 0)
    seen, decisions = fights.fingerprint(world, by_task[-1])
    shares = [alike(seen, one) for one in known]
    likely = [task for task, share in enumerate(shares) if share >= max(shares) - _OTHERS]
    tried = sorted({distinct[versions_digest(by_task[task])] for task in likely})
    if len(tried) == 1:
        return ChosenVersions(tried[0], decisions)
    task, more = _best(world, by_task, tried, fights)
    return ChosenVersions(task, decisions + more)


def _best(world: TaskWorld, by_task: Sequence[Versions], tried: list[int], fights: ChoosingFights) -> tuple[int, int]:
    """Return the best of some tasks' versions by sequential halving (Karnin et al. 2013), and the decisions it took.

    Of more versions than fights the newest are tried.
    """
    left = tried[-_COMPARING_FIGHTS:]
    decisions = played = 0
    totals, counts = dict.fromkeys(left, 0.0), dict.fromkeys(left, 0)
    while len(left) > 1 and played + len(left) <= _COMPARING_FIGHTS:
        # The rounds that are left share the fights that are left.
        each = max((_COMPARING_FIGHTS - played) // (len(left) * int(log2(len(left)))), 1)
        for task in left:
            score, more = fights.scores(world, by_task[task], counts[task], each)
            totals[task] += score
            counts[task] += each
            decisions += more
        played += each * len(left)
        left = sorted(left, key=lambda task: (-totals[task] / counts[task], -task))[: max(len(left) // 2, 1)]
    return left[0], decisions
