"""The whole agent's success while it trains, and the transfer from earlier training."""

import numpy as np
import pytest

from fakes.runs import pretend_run, pretend_training
from soulsgraph.runs.evaluate import Setting, checkpoint_files, checkpoint_weights, evaluate, save_checkpoint
from soulsgraph.runs.lineage import adaptation_stages, cards_by_stage, curve_folder, domain_cards, stage_key, stage_of
from soulsgraph.runs.plan import Key, Plan
from soulsgraph.transfer.recovery import SCRATCH, arm_path
from soulsgraph.transfer.retention import (
    POINT_EPISODES,
    SuccessCurve,
    TrainingTransfer,
    success_curve,
    training_transfer,
    win_rates,
)
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.skills import SKILL_NAMES, make_skill
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.inference import DEVIATION, NETWORK, FrozenNetwork, layer_names

HOME, SECOND, SEED = "iudex-phase1", "iudex-phase2", 5


@pytest.fixture
def run(tmp_path):
    run = pretend_run(tmp_path / "run", Plan(scale=0.01))
    stages = adaptation_stages(run, SECOND, ("dodge", "heal_attack"))
    pretend_training(run, stages)
    return run


def test_the_area_is_the_mean_success_over_the_steps():
    curve = SuccessCurve(np.array([0.0, 100.0, 200.0]), np.array([0.0, 1.0, 1.0]))
    assert curve.area == pytest.approx(0.75)


def test_a_curve_goes_from_the_agent_that_came_in_to_the_one_that_was_made(run):
    curve = success_curve(run, SECOND, SEED)
    assert [card.skill for card in domain_cards(run, SECOND)] == ["dodge", "heal_attack"]
    assert curve.steps.tolist() == [0.0, 400.0, 800.0]
    for point, after in ((0, HOME), (-1, SECOND)):
        assert curve.rates[point] == evaluate(run, Setting(SECOND, after), POINT_EPISODES, SEED).episodes.won.mean()


def test_checkpoints_are_points_and_play_their_own_weights(run):
    (dodge, _) = domain_cards(run, SECOND)
    before = success_curve(run, SECOND, SEED)
    stage = stage_of(run, [dodge])
    folder = curve_folder(run, stage)
    stage_key(run, stage).write(folder / Key.FILE)
    for step, version in ((100, 1), (300, dodge.version), (900, 1)):
        save_checkpoint(folder, step, run.library.load("dodge", version).playing)
    curve = success_curve(run, SECOND, SEED)
    assert curve.steps.tolist() == [0.0, 100.0, 300.0, 400.0, 800.0], "beyond the stage's end nothing counts"
    assert [curve.rates[1], curve.rates[2]] == [before.rates[0], before.rates[1]]
    assert [*checkpoint_files(folder)] == [100, 300, 900]
    assert checkpoint_files(folder / "none") == {}


def test_skills_that_learned_jointly_are_one_stage_of_the_curve(tmp_path):
    run = pretend_run(tmp_path / "run", Plan(scale=0.01))
    (stage,) = adaptation_stages(run, one_blow(tmp_path), ("dodge", "heal_attack"), jointly=True)
    stage_key(run, stage).write(curve_folder(run, stage) / Key.FILE)
    pretend_training(run, (stage,))
    learned = {skill: run.library.load(skill, 2).playing for skill in stage.skills}
    _, last_bias = layer_names(learned["heal_attack"])[-1]
    for step, action in ((300, "idle"), (700, "light_attack"), (900, "light_attack")):
        attack = {name: np.zeros_like(values) for name, values in learned["heal_attack"].items()}
        attack[DEVIATION] += 1.0
        attack[last_bias][action_number("heal_attack", action)] = 1.0
        save_checkpoint(run.path / "curves" / stage.name, step, checkpoint_weights(learned | {"heal_attack": attack}))
    curve = success_curve(run, stage.scenario, SEED)
    assert curve.steps.tolist() == [0.0, 300.0, 700.0, 800.0]
    assert curve.rates[1] == 0.0 < curve.rates[2]
    pretend_training(run, adaptation_stages(run, stage.scenario, ("heal_attack",), budget=200))
    again = success_curve(run, stage.scenario, SEED)
    assert again.steps.tolist() == [0.0, 400.0, 600.0], "the skill that learned beside dodge is another version now"


def test_a_joint_stage_after_another_is_found_by_the_name_that_it_had(tmp_path):
    run = pretend_run(tmp_path / "run", Plan(scale=0.01))
    pretend_training(run, adaptation_stages(run, SECOND, ("dodge",)))
    (first,) = adaptation_stages(run, SECOND, ("dodge", "heal_attack"), jointly=True)
    pretend_training(run, (first,))
    (second,) = adaptation_stages(run, SECOND, ("dodge", "heal_attack"), budget=300, jointly=True)
    pretend_training(run, (second,))
    assert len({first.name, second.name}) == 2
    for stage, versions in ((first, {"dodge": 3, "heal_attack": 2}), (second, {"dodge": 4, "heal_attack": 3})):
        cards = [run.library.card(skill, version) for skill, version in versions.items()]
        assert stage_of(run, cards).name == stage.name
        assert cards_by_stage(cards) == [cards]
    torn = [run.library.card("dodge", 4), run.library.card("heal_attack", 2)]
    assert cards_by_stage(torn) == [torn[:1], torn[1:]], "heal-attack learned beside the version before"


def test_without_an_arm_from_scratch_the_command_that_makes_it_is_named(run):
    found = training_transfer(run, SECOND, SEED)
    assert found.forward_transfer is None
    assert found.line().endswith(f"`recover(run='{run.path}', scenario='{SECOND}', budget=800)`")
    assert found.to_dict()["missing"] == found.remedy


def test_the_arm_from_scratch_of_the_same_budget_is_the_baseline(run):
    pretend_run(arm_path(run, SECOND, 800, SCRATCH), Plan(scenario=SECOND, scale=800 / 230_000))
    found = training_transfer(run, SECOND, SEED)
    assert found.alone.steps[-1] == pytest.approx(800, abs=len(SKILL_NAMES))
    assert found.alone.steps.size == 1 + len(SKILL_NAMES)
    own, alone = found.curve.area, found.alone.area
    assert found.forward_transfer == pytest.approx((own - alone) / (1.0 - alone))
    flat = [SuccessCurve(np.array([0.0, 1.0]), np.full(2, rate)) for rate in (0.75, 0.5)]
    assert "+0.500" in TrainingTransfer(SECOND, *flat, remedy="").line()
    always = SuccessCurve(np.array([0.0, 1.0]), np.ones(2))
    assert "not defined" in TrainingTransfer(SECOND, always, always, remedy="").line()


def test_every_agent_of_a_batch_plays_its_own_networks(tmp_path):
    scenario, skills = load_scenario(one_blow(tmp_path)), tuple(make_skill(name) for name in SKILL_NAMES)
    attacking, idling = (always(skills[-1], scenario, action) for action in ("light_attack", "idle"))
    agent = Agent(scenario, skills, replaced=dict.fromkeys(SKILL_NAMES, "random"))
    rates = win_rates(agent.playing({"heal_attack": [idling, attacking, idling]}), SEED, variants=3)
    assert rates[0] == rates[2] == 0.0
    assert rates[1] > 0.0
    assert win_rates(agent.playing({"heal_attack": attacking}), SEED) == [rates[1]], "whoever else plays in the batch"


def one_blow(folder) -> str:
    """Write a scenario whose boss falls by one blow, and return its path."""
    path = folder / "one-blow.toml"
    path.write_text('based_on = "iudex-phase1"\nname = "one-blow"\nboss_hp = [1037.0, 1036.0]\n')
    return str(path)


def action_number(skill: str, action: str) -> int:
    return [found.name for found in make_skill(skill).actions].index(action)


def always(skill, scenario, action) -> FrozenNetwork:
    size, choice = skill.observation.size, action_number(skill.name, action)
    weights = {"observation_mean": np.zeros(size), "observation_deviation": np.ones(size)}
    weights[f"{NETWORK}.0.weight"] = np.zeros((len(skill.actions), size), np.float32)
    weights[f"{NETWORK}.0.bias"] = np.eye(len(skill.actions), dtype=np.float32)[choice]
    return FrozenNetwork.of(skill, scenario, weights, clip=10.0)
