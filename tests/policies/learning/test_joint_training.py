"""Who plays and who learns as RLlib's configuration says: several modules, one for two skills, all, or none."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

from fakes.learning import LinearRunner
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.skills import Mirror, Skill, make_skill
from soulsgraph_policies.learning.algorithm import SkillDQN
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.stage_config import SkillDQNConfig

SKILLS = [make_skill(name) for name in ("movement", "dodge", "heal_attack")]
DODGE = DQNHyperparameters(budget=600, buffer_size=200, target_update_interval=300)
HEAL = DQNHyperparameters(
    budget=1_500, buffer_size=500, learning_rate=1e-3, target_update_interval=500, train_freq=8, double=True
)
BOTH = {"dodge": DODGE, "heal_attack": HEAL}


@pytest.fixture(scope="module", autouse=True)
def _no_ray() -> Iterator[None]:
    """Training in one process neither needs a Ray nor starts one."""
    yield
    assert not ray.is_initialized()


def configured(
    numbers: Any = BOTH, skills: list[Skill] = SKILLS, paces: dict[str, int] | None = None, **stage: Any
) -> SkillDQNConfig:
    config = SkillDQN.get_default_config().stage(skills, numbers, 128, seed=1, **stage)
    config.env_runners(env_runner_cls=LinearRunner)
    return config.environment(env_config={"lanes": 16, "paces": paces or {}})


def built(config: SkillDQNConfig) -> SkillDQN:
    stage = config.build_algo()
    assert isinstance(stage, SkillDQN)
    return stage


def weights(stage: SkillDQN, skills: tuple[str, ...] = ("movement", "dodge", "heal_attack")) -> dict[str, Any]:
    return {skill: stage.weights(skill) for skill in skills}


def changed(before: dict[str, Any], stage: SkillDQN) -> set[str]:
    now = {module: stage.weights(module) for module in before}
    return {name for name in before if any((before[name][key] != now[name][key]).any() for key in before[name])}


def test_each_of_several_modules_learns_on_its_own_budget_clock_and_replay() -> None:
    stage = built(configured(paces={"dodge": 3}))
    before = weights(stage)
    dodge, heal = stage.training["dodge"], stage.training["heal_attack"]
    while not heal.decisions:
        stage.training_step()
    assert (heal.decisions, dodge.decisions) == (128, 32)  # a round ends when any has its share
    assert (heal.updates, dodge.updates) == ((128 - 100) // 8, 0)  # the one owes updates, the other none yet
    while not stage.finished:
        stage.train()
    assert changed(before, stage) == {"dodge", "heal_attack"}
    assert (dodge.decisions, heal.decisions, stage.decisions) == (600, 1_500, 2_100)
    assert (dodge.updates, heal.updates) == ((600 - 100) // 4, (1_500 - 100) // 8)
    assert (dodge.replay.size, heal.replay.size) == (200, 500)
    assert dodge.normalizer.count == pytest.approx(600, abs=1)
    rates = {module: learning.optimizer.param_groups[0]["lr"] for module, learning in stage.learner.learning.items()}
    assert rates == {"dodge": DODGE.learning_rate, "heal_attack": 1e-3}
    with pytest.raises(SoulsGraphError, match="expected decisions left"):
        stage.train()


def test_a_module_at_its_budget_stays_as_it_is_and_is_played_by_what_is_kept() -> None:
    stage = built(configured({"dodge": replace(DODGE, averaged_fraction=0.5), "heal_attack": HEAL}))
    while not stage.training["dodge"].finished:
        stage.training_step()
    assert not stage.finished
    kept, updates = stage.weights("dodge"), stage.training["dodge"].updates
    while not stage.finished:
        stage.training_step()
    assert stage.training["dodge"].decisions == 600
    assert stage.training["dodge"].updates == updates
    played = stage.env_runner_group.local_env_runner.played_weights("dodge")
    for name, values in kept.items():
        np.testing.assert_array_equal(stage.weights("dodge")[name], values)
        np.testing.assert_array_equal(played[name], values)


def test_what_learns_beside_another_module_learns_as_it_does_alone() -> None:
    alone = built(configured({"heal_attack": HEAL}))
    beside = built(configured())
    while not alone.finished:
        alone.train()
    while not beside.finished:
        beside.train()
    for name, values in alone.weights("heal_attack").items():
        np.testing.assert_array_equal(values, beside.weights("heal_attack")[name])


def test_several_modules_resume_bit_for_bit(tmp_path: Path) -> None:
    whole, first = built(configured(paces={"dodge": 2})), built(configured(paces={"dodge": 2}))
    for stage in (whole, first):
        while stage.decisions < 1_000:
            stage.training_step()
    first.save_checkpoint(str(tmp_path))
    resumed = built(configured(paces={"dodge": 2}))
    resumed.load_checkpoint(str(tmp_path))
    for stage in (whole, resumed):
        while not stage.finished:
            stage.training_step()
    assert not changed(weights(whole), resumed)
    other = built(configured({"heal_attack": HEAL}))
    with pytest.raises(SoulsGraphError, match=r"expected a checkpoint of heal_attack, found dodge \+ heal_attack"):
        other.load_checkpoint(str(tmp_path))


def test_an_empty_list_samples_an_iteration_and_changes_nothing() -> None:
    stage = built(configured(HEAL).multi_agent(policies_to_train=[]))
    before = weights(stage)
    stage.train()
    assert not changed(before, stage)
    assert stage.decisions >= 1_000
    assert len(stage.drain_episodes()["heal_attack"]) > 5
    assert not stage.finished


def test_none_means_that_all_learn() -> None:
    stage = built(configured(DODGE).multi_agent(policies_to_train=None))
    before = weights(stage)
    while not stage.finished:
        stage.train()
    assert changed(before, stage) == {"movement", "dodge", "heal_attack"}
    assert stage.decisions == 3 * 600


def test_another_list_trains_another_skill() -> None:
    stage = built(configured(DODGE).multi_agent(policies_to_train=["movement"]))
    before = weights(stage)
    stage.train()
    assert changed(before, stage) == {"movement"}


def test_a_function_may_say_what_learns() -> None:
    config = configured(DODGE).multi_agent(policies_to_train=lambda module, batch=None: module.startswith("d"))
    assert config.trained_modules == ("dodge",)


def failing(agent: str, *_: Any) -> str:
    raise LookupError(f"no module for {agent}")


def test_a_mapping_that_raises_is_named() -> None:
    with pytest.raises(SoulsGraphError, match=r"policy_mapping_fn failing: expected the module that plays movement"):
        configured().multi_agent(policy_mapping_fn=failing)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policies_to_train": ["dogde"]}, "module to train.*'dogde'"),
        ({"policy_mapping_fn": lambda agent, *_: "nobody"}, "module of policy_mapping_fn.*'nobody'"),
        ({"policies": {"movement", "dodge", "heal_attack", "idle"}}, "module idle: expected a skill that it plays"),
    ],
)
def test_modules_that_do_not_exist_or_do_not_play_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SoulsGraphError, match=message):
        configured().multi_agent(**settings)


def test_hyperparameters_of_an_unknown_skill_are_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"skill to train.*'parry'"):
        configured({"parry": HEAL})
    with pytest.raises(SoulsGraphError, match="expected hyperparameters of a skill to train, found none"):
        configured({})


def test_skills_of_different_spaces_cannot_share_a_module() -> None:
    with pytest.raises(
        SoulsGraphError, match=r"module one: expected skills of equal spaces, found movement.*and dodge"
    ):
        configured().multi_agent(policies={"one"}, policy_mapping_fn=lambda *_: "one", policies_to_train=["one"])


def test_skills_of_one_module_need_one_mirror() -> None:
    twins, scenario = [SKILLS[1], replace(SKILLS[1], name="twin")], load_scenario("iudex-phase1")
    mirror = Mirror.of(SKILLS[1], scenario)
    numbers = replace(DODGE, mirrored=True)
    shared = {"policies": {"one"}, "policy_mapping_fn": lambda *_: "one", "policies_to_train": ["one"]}
    same = configured(numbers, twins, mirror={"dodge": mirror, "twin": mirror}).multi_agent(**shared)
    assert same.mirror_of("one") is mirror
    other = replace(mirror, sign=-mirror.sign)
    with pytest.raises(SoulsGraphError, match="module one: expected one mirror, found different ones of dodge, twin"):
        configured(numbers, twins, mirror={"dodge": mirror, "twin": other}).multi_agent(**shared)
