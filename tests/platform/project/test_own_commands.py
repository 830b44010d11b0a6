"""Every command on a run of a project's graph, in the default scenario and in its own, as a program reads it."""

import json
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from soulsgraph.cli import main
from soulsgraph.paper.testing import pretend_run
from soulsgraph.plan import Plan
from soulsgraph_policies.projects import load_project

#: A graph whose last skill does not build on all others, beside the project's own, which needs the project's player.
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
    load_project(begun)

    def call(*words):
        # What reads recordings alone knows no projects.
        project = [] if words[0] == "data" and words[1] != "record" else ["--project", str(begun)]
        monkeypatch.setattr(sys, "argv", ["soulsgraph", *map(str, words), *project, "--json"])
        capsys.readouterr()
        with suppress(SystemExit):
            main()
        printed = capsys.readouterr()
        assert printed.out, f"{words}: {printed.err}"
        return json.loads(printed.out, parse_constant=lambda name: pytest.fail(f"{words}: {name}"))

    return call


@pytest.mark.slow
@pytest.mark.parametrize(("graph", "own"), [("leaves", False), ("forked", True)], ids=["default", "own"])
def test_every_command_ends_on_a_run_of_a_projects_graph(called, duel, tmp_path, graph, own):
    graph, place = f"fencing/{graph}", ("--scenario", duel) if own else ()
    plan = Plan(graph=graph, scale=0.005, **({"scenario": duel} if own else {}))
    run, data = pretend_run(tmp_path / "run", plan), tmp_path / "data"
    shifted = "vordt"
    if own:  # Where its skills' controls are answered.
        shifted = tmp_path / "fencing" / "fencing" / "data" / "scenarios" / "other.toml"
        shifted.write_text(Path(duel).read_text(encoding="utf-8").replace("flasks = 1", "flasks = 3"), encoding="utf-8")
    for words in (
        ("curriculum", "--run", tmp_path / "trained", "--graph", graph, "--scale", 0.006, "--episodes", 2, *place),
        ("evaluate", run.path, "--episodes", 2),
        ("table", run.path, "--episodes", 2),
        ("skills", run.path),
        ("transfer", run.path, "--scenario", shifted, "--episodes", 2),
        ("recovery", run.path, "--scenario", shifted, "--episodes", 2, "--budget", 2_000),
        ("adapt", run.path, "--scenario", shifted, "--skills", "heal_attack", "--budget", 200),
        ("retention", run.path, "--episodes", 2),
        ("report", run.path, "--html", tmp_path / "report.html"),
        ("export", run.path, "--onnx", "--out", tmp_path / "onnx"),
        ("watch", run.path, "--episodes", 1, "--seconds", 1, "--gif", tmp_path / "fight.gif"),
        ("data", "record", run.path, "--episodes", 2, "--out", data),
        ("data", "list", data),
        ("data", "check", data),
        ("data", "summarize", data),
        # The slowest one, of which each skill is cloned alike.
        *([] if own else [("clone", data, "--run", tmp_path / "clone", "--graph", graph)]),
    ):
        assert called(*words), words


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
