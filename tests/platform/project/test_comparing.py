"""A comparison of graphs: agents of ordinary runs, and the first graph is what the others are compared with."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from soulsgraph.project.comparing import HEADINGS, GraphFolder, GraphStudy
from soulsgraph.results.tables import read_rows, write_rows
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
    agents = folder.write_report(tmp_path / "report")[0]["agents"]
    assert [(agent["graph"], agent["seed"]) for agent in agents] == [(g, s) for s in (0, 1) for g in GRAPHS]
    assert {agent["episodes"] for agent in agents} == {4}
    assert folder.run("paper", 1).plan.seed == 1


def test_the_report_has_each_agent_and_differences_within_seeds(tmp_path: Path, printed: Any) -> None:
    folder = GraphFolder.create(tmp_path / "compared", GraphStudy(Plan(), GRAPHS, (0, 1)))
    won = {("end-to-end", 0): 10, ("paper", 0): 30, ("end-to-end", 1): 20, ("paper", 1): 40}
    rows = [
        {"graph": graph, "seed": seed, "wins": wins, "episodes": 40, "seconds": 9.0, "rate": wins / 40}
        for (graph, seed), wins in won.items()
    ]
    write_rows(folder.path / folder.tables / "agents.parquet", rows)
    assert json.loads(printed("report", folder.path, "--json"))["agents"] == rows
    assert read_rows(folder.path / "report" / "tables" / "agents.parquet") == rows
    _, table, written = folder.write_report(tmp_path / "report")
    assert [row[:2] for row in table.rows] == [("end-to-end", "2"), ("paper", "2")]
    assert table.rows[1][4] == "50.0 (50.0 to 50.0)"
    assert all(len(row) == len(HEADINGS) for row in table.rows)
    assert "end-to-end" in written.read_text(encoding="utf-8")


@pytest.mark.parametrize("graphs", [(), ("paper",), ("paper", "paper"), ("paper", "nowhere")])
def test_graphs_that_cannot_be_compared_are_refused(graphs: tuple[str, ...]) -> None:
    with pytest.raises(SoulsGraphError):
        GraphStudy(Plan(), graphs, (0,))
