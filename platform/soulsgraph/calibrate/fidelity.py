"""How wrong scenarios are about recorded fights: each beside its floor, with the win rates that it predicts.

The floor is the same measured on fights that the simulator itself fought by the same scenario, through the same door:
what a recording does not show is guessed, so even the true data are not without error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from soulsgraph.calibrate.comparison import (
    BETWEEN,
    DISTANCES,
    HORIZONS_S,
    MEASURES,
    PERCENT,
    SHARES,
    WITHIN,
    FightComparison,
    Measure,
    OnStep,
    compare,
)
from soulsgraph.calibrate.floor import fighter_of, floor_fights
from soulsgraph.calibrate.rows import ReadFight
from soulsgraph.recordings.check import Group, groups_of, skills_text
from soulsgraph.recordings.format import Ground, Header
from soulsgraph.recordings.recording import Fighter
from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import Table, number
from soulsgraph.runs.evaluate import EVALUATION_SEED, evaluation_seeds, play
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import Scenario, load_scenario

_QUANTITIES = {**MEASURES, **SHARES}
#: Steps of the work on one scenario.
STEPS = 18


@dataclass(frozen=True)
class PredictedWins:
    """One player's recorded fights beside those that it fights in the scenario: None, and why, where it cannot."""

    player: str
    recorded: WinRate
    predicted: WinRate | None
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        predicted = None if self.predicted is None else self.predicted.columns()
        return {"player": self.player, "recorded": self.recorded.columns(), "predicted": predicted, "note": self.note}


@dataclass(frozen=True)
class ScenarioFidelity:
    """How wrong one scenario is: the recorded fights beside it, the floor, and predicted win rates."""

    scenario: str
    measured: FightComparison
    floor: FightComparison
    floor_fights: int
    floor_players: str
    wins: tuple[PredictedWins, ...]

    @cached_property
    def errors(self) -> list[dict[str, Any]]:
        """A row for each situation, horizon and quantity: the error and its floor."""
        return [
            {"scenario": self.scenario, "situation": key[0], "horizon_s": key[1], "spans": len(one)}
            | {"quantity": name, **one.summary(name)}
            | {f"floor_{shown}": value for shown, value in self.floor.spans[key].summary(name).items()}
            for key, one in self.measured.spans.items()
            for name in _QUANTITIES
        ]

    @cached_property
    def struck(self) -> list[dict[str, Any]]:
        """A row for each situation and horizon: how many were struck, and which share in both of those in either."""
        return [
            {"situation": key[0], "horizon_s": key[1], "share": one.struck_in_both}
            | {"floor_share": self.floor.spans[key].struck_in_both, "struck": int(one.struck.sum())}
            | {"struck_simulated": int(one.struck_simulated.sum())}
            for key, one in self.measured.spans.items()
        ]

    @cached_property
    def distributions(self) -> list[dict[str, Any]]:
        """A row for each distribution: how far recorded and simulated lie apart, and its floor."""
        floor = self.floor.behaviour()
        return [
            {"scenario": self.scenario, "distribution": name, "apart": value, "floor_apart": floor[name]}
            for name, value in self.measured.behaviour().items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "scenario": self.scenario,
            "floor": {"fights": self.floor_fights, "players": self.floor_players},
            "errors": self.errors,
            "struck_in_both": self.struck,
            "distributions": self.distributions,
            "moves": self.measured.moves(),
            "win_rates": [one.to_dict() for one in self.wins],
        }


@dataclass(frozen=True)
class Fidelity:
    """How wrong one or several scenarios are about the same recorded fights."""

    groups: tuple[Group, ...]
    scenarios: tuple[ScenarioFidelity, ...]

    @property
    def recorded(self) -> str:
        """What was recorded, in one line."""
        fights = sum(len(group.headers) for group in self.groups)
        seconds = sum(header.result.seconds for group in self.groups for header in group.headers)
        source = ", ".join(sorted({group.source for group in self.groups}))
        players = ", ".join(f"{group.player} {len(group.headers)}" for group in self.groups)
        scenario = _label(self.groups[0].scenario)
        return f"{fights} fights of {scenario} ({source}), {seconds / 60.0:.1f} minutes: {players}"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for machines."""
        recorded = {"summary": self.recorded, "groups": [group.to_dict() for group in self.groups]}
        return {"recorded": recorded, "scenarios": [one.to_dict() for one in self.scenarios]}


#: What of a fight's ground a scenario that is measured has in common with the recorded one.
_SAME_GROUND = ("arena", "boss_hp_full", "boss_hp", "player_radius_m", "flasks", "death_hp_ratio", "refill")


def check_fits(scenario: Scenario, name: str, header: Header) -> None:
    """Refuse a scenario with another arena, player, HP, flasks or end than the recorded fights'.

    Raises:
        SoulsGraphError: naming what differs.
    """
    own, recorded = Ground.of(scenario), header.ground
    for key in _SAME_GROUND:
        if (found := getattr(own, key)) != (expected := getattr(recorded, key)):
            raise SoulsGraphError(
                f"{name}: expected the {key.replace('_', ' ')} of the recorded fights of {header.scenario}, "
                f"{expected}, found {found}; name a scenario of the same fight."
            )


def measure_fidelity(
    fights: Sequence[ReadFight],
    scenarios: Sequence[str],
    episodes: int = 400,
    seed: int = EVALUATION_SEED,
    on_step: OnStep = lambda: None,
) -> Fidelity:
    """Measure how wrong scenarios, by names or paths, are about recorded fights.

    The floor of each is measured on fights of the same players there, and predicted win rates over as many `episodes`.

    Raises:
        SoulsGraphError: if a scenario does not fit the fights, or no row of them can be replayed.
    """
    for name in scenarios:
        check_fits(load_scenario(name), name, fights[0].header)
    groups, found = tuple(groups_of(fight.header for fight in fights)), list[ScenarioFidelity]()
    # Called by its file's name where no two are the same.
    short = {name: _label(name) for name in scenarios}
    alike = Counter(short.values())
    for name, label in short.items():
        scenario = load_scenario(name)
        measured = compare(fights, scenario, seed, on_step)
        fighters = [(group, fighter_of(group.headers[0], name)) for group in groups]
        floor, players = floor_fights([fighter for _, fighter in fighters], scenario, name, fights, seed)
        on_step()
        wins = tuple(_predicted(group, fighter, episodes, seed) for group, fighter in fighters)
        on_step()
        below = compare(floor, scenario, seed, on_step)
        title = label if alike[label] == 1 else name
        found.append(ScenarioFidelity(title, measured, below, len(floor), players, wins))
    return Fidelity(groups, tuple(found))


def _label(scenario: str) -> str:
    return Path(scenario).name if scenario.endswith(".toml") else scenario


def _predicted(group: Group, fighter: Fighter | str, episodes: int, seed: int) -> PredictedWins:
    player, predicted, note = f"{group.player} ({skills_text(group.headers[0])})", None, ""
    if not isinstance(fighter, Fighter):
        note = fighter
    elif group.headers[0].ground.refill or fighter.agent.scenario.refill:
        note = "nobody wins where HP are filled up"
    else:
        predicted = WinRate.of(play(fighter.agent, evaluation_seeds(seed, episodes)).won, player)
    return PredictedWins(player, replace(group.win_rate, setting=player), predicted, note)


def fidelity_tables(fidelity: Fidelity) -> list[Table]:
    """Return what a terminal shows."""
    scenarios = fidelity.scenarios
    tables = {
        "Errors within a move: 90th percentile": error_table(scenarios, WITHIN, _BRIEF),
        "Errors between moves: 90th percentile": error_table(scenarios, BETWEEN, _BRIEF),
        "Struck within a move": struck_table(scenarios),
        "How far distributions lie apart": behaviour_table(scenarios),
        "Win rates": win_table(scenarios),
    }
    return [replace(table, title=title) for title, table in tables.items()]


#: What of an error is shown: all, or in a terminal the one.
_SUMMARIES, _BRIEF = ("median", "p90", "mean"), ("p90",)


def error_table(scenarios: Sequence[ScenarioFidelity], situation: str, shown: Sequence[str] = _SUMMARIES) -> Table:
    """Return the errors of one situation: a row for each quantity and scenario, a column for each horizon."""
    several, rows = len(scenarios) > 1, []
    for name, measure in _QUANTITIES.items():
        names = ("share",) if name in SHARES else shown
        for one in scenarios:
            own = (row for row in one.errors if (row["situation"], row["quantity"]) == (situation, name))
            cells = (_with_floor(row, names, measure.digits) for row in own)
            rows.append([_with_unit(measure), *([one.scenario] if several else []), *cells])
    return Table("", ["error", *(["scenario"] if several else []), *(f"after {s:g} s" for s in HORIZONS_S)], rows)


def _with_unit(measure: Measure) -> str:
    return f"{measure.title}, {measure.unit}" if measure.unit else measure.title


def _text(value: float | None, digits: int) -> str:
    if digits == PERCENT:
        return "-" if value is None else f"{100 * value:.1f} %"
    return "-" if value is None else number(value, digits)


def _with_floor(row: Mapping[str, Any], names: Sequence[str], digits: int) -> str:
    own, floor = (", ".join(_text(row[f"{side}{name}"], digits) for name in names) for side in ("", "floor_"))
    return f"{own} ({floor})"


def struck_table(scenarios: Sequence[ScenarioFidelity]) -> Table:
    """Return how often recorded and replayed rows were struck, and in both of those in either."""
    rows = []
    for one in scenarios:
        for row in one.struck:
            if row["situation"] == WITHIN:
                spans = len(one.measured.spans[WITHIN, row["horizon_s"]])
                counts = map(str, (spans, row["struck"], row["struck_simulated"]))
                both = _with_floor(row, ("share",), PERCENT)
                rows.append([one.scenario, f"{row['horizon_s']:g} s", *counts, both])
    return Table("", ("scenario", "within", "rows", "struck, recorded", "simulated", "in both"), rows)


def behaviour_table(scenarios: Sequence[ScenarioFidelity]) -> Table:
    """Return how far the distributions lie apart, with the floor."""
    rows = [
        [
            one.scenario,
            *(_with_floor(row, ("apart",), DISTANCES[row["distribution"]].digits) for row in one.distributions),
        ]
        for one in scenarios
    ]
    return Table("", ("scenario", *map(_with_unit, DISTANCES.values())), rows)


def move_table(comparison: FightComparison) -> Table:
    """Return how often each move began and struck, and what it cost, recorded and simulated."""
    kinds = {"share": PERCENT, "struck": PERCENT, "damage_hp": 0}
    pairs = {f"{kind}{side}": digits for kind, digits in kinds.items() for side in ("", "_simulated")}
    rows = [
        [str(row["move"]), str(row["begun"]), *(_text(row[name], digits) for name, digits in pairs.items())]
        for row in comparison.moves()
    ]
    headings = [f"{what}, {where}" for what in ("share", "struck", "damage") for where in ("recorded", "simulated")]
    return Table("", ("move", "begun", *headings), rows)


def win_table(scenarios: Sequence[ScenarioFidelity]) -> Table:
    """Return recorded win rates beside predicted ones."""
    rows = []
    for one in scenarios:
        for win in one.wins:
            predicted = win.note if win.predicted is None else "  ".join(win.predicted.cells[1:4])
            rows.append([one.scenario, win.player, "  ".join(win.recorded.cells[1:4]), predicted])
    return Table("", ("scenario", "player", "recorded", "predicted"), rows)
