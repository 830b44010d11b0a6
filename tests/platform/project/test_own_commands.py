"""Commands on runs of a project's graphs, as a program reads them, and faults of the author's code."""

import json
import re
from pathlib import Path

import pytest

from fakes.runs import pretend_run
from soulsgraph.runs.plan import Plan
from soulsgraph_policies.agents.projects import load_project

#: A graph whose last skill does not build on all others, beside the project's own, which needs the project's player.
_LEAVES = """
LEAVES = SkillGraph(
    "leaves",
    skills=("camera", "lock_on", "movement", "dodge", "heal_attack"),
    edges=(("camera", "lock_on"), ("lock_on", "movement"), ("movement", "dodge"), ("movement", "heal_attack")),
)
"""


@pytest.fixture
def called(begun, command):
    """Call a command on a project in this process, and return what it printed as strict JSON."""
    file = begun / "fencing" / "__init__.py"
    text = file.read_text(encoding="utf-8").replace("\nproject = ", f"{_LEAVES}\n\nproject = ")
    file.write_text(text.replace("graphs=(FORKED,)", "graphs=(FORKED, LEAVES)"), encoding="utf-8")
    load_project(begun)

    def call(*words):
        # What reads recordings alone knows no projects.
        _, printed, errors = command(*words, "--project", begun, "--json")
        assert printed, f"{words}: {errors}"
        return json.loads(printed, parse_constant=lambda name: pytest.fail(f"{words}: {name}"))

    return call


@pytest.mark.slow
def test_commands_that_follow_a_graph_end_on_one_whose_last_skill_needs_not_all_others(called, tmp_path):
    plan = Plan(graph="fencing/leaves", scale=0.006)
    run = pretend_run(tmp_path / "run", plan).path
    words = ("--graph", plan.graph, "--scale", plan.scale, "--episodes", 2)
    assert called("curriculum", "--run", tmp_path / "trained", *words)
    for line in (
        ("evaluate", run, "--what", "table", "--episodes", 2),
        ("adapt", run, "--scenario", "vordt", "--skills", "heal_attack", "--budget", 200),
        ("evaluate", run, "--what", "ablations", "--episodes", 2),
        ("data", "record", run, "--episodes", 2, "--out", tmp_path / "data"),
        ("data", "clone", tmp_path / "data", "--run", tmp_path / "clone", "--graph", plan.graph, "--skills", "camera"),
    ):
        assert called(*line), line


@pytest.mark.slow
def test_commands_end_on_a_run_of_an_own_skill_in_its_own_scenario(called, duel, tmp_path):
    """Where its controls are answered."""
    run = pretend_run(tmp_path / "run", Plan(graph="fencing/forked", scale=0.006, scenario=duel)).path
    shifted = Path(duel).with_name("other.toml")
    shifted.write_text(Path(duel).read_text(encoding="utf-8").replace("flasks = 1", "flasks = 3"), encoding="utf-8")
    for line in (
        ("evaluate", run, "--episodes", 2),
        ("check", run),
        ("adapt", run, "--scenario", shifted, "--skills", "heal_attack", "--budget", 200),
        ("evaluate", run, "--what", "ablations", "--episodes", 2),
        ("report", run, "--out", tmp_path / "report.html"),
        ("watch", run, "--episodes", 1, "--seconds", 0.3, "--file", tmp_path / "fight.png"),
        ("data", "record", run, "--episodes", 2, "--out", tmp_path / "data"),
        ("report", tmp_path / "data"),
    ):
        assert called(*line), line


def broken(begun, fault) -> str:
    """Put a line into the reward of a project, and return its place as a traceback has it."""
    file = begun / "fencing" / "parry.py"
    before = "    return (after == animation) & (before != animation)"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(before, f"    rows = {{}}\n    {fault}\n{before}"), encoding="utf-8")
    line = 2 + text[: text.index(before)].count("\n")
    return f'File "{file.resolve()}", line {line}'


def test_an_error_of_an_authors_code_is_pythons_traceback_cut_to_the_authors_frames(begun, command):
    place = broken(begun, "1 / 0")
    code, _, shown = command("check", begun, "--learn")
    assert code == 2
    files = re.findall(r'^  File "(.+)", line', shown, re.MULTILINE)
    assert files
    assert all(Path(file).is_relative_to(begun.resolve()) for file in files)
    assert shown.count(place) == 1
    assert "ZeroDivisionError" in shown.splitlines()[-1]


def test_an_interrupt_while_an_authors_code_runs_is_the_users(begun, command):
    broken(begun, "import signal; signal.raise_signal(signal.SIGINT)")
    assert command("check", begun, "--learn")[0] == 130
