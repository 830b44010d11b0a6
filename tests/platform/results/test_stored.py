"""Tables under `docs/results` come out the same when they are made again of the counts beside them."""

import json
from pathlib import Path

import numpy as np
import pytest

from soulsgraph.transfer.recovery import JOINTLY, RecoveryTarget, recovery_over_seeds
from soulsgraph.transfer.report import controls_over_seeds
from soulsgraph.transfer.retention import Retention, chain_rates_over_seeds

RESULTS = Path(__file__).parents[3] / "docs" / "results"


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
