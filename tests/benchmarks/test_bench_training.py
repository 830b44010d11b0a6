"""The training benchmark: as many updates for as many decisions on every side."""

from collections.abc import Iterator

import numpy as np
import pytest

from soulsgraph_clusters.sessions.session import connect
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from training import StockDQN

pytestmark = pytest.mark.slow


@pytest.fixture
def stock() -> Iterator[StockDQN]:
    numbers = DQNHyperparameters(
        budget=10_000,
        capacity=1_000,
        train_batch_size_per_learner=32,
        training_intensity=8.0,
        num_steps_sampled_before_learning_starts=1,
    )
    with connect("local", num_cpus=1):
        stock = StockDQN("heal_attack", "iudex-phase1", numbers)
        yield stock
        stock.close()


def test_stock_rllib_takes_an_update_for_four_decisions_on_normalised_observations(stock: StockDQN) -> None:
    stock.warm_up()
    decisions, updates = stock.decisions, stock.updates
    stock.train(40)
    decisions, updates = stock.decisions - decisions, stock.updates - updates
    assert decisions < 40 * 16, "a decision takes several ticks"
    assert decisions / updates == pytest.approx(4.0, rel=0.15)
    episodes = stock._algorithm.local_replay_buffer.sample(num_items=200, sample_episodes=True)
    observed = np.concatenate([e.get_observations() for e in episodes if e.module_id == "heal_attack"])
    deviations = observed.std(axis=0)
    varied = deviations[deviations > 0]  # a fight of 640 ticks need not show each value of each feature
    assert len(varied) >= 6
    assert 0.7 < np.median(varied) < 1.5, "as they are, features have a median of 0.3"
