"""Every command on a run of a project's graph, in the default scenario and in the project's own, as a program reads it."""

import json
import os
import sys

import pytest

from soulsgraph.cli import main
from soulsgraph.paper.testing import pretend_run
from soulsgraph.plan import Plan

#: A graph whose last skill does not build on all others, beside the project's own.
_LEAVES = """
LEAVES = SkillGraph(
    "leaves",
    skills=("camera", "lock_on", "movement", "dodge", "parry", "heal_attack"),
    edges=(
        ("camera", "lock_on"),
        ("lock_on", "movement"),
        ("movement", "dodge"),
        ("movement", "parry"),
        ("movement", "heal_attack"),
    ),
)
"""


@pytest.fixture
def called(begun, monkeypatch, capsys):
    """Call a command on a project in this process, and return what it printed as strict JSON."""
    file = begun / "fencing" / "__init__.py"
    text = file.read_text(encoding="utf-8").replace("\nproject = ", f"{_LEAVES}\n\nproject = ")
    file.write_text(text.replace("graphs=(FORKED,)", "graphs=(FORKED, LEAVES)"), encoding="utf-8")

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["soulsgraph", *map(str, words), "--project", str(begun), "--json"])
        capsys.readouterr()
        main()
        return json.loads(capsys.readouterr().out, parse_constant=pytest.fail)

    return call


def _plan(graph, duel, own):
    return Plan(graph=graph, scale=0.005, **({"scenario": duel} if own else {}))


@pytest.mark.slow
@pytest.mark.parametrize("own", [False, True], ids=["default", "own"])
def test_every_command_on_a_run_of_a_projects_graph(called, begun, duel, tmp_path, own):
    called("validate", begun)
    for graph in ("fencing/forked", "fencing/leaves"):
        name = graph.partition("/")[2]
        run, data = pretend_run(tmp_path / name, _plan(graph, duel, own)).path, tmp_path / f"data-{name}"
        assert called("evaluate", run, "--episodes", 2)
        assert called("table", run, "--episodes", 2)
        assert called("skills", run)
        shifted = "iudex-phase2" if own else duel
        assert called("transfer", run, "--scenario", shifted, "--episodes", 4)
        called("report", run, "--html", tmp_path / f"{name}-report.html")
        called("replay", run, "--html", tmp_path / f"{name}-replay.html")
        called("export", run, "--onnx", "--out", tmp_path / f"onnx-{name}")
        called("data", "record", run, "--episodes", 2, "--out", data)
        assert called("data", "list", data)
        assert called("data", "check", data)
        assert called("data", "summarize", data)
        assert os.listdir(run / "results")


@pytest.mark.slow
@pytest.mark.parametrize("own", [False, True], ids=["default", "own"])
def test_a_curriculum_of_a_projects_graph_ends_with_its_table_and_goes_on(called, duel, tmp_path, own):
    run = tmp_path / "run"
    place = ("--scenario", duel) if own else ()
    assert called("curriculum", "--run", run, "--graph", "fencing/leaves", "--scale", 0.005, *place)
    target = "iudex-phase2" if own else duel
    assert called("adapt", run, "--scenario", target, "--skills", "parry", "--budget", 200)
    assert called("retention", run, "--episodes", 2)
    assert called("table", run, "--episodes", 2)
