"""A stage learned again from its journal, whole or pruned."""

import numpy as np
import pytest

from fakes.fleet_here import random_weights
from fakes.stored import append, stored
from soulsgraph.runs.lineage import own_stage
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import StageSetup
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Chunk
from soulsgraph_clusters.fleet.protocol.messages import encode_columns
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_clusters.fleet.store import Journal
from soulsgraph_envs.games.opening import make_game

SKILL = "camera"


@pytest.fixture
def setup(tmp_path):
    """A stage and its journal, which has more decisions than the budget."""
    run = RunFolder.create(tmp_path / "run", Plan(preset="best", scale=0.05))
    setup = StageSetup(run, own_stage(run, SKILL))
    numbers = setup.hyperparameters
    task = StageTask(setup.stage.scenario, {SKILL: SKILL}, {SKILL: numbers}, numbers.observation_clip)
    sampler = task.sampler(make_game(4), 1)
    sampler.set_networks(task.networks(random_weights(task)))
    journal = _journal(setup)
    sequence = count = 0
    while count < numbers.budget:
        played, sequence = sampler.sample(64), sequence + 1
        decisions = {SKILL: len(played.transitions[SKILL])}
        count += decisions[SKILL]
        chunk = Chunk(boot="0" * 16, sequence=sequence, decisions=decisions, columns=encode_columns(played))
        append(journal, [stored(chunk)])
    journal.close()
    return setup


def _journal(setup):
    return Journal(setup.run.journal(setup.key).absolute(), setup.stage.name)


def _finished(algorithm):
    while not algorithm.finished:
        algorithm.train()
    weights = algorithm.weights(SKILL)
    algorithm.stop()
    return weights


def test_a_pruned_journal_leads_to_the_same_bits_from_the_older_checkpoint(setup):
    algorithm, positions = setup.replay(), []
    checkpoints = setup.run.checkpoints(setup.key)
    budget = setup.hyperparameters.budget
    for part in (0.2, 0.5, 0.8):
        algorithm.checkpoint_due = False
        while algorithm.decisions < part * budget:
            algorithm.training_step()
        algorithm.save_checkpoint(str(checkpoints / f"step-{algorithm.decisions:09d}"))
        positions.append(algorithm.position)
    weights = _finished(algorithm)
    journal = _journal(setup)
    journal.prune(positions[1])
    assert journal.first == positions[1]
    journal.close()
    again = setup.replay()
    assert again.position == positions[1]
    found = _finished(again)
    assert found.keys() == weights.keys()
    assert all(np.array_equal(found[name], values) for name, values in weights.items())
