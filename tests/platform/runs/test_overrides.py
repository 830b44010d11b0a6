"""Options of the learner that a plan changes: for all skills, for one alone, kept, and part of what a stage is."""

from dataclasses import replace

import pytest

from fakes.runs import pretend_run
from soulsgraph.api import changed_run, plan_values
from soulsgraph.runs.lineage import adaptation_stages, finished_versions, own_stage, stage_inputs
from soulsgraph.runs.plan import Plan, check_learns
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.skills import SKILL_NAMES
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters


def _gammas(plan):
    return {stage.skill: plan.hyperparameters(stage).gamma for stage in plan.stages()}


def test_an_option_of_one_skill_is_that_skills_alone_and_goes_before_that_of_all():
    plan = Plan(overrides={"gamma": 0.9, "dodge.gamma": 0.8, "heal_attack.n_step": 3})
    assert _gammas(plan) == {name: 0.8 if name == "dodge" else 0.9 for name in SKILL_NAMES}
    assert [plan.hyperparameters(stage).n_step for stage in plan.stages()] == [1, 1, 1, 1, 3]


def test_what_goes_on_from_a_clone_holds_to_what_was_shown():
    shown = Plan().hyperparameters(replace(Plan().stage("dodge", parent=1), cloned=True))
    assert (shown.margin, shown.exploration(0)) == (0.8, 0.5)


def test_it_counts_in_adaptations_too():
    plan = Plan(overrides={"dodge.epsilon": 0.1})
    assert plan.hyperparameters(plan.stage("dodge", "vordt", 1)).exploration(0) == 0.1
    assert plan.hyperparameters(plan.stage("heal_attack", "vordt", 1)).exploration(0) == 0.3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dodge.gama", 0.9),
        ("doge.gamma", 0.9),
        ("dodge.gamma", 1.5),
        ("dodge.lanes", 2),
        ("dodge.fcnet_hiddens", [32, 32]),
    ],
)
def test_what_is_no_option_of_a_skill_is_refused(name, value):
    with pytest.raises(SoulsGraphError):
        Plan(overrides={name: value})


def test_whether_it_learns_is_asked_of_the_skills_own_options():
    plan = Plan(overrides={"dodge.num_steps_sampled_before_learning_starts": 90_000})
    with pytest.raises(SoulsGraphError, match="dodge"):
        check_learns(plan, plan.stages())


def test_it_is_kept_and_another_one_is_another_stage(tmp_path):
    plan = Plan(scale=0.02, overrides={"dodge.gamma": 0.8})
    run = pretend_run(tmp_path / "run", plan)
    assert RunFolder.open(run.path).plan == plan
    other = RunFolder(run.path, Plan(scale=0.02), run.fight)
    finished = {name: bool(finished_versions(other, own_stage(other, name))) for name in SKILL_NAMES}
    assert finished == {name: name != "dodge" for name in SKILL_NAMES}
    first, second = (stage_inputs(one, own_stage(one, "dodge")) for one in (run, other))
    assert [name for name in first if first[name] != second[name]] == ["learns"]


def test_an_adaptation_learns_by_its_own_and_the_runs_plan_stays(tmp_path):
    run = pretend_run(tmp_path / "run", Plan(scale=0.02, overrides={"gamma": 0.9}))
    changed = changed_run(run, {"dodge": {"lr": 1e-4}})
    (stage,) = adaptation_stages(changed, "vordt", ("dodge",))
    numbers = changed.plan.hyperparameters(stage)
    assert (numbers.lr, numbers.gamma) == (1e-4, 0.9)
    assert RunFolder.open(run.path).plan.overrides == {"gamma": 0.9}
    with pytest.raises(UnknownNameError, match="learning_rat"):
        changed_run(run, {"dodge.learning_rat": 1e-4})


def test_the_baselines_option_is_its_one_skills():
    values = plan_values({"gamma": 0.9}, "end-to-end")
    assert values["overrides"] == {"end_to_end.gamma": 0.9}
    plan = Plan(graph="end-to-end", **values)
    assert plan.hyperparameters(plan.stages()[0]).gamma == 0.9
    assert DQNHyperparameters.gamma != 0.9
