"""Options of the command line come from frozen dataclasses: none has a default of its own, absent is the field's."""

import io
import json
import os
import re
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

from soulsgraph.cli import fights, front, main, make_app
from soulsgraph.cli.continual import ContinualOptions
from soulsgraph.cli.fights import PictureOptions
from soulsgraph.cli.options import (
    EvaluationOptions,
    FightOptions,
    LearningOptions,
    PlanOptions,
    SessionOptions,
    TrainingOptions,
    plan_values,
)
from soulsgraph.cli.output import JobFolder, OutputOptions, RunOptions, check_kept, written_names
from soulsgraph.cli.projects import ComparedOptions
from soulsgraph.cli.studies import StudyOptions, study_values
from soulsgraph.cli.tuning import SweepOptions
from soulsgraph.continual.study import ContinualStudy
from soulsgraph.paper.study import Study
from soulsgraph.runs.plan import Plan
from soulsgraph.transfer import TransferOptions
from soulsgraph_clusters.fleet.actor.host import HostOptions
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.games.link import DRIVERS
from soulsgraph_envs.games.standin.launch import ServingOptions, StandInOptions

_GROUPS = {name: actions for name in front.COMMANDS if (actions := front.load(name)[1])}
COMMANDS = {name: spec.target for name, spec in make_app(())._subcommands.items() if name not in _GROUPS} | {
    f"{group} {name}": action for group, actions in _GROUPS.items() for name, action in actions.items()
}
SOURCES = (
    *(Plan, Study, ContinualStudy, EvaluationOptions, OutputOptions, RunOptions, SessionOptions, TransferOptions),
    *(
        TrainingOptions,
        FightOptions,
        PictureOptions,
        fights.HandicapOptions,
        StandInOptions,
        ServingOptions,
        HostOptions,
    ),
)
#: Options that come as a mapping of those given.
GIVEN = (PlanOptions, LearningOptions, StudyOptions, ContinualOptions, ComparedOptions, SweepOptions)
#: The options of every command and their defaults as the help shows them; this file run as a program writes it anew.
KEPT = Path(__file__).with_name("options.json")
_MEANT = "if that is meant, write the kept ones anew: .venv/bin/python tests/platform/cli/test_options.py"
#: Options that stand for a field under another name.
FIELDS = {"first_seed": "seeds"}
SHOWN = {"overrides": "set", "copy": "run"}


def _given(hint: Any) -> Mapping[str, Any]:
    """Return the options, by field, that come as a mapping of those given."""
    return dict(get_args(hint)[1].constructor_factory().__annotations__)


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _parameters(command: Any) -> list[tuple[Parameter, Any]]:
    hints = get_type_hints(command, include_extras=True)
    return [(parameter, hints[name]) for name, parameter in signature(command).parameters.items()]


def _options(command: Any) -> set[str]:
    """Return every option that a command should show."""
    names: set[str] = set()
    for parameter, hint in _parameters(command):
        if is_dataclass(_bare(hint)):
            names |= {spec.name for spec in fields(_bare(hint))}
        elif hint in GIVEN:
            names |= {SHOWN.get(name, name) for name in _given(hint)}
        elif "Positional" not in str(hint):
            names.add(SHOWN.get(parameter.name, parameter.name))
    return {f"--{name.replace('_', '-')}" for name in names}


def shown_options(name: str) -> dict[str, str]:
    """Return the options that the help of a command shows, each with its default in words, or what stands for it."""
    arguments, columns, printed = sys.argv, os.environ.get("COLUMNS"), io.StringIO()
    sys.argv, os.environ["COLUMNS"] = ["soulsgraph", *name.split(), "--help"], "1000"
    try:
        with redirect_stdout(printed), suppress(SystemExit):
            main()
    finally:
        sys.argv = arguments
        os.environ.pop("COLUMNS")
        os.environ.update({} if columns is None else {"COLUMNS": columns})
    found: dict[str, str] = {}
    # Where the checkout and the user's files lie is no part of a default.
    for line in printed.getvalue().replace(str(KEPT.parents[3]), ".").replace(str(Path.home()), "~").splitlines():
        if option := re.match(r"\W{2}(--[a-z][a-z0-9-]*)", line):
            last = option[1]
            found[last] = "none"
        if (default := re.search(r"\((?:default: (.*)|(required)|(repeatable)|(optional))\)\s*$", line)) and found:
            found[last] = next(word for word in default.groups() if word)
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_shown_is_a_field_or_the_commands_own(name):
    assert shown_options(name).keys() == _options(COMMANDS[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_the_options_of_a_command_and_their_defaults_are_those_kept(name):
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    assert kept.keys() == COMMANDS.keys(), f"commands came or went; {_MEANT}"
    assert shown_options(name) == kept[name], f"options or defaults changed; {_MEANT}"


@pytest.mark.parametrize("name", COMMANDS)
def test_options_of_a_dataclass_default_to_its_fields(name):
    for parameter, hint in _parameters(COMMANDS[name]):
        cls = _bare(hint)
        if is_dataclass(cls):
            assert cls in SOURCES
            assert cls.__dataclass_params__.frozen
            required = any(spec.default is MISSING and spec.default_factory is MISSING for spec in fields(cls))
            assert parameter.default == (Parameter.empty if required else cls())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_commands_own_option_repeats_no_field_with_another_default(name):
    for parameter, hint in _parameters(COMMANDS[name]):
        if is_dataclass(_bare(hint)) or hint in GIVEN:
            continue
        alike = [spec for cls in SOURCES for spec in fields(cls) if spec.name == parameter.name]
        defaults = [spec.default for spec in alike if type(spec.default) is type(parameter.default)]
        assert parameter.default in (None, Parameter.empty) or not defaults or parameter.default in defaults


def test_doctor_examines_every_driver():
    assert get_args(get_type_hints(COMMANDS["doctor"])["driver"]) == DRIVERS


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


def test_options_left_out_are_not_among_those_given():
    assert tyro.cli(PlanOptions, args=[]) == {}
    assert tyro.cli(StudyOptions, args=[]) == {}
    assert Plan(**plan_values({})) == Plan()
    assert Study(**study_values({}, Study.seeds)) == Study()


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


def test_options_given_with_the_fields_defaults_make_the_same_plan_and_study(tmp_path):
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
    for name, command in COMMANDS.items():
        function = name.split()[-1].replace("-", "_")
        paths = set().union(*(_path_names(hint, one.name) for one, hint in _parameters(command)), set())
        written = paths & written_names(function)
        assert paths - written <= _READ, f"{name}: decide in soulsgraph.cli.output whether {paths - written} is written"
        assert not written or refused_paths(function, written) == written


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


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["curriculum"], "--run runs/curriculum"),
        (["train", "camera", "--run", "mine"], "--run mine"),
        (["adapt", "brought"], "brought"),
        (["adapt", "iudex-phase1-best-0", "--run", "./copy"], "--run copy"),
        (["reproduce"], "--out runs/reproduction"),
        (["evaluate", "/data/first", "--out", "results"], "--out results"),
        (["watch", "/data/first", "--gif", "fight.gif"], "--gif fight.gif"),
        (["data", "record", "oracle", "--out", "fights"], "--out fights"),
        (["zoo", "copy", "iudex-phase1-best-0", "--run", "copy"], "--run copy"),
    ],
)
def test_a_job_does_not_write_into_the_folder_that_goes_with_it(words, found, tmp_path, monkeypatch, capsys):
    place = tmp_path / "working_dir_files" / "_ray_pkg_0123"
    (place / "brought").mkdir(parents=True)
    monkeypatch.chdir(place)
    monkeypatch.setattr(JobFolder, "unpacked", None)
    job = {"metadata": {"job_submission_id": "job"}, "runtime_env": {"working_dir": "gcs://_ray_pkg_0123.zip"}}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps(job))
    monkeypatch.setattr(sys, "argv", ["soulsgraph", *words])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert line.startswith(f"error: {found}: expected a path outside the job's working directory, found {place}")
    assert line.endswith("is deleted with the job, and what it wrote there with it; name it from / on.")
    assert [*place.rglob("*")] == [place / "brought"]


def test_the_list_of_commands_loads_nothing_that_takes_seconds():
    code = "import sys; from soulsgraph.cli import main\ntry: main()\nfinally: print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True).stdout
    assert {"numba", "scipy", "pandas", "pyarrow", "torch", "ray"}.isdisjoint(shown.split())


if __name__ == "__main__":
    options = {name: shown_options(name) for name in sorted(COMMANDS)}
    KEPT.write_text(json.dumps(options, indent=1) + "\n", encoding="utf-8")
