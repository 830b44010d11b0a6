"""Plans: budgets, stages, and their way through JSON."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soulsgraph.plan import BUDGETS, Plan, scenario_digest
from soulsgraph.run_folder import RunFolder
from soulsgraph.stage_setup import StageSetup
from soulsgraph_envs.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.skills import END_TO_END, SkillOptions, make_skill
from soulsgraph_envs.skills.registry import skill_options
from soulsgraph_policies.hyperparameters import baseline_hyperparameters
from soulsgraph_policies.presets import PRESETS


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


def test_another_preset_observes_in_its_own_way():
    plan = Plan(preset="extended", skill_options=SkillOptions(hp_window=False))
    assert (plan.options.animations, plan.options.observations) == ("one_hot", "extended")
    assert replace(plan, preset="paper").options == SkillOptions(hp_window=False)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_baseline_takes_nothing_of_a_preset_but_its_lanes(preset, tmp_path):
    plan = Plan(preset=preset, graph="end-to-end", overrides={"n_step": 3, "animations": "one_hot", "lanes": 2})
    run = RunFolder.create(tmp_path / "run", plan)
    setup = StageSetup.of(run, plan.stages()[0])
    assert setup.hyperparameters == baseline_hyperparameters(250_000)
    assert setup.skills[-1].observation == make_skill(END_TO_END).observation
    assert (plan.method.lanes, plan.method.decisions_per_round) == (2, PRESETS[preset].decisions_per_round)


def test_an_option_there_is_none_of_is_refused_for_the_baseline_too():
    with pytest.raises(UnknownNameError, match="double"):
        Plan(graph="end-to-end", overrides={"doubel": True})


@given(
    st.integers(0, 2**31 - 1),
    st.floats(0.001, 1000),
    st.sampled_from(["paper", "fast", "best"]),
    st.sampled_from([{}, {"hp_window": False}, {"dodge": {"stamina": "indicator"}}, {"camera": {"bonus": 0.5}}]),
)
def test_a_plan_survives_json(seed, scale, preset, options):
    plan = Plan(seed=seed, scale=scale, preset=preset, skill_options=skill_options(options))
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict())), "plan.json") == plan


@pytest.mark.parametrize("change", [{"speed": 2}, {"options": {"dodge": {"alife": 1}}}, {"preset": "slow"}])
def test_a_plan_with_something_unknown_is_refused(change):
    with pytest.raises(SoulsGraphError):
        Plan.from_dict({**Plan().to_dict(), **change}, "plan.json")


FIGHTS = {
    "its boss": 'based_on = "iudex-phase2"\nname = "own"\nboss = "boss.toml"\n',
    "its second boss": 'based_on = "iudex-full"\nname = "own"\n[transition]\nboss = "boss.toml"\n',
}


def _own_fight(folder, text, damage_factor):
    folder.mkdir()
    boss = f'based_on = "iudex-phase2"\nname = "Harder"\n[scaled]\ndamage_factor = {damage_factor}\n'
    (folder / "boss.toml").write_text(boss)
    (folder / "fight.toml").write_text(text)
    return str(folder / "fight.toml")


@pytest.mark.parametrize("text", FIGHTS.values(), ids=FIGHTS)
def test_a_fights_digest_follows_what_its_files_say_wherever_they_lie(text, tmp_path):
    first, moved = (scenario_digest(_own_fight(tmp_path / name, text, 1.25)) for name in ("here", "there"))
    assert first == moved
    assert scenario_digest(_own_fight(tmp_path / "harder", text, 1.5)) != first


def test_the_scenario_of_vordt_is_the_one_that_skills_were_trained_in():
    # SoulsGym's poses and arena are in scenarios of its own: this one keeps its starts and its ground.
    assert scenario_digest("vordt") == "eca6271da4bdbebdd3cf1bca54e2e1f4a3fc5527bc1ff29704fdd7255bca2cc8"
