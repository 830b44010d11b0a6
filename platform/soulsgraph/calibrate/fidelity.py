"""How wrong scenarios are about recorded fights: each beside its floor, with the win rates that it predicts.

The floor is the same measured on fights that the simulator itself fought by the same scenario, through the same door:
what a recording does not show is guessed, so even the true data are not without error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from soulsgraph.calibrate.comparison import (
    BETWEEN,
    DISTANCES,
    HORIZONS_S,
    MEASURES,
    SHARES,
    WITHIN,
    FightComparison,
    Measure,
    OnStep,
    compare,
    silent,
)
from soulsgraph.calibrate.floor import fighter_of, floor_fights
from soulsgraph.calibrate.replay import ReadFight
from soulsgraph.recordings.check import Group, groups_of, skills_text
from soulsgraph.recordings.coverage import ALIKE
from soulsgraph.recordings.files import RecordingError, read_recording, recording_files
from soulsgraph.recordings.format import Ground, Header
from soulsgraph.recordings.recording import Fighter
from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import Table, number
from soulsgraph.runs.evaluate import EVALUATION_SEED, evaluation_seeds, play
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import Scenario, load_scenario

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

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each situation, horizon and quantity: the error and its floor."""
        return [
            {"scenario": self.scenario, "situation": one.situation, "horizon_s": one.horizon_s, "spans": len(one)}
            | {"quantity": name, **one.summary(name)}
            | {f"floor_{key}": value for key, value in floor.summary(name).items()}
            for one, floor in zip(self.measured.spans, self.floor.spans, strict=True)
            for name in (*MEASURES, *SHARES)
        ]

    def behaviour_rows(self) -> list[dict[str, Any]]:
        """Return a row for each distribution: how far recorded and simulated lie apart, and its floor."""
        floor = self.floor.behaviour()
        return [
            {"scenario": self.scenario, "distribution": name, "apart": value, "floor_apart": floor[name]}
            for name, value in self.measured.behaviour().items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values; struck in both is of those struck in either."""
        both = [
            {"situation": one.situation, "horizon_s": one.horizon_s, "share": one.struck_in_both}
            | {"floor_share": floor.struck_in_both, "struck": int(one.struck.sum())}
            | {"struck_simulated": int(one.struck_simulated.sum())}
            for one, floor in zip(self.measured.spans, self.floor.spans, strict=True)
        ]
        return {
            "scenario": self.scenario,
            "floor": {"fights": self.floor_fights, "players": self.floor_players},
            "errors": self.rows(),
            "struck_in_both": both,
            "distributions": self.behaviour_rows(),
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


def read_fights(folder: Path) -> list[ReadFight]:
    """Read recorded fights of one scenario.

    Raises:
        RecordingError: naming a file that is damaged, of another scenario than the first, map, version or speed, or
            without control ticks.
    """
    fights: list[ReadFight] = []
    for path in recording_files(folder):
        fight = ReadFight.of(read_recording(path))
        if fights:
            _check_alike(path, fights[0].header, fight.header)
        fights.append(fight)
    return fights


#: What of a header is alike in all fights that are compared together.
_ALIKE = (*ALIKE, "scenario_digest")


def _check_alike(path: Path, first: Header, header: Header) -> None:
    for name in _ALIKE:
        expected, found = (getattr(one, name) for one in (first, header))
        if expected != found:
            what = name.replace("_", " ")
            shown = f"{expected}, as in {first.fight}" if name != "scenario_digest" else f"that of {first.fight}"
            raise RecordingError(path, f"a fight of the {what} {shown}", found, "keep them in folders of their own")


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
    on_step: OnStep = silent,
) -> Fidelity:
    """Measure how wrong scenarios, by names or paths, are about recorded fights.

    The floor of each is measured on fights of the same players there, and predicted win rates over as many `episodes`.

    Raises:
        SoulsGraphError: if a scenario does not fit the fights, or no row of them can be replayed.
    """
    for name in scenarios:
        check_fits(load_scenario(name), name, fights[0].header)
    groups = tuple(groups_of(fight.header for fight in fights))
    work = _Work(fights, groups, episodes, seed, on_step)
    return Fidelity(groups, tuple(work.on(name, label) for name, label in _labels(scenarios).items()))


def _label(scenario: str) -> str:
    return Path(scenario).name if scenario.endswith(".toml") else scenario


def _labels(scenarios: Sequence[str]) -> dict[str, str]:
    """Return what each scenario is called in a report: by its file's name where no two are the same."""
    short = {name: _label(name) for name in scenarios}
    alike = Counter(short.values())
    return {name: label if alike[label] == 1 else name for name, label in short.items()}


@dataclass(frozen=True)
class _Work:
    """What is done on each scenario: the fights, in their groups, and what is drawn."""

    fights: Sequence[ReadFight]
    groups: Sequence[Group]
    episodes: int
    seed: int
    on_step: OnStep

    def on(self, name: str, label: str) -> ScenarioFidelity:
        """Return how wrong a scenario is."""
        scenario = load_scenario(name)
        measured = compare(self.fights, scenario, self.seed, self.on_step)
        fighters = [(group, fighter_of(group.headers[0], name)) for group in self.groups]
        floor, players = floor_fights([fighter for _, fighter in fighters], scenario, name, self.fights, self.seed)
        self.on_step()
        wins = tuple(_predicted(group, fighter, self.episodes, self.seed) for group, fighter in fighters)
        self.on_step()
        below = compare(floor, scenario, self.seed, self.on_step)
        return ScenarioFidelity(label, measured, below, len(floor), players, wins)


def _predicted(group: Group, fighter: Fighter | str, episodes: int, seed: int) -> PredictedWins:
    player = f"{group.player} ({skills_text(group.headers[0])})"
    recorded = replace(group.win_rate, setting=player)
    if not isinstance(fighter, Fighter):
        return PredictedWins(player, recorded, None, fighter)
    if group.headers[0].ground.refill or fighter.agent.scenario.refill:
        return PredictedWins(player, recorded, None, "nobody wins where HP are filled up")
    return PredictedWins(
        player, recorded, WinRate.of(play(fighter.agent, evaluation_seeds(seed, episodes)).won, player)
    )


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
    headings = ["error", *(["scenario"] if len(scenarios) > 1 else []), *(f"after {s:g} s" for s in HORIZONS_S)]
    rows = [
        [_title(name), *([one.scenario] if len(scenarios) > 1 else []), *_error_cells(one, situation, name, shown)]
        for name in (*MEASURES, *SHARES)
        for one in scenarios
    ]
    return Table("", headings, rows)


def _title(name: str) -> str:
    return SHARES[name] if name in SHARES else _with_unit(MEASURES[name])


def _with_unit(measure: Measure) -> str:
    return f"{measure.title}, {measure.unit}" if measure.unit else measure.title


def _error_cells(one: ScenarioFidelity, situation: str, name: str, shown: Sequence[str]) -> list[str]:
    pairs = [(one.measured.span(situation, s), one.floor.span(situation, s)) for s in HORIZONS_S]
    texts = [tuple(_error_text(span.summary(name), name, shown) for span in pair) for pair in pairs]
    return [_with_floor(*pair) for pair in texts]


def _with_floor(measured: str, floor: str) -> str:
    return f"{measured} ({floor})"


def _error_text(summary: Mapping[str, float | None], name: str, shown: Sequence[str]) -> str:
    if name in SHARES:
        return _percent(summary["share"])
    digits = MEASURES[name].digits
    return ", ".join(_number(summary[name], digits) for name in shown)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else number(value, digits)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def struck_table(scenarios: Sequence[ScenarioFidelity]) -> Table:
    """Return how often recorded and replayed rows were struck, and in both of those in either."""
    rows = []
    for one in scenarios:
        for horizon_s in HORIZONS_S:
            span, floor = one.measured.span(WITHIN, horizon_s), one.floor.span(WITHIN, horizon_s)
            counts = [str(len(span)), str(int(span.struck.sum())), str(int(span.struck_simulated.sum()))]
            both = _with_floor(_percent(span.struck_in_both), _percent(floor.struck_in_both))
            rows.append([one.scenario, f"{horizon_s:g} s", *counts, both])
    return Table("", ("scenario", "within", "rows", "struck, recorded", "simulated", "in both"), rows)


def behaviour_table(scenarios: Sequence[ScenarioFidelity]) -> Table:
    """Return how far the distributions lie apart, with the floor."""
    rows = []
    for one in scenarios:
        measured, floor = one.measured.behaviour(), one.floor.behaviour()
        cells = [
            _with_floor(_number(measured[name], distance.digits), _number(floor[name], distance.digits))
            for name, distance in DISTANCES.items()
        ]
        rows.append([one.scenario, *cells])
    return Table("", ("scenario", *map(_with_unit, DISTANCES.values())), rows)


def move_table(comparison: FightComparison) -> Table:
    """Return how often each move began and struck, and what it cost, recorded and simulated."""
    rows = []
    for row in comparison.moves():
        shares = [_percent(row[name]) for name in ("share", "share_simulated", "struck", "struck_simulated")]
        damage = [_number(row[name], 0) for name in ("damage_hp", "damage_hp_simulated")]
        rows.append([str(row["move"]), str(row["begun"]), *shares, *damage])
    pairs = [f"{what}, {where}" for what in ("share", "struck", "damage") for where in ("recorded", "simulated")]
    return Table("", ("move", "begun", *pairs), rows)


def win_table(scenarios: Sequence[ScenarioFidelity]) -> Table:
    """Return recorded win rates beside predicted ones."""
    rows = []
    for one in scenarios:
        for win in one.wins:
            predicted = win.note if win.predicted is None else "  ".join(win.predicted.cells[1:4])
            rows.append([one.scenario, win.player, "  ".join(win.recorded.cells[1:4]), predicted])
    return Table("", ("scenario", "player", "recorded", "predicted"), rows)
