"""A comparison of graphs: trained and evaluated by a command, and what each agent's training took over all calls."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fakes.runs import pretend_run
from soulsgraph.project.comparing import Comparison
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.workers import WorkerProcess
from soulsgraph_clusters.sessions.session import connect
from soulsgraph_envs.core.files import write_json


@pytest.mark.parametrize("before", [None, {"cpu_s": 5.0, "wall_s": 70.0}])
def test_what_a_training_took_goes_on_from_what_was_counted_or_is_unknown(tmp_path, before):
    plan = Plan(scale=0.01, episodes=4)
    run = pretend_run(tmp_path / "paper" / "seed-0", replace(plan, graph="paper", seed=0))
    if before is not None:
        write_json(run.path / "spent.json", before)
    with connect("local", needed=False) as session, WorkerProcess() as worker:
        comparison = Comparison(plan, ("paper",), (0,), tmp_path)
        comparison.train(session, worker, Console(quiet=True), "silent")
    (agent,) = json.loads((tmp_path / "comparison.json").read_text())["agents"]
    found = agent["trained_cpu_s"], agent["trained_wall_s"]
    if before is None:
        assert found == (None, None)
    else:
        # All five skills were there: going on with them takes next to nothing beside an hour.
        assert 5.0 <= found[0] < 3_600
        assert 70.0 <= found[1] < 3_600


def test_the_seconds_of_a_worker_are_those_of_its_process():
    with WorkerProcess() as worker:
        assert worker.cpu_s == 0.0
        worker.submit(sum, [1, 2])
        assert worker.result() == 3
        assert worker.cpu_s > 0.0
    assert worker.cpu_s == 0.0


@pytest.mark.slow
def test_agents_of_two_graphs_are_trained_on_the_same_seeds_and_evaluated_in_the_same_fights(begun, duel, printed):
    words = ("--project", begun, "--scenario", duel, "--scale", 0.006, "--seeds", 1, "--episodes", 4, "--out", "out")
    printed("compare", "paper", "fencing/forked", *words)
    agents = json.loads(Path("out/comparison.json").read_text())["agents"]
    assert [(agent["graph"], agent["seed"]) for agent in agents] == [("paper", 0), ("fencing/forked", 0)]
    assert all(agent["trained_cpu_s"] > 0.0 and agent["trained_wall_s"] > 0.0 for agent in agents)
    for graph in ("paper", "fencing/forked"):
        assert f"| {graph} | 1 |" in Path("out/comparison.md").read_text()
