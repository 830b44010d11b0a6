"""How the boss walks, turns and lunges, and what the player's animations do, by whole ticks and by cut ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from soulsgraph.calibrate.moves import MoveData, counters_of, spells
from soulsgraph.calibrate.rows import FightRows, joined, pairs_of, wrapped_angles
from soulsgraph.calibrate.values import ValueFit, middle
from soulsgraph_envs.combat.rollout import Doubles, Flags, Integers
from soulsgraph_envs.core.scenario import BossData, Move, PlayerData
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.simulator.layout import FRAME_S, FRAMES_PER_S

#: A turn that ends so near its goal may have been cut short by it.
_NEAR_RAD = 0.08
#: A boss that moves slower than so much stands.
_STILL_M_S = 0.15
#: A lunge nearer than so much to the player's body may have been stopped by it.
_CLEAR_M = 0.25
#: How far a boss that goes ahead gets aside in a tick.
_SLID_M = 0.005
#: Of the speeds in a lunge or a turn, the quick ones are those in which it lasted the whole tick.
_WHOLE = 0.93
_FEWEST = 3
#: What of the interval of a window's start is its frame, which the leap's own has too.
_OPENS_S = 0.5 * FRAME_S
#: Spans of a lunge explain the way gone alike where they leave no more of it unexplained, a tick, than so much.
_ALIKE_M = 1e-4
#: A move stays on its spot where no longer time of it is unseen; a leap that was seen seldom may be off by more.
_UNSEEN_S, _SELDOM_S = 0.15, 0.2
#: A tick that turns by less than the first turned in no frame, by more than the second in one at least; a player
#: further aside than the third would have been turned to.
_STILL_RAD, _TURNING_RAD, _ASIDE_RAD = 1e-5, 1e-3, 0.02
#: Frames behind a landing in which a reading has shown the place.
_SETTLED = 7
#: The fewest of the player's ticks of which most may agree.
_FEWEST_OF_MODE = 4
#: How much farther than contact two readings are where no body was in the way between them.
_APART_M = 0.3
#: Stamina within so much of its most is full.
_FULL = 0.01
#: How far a place between two readings may be off, for a distance that decides.
_EDGE_M, _EDGE_RAD = 0.15, 0.1
#: What of that an edge itself may be off by.
_SLACK = 2.0 / 3.0


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
    before, after = pairs_of(fights)
    lasted_s, heading = after.clock_s - before.clock_s, before.raw[:, Raw.BOSS_ANGLE]
    # Stances play in a loop.
    advanced = after.boss_s - before.boss_s
    advanced = np.where(advanced < 0, advanced + after.raw[:, Raw.BOSS_ANIMATION_LENGTH_S], advanced)
    on = (after.boss == before.boss) & (np.abs(advanced - lasted_s) < 0.4 * np.maximum(lasted_s, FRAME_S))
    fight = np.repeat(np.arange(len(fights)), [len(one) - 1 for one in fights])
    dx, dy = (after.boss_m - before.boss_m).T
    turned, left = wrapped_angles(after.raw[:, Raw.BOSS_ANGLE] - heading), after.aside_rad
    towards = np.where(np.abs(left) > _NEAR_RAD, np.sign(left), np.sign(turned))
    middle_heading = heading + 0.5 * turned
    ticks = Ticks(
        number=after.boss, spell=fight * 1_000_000 + np.cumsum(~on), begin_s=after.boss_s - advanced,
        end_s=after.boss_s, gone_m=np.hypot(dx, dy),
        ahead_m=-np.sin(middle_heading) * dx - np.cos(middle_heading) * dy,
        turned_rad=turned * towards, begin_left_rad=np.abs(before.aside_rad), left_rad=np.abs(left),
        distance_m=np.minimum(after.distance_m, before.distance_m),
    )  # fmt: skip
    return ticks.where(on & (advanced > 0.5 * FRAME_S))


def stance_fits(
    ticks: Ticks, fights: Sequence[FightRows], boss: BossData, stances: Mapping[str, int]
) -> list[ValueFit]:
    """Return the boss's speeds between moves, and the distances at which it walks."""
    motion, speeds = boss.motion, ticks.ahead_m / ticks.lasted_s
    standing = np.isin(ticks.number, list(stances.values()))
    seen = {
        ("walk_m_s", "walk"): speeds[ticks.number == stances["approach"]],
        ("back_off_m_s", "back-off"): -speeds[ticks.number == stances["back_off"]],
        ("turn_rad_s", "turn"): (ticks.turned_rad / ticks.lasted_s)[standing & (ticks.left_rad > _NEAR_RAD)],
    }
    fits = []
    for (name, kind), values in seen.items():
        value = ValueFit(f"motion.{name}", kind, getattr(motion, name), count=len(values))
        if len(values) >= _FEWEST:
            median, interval, spread = middle(values, 0.002 * abs(float(np.median(values))))
            value = value.fit(median, interval, len(values), unlike=spread > 0.25 * abs(median))
        fits.append(value)
    # The frame that a row shows was chosen by the distance at its beginning: to stand, or to walk.
    choices = [stances[one] for one in ("idle", "approach", "back_off")]
    kept = [np.isin(fight.boss, choices) & (np.arange(len(fight)) > 0) for fight in fights]
    chosen = np.concatenate([fight.boss[own] for fight, own in zip(fights, kept, strict=True)])
    distances = np.concatenate([
        np.interp(fight.clock_s - FRAME_S, fight.clock_s, fight.distance_m)[own]
        for fight, own in zip(fights, kept, strict=True)
    ])  # fmt: skip
    for name, stance in (("approach_beyond_m", "approach"), ("back_off_within_m", "back_off")):
        value, walked = ValueFit(f"motion.{name}", "distances", getattr(motion, name)), chosen == stances[stance]
        fits.append(_edge_fit(value, distances, walked == (stance == "back_off")))
    return fits


def _edge_fit(value: ValueFit, seen: Doubles, below: Flags, off: float = _EDGE_M) -> ValueFit:
    """Return the edge that best separates rows (n,) said to be below it from the others; each may be `off` by so much.

    Where all are on one side it lies beyond them.
    """
    if value.shipped is None or not len(seen):
        return value
    if not below.any():
        least = float(seen.min()) + off
        return value.fit(min(value.shipped, least), (0.0, least), len(seen))
    if below.all():
        most = float(seen.max()) - off
        return value.fit(max(value.shipped, most), (most, np.inf), len(seen))
    found, low, high, _ = best_edge(seen, below)
    odd = (np.abs(seen - found) > off) & ((seen > found) == below)
    return value.fit(found, (low - _SLACK * off, high + _SLACK * off), len(below), float(odd.mean()) > 0.1)


def rear_fits(fights: Sequence[FightRows], boss: BossData) -> list[ValueFit]:
    """Return from what angle and within what distance a player is behind the boss, and how long it then turns.

    There it turns or counters, and it does neither anywhere else.
    """
    names, rear = boss.animations, boss.rear
    counters, places, lasted = counters_of(boss), list[Doubles](), list[float]()
    free = [names.idle.id, names.approach.id, names.back_off.id]
    for fight in fights:
        answers, turn_s, before = list[float](), np.nan, 0
        for spell in spells(fight):
            turns = spell.number == names.turn.id
            # In another loop of its animation it is still the same turn.
            if spell.first and (spell.number in counters or (turns and before != spell.number)):
                answers.append(spell.start_s)
            if before == names.turn.id and not turns:
                lasted.append(spell.start_s - turn_s - FRAME_S)
            turn_s = turn_s if turns and before == spell.number else spell.start_s if spell.first else np.nan
            before = spell.number
        # In the frame in which a move ends nothing is chosen.
        stands = fight.clock_s[np.isin(fight.boss, free) & (fight.boss_s > 1.5 * FRAME_S)]
        moments = np.concatenate([answers, stands]) - FRAME_S
        angle = np.abs(wrapped_angles(np.interp(moments, fight.clock_s, np.unwrap(fight.aside_rad))))
        distance = np.interp(moments, fight.clock_s, fight.distance_m)
        places.append(np.column_stack([angle, distance, np.arange(len(moments)) < len(answers)]))
    angle, distance, answered = np.concatenate(places).T
    edge, within = (ValueFit(f"rear.{name}", "rear", getattr(rear, name)) for name in ("angle_rad", "distance_m"))
    # Nearest the boss its distance does not matter.
    for most in (0.6 * rear.distance_m, None):
        own = distance < (most or within.low or 0.0)
        edge = _edge_fit(edge, angle[own], answered[own] == 0.0, _EDGE_RAD)
        own = angle > (edge.high or np.inf)
        within = _edge_fit(within, distance[own], answered[own] == 1.0)
    # Who is still behind after a turn is turned to again.
    known = [one for one in lasted if np.isfinite(one)]
    single = [one for one in known if one < 1.5 * min(known)]
    turn = ValueFit("rear.turn_s", "rear", rear.turn_s)
    return [edge, within, turn.fit(*middle(single, 0.5 * FRAME_S)[:2], len(single)) if single else turn]


def best_edge(values: Doubles, below: Flags) -> tuple[float, float, float, float]:
    """Return the edge that best separates values (n,) said to be below it, its span, and the share that is wrong."""
    order = np.argsort(values, kind="stable")
    ordered, above = values[order], ~below[order]
    wrong = np.append(0, np.cumsum(above)) + (~above).sum() - np.append(0, np.cumsum(~above))
    edges = np.concatenate([ordered[:1], 0.5 * (ordered[1:] + ordered[:-1]), ordered[-1:]])
    best = np.flatnonzero(wrong == wrong.min())
    low, high = ordered[max(int(best[0]) - 1, 0)], ordered[min(int(best[-1]), len(ordered) - 1)]
    return float(np.median(edges[best])), float(low), float(high), float(wrong.min() / len(values))


def tracking_fit(ticks: Ticks, stances: Sequence[int], boss: BossData, turn: ValueFit) -> ValueFit:
    """Return by how much faster the boss turns in a move, by the ticks of a move in which it turned all through."""
    value = ValueFit("motion.tracking_factor", "turn", boss.motion.tracking_factor)
    rates = (ticks.turned_rad / ticks.lasted_s)[~np.isin(ticks.number, stances) & (ticks.left_rad > _NEAR_RAD)]
    rates = rates[rates > 0.2]
    if len(rates):
        rates = rates[rates > _WHOLE * np.quantile(rates, 0.9)]
    if len(rates) < _FEWEST:
        return replace(value, count=len(rates))
    base = turn.estimate if turn.known and turn.estimate else boss.motion.turn_rad_s
    rate, (low, high), _ = middle(rates, 0.003 * float(np.median(rates)))
    # The rate alone is seen: the factor is as uncertain as what the boss turns by when it stands.
    slow, fast = turn.low or base * 0.5, turn.high or base * 2.0
    return value.fit(rate / base, (low / fast, high / slow), len(rates))


def tracks_fit(value: ValueFit, ticks: Ticks) -> ValueFit:
    """Return until when the boss turns in a move: it did after each tick that turned it, not after one that did not.

    A tick says nothing where the player stood straight ahead.
    """
    still = (np.abs(ticks.turned_rad) < _STILL_RAD) & (np.minimum(ticks.left_rad, ticks.begin_left_rad) > _ASIDE_RAD)
    turning = np.abs(ticks.turned_rad) > _TURNING_RAD
    # A tick that turned turned in its first frame at least.
    moments = (ticks.begin_s + np.where(turning, 0.75 * FRAME_S, 0.25 * FRAME_S))[still | turning]
    turned = turning[still | turning]
    if turned.all():
        return replace(value, count=len(turned))
    if not turned.any():
        return value.fit(0.0, (0.0, max(float(moments.min()) - 0.1, 0.0)), int(still.sum()))
    found, low, high, wrong = best_edge(moments, turned)
    if moments[~turned].max() < found:
        # It was seen to turn until then, and nobody saw it stop.
        return replace(value, count=len(turned))
    half = 0.5 * FRAME_S
    return value.fit(found, (low - half, high + half), len(turned), wrong > 0.1)


def lunge_fits(key: str, ticks: Ticks, contact: float, move: Move | None, factor: float) -> list[ValueFit]:
    """Return speed, begin and end of a move's lunge, by its ticks; nothing of a move that stays on its spot."""
    shipped = (move.lunge_m_s, *(end * factor for end in move.lunge_s)) if move else (None, None, None)
    names = (("lunge_m_s", "lunge"), ("lunge_s.0", "lunge times"), ("lunge_s.1", "lunge times"))
    values = [ValueFit(f"{key}.{name}", kind, one) for (name, kind), one in zip(names, shipped, strict=True)]
    # A boss that goes aside slides along a wall, which stops it as well.
    walled = np.isin(ticks.spell, ticks.spell[ticks.gone_m - np.abs(ticks.ahead_m) > _SLID_M])
    clear = ticks.where(~walled & ((ticks.distance_m > contact + _CLEAR_M) | (move is not None and move.runs_through)))
    speed = clear.ahead_m / clear.lasted_s
    if len(speed) < 2 * _FEWEST:
        return values
    going = speed > _STILL_M_S
    count = int(going.sum())
    if count < _FEWEST:
        still = not count and _longest_gap_s(clear, float(ticks.end_s.max())) < _UNSEEN_S
        return [values[0].fit(0.0, (0.0, 0.0), len(speed)), *values[1:]] if still else values
    begins, ends, speeds, chosen, rms = _fit_span(clear, shipped[0])
    begin, end, best = (float(one[chosen]) for one in (begins, ends, speeds))
    unlike = rms > 0.3 * best * float(np.median(clear.lasted_s))
    wide = 0.75 * FRAME_S if rms < 0.03 else 4.0 * FRAME_S
    whole = (clear.begin_s >= begin - 1e-6) & (clear.end_s <= end + 1e-6)
    loose = 0.01 if whole.sum() >= _FEWEST else 0.15
    # An end counts where ticks beside it show that the boss stood; a body in its way hides that.
    earliest = clear.end_s[~going & (clear.end_s <= begin + FRAME_S)].max(initial=0.0)
    latest = clear.begin_s[~going & (clear.begin_s >= end - FRAME_S)].min(initial=np.inf)
    spans = (
        ((1.0 - loose) * float(speeds.min()), (1.0 + loose) * float(speeds.max())),
        (min(float(begins.min()) - wide, begin, float(earliest)), float(begins.max()) + wide),
        (float(ends.min()) - wide, max(float(ends.max()) + wide, end, float(latest))),
    )
    return [
        value.fit(one, span, count, unlike) for value, one, span in zip(values, (best, begin, end), spans, strict=True)
    ]


def _longest_gap_s(ticks: Ticks, until_s: float) -> float:
    """Return the longest time of a move, until a moment, that no tick shows."""
    order = np.argsort(ticks.begin_s, kind="stable")
    seen = np.concatenate([[0.0], np.maximum.accumulate(ticks.end_s[order])])
    return float((np.append(ticks.begin_s[order], until_s) - seen).max())


def _fit_span(ticks: Ticks, shipped: float | None) -> tuple[Doubles, Doubles, Doubles, int, float]:
    """Return begins, ends and speeds of the spans of whole frames that best explain the way gone, and what is left.

    All of them explain it as well: a tick that was gone all through at one speed may have been gone for a frame at six
    times that. The shipped speed decides between them: which one it is comes before what is left.
    """
    begins, ends = ticks.begin_s * FRAMES_PER_S, ticks.end_s * FRAMES_PER_S
    gone, going = ticks.ahead_m[:, None], ticks.ahead_m > _STILL_M_S * ticks.lasted_s
    early, late = np.floor(begins[going].min()), np.ceil(ends[going].max())
    firsts = np.arange(early - 1, np.floor(max(np.quantile(begins[going], 0.1), early)) + 14)
    lasts = np.arange(np.floor(min(np.quantile(ends[going], 0.9), late)) - 14, late + 2)
    costs, speeds = np.full((2, len(firsts), len(lasts)), np.inf)
    for place, first in enumerate(firsts):
        inside = np.clip(np.minimum(ends[:, None], lasts) - np.maximum(begins[:, None], first), 0.0, None) * FRAME_S
        speeds[place] = (inside * gone).sum(axis=0) / np.maximum((inside**2).sum(axis=0), 1e-12)
        wrong = np.abs(gone - speeds[place] * inside)
        # Of a tick that a wall or a body cut short one does not know it: large misses count as moderate ones.
        costs[place] = np.where(lasts > first, np.minimum(wrong, 0.15).mean(axis=0), np.inf)
    rows, columns = np.nonzero(costs <= costs.min() + _ALIKE_M)
    alike = speeds[rows, columns]
    chosen = int(np.argmin(alike if not shipped else np.abs(np.log(np.maximum(alike, 1e-9) / shipped))))
    whole = (begins >= firsts[rows[chosen]]) & (ends <= lasts[columns[chosen]])
    if whole.sum() >= _FEWEST:
        alike = np.full(len(alike), np.median(ticks.ahead_m[whole] / ticks.lasted_s[whole]))
    begun, cost = np.maximum(firsts[rows], 0.0) * FRAME_S, float(costs[rows[chosen], columns[chosen]])
    return begun, lasts[columns] * FRAME_S, alike, chosen, cost


def leap_fit(value: ValueFit, ticks: Ticks, opens_s: tuple[float, float, float]) -> ValueFit:
    """Return how long a leap takes before its window opens, by the ticks of its move.

    When it takes off is seen; `opens_s` is when the window opens, with the interval.
    """
    window_s, earliest, latest = opens_s
    ticks, found = ticks.where(ticks.begin_s < window_s), list[float]()
    for spell in np.unique(ticks.spell):
        own = ticks.where(ticks.spell == spell)
        speed = own.gone_m / own.lasted_s
        whole = (own.end_s <= window_s + 1e-6) & (speed > 2.0)
        if whole.sum() < 2:
            continue
        first = int(np.flatnonzero(speed > _STILL_M_S)[0])
        lasted = float(own.gone_m[first] / float(np.median(speed[whole][-3:])))
        if lasted <= (min(own.end_s[first], window_s) - own.begin_s[first]) * 1.05:
            found.append(window_s - (own.end_s[first] - lasted))
    if not found:
        return value
    median, (low, high), _ = middle(found, 0.75 * FRAME_S if len(found) >= _FEWEST else _SELDOM_S)
    span = (min(low, low + earliest - window_s + _OPENS_S), max(high, high + latest - window_s - _OPENS_S))
    return value.fit(median, span, len(found))


def leap_short_fit(data: Sequence[tuple[MoveData, float, float]], shipped: float) -> ValueFit:
    """Return how far short of the player leaps land: of moves with the seconds of their take-off and their window."""
    found = list[float]()
    for move, begin_s, end_s in data:
        take_off, lands = max(round(begin_s * FRAMES_PER_S) - 1, 0), round(end_s * FRAMES_PER_S) + _SETTLED
        if lands < move.frames:
            seen = move.seen[:, lands]
            left, landed = move.boss_m[:, seen, take_off], move.boss_m[:, seen, lands]
            short = np.hypot(*(left + move.way_m[:, seen, take_off] - landed))
            found += short[np.hypot(*(landed - left)) > 0.5].tolist()
    value = ValueFit("motion.leap_short_m", "leap", shipped, count=len(found))
    return value if len(found) < _FEWEST else value.fit(*middle(found, 0.04)[:2], len(found))


def player_fits(fights: Sequence[FightRows], player: PlayerData, contact: float) -> list[ValueFit]:
    """Return the player's values; nearer than `contact` m the boss's body is in the way."""
    names, (before, after) = player.animations, pairs_of(fights)
    lasted_s, was, now = after.clock_s - before.clock_s, before.player, after.player
    clear = np.minimum(before.distance_m, after.distance_m) > contact + _APART_M
    same = (was == now) & (lasted_s > 0.0) & clear
    speeds = np.hypot(*(after.player_m - before.player_m).T) / np.maximum(lasted_s, 1e-9)
    ahead = before.pressed(Control.FORWARD) & ~before.pressed(Control.LEFT | Control.RIGHT | Control.BACK)
    quick = (after.player_s > before.player_s) & (after.player_s < player.roll.slow_after_s - 0.5 * FRAME_S)
    (begins, ends), full = (one.raw[:, Raw.STAMINA] for one in (before, after)), after.raw[:, Raw.STAMINA_MAX] - _FULL
    fresh = begins >= before.raw[:, Raw.STAMINA_MAX] - _FULL
    blows = (names.light_1.id, names.light_2.id, names.light_3.id)
    roll, light = (np.isin(now, ids) & ~np.isin(was, ids) & fresh for ids in ((names.roll.id,), blows))
    # Ticks in which nothing else happened to stamina.
    free = np.isin(was, (names.idle.id, names.run.id)) & np.isin(now, (names.idle.id, names.run.id))
    gained = ends - begins
    whole = (gained > 0.0) & (ends < full) & free & (lasted_s > 0.0)
    regained = gained / np.maximum(lasted_s, 1e-9)
    struck = (was == names.roll.id) & np.isin(now, (names.stagger.id, names.knockdown.id))
    # The frame that strikes has counted the roll's clock on, and begins that of the blow at 0.
    protected_s = before.player_s + after.clock_s - before.clock_s - after.player_s
    return [
        _mode_fit(ValueFit("run.speed_m_s", "run", player.run.speed_m_s), speeds[same & (now == names.run.id) & ahead]),
        _mode_fit(
            ValueFit("roll.speed_m_s", "roll", player.roll.speed_m_s), speeds[same & (now == names.roll.id) & quick]
        ),
        _mode_fit(ValueFit("roll.cost", "costs", player.roll.cost), (begins - ends)[roll]),
        _mode_fit(ValueFit("attack.cost", "costs", player.attack.cost), (begins - ends)[light]),
        _mode_fit(ValueFit("body.regeneration_per_s", "stamina", player.body.regeneration_per_s), regained[whole]),
        protection_fit(ValueFit("roll.invulnerable_s", "protection", player.roll.invulnerable_s), protected_s[struck]),
    ]


def _mode_fit(value: ValueFit, values: Doubles) -> ValueFit:
    """Return the value that most ticks agree on; those cut short by something else are fewer."""
    if len(values) < _FEWEST_OF_MODE:
        return replace(value, count=len(values))
    ordered = np.sort(values)
    # The half of all values that lie closest together.
    half = max(len(ordered) // 2, 2)
    first = int(np.argmin(ordered[half - 1 :] - ordered[: len(ordered) - half + 1]))
    closest = ordered[first : first + half]
    median, interval, _ = middle(closest, 0.003 * abs(float(np.median(closest))))
    return value.fit(median, interval, len(values))


def protection_fit(value: ValueFit, moments_s: Doubles) -> ValueFit:
    """Return how long a roll protects: blows that waited in an open window for its end come in the frame after.

    No blow comes earlier, but for one in twenty that may be dated wrong. Where the first do not stand out it ends
    before them.
    """
    moments = np.sort(np.round(moments_s * FRAMES_PER_S).astype(np.int64))
    if value.shipped is None or len(moments) < 2:
        return replace(value, count=len(moments))
    first = moments[len(moments) // 20]
    waited, later = int((moments == first).sum()), int((moments > first).sum())
    until_s = float(first - 1) * FRAME_S
    if waited >= _FEWEST and waited * (moments[-1] - first) > 3 * later:
        return value.fit(until_s, (until_s - 0.5 * FRAME_S, until_s + 0.5 * FRAME_S), len(moments))
    return value.fit(min(value.shipped, until_s), (0.0, until_s + 0.5 * FRAME_S), len(moments))


def contact_fit(fights: Sequence[FightRows], shipped: float, player: PlayerData) -> ValueFit:
    """Return the boss's radius: bodies that touch stay so far apart, but for a charge."""
    distances = joined(fights).distance_m
    near = np.sort(distances)[: max(len(distances) // 20, _FEWEST_OF_MODE)]
    counts, edges = np.histogram(near, bins=np.arange(near[0] - 0.005, near[-1] + 0.02, 0.01))
    at = int(np.argmax(counts))
    touching = near[(near >= edges[at]) & (near <= edges[at + 1])]
    few = counts[at] < _FEWEST_OF_MODE or counts[at] < 0.2 * len(near[near <= edges[at + 1]])
    radius = np.nan if few else float(np.median(touching)) - player.body.radius_m
    return ValueFit("radius_m", "radius", shipped).fit(radius, (radius - 0.01, radius + 0.01), int(counts[at]))
