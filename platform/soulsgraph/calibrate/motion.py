"""How the boss walks, turns and lunges: speeds from whole ticks of it, moments from ticks that were cut short."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from soulsgraph.calibrate.moves import MoveData, wrapped_angles
from soulsgraph.calibrate.rows import Doubles, FightRows, Flags, Integers
from soulsgraph.calibrate.values import ValueFit, fit, middle
from soulsgraph_envs.core.scenario import BossData, Move
from soulsgraph_envs.core.state import Raw
from soulsgraph_envs.simulator.layout import FRAMES_PER_S

_FRAME_S = 1.0 / FRAMES_PER_S
#: A turn that ends so near its goal may have been cut short by it.
_NEAR_RAD = 0.08
#: A boss that moves slower than so much stands.
_STILL_M_S = 0.15
#: A lunge nearer than so much to the player's body may have been stopped by it.
_CLEAR_M = 0.25
#: Of the speeds in a lunge or a turn, the quick ones are those in which it lasted the whole tick.
_WHOLE = 0.93
_FEWEST = 3
#: What of the interval of a window's start is its frame, which the leap's own has too.
_OPENS_S = 0.5 * _FRAME_S
#: Spans of a lunge explain the way gone alike where they leave no more of it unexplained, a tick, than so much.
_ALIKE_M = 1e-4
#: A move stays on its spot where no longer time of it is unseen; a leap that was seen seldom may be off by more.
_UNSEEN_S, _SELDOM_S = 0.15, 0.2
#: A tick that turns by less than the first turned in no frame, by more than the second in one at least; a player
#: further aside than the third would have been turned to.
_STILL_RAD, _TURNING_RAD, _ASIDE_RAD = 1e-5, 1e-3, 0.02
#: Frames behind a landing in which a reading has shown the place.
_SETTLED = 7
#: How far a place between two readings may be off, for a distance that decides.
_EDGE_M = 0.15


@dataclass(frozen=True)
class Ticks:
    """Pairs of rows that follow each other in one animation of the boss: (n,) each.

    Times are those of the animation's own clock at both rows; `gone_m` is the way between the places, `ahead_m` that
    along the heading, `turned_rad` the turn towards the player (below 0 for one away), `begin_left_rad` and
    `left_rad` what is left to turn at both rows, `distance_m` the lesser distance of the two. `spell` numbers the
    performances.
    """

    number: Integers
    spell: Integers
    begin_s: Doubles
    end_s: Doubles
    gone_m: Doubles
    ahead_m: Doubles
    turned_rad: Doubles
    begin_left_rad: Doubles
    left_rad: Doubles
    distance_m: Doubles

    def where(self, kept: Flags) -> Ticks:
        """Return the pairs that are kept, (n,)."""
        return Ticks(**{name: values[kept] for name, values in vars(self).items()})

    @property
    def lasted_s(self) -> Doubles:
        """How long each takes, (n,)."""
        return self.end_s - self.begin_s


def ticks_of(fights: Sequence[FightRows]) -> Ticks:
    """Return every pair of rows in which one animation of the boss played on."""
    parts = [_fight_ticks(fight, at) for at, fight in enumerate(fights)]
    return Ticks(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0])})


def _fight_ticks(fight: FightRows, number: int) -> Ticks:
    raw, clock = fight.raw, fight.clock_s
    played, length = raw[:, Raw.BOSS_ANIMATION_TIME_S], raw[:, Raw.BOSS_ANIMATION_LENGTH_S]
    steps = np.diff(clock)
    # Stances play in a loop.
    advanced = np.diff(played)
    advanced = np.where(advanced < 0, advanced + length[1:], advanced)
    on = (np.diff(fight.boss) == 0) & (np.abs(advanced - steps) < 0.4 * np.maximum(steps, _FRAME_S))
    spell = number * 1_000_000 + np.cumsum(np.concatenate([[0], ~on]))
    dx, dy = np.diff(raw[:, Raw.BOSS_X]), np.diff(raw[:, Raw.BOSS_Y])
    heading = raw[:, Raw.BOSS_ANGLE]
    to_x, to_y = raw[:, Raw.PLAYER_X] - raw[:, Raw.BOSS_X], raw[:, Raw.PLAYER_Y] - raw[:, Raw.BOSS_Y]
    offset = wrapped_angles(np.arctan2(-to_x, -to_y) - heading)
    turned = wrapped_angles(np.diff(heading))
    towards = np.where(np.abs(offset[1:]) > _NEAR_RAD, np.sign(offset[1:]), np.sign(turned))
    distance = np.hypot(to_x, to_y)
    middle_heading = heading[:-1] + 0.5 * turned
    ticks = Ticks(
        number=fight.boss[1:], spell=spell[1:], begin_s=played[1:] - advanced, end_s=played[1:],
        gone_m=np.hypot(dx, dy), ahead_m=-np.sin(middle_heading) * dx - np.cos(middle_heading) * dy,
        turned_rad=turned * towards, begin_left_rad=np.abs(offset[:-1]), left_rad=np.abs(offset[1:]),
        distance_m=np.minimum(distance[1:], distance[:-1]),
    )  # fmt: skip
    return ticks.where(on & (advanced > 0.5 * _FRAME_S))


def stance_fits(
    ticks: Ticks, fights: Sequence[FightRows], boss: BossData, stances: Mapping[str, int]
) -> list[ValueFit]:
    """Return the boss's speeds between moves, and the distances at which it walks."""
    motion = boss.motion
    walks, backs = ticks.number == stances["approach"], ticks.number == stances["back_off"]
    standing = np.isin(ticks.number, list(stances.values()))
    turns = standing & (ticks.left_rad > _NEAR_RAD)
    speed = ticks.ahead_m / ticks.lasted_s
    fits = [
        _median_fit("motion.walk_m_s", "walk", motion.walk_m_s, speed[walks], 0.002),
        _median_fit("motion.back_off_m_s", "back-off", motion.back_off_m_s, -speed[backs], 0.002),
        _median_fit("motion.turn_rad_s", "turn", motion.turn_rad_s, (ticks.turned_rad / ticks.lasted_s)[turns], 0.002),
    ]
    far, near = (_edge(fights, stances, name) for name in ("approach", "back_off"))
    shipped = (motion.approach_beyond_m, motion.back_off_within_m)
    fits.append(_edge_fit("motion.approach_beyond_m", shipped[0], *far))
    fits.append(_edge_fit("motion.back_off_within_m", shipped[1], *near, below=True))
    return fits


def _median_fit(key: str, kind: str, shipped: float, values: Doubles, least: float) -> ValueFit:
    if len(values) < _FEWEST:
        return ValueFit(key, kind, shipped, count=len(values))
    median, interval, spread = middle(values, least * abs(float(np.median(values))))
    return fit(key, kind, shipped, median, interval, len(values), unlike=spread > 0.25 * abs(median))


def _edge(fights: Sequence[FightRows], stances: Mapping[str, int], name: str) -> tuple[Doubles, Flags]:
    """Return the distances at which the boss chose between standing and walking, and whether it walked: (n,) each."""
    distances, walked = [], []
    choices = [stances[one] for one in ("idle", "approach", "back_off")]
    for fight in fights:
        raw = fight.raw
        distance = np.hypot(raw[:, Raw.PLAYER_X] - raw[:, Raw.BOSS_X], raw[:, Raw.PLAYER_Y] - raw[:, Raw.BOSS_Y])
        # The frame that a row shows was chosen by the distance at its beginning.
        before = np.interp(fight.clock_s - _FRAME_S, fight.clock_s, distance)
        chosen = np.isin(fight.boss, choices)
        chosen[0] = False
        distances.append(before[chosen])
        walked.append(fight.boss[chosen] == stances[name])
    return np.concatenate(distances), np.concatenate(walked)


def _edge_fit(key: str, shipped: float, distances: Doubles, walked: Flags, below: bool = False) -> ValueFit:
    """Return the distance that best separates rows in which the boss walked from the others."""
    if not (walked.any() and (~walked).any()):
        return ValueFit(key, "distances", shipped, count=len(walked))
    found, low, high, _ = best_edge(distances, walked == below)
    far = np.abs(distances - found) > _EDGE_M
    odd = float((far & ((distances > found) != (walked != below))).mean())
    return fit(key, "distances", shipped, found, (low - 0.1, high + 0.1), len(walked), odd > 0.1)


def best_edge(values: Doubles, below: Flags) -> tuple[float, float, float, float]:
    """Return the edge that best separates values (n,) said to be below it, its span, and the share that is wrong."""
    order = np.argsort(values, kind="stable")
    ordered, above = values[order], ~below[order]
    wrong = np.concatenate([[0], np.cumsum(above)]) + (~above).sum() - np.concatenate([[0], np.cumsum(~above)])
    edges = np.concatenate([ordered[:1], 0.5 * (ordered[1:] + ordered[:-1]), ordered[-1:]])
    best = np.flatnonzero(wrong == wrong.min())
    low, high = ordered[max(int(best[0]) - 1, 0)], ordered[min(int(best[-1]), len(ordered) - 1)]
    return float(np.median(edges[best])), float(low), float(high), float(wrong.min() / len(values))


def tracking_rate(ticks: Ticks, stances: Sequence[int]) -> Doubles:
    """Return the rates at which the boss turned all through a tick of a move, (n,)."""
    kept = ~np.isin(ticks.number, stances) & (ticks.left_rad > _NEAR_RAD)
    rates = (ticks.turned_rad / ticks.lasted_s)[kept]
    rates = rates[rates > 0.2]
    return rates[rates > _WHOLE * np.quantile(rates, 0.9)] if len(rates) else rates


def tracking_fit(ticks: Ticks, stances: Sequence[int], boss: BossData, turn: ValueFit) -> tuple[ValueFit, float]:
    """Return by how much faster the boss turns in a move, and the rate itself."""
    shipped, rates = boss.motion.tracking_factor, tracking_rate(ticks, stances)
    key, kind = "motion.tracking_factor", "turn"
    base = turn.estimate if turn.known and turn.estimate else boss.motion.turn_rad_s
    if len(rates) < _FEWEST:
        return ValueFit(key, kind, shipped, count=len(rates)), base * shipped
    rate, (low, high), _ = middle(rates, 0.003 * float(np.median(rates)))
    # The rate alone is seen: the factor is as uncertain as what the boss turns by when it stands.
    slow, fast = (end or base * believed for end, believed in ((turn.low, 0.5), (turn.high, 2.0)))
    return fit(key, kind, shipped, rate / base, (low / fast, high / slow), len(rates)), rate


def tracks_fit(key: str, ticks: Ticks, shipped: float | None) -> ValueFit:
    """Return until when the boss turns in a move: it did after each tick that turned it, not after one that did not.

    A tick says nothing where the player stood straight ahead.
    """
    still = (np.abs(ticks.turned_rad) < _STILL_RAD) & (np.minimum(ticks.left_rad, ticks.begin_left_rad) > _ASIDE_RAD)
    turning = np.abs(ticks.turned_rad) > _TURNING_RAD
    # A tick that turned turned in its first frame at least.
    moments = np.where(turning, ticks.begin_s + 0.75 * _FRAME_S, ticks.begin_s + 0.25 * _FRAME_S)[still | turning]
    turned = turning[still | turning]
    if not turned.any():
        if not still.any():
            return ValueFit(key, "tracking", shipped)
        return fit(key, "tracking", shipped, 0.0, (0.0, max(float(moments.min()) - 0.1, 0.0)), int(still.sum()))
    if turned.all():
        return ValueFit(key, "tracking", shipped, count=len(turned))
    found, low, high, wrong = best_edge(moments, turned)
    half = 0.5 * _FRAME_S
    return fit(key, "tracking", shipped, found, (low - half, high + half), len(turned), wrong > 0.1)


def _by_spell(ticks: Ticks) -> Iterator[Ticks]:
    for spell in np.unique(ticks.spell):
        yield ticks.where(ticks.spell == spell)


def lunge_fits(key: str, ticks: Ticks, contact: float, move: Move | None, factor: float) -> list[ValueFit]:
    """Return speed, begin and end of a move's lunge, by its ticks; nothing of a move that stays on its spot."""
    charges = move is not None and move.runs_through
    shipped = (move.lunge_m_s, *(end * factor for end in move.lunge_s)) if move else (None, None, None)
    names = [(f"{key}.lunge_m_s", "lunge"), (f"{key}.lunge_s.0", "lunge times"), (f"{key}.lunge_s.1", "lunge times")]
    clear = ticks.where((ticks.distance_m > contact + _CLEAR_M) | charges)
    speed = clear.ahead_m / clear.lasted_s
    if len(speed) < 2 * _FEWEST:
        return [ValueFit(*name, value) for name, value in zip(names, shipped, strict=True)]
    going = speed > _STILL_M_S
    if going.sum() < _FEWEST:
        still = not going.any() and _longest_gap_s(clear, float(ticks.end_s.max())) < _UNSEEN_S
        found = fit(*names[0], shipped[0], 0.0, (0.0, 0.0), len(speed)) if still else ValueFit(*names[0], shipped[0])
        return [found, *(ValueFit(*name, value) for name, value in zip(names[1:], shipped[1:], strict=True))]
    begins, ends, speeds, rms = _fit_span(clear, shipped[0])
    begin, end, best = begins[0], ends[0], speeds[0]
    unlike = rms > 0.3 * best * float(np.median(clear.lasted_s))
    count = int(going.sum())
    wide = 0.75 * _FRAME_S if rms < 0.03 else 4.0 * _FRAME_S
    whole = (clear.begin_s >= begin - 1e-6) & (clear.end_s <= end + 1e-6)
    loose = 0.01 if whole.sum() >= _FEWEST else 0.15
    # An end counts where ticks beside it show that the boss stood; a body in its way hides that.
    before = clear.end_s[~going & (clear.end_s <= begin + _FRAME_S)]
    behind = clear.begin_s[~going & (clear.begin_s >= end - _FRAME_S)]
    earliest = min(begin, float(before.max()) if len(before) else 0.0)
    latest = max(end, float(behind.min()) if len(behind) else np.inf)
    spans = (
        ((1.0 - loose) * min(speeds), (1.0 + loose) * max(speeds)),
        (min(min(begins) - wide, earliest), max(begins) + wide),
        (min(ends) - wide, max(max(ends) + wide, latest)),
    )
    return [
        fit(*name, value, one, span, count, unlike)
        for name, value, one, span in zip(names, shipped, (best, begin, end), spans, strict=True)
    ]


def _longest_gap_s(ticks: Ticks, until_s: float) -> float:
    """Return the longest time of a move, until a moment, that no tick shows."""
    order = np.argsort(ticks.begin_s, kind="stable")
    seen = np.concatenate([[0.0], np.maximum.accumulate(ticks.end_s[order])])
    return float((np.append(ticks.begin_s[order], until_s) - seen).max())


def _fit_span(
    ticks: Ticks, shipped: float | None
) -> tuple[tuple[float, float, float], tuple[float, float, float], tuple[float, float, float], float]:
    """Return begin, end and speed of the one span of whole frames that best explains the way gone, and what is left.

    Each is the estimate with the least and the most of all spans that explain it as well: a tick that was gone all
    through at one speed may have been gone for a frame at six times that. The shipped speed decides between these.
    """
    begins, ends = ticks.begin_s * FRAMES_PER_S, ticks.end_s * FRAMES_PER_S
    going = ticks.ahead_m > _STILL_M_S * ticks.lasted_s
    early, late = np.floor(begins[going].min()), np.ceil(ends[going].max())
    firsts = np.arange(early - 1, np.floor(max(np.quantile(begins[going], 0.1), early)) + 14)
    lasts = np.arange(np.floor(min(np.quantile(ends[going], 0.9), late)) - 14, late + 2)
    costs, speeds = np.full((2, len(firsts), len(lasts)), np.inf)
    for place, first in enumerate(firsts):
        inside = np.minimum(ends[:, None], lasts) - np.maximum(begins[:, None], first)
        inside = np.clip(inside, 0.0, None) * _FRAME_S
        speeds[place] = (inside * ticks.ahead_m[:, None]).sum(axis=0) / np.maximum((inside**2).sum(axis=0), 1e-12)
        wrong = np.abs(ticks.ahead_m[:, None] - speeds[place] * inside)
        # Of a tick that a wall or a body cut short one does not know it: large misses count as moderate ones.
        costs[place] = np.where(lasts > first, np.minimum(wrong, 0.15).mean(axis=0), np.inf)
    rows, columns = np.nonzero(costs <= costs.min() + _ALIKE_M)
    alike = speeds[rows, columns]
    chosen = int(np.argmin(alike if not shipped else np.abs(np.log(np.maximum(alike, 1e-9) / shipped))))
    first, last = firsts[rows[chosen]], lasts[columns[chosen]]
    whole = (begins >= first) & (ends <= last)
    if whole.sum() >= _FEWEST:
        alike = np.array([np.median(ticks.ahead_m[whole] / ticks.lasted_s[whole])])
    begun, ended = np.maximum(firsts[rows], 0.0) * _FRAME_S, lasts[columns] * _FRAME_S
    chosen_speed = alike[min(chosen, len(alike) - 1)]
    return (
        (float(max(first, 0.0) * _FRAME_S), float(begun.min()), float(begun.max())),
        (float(last * _FRAME_S), float(ended.min()), float(ended.max())),
        (float(chosen_speed), float(alike.min()), float(alike.max())),
        float(costs[rows[chosen], columns[chosen]]),
    )


def leap_fits(key: str, ticks: Ticks, opens_s: tuple[float, float, float], shipped_s: float) -> list[ValueFit]:
    """Return how long a leap takes before its window opens, by the ticks of its move.

    When it takes off is seen; `opens_s` is when the window opens, with the interval.
    """
    window_s, earliest, latest = opens_s
    found = []
    for own in _by_spell(ticks.where(ticks.begin_s < window_s)):
        speed = own.gone_m / own.lasted_s
        inside = np.minimum(own.end_s, window_s) - own.begin_s
        whole = (own.end_s <= window_s + 1e-6) & (speed > 2.0)
        if whole.sum() < 2:
            continue
        quick = float(np.median(speed[whole][-3:]))
        first = int(np.flatnonzero(speed > _STILL_M_S)[0])
        lasted = float((own.gone_m[first : first + 1] / quick).sum())
        if lasted <= inside[first] * 1.05:
            found.append(window_s - (own.end_s[first] - lasted))
    if not found:
        return [ValueFit(f"{key}.leap_s", "leap", shipped_s)]
    median, (low, high), _ = middle(found, 0.75 * _FRAME_S if len(found) >= _FEWEST else _SELDOM_S)
    span = (min(low, low + earliest - window_s + _OPENS_S), max(high, high + latest - window_s - _OPENS_S))
    return [fit(f"{key}.leap_s", "leap", shipped_s, median, span, len(found))]


def leap_short_fit(data: Sequence[tuple[MoveData, float, float]], shipped: float) -> ValueFit:
    """Return how far short of the player leaps land: of moves with the seconds of their take-off and their window."""
    found = []
    for move, begin_s, end_s in data:
        take_off, lands = max(round(begin_s * FRAMES_PER_S) - 1, 0), round(end_s * FRAMES_PER_S) + _SETTLED
        if lands >= move.frames:
            continue
        for spell in np.flatnonzero(move.seen[:, lands]):
            x, y = move.boss_x[spell], move.boss_y[spell]
            at = (x[take_off] + move.dx[spell, take_off], y[take_off] + move.dy[spell, take_off])
            if np.hypot(x[lands] - x[take_off], y[lands] - y[take_off]) > 0.5:
                found.append(float(np.hypot(at[0] - x[lands], at[1] - y[lands])))
    if len(found) < _FEWEST:
        return ValueFit("motion.leap_short_m", "leap", shipped, count=len(found))
    median, interval, _ = middle(found, 0.04)
    return fit("motion.leap_short_m", "leap", shipped, median, interval, len(found))
