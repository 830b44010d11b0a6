"""Recorded fights beside a scenario: errors of replayed rows, and what the boss does in each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from soulsgraph.calibrate.replay import FightTrace, RowReplay
from soulsgraph.runs.evaluate import EVALUATION_SEED
from soulsgraph_envs.combat.rollout import Doubles, Flags, Integers
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import Move, Scenario, load_boss
from soulsgraph_envs.core.seeds import Seeds, derive_seeds
from soulsgraph_envs.core.state import Raw, RawValues
from soulsgraph_envs.simulator.layout import FRAME_S, FRAMES_PER_S, Stance

#: Seconds after a row at which the simulator is compared with what was recorded.
HORIZONS_S = (0.1, 0.5, 2.0)
#: A row counts for a horizon if it is at most this far from it: half a control tick.
_HALF_TICK_S = 0.05
WITHIN, BETWEEN = "within a move", "between moves"
SITUATIONS = (WITHIN, BETWEEN)
_STREAM = 70
#: How often what follows a move is drawn, for how long it is waited for, and in how many bins of distance moves fall.
_DRAWS, _LONGEST_WAIT_S, _BINS = 4, 8.0, 4

#: Called after each step of the work.
OnStep = Callable[[], None]


def silent() -> None:
    """Take no notice of a step."""


class Measure(NamedTuple):
    """A quantity of which the simulator is in error: what it is called, its unit, and the digits that are shown."""

    title: str
    unit: str
    digits: int


#: Errors by name; those of animations and blows are shares of rows.
MEASURES: Mapping[str, Measure] = {
    "player_place": Measure("the player's place", "m", 3),
    "boss_place": Measure("the boss's place", "m", 3),
    "player_heading": Measure("the player's heading", "rad", 3),
    "boss_heading": Measure("the boss's heading", "rad", 3),
    "stamina": Measure("stamina", "points", 1),
}
SHARES: Mapping[str, str] = {
    "player_animation": "another animation of the player",
    "boss_animation": "another animation of the boss",
    "struck": "struck in one of the two alone",
}


@dataclass(frozen=True)
class SpanErrors:
    """Errors of rows that were replayed for a time in one situation: by name in `MEASURES` and `SHARES`, (spans,) each.

    Both are NaN where a game does not say it; a share's value is 1 where the two differ, else 0. `struck` and
    `struck_simulated` are whether a blow arrived within the span.
    """

    situation: str
    horizon_s: float
    errors: Mapping[str, Doubles]
    struck: Flags
    struck_simulated: Flags

    def __len__(self) -> int:
        """Count the spans."""
        return len(self.struck)

    def summary(self, name: str) -> dict[str, float | None]:
        """Return the median, 90th percentile and mean of a measure, or a share; None where nothing is known.

        Most rows show little of a wrong value, so that the mean may say what the others hide.
        """
        values = self.errors[name]
        if name in SHARES:
            known = values[~np.isnan(values)]
            return {"share": float(known.mean()) if len(known) else None}
        known = values[np.isfinite(values)]
        if not len(known):
            return dict.fromkeys(("median", "p90", "mean"))
        middle, most = np.quantile(known, [0.5, 0.9])
        return {"median": float(middle), "p90": float(most), "mean": float(known.mean())}

    @property
    def struck_in_both(self) -> float | None:
        """The share of spans struck in both among those struck in either; None where nothing struck."""
        either = int((self.struck | self.struck_simulated).sum())
        return int((self.struck & self.struck_simulated).sum()) / either if either else None


@dataclass(frozen=True)
class MoveStarts:
    """Moves as they began: from what distance in metres, which by title, and how long after the one before, in s.

    (starts,) each; a wait is NaN where something else lay between.
    """

    distances_m: Doubles
    titles: npt.NDArray[np.str_]
    waits_s: Doubles

    @property
    def known_waits_s(self) -> Doubles:
        """The waits that are known, up to the longest that is waited for."""
        kept: Doubles = self.waits_s[self.waits_s <= _LONGEST_WAIT_S]
        return kept


@dataclass(frozen=True)
class MoveEffects:
    """Whole moves, recorded and replayed: by title, whether a blow arrived and what HP it cost, (moves,) each."""

    titles: npt.NDArray[np.str_]
    struck: Flags
    struck_simulated: Flags
    lost_hp: Doubles
    lost_hp_simulated: Doubles


@dataclass(frozen=True)
class FightComparison:
    """Recorded fights beside a scenario: errors of spans, and what the boss did beside what the simulator's does."""

    spans: tuple[SpanErrors, ...]
    recorded: MoveStarts
    simulated: MoveStarts
    effects: MoveEffects

    def span(self, situation: str, horizon_s: float) -> SpanErrors:
        """Return the errors of one situation and horizon."""
        return next(one for one in self.spans if (one.situation, one.horizon_s) == (situation, horizon_s))

    @cached_property
    def bin_edges_m(self) -> Doubles:
        """The inner edges of the bins of distance: recorded starts fall into bins of equal size, (bins - 1,)."""
        known = self.recorded.distances_m
        edges: Doubles = np.unique(np.quantile(known, np.arange(1, _BINS) / _BINS)) if len(known) else np.zeros(0)
        return edges

    def shares(self, starts: MoveStarts, titles: Sequence[str]) -> Doubles:
        """Return the share of each move among those begun in each bin of distance, (bins, titles); NaN in an empty."""
        bins = np.searchsorted(self.bin_edges_m, starts.distances_m, side="right")
        counts = np.array(
            [
                [(starts.titles[bins == one] == title).sum() for title in titles]
                for one in range(len(self.bin_edges_m) + 1)
            ]
        )
        with np.errstate(invalid="ignore"):
            shares: Doubles = counts / counts.sum(axis=1, keepdims=True)
        return shares

    @property
    def titles(self) -> list[str]:
        """The moves that were begun, recorded or simulated."""
        return sorted({*self.recorded.titles.tolist(), *self.simulated.titles.tolist()})

    def behaviour(self) -> dict[str, float | None]:
        """Return how far the distributions lie apart: of moves by distance, waits, damage of a move that struck.

        Of moves it is the total variation distance, the mean over the recorded starts' bins; of the others the first
        Wasserstein distance, in their unit. None where one of the two is empty.
        """
        titles, effects = self.titles, self.effects
        apart = np.abs(self.shares(self.recorded, titles) - self.shares(self.simulated, titles)).sum(axis=1) / 2.0
        damage = effects.lost_hp[effects.struck], effects.lost_hp_simulated[effects.struck_simulated]
        return {
            "moves_by_distance": float(np.nanmean(apart)) if titles and np.isfinite(apart).any() else None,
            "waits_s": _apart(self.recorded.known_waits_s, self.simulated.known_waits_s),
            "damage_hp": _apart(*damage),
        }

    def moves(self) -> list[dict[str, Any]]:
        """Return a row for each move: how often it began, struck, and what it cost, recorded and simulated."""
        rows = []
        for title in self.titles:
            own, effects = self.effects.titles == title, self.effects
            pairs = (effects.struck, effects.lost_hp), (effects.struck_simulated, effects.lost_hp_simulated)
            (struck, lost), (struck_simulated, lost_simulated) = pairs
            rows.append(
                {
                    "move": title,
                    "begun": int((self.recorded.titles == title).sum()),
                    "share": _mean(self.recorded.titles == title),
                    "share_simulated": _mean(self.simulated.titles == title),
                    "struck": _mean(struck[own]),
                    "struck_simulated": _mean(struck_simulated[own]),
                    "damage_hp": _middle(lost[own & struck]),
                    "damage_hp_simulated": _middle(lost_simulated[own & struck_simulated]),
                }
            )
        return rows


#: The distances between distributions by name in `FightComparison.behaviour`.
DISTANCES: Mapping[str, Measure] = {
    "moves_by_distance": Measure("moves by distance, total variation", "", 3),
    "waits_s": Measure("waits between moves, Wasserstein distance", "s", 3),
    "damage_hp": Measure("damage of a move that struck, Wasserstein distance", "HP", 1),
}


def _mean(values: npt.NDArray[Any]) -> float | None:
    return float(values.mean()) if len(values) else None


def _middle(values: Doubles) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else None


def _apart(one: Doubles, other: Doubles) -> float | None:
    """Return the first Wasserstein distance of two samples: the area between their distribution functions."""
    known, beside = (np.sort(values[np.isfinite(values)]) for values in (one, other))
    if not (len(known) and len(beside)):
        return None
    both = np.sort(np.concatenate([known, beside]))
    below = [np.searchsorted(sample, both[:-1], side="right") / len(sample) for sample in (known, beside)]
    return float((np.abs(below[0] - below[1]) * np.diff(both)).sum())


def compare(
    fights: Sequence[FightTrace], scenario: Scenario, seed: int = EVALUATION_SEED, on_step: OnStep = silent
) -> FightComparison:
    """Put recorded rows into the simulator by a scenario's data and compare what follows with what was recorded.

    Raises:
        SoulsGraphError: if no row of the fights can be.
    """
    replay = RowReplay(fights, scenario)
    rows = JoinedRows(replay)
    spans = []
    for situation in SITUATIONS:
        for horizon_s in HORIZONS_S:
            spans.append(_span_errors(replay, rows, situation, horizon_s, seed))
            on_step()
    if not any(map(len, spans)):
        raise SoulsGraphError(
            f"{scenario.name}: expected fights with rows that its data know, found none in {len(fights)} fights; "
            "name the scenario that they were fought in."
        )
    simulated = _simulated_starts(replay, rows, seed)
    on_step()
    effects = _effects(replay, rows, seed)
    on_step()
    return FightComparison(tuple(spans), rows.starts(), simulated, effects)


class JoinedRows:
    """The rows of all fights one behind the other, and which lie in one situation of one fight, (rows,) each."""

    def __init__(self, replay: RowReplay) -> None:
        self.parts = replay.parts
        self.raw: RawValues = np.concatenate([part.fight.raw for part in self.parts])
        self.at, self.usable = replay.at, replay.joined("usable")
        self.move, self.stance, self.phase = (replay.joined(name) for name in ("move", "stance", "phase"))
        self.struck, self.lost_hp = replay.joined("struck"), replay.joined("lost_hp")
        self.blended = replay.joined("blended")
        self.boss_began, self.boss_frame = replay.joined("boss_began"), replay.joined("boss_frame")
        #: Every first row of a fight begins an animation, so that none spans two fights.
        self.instance = np.cumsum(self.boss_began)
        self.first = np.concatenate([np.arange(len(part.pose)) == 0 for part in self.parts])
        titles = [[move.title for move in boss_moves] for boss_moves in _moves_of(replay)]
        self.title = np.array(
            [titles[phase][move] if move >= 0 else "" for phase, move in zip(self.phase, self.move, strict=True)]
        )
        free = self.usable & (self.move < 0) & (self.stance < Stance.PARRIED)
        #: Rows of one number lie in one situation: within one move, or between the same two.
        self.situations = {
            WITHIN: np.where(self.usable & (self.move >= 0), self.instance, -1),
            BETWEEN: np.where(free, np.cumsum(~free | self.first), -1),
        }

    def ends(self, situation: str, horizon_s: float) -> tuple[Integers, Integers]:
        """Return the rows whose situation lasts for a time, and the row nearest to its end, (spans,) each."""
        own, goal = self.situations[situation], self.at + round(horizon_s * FRAMES_PER_S)
        ends = np.searchsorted(self.at, goal)
        ends = np.minimum(ends, len(self.at) - 1)
        before = np.maximum(ends - 1, 0)
        ends = np.where(np.abs(self.at[before] - goal) < np.abs(self.at[ends] - goal), before, ends)
        near = np.abs(self.at[ends] - goal) <= _HALF_TICK_S * FRAMES_PER_S
        starts = np.flatnonzero((own >= 0) & near & (own[ends] == own) & (ends > np.arange(len(ends))))
        return starts, ends[starts]

    def distance(self, rows: Integers) -> Doubles:
        """Return how far the two stand apart in some rows, in metres."""
        return distance_m(self.raw[rows])

    def starts(self) -> MoveStarts:
        """Return the moves as they began, but for one in the first row of a fight."""
        rows = np.flatnonzero(self.boss_began & (self.move >= 0) & self.usable & ~self.first)
        rows = rows[self.usable[rows - 1]]
        lengths = np.nan_to_num(np.rint(self.raw[:, Raw.BOSS_ANIMATION_LENGTH_S] * FRAMES_PER_S)).astype(np.int64)
        ended_at = self.at - self.boss_frame + lengths
        before = self._move_before(rows)
        waits = np.where(before >= 0, (self.at - self.boss_frame)[rows] - ended_at[before], np.nan) * FRAME_S
        return MoveStarts(self.distance(rows - 1), self.title[rows], np.where(waits >= -_HALF_TICK_S, waits, np.nan))

    def _move_before(self, rows: Integers) -> Integers:
        """Return the last row of the move before each, in the same fight and with only standing and steps between."""
        broken = ~self.usable | ((self.move < 0) & (self.stance >= Stance.PARRIED))
        moving = np.append(-1, np.maximum.accumulate(np.where(self.move >= 0, np.arange(len(self.move)), -1))[:-1])
        breaks = np.cumsum(broken | self.first)
        found = moving[rows]
        whole = (found >= 0) & (breaks[found] == breaks[rows])
        return np.where(whole, found, -1)


def _moves_of(replay: RowReplay) -> list[tuple[Move, ...]]:
    return [load_boss(phase.boss).moves for phase in replay.numbers.scenario.phases()]


def distance_m(raw: RawValues) -> Doubles:
    """Return how far the two stand apart in the plane of `raw` (rows, 25), in metres, (rows,)."""
    return np.hypot(raw[:, Raw.BOSS_X] - raw[:, Raw.PLAYER_X], raw[:, Raw.BOSS_Y] - raw[:, Raw.PLAYER_Y])


def _seeds(seed: int, what: int, count: int) -> Seeds:
    return derive_seeds(seed, _STREAM, what, np.arange(count))


def _span_errors(replay: RowReplay, rows: JoinedRows, situation: str, horizon_s: float, seed: int) -> SpanErrors:
    starts, ends = rows.ends(situation, horizon_s)
    frames = (rows.at[ends] - rows.at[starts])[:, None]
    # A boss that begins no move of its own: which one it would be is drawn, and no error of the data.
    played = replay.play(starts, frames, _seeds(seed, 0, len(starts)), no_attack=1)
    arrived = np.cumsum(rows.struck)
    struck = arrived[ends] > arrived[starts]
    errors = row_errors(played.raw[:, 0], rows.raw[ends])
    errors["boss_animation"] = np.where(rows.blended[ends], np.nan, errors["boss_animation"])
    simulated = played.struck[:, 0]
    return SpanErrors(
        situation, horizon_s, errors | {"struck": np.asarray(struck != simulated, np.float64)}, struck, simulated
    )


def row_errors(simulated: RawValues, recorded: RawValues) -> dict[str, Doubles]:
    """Return the errors of simulated raw values (rows, 25) beside recorded ones, but for blows, by name, (rows,)."""

    def off(column: Raw) -> Doubles:
        return np.abs(simulated[:, column] - recorded[:, column])

    def turned_off(column: Raw) -> Doubles:
        return np.minimum(np.mod(off(column), 2 * np.pi), np.mod(-off(column), 2 * np.pi))

    return {
        "player_place": np.hypot(off(Raw.PLAYER_X), off(Raw.PLAYER_Y)),
        "boss_place": np.hypot(off(Raw.BOSS_X), off(Raw.BOSS_Y)),
        "player_heading": turned_off(Raw.PLAYER_ANGLE),
        "boss_heading": turned_off(Raw.BOSS_ANGLE),
        "stamina": off(Raw.STAMINA),
        "player_animation": np.minimum(off(Raw.PLAYER_ANIMATION), 1.0),
        "boss_animation": np.minimum(off(Raw.BOSS_ANIMATION), 1.0),
    }


def _simulated_starts(replay: RowReplay, rows: JoinedRows, seed: int) -> MoveStarts:
    """Play on from the end of every recorded move until the simulator's boss begins the next, some draws of each."""
    last = np.append(np.diff(rows.instance) != 0, True) & ~np.append(rows.first[1:], True)
    ends = np.flatnonzero(last & (rows.move >= 0) & rows.usable)
    starts = np.repeat(ends, _DRAWS)
    watch = _NextMoves(replay, rows, starts)
    frames = np.full((len(starts), 1), round(_LONGEST_WAIT_S * FRAMES_PER_S))
    replay.play(starts, frames, _seeds(seed, 1, len(starts)), watch.see)
    return watch.found()


class _NextMoves:
    """Watch lanes that are played frame by frame for the next move that the boss begins."""

    def __init__(self, replay: RowReplay, rows: JoinedRows, starts: Integers) -> None:
        self._titles = {(phase, move.id): move.title for phase, moves in enumerate(_moves_of(replay)) for move in moves}
        self._phase, self._before = rows.phase[starts], rows.raw[starts].copy()
        count = len(starts)
        self._ended, self._done = np.full(count, -1), np.zeros(count, np.bool_)
        self._distances, self._waits = np.full(count, np.nan), np.full(count, np.nan)
        self._chosen: list[str] = [""] * count

    def see(self, frame: int, lanes: Integers, raw: RawValues) -> None:
        """Take in the raw values (lanes, 25) of some lanes after a frame."""
        before = self._before[lanes]
        time = raw[:, Raw.BOSS_ANIMATION_TIME_S]
        other = raw[:, Raw.BOSS_ANIMATION] != before[:, Raw.BOSS_ANIMATION]
        begun = ~self._done[lanes] & (other | (time < before[:, Raw.BOSS_ANIMATION_TIME_S]))
        fresh = lanes[begun & (self._ended[lanes] < 0)]
        self._ended[fresh] = frame
        for place in np.flatnonzero(begun):
            lane, chosen = int(lanes[place]), int(raw[place, Raw.BOSS_ANIMATION])
            title = self._titles.get((int(self._phase[lane]), chosen))
            if title is not None:
                self._done[lane], self._chosen[lane] = True, title
                self._distances[lane] = distance_m(before[place : place + 1])[0]
                self._waits[lane] = (frame - round(time[place] * FRAMES_PER_S) - self._ended[lane]) * FRAME_S
        self._before[lanes] = raw

    def found(self) -> MoveStarts:
        """Return the moves that were begun."""
        return MoveStarts(self._distances[self._done], np.array(self._chosen)[self._done], self._waits[self._done])


def _effects(replay: RowReplay, rows: JoinedRows, seed: int) -> MoveEffects:
    """Play every recorded move from its first row to its last."""
    starts = np.flatnonzero(rows.boss_began & (rows.move >= 0) & rows.usable)
    ends = np.searchsorted(rows.instance, rows.instance[starts], side="right") - 1
    longer = ends > starts
    starts, ends = starts[longer], ends[longer]
    frames = (rows.at[ends] - rows.at[starts])[:, None]
    played = replay.play(starts, frames, _seeds(seed, 2, len(starts)), no_attack=1)
    arrived, lost = np.cumsum(rows.struck), np.cumsum(np.nan_to_num(rows.lost_hp))
    unknown = np.cumsum(np.isnan(rows.lost_hp))
    cost = np.where(unknown[ends] > unknown[starts], np.nan, lost[ends] - lost[starts])
    return MoveEffects(
        rows.title[starts], arrived[ends] > arrived[starts], played.struck[:, 0], cost, played.lost_hp[:, 0]
    )
