"""Whole runs through the command line: training, interruption, resumption, adaptation."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fakes.waiting import PATIENCE_S
from soulsgraph.cli import main
from soulsgraph.results.tables import read_rows
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_envs.skills import SKILL_NAMES

pytestmark = pytest.mark.slow

SCALE = 0.1
OPTIONS = ("--scale", str(SCALE), "--episodes", "20", "--seed", "3")
COMMAND = (sys.executable, "-c", "from soulsgraph.cli import main; main()")
#: A person's Ctrl-C as the first checkpoint of dodge's curve is written; from outside a test might come too late.
_INTERRUPTED = """
import os
import signal
from soulsgraph.runs import evaluate
from soulsgraph.cli import main

save = evaluate.save_checkpoint


def save_and_interrupt(folder, *rest):
    save(folder, *rest)
    if folder.name == "dodge":
        os.kill(os.getpid(), signal.SIGINT)


evaluate.save_checkpoint = save_and_interrupt
main()
"""
INTERRUPTED_IN_DODGE = (sys.executable, "-c", _INTERRUPTED)


def soulsgraph(
    *arguments: object, cwd: Path | None = None, start: Sequence[str] = COMMAND
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*start, *map(str, arguments)], capture_output=True, text=True, timeout=3 * PATIENCE_S, cwd=cwd
    )


@pytest.fixture
def run_here(monkeypatch, capsys):
    """Run a command that must succeed in this process, which has imported everything, and return what it printed."""

    def run(*arguments: object) -> str:
        monkeypatch.setattr("sys.argv", ["soulsgraph", *map(str, arguments)])
        main()
        return capsys.readouterr().out

    return run


def weights(run: Path) -> dict[str, str]:
    library = RunFolder.open(run).library
    return {name: library.card(name, 1).sha256 for name in SKILL_NAMES}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    run = folder / "uninterrupted"
    done = soulsgraph("curriculum", "--run", "uninterrupted", *OPTIONS, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "heal-attack trained, dodge trained" in done.stdout
    assert "frozen skills bit-identical: camera v1, lock_on v1, movement v1, dodge v1" in done.stdout
    return run


def test_a_run_leaves_library_curves_tensorboard_and_results(finished):
    run = RunFolder.open(finished)
    for stage in run.plan.stages():
        card = run.library.card(stage.skill, 1)
        run.library.check_upstream(card)
        assert card.training.steps == stage.budget
    curves = read_rows(run.results("curves"))
    dodge = sorted(row["step"] for row in curves if row["skill"] == "dodge")
    assert [step // 1000 for step in dodge] == list(range(1, 9)), "a checkpoint each 1,000 steps"
    table = json.loads((finished / "results" / "table.json").read_text())
    assert [row["episodes"] for row in table["rows"]] == [20] * 6
    assert len(read_rows(run.results("episodes"))) == 120
    assert list((finished / "tensorboard").glob("events*"))


def test_interrupted_and_resumed_equals_uninterrupted_bit_for_bit(finished, tmp_path):
    run = tmp_path / "interrupted"
    stopped = soulsgraph("curriculum", "--run", run, *OPTIONS, start=INTERRUPTED_IN_DODGE)
    assert stopped.returncode == 130
    assert "stopped in stage dodge after" in stopped.stderr
    library = RunFolder.open(run).library
    assert library.versions("movement") == [1]
    assert library.versions("dodge") == []
    resumed = soulsgraph("curriculum", "--run", run, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "movement: already trained, v1" in resumed.stdout
    assert weights(run) == weights(finished)
    rows = [read_rows(RunFolder.open(path).results("curves")) for path in (run, finished)]
    assert sorted(map(str, rows[0])) == sorted(map(str, rows[1]))


def test_another_seed_gives_other_weights(finished, tmp_path, run_here):
    run_here("train", "camera", "--run", tmp_path / "other", "--scale", SCALE, "--seed", 4)
    assert RunFolder.open(tmp_path / "other").library.card("camera", 1).sha256 != weights(finished)["camera"]


def test_stage_by_stage_is_the_curriculum(finished, tmp_path, run_here):
    for skill in ("camera", "lock_on"):
        run_here("train", skill, "--run", tmp_path / "staged", *OPTIONS)
    library = RunFolder.open(tmp_path / "staged").library
    assert {name: library.card(name, 1).sha256 for name in ("camera", "lock_on")}.items() <= weights(finished).items()


def test_adaptation_records_new_versions_beside_the_old(finished, run_here):
    before = weights(finished)
    run_here("adapt", finished, "--scenario", "iudex-phase2", "--skills", "heal_attack,dodge")
    library = RunFolder.open(finished).library
    assert weights(finished) == before
    assert library.versions("camera") == [1]
    for name in ("dodge", "heal_attack"):
        card = library.card(name, 2)
        assert (card.parent, card.training.scenario, card.training.steps) == (1, "iudex-phase2", 4_000)
    upstream = {artifact.skill: artifact.version for artifact in library.card("heal_attack", 2).upstream}
    assert upstream == {"camera": 1, "lock_on": 1, "movement": 1, "dodge": 2}
    table = run_here("table", finished, "--episodes", 5, "--json")
    settings = [row["setting"] for row in json.loads(table)["rows"]]
    assert settings[-1] == "dodge and heal-attack fine-tuned"


def test_evaluate_tells_machines_what_it_played(finished, run_here):
    result = json.loads(run_here("evaluate", finished, "--episodes", 10, "--randomize", "dodge", "--json"))
    assert result["episodes"] == 10
    assert "random: dodge" in result["setting"]


def test_baseline_trains_and_is_evaluated(tmp_path, run_here):
    done = run_here("baseline", "--run", tmp_path / "baseline", "--scale", 0.01, "--episodes", 5, "--json")
    assert [row["setting"] for row in json.loads(done)["rows"]] == ["single end-to-end agent"]


def test_a_second_process_cannot_write_the_same_run(finished):
    with RunFolder.open(finished).locked():
        refused = soulsgraph("table", finished, "--episodes", 1)
    assert refused.returncode == 2
    assert f"process {os.getpid()}" in refused.stderr
