"""What learners take until the agent wins: medians over seeds, and one small training."""

import json
from dataclasses import asdict

import pytest

import efficiency
from efficiency import FIRST_SEED, LEARNERS, LearnerCost, bench_efficiency, describe, measure
from soulsgraph.results.origin import source_commit
from soulsgraph.runs.workers import WorkerProcess


def _spent(learner, seed, decisions, commit):
    cpu_s = None if decisions is None else decisions / 1_000.0
    return LearnerCost(learner, seed, commit, decisions, cpu_s, 230_000, 230.0)


@pytest.fixture
def folder(tmp_path):
    """Three seeds of every learner: the first gets there each time, the second twice, the others once."""
    for place, learner in enumerate(LEARNERS):
        for index in range(3):
            decisions = 150_000 + 10_000 * index if index < max(3 - place, 1) else None
            spent = _spent(learner, FIRST_SEED + index, decisions, source_commit())
            (tmp_path / f"{learner}-{FIRST_SEED + index}.json").write_text(json.dumps(asdict(spent)))
    return tmp_path


def test_what_was_measured_is_not_measured_again_and_medians_count_every_seed(folder):
    results = [*bench_efficiency(3, folder)]
    assert [result["name"] for result in results] == [*LEARNERS]
    assert [result["reached"] for result in results] == [3, 2, 1, 1]
    # The median of (150, 160, none) is 160, that of (150, none, none) is none.
    assert [result["decisions"] for result in results] == [160_000, 160_000, None, None]
    assert results[0]["cpu_s"] == pytest.approx(160.0)
    assert (folder / "efficiency.png").stat().st_size > 10_000
    assert describe(results[0])


@pytest.mark.slow
def test_a_training_is_measured_up_to_the_first_checkpoint_that_wins(monkeypatch):
    with WorkerProcess() as worker:
        never = measure("best", FIRST_SEED, worker, scale=0.03)
        # Every checkpoint wins none of its fights or more.
        monkeypatch.setattr(efficiency, "WINS", 0.0)
        at_once = measure("best", FIRST_SEED, worker, scale=0.03)
    assert (never.decisions, never.cpu_s, never.trained_decisions) == (None, None, 6_900)
    assert at_once.decisions is not None
    # The first checkpoint of heal-attack: ours is looked at after each round of about 128 decisions.
    assert 4_200 + 1_000 <= at_once.decisions < 4_200 + 1_300
    assert at_once.cpu_s is not None
    assert 0.0 < at_once.cpu_s < at_once.trained_cpu_s
