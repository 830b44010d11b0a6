"""RLlib's behavioural cloning, which reads by Ray Data, learns from exported fights."""

import gc

import gymnasium
import numpy as np
import pytest

from soulsgraph.recordings.export import export_rllib, read_episodes

SKILL = "dodge"


@pytest.fixture
def session():
    """A Ray session of this process; the number of its processors is only what it counts."""
    import ray

    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=150 * 2**20, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_rllibs_behavioural_cloning_reads_an_export(session, fights, tmp_path):
    from ray.rllib.algorithms.bc import BCConfig

    path = tmp_path / f"{SKILL}.parquet"
    count = export_rllib(fights, SKILL, path)
    played = read_episodes(fights, SKILL)[0].skill
    config = (
        BCConfig()
        .environment(
            observation_space=gymnasium.spaces.Box(-np.inf, np.inf, (len(played.observation),), np.float32),
            action_space=gymnasium.spaces.Discrete(len(played.actions)),
        )
        .env_runners(num_env_runners=0)
        .learners(num_learners=0)
        .offline_data(
            input_=[str(path)], map_batches_kwargs={"concurrency": 1, "num_cpus": 1}, dataset_num_iters_per_learner=10
        )
        .training(train_batch_size_per_learner=256, lr=1e-3)
        .debugging(log_level="ERROR", seed=1)
    )
    algorithm = config.build_algo()
    try:
        losses = [algorithm.train()["learners"]["default_policy"]["policy_loss"] for _ in range(3)]
    finally:
        algorithm.stop()
        # Its iterator over the data must end before the session does.
        del algorithm
        gc.collect()
    assert count > 256
    assert np.isfinite(losses).all()
    # Better than guessing.
    assert losses[-1] < 0.8 * np.log(len(played.actions))
