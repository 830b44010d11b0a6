"""Fit the bounded values of each move together, by replayed spans: kept where held-out fights get likelier.

A span is half a second of a move, or the rest of it: its first row is put into the simulator and the recorded controls
are played to its last. Spans lie one behind the other, so that every moment counts once. By a candidate's data the
log-likelihood of one is that of a blow having arrived in both or in neither, log(1 - e) and else log(e) with e = 0.01,
and of the boss's place and heading at its end by a Gaussian around the recorded ones, -(error / spread)^2 / 2. The
spread is that of the errors before the fit, when most values are determined: their 68 % quantile, 2 cm and 0.02 rad at
least. An error beyond four spreads counts as four, since a blow more or less throws all else off.

CMA-ES searches each move's bounded values within their intervals, all moves at once, for a span depends on the values
of its own move alone. A search maximises the log-likelihood of two thirds of the fights and of a Gaussian around the
value that the file has without it, as wide as the interval. Then each value that gains less than 1 returns to what it
was, and what is left of a move's changes is kept if the held-out third gains 1 too. What a replayed move does not show,
or is drawn, is not searched: waits, weights, damage.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import log, nan
from pathlib import Path
from typing import Any

import numpy as np

from soulsgraph.calibrate.boss_file import value_in_file, write_fitted
from soulsgraph.calibrate.calibration import Calibration, JointFit, JointMove
from soulsgraph.calibrate.comparison import WITHIN, JoinedRows, OnStep, row_errors, silent
from soulsgraph.calibrate.replay import FightTrace, RowReplay
from soulsgraph.calibrate.rows import Doubles, FightRows, FightSet, Integers
from soulsgraph.calibrate.values import ValueFit
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.extras import check_extra
from soulsgraph_envs.core.files import temporary_folder
from soulsgraph_envs.core.scenario import Scenario, load_boss, load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.simulator.layout import FRAMES_PER_S

#: Kinds of values that a replayed move shows.
_KINDS = ("start", "end", "reach", "arc", "tracking", "lunge", "lunge times", "leap")
_KEY = re.compile(r"moves\.(.*?)\.(?:windows\.\d+\..*|lunge_s\.\d|[a-z_]+)$")
#: Candidates of a generation: what CMA-ES itself takes for the dozen values that a move may have.
POPULATION = 12
#: The first step of a search, as a share of an interval, and how many standard deviations an interval has.
_STEP, _DEVIATIONS = 0.25, 2.0 * 1.96
_SPAN_FRAMES = FRAMES_PER_S // 2
#: Every third fight is held out, from the second.
_HELD_OUT_EVERY = 3
#: How often a replay may have a blow wrong.
_ODD = 0.01
#: Errors that count and the least spread of each, and the number of spreads beyond which one counts no more.
_LEAST_SPREAD: Mapping[str, float] = {"boss_place": 0.02, "boss_heading": 0.02}
_FARTHEST = 4.0
#: The log-likelihood that a changed value has to gain, and a move's changes in held-out fights.
_LEAST_GAIN = 1.0
_STREAM = 72

#: Values by the keys of a calibration.
Values = Mapping[str, float]


@dataclass(frozen=True)
class JointOptions:
    """How long a joint fit searches, and from what seed.

    Raises:
        SoulsGraphError: if there are fewer evaluations than one generation has.
    """

    evaluations: int = 240
    seed: int = 0

    def __post_init__(self) -> None:
        if self.evaluations < POPULATION:
            raise SoulsGraphError(
                f"joint fit: expected {POPULATION} evaluations or more, found {self.evaluations}; ask for 240."
            )

    @property
    def whole(self) -> int:
        """Evaluations in whole generations."""
        return self.evaluations // POPULATION * POPULATION


_USUAL = JointOptions()


def joint_fit(
    fought: FightSet,
    found: Calibration,
    base: str | Path,
    scenario: str | Path,
    options: JointOptions = _USUAL,
    on_step: OnStep = silent,
) -> Calibration:
    """Return a calibration of fights with what a joint fit of its bounded values found, and whether that is kept.

    `base` names the boss that is fitted, `scenario` what the fitted one is fought in; `on_step` is called after each
    evaluation.

    Raises:
        SoulsGraphError: if the extra `calibrate` is not installed.
    """
    check_extra("a joint fit", "calibrate")
    with temporary_folder("soulsgraph-joint") as folder:
        likelihood = MoveLikelihood(fought, found, base, scenario, folder)
        best = _search(likelihood, options, on_step)
        lasting = _lasting(likelihood, best)
        moves = joint_moves(likelihood.searched, likelihood.of(lasting) - likelihood.start)
    kept = {key for move in moves if move.kept for key in likelihood.searched[move.move] if key in lasting}
    boss = [
        replace(value, joint=best[value.key], joint_kept=value.key in kept) if value.key in best else value
        for value in found.boss
    ]
    held_out = sum(map(_is_held_out, range(found.fights)))
    return replace(found, boss=boss, joint=JointFit(options.whole, found.fights - held_out, held_out, moves))


def searched_values(found: Calibration) -> dict[str, dict[str, ValueFit]]:
    """Return the values that a joint fit searches, by the title of their move and by key: bounded on both sides."""
    searched: dict[str, dict[str, ValueFit]] = {}
    for value in found.boss:
        title, sides = _KEY.match(value.key), (value.low, value.high)
        if title and value.verdict == "bounded" and value.kind in _KINDS and None not in sides:
            searched.setdefault(title[1], {})[value.key] = value
    return searched


def _is_held_out(fight: int) -> bool:
    return fight % _HELD_OUT_EVERY == 1


class MoveLikelihood:
    """How likely fights are by what is fitted to them with some values changed, move by move.

    `searched` are the values that may change; `titles` their moves, in the order of what `of` returns, and `start`
    (2, moves) that without any change.
    """

    def __init__(
        self, fought: FightSet, found: Calibration, base: str | Path, scenario: str | Path, folder: Path
    ) -> None:
        self.searched = searched_values(found)
        self.titles = list(self.searched)
        self._found, self._base, self._scenario, self._folder = found, base, scenario, folder
        self._shipped, self._numbers = load_boss(base), count()
        self._spans = MoveSpans(fought, self._fitted({}), self.titles)
        self.start = self.of({})

    def of(self, values: Values) -> Doubles:
        """Return the log-likelihood of the fights that a fit sees and of those held out, by move: (2, moves)."""
        return self._spans.likelihood(self._fitted(values))

    def _fitted(self, values: Values) -> Scenario:
        """Return the scenario of a file with some values changed."""
        changed = [
            replace(value, joint=values[value.key], joint_kept=True) if value.key in values else value
            for value in self._found.boss
        ]
        out = self._folder / f"candidate-{next(self._numbers)}.toml"
        candidate = replace(self._found, boss=changed)
        return load_scenario(write_fitted(out, candidate, self._base, self._scenario, self._shipped)[1])


class MoveSpans:
    """Spans of recorded moves of some titles, and how likely they are by data with other values than a scenario's."""

    def __init__(self, fought: FightSet, scenario: Scenario, titles: Sequence[str]) -> None:
        self._replay = RowReplay([trace_of(fight, fought.unknown) for fight in fought.fights], scenario)
        rows = JoinedRows(self._replay)
        starts, ends = _spans(rows, titles)
        held_out = np.concatenate(
            [np.full(len(fight), _is_held_out(number)) for number, fight in enumerate(fought.fights)]
        )
        #: The cell of `likelihood` that each span counts in.
        self._cells = np.array([titles.index(title) for title in rows.title[starts]], np.int64)
        self._cells += len(titles) * held_out[starts]
        self._moves, self._starts = len(titles), starts
        self._frames = (rows.at[ends] - rows.at[starts])[:, None]
        self._recorded = rows.raw[ends]
        arrived = np.cumsum(rows.struck)
        self._struck = arrived[ends] > arrived[starts]
        self._seeds = derive_seeds(0, _STREAM, np.arange(len(starts)))
        errors, _ = self._replayed(scenario)
        self._spreads = {name: _spread(errors[name], least) for name, least in _LEAST_SPREAD.items()}

    def _replayed(self, scenario: Scenario) -> tuple[dict[str, Doubles], Any]:
        """Return the errors of replayed spans by name, and whether a blow arrived in each, (spans,)."""
        played = self._replay.by(scenario).play(self._starts, self._frames, self._seeds, no_attack=1)
        return row_errors(played.raw[:, 0], self._recorded), played.struck[:, 0]

    def likelihood(self, scenario: Scenario) -> Doubles:
        """Return the log-likelihood of the fights that a fit sees and of those held out, by title: (2, titles)."""
        errors, struck = self._replayed(scenario)
        logs = np.where(struck == self._struck, log(1.0 - _ODD), log(_ODD))
        for name, spread in self._spreads.items():
            logs -= 0.5 * np.minimum(np.nan_to_num(errors[name]) / spread, _FARTHEST) ** 2
        total: Doubles = np.bincount(self._cells, logs, 2 * self._moves).astype(np.float64)
        return total.reshape(2, self._moves)


def _spread(errors: Doubles, least: float) -> float:
    known = errors[np.isfinite(errors)]
    return max(float(np.quantile(known, 0.68)), least) if len(known) else least


def trace_of(fight: FightRows, unknown: Mapping[int, str]) -> FightTrace:
    """Return a fight as a replay takes it; `unknown` are the names of animations that the data lack, by number."""
    read = tuple(unknown.get(number) for number in fight.boss.tolist())
    return FightTrace(fight.raw, fight.controls, fight.clock_s, fight.hp, np.zeros(len(fight), np.int64), read)


def _spans(rows: JoinedRows, titles: Sequence[str]) -> tuple[Integers, Integers]:
    """Return the first and last rows of half a second, or of the rest of a move, in their order, (spans,) each."""
    own = np.where(np.isin(rows.title, list(titles)), rows.situations[WITHIN], -1)
    last = np.append(own[1:] != own[:-1], True)
    starts, ends, start = list[int](), list[int](), 0
    for row in range(1, len(own)):
        if own[row] < 0 or own[row] != own[start]:
            start = row
        elif last[row] or rows.at[row] - rows.at[start] >= _SPAN_FRAMES:
            starts.append(start)
            ends.append(row)
            start = row
    return np.array(starts, np.int64), np.array(ends, np.int64)


class MoveSearch:
    """CMA-ES over one move's values, in shares of their intervals; `best` are the best that were tried."""

    def __init__(self, values: Sequence[ValueFit], random: np.random.Generator) -> None:
        # Imported here: nothing else needs the extra.
        from cma.evolution_strategy import CMAEvolutionStrategy

        self._values = values
        self._low = np.array([value.low for value in values], np.float64)
        self._width = np.array([value.high for value in values], np.float64) - self._low
        self._file = np.array([value_in_file(value) for value in values])
        begin = np.clip((self._file - self._low) / self._width, 0.0, 1.0)
        self.best: dict[str, float] = {}
        self._highest = 0.0
        # It searches no single number: another, without effect, stands beside one.
        padded = np.append(begin, 0.5) if len(begin) == 1 else begin
        # Its own seed would be numpy's, which others draw from.
        options = {"bounds": [0.0, 1.0], "popsize": POPULATION, "seed": nan, "verbose": -9}
        options["randn"] = lambda *shape: random.standard_normal(shape)
        self._strategy = CMAEvolutionStrategy(padded, _STEP, options)
        self._asked: list[Doubles] = []

    def ask(self) -> list[dict[str, float]]:
        """Return the candidates of a generation; the best again where the search is over."""
        if self._strategy.stop():
            return [self.best] * POPULATION
        self._asked = self._strategy.ask()
        return [self._of(shares) for shares in self._asked]

    def tell(self, gains: Doubles) -> None:
        """Take in by how much each candidate's log-likelihood lies above that without any change, (candidates,)."""
        if self._strategy.stop():
            return
        worth = gains - np.array([self._doubt(shares) for shares in self._asked])
        self._strategy.tell(self._asked, (-worth).tolist())
        if worth.max() > self._highest:
            self._highest, self.best = float(worth.max()), self._of(self._asked[int(worth.argmax())])

    def _of(self, shares: Doubles) -> dict[str, float]:
        numbers = self._low + shares[: len(self._values)] * self._width
        return {value.key: float(number) for value, number in zip(self._values, numbers, strict=True)}

    def _doubt(self, shares: Doubles) -> float:
        """Return what speaks against candidates far from the file's values: half the squared standard deviations."""
        away = self._low + shares[: len(self._values)] * self._width - self._file
        return 0.5 * float(((away / (self._width / _DEVIATIONS)) ** 2).sum())


def _search(likelihood: MoveLikelihood, options: JointOptions, on_step: OnStep) -> dict[str, float]:
    """Return the best values of every move; none of one in which nothing was better than the file's."""
    random = np.random.default_rng((options.seed, _STREAM))
    searches = [MoveSearch(list(values.values()), random) for values in likelihood.searched.values()]
    for _ in range(options.whole // POPULATION if searches else 0):
        asked = [search.ask() for search in searches]
        fitted = []
        for candidates in zip(*asked, strict=True):
            fitted.append(likelihood.of(_merged(candidates))[0])
            on_step()
        gains = np.array(fitted) - likelihood.start[0]
        for search, own in zip(searches, gains.T, strict=True):
            search.tell(own)
    return _merged([search.best for search in searches])


def _merged(values: Sequence[Values]) -> dict[str, float]:
    return {key: number for one in values for key, number in one.items()}


def _lasting(likelihood: MoveLikelihood, best: Values) -> dict[str, float]:
    """Return the changes without those that gain less than `_LEAST_GAIN` beside their move's others."""
    lasting = dict(best)
    now = likelihood.of(lasting)[0]
    most = max(map(len, likelihood.searched.values()), default=0)
    for place in range(most):
        tried = [list(values)[place] for values in likelihood.searched.values() if place < len(values)]
        tried = [key for key in tried if key in lasting]
        without = likelihood.of({key: number for key, number in lasting.items() if key not in tried})[0]
        for move, values in enumerate(likelihood.searched.values()):
            gone = [key for key in tried if key in values and now[move] - without[move] < _LEAST_GAIN]
            if gone:
                del lasting[gone[0]]
                now[move] = without[move]
    return lasting


def joint_moves(searched: Mapping[str, Mapping[str, ValueFit]], gains: Doubles) -> tuple[JointMove, ...]:
    """Return what changes gain in each move, kept where held-out fights get likelier; `gains` are (2, moves)."""
    return tuple(
        JointMove(title, len(values), float(fitted), float(held_out), bool(held_out >= _LEAST_GAIN))
        for (title, values), fitted, held_out in zip(searched.items(), *gains, strict=True)
    )
