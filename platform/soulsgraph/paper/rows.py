"""Win rates of a reproduction: Table 1, what else its agents are evaluated on, and their table in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from soulsgraph.evaluate import (
    EVALUATION_SEED,
    TABLE_1,
    OnFinished,
    Row,
    Setting,
    allowed_rows,
    evaluate,
    evaluation_seeds,
    play,
    started_at,
)
from soulsgraph.paper.records import Reproduction, load_reproductions
from soulsgraph.paper.study import HOME, SHIFTED, Unit, evaluation_seed
from soulsgraph.run_folder import RunFolder
from soulsgraph.statistics import SettingRates
from soulsgraph_envs.combat.episodes import Episodes
from soulsgraph_envs.combat.scripted import OracleDodge, OracleEndToEnd, OracleFight, Script, engaging
from soulsgraph_envs.core.scenario import Scenario, load_scenario
from soulsgraph_envs.skills import END_TO_END, make_skill
from soulsgraph_policies.agent import Agent

#: Where the scripted references play.
_FIGHTS = ((HOME, "mid"), (SHIFTED, "mid"), (SHIFTED, "long"))
#: Rows of references: two oracles a fight.
REFERENCE_ROWS = 2 * len(_FIGHTS)
_FINE_TUNED_LONG = Row("long-range start, fine-tuned", "extra", SHIFTED, float("nan"), start="long", trained_on=SHIFTED)

Rows = list[dict[str, Any]]


def evaluated_settings(run: RunFolder, unit: Unit) -> tuple[tuple[Row, Setting], ...]:
    """Return what the unit's agent is evaluated on."""
    settings = allowed_rows(run)
    if unit.part == "skills":
        extra = _FINE_TUNED_LONG
        return (*settings, (extra, Setting(extra.scenario, extra.trained_on, extra.start)))
    if unit.part == "end_to_end":
        return settings
    label = f"single end-to-end agent, {run.plan.budget(END_TO_END):,} steps"
    return tuple((replace(row, part="extra", label=label), setting) for row, setting in settings)


def evaluate_settings(run: RunFolder, unit: Unit, on_finished: OnFinished) -> Rows:
    """Evaluate everything on the same evaluation seeds; return one row a setting."""
    rows = []
    for row, setting in evaluated_settings(run, unit):
        seed = evaluation_seed(unit.seed)
        played = evaluate(run, setting, run.plan.episodes, seed, on_finished=on_finished).episodes
        papers = None if row.part == "extra" else row.paper_percent
        place = {"part": row.part, "label": row.label, "scenario": row.scenario, "start": row.start}
        rows.append({"seed": unit.seed, **place, "paper_percent": papers, **_outcome(played)})
    return rows


def evaluate_references(episodes: int, on_finished: OnFinished = lambda count: None) -> Rows:
    """Evaluate the scripted oracles, which know the boss's hits in advance: the upper bound of each fight.

    They have no training seed; their rows carry that of the evaluation episodes. There are `REFERENCE_ROWS`
    of them, and each plays `episodes`.
    """
    rows = []
    for name, start in _FIGHTS:
        full = {**engaging(), "dodge": OracleDodge(), "heal_attack": OracleFight()}
        restricted = {END_TO_END: OracleEndToEnd(load_scenario(name))}
        for label, scripts in (("scripted oracle", full), ("scripted oracle, the baseline's 16 actions", restricted)):
            place = {"part": "reference", "label": label, "scenario": name, "start": start, "paper_percent": None}
            fight = started_at(load_scenario(name), start)
            rows.append(
                {"seed": EVALUATION_SEED, **place, **_outcome(_scripted(fight, scripts, episodes, on_finished))}
            )
    return rows


def _scripted(scenario: Scenario, scripts: Mapping[str, Script], episodes: int, on_finished: OnFinished) -> Episodes:
    agent = Agent(scenario, tuple(make_skill(skill) for skill in scripts), replaced=scripts)
    return play(agent, evaluation_seeds(EVALUATION_SEED, episodes), on_finished)


def _outcome(played: Episodes) -> dict[str, Any]:
    return {
        "wins": int(played.won.sum()),
        "episodes": len(played),
        "mean_return": float(played.returns.mean()),
        "mean_length": float(played.lengths.mean()),
        "mean_seconds": float(played.seconds.mean()),
    }


_HEADINGS = ("setting", "paper", "median", "each seed in %", "wins")


@dataclass(frozen=True)
class SeedTable:
    """The settings of one reproduction."""

    reproduction: Reproduction

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain values, rates as ratios."""
        rows = [
            {
                "part": setting.part,
                "setting": setting.label,
                "scenario": setting.scenario,
                "start": setting.start,
                "paper_percent": setting.paper_percent,
                "seeds": {str(rate.seed): {"wins": rate.wins, "episodes": rate.episodes} for rate in setting.seeds},
                "median_rate": median(rate.wins / rate.episodes for rate in setting.seeds),
            }
            for setting in sorted(self.reproduction.settings, key=_place)
        ]
        return {"name": self.reproduction.name, "preset": self.reproduction.preset, "rows": rows}

    def to_rich(self) -> Table:
        """Return the table for the terminal."""
        table = Table(title=f"Win rates, {self.reproduction.title}")
        for heading in _HEADINGS:
            table.add_column(heading, justify="left" if heading == "setting" else "right", overflow="fold")
        for row in self.to_dict()["rows"]:
            table.add_row(*_cells(row))
        return table


def seed_tables(folders: Sequence[Path]) -> list[SeedTable]:
    """Return the table of every folder's records.

    Raises:
        SoulsGraphError: if a folder holds no records, or some that are damaged.
    """
    return [SeedTable(reproduction) for reproduction in load_reproductions(folders)]


def _place(setting: SettingRates) -> tuple[str, int]:
    """Order the settings as Table 1 does, then the others."""
    order = [row.label for row in TABLE_1]
    return setting.part, order.index(setting.label) if setting.label in order else len(order)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    papers = "" if row["paper_percent"] is None else f"{row['paper_percent']:g} %"
    rates = " ".join(f"{100 * seed['wins'] / seed['episodes']:.1f}" for seed in row["seeds"].values())
    wins = " ".join(str(seed["wins"]) for seed in row["seeds"].values())
    episodes = "/".join(map(str, sorted({seed["episodes"] for seed in row["seeds"].values()})))
    fight = f" ({row['scenario']}, {row['start']})" if row["part"] == "reference" else ""
    place = row["setting"] + fight
    return place, papers, f"{100 * row['median_rate']:.1f} %", rates, f"{wins} of {episodes}"
