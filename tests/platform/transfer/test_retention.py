"""Forward transfer, backward transfer and forgetting, by hand-worked matrices."""

import json

import numpy as np
import pytest

from fakes.runs import pretend_run, pretend_training
from soulsgraph.results.tables import read_rows
from soulsgraph.runs.lineage import adaptation_stages
from soulsgraph.runs.plan import Plan
from soulsgraph.transfer import check_chains
from soulsgraph.transfer.retention import (
    HomeRetention,
    backward_transfer,
    chain_rates_over_seeds,
    forgetting,
    forward_transfer,
    isolated_forgetting,
    measure_retention,
    measures_over_seeds,
    zero_shot_forward_transfer,
)
from soulsgraph_envs.core.errors import SoulsGraphError

#: Win rate in domain j (column) after training on domain i (row).
MATRIX = np.array([[0.8, 0.3, 0.1], [0.5, 0.6, 0.2], [0.4, 0.5, 0.7]])
RANDOM = np.array([0.0, 0.1, 0.05])


def test_forward_transfer_looks_one_domain_ahead_and_over_random_play():
    assert forward_transfer(MATRIX, RANDOM) == pytest.approx(((0.3 - 0.1) + (0.2 - 0.05)) / 2)


def test_backward_transfer_compares_the_end_with_each_domains_own_end():
    assert backward_transfer(MATRIX) == pytest.approx(((0.4 - 0.8) + (0.5 - 0.6)) / 2)


def test_forgetting_is_what_was_lost_since_and_0_for_the_last():
    np.testing.assert_allclose(forgetting(MATRIX), [0.4, 0.1, 0.0])


def test_isolated_forgetting_blames_each_later_domain_for_its_part():
    lost = isolated_forgetting(MATRIX)
    np.testing.assert_allclose(lost[0, 1:], [(0.8 - 0.5) / 0.8, (0.5 - 0.4) / 0.8])
    assert lost[1, 2] == pytest.approx((0.6 - 0.5) / 0.6)
    assert np.isnan(lost[np.tril_indices(3)]).all()


def test_zero_shot_transfer_credits_each_earlier_domain_for_its_part():
    brought = zero_shot_forward_transfer(MATRIX)
    assert brought[2, 1] == pytest.approx((0.2 - 0.1) / 0.7)
    assert np.isnan(brought[np.triu_indices(3)]).all()


def test_a_domain_never_won_neither_forgets_nor_gains():
    nothing = np.zeros((2, 2))
    assert isolated_forgetting(nothing)[0, 1] == 0.0
    assert forgetting(nothing).tolist() == [0.0, 0.0]


def test_the_matrix_of_a_chain_is_evaluated_and_written(tmp_path):
    run = pretend_run(tmp_path / "run", Plan(scale=0.01))
    with pytest.raises(SoulsGraphError, match="adapt it first: `adaptation_stages"):
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
    assert [(kept.now == kept.before).all() for kept in retention.kept] == [True, True], "the old versions play as ever"
    assert [found.domain for found in retention.training] == ["iudex-phase2", "vordt"]
    assert "`recover(" in written["training_forward_transfer"]["vordt"]["missing"]
    rates, measures = chain_rates_over_seeds({0: retention}), measures_over_seeds({0: retention})
    assert len(rates.rows()) == 12
    named = {row["measure"]: row for row in measures.rows()}
    assert named["change of iudex-phase1, own versions"]["mean"] == 0.0
    assert named["forward transfer while training in vordt"]["each_seed"] == "0: missing"


def test_old_versions_that_play_otherwise_would_show():
    kept = HomeRetention("iudex-phase1", np.array([True, True, False, False]), np.array([True, False, False, False]))
    assert kept.to_dict()["difference"] == -0.25
    assert "2/4 before what came later, 1/4 now, -25.0 points; 1 episodes ended otherwise" in kept.line()


def test_seeds_of_different_chains_are_not_put_together():
    check_chains({1: ("a", "b"), 2: ("a", "b")})
    with pytest.raises(SoulsGraphError, match="go through a -> b as seed 1 did, found a for seed 2"):
        check_chains({1: ("a", "b"), 2: ("a",)})
