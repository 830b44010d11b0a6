"""What a chain of adaptations retains: its matrix, its measures, and its old versions."""

import json

import pytest

from fakes.runs import pretend_run, pretend_training
from soulsgraph.results.tables import read_rows
from soulsgraph.runs.lineage import adaptation_stages
from soulsgraph.runs.plan import Plan
from soulsgraph.transfer.retention import chain_rates_over_seeds, measure_retention, measures_over_seeds
from soulsgraph_envs.core.errors import SoulsGraphError


def test_the_matrix_of_a_chain_is_evaluated_and_written(tmp_path):
    run = pretend_run(tmp_path / "run", Plan(scale=0.01))
    with pytest.raises(SoulsGraphError, match="adapt"):
        measure_retention(run, 5, display="silent")
    for scenario in ("iudex-phase2", "vordt"):
        pretend_training(run, adaptation_stages(run, scenario, ("dodge", "heal_attack")))
    retention = measure_retention(run, 5, display="silent")
    assert retention.domains == ("iudex-phase1", "iudex-phase2", "vordt")
    assert retention.wins.shape == (3, 3)
    assert len(read_rows(run.results("retention"))) == 12
    written = json.loads((run.path / "results" / "retention.json").read_text())
    assert written["isolated_forgetting"][0][0] is None
    assert [kept.domain for kept in retention.kept] == ["iudex-phase1", "iudex-phase2"]
    assert [(kept.now == kept.before).all() for kept in retention.kept] == [True, True], "old versions play as before"
    assert [found.domain for found in retention.training] == ["iudex-phase2", "vordt"]
    assert written["training_forward_transfer"]["vordt"]["alone_area"] is None
    rates, measures = chain_rates_over_seeds({0: retention}), measures_over_seeds({0: retention})
    assert len(rates.rows()) == 12
    named = {row["measure"]: row for row in measures.rows()}
    assert named["change of iudex-phase1, own versions"]["mean"] == 0.0
    assert named["forward transfer while training in vordt"]["each_seed"] == "0: missing"
