"""Choose by few fights which versions play a task of which nobody said which one it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from soulsgraph.continual.learning import TaskWorld, Versions
from soulsgraph.runs.evaluate import evaluation_seeds, play
from soulsgraph_envs.core.state import Column

#: Fights by which versions are chosen, and their seed: others than those of the evaluation.
CHOOSING_FIGHTS, CHOOSING_SEED = 20, 2_000_000


@dataclass(frozen=True)
class Choice:
    """The index of the versions chosen, and the decisions of all skills that it took."""

    index: int
    decisions: int


def choose(world: TaskWorld, candidates: Sequence[Versions], fights: int = CHOOSING_FIGHTS) -> Choice:
    """Choose among versions by sequential halving (Karnin et al. 2013) in at most `fights` fights in all.

    A fight counts by the boss's HP lost less the player's: it tells more than who won. Of more candidates than fights
    the newest are tried.
    """
    left = list(range(len(candidates)))[-fights:]
    decisions, played = 0, 0
    totals, counts = np.zeros(len(candidates)), np.zeros(len(candidates))
    rounds = max(int(np.ceil(np.log2(len(left)))), 1) if len(left) > 1 else 0
    for number in range(rounds):
        each = max((fights - played) // (len(left) * (rounds - number)), 1)
        if played + each * len(left) > fights:
            break
        seeds = evaluation_seeds(CHOOSING_SEED, fights)[int(counts[left[0]]) : int(counts[left[0]]) + each]
        for index in left:
            episodes = play(world.agent(candidates[index]), seeds)
            rows = episodes.rows
            score = rows[:, Column.PLAYER_HP] - rows[:, Column.BOSS_HP] + episodes.won
            totals[index] += float(score.sum())
            counts[index] += each
            decisions += int(episodes.lengths.sum())
        played += each * len(left)
        means = totals / np.maximum(counts, 1)
        left.sort(key=lambda index: (-float(means[index]), -index))
        left = left[: max(len(left) // 2, 1)]
    return Choice(left[0] if rounds else len(candidates) - 1, decisions)
