"""Commands and their options: what a function takes and its docstring says; help shows all of it."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import fields
from inspect import signature
from typing import Any, get_args

import pytest

from soulsgraph.cli.commands import COMMANDS, load
from soulsgraph.cli.options import as_command
from soulsgraph.continual.study import ContinualStudy
from soulsgraph.paper.study import Study
from soulsgraph.runs.places import TrainingPlace
from soulsgraph.runs.plan import Plan
from soulsgraph.tune.folder import Sweep
from soulsgraph_envs.core.extras import installed_version
from soulsgraph_envs.core.machine import usable_processors


def _given(name: str) -> dict[str, Any]:
    """Return a command's options that come as keywords of those given."""
    (hint,) = get_args(signature(as_command(load(name))).parameters["given"].annotation)
    return dict(hint.__annotations__)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_that_names_each_of_its_parameters(monkeypatch, command, name):
    monkeypatch.setenv("COLUMNS", "200")
    code, shown, _ = command(*name.split(), "--help")
    assert code == 0
    own = {name for name, one in signature(load(name)).parameters.items() if one.kind is one.KEYWORD_ONLY}
    own -= {"options", "serving", "quiet", "learners"}  # Fields of the first two are options.
    assert not [name for name in {*own, *_given(name)} if f"--{name.replace('_', '-')}" not in shown]


def test_without_a_command_the_front_page_is_shown_and_is_bad_input(command):
    code, shown, _ = command("--help")
    assert code == 0
    assert all(name in shown for name in COMMANDS)
    assert command() == (2, shown, "")
    assert command("--version") == (0, f"soulsgraph {installed_version()}\n", "")
    assert command("fleet")[1] == command("fleet", "--help")[1] != shown


@pytest.mark.parametrize(
    ("command", "cls", "hidden"),
    [
        ("train", Plan, {"learners", "overrides"}),
        ("train", TrainingPlace, set()),
        ("study reproduce", Study, {"overrides"}),
        ("study continual", ContinualStudy, {"sequence", "options"}),
        ("study sweep", Sweep, {"plan", "space", "seeds", "source"}),
    ],
)
def test_every_field_of_a_plan_and_a_study_is_an_option(command, cls, hidden):
    assert {spec.name for spec in fields(cls)} - hidden <= _given(command).keys()


def test_the_list_of_commands_loads_nothing_that_takes_long():
    code = "import sys; from soulsgraph.cli import main\ntry: main()\nfinally: print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True).stdout
    assert {"numba", "scipy", "pandas", "pyarrow", "torch", "ray", "cyclopts"}.isdisjoint(shown.split())


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_completes_a_command_and_an_option(command, tmp_path):
    code, script, _ = command("--completion", "bash")
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
for name in cli.COMMANDS:
    sys.argv[1:] = name.split()
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
    assert [command for command, _ in found] == [*COMMANDS]
    assert {command: counts for command, counts in found if {int(count) for count in counts.values()} != {1}} == {}
