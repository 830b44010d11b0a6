"""The whole agent's success while it trains, and the transfer from earlier training."""

import pytest

from fakes.runs import pretend_run, pretend_training
from soulsgraph.runs.evaluate import Setting, checkpoint_files, evaluate, save_checkpoint
from soulsgraph.runs.lineage import adaptation_stages, curve_folder, domain_cards, stage_inputs, stage_of
from soulsgraph.runs.plan import Plan
from soulsgraph.transfer.recovery import SCRATCH, arm_path
from soulsgraph.transfer.retention import POINT_EPISODES, success_curve, training_transfer
from soulsgraph_envs.core.files import write_json
from soulsgraph_envs.skills import SKILL_NAMES
from soulsgraph_policies.agents.library import INPUTS

HOME, SECOND, SEED = "iudex-phase1", "iudex-phase2", 5


@pytest.fixture
def run(tmp_path):
    run = pretend_run(tmp_path / "run", Plan(scale=0.01))
    stages = adaptation_stages(run, SECOND, ("dodge", "heal_attack"))
    pretend_training(run, stages)
    return run


def test_checkpoints_are_points_and_play_their_own_weights(run):
    (dodge, _) = domain_cards(run, SECOND)
    before = success_curve(run, SECOND, SEED)
    stage = stage_of(run, [dodge])
    folder = curve_folder(run, stage)
    for step, version in ((100, 1), (300, dodge.version), (900, 1)):
        save_checkpoint(folder, step, run.library.load("dodge", version).weights)
    write_json(folder / INPUTS, stage_inputs(run, stage))
    curve = success_curve(run, SECOND, SEED)
    for point, after in ((0, HOME), (-1, SECOND)):
        assert curve.rates[point] == evaluate(run, Setting(SECOND, after), POINT_EPISODES, SEED).episodes.won.mean()
    assert curve.steps.tolist() == [0.0, 100.0, 300.0, 400.0, 800.0], "beyond the stage's end nothing counts"
    assert [curve.rates[1], curve.rates[2]] == [before.rates[0], before.rates[1]]
    assert [*checkpoint_files(folder)] == [100, 300, 900]
    assert checkpoint_files(folder / "none") == {}


def test_the_arm_from_scratch_of_the_same_budget_is_the_baseline(run):
    assert training_transfer(run, SECOND, SEED).forward_transfer is None
    pretend_run(arm_path(run, SECOND, 800, SCRATCH), Plan(scenario=SECOND, scale=800 / 230_000))
    found = training_transfer(run, SECOND, SEED)
    assert found.alone.steps[-1] == pytest.approx(800, abs=len(SKILL_NAMES))
    assert found.alone.steps.size == 1 + len(SKILL_NAMES)
    own, alone = found.curve.area, found.alone.area
    assert found.forward_transfer == pytest.approx((own - alone) / (1.0 - alone))
