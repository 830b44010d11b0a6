"""A DQN of stable-baselines3 in a run: it plays as there, is evaluated like any other skill, and fits or is refused."""

import json
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

import soulsgraph_envs  # noqa: F401 - registers the environments
from soulsgraph.runs.evaluate import Setting, evaluate, make_agent
from soulsgraph.runs.lineage import finished_versions
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import StageSetup
from soulsgraph.zoo import copy_agent
from soulsgraph.zoo.conversion import import_stable_baselines
from soulsgraph_clusters.fleet.gateway.runner import FleetStage
from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetSettings
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_clusters.sessions.session import Session
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.skills import SkillOptions, make_skill
from soulsgraph_policies.agents.inference import FusedNetworks

_SETTING = Setting("iudex-phase1", "iudex-phase1")


def _env():
    return gymnasium.make("soulsgraph/Skill-v0", skill="camera")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A camera trained for a moment on raw observations, and its file."""
    path, model = tmp_path_factory.mktemp("sb3") / "camera.zip", DQN("MlpPolicy", _env(), learning_starts=50, seed=0)
    model.learn(150)
    model.save(path)
    return path, model


@pytest.fixture
def run(tmp_path):
    return copy_agent("iudex-phase1-paper-0", tmp_path / "run")


def _values(model, observations):
    with torch.no_grad():
        return model.q_net(torch.from_numpy(observations)).numpy()


def _rows():
    return np.random.default_rng(0).normal(0.0, 20.0, (100, 25)).astype(np.float32)


def test_an_imported_camera_plays_as_it_did_there_and_the_agent_is_evaluated(trained, run):
    path, model = trained
    card = import_stable_baselines(run, "camera", path)
    assert (card.version, card.training.steps, card.parent, card.observation_clip) == (
        2,
        model.num_timesteps,
        None,
        1e30,
    )
    assert card.training.packages["stable-baselines3"].count(".") == 2
    agent, skill = make_agent(run, _SETTING), make_skill("camera")
    rows = _rows()
    ours = FusedNetworks([agent.networks["camera"]]).q_values(0, rows)
    theirs = _values(model, skill.observation(rows, load_scenario("iudex-phase1")))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    found = evaluate(run, _SETTING, 8)
    assert found.origin["versions"] == {"camera": 2, "lock_on": 1, "movement": 1, "dodge": 1, "heal_attack": 1}
    assert len(found.episodes) == 8


def test_normalised_observations_come_with_their_statistics(run, tmp_path):
    normalised = VecNormalize(make_vec_env("soulsgraph/Skill-v0", env_kwargs={"skill": "camera"}), clip_obs=5.0)
    model = DQN("MlpPolicy", normalised, learning_starts=50, seed=0)
    model.learn(150)
    model.save(tmp_path / "normalised")
    mean, variance = normalised.obs_rms.mean.tolist(), normalised.obs_rms.var.tolist()
    statistics = tmp_path / "statistics.json"
    statistics.write_text(json.dumps({"mean": mean, "variance": variance, "clip": normalised.clip_obs}))
    card = import_stable_baselines(run, "camera", tmp_path / "normalised.zip", statistics)
    assert card.observation_clip == 5.0
    rows = _rows()
    ours = FusedNetworks([make_agent(run, _SETTING).networks["camera"]]).q_values(0, rows)
    observations = normalised.normalize_obs(make_skill("camera").observation(rows, load_scenario("iudex-phase1")))
    np.testing.assert_allclose(ours, _values(model, observations.astype(np.float32)), rtol=1e-4, atol=1e-4)


@pytest.fixture
def clipped(trained, run, tmp_path):
    """A run whose newest camera sees at most 5 deviations, where the skills of the run see 10."""
    statistics, size = tmp_path / "statistics.json", make_skill("camera").observation.size
    statistics.write_text(json.dumps({"mean": [0.0] * size, "variance": [1.0] * size, "clip": 5.0}))
    assert import_stable_baselines(run, "camera", trained[0], statistics).observation_clip == 5.0
    return run


def _played_values(networks):
    return FusedNetworks(networks).q_values(0, _rows())


def test_what_is_trained_on_top_of_an_imported_camera_meets_it_as_it_is_evaluated(clipped):
    setup = StageSetup(clipped, clipped.plan.stage("lock_on"))
    camera = make_agent(clipped, _SETTING).networks["camera"]
    assert np.abs(camera.inputs(camera.observation(_rows()))).max() == 5.0
    evaluated = _played_values([camera])
    algorithm = setup.build(Session(local=True))
    try:
        algorithm.training_step()
        played = algorithm.env_runner_group.local_env_runner._sampler._networks.q_values(0, _rows())
        np.testing.assert_array_equal(played, evaluated)
        stage = FleetStage(
            Fleet(FleetSettings(), clipped.path), clipped.path, "lock_on", "iudex-phase1", SkillOptions()
        )
        sent = StageTask.from_json(stage.task(algorithm.config).to_json())
        in_a_fleet = sent.networks({name: algorithm.weights(name) for name in sent.modules})
        np.testing.assert_array_equal(_played_values(in_a_fleet[:1]), evaluated)
        assert in_a_fleet[1].clip == 10.0
    finally:
        algorithm.stop()


def test_an_imported_camera_that_is_adapted_goes_on_with_its_own_clip(clipped):
    stage = clipped.plan.stage("camera", "vordt", parent=2)
    assert StageSetup(clipped, stage).hyperparameters.observation_clip == 5.0
    assert clipped.plan.hyperparameters(stage).observation_clip == 10.0
    together = replace(clipped.plan.stage("lock_on", "vordt", parent=1), jointly=(stage,))
    with pytest.raises(SoulsGraphError, match="clip"):
        StageSetup(clipped, together)


def test_a_run_is_begun_with_a_skill_that_needs_no_other_and_goes_on_with_the_others(trained, tmp_path):
    import_stable_baselines(RunFolder.planned(tmp_path / "new", Plan(preset="paper")), "camera", trained[0])
    run = RunFolder.open(tmp_path / "new")
    assert run.library.versions("camera") == [1]
    finished = [bool(finished_versions(run, stage)) for stage in run.plan.stages()[:2]]
    assert finished == [True, False]


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ({"mean": [0.0], "variance": [1.0]}, "mean"),
        ({"mean": [0.0] * 7, "variance": [-1.0] * 7}, "variance"),
        ({"mean": [0.0] * 7, "variance": [1.0] * 7, "clip": 0}, "clip"),
        ({"mean": [0.0] * 7}, "variance"),
        ({"mean": [0.0] * 200_000, "variance": [1.0] * 200_000}, "statistics.json"),
    ],
)
def test_statistics_and_skills_that_do_not_fit_are_refused(refuse, trained, run, tmp_path, said, name):
    file = tmp_path / "statistics.json"
    file.write_text(json.dumps(said))
    words = ("data", "import", trained[0], "--run", run.path)
    assert name in refuse(*words, "--skill", "camera", "--statistics", file)
    assert "2 x 64" in refuse(*words, "--skill", "lock_on")
    assert run.library.versions("camera") == [1]


def test_the_command_imports_a_skill_into_a_run_that_nobody_else_writes(printed, refuse, trained, run):
    words = ("data", "import", trained[0], "--skill", "camera", "--run", run.path, "--json")
    with run.locked():
        assert str(run.path) in refuse(*words)
    card = json.loads(printed(*words))
    assert (card["skill"], card["version"]) == ("camera", 2)
