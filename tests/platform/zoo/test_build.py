"""An agent of the zoo is trained, evaluated, and put into the place of an older one; a stopped build goes on."""

from dataclasses import replace

import pytest
from rich.console import Console

from soulsgraph import zoo
from soulsgraph.runs.evaluate import check_library
from soulsgraph.runs.run_folder import RunFolder, RunFolderError
from soulsgraph.runs.workers import WorkerProcess
from soulsgraph.zoo.card import Digests, EvaluationScore, TrainingOrigin, read_card
from soulsgraph.zoo.maintenance import AgentBuilder
from soulsgraph_clusters.sessions.session import Session
from soulsgraph_envs.core.config import to_table
from soulsgraph_envs.core.files import write_json

_NAME = "vordt-best-1"


@pytest.fixture
def builder(tmp_path):
    """A place where agents are trained with six thousandths of their budget."""
    runs, agents = tmp_path / "runs", tmp_path / "agents"
    with WorkerProcess() as worker:
        yield AgentBuilder(runs, agents, Session(local=True), worker, Console(quiet=True), "silent", 8, scale=0.006)


@pytest.mark.slow
def test_an_agent_is_trained_and_takes_the_place_of_an_older_one(builder, tmp_path):
    (builder.agents / _NAME).mkdir(parents=True)
    (builder.agents / _NAME / "old.txt").write_text("old")
    made = builder.build(_NAME)
    folder = builder.agents / _NAME
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "card.json", "library", "plan.json"]
    assert read_card(folder) == made
    assert made.reached == EvaluationScore.of(made.reached.outcomes, made.reached.seed)
    assert made.digests == Digests.of(RunFolder.open(folder).plan)
    # The second call trains nothing more.
    assert builder.build(_NAME) == made
    run, agent = RunFolder.open(builder.runs / _NAME), RunFolder.open(folder)
    assert [card.digest for card in check_library(agent)] == [card.digest for card in check_library(run)]
    assert [len(run.library.versions(skill)) for skill in run.plan.skill_graph.order] == [1] * 5


def test_an_unfinished_agent_of_another_commit_is_not_resumed(builder):
    origin = replace(TrainingOrigin.now(), commit="0" * 40)
    RunFolder.create(builder.runs / _NAME, replace(zoo.plan_of(_NAME), scale=builder.scale))
    write_json(builder.runs / _NAME / "origin.json", to_table(origin))
    with pytest.raises(RunFolderError, match="0" * 40):
        builder.build(_NAME)
    assert not builder.agents.exists()


def test_a_run_by_another_plan_is_no_agents(builder):
    RunFolder.create(builder.runs / _NAME, replace(zoo.plan_of(_NAME), scale=0.5))
    with pytest.raises(RunFolderError, match=_NAME):
        builder.build(_NAME)
    assert not builder.agents.exists()
