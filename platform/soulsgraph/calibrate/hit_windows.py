"""Hit windows: when each opens, from blows dated to a frame; how far, how wide and how long it strikes.

Sector and end are found together. For a reach, an arc and an end the model says of every performance at which frame the
blow comes, or that none does; where the player stood just inside or outside, a soft edge stands for what is not known
of places between two readings. The posterior over a grid of the three, with a flat prior but for a wide one around the
shipped value, has the estimates and their intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, product
from math import inf, log, pi
from typing import NamedTuple

import numpy as np

from soulsgraph.calibrate.moves import MoveData
from soulsgraph.calibrate.values import ValueFit
from soulsgraph_envs.combat.rollout import Doubles, Flags, Integers
from soulsgraph_envs.core.scenario import BossData, HitWindow
from soulsgraph_envs.simulator.layout import FRAME_S, FRAMES_PER_S

#: Standard deviations of the logarithm that the shipped times, reaches and arcs are believed to be off by.
_BELIEF = 0.35
#: The same of the difference between a move's windows.
_APART = 0.2
#: Log-likelihoods of a blow at the window's first frame, later in it, and where it cannot be; of a window without any.
_AT_ONCE, _LATE, _NEVER, _UNSEEN = log(0.75), log(0.25 / 30), log(1e-4), log(0.05)
_MOST_STARTS = 14
#: The shares of a shipped reach and half arc within which the player surely is inside, and may be.
_SURELY, _PERHAPS = (0.75, 0.6), (1.3, 1.5)
#: The weight below which an assignment of blows to windows is left out, and that with which a blow is one window's.
_NEGLIGIBLE, _SURE = 1e-6, 0.95
#: By how much log-likelihoods of assignments are divided: sectors and times, known as shipped alone, may be wrong for
#: several blows at once.
_TEMPERATURE = 3.0
#: How soft the edge of a sector is: metres and radians that a place between two readings may be off by.
_SOFT_M, _SOFT_RAD = 0.03, 0.03
#: The share of performances that the model may have wrong.
_ODD = 0.01
_GRID = 33
#: Where else the hit area of a move that the data lack is looked for, and by how much a log-likelihood is far less.
_OFFSETS_M, _FAR_LESS = (1.0, 2.0, 3.0, 4.0), 4.0
#: The smallest and largest spread of damage that is looked for, and how many means of a window are tried with each.
_SPREADS, _MEANS = (0.004, 0.6), 65
#: Deeper inside a sector than any place.
_DEEP = 1e3
_FLAT = 3.1
#: The width of a posterior, as a share of the belief's, from which on nothing was learned.
_VAGUE = 0.75
#: The gap between blows, in frames, behind which a new window of a move that the data lack begins.
_GAP = 12


class WindowData(NamedTuple):
    """A window of a move: the frame of its first blow, the blows that are surely its own, its latest end.

    `opens` is the frame in which it opens, with the 95 % interval: before its first blow it may have been open where
    nobody could be struck. Until frame `until` another window's blows begin.
    """

    start: int
    own: Integers
    until: int
    opens: tuple[float, float, float]


def assign_windows(data: MoveData, shipped: Sequence[HitWindow], time_factor: float) -> list[WindowData | None]:
    """Return for each shipped window the blows that are its own, None where none is; without any shipped, those seen.

    Every window strikes once in a performance, as soon as it is open and the player within it. A blow that may be of
    several windows is assigned to none.
    """
    frames = data.hits[:, 1]
    if not len(frames):
        return [None] * len(shipped)
    if shipped:
        return _most_likely(data, shipped, time_factor)
    different = np.unique(frames)
    starts = [int(different[0]), *different[1:][np.diff(different) > _GAP].tolist()]
    found = list[WindowData | None]()
    for start, end in zip(starts, [*starts[1:], data.frames], strict=True):
        first = int((frames == start).sum())
        # No data have it: a blow or two may have come late into it.
        opens = (float(start), start - (0.5 if first > 2 else 24.0 / first), start + 0.5)
        found.append(WindowData(start, np.flatnonzero((frames >= start) & (frames < end)), end, opens))
    return found


def _openings(data: MoveData, window: HitWindow) -> tuple[Integers, Integers, Integers]:
    """Return when a window that is open would strike: the player within its sector, and nothing shielding them.

    The first (frames,) counts the performances in which it surely would have and did not. The others (blows,) are the
    last frames before each blow in which it surely would have, and may have, -1 without one.
    """
    distance, angle = data.geometry(window.offset_m)
    frames, (struck, at) = np.arange(data.frames), data.hits.T
    sure, likely = (
        data.open
        & (distance <= reach * window.reach_m)
        & ((angle <= arc * window.half_arc_rad) | (window.half_arc_rad >= _FLAT))
        for reach, arc in (_SURELY, _PERHAPS)
    )
    surely, perhaps = (
        np.where(inside[struck] & (frames < at[:, None]), frames, -1).max(axis=1, initial=-1)
        for inside in (sure, likely)
    )
    sure[struck, at] = False
    return sure.sum(axis=0), surely, perhaps


def _most_likely(data: MoveData, shipped: Sequence[HitWindow], time_factor: float) -> list[WindowData | None]:
    """Weigh every assignment of blows to windows, and return what nearly all of the likely ones agree on.

    An assignment is the frame of the first blow of each window that struck, by the window's number: later blows are its
    own until another window's begin.
    """
    performance, frames = data.hits.T
    counts, blows, numbers = np.bincount(frames, minlength=data.frames), np.arange(len(frames)), range(len(shipped))
    likely = np.argsort(-counts, kind="stable")[:_MOST_STARTS]
    candidates = sorted(int(frame) for frame in likely if counts[frame])
    refuted, surely, perhaps = (
        np.stack(values) for values in zip(*(_openings(data, window) for window in shipped), strict=True)
    )
    factor = time_factor * FRAMES_PER_S
    expected = [window.time_s[0] * factor for window in shipped]
    longest = np.array([1.6 * (window.time_s[1] - window.time_s[0]) * factor + 6.0 for window in shipped])

    def likelihood(assignment: Mapping[int, int]) -> float:
        """Return how likely windows are whose first blows come so, and blows for these."""
        value = _UNSEEN * (len(shipped) - len(assignment))
        if not assignment:
            return value + _NEVER * len(frames)
        struck, starts = np.array([*assignment.items()]).T
        which = np.searchsorted(starts, frames, side="right") - 1
        own, begun = struck[np.maximum(which, 0)], starts[np.maximum(which, 0)]
        # Who is within an open window is struck at once.
        each = np.where(perhaps[own, blows] >= begun, _LATE, _AT_ONCE)
        never = (surely[own, blows] >= begun) | (which < 0) | (frames - begun > longest[own])
        again = len(frames) - len(np.unique(performance * len(starts) + which))
        value += float(np.where(never, _NEVER, each).sum()) + _NEVER * again
        value += log(_ODD) * int(refuted[struck, starts].sum())
        moved = [log(start / expected[number]) for number, start in assignment.items() if start]
        # A slower move is slower up to each of its blows.
        apart = sum((one - other) ** 2 for one, other in pairwise(moved)) / _APART**2
        return value - 0.5 * (sum(one**2 for one in moved) / _BELIEF**2 + apart)

    assignments = [
        dict(zip(struck, starts, strict=True))
        for count in range(len(shipped) + 1)
        for struck, starts in product(combinations(numbers, count), combinations(candidates, count))
    ]
    values = np.array([likelihood(one) for one in assignments])
    weights = np.exp((values - values.max()) / _TEMPERATURE)
    weights /= weights.sum()
    own, opens = np.zeros((len(shipped), len(frames))), np.zeros((len(shipped), data.frames))
    for place in np.flatnonzero(weights > _NEGLIGIBLE):
        earlier = 0
        for number, start in assignments[place].items():
            inside = (frames >= start) & (frames < _behind(assignments[place], start, data))
            own[number] += weights[place] * inside
            opens[number] += weights[place] * _opening(refuted[number], earlier, start, expected[number])
            earlier = start + 1
    best = assignments[int(values.argmax())]
    return [
        WindowData(best[number], sure, _behind(best, best[number], data), _interval(opens[number]))
        if number in best and len(sure := np.flatnonzero(own[number] >= _SURE))
        else None
        for number in numbers
    ]


def _behind(assignment: Mapping[int, int], start: int, data: MoveData) -> int:
    """Return the frame from which blows are the next window's."""
    return min((other for other in assignment.values() if other > start), default=data.frames)


def _opening(refuted: Integers, earlier: int, start: int, expected: float) -> Doubles:
    """Return how likely a window whose first blow came at `start` opened in each frame from `earlier` on."""
    value = np.full(len(refuted), -inf)
    against = np.cumsum(refuted[earlier:start][::-1])[::-1]
    value[earlier:start] = np.maximum(log(_ODD) * against, -_DEEP)
    value[start] = 0.0
    value += _belief(np.maximum(np.arange(len(refuted)), 0.5), expected)
    chances = np.exp(value - value.max())
    return np.asarray(chances / chances.sum())


def _interval(chances: Doubles) -> tuple[float, float, float]:
    """Return the median frame and the 95 % interval."""
    total = np.cumsum(chances) / chances.sum()
    low, middle, high = np.searchsorted(total, (0.025, 0.5, 0.975)).tolist()
    return float(middle), low - 0.5, high + 0.5


#: An estimate with the ends of its interval.
_Estimate = tuple[float, float, float]


@dataclass(frozen=True)
class Sector:
    """What a grid says of a window: reach (m), half arc (rad) and end (frames).

    `odd` is the share of performances that the best sector has wrong, `likelihood` the logarithm of its likelihood.
    The interval of the end asks little of the shipped one; `likely_end` is the likeliest if windows last as shipped.
    """

    reach: _Estimate
    arc: _Estimate
    end: _Estimate
    odd: float
    likelihood: float
    count: int
    likely_end: float


class _Evidence(NamedTuple):
    """Frames from a window's start on (n, frames): how far, at what angle, whether a blow could come, and when it did.

    `struck` is the frame of its blow since the start, -1 without one.
    """

    distance: Doubles
    angle: Doubles
    open: Flags
    struck: Integers


def _evidence(data: MoveData, window: WindowData, offset_m: float) -> _Evidence:
    frames = slice(window.start, window.until)
    distance, angle = data.geometry(offset_m)
    struck = np.full(len(data), -1)
    struck[data.hits[window.own, 0]] = data.hits[window.own, 1] - window.start
    free = data.open[:, frames].copy()
    # A blow of another window in these frames ends what can be known of this one.
    for at, frame in data.hits[np.setdiff1d(np.flatnonzero(data.hits[:, 1] >= window.start), window.own)]:
        free[at, frame - window.start :] = False
    # The frame of a blow is open, whatever the reading says of the player just before it.
    at = np.flatnonzero(struck >= 0)
    free[at, struck[at]] = True
    kept = free.any(axis=1)
    return _Evidence(distance[kept][:, frames], angle[kept][:, frames], free[kept], struck[kept])


def find_sector(
    data: MoveData, window: WindowData, shipped: HitWindow | None, time_factor: float, offset_m: float = 0.0
) -> Sector | None:
    """Return the sector and the end of a window; None where no performance says anything.

    Of a window that the data lack it lies around a point so far ahead of the boss.
    """
    evidence = _evidence(data, window, shipped.offset_m if shipped else offset_m)
    if not len(evidence.struck):
        return None
    inside = evidence.struck >= 0
    at = evidence.struck[inside]
    if shipped:
        reach, arc, shipped_end = shipped.reach_m, shipped.half_arc_rad, shipped.time_s[1] * time_factor * FRAMES_PER_S
    else:
        reach, arc = (float(seen[inside, at].max()) for seen in (evidence.distance, evidence.angle))
        arc, shipped_end = max(arc, 0.2), window.start + 12.0
    ends = np.arange(int(at.max()) + 1, max(evidence.distance.shape[1], int(at.max()) + 1) + 1)
    ends = ends[: max(int(1.6 * shipped_end) - window.start - int(at.max()), 8)]
    spans = ((0.45 * reach, 1.8 * reach), (0.3 * min(arc, pi), min(2.0 * arc, pi)))
    for _ in range(3):
        grid = [np.geomspace(*span, _GRID) for span in spans]
        posterior = _posterior(evidence, grid[0], grid[1], ends)
        # Where the whole circle is shipped that is the likely one.
        wide = np.where(grid[1] >= _FLAT, 0.0, log(0.1 / _GRID)) if arc >= _FLAT else _belief(grid[1], arc)
        posterior += _belief(grid[0], reach)[:, None, None] + wide[None, :, None]
        posterior += _belief(ends + float(window.start), shipped_end)[None, None, :]
        weights = np.exp(posterior - posterior.max())
        marginals = [weights.sum(axis=others) for others in ((1, 2), (0, 2), (0, 1))]
        spans = (_support(grid[0], marginals[0]), _support(grid[1], marginals[1]))
    found = reach_m, arc_rad, end = [_summary(*one) for one in zip((*grid, ends), marginals, strict=True)]
    odd, likely_end = _odd_share(evidence, *(one[0] for one in found)), end[0]
    if shipped:
        lasts = shipped_end - shipped.time_s[0] * time_factor * FRAMES_PER_S
        own = _belief(ends + window.start - window.opens[0], lasts) - _belief(ends + float(window.start), shipped_end)
        median, *_ = _summary(ends, marginals[2] * np.exp(own - own.max()))
        likely_end = min(max(median, end[1]), end[2])
    return Sector(reach_m, arc_rad, end, odd, float(posterior.max()), len(evidence.struck), likely_end)


def _around_any_point(data: MoveData, window: WindowData, sector: Sector, time_factor: float) -> tuple[Sector, bool]:
    """Return a sector with the intervals of those around points ahead of the boss that are as likely, and if it is.

    Around which point a move strikes that the data lack nobody knows: seen from ahead, several reaches explain it.
    """
    others = [find_sector(data, window, None, time_factor, offset) for offset in _OFFSETS_M]
    whole = [one for one in (sector, *others) if one is not None]
    best = max(one.likelihood for one in whole)
    alike = [one for one in whole if best - one.likelihood < _FAR_LESS]

    def wide(name: str) -> _Estimate:
        estimates = [getattr(one, name) for one in (sector, *alike)]
        return estimates[0][0], min(low for _, low, _ in estimates), max(high for *_, high in estimates)

    return replace(sector, reach=wide("reach"), arc=wide("arc"), end=wide("end")), sector in alike


def _belief(values: Doubles, shipped: float) -> Doubles:
    return -0.5 * (np.log(np.maximum(values, 1e-9) / max(shipped, 1e-9)) / _BELIEF) ** 2


def _depths(distance: Doubles, angle: Doubles, reach: Doubles, arc: Doubles) -> Doubles:
    """Return how far inside the sector the player is, in soft edges: (..., reaches, arcs) for distances (...)."""
    far = (reach - distance[..., None]) / _SOFT_M
    wide = np.where(arc >= _FLAT, _DEEP, (arc - angle[..., None]) / _SOFT_RAD)
    return np.minimum(far[..., :, None], wide[..., None, :])


def _posterior(evidence: _Evidence, reach: Doubles, arc: Doubles, ends: Integers) -> Doubles:
    """Return the log-likelihood of sectors and ends: (reaches, arcs, ends)."""
    total = np.zeros((len(reach), len(arc), len(ends)))
    for one, struck in enumerate(evidence.struck.tolist()):
        frames = min(struck + 1 if struck >= 0 else int(ends[-1]), evidence.distance.shape[1])
        depth = _depths(evidence.distance[one, :frames], evidence.angle[one, :frames], reach, arc)
        depth = np.where(evidence.open[one, :frames, None, None], depth, -_DEEP)
        if struck >= 0:
            before = depth[:struck].max(axis=0) if struck else np.full(depth.shape[1:], -_DEEP)
            chance = _inside(depth[struck]) * _inside(-before)
            total += np.log(_ODD + (1.0 - _ODD) * chance)[..., None]
            continue
        deepest = np.maximum.accumulate(depth, axis=0)
        places = np.minimum(ends, frames) - 1
        total += np.log(_ODD + (1.0 - _ODD) * _inside(-deepest[places])).transpose(1, 2, 0)
    return total


def _inside(depth: Doubles) -> Doubles:
    return 1.0 / (1.0 + np.exp(-1.7 * np.clip(depth, -30.0, 30.0)))


def _support(values: Doubles, marginal: Doubles) -> tuple[float, float]:
    """Return the span of a grid that holds nearly all of a marginal, a step wider."""
    total = np.cumsum(marginal) / marginal.sum()
    first = max(int(np.searchsorted(total, 1e-4)) - 1, 0)
    last = min(int(np.searchsorted(total, 1.0 - 1e-4)) + 1, len(values) - 1)
    return float(values[first]), float(values[last])


def _summary(values: Doubles, marginal: Doubles) -> tuple[float, float, float]:
    """Return the median and the 95 % interval of a marginal."""
    total = np.cumsum(marginal) / marginal.sum()
    total -= 0.5 * marginal / marginal.sum()
    low, median, high = (float(np.interp(share, total, values)) for share in (0.025, 0.5, 0.975))
    return median, low, high


def _odd_share(evidence: _Evidence, reach: float, arc: float, end: float) -> float:
    """Return the share of performances in which a sector has the blow wrong by more than its soft edge."""
    depths = _depths(evidence.distance, evidence.angle, np.array([reach]), np.array([arc]))[..., 0, 0]
    depth = np.where(evidence.open, depths, -_DEEP)
    depth = depth[:, : max(round(end), 1)]
    struck = evidence.struck
    missed = (struck < 0) & (depth.max(axis=1) > 3.0)
    at = np.minimum(np.maximum(struck, 0), depth.shape[1] - 1)
    outside = (struck >= 0) & (depth[np.arange(len(struck)), at] < -3.0)
    return float((missed | outside).mean())


#: The values of a window, and their kinds.
_VALUES = {"time_s.0": "start", "time_s.1": "end", "reach_m": "reach", "half_arc_rad": "arc", "damage": "damage"}


def window_fits(
    key: str, data: MoveData | None, window: WindowData | None, shipped: HitWindow | None, boss: BossData
) -> list[ValueFit]:
    """Return the values of one window: start, end, reach, half arc, damage."""
    factor, own = boss.time_factor, list[float | None]([None] * len(_VALUES))
    if shipped is not None:
        times_s, arc_rad = [one * factor for one in shipped.time_s], min(shipped.half_arc_rad, pi)
        own = [*times_s, shipped.reach_m, arc_rad, shipped.damage * boss.damage_factor]
    values = [ValueFit(f"{key}.{name}", kind, one) for (name, kind), one in zip(_VALUES.items(), own, strict=True)]
    if window is None or data is None:
        return values
    opens, low, high = (one / FRAMES_PER_S for one in window.opens)
    first, last = values[0].fit(opens, (low, high), len(window.own)), damage_fit(values[-1], data, window.own, boss)
    sector = find_sector(data, window, shipped, factor)
    if sector is None:
        return [first, *values[1:-1], last]
    unlike = sector.odd > 0.15 and sector.count >= 10
    if shipped is None:
        sector, likely = _around_any_point(data, window, sector, factor)
        unlike = unlike or not likely
    begin, half, (end, *ends) = window.start / FRAMES_PER_S, 0.5 * FRAME_S, (one * FRAME_S for one in sector.end)
    arc, least, most = sector.arc
    found = (
        (end + begin, ends[0] - half + begin, ends[1] + half + begin),
        sector.reach,
        # Beyond this nothing is seen of an arc: it is the whole circle.
        (arc, least, pi if most >= _FLAT else most),
    )
    between = [
        # Of a move that the data lack a vague estimate is all that there is.
        replace(value, count=sector.count)
        if shipped is not None and log(high / low) > _VAGUE * 2.0 * 1.96 * _BELIEF
        else value.fit(estimate, (low, high), sector.count, unlike)
        for value, (estimate, low, high) in zip(values[1:-1], found, strict=True)
    ]
    if between[0].verdict == "bounded":
        between[0] = replace(between[0], estimate=sector.likely_end * FRAME_S + begin)
    return [first, *between, last]


def damage_fit(value: ValueFit, data: MoveData, own: Integers, boss: BossData) -> ValueFit:
    """Return the mean HP that a blow takes, from the ends of its uniform spread."""
    values = clean_damage(data, own)
    if not len(values):
        return value
    low, high, spread = float(values.min()), float(values.max()), boss.damage_spread
    # Every blow allows the means whose spread holds it; rounding allows half a point more.
    ends = ((high - 0.5) / (1.0 + spread), (low + 0.5) / (1.0 - spread)) if spread < 1.0 else (high, low)
    unlike = ends[0] > ends[1] * 1.02
    return value.fit(0.5 * (ends[0] + ends[1]), (min(ends), max(ends)), len(values), unlike)


def spread_fit(damage: Sequence[Doubles], boss: BossData) -> ValueFit:
    """Return the spread of damage around its mean, from the HP that blows of each window take.

    Every window has a mean of its own; with a spread it says how likely each blow is, rounded to a point.
    """
    windows = [values for values in damage if len(values) > 1]
    value = ValueFit("damage_spread", "damage spread", boss.damage_spread, count=sum(map(len, windows)))
    if not windows:
        return value
    span = _SPREADS
    for _ in range(2):
        spreads = np.geomspace(*span, 2 * _GRID)
        posterior = np.sum([_spread_likelihood(values, spreads) for values in windows], axis=0)
        if boss.damage_spread:
            posterior += _belief(spreads, boss.damage_spread)
        weights = np.exp(posterior - posterior.max())
        span = _support(spreads, weights)
    estimate, low, high = _summary(spreads, weights)
    # The smallest of the grid stands for none.
    low = 0.0 if low < 1.5 * _SPREADS[0] else low
    vague = low and log(high / low) > _VAGUE * 2.0 * 1.96 * _BELIEF
    return value if vague else value.fit(estimate, (low, high), value.count)


def _spread_likelihood(values: Doubles, spreads: Doubles) -> Doubles:
    """Return the log-likelihood of spreads (n,) by the blows of one window, whose mean is integrated out.

    Now and then a blow is none of the window's, such as a counter-hit that was not seen: it may be anything.
    """
    seen, counts = np.unique(values, return_counts=True)
    middle = float(np.median(values))
    share = (np.arange(_MEANS) + 0.5) / _MEANS
    least, most = middle / (1.0 + spreads), middle / (1.0 - spreads)
    means = least[:, None] + share * (most - least)[:, None]
    half = (spreads[:, None] * means)[..., None]
    inside = np.minimum(seen + 0.5, means[..., None] + half) - np.maximum(seen - 0.5, means[..., None] - half)
    likely = (1.0 - _ODD) * np.maximum(inside, 0.0) / (2.0 * half) + _ODD / middle
    logs = (counts * np.log(likely)).sum(axis=-1) + np.log((most - least)[:, None] / means)
    top = logs.max(axis=1)
    return np.asarray(top + np.log(np.exp(logs - top[:, None]).mean(axis=1)))


def clean_damage(data: MoveData, own: Integers) -> Doubles:
    """Return the HP that some blows took, without those of which it is not known or that were counter-hits."""
    clean = own[~data.counter[own] & np.isfinite(data.damage[own]) & (data.damage[own] > 0.0)]
    return data.damage[clean]
