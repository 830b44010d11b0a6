"""Who plays and who learns as RLlib's configuration says: several modules, one for two skills, all, or none."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.stages import assert_same, built, configured, differs, run
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.learning.algorithm import SkillDQN
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters

SKILLS = [make_skill(name) for name in ("movement", "dodge", "heal_attack")]
DODGE = DQNHyperparameters(budget=400, capacity=200, target_network_update_freq=300)
HEAL = DQNHyperparameters(
    budget=1_000, capacity=500, lr=1e-3, target_network_update_freq=500, training_intensity=32, double_q=True
)
BOTH = {"dodge": DODGE, "heal_attack": HEAL}


def make_stage(numbers: Any = BOTH, **settings: Any) -> SkillDQN:
    return built(configured(SKILLS, numbers, lanes=16, **settings))


def learning(**asked: Any) -> SkillDQN:
    return built(configured(SKILLS, DODGE, lanes=16).multi_agent(**asked))


def weights(stage: SkillDQN) -> dict[str, Any]:
    return {skill.name: stage.weights(skill.name) for skill in SKILLS}


def changed(before: dict[str, Any], stage: SkillDQN) -> set[str]:
    return {name for name in before if differs(before[name], stage.weights(name))}


def test_each_of_several_modules_learns_on_its_own_budget_clock_and_replay() -> None:
    stage = make_stage(paces={"dodge": 3})
    before, (dodge, heal) = weights(stage), (stage.training[name] for name in BOTH)
    while not heal.decisions:
        stage.training_step()
    assert (heal.decisions, dodge.decisions) == (128, 32)  # A round ends when any has its share.
    assert (heal.updates, dodge.updates) == ((128 - 100) // 8, 0)  # The one owes updates, the other none yet.
    run(stage)
    assert changed(before, stage) == {"dodge", "heal_attack"}
    assert (dodge.decisions, heal.decisions, stage.decisions) == (400, 1_000, 1_400)
    assert (dodge.updates, heal.updates) == ((400 - 100) // 4, (1_000 - 100) // 8)
    assert (dodge.replay.size, heal.replay.size) == (200, 500)
    assert dodge.normalizer.count == pytest.approx(400, abs=1)
    rates = {module: one.optimizer.param_groups[0]["lr"] for module, one in stage.learner.learning.items()}
    assert rates == {"dodge": DODGE.lr, "heal_attack": 1e-3}


def test_a_module_at_its_budget_stays_as_it_is_and_is_played_by_what_is_kept() -> None:
    stage = make_stage({"dodge": replace(DODGE, averaged_fraction=0.5), "heal_attack": HEAL})
    while not stage.training["dodge"].finished:
        stage.training_step()
    assert not stage.finished
    kept, updates = stage.weights("dodge"), stage.training["dodge"].updates
    run(stage)
    assert (stage.training["dodge"].decisions, stage.training["dodge"].updates) == (400, updates)
    assert_same(stage.weights("dodge"), kept)
    assert_same(stage.env_runner_group.local_env_runner.played_weights("dodge"), kept)


def test_what_learns_beside_another_module_learns_as_it_does_alone() -> None:
    alone, beside = run(make_stage({"heal_attack": HEAL})), run(make_stage())
    assert_same(alone.weights("heal_attack"), beside.weights("heal_attack"))


def test_several_modules_resume_bit_for_bit(tmp_path: Path) -> None:
    whole, first, resumed = (make_stage(paces={"dodge": 2}) for _ in range(3))
    for stage in (whole, first):
        run(stage, 700)
    first.save_checkpoint(str(tmp_path))
    resumed.load_checkpoint(str(tmp_path))
    assert not changed(weights(run(whole)), run(resumed))


def test_an_empty_list_samples_an_iteration_and_changes_nothing() -> None:
    stage = learning(policies_to_train=[])
    before = weights(stage)
    stage.train()
    assert not changed(before, stage)
    assert stage.decisions >= 1_000
    assert len(stage.drain_episodes()["heal_attack"]) > 5
    assert not stage.finished


@pytest.mark.parametrize(
    ("asked", "learned"),
    [
        (None, {"movement", "dodge", "heal_attack"}),
        (["movement"], {"movement"}),
        (lambda module, batch=None: module.startswith("d"), {"dodge"}),
    ],
    ids=["all", "listed", "by a function"],
)
def test_what_is_asked_for_learns(asked: Any, learned: set[str]) -> None:
    stage = learning(policies_to_train=asked)
    before = weights(stage)
    assert changed(before, run(stage)) == learned == {*stage.config.trained_modules}
    assert stage.decisions == 400 * len(learned)


def failing(agent: str, *_: Any) -> str:
    raise LookupError(f"no module for {agent}")


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"policy_mapping_fn": failing}, "failing"),
        ({"policies_to_train": ["dogde"]}, "dogde"),
        ({"policy_mapping_fn": lambda agent, *_: "nobody"}, "nobody"),
        ({"policies": {"movement", "dodge", "heal_attack", "idle"}}, "idle"),
        ({"policies": {"one"}, "policy_mapping_fn": lambda *_: "one", "policies_to_train": ["one"]}, "one"),
    ],
)
def test_modules_that_do_not_exist_or_do_not_play_are_refused(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(SoulsGraphError, match=name):
        configured(SKILLS, BOTH).multi_agent(**settings).validate()


@pytest.mark.parametrize(
    ("numbers", "stage", "name"),
    [
        ({"parry": HEAL}, {}, "parry"),
        (HEAL, {"update_path": "gpu"}, "gpu"),
        *((HEAL, {"seed": wrong}, "seed") for wrong in (-1, 1.5, True, "3")),
    ],
)
def test_a_stage_that_does_not_hold_is_refused(numbers: Any, stage: dict[str, Any], name: str) -> None:
    with pytest.raises(SoulsGraphError, match=name):
        configured(SKILLS, numbers, **stage).validate()
