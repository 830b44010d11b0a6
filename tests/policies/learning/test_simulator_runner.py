from dataclasses import replace

import pytest
from ray.rllib.core import COMPONENT_RL_MODULE
from ray.rllib.utils.metrics import NUM_MODULE_STEPS_SAMPLED_LIFETIME

from fakes.stages import assert_same, built, differs, run
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.skills import make_skill, training_scenario
from soulsgraph_policies.learning.algorithm import SkillDQN
from soulsgraph_policies.learning.env_runners import SkillGraphEnvRunner
from soulsgraph_policies.learning.hyperparameters import skill_hyperparameters
from soulsgraph_policies.learning.sampler import Transitions

SKILLS = tuple(make_skill(name) for name in ("camera", "lock_on"))


def make_runner(index: int) -> SkillGraphEnvRunner:
    scenario = training_scenario(load_scenario("iudex-phase1"), SKILLS[-1])
    config = SkillDQN.get_default_config().stage(SKILLS, skill_hyperparameters(1_000), 128, seed=3)
    config = config.environment(env_config={"scenario": scenario})
    config = config.env_runners(num_env_runners=2, num_envs_per_env_runner=8)
    return SkillGraphEnvRunner(config=config, worker_index=index)


@pytest.fixture
def state():
    modules = make_runner(0).config.get_multi_rl_module_spec().build()
    weights = {skill.name: modules[skill.name].unwrapped().weights() for skill in SKILLS}
    return {COMPONENT_RL_MODULE: weights, NUM_MODULE_STEPS_SAMPLED_LIFETIME: {"lock_on": 500}}


def test_a_restarted_runner_plays_nothing_until_it_has_every_skills_weights(state):
    runner = make_runner(1)
    weights = state[COMPONENT_RL_MODULE]
    runner.set_state(state | {COMPONENT_RL_MODULE: {"lock_on": weights["lock_on"]}})
    with pytest.raises(AssertionError):
        runner.sample()
    runner.set_state(state | {COMPONENT_RL_MODULE: {"camera": weights["camera"]}})
    (chunk,) = runner.sample()
    assert 1 <= len(chunk.transitions["lock_on"]) <= 128


def test_newer_weights_are_played_and_those_that_do_not_fit_are_refused(state):
    runner, other = make_runner(1), make_runner(2)
    runner.set_state(state)
    newer = {name: values + 1 for name, values in state[COMPONENT_RL_MODULE]["lock_on"].items()}
    runner.set_state({COMPONENT_RL_MODULE: {"lock_on": newer}})
    wrong = newer | {"q_network.4.bias": newer["q_network.4.bias"][:1]}
    with pytest.raises(SoulsGraphError, match="weights"):
        runner.set_state({COMPONENT_RL_MODULE: {"lock_on": wrong}})
    assert_same(runner.played_weights("lock_on"), newer)
    other.set_state(state | {COMPONENT_RL_MODULE: state[COMPONENT_RL_MODULE] | {"lock_on": newer}})
    assert_same(other.played_weights("camera"), runner.played_weights("camera"))


def test_two_skills_of_one_module_share_weights_replay_and_normaliser():
    camera, scenario = SKILLS[0], training_scenario(load_scenario("iudex-phase1"), SKILLS[0])
    numbers = replace(skill_hyperparameters(1_000), capacity=1_000)
    config = SkillDQN.get_default_config()
    config = config.stage([camera, replace(camera, name="twin")], numbers, 128, seed=3)
    config = config.multi_agent(policies={"eye"}, policy_mapping_fn=lambda *_: "eye", policies_to_train=["eye"])
    config = config.environment(env_config={"scenario": scenario}).env_runners(num_envs_per_env_runner=8)
    stage = built(config)
    before, runner = stage.weights("eye"), stage.env_runner_group.local_env_runner
    run(stage)
    assert runner.modules == {"camera": "eye", "twin": "eye"}
    (learned,) = stage.training.values()
    assert (learned.decisions, learned.replay.size) == (1_000, 1_000)  # Of both skills, in one replay.
    assert learned.normalizer.count == pytest.approx(1_000, abs=1)
    assert set(learned.replay._rows[:, -1].astype(int)) <= set(range(len(camera.actions)))
    own = stage.weights("eye")
    assert differs(own, before)
    for skill in ("camera", "twin"):
        assert_same(runner.played_weights(skill), own)
    assert runner._sampler.ticks < 70  # 16 decisions a tick: both skills' are collected.


def fights(runner, samples=20) -> Transitions:
    """Return the decisions that a runner samples."""
    return Transitions.join([runner.sample()[0].transitions["lock_on"] for _ in range(samples)])


def test_a_runner_in_place_of_a_lost_one_fights_other_fights_and_numbers_its_episodes_on(state):
    played = []
    # As Ray restarts an actor: its constructor runs again, and the driver sends weights and counts.
    for index, received in ((1, 0), (1, 500), (1, 501), (2, 501), (1, 0)):
        runner = make_runner(index)
        runner.set_state(state | {NUM_MODULE_STEPS_SAMPLED_LIFETIME: {"lock_on": received}})
        played.append(fights(runner))
    *others, again = played
    assert_same(vars(played[0]), vars(again))
    keys = [set(zip(one.lanes.tolist(), one.episodes.tolist(), strict=True)) for one in others]
    rows = [set(map(bytes, one.observations)) for one in others]
    for one, other in ((0, 1), (1, 2), (2, 3)):
        assert not keys[one] & keys[other]
        # Of some thousand observations a few are those of no lock, which are all alike.
        assert len(rows[one] & rows[other]) < 0.5 * len(rows[one])
        assert (others[one].actions[:64] != others[other].actions[:64]).any()
    for before, after in ((0, 1), (1, 2)):
        assert others[before].episodes.max() < others[after].episodes.min()


def test_a_restored_runner_goes_on_in_the_streams_that_were_saved_and_a_restart_in_none_of_them(state):
    whole, restored = make_runner(1), make_runner(1)
    whole.set_state(state | {NUM_MODULE_STEPS_SAMPLED_LIFETIME: {"lock_on": 0}})
    fights(whole, 3)
    saved = whole.get_training_state()
    # As a resume does: the counts of the checkpoint come first, and the runner's own state after them.
    restored.set_state(state)
    restored.set_training_state(saved)
    whole.set_state({NUM_MODULE_STEPS_SAMPLED_LIFETIME: {"lock_on": 500}})
    assert_same(vars(fights(whole, 10)), vars(fights(restored, 10)))
