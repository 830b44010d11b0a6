"""What a fleet plays follows RLlib's configuration: who plays each skill, and who learns."""

import json
from pathlib import Path

import pytest

from soulsgraph_clusters.fleet.gateway.runner import FleetStage
from soulsgraph_clusters.fleet.learner.algorithm import FleetDQN
from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetSettings
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.skills import SkillOptions, make_skill
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters

NUMBERS = DQNHyperparameters(budget=1000, capacity=500)
SKILLS = tuple(make_skill(name) for name in ("camera", "lock_on", "movement"))
STAGE = FleetStage(Fleet(FleetSettings(), Path()), Path(), "movement", "iudex-phase1", SkillOptions())


def _config(**multi_agent):
    config = FleetDQN.get_default_config().stage(SKILLS, NUMBERS, steps_per_round=64, seed=1)
    return config.multi_agent(**multi_agent) if multi_agent else config


def test_a_stage_has_a_module_for_each_skill_and_the_last_learns():
    task = STAGE.task(_config())
    assert dict(task.plays) == {"camera": "camera", "lock_on": "lock_on", "movement": "movement"}
    assert [*task.learns] == [*task.sampled] == ["movement"]


def test_another_policy_mapping_changes_what_pcs_play():
    modules = {"camera": "eyes", "lock_on": "finger", "movement": "legs"}
    other = _config(
        policies=set(modules.values()), policy_mapping_fn=lambda agent, *_: modules[agent], policies_to_train=["finger"]
    )
    task = STAGE.task(other)
    assert dict(task.plays) == modules
    assert task.modules == ("eyes", "finger", "legs")
    assert task.sampled == ("finger",)
    assert task.spaces == {"finger": (SKILLS[1].observation.size, len(SKILLS[1].actions))}


def test_other_policies_to_train_change_what_pcs_collect():
    task = STAGE.task(_config(policies_to_train=["camera", "movement"]))
    assert [*task.learns] == ["camera", "movement"]
    assert task.sampled == ("camera", "movement")
    assert set(task.spaces) == {"camera", "movement"}


def test_a_task_is_read_as_it_was_written_with_a_generated_fight_too():
    stage = STAGE.task(_config())
    generated = StageTask("generated/timing/10002", {"camera": "camera"}, {"camera": NUMBERS}, 10.0)
    for task in (stage, generated):
        assert StageTask.from_json(task.to_json()) == task


@pytest.mark.parametrize("scenario", ["generated/timing/../x", "/tmp/own.toml", "nowhere"])
def test_a_task_names_no_path_and_nothing_that_is_not_shipped(scenario):
    with pytest.raises(SoulsGraphError):
        StageTask(scenario, {"camera": "camera"}, {"camera": NUMBERS}, 10.0)
    text = STAGE.task(_config()).to_json()
    assert '"iudex-phase1"' in text
    with pytest.raises(SoulsGraphError, match=r"^task: "):
        StageTask.from_json(text.replace('"iudex-phase1"', json.dumps(scenario), 1))


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "[]",
        lambda text: "{" * 10_000,
        lambda text: text.replace('"plays"', '"launch"', 1),
        lambda text: text.replace('"movement": "movement"', '"movement": "other"', 1),
    ],
)
def test_a_text_that_is_no_task_is_refused(change):
    with pytest.raises(SoulsGraphError):
        StageTask.from_json(change(STAGE.task(_config()).to_json()))
