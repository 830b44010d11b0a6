"""When the boss attacks and what it chooses: waits, chains, and weights by Luce's choice among the moves at hand."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log

import numpy as np

from soulsgraph.calibrate.moves import Spell, spells, wrapped_angles
from soulsgraph.calibrate.rows import FIRST_UNKNOWN, Doubles, FightRows, Flags
from soulsgraph.calibrate.values import ValueFit, fit
from soulsgraph.results.statistics import wilson_interval
from soulsgraph_envs.core.scenario import Aggression, BossData
from soulsgraph_envs.core.state import Raw
from soulsgraph_envs.simulator.layout import FRAMES_PER_S

#: Standard deviation of the logarithm by which a shipped weight is believed to be off.
_BELIEF = 0.5
_FEWEST_WAITS = 4
#: The fewest waits, near and far each, from which near ones are estimated, and how often they are resampled for it.
_FEWEST_NEAR, _RESAMPLED = 10, 400
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
    the player was as the wait began; `chained` is whether it followed at once, `behind` whether the player may have
    been behind.
    """

    number: int
    distance_m: float
    wait_frames: float
    waited_m: float
    chained: bool
    behind: bool
    enraged: bool


@dataclass(frozen=True)
class FightCourse:
    """What a fight shows of choices: the beginnings of moves, and what the boss did about a player behind it.

    `followed` has, for each move that ended, how many were chained up to it, and whether one followed at once;
    `countered` and `turned` count the answers to a player behind.
    """

    onsets: Sequence[Onset]
    followed: Sequence[tuple[int, bool]]
    countered: int
    turned: int


def course_of(fight: FightRows, boss: BossData, stances: Collection[int], farthest_m: float) -> FightCourse:
    """Return the choices of a fight; farther than `farthest_m` the boss has no move, and waits on."""
    raw, clock = fight.raw, fight.clock_s
    dx, dy = raw[:, Raw.PLAYER_X] - raw[:, Raw.BOSS_X], raw[:, Raw.PLAYER_Y] - raw[:, Raw.BOSS_Y]
    distance = np.hypot(dx, dy)
    aside = np.abs(wrapped_angles(np.arctan2(-dx, -dy) - raw[:, Raw.BOSS_ANGLE]))
    counters = {move.id for move in boss.moves if move.title == boss.rear.counter and not move.weight}
    enraged = raw[:, Raw.BOSS_HP] < boss.enraged.below_hp_ratio * boss.hp_max
    found, followed = list[Onset](), list[tuple[int, bool]]()
    before: Spell | None = None
    own, countered = list(spells(fight)), 0
    # How many moves were chained up to the last one, None where that is not known.
    links: int | None = None
    for place, spell in enumerate(own):
        if spell.number in stances:
            continue
        far = float(np.interp(spell.start_s, clock, distance))
        angle = max(float(aside[max(spell.first - 1, 0)]), float(np.interp(spell.start_s, clock, aside)))
        behind = angle > boss.rear.angle_rad - _MARGIN_RAD and far < boss.rear.distance_m + _MARGIN_M
        wait, waited, chained = np.nan, np.nan, False
        if before is not None and before.ended:
            waited = float(np.interp(before.start_s + before.length_s, clock, distance))
            gap = (spell.start_s - before.start_s - before.length_s) * FRAMES_PER_S
            # A counter at a player behind comes at once too.
            chained = gap < _AT_ONCE and spell.number not in counters
            between = slice(before.last + 1, spell.first)
            turned = (fight.boss[between] == boss.animations.turn.id) | (fight.boss[between] >= FIRST_UNKNOWN)
            held = turned.any() or behind or (distance[between] > farthest_m).any()
            wait = np.nan if chained or held else gap + 1.0
        if spell.number in counters:
            # A counter may come in the midst of a chain, whose rest is what was left of it.
            links = None
            countered += int(behind and spell.first > 0)
        elif not chained:
            links = 0 if before is not None and before.ended else None
        elif links is not None:
            links += 1
        if spell.first > 0:
            rages = bool(enraged[max(spell.first - 1, 0)])
            found.append(Onset(spell.number, far, wait, waited, chained, behind, rages))
        # Counted by the row behind a move, not by the next move: fights that end before it would be missing.
        if spell.ended and links is not None and not enraged[spell.last]:
            following = own[place + 1]
            gap = (following.start_s - spell.start_s - spell.length_s) * FRAMES_PER_S
            at_once = following.number not in stances and following.number not in counters
            followed.append((links, at_once and gap < _AT_ONCE))
        before = spell
    return FightCourse(found, followed, countered, _turns(own, boss))


def _turns(own: Sequence[Spell], boss: BossData) -> int:
    """Return how often the boss decided to turn to a player behind it: a turn may follow another without a break."""
    number, lasts = boss.animations.turn.id, round(boss.rear.turn_s * FRAMES_PER_S) + 1
    count, begun = 0, None
    for spell in own:
        if spell.number == number:
            begun = spell.start_s if begun is None else begun
        elif begun is not None:
            count += max(round((spell.start_s - begun) * FRAMES_PER_S / lasts), 1)
            begun = None
    return count


def choice_fits(
    fights: Sequence[FightRows], boss: BossData, stances: Collection[int], keys: Mapping[int, str]
) -> list[ValueFit]:
    """Return waits, chains, counters, distances and weights of moves; `keys` are those of the moves by number."""
    farthest = max((move.distance_m[1] for move in boss.moves if move.weight > 0), default=np.inf)
    courses = [course_of(fight, boss, stances, farthest) for fight in fights]
    calm = [onset for course in courses for onset in course.onsets if not onset.enraged]
    followed = [one for course in courses for one in course.followed]
    countered, turned = (sum(getattr(course, name) for course in courses) for name in ("countered", "turned"))
    counter = _share_fit("rear.counter_chance", "rear", boss.rear.counter_chance, countered, countered + turned)
    return [*wait_fits(calm, boss), *chain_fits(followed, boss), counter, *_weight_fits(calm, boss, keys)]


def wait_fits(calm: Sequence[Onset], boss: BossData) -> list[ValueFit]:
    """Return the ends of the uniform distributions of waits between moves, and of what a player nearby adds to them.

    Near and far waits differ by how far the player was as the wait began. Where only near ones were seen the sum alone
    is known, and what is added stays as shipped.
    """
    aggression = boss.aggression
    waits = np.array([onset.wait_frames for onset in calm]) / FRAMES_PER_S
    away = np.array([onset.waited_m for onset in calm]) - aggression.near_m
    known = np.isfinite(waits)
    far, near = waits[known & (away > _MARGIN_M)], waits[known & (away < -_MARGIN_M)]
    added = _near_wait_fits(near, far, aggression)
    if len(far) < _FEWEST_WAITS <= len(near):
        return [*_wait_fits(near, aggression, aggression.near_wait_s), *added]
    return [*_wait_fits(far, aggression), *added]


def _wait_fits(waits: Doubles, aggression: Aggression, added: tuple[float, float] | None = None) -> list[ValueFit]:
    """Return the ends of waits (n,), in s; of those to which `added` came each end is at most what was seen."""
    names = [("aggression.wait_s.0", "wait low"), ("aggression.wait_s.1", "wait high")]
    if len(waits) < _FEWEST_WAITS:
        return [ValueFit(*name, value, count=len(waits)) for name, value in zip(names, aggression.wait_s, strict=True)]
    low, high, count = float(waits.min()), float(waits.max()), len(waits)
    # Of a uniform distribution's sample the ends lie inside by a share of its span; the shares have this distribution,
    # whose tail is long: one in a thousand, where others' intervals leave out one in twenty.
    span, inside = high - low, 1.0 / (count - 1.0)
    most, least = 0.001 ** (-1.0 / (count - 1)) - 1.0, 0.999 ** (-1.0 / (count - 1)) - 1.0
    half = 0.5 / FRAMES_PER_S
    ordered = np.sort((waits - low) / max(span, 1e-9))
    uniform = np.abs(ordered - np.linspace(0.0, 1.0, count)).max() * count**0.5
    unlike = bool(uniform > 1.5 * _ODD)
    values = (low - span * inside, high + span * inside)
    spans = (
        (low - span * most - half, low - span * least + half),
        (high + span * least - half, high + span * most + half),
    )
    return [
        fit(*name, shipped, max(value - more, 0.0), (ends[0] if added is None else 0.0, ends[1]), count, unlike)
        for name, shipped, value, ends, more in zip(
            names, aggression.wait_s, values, spans, added or (0.0, 0.0), strict=True
        )
    ]


def _near_wait_fits(near: Doubles, far: Doubles, aggression: Aggression) -> list[ValueFit]:
    """Return the ends of what a player nearby adds, from the means and variances of near and far waits."""
    names = [(f"aggression.near_wait_s.{end}", "near waits") for end in (0, 1)]
    count = min(len(near), len(far))
    if count < _FEWEST_NEAR:
        shipped = zip(names, aggression.near_wait_s, strict=True)
        return [ValueFit(*name, value, count=count) for name, value in shipped]
    random = np.random.default_rng(0)
    resampled = _near_ends(*(random.choice(one, (_RESAMPLED, len(one))) for one in (near, far)))
    lows, highs = np.quantile(resampled, (0.025, 0.975), axis=1)
    ends = np.ravel(_near_ends(near[None], far[None]))
    return [
        fit(*name, shipped, float(end), (float(low), float(high)), count)
        for name, shipped, end, low, high in zip(names, aggression.near_wait_s, ends, lows, highs, strict=True)
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
    chance = _share_fit("aggression.chain_chance", "chains", shipped.chain_chance, sum(free), len(free))
    return [chance, limit]


def _share_fit(key: str, kind: str, shipped: float, count: int, total: int) -> ValueFit:
    """Return a probability, from how often something came of how often it could."""
    if not total:
        return ValueFit(key, kind, shipped)
    interval = wilson_interval(count, total)
    return fit(key, kind, shipped, count / total, (interval.low, interval.high), total)


def _weight_fits(calm: Sequence[Onset], boss: BossData, keys: Mapping[int, str]) -> list[ValueFit]:
    """Return the moves' weights with the sum of the shipped ones, and the distances at which they began."""
    shipped = {move.id: move for move in boss.moves}
    chosen = [onset for onset in calm if not onset.behind and onset.number in keys]
    numbers = [number for number in keys if number not in shipped or shipped[number].weight > 0.0]
    fits = []
    ranges = []
    for number in numbers:
        seen = np.array([onset.distance_m for onset in chosen if onset.number == number])
        own = shipped[number].distance_m if number in shipped else (np.inf, -np.inf)
        low = min(own[0], float(seen.min()) + _RANGE_M) if len(seen) else own[0]
        high = max(own[1], float(seen.max()) - _RANGE_M) if len(seen) else own[1]
        ranges.append((low, high))
        for end, (value, own_end) in enumerate(zip((low, high), own, strict=True)):
            key = f"{keys[number]}.distance_m.{end}"
            fits.append(_distance_fit(key, end, value, own_end if np.isfinite(own_end) else None, len(seen)))
    places = {number: place for place, number in enumerate(numbers)}
    rows = [(places[onset.number], onset.distance_m) for onset in chosen if onset.number in places]
    beliefs = [shipped[number].weight if number in shipped else np.nan for number in numbers]
    return [*luce_fits(rows, ranges, np.array(beliefs), [keys[number] for number in numbers]), *fits]


def _distance_fit(key: str, end: int, value: float, shipped: float | None, count: int) -> ValueFit:
    """Return one end of the distances at which a move is chosen: those seen are within, no more is known."""
    if not count or not np.isfinite(value):
        return ValueFit(key, "distances", shipped, count=count)
    if shipped is not None and value == shipped:
        return ValueFit(key, "distances", shipped, count=count)
    bounds = (0.0, value) if end == 0 else (value, value * 1.5)
    return ValueFit(key, "distances", shipped, value, *bounds, count, "bounded")


def luce_fits(
    rows: Sequence[tuple[int, float]], ranges: Sequence[tuple[float, float]], shipped: Doubles, keys: Sequence[str]
) -> list[ValueFit]:
    """Return weights by Newton's method on the posterior of their logarithms, with the belief that they are as shipped.

    Each of `rows` is the place of the chosen move and the distance. Only ratios matter: the sum stays the shipped one.
    """
    unknown = ~np.isfinite(shipped)
    centre = np.log(np.where(unknown, np.nanmean(shipped) if not unknown.all() else 1.0, np.maximum(shipped, 1e-9)))
    chosen = np.array([place for place, _ in rows], np.int64)
    distance = np.array([one for _, one in rows])
    within: Flags = np.array([(low - 1e-9 <= distance) & (distance <= high + 1e-9) for low, high in ranges]).T
    within = within.reshape(len(rows), len(ranges))
    if len(rows):
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
    deviation = np.sqrt(np.maximum(np.diag(to_share @ covariance @ to_share.T), 0.0))
    total = float(np.nansum(shipped)) if not unknown.all() else float(len(shipped))
    total *= 1.0 + float(share[unknown].sum()) if unknown.any() else 1.0
    fits = []
    for place, key in enumerate(keys):
        weight, wide = float(share[place] * total), 1.96 * float(deviation[place])
        own = None if unknown[place] else float(shipped[place])
        value = fit(
            f"{key}.weight", "weights", own, weight, (weight * np.exp(-wide), weight * np.exp(wide)), int(counts[place])
        )
        fits.append(
            value if counts[place] else _unseen_fit(value, total / float(np.exp(logs).sum()), within, logs, place)
        )
    return fits


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
        return ValueFit(value.key, value.kind, value.shipped)
    return replace(value, estimate=middle, low=0.0, high=high, count=int(at_hand.sum()), verdict="bounded")
