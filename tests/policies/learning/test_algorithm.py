"""A whole stage without a game: counts, frozen skills, same seed, exact resume."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import torch
from ray._private import ray_constants, services

from fakes.stages import assert_same, built, configured, differs, drawn_transitions, run
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.learning.algorithm import SkillDQN
from soulsgraph_policies.learning.checkpoint import read_training_state
from soulsgraph_policies.learning.constraint import Constraint
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.learner import AUTOGRAD, CPU_KERNEL

SKILLS = [make_skill(name) for name in ("movement", "dodge", "heal_attack")]
OBSERVED = SKILLS[-1].observation.size
#: Every method beside vanilla DQN.
EVERYTHING: dict[str, Any] = {
    "double_q": True,
    "n_step": 3,
    "semi_markov": True,
    "alpha": 0.6,
    "averaged_fraction": 0.7,
    "training_intensity": 128,
}


@pytest.fixture(scope="module", autouse=True)
def _no_ray() -> Iterator[None]:
    """Training in one process neither needs a Ray nor starts one."""
    yield
    assert not ray.is_initialized()


def make_stage(
    seed: int = 1, budget: int = 500, lanes: int = 32, path: str | None = CPU_KERNEL, **method: Any
) -> SkillDQN:
    numbers = DQNHyperparameters(budget=budget, capacity=budget // 3, **{"target_network_update_freq": 400, **method})
    each = 128 if lanes > 1 else 4
    return built(configured(SKILLS, numbers, lanes, each, update_path=path, seed=seed))


def all_weights(stage: SkillDQN) -> dict[str, Any]:
    return {f"{skill.name} {name}": part for skill in SKILLS for name, part in stage.weights(skill.name).items()}


def test_a_machine_without_internet_is_not_searched_for_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(address: str | None = None) -> str:
        raise AssertionError("Ray looks for the internet")

    monkeypatch.setattr(services, "node_ip_address_from_perspective", search)
    make_stage(budget=200).stop()
    assert ray_constants.ENABLE_RAY_CLUSTER


@pytest.mark.parametrize(("lanes", "budget", "most"), [(1, 403, 4), (32, 1_999, 128)])
def test_budget_update_ratio_and_decisions_between_updates_are_exact(lanes: int, budget: int, most: int) -> None:
    stage, counts = make_stage(budget=budget, lanes=lanes), []
    while not stage.finished:
        before = stage.decisions
        stage.training_step()
        counts.append(stage.decisions - before)
    assert stage.decisions == budget
    assert max(counts) == most
    assert stage.updates == (budget - 100) // 4
    assert stage.training["heal_attack"].normalizer.count == pytest.approx(budget + 1e-4)
    assert stage.training["heal_attack"].replay.size == budget // 3
    with pytest.raises(SoulsGraphError):
        stage.train()


def test_frozen_skills_stay_bit_identical_and_the_runner_plays_by_the_newest_weights() -> None:
    stage = make_stage()
    before = {skill.name: stage.weights(skill.name) for skill in SKILLS}
    run(stage)
    runner = stage.env_runner_group.local_env_runner
    for skill in SKILLS[:-1]:
        module = stage.learner.module[skill.name]
        # Not by what reads weights, but by the tensors that are computed with.
        now = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        assert_same(before[skill.name], {name: now[name].detach().numpy() for name in before[skill.name]})
        assert_same(before[skill.name], runner.weights(skill.name))
    trained = stage.weights("heal_attack")
    assert all(abs(values - before["heal_attack"][name]).max() > 0 for name, values in trained.items())
    assert_same(runner.weights("heal_attack"), trained)
    assert runner.decisions == {"heal_attack": 500}


def test_frozen_modules_act_greedily_when_rllib_explores() -> None:
    stage = make_stage()
    for skill in SKILLS[:-1]:
        batch, module = {"obs": torch.randn(500, skill.observation.size) * 5}, stage.get_module(skill.name)
        explored, greedy = (call(batch)["actions"] for call in (module.forward_exploration, module.forward_inference))
        assert torch.equal(explored, greedy)


def hold(stage: SkillDQN) -> None:
    """Let a stage begin with reserves, a constraint, and statistics that stay."""
    kept, training = drawn_transitions(60, size=OBSERVED), stage.training["heal_attack"]
    training.replay.keep(kept, 0.3)
    training.replay.keep(kept.first(20), 0.2, td=False, margin=1.0)
    statistics = {"mean": np.full(OBSERVED, 2.0), "variance": np.full(OBSERVED, 9.0), "count": 50.0}
    stage.load_normalizer("heal_attack", statistics)
    stage.freeze_normalizer("heal_attack")
    random, network = np.random.default_rng(8), stage.learner.q_module("heal_attack").q_network
    anchor = {name: part.detach().numpy() for name, part in network.named_parameters(prefix="q_network")}
    mask = {name: random.random(part.shape) < 0.6 for name, part in anchor.items()}
    stage.constrain("heal_attack", Constraint(anchor=anchor, strength=0.5, mask=mask))


@pytest.mark.parametrize(
    ("path", "method", "holds"),
    [
        (CPU_KERNEL, {}, False),
        (CPU_KERNEL, EVERYTHING, True),
        (AUTOGRAD, EVERYTHING | {"train_batch_size_per_learner": 32}, True),
    ],
    ids=["vanilla", "every method, compiled", "every method"],
)
def test_resumed_stage_equals_the_uninterrupted_one_bit_for_bit(
    path: str, method: dict[str, Any], holds: bool, tmp_path: Path
) -> None:
    whole, first, resumed, plain = (make_stage(path=path, budget=900, **method) for _ in range(4))
    for stage in (whole, first):
        if holds:
            hold(stage)
        run(stage, 500)  # Past a target copy, the buffer full.
    first.save_checkpoint(str(tmp_path))
    resumed.load_checkpoint(str(tmp_path))
    run(whole)
    run(resumed)
    assert_same(all_weights(whole), all_weights(resumed))
    assert whole.updates == resumed.updates > 5
    np.testing.assert_equal(whole.get_state(), resumed.get_state())
    assert differs(all_weights(whole), all_weights(run(plain))) == holds


@pytest.mark.parametrize("path", [CPU_KERNEL, AUTOGRAD])
def test_a_changed_learning_rate_applies_to_the_state_of_another(path: str, tmp_path: Path) -> None:
    # As in population-based training, where whoever is behind goes on with the state of one ahead.
    one, other = (make_stage(budget=20_000, path=path, lr=lr) for lr in (1e-4, 1e-2))
    run(one, 300).save_checkpoint(str(tmp_path))
    other.load_checkpoint(str(tmp_path))
    np.testing.assert_equal(other.get_state(), read_training_state(tmp_path))
    before, moved = one.weights("heal_attack"), []
    for stage in (one, other):
        stage.training_step()
        moved.append(abs(stage.weights("heal_attack")["q_network.0.weight"] - before["q_network.0.weight"]).max())
    assert one.updates == other.updates
    assert 20 * moved[0] < moved[1]


def test_loaded_weights_are_played_continued_and_asked_for() -> None:
    teacher, pupil = run(make_stage()), make_stage(seed=9)
    pupil.load_weights({skill.name: teacher.weights(skill.name) for skill in SKILLS})
    pupil.load_normalizer("heal_attack", teacher.training["heal_attack"].normalizer.get_state())
    assert_same(pupil.get_module("dodge").unwrapped().weights(), teacher.weights("dodge"))
    assert_same(all_weights(teacher), all_weights(pupil))
    _, plays = pupil.copies("dodge")
    assert_same(plays, teacher.weights("dodge"))
    module = pupil.learner.learning["heal_attack"].module
    assert_same(dict(module.q_network.state_dict()), dict(module.target_network.state_dict()))


def test_a_checkpoint_of_another_stage_or_without_a_part_is_refused(tmp_path: Path) -> None:
    stage = make_stage()
    stage.save_checkpoint(str(tmp_path))
    other = built(configured(SKILLS[:-1], stage.training["heal_attack"].hyperparameters))
    with pytest.raises(SoulsGraphError, match="heal_attack"):
        other.load_checkpoint(str(tmp_path))
    with pytest.raises(SoulsGraphError, match="games"):
        stage.set_state(stage.get_state() | {"journal": {}})
