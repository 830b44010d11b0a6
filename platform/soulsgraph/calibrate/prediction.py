"""How far win rates in a fitted fight may be off: agents also play fights in which what is not known is drawn anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp, inf, log
from pathlib import Path

import numpy as np

from soulsgraph.calibrate.boss_file import write_fitted
from soulsgraph.calibrate.calibration import Calibration
from soulsgraph.calibrate.floor import fighter_of
from soulsgraph.calibrate.values import ValueFit
from soulsgraph.recordings.check import groups_of
from soulsgraph.recordings.files import read_header, recording_files
from soulsgraph.recordings.recording import SCRIPTED, Fighter
from soulsgraph.runs.evaluate import EVALUATION_SEED, evaluation_seeds, play
from soulsgraph_envs.core.files import temporary_folder
from soulsgraph_envs.core.scenario import BossData

#: Drawn fights, and how often each player fights in one of them, and in the fitted fight.
DRAWS, _EACH, _FITTED = 10, 100, 400
#: Standard deviation of the logarithm by which a value that nobody saw is believed to be off, and the largest that an
#: interval stands for.
_BELIEF, _WIDEST = 0.2, 0.35
#: The largest values that a boss's file may have, of kinds that are drawn.
_MOST = {"arc": 3.2, "chains": 1.0, "rear": 1.0, "damage spread": 1.0}
#: The recording time of the probe that is suggested, and the number of moves that are named with it.
_MINUTES, _MOVES = 20, 3


@dataclass(frozen=True)
class PredictedRate:
    """A player's win rate in the fitted fight, and between which ones it lies by what is not known (95 %)."""

    player: str
    won: float
    low: float
    high: float


def predict(
    found: Calibration,
    folder: Path,
    base: str,
    scenario: str,
    shipped: BossData,
    on_step: Callable[[], object] = lambda: None,
) -> list[PredictedRate]:
    """Play the fitted fight, and `DRAWS` in which values are drawn from what is known of them, by who recorded.

    Of players whom this machine has not, and of scripts, nothing is predicted.
    """
    headers = [group.headers[0] for group in groups_of(map(read_header, recording_files(folder)))]
    players = [header for header in headers if header.player not in SCRIPTED and not header.ground.refill]
    random, rates = np.random.default_rng(EVALUATION_SEED), list[list[float]]()
    for count, fights in enumerate([_FITTED, *[_EACH] * DRAWS] if players else []):
        fought, seeds = drawn(found, random) if count else found, evaluation_seeds(EVALUATION_SEED, fights)
        with temporary_folder("soulsgraph-predicted-") as place:
            _, fitted = write_fitted(place / "boss.toml", fought, base, scenario, shipped)
            fighters = [fighter_of(header, str(fitted)) for header in players]
            rates.append(
                [float(play(one.agent, seeds).won.mean()) if isinstance(one, Fighter) else np.nan for one in fighters]
            )
        on_step()
    predicted = []
    for header, won, *drawn_rates in zip(players, *rates, strict=True):
        others = np.array(drawn_rates)
        if np.isfinite(won):
            # What so few fights scatter by is not of the values.
            noise = others.mean() * (1.0 - others.mean()) / _EACH
            wide = 1.96 * max(float(others.var(ddof=1)) - noise, won * (1.0 - won) / _FITTED) ** 0.5
            low, high = min(won, float(others.mean())) - wide, max(won, float(others.mean())) + wide
            predicted.append(PredictedRate(header.player, won, max(low, 0.0), min(high, 1.0)))
    return predicted


def drawn(found: Calibration, random: np.random.Generator) -> Calibration:
    """Return a calibration with every value drawn from its interval, and what nobody saw from a belief."""
    return replace(found, boss=[_drawn(value, float(random.normal())) for value in found.boss])


def _drawn(value: ValueFit, deviations: float) -> ValueFit:
    centre = value.estimate if value.known else value.shipped
    fixed = value.kind == "distances" or value.key == "aggression.chain_most" or value.verdict == "unlike the model"
    if fixed or not centre:
        return value
    spread = _BELIEF
    if value.known:
        low, high = (centre if end is None else max(end, 0.0) for end in (value.low, value.high))
        widths = [log(high / centre) if high > 0.0 else 0.0, log(centre / low) if low else 2.0 * _WIDEST]
        spread = min(max(widths) / 1.96, _WIDEST)
    number = min(centre * exp(spread * deviations), _MOST.get(value.kind, inf))
    return replace(value, estimate=number, low=number, high=number, verdict="determined")


def prediction_lines(found: Calibration, predicted: Sequence[PredictedRate], folder: Path) -> Iterator[str]:
    """Yield how far win rates may be off, and what to record next."""
    for one in predicted:
        rate, low, high = (f"{100 * value:.0f}" for value in (one.won, one.low, one.high))
        yield f"{one.player} wins {rate} % of the fitted fights; by what is not known it may be {low} to {high} %"
    open_values = [value.key for value in found.boss if value.verdict != "determined" and value.kind != "distances"]
    moves = Counter(key.split(".")[1] for key in open_values if key.startswith("moves."))
    if moves:
        most = ", ".join(f"{move} ({count})" for move, count in moves.most_common(_MOVES))
        yield (
            f"most values that are not determined: {most}; record {_MINUTES} minutes more by "
            f"soulsgraph data record probe --after {folder}"
        )
