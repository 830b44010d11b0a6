"""Commands and their options: each is a parameter or a field of a dataclass, which has the default; help shows all."""

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
import tyro

import soulsgraph as sg
from soulsgraph.cli import front, main, training
from soulsgraph.cli.continual import ContinualOptions
from soulsgraph.cli.front import COMMANDS, GROUPS, load
from soulsgraph.cli.options import LearningOptions, PlanOptions, plan_values
from soulsgraph.cli.output import JobFolder, check_kept, written_names
from soulsgraph.cli.projects import ComparedOptions
from soulsgraph.cli.studies import StudyOptions, study_values
from soulsgraph.cli.tuning import SweepOptions
from soulsgraph.continual.study import ContinualStudy
from soulsgraph.paper.study import Study
from soulsgraph.runs.plan import Plan
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.extras import installed_version
from soulsgraph_envs.core.machine import usable_processors

#: What a user can call: commands, and the actions of those that have several, each with its function.
LINES = {
    " ".join(words): load(words[0])[1][words[1]] if words[1:] else load(words[0])[0] for words in front.command_lines()
}
#: Options that come as a mapping of those given.
GIVEN = (PlanOptions, LearningOptions, StudyOptions, ContinualOptions, ComparedOptions, SweepOptions)
#: Options that stand for a field under another name.
FIELDS = {"first_seed": "seeds"}


def _given(hint: Any) -> Mapping[str, Any]:
    """Return the options, by field, that come as a mapping of those given."""
    return dict(get_args(hint)[1].constructor_factory().__annotations__)


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _parameters(command: Any) -> list[tuple[Parameter, Any]]:
    hints = get_type_hints(command, include_extras=True)
    return [(parameter, hints[name]) for name, parameter in signature(command).parameters.items()]


def _printed(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[Any, str]:
    """Run a command that ends by itself; return its exit code and what it printed."""
    printed = io.StringIO()
    monkeypatch.setattr("sys.argv", ["soulsgraph", *words])
    with redirect_stdout(printed), pytest.raises(SystemExit) as stop:
        main()
    return stop.value.code, printed.getvalue()


@pytest.mark.parametrize("name", LINES)
def test_every_command_has_help(monkeypatch, name):
    code, shown = _printed(monkeypatch, *name.split(), "--help")
    assert code == 0
    assert "--help" in shown


def test_without_a_command_the_front_page_is_shown_and_is_bad_input(monkeypatch):
    code, shown = _printed(monkeypatch, "--help")
    assert code == 0
    assert _printed(monkeypatch) == (2, shown)
    assert _printed(monkeypatch, "--version") == (0, f"soulsgraph {installed_version()}\n")
    assert sum(map(len, GROUPS.values())) == len(COMMANDS)


def test_an_option_has_the_default_of_its_field_and_of_no_other():
    dataclasses = {_bare(hint) for call in LINES.values() for _, hint in _parameters(call) if is_dataclass(_bare(hint))}
    alike = [spec for cls in (*dataclasses, Plan, Study, ContinualStudy) for spec in fields(cls)]
    for command in LINES.values():
        for parameter, hint in _parameters(command):
            cls = _bare(hint)
            if is_dataclass(cls):
                required = any(spec.default is MISSING and spec.default_factory is MISSING for spec in fields(cls))
                assert parameter.default == (Parameter.empty if required else cls())
            elif hint not in GIVEN and parameter.default not in (None, Parameter.empty):
                same = [spec.default for spec in alike if spec.name == parameter.name]
                same = [default for default in same if type(default) is type(parameter.default)]
                assert not same or parameter.default in same, parameter


@pytest.mark.parametrize(
    ("options", "cls", "hidden", "other"),
    [
        (PlanOptions, Plan, {"graph", "overrides", "learners"}, {}),
        (LearningOptions, Plan, {"graph", "learners"}, {}),
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
        elif isinstance(spec.default, str | int | float) and spec.name != "graph":
            words += [f"--{flag}", str(spec.default)]
    return words


def test_options_left_out_and_given_with_their_defaults_make_the_same_plan_and_study(tmp_path):
    assert tyro.cli(PlanOptions, args=[]) == tyro.cli(StudyOptions, args=[]) == {}
    assert Plan(**plan_values({})) == Plan()
    assert Study(**study_values({}, Study.seeds)) == Study()
    (tmp_path / "none.toml").touch()
    plan = tyro.cli(PlanOptions, args=[*_arguments(Plan), "--skill-options", str(tmp_path / "none.toml")])
    assert plan.keys() == _given(PlanOptions).keys() - {"lanes"}
    assert Plan(**plan_values(plan)) == Plan()
    study = tyro.cli(StudyOptions, args=[*_arguments(Study), "--seeds", "10", "--first-seed", "400", "--set"])
    assert study.keys() == _given(StudyOptions).keys()
    assert Study(**study_values(study, Study.seeds)) == Study()


#: Parameters and fields whose paths commands only read.
_READ = {
    *("folder", "folders", "who", "fights", "fight", "file", "project", "graphs", "side_by_side", "run", "fleet"),
    *("games", "settings", "skill_options", "ca", "certificate", "key", "token_file", "statistics", "beside"),
    *("earlier", "variants", "copied", "after", "space", "adapt"),
}


def _path_names(hint: Any, name: str) -> set[str]:
    """Return the names of the paths among a parameter's values: its own, or those of its fields."""
    bare = _bare(hint)
    if is_dataclass(bare):
        own = get_type_hints(bare, include_extras=True)
        return set().union(*(_path_names(own[spec.name], spec.name) for spec in fields(bare)), set())
    if hint in GIVEN:
        return set().union(*(_path_names(kind, field) for field, kind in _given(hint).items()), set())
    return {name} if "Path" in str(bare) else set()


def test_every_path_of_every_command_is_known_as_read_or_written():
    for name, command in LINES.items():
        function = name.split()[-1].replace("-", "_")
        paths = set().union(*(_path_names(hint, one.name) for one, hint in _parameters(command)), set())
        written = paths & written_names(function)
        assert paths - written <= _READ, f"{name}: decide in soulsgraph.cli.output whether {paths - written} is written"
        assert refused_paths(function, written) == written


def refused_paths(function: str, names: set[str]) -> set[str]:
    """Return those of the names by which a path in the folder of a job is refused."""
    refused = set[str]()
    for name in names:
        with suppress(SoulsGraphError):
            # That folder is there, as the job would have brought it.
            check_kept(function, {name: Path()}, Path())
            continue
        refused.add(name)
    return refused


def test_what_trains_all_skills_makes_one_folder():
    trains = [sg.train, training.curriculum, training.train]
    made = {str(signature(function).parameters["run"].default) for function in trains}
    assert len(made) == 1


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("curriculum", "--run runs/curriculum"),
        ("adapt brought", "brought"),
        ("adapt iudex-phase1-best-0 --run ./copy", "--run copy"),
        ("evaluate /data/first --out results", "--out results"),
        ("watch /data/first --gif fight.gif", "--gif fight.gif"),
    ],
)
def test_a_job_does_not_write_into_the_folder_that_goes_with_it(line, name, tmp_path, monkeypatch, capsys):
    place = tmp_path / "working_dir_files" / "_ray_pkg_0123"
    (place / "brought").mkdir(parents=True)
    monkeypatch.chdir(place)
    monkeypatch.setattr(JobFolder, "unpacked", None)
    job = {"metadata": {"job_submission_id": "job"}, "runtime_env": {"working_dir": "gcs://_ray_pkg_0123.zip"}}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps(job))
    assert _printed(monkeypatch, *line.split())[0] == 2
    (refused,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert refused.startswith(f"error: {name}: ")
    assert [*place.rglob("*")] == [place / "brought"]


def test_the_list_of_commands_loads_nothing_that_takes_seconds():
    code = "import sys; from soulsgraph.cli import main\ntry: main()\nfinally: print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True).stdout
    assert {"numba", "scipy", "pandas", "pyarrow", "torch", "ray"}.isdisjoint(shown.split())


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_completes_a_command_and_an_option(monkeypatch, tmp_path):
    script = tmp_path / "new" / "script"
    assert not _printed(monkeypatch, "--tyro-write-completion", "bash", str(script))[0]
    function = '"$(complete -p soulsgraph | sed "s/.*-F \\([^ ]*\\) .*/\\1/")"'
    ask = f"COMP_WORDS=({{}}); COMP_CWORD={{}}; {function}; echo ${{{{COMPREPLY[@]}}}}"
    lines = [f"source {script}", ask.format("soulsgraph eva", 1), ask.format("soulsgraph evaluate --sce", 2)]
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines() == ["evaluate", "--scenario"]


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

class App:
    def cli(self, **options):
        print(json.dumps([sys.argv[1], threads()]))

cli.make_app = lambda words: App()
print(json.dumps(["before", threads(2)]))
for command in cli.COMMANDS:
    sys.argv[1:] = [command]
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
    assert [command for command, _ in found] == list(COMMANDS)
    assert {command: counts for command, counts in found if {int(count) for count in counts.values()} != {1}} == {}
