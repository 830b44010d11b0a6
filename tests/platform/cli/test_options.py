"""Commands and their options: what a function takes and its docstring says; help shows all of it."""

import io
import json
import os
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import fields
from inspect import getdoc, signature
from typing import Any, get_args

import pytest

import soulsgraph as sg
from soulsgraph.cli import main, shifts, studies, training
from soulsgraph.cli.commands import GROUPS, command_lines, load, make_app, named, summary
from soulsgraph.cli.options import PlanOptions, plan_values
from soulsgraph.cli.studies import ContinualOptions, StudyOptions, study_values
from soulsgraph.continual.study import ContinualStudy
from soulsgraph.paper.study import Study
from soulsgraph.runs.plan import Plan
from soulsgraph_envs.core.extras import installed_version
from soulsgraph_envs.core.machine import usable_processors

#: Options that stand for a field under another name.
FIELDS = {"first_seed": "seeds"}


def _given(hint: Any) -> dict[str, Any]:
    """Return the options, by field, that come as keywords of those given."""
    return dict(get_args(hint)[0].__annotations__)


def _printed(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[Any, str]:
    """Run a command that ends by itself; return its exit code and what it printed."""
    printed, code = io.StringIO(), 0
    monkeypatch.setattr("sys.argv", ["soulsgraph", *words])
    with redirect_stdout(printed):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    return code, printed.getvalue()


@pytest.mark.parametrize("words", command_lines(), ids=" ".join)
def test_every_command_has_help_that_names_each_of_its_parameters(monkeypatch, words):
    monkeypatch.setenv("COLUMNS", "200")
    code, shown = _printed(monkeypatch, *words, "--help")
    assert code == 0
    own = {name for name, one in signature(load(words)).parameters.items() if one.kind is one.KEYWORD_ONLY}
    own -= {"session", "shift", "options", "serving"}  # Their fields are options.
    names = {"overrides": "set"}
    assert not [name for name in own if f"--{names.get(name, name).replace('_', '-')}" not in shown]
    assert "--json" in shown


def test_the_line_of_each_command_is_that_of_its_docstring():
    for group, (_, commands) in GROUPS.items():
        for name, call in commands.items():
            first = (getdoc(load((group, name) if group else (name,))) or "").partition("\n\n")[0]
            assert summary(call) == " ".join(first.split())


def test_without_a_command_the_front_page_is_shown_and_is_bad_input(monkeypatch):
    code, shown = _printed(monkeypatch, "--help")
    assert code == 0
    assert all(" ".join(words) in shown for words in command_lines())
    assert _printed(monkeypatch) == (2, shown)
    assert _printed(monkeypatch, "--version") == (0, f"soulsgraph {installed_version()}\n")
    assert _printed(monkeypatch, "fleet")[1] == _printed(monkeypatch, "fleet", "--help")[1] != shown


def test_both_names_of_the_main_job_are_one_command():
    assert named(["curriculum"]) == named(["train"]) == ("train",)


@pytest.mark.parametrize(
    ("options", "cls", "hidden", "other"),
    [
        (PlanOptions, Plan, {"learners"}, {}),
        (StudyOptions, Study, set(), {}),
        (ContinualOptions, ContinualStudy, {"sequence"}, {"overrides": "options"}),
    ],
)
def test_every_field_of_a_plan_and_a_study_is_an_option_and_every_option_a_field(options, cls, hidden, other):
    names = FIELDS | other
    assert {names.get(name, name) for name in _given(options)} == {spec.name for spec in fields(cls)} - hidden


def _arguments(cls: Any) -> list[str]:
    """Write the default of every field that has one value in the language of the command line."""
    words: list[str] = []
    for spec in fields(cls):
        flag = spec.name.replace("_", "-")
        if isinstance(spec.default, bool):
            words.append(f"--{flag}" if spec.default else f"--no-{flag}")
        elif isinstance(spec.default, str | int | float):
            words += [f"--{flag}", str(spec.default)]
    return words


def _parsed(line: tuple[str, ...], *words: str) -> dict[str, Any]:
    """Return the keywords that a command is called with."""
    _, bound, *_ = make_app([line]).parse_args([*line, *words], exit_on_error=False, print_error=False)
    return dict(bound.kwargs)


def test_options_left_out_and_given_with_their_defaults_make_the_same_plan_and_study(tmp_path):
    assert _parsed(("train",)) == _parsed(("study", "reproduce")) == {}
    assert Plan(**plan_values({})) == Plan()
    assert Study(**study_values({}, Study.seeds)) == Study()
    (tmp_path / "none.toml").touch()
    plan = _parsed(("train",), *_arguments(Plan), "--skill-options", str(tmp_path / "none.toml"), "--set")
    assert plan.keys() == _given(PlanOptions).keys() - {"lanes"}
    assert Plan(**plan_values(plan)) == Plan()
    study = _parsed(("study", "reproduce"), *_arguments(Study), "--seeds", "10", "--first-seed", "400", "--set")
    assert study.keys() == _given(StudyOptions).keys()
    assert Study(**study_values(study, Study.seeds)) == Study()


def test_what_trains_all_skills_makes_one_folder():
    assert {str(signature(function).parameters["run"].default) for function in (sg.train, training.train)} == {
        "runs/curriculum"
    }


@pytest.mark.parametrize("function", [training.train, shifts.adapt, studies.sweep, studies.reproduce])
def test_the_folder_of_runs_and_studies_has_one_name(function):
    assert "run" in signature(function).parameters
    assert "out" not in signature(function).parameters


def test_the_list_of_commands_loads_nothing_that_takes_long():
    code = "import sys; from soulsgraph.cli import main\ntry: main()\nfinally: print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True).stdout
    assert {"numba", "scipy", "pandas", "pyarrow", "torch", "ray", "cyclopts"}.isdisjoint(shown.split())


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_completes_a_command_and_an_option(monkeypatch, tmp_path):
    code, script = _printed(monkeypatch, "--completion", "bash")
    assert code == 0
    (file := tmp_path / "script").write_text(script)
    function = '"$(complete -p soulsgraph | sed "s/.*-F \\([^ ]*\\) .*/\\1/")"'
    ask = f"COMP_WORDS=({{}}); COMP_CWORD={{}}; {function}; echo ${{{{COMPREPLY[@]}}}}"
    lines = [f"source {file}", ask.format("soulsgraph eva", 1), ask.format("soulsgraph evaluate --sce", 2)]
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.split() == ["evaluate", "--scenario"]


#: Runs every command up to its own code, with libraries that compute on two threads, and prints how many are left.
_THREADS = """
import json, os, sys
import numpy, scipy.linalg, torch
import soulsgraph.cli as cli
from threadpoolctl import threadpool_info, threadpool_limits

def threads(set_to=None):
    if set_to is not None:
        threadpool_limits(set_to, user_api="blas")
    libraries = (one for one in threadpool_info() if one["user_api"] == "blas")
    counts = {f"blas {number}": one["num_threads"] for number, one in enumerate(libraries)}
    if set_to is not None:
        torch.set_num_threads(set_to)
    return counts | {"torch": torch.get_num_threads(), "later": os.environ.get("OMP_NUM_THREADS")}

def report(words, **options):
    print(json.dumps([" ".join(sys.argv[1:]), threads()]))

cli.make_app = lambda lines: report
print(json.dumps(["before", threads(2)]))
for words in cli.command_lines():
    sys.argv[1:] = words
    threads(2)
    cli.main()
"""


@pytest.mark.slow
def test_every_command_computes_on_one_thread(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    command = [sys.executable, "-P", "-c", _THREADS]
    ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    (_, before), *found = map(json.loads, ran.stdout.splitlines())
    assert before.pop("later") is None
    assert set(before) >= {"blas 0", "torch"}
    assert set(before.values()) == {2} or usable_processors() == 1
    assert [command for command, _ in found] == [*map(" ".join, command_lines())]
    assert {command: counts for command, counts in found if {int(count) for count in counts.values()} != {1}} == {}
