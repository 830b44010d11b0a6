"""Whether a skill's own actions still lead to what they led to at home, decision by decision.

What follows a decision in the new fight is compared with what followed the most alike decisions for the same action at
home (nearest neighbours): whatever else changed the situation is in both. What changed whatever the skill did, as the
pace at which another skill's action moves the player, shows where it idles as well, and does not count as its own. The
comparison is made over all decisions, and over each part of the range of what the skill observes.

What lies outside of everything that a skill observed at home is found apart from that: there it never learned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy import stats

from soulsgraph_envs.combat.rollout import DecisionColumns, Doubles, Flags, Integers
from soulsgraph_envs.core.compiling import cached
from soulsgraph_envs.core.machine import compute_on_one_thread
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.state import Column, StateRows
from soulsgraph_envs.skills import Skill

#: How many decisions at home one in the new fight is compared with.
NEIGHBOURS = 10
#: How far apart two animations count, in deviations of other columns.
_OTHER_ANIMATION = 3.0
#: Decisions in a row that count as one observation: what one leads to is there in the next ones as well.
BLOCK = 25
#: Fewest decisions for an action in the new fight, and fewest blocks with one, that say something.
LEAST_DECISIONS, LEAST_BLOCKS = 15, 6
#: Parts of equal width into which the range at home of each observed value is cut: an action may lead to something else
#: in one of them alone, as the key of the lock where the boss is far from the middle of the view, and be seldom there.
PARTS = 16
#: Probability of a false alarm for a skill, shared by all its comparisons (Bonferroni).
FALSE_ALARM = 0.01
#: Least change, in deviations of what followed at home, and least share of decisions outside of what was observed.
MATERIAL_CHANGE, UNSEEN_SHARE = 0.2, 0.1
#: How far outside of the range observed at home a value has to lie, as a share of that range.
_MARGIN = 0.1
#: Share of decisions at home that are as near to their neighbours as those of the new fight have to be.
_ALIKE = 0.99
#: Most decisions at home among which neighbours are looked for, and most that show what the comparison finds where
#: nothing changed: more make it no better, and each costs time.
_MOST_KNOWN, _MOST_CONTROL = 12_000, 4_000

_ANIMATIONS = (Column.BOSS_ANIMATION, Column.PLAYER_ANIMATION)
_CAMERA, _PLAYER = (Column.CAMERA_X, Column.CAMERA_Y, Column.CAMERA_Z), (Column.PLAYER_X, Column.PLAYER_Y)
_CHANGES = (Column.STAMINA, Column.PLAYER_HP, Column.BOSS_HP, Column.DISTANCE, Column.LOCKED)
#: What may follow an action, in the order of the columns of `followed`.
FOLLOWING = (*(column.name.lower() for column in _CHANGES), "metres moved", "camera turned aside", "camera turned up")


@dataclass(frozen=True)
class Consequence:
    """What changed of what follows an action, in deviations of the same at home.

    `where` says in which part of the range of which observed value, empty for everywhere; `probability` is that of such
    a change where nothing changed.
    """

    action: str
    what: str
    where: str
    change: float
    probability: float

    def __str__(self) -> str:
        place = f" where {self.where}" if self.where else ""
        return f"{self.what} after {self.action}{place} changed by {self.change:+.1f} deviations"


@dataclass(frozen=True)
class UnseenInput:
    """An observed value that lies outside of all that was observed at home, in a share of decisions."""

    name: str
    share: float

    def __str__(self) -> str:
        return f"{self.name} outside of its range at home in {100.0 * self.share:.0f} % of decisions"


@dataclass(frozen=True)
class FollowedDecisions:
    """A skill's decisions (n,) with what followed each (n, 8), their situations (n, columns), and their blocks (n,)."""

    situations: Doubles
    animations: Integers
    actions: Integers
    following: Doubles
    blocks: Integers

    def where(self, rows: Flags | slice) -> FollowedDecisions:
        """Return some of the decisions."""
        return FollowedDecisions(*(column[rows] for column in vars(self).values()))

    def of_action(self, action: int) -> FollowedDecisions:
        """Return the decisions for an action."""
        return self.where(self.actions == action)


def followed(skill: Skill, taken: DecisionColumns, columns: Sequence[Column]) -> FollowedDecisions:
    """Return what followed decisions within the ticks of the skill's longest step; the last of an episode are left out.

    `columns` are those of the situation.
    """
    starts = np.cumsum(taken.ticks) - taken.ticks
    ends = np.searchsorted(starts, starts + skill.longest_ticks)
    episode_ends = np.searchsorted(taken.episodes, taken.episodes, side="right")
    known = ends < episode_ends
    before, after = taken.rows[known], taken.rows[ends[known]]
    plain = [column for column in columns if column not in _ANIMATIONS]
    animated = [column for column in columns if column in _ANIMATIONS]
    return FollowedDecisions(
        before[:, plain].astype(np.float64),
        before[:, animated].astype(np.int64),
        taken.actions[known],
        _following(before, after),
        blocks_of(taken.episodes)[known],
    )


def blocks_of(episodes: Integers) -> Integers:
    """Return the block of each decision, (n,): decisions of one episode, `BLOCK` in a row."""
    within = np.arange(len(episodes)) - np.searchsorted(episodes, episodes)
    return np.unique(np.column_stack([episodes, within // BLOCK]), axis=0, return_inverse=True)[1].reshape(-1)


def _following(before: StateRows, after: StateRows) -> Doubles:
    moved = np.linalg.norm(after[:, _PLAYER].astype(np.float64) - before[:, _PLAYER], axis=1)
    (x, y, z), (next_x, next_y, next_z) = (rows[:, _CAMERA].astype(np.float64).T for rows in (before, after))
    # Headings grow to the right.
    aside = np.arctan2(next_x * y - next_y * x, x * next_x + y * next_y)
    up = np.arcsin(np.clip(next_z, -1.0, 1.0)) - np.arcsin(np.clip(z, -1.0, 1.0))
    changes = [after[:, column].astype(np.float64) - before[:, column] for column in _CHANGES]
    return np.column_stack([*changes, moved, aside, up])


def unseen_inputs(
    skill: Skill, home: tuple[Scenario, DecisionColumns], shifted: tuple[Scenario, DecisionColumns]
) -> tuple[UnseenInput, ...]:
    """Return the values that a skill observes outside of their range at home, the most frequent first.

    Ids of animations are left out: which of them are known is a question of counts.
    """
    known, now = (skill.observation(taken.rows, scenario).astype(np.float64) for scenario, taken in (home, shifted))
    low, high = known.min(axis=0), known.max(axis=0)
    margin = _MARGIN * np.maximum(high - low, 1e-6)
    outside = (now < low - margin) | (now > high + margin)
    ids = [column in _ANIMATIONS for column, _ in skill.observation.values]
    blocks = blocks_of(shifted[1].episodes)
    found = []
    for place in np.flatnonzero(~np.array(ids)):
        share, error, count = _mean(outside[:, place, None].astype(np.float64), blocks)
        if count >= LEAST_BLOCKS and _probability(share - UNSEEN_SHARE, error, count)[0] * len(ids) <= FALSE_ALARM:
            found.append(UnseenInput(skill.observation.names[place], float(share[0])))
    return tuple(sorted((one for one in found if one.share > UNSEEN_SHARE), key=lambda one: -one.share))


class HomeConsequences:
    """What a skill's actions lead to at home, with which decisions in new fights are compared.

    `columns` are those of the situation: what the skill and those upstream observe; the distance, on which locks and
    blows hang, is one in any case. Half of the episodes at home are what decisions are compared with, the other half
    what the comparison finds where nothing changed. What it takes from home alone is kept for the next fight.
    """

    def __init__(self, skill: Skill, home: DecisionColumns, columns: Iterable[Column]) -> None:
        self._skill, self._columns = skill, sorted({Column.DISTANCE, *columns})
        episodes = np.unique(home.episodes)
        self._known, self._control = (
            followed(skill, home.without(episodes[half::2]), self._columns) for half in (1, 0)
        )
        self._parts = [_EVERYWHERE, *_parts(skill, self._known, self._columns)]
        own = np.isin(self._columns, [Column.DISTANCE, *skill.observation.columns]).astype(np.float64)
        animated = np.isin(self._columns, _ANIMATIONS)
        self._own = own[~animated], own[animated]
        self._actions: dict[int, _ActionAtHome | None] = {}

    def changed(self, shifted: DecisionColumns) -> tuple[Consequence, ...]:
        """Return what of the skill's actions leads to something else in a new fight, the most certain first."""
        compute_on_one_thread()
        actions, there = self._skill.actions, followed(self._skill, shifted, self._columns)
        shifts = [self._shifts(index, there.of_action(index)) for index in range(len(actions))]
        idle = next((index for index, one in enumerate(actions) if not (one.holds | one.presses)), None)
        beside = {} if idle is None else shifts[idle]
        if idle is not None and _EVERYWHERE not in beside:
            # What else changed is not known, and would count as the skill's own.
            return ()
        found, tests = list[Consequence](), 0
        for index, own in enumerate(shifts):
            for part, shift in own.items() if index != idle else ():
                tests += len(FOLLOWING)
                found += _material(actions[index].name, part.name, shift, beside.get(part) or beside.get(_EVERYWHERE))
        certain = [one for one in found if one.probability * tests <= FALSE_ALARM]
        return tuple(sorted(certain, key=lambda one: (one.probability, -abs(one.change))))

    def _shifts(self, action: int, there: FollowedDecisions) -> dict[_Part, _Mean]:
        """Return the mean change of what follows one action, in each part of the range of which enough was seen."""
        if len(there.actions) < LEAST_DECISIONS:
            return {}
        if action not in self._actions:
            known, control = (one.of_action(action) for one in (self._known, self._control))
            few = min(len(known.actions), len(control.actions)) < 2 * NEIGHBOURS
            self._actions[action] = None if few else _ActionAtHome(known, control, self._own)
        if (home := self._actions[action]) is None:
            return {}
        beside, shifts = home.beside(there), dict[_Part, _Mean]()
        for part in self._parts:
            usual, now = home.mean(part), _mean_of(part.of(beside))
            if usual is not None and now is not None and (count := min(usual[2], now[2])) >= LEAST_BLOCKS:
                # Few blocks may differ little by chance: their error is at least that of as many at home.
                error = np.maximum(now[1], usual[1] * np.sqrt(usual[2] / now[2]))
                shifts[part] = now[0] - usual[0], np.hypot(error, usual[1]), count
        return shifts


@dataclass(frozen=True)
class _Part:
    """A part of the range of one column of the situations, by its place."""

    name: str = ""
    place: int = 0
    low: float = -np.inf
    high: float = np.inf

    def of(self, decisions: FollowedDecisions) -> FollowedDecisions:
        """Return the decisions that lie in it."""
        values = decisions.situations[:, self.place]
        return decisions.where((values > self.low) & (values <= self.high))


_EVERYWHERE = _Part()


def _parts(skill: Skill, known: FollowedDecisions, columns: Sequence[Column]) -> Iterator[_Part]:
    """Yield the parts of the range of every value that the skill observes."""
    plain = [column for column in columns if column not in _ANIMATIONS]
    for place, column in enumerate(plain):
        if column not in skill.observation.columns:
            continue
        values = known.situations[:, place]
        inner = np.linspace(values.min(), values.max(), PARTS + 1)[1:-1] if np.ptp(values) else ()
        for low, high in pairwise([-np.inf, *inner, np.inf]) if len(inner) else ():
            above = [f"above {low:.2f}"] if np.isfinite(low) else []
            words = [*above, *([f"up to {high:.2f}"] if np.isfinite(high) else [])]
            name = f"{column.name.lower()} is {' and '.join(words)}"
            yield _Part(name, place, low, high)


#: A mean of what follows (8,), its standard error (8,), and the number of blocks.
_Mean = tuple[Doubles, Doubles, int]


class _ActionAtHome:
    """One action's decisions at home: those that are neighbours of others, and what the others led to beside theirs.

    Decisions are alike in all that the situations hold, or in what the skill itself observes: of each thing that may
    follow that is taken which tells it better at home. A lock hangs on the angle alone, a view on what turned it.
    """

    def __init__(self, known: FollowedDecisions, control: FollowedDecisions, own: tuple[Doubles, Doubles]) -> None:
        known, control = (
            one.where(slice(None, None, len(one.actions) // most + 1))
            for one, most in ((known, _MOST_KNOWN), (control, _MOST_CONTROL))
        )
        deviation = known.following.std(axis=0)
        self._known = known
        self._deviation = np.where(deviation > 1e-6, deviation, np.maximum(np.abs(known.following).mean(axis=0), 1e-3))
        spread = known.situations.std(axis=0)
        scale = 1.0 / np.where(spread > 1e-6, spread, 1.0)
        everything = scale, np.ones(known.animations.shape[1])
        # The first skill of a graph observes all that its situations hold.
        self._weights = [everything] if all(one.all() for one in own) else [everything, (scale * own[0], own[1])]
        usual, distance = zip(*(_expected(control, known, *weights) for weights in self._weights), strict=True)
        self._better = np.argmin([((control.following - one) ** 2).mean(axis=0) for one in usual], axis=0)
        # Nothing at home is like a situation that lies further from its neighbours than those of home from theirs.
        self._farthest = np.quantile(distance[-1], _ALIKE)
        self._control = replace(control, following=self._apart(control, usual))
        self._means: dict[_Part, _Mean | None] = {}

    def beside(self, there: FollowedDecisions) -> FollowedDecisions:
        """Return decisions that are like some at home, with what they led to less what those did, in deviations."""
        expected, distance = zip(*(_expected(there, self._known, *weights) for weights in self._weights), strict=True)
        return replace(there, following=self._apart(there, expected)).where(distance[-1] <= self._farthest)

    def _apart(self, decisions: FollowedDecisions, expected: Sequence[Doubles]) -> Doubles:
        better = np.take_along_axis(np.stack(expected), self._better[None, None], axis=0)[0]
        return np.asarray((decisions.following - better) / self._deviation)

    def mean(self, part: _Part) -> _Mean | None:
        """Return the mean where nothing changed, in a part of the range; None where too little was seen of it."""
        if part not in self._means:
            self._means[part] = _mean_of(part.of(self._control))
        return self._means[part]


def _mean_of(decisions: FollowedDecisions) -> _Mean | None:
    return None if len(decisions.actions) < LEAST_DECISIONS else _mean(decisions.following, decisions.blocks)


def _material(action: str, where: str, shift: _Mean, beside: _Mean | None) -> Iterator[Consequence]:
    """Yield what changed enough, and by itself: what differs from the change where the skill idled."""
    change, error, count = shift
    probability, own = _probability(*shift), change
    if beside is not None:
        own = change - beside[0]
        probability = np.maximum(probability, _probability(own, np.hypot(error, beside[1]), min(count, beside[2])))
    for place in np.flatnonzero(np.minimum(abs(change), abs(own)) >= MATERIAL_CHANGE):
        yield Consequence(action, FOLLOWING[place], where, float(change[place]), float(probability[place]))


def _probability(change: Doubles, error: Doubles, count: int) -> Doubles:
    """Return the two-sided p values of changes of means over a number of blocks (Student's t)."""
    # What always follows has no error at all.
    return np.asarray(2.0 * stats.t.sf(np.abs(change) / np.maximum(error, 1e-12), count - 1))


def _mean(values: Doubles, blocks: Integers) -> _Mean:
    """Return the mean of values (n, m), (m,), its standard error over blocks, and their number."""
    mean = values.mean(axis=0)
    _, groups = np.unique(blocks, return_inverse=True)
    sums = np.zeros((groups.max() + 1, values.shape[1]))
    np.add.at(sums, groups, values - mean)
    # Of few blocks the mean takes up a part of what they differ by.
    inflated = len(sums) / max(len(sums) - 1, 1)
    return mean, np.sqrt(inflated * (sums**2).sum(axis=0)) / len(values), len(sums)


@cached(error_model="numpy")
def _nearest(
    asked: tuple[Doubles, Integers], known: tuple[Doubles, Integers], places: Integers, distances: Doubles
) -> None:
    """Write the places of the nearest known decisions, (n, k), from the nearest on, and the squares of the distances.

    Each side is situations and animations: (n, columns) of those asked, (columns, known) of the others.
    """
    (situations, animations), (known_situations, known_animations) = asked, known
    apart, count = np.empty(known_situations.shape[1]), places.shape[1]
    for row in range(places.shape[0]):
        apart[:] = 0.0
        for column in range(situations.shape[1]):
            value = situations[row, column]
            for i in range(apart.shape[0]):
                apart[i] += (known_situations[column, i] - value) ** 2
        for column in range(animations.shape[1]):
            animation = animations[row, column]
            for i in range(apart.shape[0]):
                apart[i] += 0.0 if known_animations[column, i] == animation else _OTHER_ANIMATION**2
        nearest, least = places[row], distances[row]
        least[:] = np.inf
        for i in range(apart.shape[0]):
            if apart[i] < least[count - 1]:
                place = count - 1
                while place > 0 and least[place - 1] > apart[i]:
                    nearest[place], least[place] = nearest[place - 1], least[place - 1]
                    place -= 1
                nearest[place], least[place] = i, apart[i]


def _expected(
    asked: FollowedDecisions, known: FollowedDecisions, weights: Doubles, animated: Doubles
) -> tuple[Doubles, Doubles]:
    """Return the mean of what followed the nearest decisions at home, (n, 8), and the square of their distance (n,).

    `weights` are of the columns of the situations, `animated` of those of animations.
    """
    places = np.zeros((len(asked.actions), NEIGHBOURS), np.int64)
    distances = np.zeros(places.shape)
    chosen = np.flatnonzero(animated)
    there, here = ((one.situations * weights, one.animations[:, chosen]) for one in (asked, known))
    _nearest(there, (here[0].T.copy(), here[1].T.copy()), places, distances)
    return known.following[places].mean(axis=1), distances.mean(axis=1)
