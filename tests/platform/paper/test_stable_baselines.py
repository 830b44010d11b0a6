"""stable-baselines3's DQN as a learner: its skills are ordinary artifacts that play as the model does."""

import sys
from pathlib import Path

import numpy as np
import pytest

from soulsgraph.paper.stable_baselines import build_model, export, train_with_stable_baselines
from soulsgraph.paper.study import Study
from soulsgraph.results.tables import read_rows
from soulsgraph.runs.evaluate import checkpoint_files, evaluate_checkpoints, load_checkpoint
from soulsgraph.runs.lineage import stage_key
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.progress import Interruption
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import StageSetup
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.gym.skill_env import SkillVectorEnv
from soulsgraph_policies.agents.inference import FusedNetworks

#: 400 decisions of the camera: enough to update some hundred times.
SCALE = 0.02


def begin(folder: Path, graph: str = "paper", scale: float = SCALE) -> RunFolder:
    return RunFolder.create(folder, Plan(preset="paper", scale=scale, graph=graph, seed=5))


@pytest.fixture(scope="module")
def with_camera(tmp_path_factory) -> RunFolder:
    run = begin(tmp_path_factory.mktemp("skills") / "run")
    train_with_stable_baselines(run, run.plan.stage("camera"))
    return run


@pytest.mark.parametrize("graph", ["paper", "end-to-end"])
def test_exported_network_plays_as_the_model_does(tmp_path, graph):
    run = begin(tmp_path / "run", graph)
    setup = StageSetup(run, run.plan.stages()[0])
    model = build_model(setup)
    model.learn(400)
    network = export(setup, model).network(setup.skills[-1], setup.scenario)
    env = SkillVectorEnv(64, setup.stage.skill, setup.scenario, autoreset_mode="SameStep")
    observations, _ = env.reset(seed=1)
    random = np.random.default_rng(1)
    played = FusedNetworks([network], [0])
    actions, seen = np.zeros((64, 1), np.int64), set()
    for _ in range(100):
        played.act(env.rollout.combat.rows, np.ones((64, 1), np.bool_), actions)
        predicted, _ = model.predict(model.get_vec_normalize_env().normalize_obs(observations), deterministic=True)
        np.testing.assert_array_equal(actions[:, 0], predicted)
        seen |= set(predicted.tolist())
        observations, *_ = env.step(random.integers(len(setup.skills[-1].actions), size=64))
    assert len(seen) > 1, "a model that always does the same thing proves little"


def test_an_adapted_skill_begins_with_its_parents_network_and_normalizer(with_camera):
    parent = with_camera.library.load("camera")
    stage = with_camera.plan.stage("camera", "iudex-phase2", parent=1)
    model = build_model(StageSetup(with_camera, stage))
    exported = export(StageSetup(with_camera, stage), model)
    assert exported.parameters.keys() == parent.parameters.keys()
    for name, values in parent.parameters.items():
        np.testing.assert_array_equal(exported.parameters[name], values)
    assert exported.card.normalizer == parent.card.normalizer
    assert model.exploration_initial_eps == 0.3
    assert model.replay_buffer.size() == 0
    online, target = model.q_net.state_dict(), model.q_net_target.state_dict()
    assert all((online[name] == target[name]).all() for name in online)


@pytest.fixture(scope="module")
def end_to_end(tmp_path_factory) -> RunFolder:
    """An end-to-end agent trained after a stage that was stopped."""
    run = begin(tmp_path_factory.mktemp("end-to-end") / "run", "end-to-end", scale=0.008)
    with pytest.raises(Interruption):
        train_with_stable_baselines(run, run.plan.stages()[0], go_on=lambda steps: steps < 1_000)
    assert run.library.versions("end_to_end") == [], "a stopped stage leaves no version"
    train_with_stable_baselines(run, run.plan.stages()[0])
    return run


def test_a_learner_that_is_not_installed_and_options_that_it_does_not_have_are_refused_at_once(tmp_path, monkeypatch):
    with pytest.raises(SoulsGraphError, match="double_q"):
        Study(preset="paper", learner="stable-baselines3", overrides={"double_q": True})
    run = RunFolder.create(tmp_path / "run", Plan(preset="paper", overrides={"double_q": True}))
    with pytest.raises(SoulsGraphError, match="double_q"):
        train_with_stable_baselines(run, run.plan.stage("camera"))
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    with pytest.raises(SoulsGraphError, match="pip install"):
        Study(learner="stable-baselines3")


def test_training_records_every_episode_that_ended(end_to_end):
    rows = read_rows(end_to_end.results("training"))
    assert [row["step"] for row in rows] == [1_000, 2_000], "nothing of the stopped stage is left"
    played = sum(row["episodes"] * row["length"] for row in rows if row["episodes"])
    assert 1_000 < played <= 2_000, "only the last episode is unfinished"
    assert all(-15 < row["return"] < 15 and 0 <= row["win_rate"] <= 1 for row in rows if row["episodes"])


def test_the_same_seed_learns_the_same(with_camera, tmp_path):
    again, first = begin(tmp_path / "run"), with_camera.library.card("camera", 1)
    card = train_with_stable_baselines(again, again.plan.stage("camera"))
    assert card.sha256 == first.sha256
    assert first.training.packages["stable-baselines3"]
    assert (first.training.steps, first.layer_sizes[1:-1]) == (400, (64, 64))
    assert first.normalizer.count > 400


def test_its_learning_curve_is_that_of_greedy_play_at_every_checkpoint(end_to_end):
    run, stage = end_to_end, end_to_end.plan.stages()[0]
    training, curve = (read_rows(run.results(name)) for name in ("training", "curves"))
    steps = list(range(1_000, stage.budget + 1, 1_000))
    assert [row["step"] for row in curve] == [row["step"] for row in training] == steps
    assert {(row["stage"], row["skill"]) for row in curve} == {(stage_key(run, stage), "end_to_end")}
    kept = load_checkpoint(checkpoint_files(run.curve(stage_key(run, stage)))[stage.budget])
    setup = StageSetup(run, stage)
    clip = setup.hyperparameters.observation_clip
    (last,) = evaluate_checkpoints(setup.agent, clip, [(stage.budget, kept)])
    assert {name: curve[-1][name] for name in last.metrics} == last.metrics
    for name, values in run.library.load("end_to_end").weights.items():
        np.testing.assert_allclose(
            kept["end_to_end"][name], values, atol=0.01, err_msg="only the last step's update lies between"
        )
