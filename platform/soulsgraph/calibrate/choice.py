"""When the boss attacks and what it chooses: waits, chains, and weights by Luce's choice among the moves at hand."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log

import numpy as np

from soulsgraph.calibrate.moves import Spell, counters_of, spells
from soulsgraph.calibrate.rows import FIRST_UNKNOWN, FightRows
from soulsgraph.calibrate.values import ValueFit
from soulsgraph.results.statistics import wilson_interval
from soulsgraph_envs.combat.rollout import Doubles, Flags
from soulsgraph_envs.core.scenario import Aggression, BossData
from soulsgraph_envs.core.state import Raw
from soulsgraph_envs.simulator.layout import FRAME_S, FRAMES_PER_S

#: Standard deviation of the logarithm by which a shipped weight is believed to be off.
_BELIEF = 0.5
_FEWEST_WAITS = 4
#: The fewest waits, near and far each, from which near ones are estimated, and how often they are resampled for it.
_FEWEST_NEAR, _RESAMPLED = 10, 400
#: By how much two means of waits have to be likelier than one, as a logarithm, for a distance to divide them;
#: other distances divide them as well that are less likely by no more than the second.
_CLEAR_GAIN, _ALIKE_GAIN = 8.0, 5.0
#: The probability below which no longer chain than those seen means that there is none.
_CHAIN_DOUBT = 0.001
#: The most frames from the end of a move to one that is chained to it.
_AT_ONCE = 1.5
#: How far a player behind the boss has to be within the edges of what counts as behind.
_MARGIN_RAD, _MARGIN_M = 0.15, 0.15
#: Half a width of a range of distances that two readings may be off by.
_RANGE_M = 0.1
_STEPS = 60
#: The largest distance of a sample from a uniform distribution, times the root of its size, at 1 %.
_ODD = 1.63


@dataclass(frozen=True)
class Onset:
    """The moment at which the boss begins a move: which, how far the player is, and how it came to it.

    `wait_frames` is how long the boss waited since the move before, NaN where that is not known, and `waited_m` how far
    the player was as the wait began; `behind` is whether the player may have been behind.
    """

    number: int
    distance_m: float
    wait_frames: float
    waited_m: float
    behind: bool
    enraged: bool


@dataclass
class Choices:
    """What fights show of choices: the beginnings of moves, and what the boss did about a player behind it.

    `followed` has, for each move that ended, how many were chained up to it, and whether one followed at once;
    `countered` and `turned` count the answers to a player behind.
    """

    onsets: list[Onset] = field(default_factory=list)
    followed: list[tuple[int, bool]] = field(default_factory=list)
    countered: int = 0
    turned: int = 0

    def add(self, fight: FightRows, boss: BossData, stances: Collection[int], farthest_m: float) -> None:
        """Take in the choices of a fight; farther than `farthest_m` the boss has no move, and waits on."""
        clock, distance, aside = fight.clock_s, fight.distance_m, np.abs(fight.aside_rad)
        counters = counters_of(boss)
        enraged = fight.raw[:, Raw.BOSS_HP] < boss.enraged.below_hp_ratio * boss.hp_max
        before: Spell | None = None
        own = list(spells(fight))
        # How many moves were chained up to the last one, None where that is not known.
        links: int | None = None
        for place, spell in enumerate(own):
            if spell.number in stances:
                continue
            last, counter = max(spell.first - 1, 0), spell.number in counters
            far = float(np.interp(spell.start_s, clock, distance))
            angle = max(float(aside[last]), float(np.interp(spell.start_s, clock, aside)))
            behind = angle > boss.rear.angle_rad - _MARGIN_RAD and far < boss.rear.distance_m + _MARGIN_M
            wait, waited, chained = np.nan, np.nan, False
            if before is not None and before.ended:
                waited = float(np.interp(before.start_s + before.length_s, clock, distance))
                gap = _gap(before, spell)
                # A counter at a player behind comes at once too.
                chained = gap < _AT_ONCE and not counter
                between = slice(before.last + 1, spell.first)
                turned = (fight.boss[between] == boss.animations.turn.id) | (fight.boss[between] >= FIRST_UNKNOWN)
                held = turned.any() or behind or (distance[between] > farthest_m).any()
                wait = np.nan if chained or held else gap + 1.0
            if counter:
                # A counter may come in the midst of a chain, whose rest is what was left of it.
                links = None
                self.countered += behind and spell.first > 0
            elif not chained:
                links = 0 if before is not None and before.ended else None
            elif links is not None:
                links += 1
            if spell.first > 0:
                self.onsets.append(Onset(spell.number, far, wait, waited, behind, bool(enraged[last])))
            # Counted by the row behind a move, not by the next move: fights that end before it would be missing.
            if spell.ended and links is not None and not enraged[spell.last]:
                following = own[place + 1]
                move = following.number not in stances and following.number not in counters
                self.followed.append((links, move and _gap(spell, following) < _AT_ONCE))
            before = spell
        # How often the boss decided to turn to a player behind it: a turn may follow another without a break.
        lasts, begun = round(boss.rear.turn_s * FRAMES_PER_S) + 1, None
        for spell in own:
            if spell.number == boss.animations.turn.id:
                begun = spell.start_s if begun is None else begun
            elif begun is not None:
                self.turned += max(round((spell.start_s - begun) * FRAMES_PER_S / lasts), 1)
                begun = None


def _gap(one: Spell, following: Spell) -> float:
    """Return the frames from the end of an animation to the beginning of another."""
    return (following.start_s - one.start_s - one.length_s) * FRAMES_PER_S


def choice_fits(
    fights: Sequence[FightRows], boss: BossData, stances: Collection[int], keys: Mapping[int, str]
) -> list[ValueFit]:
    """Return waits, chains, counters, distances and weights of moves; `keys` are those of the moves by number."""
    farthest, found = max((move.distance_m[1] for move in boss.moves if move.weight > 0), default=np.inf), Choices()
    for fight in fights:
        found.add(fight, boss, stances, farthest)
    calm = [onset for onset in found.onsets if not onset.enraged]
    counter = ValueFit("rear.counter_chance", "rear", boss.rear.counter_chance)
    if counters_of(boss):
        counter = _share_fit(counter, found.countered, found.countered + found.turned)
    return [*wait_fits(calm, boss), *chain_fits(found.followed, boss), counter, *_weight_fits(calm, boss, keys)]


def wait_fits(calm: Sequence[Onset], boss: BossData) -> list[ValueFit]:
    """Return the ends of the uniform distributions of waits between moves, and of what a player nearby adds to them.

    Near and far waits differ by how far the player was as the wait began. Where only near ones were seen the sum alone
    is known, and what is added stays as shipped.
    """
    aggression = boss.aggression
    waits = np.array([onset.wait_frames for onset in calm]) / FRAMES_PER_S
    known = np.isfinite(waits)
    waits, waited_m = waits[known], np.array([onset.waited_m for onset in calm])[known]
    edge = _near_fit(ValueFit("aggression.near_m", "distances", aggression.near_m), waits, waited_m)
    low, high = edge.low, edge.high
    if low is None or high is None:
        low, high = aggression.near_m - _MARGIN_M, aggression.near_m + _MARGIN_M
    far, near = waits[waited_m >= high], waits[waited_m <= low]
    near_alone = len(far) < _FEWEST_WAITS <= len(near)
    waits, added = (near, aggression.near_wait_s) if near_alone else (far, None)
    values = [
        ValueFit(f"aggression.wait_s.{end}", f"wait {name}", aggression.wait_s[end], count=len(waits))
        for end, name in enumerate(("low", "high"))
    ]
    return [*_wait_fits(values, waits, added), *_near_wait_fits(near, far, aggression), edge]


def _near_fit(value: ValueFit, waits: Doubles, waited_m: Doubles) -> ValueFit:
    """Return within what distance a player gets longer waits: where two means of normal waits explain them best.

    Nothing is known where one explains them nearly as well.
    """
    order, count = np.argsort(waited_m, kind="stable"), len(waits)
    if count < 2 * _FEWEST_NEAR:
        return replace(value, count=count)
    ordered, places = waits[order], waited_m[order]
    splits = np.arange(_FEWEST_NEAR, count - _FEWEST_NEAR + 1)
    splits = splits[places[splits] > places[splits - 1]]
    within = [split * ordered[:split].var() + (count - split) * ordered[split:].var() for split in splits]
    gains = -0.5 * count * np.log(np.maximum(within, FRAME_S**2) / max(count * float(ordered.var()), FRAME_S**2))
    if gains.max(initial=0.0) < _CLEAR_GAIN:
        return replace(value, count=count)
    best = splits[int(gains.argmax())]
    alike = splits[gains > gains.max() - _ALIKE_GAIN]
    span = (float(places[alike[0] - 1]), float(places[min(alike[-1], count - 1)]))
    return value.fit(float(places[best - 1 : best + 1].mean()), span, count)


def _wait_fits(values: list[ValueFit], waits: Doubles, added: tuple[float, float] | None) -> list[ValueFit]:
    """Return the ends of waits (n,), in s; of those to which something was `added` each is at most what was seen."""
    if len(waits) < _FEWEST_WAITS:
        return values
    low, high, count = float(waits.min()), float(waits.max()), len(waits)
    # Of a uniform distribution's sample the ends lie inside by a share of its span; the shares have this distribution,
    # whose tail is long: one in a thousand, where others' intervals leave out one in twenty.
    span, inside = high - low, 1.0 / (count - 1.0)
    most, least = (share ** (-1.0 / (count - 1)) - 1.0 for share in (0.001, 0.999))
    half = 0.5 / FRAMES_PER_S
    ordered = np.sort((waits - low) / max(span, 1e-9))
    uniform = np.abs(ordered - np.linspace(0.0, 1.0, count)).max() * count**0.5
    unlike = bool(uniform > 1.5 * _ODD)
    ends = (
        (low - span * inside, low - span * most - half, low - span * least + half),
        (high + span * inside, high + span * least - half, high + span * most + half),
    )
    return [
        value.fit(max(end - more, 0.0), (0.0 if added else least, most), count, unlike)
        for value, (end, least, most), more in zip(values, ends, added or (0.0, 0.0), strict=True)
    ]


def _near_wait_fits(near: Doubles, far: Doubles, aggression: Aggression) -> list[ValueFit]:
    """Return the ends of what a player nearby adds, from the means and variances of near and far waits."""
    count = min(len(near), len(far))
    values = [
        ValueFit(f"aggression.near_wait_s.{end}", "near waits", shipped, count=count)
        for end, shipped in enumerate(aggression.near_wait_s)
    ]
    if count < _FEWEST_NEAR:
        return values
    random = np.random.default_rng(0)
    resampled = _near_ends(*(random.choice(one, (_RESAMPLED, len(one))) for one in (near, far)))
    bounds = np.quantile(resampled, (0.025, 0.975), axis=1).T.tolist()
    ends = np.ravel(_near_ends(near[None], far[None])).tolist()
    # An end that is cut off at 0 is no better known than the means.
    least = 1.96 * (near.var() / len(near) + far.var() / len(far)) ** 0.5
    return [
        value.fit(end, (max(min(low, end - least), 0.0), max(high, end + least)), count)
        for value, end, (low, high) in zip(values, ends, bounds, strict=True)
    ]


def _near_ends(near: Doubles, far: Doubles) -> tuple[Doubles, Doubles]:
    """Return both ends of uniform waits that come on top of `far` ones (draws, waits) in `near` ones: (draws,) each."""
    middle = near.mean(axis=1) - far.mean(axis=1)
    half = np.sqrt(3.0 * np.maximum(near.var(axis=1) - far.var(axis=1), 0.0))
    low = np.maximum(middle - half, 0.0)
    return low, np.maximum(2.0 * middle - low, low)


def chain_fits(followed: Sequence[tuple[int, bool]], boss: BossData) -> list[ValueFit]:
    """Return the chance of a chain and the most moves in one, from how many were chained and whether one followed."""
    shipped = boss.aggression
    longest = max((links + 1 for links, at_once in followed if at_once), default=0)
    free = [at_once for links, at_once in followed if links < longest]
    ended = sum(links == longest for links, _ in followed)
    # The longest chain is the limit where it could have gone on often enough.
    sure = (1.0 - sum(free) / (len(free) + 1.0)) ** ended < _CHAIN_DOUBT
    most = longest if sure else max(longest, shipped.chain_most)
    limit = ValueFit("aggression.chain_most", "chains", shipped.chain_most, count=ended)
    if sure or longest > shipped.chain_most:
        seen = float(longest)
        limit = replace(limit, estimate=seen, low=seen, high=seen if sure else None)
        limit = replace(limit, verdict="determined" if sure else "bounded")
    free = [at_once for links, at_once in followed if links < most]
    chance = ValueFit("aggression.chain_chance", "chains", shipped.chain_chance)
    return [_share_fit(chance, sum(free), len(free)), limit]


def _share_fit(value: ValueFit, count: int, total: int) -> ValueFit:
    """Return a probability, from how often something came of how often it could."""
    return value.fit(count / total, wilson_interval(count, total), total) if total else value


def _weight_fits(calm: Sequence[Onset], boss: BossData, keys: Mapping[int, str]) -> list[ValueFit]:
    """Return the moves' weights with the sum of the shipped ones, and the distances at which they began."""
    shipped = {move.id: move for move in boss.moves}
    chosen = [onset for onset in calm if not onset.behind]
    numbers = [number for number in keys if number not in shipped or shipped[number].weight > 0.0]
    fits, ranges = list[ValueFit](), list[tuple[float, float]]()
    for number in numbers:
        move = shipped.get(number)
        seen = [onset.distance_m for onset in chosen if onset.number == number]
        low, high = move.distance_m if move else (np.inf, -np.inf)
        if seen:
            low, high = min(low, min(seen) + _RANGE_M), max(high, max(seen) - _RANGE_M)
        ranges.append((low, high))
        # Those seen are within the distances at which a move is chosen, no more is known.
        for end, (found, least, most) in enumerate(((low, 0.0, low), (high, high, high * 1.5))):
            own = move.distance_m[end] if move else None
            value = ValueFit(f"{keys[number]}.distance_m.{end}", "distances", own, count=len(seen))
            if seen and np.isfinite(found) and found != own:
                value = ValueFit(value.key, value.kind, own, found, least, most, len(seen), "bounded")
            fits.append(value)
    places = {number: place for place, number in enumerate(numbers)}
    rows = [(places[onset.number], onset.distance_m) for onset in chosen if onset.number in places]
    weights = [
        ValueFit(f"{keys[number]}.weight", "weights", shipped[number].weight if number in shipped else None)
        for number in numbers
    ]
    return [*luce_fits(weights, rows, ranges), *fits]


def luce_fits(
    values: Sequence[ValueFit], rows: Sequence[tuple[int, float]], ranges: Sequence[tuple[float, float]]
) -> list[ValueFit]:
    """Return weights by Newton's method on the posterior of their logarithms, with the belief that they are as shipped.

    Each of `rows` is the place of the chosen move and the distance. Only ratios matter: the sum stays the shipped one.
    """
    shipped = np.array([np.nan if value.shipped is None else value.shipped for value in values])
    unknown = np.isnan(shipped)
    centre = np.log(np.where(unknown, np.nanmean(shipped) if not unknown.all() else 1.0, np.maximum(shipped, 1e-9)))
    chosen = np.array([place for place, _ in rows], np.int64)
    distance, (low, high) = np.array([one for _, one in rows]), np.array(ranges).T[:, :, None]
    within: Flags = ((low - 1e-9 <= distance) & (distance <= high + 1e-9)).T
    within[np.arange(len(rows)), chosen] = True
    counts = np.bincount(chosen, minlength=len(ranges))
    precision = np.where(unknown, 0.25, 1.0) / _BELIEF**2
    logs = centre.copy()
    for _ in range(_STEPS):
        shares = within * np.exp(logs)
        shares = shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)
        slope = counts - shares.sum(axis=0) - precision * (logs - centre)
        curve = np.diag(shares.sum(axis=0)) - shares.T @ shares + np.diag(precision)
        step = np.linalg.solve(curve, slope)
        logs = logs + np.clip(step, -1.0, 1.0)
        if np.abs(step).max() < 1e-9:
            break
    covariance = np.linalg.inv(curve)
    share = np.exp(logs) / np.exp(logs).sum()
    to_share = np.eye(len(logs)) - share
    wide = 1.96 * np.sqrt(np.maximum(np.diag(to_share @ covariance @ to_share.T), 0.0))
    total = float(np.nansum(shipped)) if not unknown.all() else float(len(shipped))
    total *= 1.0 + float(share[unknown].sum()) if unknown.any() else 1.0
    weights, scale = share * total, total / float(np.exp(logs).sum())
    spans = zip(weights * np.exp(-wide), weights * np.exp(wide), strict=True)
    return [
        value.fit(float(weight), (float(span[0]), float(span[1])), int(count))
        if count
        else _unseen_fit(value, scale, within, logs, place)
        for place, (value, weight, span, count) in enumerate(zip(values, weights, spans, counts, strict=True))
    ]


def _unseen_fit(value: ValueFit, scale: float, within: Flags, logs: Doubles, place: int) -> ValueFit:
    """Return the weight of a move that was never chosen: as shipped, unless it could have been chosen too often for it.

    `scale` is that of weights to `logs`. Of `count` choices at hand none is that many times as likely as a weight says:
    its upper end is where that has a chance of one in twenty, its estimate where it has one in two.
    """
    at_hand = within[:, place]
    others = (within[at_hand] * np.exp(logs)).sum(axis=1) - float(np.exp(logs[place]))
    weights = np.geomspace(1e-6, 1e3, 512)
    chances = -np.log1p(weights[:, None] / scale / np.maximum(others, 1e-300)).sum(axis=1)
    middle, high = (float(np.interp(-log(share), -chances, weights)) for share in (0.5, 0.05))
    if value.shipped is not None and value.shipped <= high:
        return value
    return replace(value, estimate=middle, low=0.0, high=high, count=int(at_hand.sum()), verdict="bounded")
