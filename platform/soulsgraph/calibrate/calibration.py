"""Fit a boss's data to recorded fights, value by value, and say of each how well it is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from math import inf
from typing import Any

from soulsgraph.calibrate.choice import choice_fits
from soulsgraph.calibrate.hit_windows import WindowData, assign_windows, clean_damage, spread_fit, window_fits
from soulsgraph.calibrate.lags import Lag, Source, align, clock_is_right
from soulsgraph.calibrate.motion import (
    Ticks,
    contact_fit,
    leap_fit,
    leap_short_fit,
    lunge_fits,
    player_fits,
    rear_fits,
    stance_fits,
    ticks_of,
    tracking_fit,
    tracks_fit,
)
from soulsgraph.calibrate.moves import MoveCourse, MoveData, move_data
from soulsgraph.calibrate.rage import raging_kinds
from soulsgraph.calibrate.rows import FIRST_UNKNOWN, FightSet, contact_m
from soulsgraph.calibrate.values import VERDICTS, ValueFit, Verdict
from soulsgraph_envs.core.scenario import BossData, HitWindow, Move, PlayerData
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
        return {verdict: sum(one.verdict == verdict for one in self.boss) for verdict in VERDICTS}

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


@dataclass(frozen=True)
class _SeenMove:
    """One move as it is shipped, None for one that the data lack, and as it was seen, None for one that nobody saw.

    `time_factor` is that of the boss; `moved` are the values of its length, tracking, lunge and leap.
    """

    key: str
    shipped: Move | None
    data: MoveData | None
    time_factor: float
    moved: Sequence[ValueFit] = ()

    @property
    def windows(self) -> Sequence[HitWindow]:
        """The shipped windows."""
        return self.shipped.windows if self.shipped else ()

    @property
    def opens_s(self) -> tuple[float, float, float]:
        """When the first window opens, with its interval: as seen, else as shipped, 0 of a move that the data lack."""
        if self.shipped is None:
            return 0.0, 0.0, 0.0
        if not self._assigned or (found := self._assigned[0]) is None:
            return (self.windows[0].time_s[0] * self.time_factor,) * 3
        opens, low, high = (frame / FRAMES_PER_S for frame in found.opens)
        return opens, low, high

    @cached_property
    def _assigned(self) -> list[WindowData | None]:
        return [] if self.data is None else assign_windows(self.data, self.windows, self.time_factor)

    def movement(self, ticks: Ticks, contact: float) -> list[ValueFit]:
        """Return length, tracking, lunge and leap by the ticks of the move."""
        move, key, factor = self.shipped, self.key, self.time_factor
        length = ValueFit(f"{key}.length_s", "length", move.length_s * factor if move else None)
        if (data := self.data) is not None:
            half = 0.5 / FRAMES_PER_S
            length = length.fit(data.length_s, (data.length_s - half, data.length_s + half), len(data))
        tracks = ValueFit(f"{key}.tracks_s", "tracking", move.tracks_s * factor if move else None)
        values = [length, tracks_fit(tracks, ticks)]
        if move is None or not move.leap_s:
            return [*values, *lunge_fits(key, ticks, contact, move, factor)]
        return [*values, leap_fit(ValueFit(f"{key}.leap_s", "leap", move.leap_s * factor), ticks, self.opens_s)]

    @property
    def course(self) -> MoveCourse:
        """When the boss turns and goes in it, of values that are determined; a leap ends as a window opens."""
        sure = {
            value.key.removeprefix(f"{self.key}."): value.estimate
            for value in self.moved
            if value.verdict == "determined" and value.estimate is not None
        }
        course = MoveCourse((-inf, sure["tracks_s"])) if "tracks_s" in sure else MoveCourse()
        if "leap_s" in sure:
            opens_s, *_ = self.opens_s
            return course._replace(goes_s=(opens_s - sure["leap_s"], opens_s))
        both = "lunge_s.0" in sure and "lunge_s.1" in sure
        return course._replace(goes_s=(sure["lunge_s.0"], sure["lunge_s.1"])) if both else course

    @property
    def struck(self) -> list[tuple[HitWindow | None, WindowData | None]]:
        """The shipped windows with the blows of each: None of one that nobody saw or whose blows can't be dated."""
        # Blows that neither stagger nor come once are not dated: what they are stays as shipped.
        return [
            (own, None if own is not None and (not own.staggers or own.every_s) else one)
            for own, one in zip_longest(self.windows, self._assigned)
        ]


def calibrate(fought: FightSet, boss: BossData, player: PlayerData) -> Calibration:
    """Fit a boss's data to fights with a player.

    What was read late is put right first; where that can't be, the values that it bends are doubtful.
    """
    fights, lags = align(fought.fights, boss, player)
    contact = contact_m(boss, player)
    own = player_fits(fights, player, contact)
    # Within what may be protection a miss says nothing: the whole roll where no blow ended it.
    protected = next(value for value in own if value.key == "roll.invulnerable_s")
    if not (protected.verdict == "determined" and protected.holds_shipped):
        until_s = protected.estimate if protected.verdict == "determined" else protected.high
        player = replace(player, roll=replace(player.roll, invulnerable_s=until_s or player.animations.roll.length_s))
    stances = {name: animation.id for name, animation in boss.animations.known().items()}
    ticks, standing = ticks_of(fights), list(stances.values())
    first = move_data(fights, player, standing)
    keys, shipped = move_keys(boss, first, fought.unknown), {move.id: move for move in boss.moves}
    speeds, behind = stance_fits(ticks, fights, boss, stances), rear_fits(fights, boss)
    # What comes for a player behind is counted by when it is seen to come.
    seen = (value.shipped if value.holds_shipped else value.estimate for value in behind)
    angle, within, turn = (one or 0.0 for one in seen)
    choosing = replace(boss, rear=replace(boss.rear, angle_rad=angle, distance_m=within, turn_s=turn))
    moves: dict[int, _SeenMove] = {}
    for number, key in keys.items():
        move = _SeenMove(key, shipped.get(number), first.get(number), boss.time_factor)
        moves[number] = replace(move, moved=move.movement(ticks.where(ticks.number == number), contact))
    again = move_data(fights, player, standing, {number: move.course for number, move in moves.items()})
    moves = {number: replace(move, data=again.get(number)) for number, move in moves.items()}
    leaps = []
    for move in moves.values():
        lasts = next((value.estimate for value in move.moved if value.key == f"{move.key}.leap_s"), None)
        if lasts is not None and move.data is not None:
            opens, *_ = move.opens_s
            leaps.append((move.data, opens - lasts, opens))
    between = {*standing, *(number for number in first if number not in keys)}
    values = [*speeds, tracking_fit(ticks, standing, boss, speeds[2]), *behind]
    values += [leap_short_fit(leaps, boss.motion.leap_short_m), *choice_fits(fights, choosing, between, keys)]
    # Of a boss with a rage the spread of damage is as shipped: nobody sees which blows are raging.
    raging = boss.enraged.below_hp_ratio > 0.0
    dated = [(move.data, one) for move in moves.values() for _, one in move.struck if not raging]
    spread = spread_fit([clean_damage(data, one.own) for data, one in dated if data is not None and one], boss)
    values.append(spread)
    # It says which means a blow allows: one that is too small would leave out the true one.
    if spread.high is not None and not spread.holds_shipped:
        boss = replace(boss, damage_spread=spread.high)
    for move in moves.values():
        values += move.moved
        for place, (window, one) in enumerate(move.struck):
            values += window_fits(f"{move.key}.windows.{place}", move.data, one, window, boss)
    values.append(contact_fit(fights, boss.radius_m, player))
    timed = clock_is_right(fights)
    bent = {kind for source, lag in lags.items() if not lag.steady for kind in _BENT[source]}
    bent |= set() if timed else {*_TIMED, *_WAITS}
    raged = [] if raging else raging_kinds(fights, player, standing)
    bent |= {*_RAGED} if raged else set()
    values, own = (
        [replace(value, verdict="doubtful") if value.kind in bent and value.known else value for value in part]
        for part in (values, own)
    )
    names = {keys[number]: name for number, name in fought.unknown.items() if number in keys}
    notices = [*_notices(lags, timed, values, names, boss.moves)]
    if raged:
        notices.append(
            f"with less HP the boss's {' and '.join(raged)} are otherwise, as in a rage, which is not fitted"
        )
    return Calibration(len(fights), fought.seconds, values, own, names, notices)


#: The kinds of values that depend on when the boss's animations play, and those that each unsteady source biases.
_TIMED = ("tracking", "lunge", "lunge times", "leap", "start", "end", "reach", "arc", "damage", "distances")
_BENT: Mapping[Source, Sequence[str]] = {
    "the boss's animation": _TIMED,
    "the player's animation": ("start", "end", "reach", "arc", "damage", "run", "roll", "costs", "protection"),
    "the player's HP": ("damage", "damage spread"),
}
#: What depends on the time between animations, and what a rage biases that the data lack.
_WAITS = ("wait low", "wait high", "near waits", "chains", "rear")
_RAGED = (*_WAITS, "damage", "damage spread")
#: A move is rarer than shipped if its shipped weight exceeds the upper end by this factor, log(1000) / log(20): by the
#: upper end it is never chosen with a probability of 1 in 20, by that weight of 1 in 1,000.
_RARER = 2.3


def _notices(
    lags: Mapping[Source, Lag], timed: bool, values: Sequence[ValueFit], new: Mapping[str, str], shipped: Sequence[Move]
) -> Iterator[str]:
    for source, lag in lags.items():
        if not lag.steady:
            yield f"{source} does not go with the places: what depends on its time is doubtful"
        elif lag.rows:
            count, when = abs(lag.rows), "late" if lag.rows > 0 else "early"
            yield f"{source} was read {count} {'tick' if count == 1 else 'ticks'} {when}, which is corrected"
    if not timed:
        yield "the clock does not go with the animations, as where ticks are missing: times are doubtful"
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


def move_keys(boss: BossData, seen: Mapping[int, MoveData], unknown: Mapping[int, str]) -> dict[int, str]:
    """Return the keys of the shipped moves and of those that the data lack, by their numbers.

    An animation that the data lack is a move where it is called an attack or a blow came in it.
    """
    keys = {move.id: f"moves.{move.title}" for move in boss.moves}
    lacking = {number: unknown[number] for number in seen if number >= FIRST_UNKNOWN}
    attacks = (number for number, name in lacking.items() if "Attack" in name or len(seen[number].hits))
    return keys | {number: f"moves.{lacking[number]}" for number in attacks}
