"""A stage learned again from its journal: whole or pruned, of the curriculum or an adaptation."""

import json
from contextlib import closing

import numpy as np
import pytest

from fakes.fleet_here import random_weights
from fakes.runs import pretend_run, pretend_training
from fakes.stored import append, stored
from soulsgraph.recordings.journal import task_of
from soulsgraph.runs.lineage import adaptation_stages, own_stage
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import StageSetup, trained_artifact
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Chunk
from soulsgraph_clusters.fleet.protocol.messages import encode_columns
from soulsgraph_clusters.fleet.store import Journal
from soulsgraph_envs.games.opening import make_game

SKILL = "camera"


@pytest.fixture
def setup(tmp_path):
    """A stage and its journal, which has more decisions than the budget."""
    run = RunFolder.create(tmp_path / "run", Plan(preset="best", scale=0.05))
    setup = StageSetup(run, own_stage(run, SKILL))
    _play(setup, 64)
    return setup


def _play(setup, ticks):
    """Write a journal of a stage, chunk by chunk, until every skill that learns has its budget."""
    stage, task = setup.stage, task_of(setup.run, setup.stage)
    sampler = task.sampler(make_game(4), 1)
    sampler.set_networks(task.networks(random_weights(task)))
    counts, number = dict.fromkeys(stage.skills, 0), 0
    with closing(_journal(setup)) as journal:
        while any(counts[part.skill] < part.budget for part in stage.parts):
            played, number = sampler.sample(ticks), number + 1
            decisions = {name: len(part) for name, part in played.transitions.items()}
            counts = {name: counts[name] + decisions.get(name, 0) for name in counts}
            chunk = Chunk(boot="0" * 16, sequence=number, decisions=decisions, columns=encode_columns(played))
            append(journal, [stored(chunk)])
    sampler.close()


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


def _trained_from_its_journal(run, stage):
    """Write a journal of a stage, save what it leads to, and return that."""
    setup = StageSetup(run, stage)
    _play(setup, 200)
    algorithm, saved = setup.replay(), []
    while not algorithm.finished:
        algorithm.train()
    for part in stage.parts:
        learned = algorithm.training[part.skill]
        weights, steps = algorithm.weights(part.skill), learned.decisions
        artifact = trained_artifact(setup, weights, learned.normalizer, steps, part, saved)
        saved.append(run.library.save(artifact))
    algorithm.stop()
    return setup.key


@pytest.mark.slow
@pytest.mark.parametrize("skills", [("heal_attack",), ("dodge", "heal_attack")])
def test_an_adaptation_is_replayed_by_its_name_whatever_was_trained_after_it(tmp_path, command, refuse, skills):
    run = pretend_run(tmp_path / "run", Plan(scale=0.01))
    (stage,) = adaptation_stages(run, "iudex-phase2", skills, budget=400, jointly=len(skills) > 1)
    key = _trained_from_its_journal(run, stage)
    # Upstream another version plays in that fight by now, and another fight was gone through.
    pretend_training(run, adaptation_stages(run, "iudex-phase2", ("lock_on",)))
    (later,) = adaptation_stages(run, "vordt", ("heal_attack",), budget=300)
    keys = {stage.name: key, later.name: _trained_from_its_journal(run, later)}
    for name in (*keys, key):
        code, printed, errors = command("check", run.path, "--journal", name, "--json")
        found = json.loads(printed)
        assert (code, found["same"], found["stage"]) == (0, True, keys.get(name, name)), errors
    assert stage.name in refuse("check", run.path, "--journal", "heal_attack@nowhere")
