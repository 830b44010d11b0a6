"""What learners take until the agent wins: medians over seeds, and one small training."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

import efficiency
from efficiency import FIRST_SEED, LEARNERS, LearnerCost, bench_efficiency, describe, measure
from soulsgraph.results.origin import source_commit
from soulsgraph.runs.progress import Display, Interruption
from soulsgraph.runs.workers import WorkerProcess
from soulsgraph_envs.core.errors import SoulsGraphError


def _spent(learner: str, seed: int, decisions: int | None, commit: str | None) -> LearnerCost:
    cpu_s = None if decisions is None else decisions / 1_000.0
    return LearnerCost(learner, seed, commit, decisions, cpu_s, 230_000, 230.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three seeds of every learner: the first gets there each time, the second twice, the others once."""
    for place, learner in enumerate(LEARNERS):
        for index in range(3):
            decisions = 150_000 + 10_000 * index if index < max(3 - place, 1) else None
            spent = _spent(learner, FIRST_SEED + index, decisions, source_commit())
            (tmp_path / f"{learner}-{FIRST_SEED + index}.json").write_text(json.dumps(asdict(spent)))
    return tmp_path


def test_what_was_measured_is_not_measured_again_and_medians_count_every_seed(folder: Path) -> None:
    results = [*bench_efficiency(3, folder)]
    assert [result["name"] for result in results] == [*LEARNERS]
    assert [result["reached"] for result in results] == [3, 2, 1, 1, 1]
    # The median of (150, 160, none) is 160, that of (150, none, none) is none.
    assert [result["decisions"] for result in results] == [160_000, 160_000, None, None, None]
    assert results[0]["cpu_s"] == pytest.approx(160.0)
    assert (folder / "efficiency.png").stat().st_size > 10_000
    assert "median 160,000 decisions" in describe(results[0])
    assert "1 of 3 seeds got there" in describe(results[4])


def test_another_commits_measurement_is_measured_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = folder / f"fast-{FIRST_SEED}.json"
    old.write_text(json.dumps(asdict(_spent("fast", FIRST_SEED, 1, "another"))))
    measured = []

    def fake(learner: str, seed: int, worker: WorkerProcess, display: Display, scale: float = 1.0) -> LearnerCost:
        measured.append((learner, seed, scale))
        return _spent(learner, seed, 170_000, source_commit())

    monkeypatch.setattr(efficiency, "measure", fake)
    results = [*bench_efficiency(1, folder)]
    assert [(learner, seed) for learner, seed, _ in measured] == [("fast", FIRST_SEED)] * 2
    assert [scale < 1.0 for *_, scale in measured] == [True, False], "a small run compiles first"
    assert results[2]["decisions"] == 170_000
    assert json.loads(old.read_text())["decisions"] == 170_000


def test_a_stop_keeps_what_was_measured_and_says_how_to_go_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*arguments: object) -> LearnerCost:
        raise Interruption("stopped in stage camera after 5 of 10 steps")

    monkeypatch.setattr(efficiency, "measure", stop)
    (folder / f"fast-{FIRST_SEED}.json").unlink()
    with pytest.raises(Interruption) as stopped:
        [*bench_efficiency(1, folder)]
    assert str(stopped.value).endswith(f"python benchmarks/efficiency.py --rounds 1 --out {folder}")
    assert (folder / f"best-{FIRST_SEED}.json").exists()


def test_a_damaged_file_is_refused(folder: Path) -> None:
    (folder / f"best-{FIRST_SEED}.json").write_text("{}")
    with pytest.raises(SoulsGraphError, match="learner"):
        [*bench_efficiency(1, folder)]


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["best", "stable-baselines3"])
def test_a_training_is_measured_up_to_the_first_checkpoint_that_wins(
    learner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WorkerProcess() as worker:
        never = measure(learner, FIRST_SEED, worker, scale=0.03)
        # Every checkpoint wins none of its fights or more.
        monkeypatch.setattr(efficiency, "WINS", 0.0)
        at_once = measure(learner, FIRST_SEED, worker, scale=0.03)
    assert (never.decisions, never.cpu_s, never.trained_decisions) == (None, None, 6_900)
    assert at_once.decisions is not None
    # The first checkpoint of heal-attack: ours is looked at after each round of about 128 decisions.
    assert 4_200 + 1_000 <= at_once.decisions < 4_200 + 1_300
    assert at_once.cpu_s is not None
    assert 0.0 < at_once.cpu_s < at_once.trained_cpu_s
