"""Fit a boss's data to recorded fights, value by value, and say of each how well it is known."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from soulsgraph.calibrate.choice import choice_fits
from soulsgraph.calibrate.hit_windows import WindowData, assign_windows, shipped_windows, spread_fit, window_fits
from soulsgraph.calibrate.lags import Lag, Source, align, clock_is_right
from soulsgraph.calibrate.motion import (
    Ticks,
    leap_fits,
    leap_short_fit,
    lunge_fits,
    stance_fits,
    ticks_of,
    tracking_fit,
    tracks_fit,
)
from soulsgraph.calibrate.moves import MoveCourse, MoveData, move_data
from soulsgraph.calibrate.player import contact_fit, player_fits
from soulsgraph.calibrate.rows import FIRST_UNKNOWN, FightSet, contact_m
from soulsgraph.calibrate.values import ValueFit, Verdict, by_verdict, fit
from soulsgraph_envs.core.scenario import BossData, Move, PlayerData
from soulsgraph_envs.simulator.layout import FRAMES_PER_S


@dataclass(frozen=True)
class Calibration:
    """What a boss's data are by recorded fights: values of the boss and of the player, and moves the data lack.

    `notices` are sentences on what of the fights, or of the boss, is otherwise than the model has it.
    """

    fights: int
    seconds: float
    boss: Sequence[ValueFit]
    player: Sequence[ValueFit]
    new_moves: Mapping[str, str]
    notices: Sequence[str] = ()

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many values of the boss there are of each verdict."""
        return by_verdict(self.boss)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "fights": self.fights,
            "seconds": round(self.seconds, 3),
            "counts": self.counts,
            "boss": [vars(value) for value in self.boss],
            "player": [vars(value) for value in self.player],
            "new_moves": dict(self.new_moves),
            "notices": list(self.notices),
        }


def calibrate(fought: FightSet, boss: BossData, player: PlayerData) -> Calibration:
    """Fit a boss's data to fights with a player.

    What was read late is put right first; where that can't be, the values that it bends are doubtful.
    """
    fights, lags = align(fought.fights, boss, player)
    own = player_fits(fights, player, contact_m(boss, player))
    player = _as_seen(player, own)
    stances = {name: animation.id for name, animation in boss.animations.known().items()}
    ticks = ticks_of(fights)
    first = move_data(fights, player, set(stances.values()))
    keys = move_keys(boss, first, fought.unknown)
    between = {*stances.values(), *(number for number in first if number not in keys)}
    speeds = stance_fits(ticks, fights, boss, stances)
    tracking, _ = tracking_fit(ticks, list(stances.values()), boss, speeds[2])
    shipped = {move.id: move for move in boss.moves}
    moved = {
        number: _movement(
            key, ticks.where(ticks.number == number), first.get(number), shipped.get(number), boss, player
        )
        for number, key in keys.items()
    }
    courses = {
        number: _course_of(keys[number], found, _opens(first.get(number), shipped.get(number), boss)[0])
        for number, found in moved.items()
    }
    again = move_data(fights, player, set(stances.values()), courses)
    values = [*speeds, tracking, _landing(again, moved, keys, shipped, boss)]
    values += choice_fits(fights, boss, between, keys)
    struck = {number: _struck(again.get(number), shipped.get(number), boss) for number in keys}
    values.append(_spread(again, struck, boss))
    boss = _spread_as_seen(boss, values[-1])
    for number, key in keys.items():
        values += moved[number]
        values += _windows(key, again.get(number), struck[number], shipped.get(number), boss)
    values.append(contact_fit(fights, boss.radius_m, player))
    names = {keys[number]: name for number, name in fought.unknown.items() if number in keys}
    timed = clock_is_right(fights)
    bent = {kind for source, lag in lags.items() if not lag.steady for kind in _BENT[source]}
    bent |= set() if timed else {*_TIMED}
    values, own = ([_doubted(value, bent) for value in part] for part in (values, own))
    notices = [*_reading_notices(lags, timed), *_move_notices(values, names, shipped.values())]
    return Calibration(len(fights), fought.seconds, values, own, names, notices)


#: The kinds of values that depend on when the boss's animations play, and those that each unsteady source biases.
_TIMED = ("tracking", "lunge", "lunge times", "leap", "start", "end", "reach", "arc", "damage", "distances")
_BENT: Mapping[Source, Sequence[str]] = {
    "the boss's animation": _TIMED,
    "the player's animation": ("start", "end", "reach", "arc", "damage", "run", "roll", "costs", "protection"),
    "the player's HP": ("damage", "damage spread"),
}
#: A move is rarer than shipped if its shipped weight exceeds the upper end by this factor, log(1000) / log(20): by the
#: upper end it is never chosen with a probability of 1 in 20, by that weight of 1 in 1,000.
_RARER = 2.3


def _doubted(value: ValueFit, kinds: Collection[str]) -> ValueFit:
    return replace(value, verdict="doubtful") if value.kind in kinds and value.known else value


def _reading_notices(lags: Mapping[Source, Lag], timed: bool) -> Iterator[str]:
    for source, lag in lags.items():
        if not lag.steady:
            yield f"{source} does not go with the places: what depends on its time is doubtful"
        elif lag.rows:
            count, when = abs(lag.rows), "late" if lag.rows > 0 else "early"
            yield f"{source} was read {count} {'tick' if count == 1 else 'ticks'} {when}, which is corrected"
    if not timed:
        yield "the clock does not go with the animations, as where ticks are missing: times are doubtful"


def _move_notices(values: Sequence[ValueFit], new: Mapping[str, str], shipped: Iterable[Move]) -> Iterator[str]:
    if new:
        yield f"moves that the data lack: {', '.join(new.values())}"
    # Only of a weight that was never chosen the lower end is 0.
    rare = {value.key: value for value in values if value.kind == "weights" and value.low == 0.0}
    seldom = ((move, rare[key]) for move in shipped if (key := f"moves.{move.title}.weight") in rare)
    absent = [
        f"{move.title} ({value.count} times at hand)"
        for move, value in seldom
        if value.high is not None and move.weight > _RARER * value.high
    ]
    if absent:
        yield f"moves that were never chosen, rarer than shipped: {', '.join(absent)}"


def _as_seen(player: PlayerData, own: Sequence[ValueFit]) -> PlayerData:
    """Return the player with the protection of the roll as it was seen: where it ends, a miss is one."""
    found = next(value for value in own if value.key == "roll.invulnerable_s")
    if found.estimate is None or not found.differs:
        return player
    return replace(player, roll=replace(player.roll, invulnerable_s=found.estimate))


def move_keys(boss: BossData, seen: Mapping[int, MoveData], unknown: Mapping[int, str]) -> dict[int, str]:
    """Return the keys of the shipped moves and of those that the data lack, by their numbers.

    An animation that the data lack is a move where it is called an attack or a blow came in it.
    """
    keys = {move.id: f"moves.{move.title}" for move in boss.moves}
    lacking = {number: unknown[number] for number in seen if number >= FIRST_UNKNOWN}
    attacks = (number for number, name in lacking.items() if "Attack" in name or len(seen[number].hits))
    return keys | {number: f"moves.{lacking[number]}" for number in attacks}


def _movement(
    key: str, ticks: Ticks, data: MoveData | None, move: Move | None, boss: BossData, player: PlayerData
) -> list[ValueFit]:
    """Return length, tracking, lunge and leap of one move."""
    factor = boss.time_factor
    length = move.length_s * factor if move else None
    values = [ValueFit(f"{key}.length_s", "length", length)]
    if data is not None:
        half = 0.5 / FRAMES_PER_S
        span = (data.length_s - half, data.length_s + half)
        values = [fit(f"{key}.length_s", "length", length, data.length_s, span, len(data.spells))]
    values.append(tracks_fit(f"{key}.tracks_s", ticks, move.tracks_s * factor if move else None))
    if move is None or not move.leap_s:
        return [*values, *lunge_fits(key, ticks, contact_m(boss, player), move, factor)]
    opens = _opens(data, move, boss)
    return [*values, *leap_fits(key, ticks, opens, move.leap_s * factor)]


def _opens(data: MoveData | None, move: Move | None, boss: BossData) -> tuple[float, float, float]:
    """Return when the first window of a move opens, s, with its interval: as seen, else as shipped.

    Of a move that the data lack it is 0.
    """
    if move is None:
        return 0.0, 0.0, 0.0
    found = None if data is None else assign_windows(data, move.windows, boss.time_factor)[0]
    if found is None:
        return (move.windows[0].time_s[0] * boss.time_factor,) * 3
    opens, low, high = (frame / FRAMES_PER_S for frame in found.opens)
    return opens, low, high


def _course_of(key: str, found: Sequence[ValueFit], opens_s: float) -> MoveCourse:
    """Return when the boss turns and goes in a move, of values that are determined; a leap ends as a window opens."""
    sure = {value.key.removeprefix(f"{key}."): value.estimate for value in found if value.verdict == "determined"}
    begin, end = sure.get("lunge_s.0"), sure.get("lunge_s.1")
    goes = (begin, end) if begin is not None and end is not None else None
    if (leap := sure.get("leap_s")) is not None:
        goes = (opens_s - leap, opens_s)
    return MoveCourse(sure.get("tracks_s"), goes)


def _landing(
    data: Mapping[int, MoveData],
    moved: Mapping[int, Sequence[ValueFit]],
    keys: Mapping[int, str],
    shipped: Mapping[int, Move],
    boss: BossData,
) -> ValueFit:
    """Return how far short of the player leaps land."""
    leaps = []
    for number, values in moved.items():
        lasts = next((value.estimate for value in values if value.key == f"{keys[number]}.leap_s"), None)
        if lasts is not None and number in data:
            opens, *_ = _opens(data[number], shipped[number], boss)
            leaps.append((data[number], opens - lasts, opens))
    return leap_short_fit(leaps, boss.motion.leap_short_m)


def _struck(data: MoveData | None, move: Move | None, boss: BossData) -> Sequence[WindowData | None]:
    """Return the blows of each window of a move; None of one that nobody saw or whose blows can't be dated."""
    windows = shipped_windows(move)
    found = [None] * len(windows) if data is None else assign_windows(data, windows, boss.time_factor)
    # Blows that neither stagger nor come once are not dated: what they are stays as shipped.
    undated = [not own.staggers or bool(own.every_s) for own in windows]
    return [None if place < len(windows) and undated[place] else one for place, one in enumerate(found)]


def _spread(
    data: Mapping[int, MoveData], struck: Mapping[int, Sequence[WindowData | None]], boss: BossData
) -> ValueFit:
    """Return the spread of damage; of a boss with a rage as shipped, for nobody sees which blows are raging."""
    if boss.enraged.below_hp_ratio > 0.0:
        return ValueFit("damage_spread", "damage spread", boss.damage_spread)
    return spread_fit([(data[number], one) for number, own in struck.items() for one in own if one is not None], boss)


def _spread_as_seen(boss: BossData, spread: ValueFit) -> BossData:
    """Return the boss with the largest spread of damage that may be, where it is surely not as shipped.

    The spread says which means a blow allows: one that is too small would leave out the true one.
    """
    if spread.high is None or spread.holds_shipped:
        return boss
    return replace(boss, damage_spread=spread.high)


def _windows(
    key: str, data: MoveData | None, struck: Sequence[WindowData | None], move: Move | None, boss: BossData
) -> Iterator[ValueFit]:
    """Yield the values of a move's windows."""
    windows = shipped_windows(move)
    for place, one in enumerate(struck):
        own = windows[place] if place < len(windows) else None
        yield from window_fits(f"{key}.windows.{place}", data, one, own, boss)
