"""A whole stage without a game: counts, frozen skills, same seed, exact resume."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import torch
from ray._private import ray_constants, services

from fakes.learning import LinearRunner, q_values
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.skills import Mirror, make_skill
from soulsgraph_policies.agents.inference import DEVIATION, MEAN
from soulsgraph_policies.learning.algorithm import SkillDQN
from soulsgraph_policies.learning.checkpoint import FILE_NAME, TrainingStateError
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.learner import AUTOGRAD, CPU_KERNEL

SKILLS = [make_skill(name) for name in ("movement", "dodge", "heal_attack")]
SCENARIO = load_scenario("iudex-phase1")
#: Every method beside vanilla DQN that the compiled updates can do, and all there are.
COMPILED: dict[str, Any] = {
    "double": True,
    "n_step": 3,
    "semi_markov": True,
    "tau": 0.01,
    "priority_exponent": 0.6,
    "mirrored": True,
    "averaged_fraction": 0.7,
    "train_freq": 2,
}
EVERYTHING = COMPILED | {"dueling": True, "quantiles": 5}


@pytest.fixture(scope="module", autouse=True)
def _no_ray() -> Iterator[None]:
    """Training in one process neither needs a Ray nor starts one."""
    yield
    assert not ray.is_initialized()


def make_stage(
    seed: int = 1, budget: int = 3_000, lanes: int = 32, path: str | None = CPU_KERNEL, **options: Any
) -> SkillDQN:
    method = options.pop("method", {})
    numbers = DQNHyperparameters(budget=budget, buffer_size=budget // 3, **{"target_update_interval": 1_000, **method})
    config = SkillDQN.get_default_config()
    config.env_runners(env_runner_cls=LinearRunner, **options).environment(env_config={"lanes": lanes})
    config.stage(SKILLS, numbers, 128 if lanes > 1 else 4, path, Mirror.of(SKILLS[-1], SCENARIO), seed)
    stage = config.build_algo()
    assert isinstance(stage, SkillDQN)
    return stage


def test_a_machine_without_internet_is_not_searched_for_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(address: str | None = None) -> str:
        raise AssertionError("Ray looks for the internet")

    monkeypatch.setattr(services, "node_ip_address_from_perspective", search)
    make_stage(budget=200).stop()
    assert ray_constants.ENABLE_RAY_CLUSTER


def run(stage: SkillDQN) -> SkillDQN:
    while not stage.finished:
        stage.train()
    return stage


def assert_same(first: SkillDQN, second: SkillDQN) -> None:
    for skill in SKILLS:
        mine, theirs = first.weights(skill.name), second.weights(skill.name)
        for name, values in mine.items():
            np.testing.assert_array_equal(values, theirs[name], err_msg=f"{skill.name} {name}")


@pytest.mark.parametrize(("lanes", "budget"), [(1, 403), (32, 1_999)])
def test_budget_and_update_ratio_are_exact(lanes: int, budget: int) -> None:
    stage = run(make_stage(budget=budget, lanes=lanes))
    assert stage.decisions == budget
    assert stage.updates == (budget - 100) // 4
    assert stage.training["heal_attack"].normalizer.count == pytest.approx(budget + 1e-4)
    assert stage.training["heal_attack"].replay.size == budget // 3
    with pytest.raises(SoulsGraphError, match="expected decisions left"):
        stage.train()


def test_at_most_128_decisions_lie_between_updates() -> None:
    stage = make_stage()
    counts = []
    while not stage.finished:
        before = stage.decisions
        stage.training_step()
        counts.append(stage.decisions - before)
    assert max(counts) == 128
    assert stage.updates == (3_000 - 100) // 4


@pytest.mark.parametrize("lanes", [1, 32])
def test_an_iteration_trains_as_its_rounds_do_one_by_one(lanes: int) -> None:
    whole, rounds = make_stage(lanes=lanes), make_stage(lanes=lanes)
    whole.train()
    while rounds.decisions < 1_000:
        rounds.training_step()
    assert whole.decisions == rounds.decisions < 1_000 + 128
    assert whole.updates == rounds.updates > 200
    assert_same(whole, rounds)


def test_results_describe_the_stage_and_its_configuration_stays_frozen() -> None:
    stage = make_stage(budget=2_000)
    first, second = stage.train(), stage.train()
    assert first["config"] is second["config"], "a copy takes longer than a round"
    assert first["config"]["hyperparameters"].budget == 2_000
    assert first["config"]["rollout_fragment_length"] == stage.config.rollout_fragment_length
    assert {"date", "pid", "time_total_s"} <= first.keys()
    assert stage.finished
    with pytest.raises(AttributeError, match="frozen"):
        stage.config.gamma = 0.5


def test_frozen_skills_stay_bit_identical() -> None:
    stage = make_stage()
    before = {skill.name: stage.weights(skill.name) for skill in SKILLS}
    run(stage)
    modules = stage.learner.module, stage.env_runner_group.local_env_runner.module
    for skill in SKILLS[:-1]:
        for module in modules:  # not by what reads weights, but by the tensors that are computed with
            now = {**dict(module[skill.name].named_parameters()), **dict(module[skill.name].named_buffers())}
            assert before[skill.name].keys() <= now.keys()
            for name, values in before[skill.name].items():
                np.testing.assert_array_equal(now[name].detach().numpy(), values)
    trained = stage.weights("heal_attack")
    assert all(abs(values - before["heal_attack"][name]).max() > 0 for name, values in trained.items())


def test_frozen_modules_act_greedily_when_rllib_explores() -> None:
    stage = make_stage(budget=500)
    for skill in SKILLS[:-1]:
        batch = {"obs": torch.randn(500, skill.observation.size) * 5}
        explored, greedy = (
            call(batch)["actions"]
            for call in (
                stage.get_module(skill.name).forward_exploration,
                stage.get_module(skill.name).forward_inference,
            )
        )
        assert torch.equal(explored, greedy)


def test_runner_plays_by_the_newest_weights() -> None:
    stage = run(make_stage(budget=500))
    runner = stage.env_runner_group.local_env_runner
    for name, values in runner.weights("heal_attack").items():
        np.testing.assert_array_equal(values, stage.weights("heal_attack")[name])
    assert runner.decisions == {"heal_attack": 500}


def test_same_seed_same_weights_and_another_seed_others() -> None:
    first, second, other = run(make_stage()), run(make_stage()), run(make_stage(seed=2))
    assert_same(first, second)
    with pytest.raises(AssertionError):
        assert_same(first, other)


def test_a_seed_of_rllibs_own_counts_where_the_stage_has_none() -> None:
    skills, numbers = SKILLS, DQNHyperparameters(budget=10, buffer_size=10)
    initial = []
    for config, seed in ((SkillDQN.get_default_config().debugging(seed=3), None), (SkillDQN.get_default_config(), 3)):
        config.stage(skills, numbers, 4, seed=seed)
        assert config.stage_seed == 3
        spec = config.rl_module_spec.rl_module_specs["heal_attack"]
        initial.append(spec.model_config["seed"])
    assert initial[0] == initial[1]
    for wrong in (-1, 1.5, True, "3"):
        with pytest.raises(SoulsGraphError, match="expected an integer of at least 0 as seed"):
            SkillDQN.get_default_config().stage(skills, numbers, 4, seed=wrong)
    assert SkillDQN.get_default_config().debugging(seed=4).stage(skills, numbers, 4, seed=3).stage_seed == 3


# Without priorities: the last bit of an error decides what is drawn next.
@pytest.mark.parametrize("method", [{}, COMPILED | {"priority_exponent": 0.0}], ids=["vanilla", "compiled methods"])
def test_both_update_paths_train_alike(method: dict[str, Any]) -> None:
    initial = make_stage(budget=800, method=method).weights("heal_attack")
    learned = [
        run(make_stage(budget=800, path=path, method=method)).weights("heal_attack") for path in (CPU_KERNEL, AUTOGRAD)
    ]
    statistics = {name: learned[0][name] for name in (MEAN, DEVIATION)}
    drawn = np.random.default_rng(0).standard_normal((2_000, SKILLS[-1].observation.size))
    observations = (statistics[MEAN] + drawn * statistics[DEVIATION]).astype(np.float32)
    before, compiled, plain = (
        q_values(weights | statistics, observations, clip=10.0) for weights in (initial, *learned)
    )
    # A last bit may change an action, and with it all that follows. Of what was learned, wholly other fights end 0.46
    # apart (0.22 with the compiled methods), other dynamics 2.4 (2.0).
    assert np.std(compiled - plain) < 0.7 * np.std(compiled - before)


@pytest.mark.parametrize(
    ("path", "method"),
    [
        (CPU_KERNEL, {}),
        (AUTOGRAD, {}),
        (CPU_KERNEL, COMPILED),
        (AUTOGRAD, EVERYTHING),
        (CPU_KERNEL, {"num_steps": 512, "batch_size": 128}),
    ],
    ids=["compiled", "autograd", "every compiled method", "every method", "without a replay"],
)
def test_resumed_stage_equals_the_uninterrupted_one_bit_for_bit(
    path: str, method: dict[str, Any], tmp_path: Path
) -> None:
    budget, method = 1_500, {"target_update_interval": 400, **method}
    whole, first = (make_stage(path=path, budget=budget, method=method) for _ in range(2))
    for stage in (whole, first):
        while stage.decisions < 700:  # past a target copy, the buffer full
            stage.training_step()
    first.save_checkpoint(str(tmp_path))
    resumed = make_stage(path=path, budget=budget, method=method)
    resumed.load_checkpoint(str(tmp_path))
    for stage in (whole, resumed):
        run(stage)
    assert_same(whole, resumed)
    assert whole.updates == resumed.updates
    kept = [stage.training["heal_attack"].replay.get_state() for stage in (whole, resumed)]
    np.testing.assert_equal(*kept)
    states = [stage.learner.learning["heal_attack"].get_training_state() for stage in (whole, resumed)]
    for name, values in states[0]["weights"].items():
        np.testing.assert_array_equal(values, states[1]["weights"][name], err_msg=name)


def test_without_a_replay_every_update_that_is_owed_is_taken() -> None:
    # Chunks are no multiple of a rollout: some hold the end of one and the beginning of the next.
    method = {"num_steps": 100, "batch_size": 50, "update_epochs": 2}
    stage = run(make_stage(budget=1_000, path=CPU_KERNEL, method=method))
    taken = stage.learner.learning["heal_attack"].get_training_state()["adam"]["0"]["step"]
    assert stage.updates == taken == 1_000 // 100 * 2 * 2


def test_a_trained_head_is_played_folded_and_continued() -> None:
    method = {"dueling": True, "quantiles": 5, "averaged_fraction": 0.5}
    teacher, pupil = run(make_stage(budget=500, path=None, method=method)), make_stage(9, path=None, method=method)
    played = teacher.weights("heal_attack")
    assert played["q_network.4.weight"].shape == (3, 64)
    last = teacher.learner.learning["heal_attack"].module.weights()
    assert abs(played["q_network.4.weight"] - last["q_network.4.weight"]).max() > 0
    pupil.load_weights({"heal_attack": played | teacher.head_weights("heal_attack")})
    for name, values in pupil.weights("heal_attack").items():
        np.testing.assert_array_equal(values, played[name])
    _, plays = pupil.copies("heal_attack")
    np.testing.assert_array_equal(plays["q_network.4.weight"], played["q_network.4.weight"])


def test_mirrored_transitions_need_a_mirror() -> None:
    numbers = DQNHyperparameters(budget=10, buffer_size=10, mirrored=True)
    with pytest.raises(SoulsGraphError, match="stage of heal_attack: expected a mirror"):
        SkillDQN.get_default_config().stage(SKILLS, numbers, 4)


def test_loaded_weights_are_played_and_continued(tmp_path: Path) -> None:
    teacher, pupil = run(make_stage(budget=500)), make_stage(seed=9)
    pupil.load_weights({skill.name: teacher.weights(skill.name) for skill in SKILLS})
    pupil.load_normalizer("heal_attack", teacher.training["heal_attack"].normalizer.get_state())
    assert_same(teacher, pupil)
    _, plays = pupil.copies("dodge")
    np.testing.assert_array_equal(plays["q_network.0.weight"], teacher.weights("dodge")["q_network.0.weight"])
    module = pupil.learner.learning["heal_attack"].module
    for own, target in zip(module.q_network.parameters(), module.target_network.parameters(), strict=True):
        np.testing.assert_array_equal(own.detach().numpy(), target.numpy())


def test_a_module_that_is_asked_for_has_the_newest_weights(tmp_path: Path) -> None:
    teacher, pupil = run(make_stage(budget=500)), make_stage(seed=9)
    teacher.save_checkpoint(str(tmp_path))
    expected = {skill.name: teacher.weights(skill.name)["q_network.0.weight"] for skill in SKILLS}
    pupil.load_weights({"dodge": teacher.weights("dodge")})
    played = pupil.get_module("dodge").unwrapped().weights()
    np.testing.assert_array_equal(played["q_network.0.weight"], expected["dodge"])
    other = make_stage(seed=8)
    other.load_checkpoint(str(tmp_path))
    for name, values in expected.items():
        np.testing.assert_array_equal(other.get_module(name).unwrapped().weights()["q_network.0.weight"], values)


def test_a_clip_of_no_module_is_refused_by_name() -> None:
    numbers = DQNHyperparameters(budget=10, buffer_size=10)
    with pytest.raises(UnknownNameError, match="module of an observation clip"):
        SkillDQN.get_default_config().stage(SKILLS, numbers, 4, clips={"dogde": 5.0})


@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing"])
def test_damaged_training_state_is_told_by_its_file(damage: str, tmp_path: Path) -> None:
    stage = make_stage(budget=500)
    stage.training_step()
    stage.save_checkpoint(str(tmp_path))
    file = tmp_path / FILE_NAME
    content = bytearray(file.read_bytes())
    if damage == "truncated":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        content[-100] ^= 1
        file.write_bytes(content)
    else:
        file.unlink()
    with pytest.raises(TrainingStateError, match=FILE_NAME):
        stage.load_checkpoint(str(tmp_path))


def test_checkpoint_of_another_stage_is_refused(tmp_path: Path) -> None:
    stage = make_stage(budget=500)
    stage.save_checkpoint(str(tmp_path))
    config = SkillDQN.get_default_config()
    config.env_runners(env_runner_cls=LinearRunner).environment(env_config={"lanes": 32})
    other = config.stage(SKILLS[:-1], stage.config.hyperparameters, 128).build_algo()
    with pytest.raises(SoulsGraphError, match="expected a checkpoint of dodge, found heal_attack"):
        other.load_checkpoint(str(tmp_path))


def test_more_lanes_than_decisions_in_a_round_are_refused() -> None:
    with pytest.raises(SoulsGraphError, match="expected 1 to 128 transitions a sample, found 200"):
        make_stage(lanes=200).training_step()


def test_episodes_are_handed_over_once() -> None:
    stage = run(make_stage(budget=1_500))
    episodes = stage.drain_episodes().get("heal_attack")
    assert episodes is not None
    assert 10 < len(episodes) < 200
    assert episodes.lengths.max() <= 50
    assert not stage.drain_episodes()


def test_learning_improves_the_return() -> None:
    stage = make_stage(budget=12_000)
    returns = []
    while not stage.finished:
        stage.train()
        episodes = stage.drain_episodes().get("heal_attack")
        assert episodes is not None
        returns.append(float((episodes.returns / episodes.lengths).mean()))
    assert np.mean(returns[-3:]) > np.mean(returns[:1]) + 0.05
