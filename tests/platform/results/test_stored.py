"""Tables and pages under `docs/results` come out the same when they are made again of the counts beside them."""

import json
from pathlib import Path

import numpy as np
import pytest

from soulsgraph.paper.report import load_earlier
from soulsgraph.project.comparing import AgentResult, GraphComparison
from soulsgraph.results.seeds import FIGURES
from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import read_rows
from soulsgraph.runs.plan import Plan
from soulsgraph.transfer.recovery import JOINTLY, RecoveryTarget, recovery_over_seeds
from soulsgraph.transfer.report import controls_over_seeds
from soulsgraph.transfer.retention import Retention, chain_rates_over_seeds
from soulsgraph.zoo import card, maintenance

RESULTS = Path(__file__).parents[3] / "docs" / "results"
REPORTS = sorted(path.parents[1].name for path in RESULTS.glob("*/tables/settings.parquet"))


def _read(file):
    return json.loads((RESULTS / file).read_text(encoding="utf-8"))


def _close(value):
    """Return a value that another processor's last bits may differ from."""
    if isinstance(value, dict):
        return {name: _close(item) for name, item in value.items()}
    return pytest.approx(value, rel=1e-9, nan_ok=True) if isinstance(value, float) else value


def _by_seed(stored):
    seeds = {}
    for row in stored["seeds"]:
        seeds.setdefault(row["seed"], []).append({name: value for name, value in row.items() if name != "seed"})
    return seeds


def _retention(rows):
    wins = {}
    for row in rows:
        wins.setdefault(row["after"], []).append(row["wins"])
    (_, random), *trained = wins.items()
    domains = tuple(name for name, _ in trained)
    return Retention(domains, np.array([n for _, n in trained]), np.array(random), rows[0]["episodes"], (), ())


def _recovery(seeds, **kind):
    return recovery_over_seeds(RecoveryTarget("iudex-phase2", episodes=200, budget=80_000, **kind), seeds)


@pytest.mark.parametrize(
    ("file", "table_of"),
    [
        ("recovery/recovery-iudex-phase2-80000", _recovery),
        ("recovery/jointly-iudex-phase2-80000", lambda seeds: _recovery(seeds, kind=JOINTLY)),
        ("transfer/transfer-controls", controls_over_seeds),
        (
            "chain/retention",
            lambda seeds: chain_rates_over_seeds({seed: _retention(rows) for seed, rows in seeds.items()}),
        ),
    ],
)
def test_a_summary_over_seeds_is_that_of_its_seeds(file, table_of):
    stored = _read(f"{file}.json")
    table = table_of(_by_seed(stored)).to_dict()
    assert table["title"] == stored["title"]
    assert [dict(row) for row in table["rows"]] == [_close(row) for row in stored["rows"]]
    assert table["seeds"] == [_close(row) for row in stored["seeds"]]


@pytest.mark.parametrize("report", REPORTS)
def test_the_figures_of_a_studys_report_are_those_of_its_seeds(report):
    known = load_earlier([RESULTS / report])
    checked = 0
    for row in read_rows(RESULTS / report / "tables" / "settings.parquet"):
        item = known[row["reproduction"]]
        for setting in item.settings:
            if (setting.label, setting.scenario, setting.start) == (row["label"], row["scenario"], row["start"]):
                assert setting.spread.columns() == _close({name: row[name] for name in _columns()})
                checked += 1
    assert checked >= len(known)


def _columns():
    ends = [f"{name}_{end}" for name in ("mean", "interquartile_mean", "deviation") for end in ("low", "high")]
    return (*FIGURES, *ends)


def test_a_comparison_of_graphs_is_that_of_its_agents(tmp_path):
    stored = _read("own-skills/comparison.json")
    agents = tuple(
        AgentResult(one["graph"], one["seed"], WinRate(one["wins"], one["episodes"]), one["seconds"], None)
        for one in stored["agents"]
    )
    GraphComparison(Plan(episodes=stored["episodes"]), agents).save(tmp_path)
    assert (tmp_path / "comparison.md").read_text() == (RESULTS / "own-skills" / "comparison.md").read_text()


def test_the_pages_of_the_zoo_are_those_of_their_counts(tmp_path, monkeypatch):
    compared, verified = _read("zoo/comparison.json"), _read("zoo/verify.json")
    origin = card.TrainingOrigin(**{name: value for name, value in verified.items() if name != "agents"})
    monkeypatch.setattr(maintenance, "describe_origin", lambda: {"commit": compared["commit"]})
    monkeypatch.setattr(card.TrainingOrigin, "now", lambda: origin)
    scores = []
    for one in compared["agents"]:
        rates = {name: WinRate(rate["wins"], rate["episodes"]) for name, rate in one["rates"].items()}
        scores.append(
            maintenance.ScenarioScores(one["agent"], one["trained_on"], rates, tuple(one.get("adapted_to", ())))
        )
    maintenance.save_standings(tmp_path, scores, compared["episodes"])
    rows = []
    for one in verified["agents"]:
        stated, found = (card.EvaluationScore(**one[name]) for name in ("card", "found"))
        changed = tuple(one["changed"])
        rows.append(maintenance.Verification(one["agent"], stated, found, one["same_processor"], changed))
    maintenance.save_verified(tmp_path, rows)
    for page in ("comparison.md", "verify.md"):
        assert (tmp_path / page).read_text() == (RESULTS / "zoo" / page).read_text()
