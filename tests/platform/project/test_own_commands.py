"""Every command on a run of a project's graph, in the default scenario and in its own, as a program reads it."""

import json
import sys

import pytest

from soulsgraph.cli import main
from soulsgraph.paper.testing import pretend_run
from soulsgraph.plan import Plan
from soulsgraph_policies.projects import load_project

#: A graph whose last skill does not build on all others, beside the project's own.
_LEAVES = """
LEAVES = SkillGraph(
    "leaves",
    skills=("camera", "lock_on", "movement", "dodge", "heal_attack"),
    edges=(("camera", "lock_on"), ("lock_on", "movement"), ("movement", "dodge"), ("movement", "heal_attack")),
)
"""


@pytest.fixture
def called(begun, monkeypatch, capsys):
    """Call a command on a project in this process, and return what it printed as strict JSON."""
    file = begun / "fencing" / "__init__.py"
    text = file.read_text(encoding="utf-8").replace("\nproject = ", f"{_LEAVES}\n\nproject = ")
    file.write_text(text.replace("graphs=(FORKED,)", "graphs=(FORKED, LEAVES)"), encoding="utf-8")

    def call(*words):
        project = ["--project", str(begun)] if words[0] not in ("validate", "data") or "record" in words else []
        monkeypatch.setattr(sys, "argv", ["soulsgraph", *map(str, words), *project, "--json"])
        capsys.readouterr()
        main()
        return json.loads(capsys.readouterr().out, parse_constant=pytest.fail)

    return call


@pytest.mark.slow
@pytest.mark.parametrize(("graph", "own"), [("leaves", False), ("forked", True)])
def test_every_command_on_a_run_of_a_projects_graph(called, begun, duel, tmp_path, graph, own):
    called("validate", begun)
    place, data = {"scenario": duel} if own else {}, tmp_path / "data"
    run = pretend_run(tmp_path / "run", Plan(graph=f"fencing/{graph}", scale=0.005, **place)).path
    assert called("evaluate", run, "--episodes", 2)
    assert called("table", run, "--episodes", 2)
    assert called("skills", run)
    if not own:
        assert called("transfer", run, "--scenario", "vordt", "--episodes", 4)
    called("data", "record", run, "--episodes", 2, "--out", data)
    assert called("data", "list", data)
    assert called("data", "check", data)


@pytest.mark.slow
def test_a_curriculum_of_a_projects_graph_in_the_default_scenario_ends_with_its_table(called, begun, tmp_path):
    load_project(begun)
    assert called("curriculum", "--run", tmp_path / "run", "--graph", "fencing/leaves", "--scale", 0.006)


@pytest.mark.parametrize("fault", ["1 / 0", "open('none.csv')", "rows['no column']"])
def test_a_fault_of_an_authors_code_is_one_line_that_names_file_and_line(begun, refuse, fault):
    file = begun / "fencing" / "parry.py"
    before = "    return (after == animation) & (before != animation)"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(before, f"    rows = {{}}\n    {fault}\n{before}"), encoding="utf-8")
    line = 2 + text[: text.index(before)].count("\n")
    said = refuse("smoke", begun)
    assert said.startswith(f"error: project fencing: expected code that runs, found {file.resolve()}:{line}: ")
    assert said.count(str(file.resolve())) == 1
