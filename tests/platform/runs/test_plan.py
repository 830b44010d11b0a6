"""Plans: budgets, stages, and their way through JSON."""

import re
from dataclasses import replace

import pytest

from soulsgraph.runs.plan import LEAST_SCALE, Plan, check_learns, scenario_digest
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import StageSetup
from soulsgraph_envs.core.config import to_table
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.skills import END_TO_END, SKILL_NAMES, SkillOptions, budget_of, make_skill
from soulsgraph_policies.learning.hyperparameters import PRESETS, skill_hyperparameters


def test_default_budgets_add_up_to_the_papers_230k():
    assert sum(map(budget_of, SKILL_NAMES)) == 230_000
    assert [stage.budget for stage in Plan().stages()] == [20_000, 20_000, 20_000, 80_000, 90_000]
    assert [stage.budget for stage in Plan(graph="end-to-end").stages()] == [250_000]
    assert to_table(Plan()).items() >= {"preset": "best", "seed": 0, "env_runners": 0, "episodes": 400}.items()


def test_stages_follow_the_graph_with_seeds_of_their_own():
    stages = Plan(seed=3).stages()
    assert [stage.skill for stage in stages] == ["camera", "lock_on", "movement", "dodge", "heal_attack"]
    assert len({stage.seed for stage in stages} | {stage.seed for stage in Plan(seed=4).stages()}) == 10


def test_a_preset_gives_skills_budgets_of_their_own_and_trains_neighbours_in_the_same_fights():
    whole = PRESETS["whole"]
    plan = Plan(preset="whole", scale=0.5)
    assert [stage.skills for stage in plan.stages()] == [("camera",), ("lock_on",), ("movement",), whole.jointly]
    budgets = {part.skill: part.budget for stage in plan.stages() for part in stage.parts}
    assert budgets == {name: round(0.5 * whole.budgets[name] * budget_of(name)) for name in SKILL_NAMES}
    assert len({part.seed for stage in plan.stages() for part in stage.parts}) == 5
    assert plan.stages()[-1].parent is None
    assert plan.whole_budget("dodge", "heal_attack") == sum(2 * budgets[name] for name in whole.jointly)
    own = replace(plan, learners={"heal_attack": "mine:Learner"})
    assert [stage.skills for stage in own.stages()] == [(name,) for name in SKILL_NAMES]


@pytest.mark.parametrize(("preset", "decisions"), [("paper", 230_000), ("best", 230_000), ("wide", 630_000)])
def test_a_preset_trains_for_as_many_decisions_as_its_published_agents(preset, decisions):
    assert sum(part.budget for stage in Plan(preset=preset).stages() for part in stage.parts) == decisions


def test_an_adapting_stage_continues_a_version_under_a_name_of_its_own():
    stage = Plan(scale=0.5).stage("dodge", "iudex-phase2", parent=1)
    assert (stage.name, stage.budget, stage.parent) == ("dodge@iudex-phase2", 20_000, 1)
    assert stage.seed != Plan(scale=0.5).stage("dodge").seed


def test_another_preset_observes_in_its_own_way():
    plan = Plan(preset="best", overrides={"observations": "extended"}, skill_options=SkillOptions(hp_window=False))
    assert (plan.options.animations, plan.options.observations) == ("one_hot", "extended")
    assert replace(plan, preset="paper", overrides={}).options == SkillOptions(hp_window=False)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_baseline_takes_nothing_of_a_preset_but_its_lanes(preset, tmp_path):
    plan = Plan(preset=preset, graph="end-to-end", overrides={"lr": 1e-2, "animations": "one_hot", "lanes": 2})
    run = RunFolder.create(tmp_path / "run", plan)
    setup = StageSetup(run, plan.stages()[0])
    assert setup.hyperparameters == replace(skill_hyperparameters(250_000), capacity=100_000)
    assert setup.skills[-1].observation == make_skill(END_TO_END).observation
    assert (plan.method.lanes, plan.method.steps_per_round) == (2, PRESETS[preset].steps_per_round)


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


@pytest.mark.parametrize("preset", PRESETS)
def test_the_smallest_scale_that_is_named_is_the_smallest_that_trains(preset):
    plan = Plan(preset=preset, scale=LEAST_SCALE)
    with pytest.raises(SoulsGraphError, match="scale") as refused:
        check_learns(plan, plan.stages())
    least = float(re.search(r"`scale` \D*([\d.]+)", str(refused.value))[1])
    check_learns(enough := replace(plan, scale=least), enough.stages())
    below = replace(plan, scale=least - 0.001)
    with pytest.raises(SoulsGraphError):
        check_learns(below, below.stages())
