"""The tutorial as its page has it, at a small scale: every command of it, in its order."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.waiting import PATIENCE_S
from soulsgraph.cli import main
from soulsgraph_policies.agents.projects import forget_project, loaded_projects

PAGE = Path(__file__).parents[3] / "docs" / "own_skills.md"
#: What makes each command small enough for a test.
SMALL = {"compare": ("--scale", "0.01", "--seeds", "1", "--episodes", "20"), "watch": ("--seconds", "1")}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in loaded_projects():
        forget_project(name)


def _commands():
    """Return the words of the page's commands up to its results, one in each block."""
    steps = PAGE.read_text(encoding="utf-8").partition("### What came out")[0]
    return [shlex.split(command) for command in re.findall(r"```sh\n(.*)\n```", steps)]


@pytest.mark.slow
def test_the_tutorial_leads_from_nothing_to_trained_agents(place, monkeypatch, capsys):
    commands = _commands()
    assert [words[1] for words in commands] == ["init", "validate", "smoke", "compare", "watch"]
    for words in commands:
        monkeypatch.setattr(sys, "argv", [*words, *SMALL.get(words[1], ())])
        main()
    printed = capsys.readouterr().out
    assert "all 9 checks hold" in printed
    assert re.search(r"smoke test passed", printed)
    table = (place / "runs" / "compare" / "comparison.md").read_text()
    assert "| paper | 1 |" in table
    assert "| duel/forked | 1 |" in table
    agents = json.loads((place / "runs" / "compare" / "comparison.json").read_text())["agents"]
    assert [agent["graph"] for agent in agents] == ["paper", "duel/forked"]
    assert all(agent["trained_cpu_s"] > 0.0 and 0.0 < agent["trained_wall_s"] < PATIENCE_S for agent in agents)
    assert (place / "duel.gif").stat().st_size > 10_000
    # As `pytest` finds the project where it is installed.
    written = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(written, cwd=place / "duel", capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
