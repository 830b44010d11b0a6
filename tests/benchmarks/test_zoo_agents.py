"""An agent of the zoo is trained, evaluated, and put into the place of an older one; a stopped build goes on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fakes.runs import pretend_training
from soulsgraph import zoo
from soulsgraph.runs.evaluate import Setting, check_library, evaluate, source_of
from soulsgraph.runs.lineage import adaptation_stages
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.studies import in_turn
from soulsgraph.zoo.card import Digests, EvaluationScore, TrainingOrigin, read_card
from zoo_agents import SCENARIOS, ZooBuild, ZooFolder, compare_agents, save_standings

_NAME, _SCALE = "vordt-best-1", 0.006


@pytest.mark.slow
def test_an_agent_is_trained_and_takes_the_place_of_an_older_one(tmp_path):
    runs, agents = tmp_path / "runs", tmp_path / "agents"
    (agents / _NAME).mkdir(parents=True)
    (agents / _NAME / "old.txt").write_text("old")
    folder = begin(runs, agents)
    in_turn(folder, folder.left, Console(quiet=True))
    made = read_card(agents / _NAME)
    assert sorted(path.name for path in (agents / _NAME).iterdir()) == [
        "README.md",
        "card.json",
        "library",
        "plan.json",
    ]
    assert made.reached == EvaluationScore.of(made.reached.outcomes, made.reached.seed)
    assert made.digests == Digests.of(RunFolder.open(agents / _NAME).plan)
    # Nothing more is to be trained, even at another commit.
    assert folder.left == []
    begin(runs, agents, commit="0" * 40).check_commit()
    run, agent = RunFolder.open(runs / _NAME), RunFolder.open(agents / _NAME)
    assert [card.digest for card in check_library(agent)] == [card.digest for card in check_library(run)]
    assert [len(run.library.versions(skill)) for skill in run.plan.skill_graph.order] == [1] * 5


def begin(runs: Path, agents: Path, **origin: Any) -> ZooFolder:
    """Begin the build of one agent, or open it."""
    plan = ZooBuild(replace(TrainingOrigin.now(), **origin), str(agents), 8, _SCALE)
    folder = ZooFolder(runs, plan) if runs.exists() else ZooFolder.create(runs, plan)
    folder.names = (_NAME,)
    return folder


def test_agents_are_compared_by_the_versions_that_an_evaluation_plays(tmp_path):
    run = zoo.copy_agent("iudex-phase1-best-0", tmp_path / "mine")
    pretend_training(run, adaptation_stages(run, "iudex-phase2", run.plan.skill_graph.order))
    (standing,) = found = compare_agents([run.path], 2)
    assert set(standing.rates) == set(SCENARIOS)
    assert standing.adapted_to == ("iudex-phase2",)
    for scenario, rate in standing.rates.items():
        assert rate == evaluate(run, Setting(scenario, source_of(run, scenario)), 2).wins
    assert [cell[-1] for cell in standing.cells[1:3]] == ["*", "+"]
    save_standings(tmp_path, found, 2)
    assert (tmp_path / "comparison.png").stat().st_size
    assert standing.cells[1] in (tmp_path / "comparison.md").read_text()
