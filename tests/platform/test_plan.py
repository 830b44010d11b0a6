"""Plans: budgets, stages, and their way through JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soulsgraph.plan import BUDGETS, Plan
from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_envs.skills import SkillOptions
from soulsgraph_envs.skills.registry import skill_options


def test_default_budgets_add_up_to_the_papers_230k():
    assert sum(BUDGETS.values()) == 230_000
    assert [stage.budget for stage in Plan().stages()] == [20_000, 20_000, 20_000, 80_000, 90_000]


def test_stages_follow_the_graph_with_seeds_of_their_own():
    stages = Plan(seed=3).stages()
    assert [stage.skill for stage in stages] == ["camera", "lock_on", "movement", "dodge", "heal_attack"]
    assert len({stage.seed for stage in stages} | {stage.seed for stage in Plan(seed=4).stages()}) == 10


def test_an_adapting_stage_continues_a_version_under_a_name_of_its_own():
    stage = Plan(scale=0.5).stage("dodge", "iudex-phase2", parent=1)
    assert (stage.name, stage.budget, stage.parent) == ("dodge@iudex-phase2", 20_000, 1)
    assert stage.seed != Plan(scale=0.5).stage("dodge").seed


def test_the_baseline_trains_for_250k_steps():
    assert [stage.budget for stage in Plan(graph="end-to-end").stages()] == [250_000]


@given(
    st.integers(0, 2**31 - 1),
    st.floats(0.001, 1000),
    st.sampled_from(["paper", "fast"]),
    st.sampled_from([{}, {"hp_window": False}, {"dodge": {"stamina": "indicator"}}, {"camera": {"bonus": 0.5}}]),
)
def test_a_plan_survives_json(seed, scale, preset, options):
    plan = Plan(seed=seed, scale=scale, preset=preset, options=skill_options(options))
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict())), "plan.json") == plan


@pytest.mark.parametrize("change", [{"speed": 2}, {"options": {"dodge": {"alife": 1}}}, {"preset": "slow"}])
def test_a_plan_with_something_unknown_is_refused(change):
    with pytest.raises(SoulsGraphError):
        Plan.from_dict({**Plan(options=SkillOptions()).to_dict(), **change}, "plan.json")
