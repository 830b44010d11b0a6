"""Recorded fights beside a scenario: errors of replayed rows, and what the boss does in each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from soulsgraph.calibrate.replay import RowReplay, in_frames
from soulsgraph.calibrate.rows import ReadFight
from soulsgraph.runs.evaluate import EVALUATION_SEED
from soulsgraph_envs.combat.rollout import Doubles, Flags, Integers
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Raw, RawValues
from soulsgraph_envs.simulator.layout import FRAME_S, FRAMES_PER_S, Stance

#: Seconds after a row at which the simulator is compared with what was recorded.
HORIZONS_S = (0.1, 0.5, 2.0)
#: A row counts for a horizon if it is at most this far from it: half a control tick.
_HALF_TICK_S = 0.05
WITHIN, BETWEEN = "within a move", "between moves"
_STREAM = 70
#: How often what follows a move is drawn, for how long it is waited for, and in how many bins of distance moves fall.
_DRAWS, _LONGEST_WAIT_S, _BINS = 4, 8.0, 4

#: Called after each step of the work.
OnStep = Callable[[], None]


#: In place of digits: ratios are shown in percent.
PERCENT = -1


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
SHARES: Mapping[str, Measure] = {
    "player_animation": Measure("another animation of the player", "", PERCENT),
    "boss_animation": Measure("another animation of the boss", "", PERCENT),
    "struck": Measure("struck in one of the two alone", "", PERCENT),
}


@dataclass(frozen=True)
class SpanErrors:
    """Errors of rows that were replayed for a time: by name in `MEASURES` and `SHARES`, (spans,) each.

    Both are NaN where a game does not say it; a share's value is 1 where the two differ, else 0. `struck` and
    `struck_simulated` are whether a blow arrived within the span, `lost_hp` and `lost_hp_simulated` what blows cost.
    """

    errors: Mapping[str, Doubles]
    struck: Flags
    struck_simulated: Flags
    lost_hp: Doubles
    lost_hp_simulated: Doubles

    def __len__(self) -> int:
        """Count the spans."""
        return len(self.struck)

    def summary(self, name: str) -> dict[str, float | None]:
        """Return the median, 90th percentile and mean of a measure, or a share; None where nothing is known.

        Most rows show little of a wrong value, so that the mean may say what the others hide.
        """
        if name in SHARES:
            return {"share": _known(np.mean, self.errors[name])}
        shares = {"median": 0.5, "p90": 0.9}
        quantiles = {key: _known(partial(np.quantile, q=q), self.errors[name]) for key, q in shares.items()}
        return {**quantiles, "mean": _known(np.mean, self.errors[name])}

    @property
    def struck_in_both(self) -> float | None:
        """The share of spans struck in both among those struck in either; None where nothing struck."""
        either = int((self.struck | self.struck_simulated).sum())
        return int((self.struck & self.struck_simulated).sum()) / either if either else None


@dataclass(frozen=True)
class BossBehaviour:
    """What a boss does, recorded or simulated: from what distance in metres it began which move by title, (starts,).

    `waits_s` (waits,) are the known ones between moves, up to the longest that is waited for. Of whole moves, (moves,)
    each, `struck` is whether a blow arrived, `lost_hp` what HP it cost.
    """

    distances_m: Doubles
    titles: npt.NDArray[np.str_]
    waits_s: Doubles
    struck: Flags
    lost_hp: Doubles

    @property
    def damage_hp(self) -> Doubles:
        """What the moves cost that struck."""
        return self.lost_hp[self.struck]


@dataclass(frozen=True)
class FightComparison:
    """Recorded fights beside a scenario: errors of spans, and what the boss did beside what the simulator's does.

    `spans` are by situation and horizon in s; `whole_titles` (moves,) those of the moves that were recorded as a whole,
    and replayed.
    """

    spans: Mapping[tuple[str, float], SpanErrors]
    recorded: BossBehaviour
    simulated: BossBehaviour
    whole_titles: npt.NDArray[np.str_]

    @cached_property
    def bin_edges_m(self) -> Doubles:
        """The inner edges of the bins of distance: recorded starts fall into bins of equal size, (bins - 1,)."""
        known = self.recorded.distances_m
        edges: Doubles = np.unique(np.quantile(known, np.arange(1, _BINS) / _BINS)) if len(known) else np.zeros(0)
        return edges

    def shares(self, starts: BossBehaviour) -> Doubles:
        """Return the share of each move among those begun in each bin of distance, (bins, titles); NaN in an empty."""
        bins = np.searchsorted(self.bin_edges_m, starts.distances_m, side="right")
        inside: Flags = bins == np.arange(len(self.bin_edges_m) + 1)[:, None]
        counts = np.stack([(inside & (starts.titles == title)).sum(axis=1) for title in self.titles], axis=1)
        with np.errstate(invalid="ignore"):
            return np.asarray(counts / counts.sum(axis=1, keepdims=True))

    @property
    def titles(self) -> list[str]:
        """The moves that were begun, recorded or simulated."""
        return sorted({*self.recorded.titles.tolist(), *self.simulated.titles.tolist()})

    def behaviour(self) -> dict[str, float | None]:
        """Return how far the distributions lie apart: of moves by distance, waits, damage of a move that struck.

        Of moves it is the total variation distance, the mean over the recorded starts' bins; of the others the first
        Wasserstein distance, in their unit. None where one of the two is empty.
        """
        apart = None
        if self.titles:
            by_bin = np.abs(self.shares(self.recorded) - self.shares(self.simulated)).sum(axis=1) / 2.0
            apart = _known(np.mean, by_bin)
        return {
            "moves_by_distance": apart,
            "waits_s": _apart(self.recorded.waits_s, self.simulated.waits_s),
            "damage_hp": _apart(self.recorded.damage_hp, self.simulated.damage_hp),
        }

    def moves(self) -> list[dict[str, Any]]:
        """Return a row for each move: how often it began, struck, and what it cost, recorded and simulated."""
        rows, sides = list[dict[str, Any]](), (self.recorded, self.simulated)
        for title in self.titles:
            own = self.whole_titles == title
            pairs = {
                "share": [side.titles == title for side in sides],
                "struck": [side.struck[own] for side in sides],
                "damage_hp": [side.lost_hp[own & side.struck] for side in sides],
            }
            rows.append({"move": title, "begun": int(pairs["share"][0].sum())})
            for name, pair in pairs.items():
                for suffix, values in zip(("", "_simulated"), pair, strict=True):
                    rows[-1][name + suffix] = _known(np.median if name == "damage_hp" else np.mean, values)
        return rows


#: The distances between distributions by name in `FightComparison.behaviour`.
DISTANCES: Mapping[str, Measure] = {
    "moves_by_distance": Measure("moves by distance, total variation", "", 3),
    "waits_s": Measure("waits between moves, Wasserstein distance", "s", 3),
    "damage_hp": Measure("damage of a move that struck, Wasserstein distance", "HP", 1),
}


def _known(summary: Callable[[Any], Any], values: npt.NDArray[Any]) -> float | None:
    known = values[np.isfinite(values)]
    return float(summary(known)) if len(known) else None


def _apart(one: Doubles, other: Doubles) -> float | None:
    """Return the first Wasserstein distance of two samples: the area between their distribution functions."""
    known, beside = (np.sort(values[np.isfinite(values)]) for values in (one, other))
    if not (len(known) and len(beside)):
        return None
    both = np.sort(np.concatenate([known, beside]))
    below = [np.searchsorted(sample, both[:-1], side="right") / len(sample) for sample in (known, beside)]
    return float((np.abs(below[0] - below[1]) * np.diff(both)).sum())


def compare(
    fights: Sequence[ReadFight], scenario: Scenario, seed: int = EVALUATION_SEED, on_step: OnStep = lambda: None
) -> FightComparison:
    """Put recorded rows into the simulator by a scenario's data and compare what follows with what was recorded.

    Raises:
        SoulsGraphError: if no row of the fights can be.
    """
    rows, spans = RowReplay(fights, scenario), dict[tuple[str, float], SpanErrors]()
    titles = np.array(
        [
            rows.loaded[phase].moves[move].title if move >= 0 else ""
            for phase, move in zip(rows.phase, rows.move, strict=True)
        ]
    )
    moving = (rows.move >= 0) & rows.usable
    free = rows.usable & (rows.move < 0) & (rows.stance < Stance.PARRIED)
    #: Rows of one number lie within one move, or between the same two.
    situations = {
        WITHIN: np.where(moving, rows.instance, -1),
        BETWEEN: np.where(free, np.cumsum(~free | rows.first), -1),
    }
    for situation, own in situations.items():
        for horizon_s in HORIZONS_S:
            spans[situation, horizon_s] = _replayed(rows, *_spans(rows, own, horizon_s), seed, 0)
            on_step()
    if not any(map(len, spans.values())):
        raise SoulsGraphError(
            f"{scenario.name}: expected fights with rows that its data know, found none in {len(fights)} fights; "
            "name the scenario that they were fought in."
        )
    simulated = _simulated_starts(rows, moving, seed)
    on_step()
    # Every recorded move, from its first row to its last.
    starts = np.flatnonzero(rows.boss_began & moving)
    ends = np.searchsorted(rows.instance, rows.instance[starts], side="right") - 1
    starts, ends = starts[ends > starts], ends[ends > starts]
    whole = _replayed(rows, starts, ends, seed, 2)
    on_step()
    return FightComparison(
        spans,
        BossBehaviour(*_recorded_starts(rows, titles, moving), whole.struck, whole.lost_hp),
        BossBehaviour(*simulated, whole.struck_simulated, whole.lost_hp_simulated),
        titles[starts],
    )


def _spans(rows: RowReplay, own: Integers, horizon_s: float) -> tuple[Integers, Integers]:
    """Return the rows whose situation lasts for a time, and the row nearest to its end, (spans,) each."""
    at, goal = rows.at, rows.at + round(horizon_s * FRAMES_PER_S)
    ends = np.minimum(np.searchsorted(at, goal), len(at) - 1)
    before = np.maximum(ends - 1, 0)
    ends = np.where(np.abs(at[before] - goal) < np.abs(at[ends] - goal), before, ends)
    near = np.abs(at[ends] - goal) <= _HALF_TICK_S * FRAMES_PER_S
    starts = np.flatnonzero((own >= 0) & near & (own[ends] == own) & (ends > np.arange(len(ends))))
    return starts, ends[starts]


def _replayed(rows: RowReplay, starts: Integers, ends: Integers, seed: int, stream: int) -> SpanErrors:
    """Return what followed from rows until others, recorded and replayed."""
    # A boss that begins no move of its own: which one it would be is drawn, and no error of the data.
    seeds = derive_seeds(seed, _STREAM, stream, np.arange(len(starts)))
    played = rows.play(starts, rows.at[ends] - rows.at[starts], seeds, no_attack=1)
    arrived, unknown, lost = (
        counted[ends] - counted[starts]
        for counted in map(np.cumsum, (rows.struck, np.isnan(rows.lost_hp), np.nan_to_num(rows.lost_hp)))
    )
    errors = row_errors(played.raw, rows.raw[ends])
    errors["boss_animation"] = np.where(rows.blended[ends], np.nan, errors["boss_animation"])
    struck, lost_hp = arrived > 0, np.where(unknown > 0, np.nan, lost)
    errors["struck"] = (struck != played.struck).astype(np.float64)
    return SpanErrors(errors, struck, played.struck, lost_hp, played.lost_hp)


def row_errors(simulated: RawValues, recorded: RawValues) -> dict[str, Doubles]:
    """Return the errors of simulated raw values (rows, 25) beside recorded ones, but for blows, by name, (rows,)."""
    off = np.abs(simulated - recorded).T
    turned = np.minimum(np.mod(off, 2 * np.pi), np.mod(-off, 2 * np.pi))
    return {
        "player_place": np.hypot(off[Raw.PLAYER_X], off[Raw.PLAYER_Y]),
        "boss_place": np.hypot(off[Raw.BOSS_X], off[Raw.BOSS_Y]),
        "player_heading": turned[Raw.PLAYER_ANGLE],
        "boss_heading": turned[Raw.BOSS_ANGLE],
        "stamina": off[Raw.STAMINA],
        "player_animation": np.minimum(off[Raw.PLAYER_ANIMATION], 1.0),
        "boss_animation": np.minimum(off[Raw.BOSS_ANIMATION], 1.0),
    }


#: Moves as they began: distances, titles and known waits.
_Starts = tuple[Doubles, npt.NDArray[np.str_], Doubles]


def _recorded_starts(rows: RowReplay, titles: npt.NDArray[np.str_], moving: Flags) -> _Starts:
    """Return the moves as they began, but for one in the first row of a fight."""
    begun = np.flatnonzero(rows.boss_began & moving & ~rows.first & rows.usable[rows.before])
    began_at, lengths = rows.at - rows.boss_frame, in_frames(rows.raw[:, Raw.BOSS_ANIMATION_LENGTH_S])
    # The last row of the move before, in the same fight and with only standing and steps between.
    last = rows.latest(rows.move >= 0)[begun - 1]
    breaks = np.cumsum(~rows.usable | ((rows.move < 0) & (rows.stance >= Stance.PARRIED)))
    whole = (last >= 0) & (breaks[last] == breaks[begun])
    waits = ((began_at[begun] - (began_at + lengths)[last]) * FRAME_S)[whole]
    known = waits[(waits >= -_HALF_TICK_S) & (waits <= _LONGEST_WAIT_S)]
    return _distances(rows.raw[begun - 1]), titles[begun], known


def _distances(raw: RawValues) -> Doubles:
    return np.hypot(raw[:, Raw.BOSS_X] - raw[:, Raw.PLAYER_X], raw[:, Raw.BOSS_Y] - raw[:, Raw.PLAYER_Y])


def _simulated_starts(rows: RowReplay, moving: Flags, seed: int) -> _Starts:
    """Play on from the end of every recorded move until the simulator's boss begins the next, some draws of each."""
    goes_on = np.append((np.diff(rows.instance) == 0) | rows.first[1:], True)
    starts = np.repeat(np.flatnonzero(moving & ~goes_on), _DRAWS)
    titles = {(phase, move.id): move.title for phase, boss in enumerate(rows.loaded) for move in boss.moves}
    before, phases = rows.raw[starts], rows.phase[starts].tolist()
    ended, begun = dict[int, int](), dict[int, tuple[float, str, float]]()

    def see(frame: int, lanes: Integers, raw: RawValues) -> None:
        was, time_s = before[lanes], raw[:, Raw.BOSS_ANIMATION_TIME_S]
        other = raw[:, Raw.BOSS_ANIMATION] != was[:, Raw.BOSS_ANIMATION]
        for place in np.flatnonzero(other | (time_s < was[:, Raw.BOSS_ANIMATION_TIME_S])):
            lane = int(lanes[place])
            ended.setdefault(lane, frame)
            title = titles.get((phases[lane], int(raw[place, Raw.BOSS_ANIMATION])))
            if title is not None and lane not in begun:
                wait = (frame - round(time_s[place] * FRAMES_PER_S) - ended[lane]) * FRAME_S
                begun[lane] = (float(_distances(was[[place]])[0]), title, wait)
        before[lanes] = raw

    frames = np.full(len(starts), round(_LONGEST_WAIT_S * FRAMES_PER_S))
    rows.play(starts, frames, derive_seeds(seed, _STREAM, 1, np.arange(len(starts))), see)
    found = [begun[lane] for lane in sorted(begun)]
    distances, chosen, waits = ([one[place] for one in found] for place in range(3))
    known = np.array(waits, np.float64)
    return np.array(distances, np.float64), np.array(chosen, str), known[known <= _LONGEST_WAIT_S]
