"""Populations: what a member goes on from, who goes on as whom, and that one that was stopped comes out the same."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.waiting import PATIENCE_S
from soulsgraph.results.tables import read_rows
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.tune.folder import RETURN, TRAINING_RETURN, Sweep, SweepFolder
from soulsgraph.tune.population import Member, MemberTraining, Population, population_path, train_population
from soulsgraph.tune.space import SearchRange, SearchSpace
from soulsgraph.tune.sweep import sweep
from soulsgraph.tune.trial import EPISODES, STEP, TrialLines

RATE = "camera.lr"


def arrays(training: MemberTraining) -> dict[str, Any]:
    state = training.algorithm.get_state()
    found: dict[str, Any] = {}
    for part in ("training", "learner", "runner"):
        _flatten(state[part], part, found)
    return found


def _flatten(value: Any, name: str, found: dict[str, Any]) -> None:
    if isinstance(value, dict):
        for key, one in value.items():
            _flatten(one, f"{name}/{key}", found)
    else:
        found[name] = value


def test_a_member_goes_on_from_anothers_state_by_its_own_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("soulsgraph.tune.population.this_node", lambda: "here")
    plan = Plan(preset="fast", scale=0.15, episodes=4)
    asked = Sweep(plan, SearchSpace({RATE: (1e-4, 1e-2)}), (7,), scheduler="pbt", stage="camera")
    folder = SweepFolder.create(tmp_path / "sweep", asked)
    path = population_path(folder, 7)
    path.mkdir(parents=True)
    donor = MemberTraining(folder, 7, 0, Member({RATE: 1e-4}))
    first = donor.train(path, "0-0")
    assert not first.finished
    assert first.reported[RETURN] == first.reported[TRAINING_RETURN]
    other = MemberTraining(
        folder, 7, 1, Member({RATE: 1e-2}, first.schedule, first.checkpoint, first.reported, first.curve)
    )
    try:
        ours, theirs = arrays(other), arrays(donor)
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
        assert other.algorithm.learner.learning["camera"].optimizer.param_groups[0]["lr"] == 1e-2
        second = other.train(path, "1-1")
        assert second.schedule == ({STEP: 0, RATE: 1e-4}, {STEP: first.reported[STEP], RATE: 1e-2})
        # The curve begins as that of the member from which it went on.
        assert [point["step"] for point in second.curve] == [first.reported[STEP], second.reported[STEP]]
    finally:
        for training in (donor, other):
            training.algorithm.stop()


@given(
    scores=st.lists(st.one_of(st.floats(-100.0, 100.0), st.just(float("nan"))), min_size=1, max_size=12),
    seed=st.integers(0, 2**31 - 1),
)
def test_the_last_quarter_goes_on_as_one_of_the_first_and_the_same_each_time(scores: list[float], seed: int) -> None:
    space = SearchSpace({}, {"gamma": SearchRange(0.9, 0.99)})
    members = tuple(
        Member({"gamma": 0.95}, (), f"0-{number}", {TRAINING_RETURN: score}) for number, score in enumerate(scores)
    )
    before = Population(1, members)
    after = before.compared(space, seed)
    assert after == before.compared(space, seed)
    changed = [number for number, member in enumerate(after.members) if member.checkpoint != f"0-{number}"]
    assert len(changed) == min(-(-len(scores) // 4), len(scores) // 2)
    known = [-np.inf if np.isnan(score) else score for score in scores]
    for number in changed:
        assert known[number] <= known[int(str(after.members[number].checkpoint)[2:])]
        assert 0.9 <= after.members[number].setting["gamma"] <= 0.99


ASKED: dict[str, Any] = {"preset": "fast", "scale": 0.2, "episodes": 4, "quiet": True, "stage": "lock_on"}
SPACE = {"lock_on": {"lr": {"low": 1e-6, "high": 1e-1, "log": True}}}
PROGRAM = "import sys; from test_population import train; train(sys.argv[1])"


def train(path: str | Path) -> list[tuple[Any, ...]]:
    """Train a small population, and return what every member led to."""
    results = sweep(SPACE, seeds=1, run=path, search="random", samples=4, scheduler="pbt", **ASKED)
    runs = [RunFolder.open(Path(path) / row["run"]) for row in results.rows]
    assert [run.library.versions("lock_on") for run in runs] == [[1]] * 4
    assert len({run.library.card("camera", 1).digest for run in runs}) == 1
    schedules = [[tuple(row.values()) for row in read_rows(run.results("schedule"))] for run in runs]
    assert [schedule[-1][1] for schedule in schedules] == [row["lock_on.lr"] for row in results.rows]
    assert (Path(path) / "results" / "figures" / "curves.png").is_file()
    assert [*results._curves_of_members()[0]] == ["best", "mean"]
    digests = [run.library.card("lock_on", 1).sha256 for run in runs]
    return [*zip(digests, schedules, [row[RETURN] for row in results.rows], strict=True)]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sends the signals of POSIX")
def test_a_population_that_was_killed_comes_out_as_one_that_was_not(tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(stopped)], cwd=Path(__file__).parent)
    state, until_s = stopped / "tune" / "200" / "population.json", time.monotonic() + 4.0 * PATIENCE_S
    while not state.exists() and process.poll() is None and time.monotonic() < until_s:
        time.sleep(0.1)
    assert state.exists()
    process.kill()
    assert process.wait(PATIENCE_S)
    reached = Population.of(SweepFolder.open(stopped), 200)
    assert not reached.finished
    assert all(member.checkpoint for member in reached.members)
    outcome = train(stopped)
    assert outcome == train(tmp_path / "whole")
    assert any(len(schedule) > 1 for _, schedule, _ in outcome)


class Rounds:
    """Trains members in no time; those of `failing` fail in the rounds that it names for them."""

    def __init__(self, failing: dict[int, set[int]], last: int) -> None:
        self.failing, self.last, self.trained = failing, last, list[tuple[int, int]]()

    def __call__(self, _: SweepFolder, seed: int, population: Population, stopping: object) -> tuple[Member, ...]:
        members = [*population.members]
        for number in population.due:
            self.trained.append((population.round, number))
            known = {TRAINING_RETURN: float(number), RETURN: 1.5}
            known |= {EPISODES: 4} if population.round >= self.last else {}
            failed = population.round in self.failing.get(number, ())
            now = {"error": "out of memory"} if failed else {"reported": known, "checkpoint": f"of {number}"}
            members[number] = replace(members[number], **now)
        return tuple(members)


def begun(path: Path, members: int) -> SweepFolder:
    """Begin a sweep of populations of some members."""
    space = SearchSpace({RATE: tuple(10.0**-power for power in range(members, 0, -1))})
    return SweepFolder.create(path / "sweep", Sweep(Plan(), space, (7,), scheduler="pbt", stage="camera"))


def test_a_member_that_fails_again_goes_on_as_one_that_is_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, rounds = begun(tmp_path, 4), Rounds({2: {1}}, last=2)
    monkeypatch.setattr("soulsgraph.tune.population._trained_round", rounds)
    assert not train_population(folder, 7, TrialLines(4, (7,), quiet=False))
    assert "1/4: " in capsys.readouterr().out
    stopped = Population.of(folder, 7)
    assert [*stopped.ended] == [0, 1, 3]
    assert [member.error for member in stopped.members] == ["", "", "out of memory", ""]
    rounds.trained.clear()
    assert train_population(folder, 7, TrialLines(4, (7,), quiet=False))
    # What others had trained is not trained again.
    assert [number for at, number in rounds.trained if at == 1] == [2]
    reached = Population.of(folder, 7)
    assert reached.finished
    assert not reached.failed
    printed = capsys.readouterr().out
    assert "out of memory" in printed
    assert "4/4: " in printed
    assert "5/4" not in printed
