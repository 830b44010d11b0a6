"""Population-based training by Ray Tune: whoever exploits another goes on with its weights, replay and optimizer."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray import tune
from ray.tune.schedulers import PopulationBasedTraining

from fakes.stages import built, configured, run
from soulsgraph_clusters.sessions.session import connect
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.learning.algorithm import SkillDQN
from soulsgraph_policies.learning.checkpoint import read_training_state
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.stage_config import SkillDQNConfig

#: Where the members of a population note what they saved and loaded.
NOTES = "notes"


def config_of(**training: Any) -> SkillDQNConfig:
    numbers = DQNHyperparameters(budget=20_000, capacity=2_000)
    config = configured([make_skill("dodge")], numbers, seed=0).debugging(log_level="ERROR")
    return config.training(**training)


class NotedDQN(SkillDQN):
    """Note by whose state a trial goes on; that all of it is taken up, and the rate is its own, holds each time."""

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        saved = super().save_checkpoint(checkpoint_dir)
        # RLlib keeps no trial's id, but its folder.
        (Path(checkpoint_dir) / "saved_by").write_text(Path(self.logdir).name, encoding="utf-8")
        return saved

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        super().load_checkpoint(checkpoint_dir)
        assert_taken_up(self, checkpoint_dir)
        assert self.training["dodge"].replay.size > 0
        learning, rate = self.learner.learning["dodge"], self.training["dodge"].hyperparameters.lr
        assert learning.optimizer.param_groups[0]["lr"] == rate == self.config.lr
        donor = (Path(checkpoint_dir) / "saved_by").read_text(encoding="utf-8")
        if donor != Path(self.logdir).name:
            (Path(self.config.env_config[NOTES]) / f"{rate}").touch()


def assert_taken_up(stage: SkillDQN, folder: str) -> None:
    np.testing.assert_equal(stage.get_state(), read_training_state(Path(folder)))


@pytest.fixture
def carried() -> Iterator[None]:
    """Send what this module defines to Ray's workers, which cannot import it."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.mark.parametrize("path", ["cpu", "autograd"])
def test_a_changed_learning_rate_applies_to_the_state_of_another(path: str, tmp_path: Path) -> None:
    donor, exploiting = config_of(lr=1e-4), config_of(lr=1e-2)
    donor.update_path = exploiting.update_path = path
    one, other = built(donor), built(exploiting)
    run(one, 300)
    folder = one.save_to_path(str(tmp_path / "checkpoint"))
    other.load_checkpoint(folder)
    assert_taken_up(other, folder)
    before, moved = one.weights("dodge"), []
    for stage in (one, other):
        stage.training_step()
        moved.append(abs(stage.weights("dodge")["q_network.0.weight"] - before["q_network.0.weight"]).max())
    assert one.updates == other.updates
    assert 20 * moved[0] < moved[1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Consider boosting PBT performance")
@pytest.mark.usefixtures("carried")
def test_a_population_exploits_weights_replay_and_optimizer_and_learns_by_the_mutated_rate(tmp_path: Path) -> None:
    (notes := tmp_path / NOTES).mkdir()
    config = config_of(lr=tune.grid_search([1e-5, 1e-3])).environment(env_config={NOTES: str(notes)})
    scheduler = PopulationBasedTraining(
        time_attr="num_env_steps_sampled_lifetime",
        perturbation_interval=1_000,
        quantile_fraction=0.5,
        resample_probability=0.0,
        hyperparam_mutations={"lr": tune.loguniform(1e-6, 1e-1)},
        synch=True,
    )
    with connect("local", num_cpus=1):
        results = tune.Tuner(
            NotedDQN,
            param_space=config,
            tune_config=tune.TuneConfig(metric="env_runners/episode_return_mean", mode="max", scheduler=scheduler),
            run_config=tune.RunConfig(
                storage_path=str(tmp_path),
                stop={"training_iteration": 3},
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True),
                verbose=0,
            ),
        ).fit()
        resumed = [(one, NotedDQN.from_checkpoint(one.checkpoint.to_directory())) for one in results]
    assert not results.errors
    assert {one.metrics["num_env_steps_sampled_lifetime"] for one, _ in resumed} == {
        again.decisions for _, again in resumed
    }
    # Somebody went on from another's state, by a rate that was in no grid.
    assert {float(file.name) for file in notes.iterdir()} - {1e-5, 1e-3}
