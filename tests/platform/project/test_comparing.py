"""A comparison of graphs: agents of ordinary runs, and the first graph is what the others are compared with."""

from pathlib import Path

import pytest
from rich.console import Console

from soulsgraph.project.comparing import HEADINGS, GraphFolder, GraphStudy
from soulsgraph.results.tables import read_rows
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.studies import in_turn
from soulsgraph_envs.core.errors import SoulsGraphError

GRAPHS = ("end-to-end", "paper")


@pytest.mark.slow
def test_agents_of_every_graph_are_trained_and_compared_seed_by_seed(tmp_path: Path) -> None:
    plan = Plan(preset="fast", scale=0.01, episodes=4)
    folder = GraphFolder.create(tmp_path / "compared", GraphStudy(plan, GRAPHS, (0, 1)))
    in_turn(folder, folder.units, Console(quiet=True))
    assert folder.left == []
    values, rows = folder.compared()
    assert [(row[0], row[1]) for row in rows] == [("end-to-end", "2"), ("paper", "2")]
    assert all(len(row) == len(HEADINGS) for row in rows)
    agents = read_rows(folder.path / "comparison.parquet")
    assert values["agents"] == agents
    assert [(agent["graph"], agent["seed"]) for agent in agents] == [(g, s) for s in (0, 1) for g in GRAPHS]
    assert {agent["episodes"] for agent in agents} == {4}
    assert folder.run("paper", 1).plan.seed == 1


@pytest.mark.parametrize("graphs", [(), ("paper",), ("paper", "paper"), ("paper", "nowhere")])
def test_graphs_that_cannot_be_compared_are_refused(graphs: tuple[str, ...]) -> None:
    with pytest.raises(SoulsGraphError):
        GraphStudy(Plan(), graphs, (0,))
