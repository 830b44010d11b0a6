"""A comparison of graphs: trained and evaluated by a command."""

import json
from pathlib import Path

import pytest


@pytest.mark.slow
def test_agents_of_two_graphs_are_trained_on_the_same_seeds_and_evaluated_in_the_same_fights(begun, duel, printed):
    words = ("--project", begun, "--scenario", duel, "--scale", 0.006, "--seeds", 1, "--episodes", 4, "--run", "out")
    printed("study", "compare", "paper", "fencing/forked", *words)
    agents = json.loads(Path("out/comparison.json").read_text())["agents"]
    assert [(agent["graph"], agent["seed"]) for agent in agents] == [("paper", 0), ("fencing/forked", 0)]
    for graph in ("paper", "fencing/forked"):
        assert f"| {graph} | 1 |" in Path("out/comparison.md").read_text()
