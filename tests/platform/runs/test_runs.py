"""Whole runs through the command line: training, interruption, resumption, adaptation."""

import json
import os
import signal
from pathlib import Path

import pytest

from soulsgraph.cli import main
from soulsgraph.results.tables import read_rows
from soulsgraph.runs import evaluate
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_envs.skills import SKILL_NAMES

pytestmark = pytest.mark.slow

SCALE = 0.03
OPTIONS = ("--scale", SCALE, "--episodes", 20, "--seed", 3)


def soulsgraph(*arguments: object) -> int:
    """Run a command in this process, which has imported everything, and return its exit code."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.argv", ["soulsgraph", *map(str, arguments)])
        try:
            main()
        except SystemExit as left:
            return int(left.code or 0)
        return 0


def weights(run: Path) -> dict[str, str]:
    library = RunFolder.open(run).library
    return {name: library.card(name, 1).sha256 for name in SKILL_NAMES}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "uninterrupted"
    assert soulsgraph("curriculum", "--run", run, *OPTIONS) == 0
    return run


def test_a_run_leaves_library_curves_tensorboard_and_results(finished):
    run = RunFolder.open(finished)
    for stage in run.plan.stages():
        card = run.library.card(stage.skill, 1)
        run.library.load(card.skill, card.version)
        assert card.training.steps == stage.budget
    curves = read_rows(run.results("curves"))
    dodge = sorted(row["step"] for row in curves if row["skill"] == "dodge")
    assert [step // 1000 for step in dodge] == [1, 2], "a checkpoint each 1,000 steps"
    table = json.loads((finished / "results" / "table.json").read_text())
    assert [row["episodes"] for row in table["rows"]] == [20] * 6
    assert len(read_rows(run.results("episodes"))) == 120
    assert list((finished / "tensorboard").glob("events*"))


def test_interrupted_and_resumed_equals_uninterrupted_bit_for_bit(finished, tmp_path, monkeypatch):
    run, save = tmp_path / "interrupted", evaluate.save_checkpoint

    def save_and_interrupt(folder, *rest):
        save(folder, *rest)
        if folder.name.startswith("dodge-"):
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(evaluate, "save_checkpoint", save_and_interrupt)
        assert soulsgraph("curriculum", "--run", run, *OPTIONS) == 130
    library = RunFolder.open(run).library
    assert library.versions("movement") == [1]
    assert library.versions("dodge") == []
    assert soulsgraph("curriculum", "--run", run) == 0
    assert weights(run) == weights(finished)
    rows = [read_rows(RunFolder.open(path).results("curves")) for path in (run, finished)]
    assert sorted(map(str, rows[0])) == sorted(map(str, rows[1]))


def test_stage_by_stage_is_the_curriculum(finished, tmp_path):
    for skill in ("camera", "lock_on"):
        assert soulsgraph("train", skill, "--run", tmp_path / "staged", *OPTIONS) == 0
    library = RunFolder.open(tmp_path / "staged").library
    assert {name: library.card(name, 1).sha256 for name in ("camera", "lock_on")}.items() <= weights(finished).items()
