"""Every command on a run of a project's graph, in the default scenario and in its own, as a program reads it."""

import json
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from fakes.runs import pretend_run
from soulsgraph.cli import main
from soulsgraph.project.checking import validate
from soulsgraph.runs.plan import Plan
from soulsgraph_envs.core.state import STATE_SIZE
from soulsgraph_envs.skills import Decisions, make_skill
from soulsgraph_policies.agents.projects import load_project
from soulsgraph_policies.learning.env_runners import sample_with

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


def broken(begun, fault) -> str:
    """Put a line into the reward of a project, and return its file and number."""
    file = begun / "fencing" / "parry.py"
    before = "    return (after == animation) & (before != animation)"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(before, f"    rows = {{}}\n    {fault}\n{before}"), encoding="utf-8")
    line = 2 + text[: text.index(before)].count("\n")
    return f"{file.resolve()}:{line}"


_FAULTS = ["1 / 0", "open('none.csv')", "rows['no column']"]
#: What ends a program.
_EXITS = ["raise SystemExit(3)", "raise SystemExit", "import sys; sys.exit(15)", "raise KeyboardInterrupt"]


@pytest.mark.parametrize("fault", _FAULTS + _EXITS)
def test_a_fault_of_an_authors_code_is_one_line_that_names_file_and_line(begun, refuse, fault):
    place = broken(begun, fault)
    said = refuse("smoke", begun)
    assert said.startswith(f"error: project fencing: expected code that runs, found {place}: ")
    assert said.count(place) == 1


@pytest.mark.parametrize("fault", _EXITS)
def test_code_that_ends_the_program_fails_a_check_and_a_runner_by_name(begun, fault):
    place = broken(begun, fault)
    failed = [check.found for check in validate(load_project(begun).project.name) if not check.holds]
    assert failed[0].startswith(f"{place}: ")
    assert sample_with(Rewarding(), {}).failure.cause.startswith(f"{place}: ")


class Rewarding:
    """A runner whose sampling evaluates a project's reward, and nothing else."""

    set_state = staticmethod(lambda state: None)
    get_metrics = staticmethod(dict)

    def collect(self):
        rows, none = np.zeros((1, STATE_SIZE), np.float32), np.zeros(1, np.bool_)
        make_skill("parry").reward.evaluate(Decisions(rows, rows, np.zeros(1, np.int64), none, none))


def test_an_interrupt_while_an_authors_code_runs_is_the_users(begun, monkeypatch, capsys):
    broken(begun, "import signal; signal.raise_signal(signal.SIGINT)")
    monkeypatch.setattr(sys, "argv", ["soulsgraph", "smoke", str(begun)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 130
    assert capsys.readouterr().err.startswith("interrupted")
