"""Remote env runners play a project's skill though their processes never imported its code."""

import sys

import pytest

from fakes.projects import forget_project
from soulsgraph.project import begin_project
from soulsgraph_clusters.sessions.session import connect
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.skills import make_skill, training_scenario
from soulsgraph_policies.agents.projects import find_graph, load_project
from soulsgraph_policies.learning.algorithm import SkillDQN
from soulsgraph_policies.learning.env_runners import SkillGraphEnvRunner
from soulsgraph_policies.learning.hyperparameters import skill_hyperparameters


@pytest.mark.slow
def test_a_remote_env_runner_samples_an_own_skill(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    begin_project(tmp_path / "fencing")
    load_project(tmp_path / "fencing")
    try:
        names = (*find_graph("fencing/forked").upstream("parry"), "parry")
        skills = tuple(map(make_skill, names))
        ground = training_scenario(load_scenario("iudex-phase1-whole"), skills[-1])
        config = SkillDQN.get_default_config().stage(skills, skill_hyperparameters(300), 64, seed=3)
        config.environment(env_config={"scenario": ground}).env_runners(num_envs_per_env_runner=8)
        with connect("local", num_cpus=2):
            algorithm = config.env_runners(env_runner_cls=SkillGraphEnvRunner, num_env_runners=1).build_algo()
            try:
                while not algorithm.finished:
                    algorithm.train()
                assert algorithm.decisions >= 300
                assert algorithm.updates > 0
            finally:
                algorithm.stop()
    finally:
        forget_project("fencing")
