"""The remedies of errors can be followed: commands and options exist, and a refused read is no refused write."""

import ast
import dataclasses
import errno
import os
import pickle
import re
import sys
from pathlib import Path

import pytest

from soulsgraph.cli import main, remedies, training
from soulsgraph.cli.front import COMMANDS, command_lines
from soulsgraph.cli.games import show
from soulsgraph.cli.remedies import command_line, in_commands
from soulsgraph.paper.records import load_reproductions
from soulsgraph.paper.study import DESCRIPTION
from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import OutputConsole, WinRateTable, read_rows
from soulsgraph.runs.evaluate import allowed_rows, load_checkpoint
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_envs.core.config import Where, read_file
from soulsgraph_envs.core.errors import ReadError, Remedy, SoulsGraphError
from soulsgraph_envs.games.doctor import Check
from soulsgraph_envs.games.standin.launch import StandInOptions
from soulsgraph_policies.agents.library import SkillLibrary
from soulsgraph_policies.agents.projects import PAPER_GRAPH
from soulsgraph_policies.learning.checkpoint import read_training_state

_ROOT = Path(__file__).parents[3]
_PACKAGES = ("platform", "policies", "clusters", "envs")
#: Options of other programs that our command line names.
_FOREIGN = {"--logdir", "--tyro-"}
_NOBODY = 65534


def _files():
    return sorted(file for package in _PACKAGES for file in (_ROOT / package).rglob("*.py"))


def _named():
    """Every option and command that the command line names, a command that is put together of words included."""
    for file in (file for file in _files() if file.parent.name == "cli"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            text = ""
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "command_line":
                text = " ".join(["soulsgraph", *(word.value for word in node.args if isinstance(word, ast.Constant))])
            yield f"{file.name}:{getattr(node, 'lineno', 0)}", text


def _help(monkeypatch, capsys, *words) -> str:
    monkeypatch.setattr("sys.argv", ["soulsgraph", *words, "--help"])
    with pytest.raises(SystemExit):
        main()
    return capsys.readouterr().out


def test_every_command_and_option_that_the_command_line_names_exists(monkeypatch, capsys):
    known = set(COMMANDS)
    named = [(place, word) for place, text in _named() for word in re.findall(r"^soulsgraph ([a-z][a-z-]*)", text)]
    assert len(named) > 5
    assert not [(place, word) for place, word in named if word not in known]
    lines = [(), *((name,) for name in known), *command_lines()]
    options = {option for line in lines for option in re.findall(r"--[a-z][a-z-]+", _help(monkeypatch, capsys, *line))}
    used = [(place, option) for place, text in _named() for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)]
    assert len(used) > 30
    assert not [(place, option) for place, option in used if option not in options | _FOREIGN]


def test_a_baseline_without_its_skill_is_trained_by_its_own_command(tmp_path):
    baseline = RunFolder.create(tmp_path / "base `line", Plan(graph="end-to-end"))
    with pytest.raises(SoulsGraphError) as caught:
        allowed_rows(baseline)
    assert caught.value.remedy.function == "train_stage"
    found = in_commands(caught.value, "table").rpartition("first: ")[2]
    assert found == f"soulsgraph baseline --resume --run '{baseline.path}'."


def test_each_name_in_a_remedy_is_one_that_a_message_of_the_library_has():
    source = "".join(file.read_text(encoding="utf-8") for file in _files() if file.parent.name != "cli")
    options = {*remedies._OPTIONS, *(name for names in remedies._OF_COMMAND.values() for name in names)}
    opening = {"RunFolder.open", "ReproductionFolder.open", "ContinualFolder.open", "SweepFolder.open"}
    fields = {field.name for field in dataclasses.fields(StandInOptions)}
    assert not [name for name in options - opening - fields if f"`{name}`" not in source]
    assert not [name for name in opening if f'"{name}"' not in source]
    calls = {word for word in re.findall(r"""Remedy\(\s*(?:f?"[^"]*"|\w+),\s*"([A-Za-z_.]+)",""", source)}
    assert calls == {*remedies._COMMANDS}


@pytest.mark.parametrize(
    ("message", "command", "told"),
    [
        (
            "continue with `RunFolder.open` or name another with `path`",
            "train",
            "continue with --resume or name another with --run",
        ),
        ("name another folder with `path`", "reproduce", "name another folder with --out"),
        ("continue with `after`", "adapt", "continue with --after"),
        ("continue with `after`", "recovery", "continue with --home"),
        ("a smaller budget (`scale`, `budget`)", "curriculum", "a smaller budget (--scale, --budget)"),
        (
            "choose other `seeds`, without `overrides`",
            "reproduce",
            "choose other --seeds or --first-seed, without --set",
        ),
        ("begin another without `env_runners`", "train", "begin another without --env-runners"),
        ("expected `token_file` for 0.0.0.0", "serve-siphon", "expected --token-file for 0.0.0.0"),
        ("correct `host`, or `certificate` if it encrypts", "train", "correct `host`, or `certificate` if it encrypts"),
        (
            "start it with `ray start --head` or correct `address`",
            "train",
            "start it with `ray start --head` or correct --address",
        ),
        ("`train_stage`", "train", "`train_stage`"),
        (Remedy("", "train_stage", run=Path("a run"), skill="dodge"), "table", "soulsgraph train dodge --run 'a run'"),
        (
            Remedy("", "RunFolder.create", path="r"),
            "train",
            "soulsgraph curriculum --run r or soulsgraph baseline --run r",
        ),
        (Remedy("", "ReproductionFolder.create", path="r"), "report", "soulsgraph reproduce --out r"),
        (Remedy("", "do_units", folder="r"), "report", "soulsgraph reproduce --resume --out r"),
        ("begin a new folder with `path`", "continual", "begin a new folder with --out"),
        (Remedy("", "ContinualFolder.create", path="r"), "continual", "soulsgraph continual run --out r"),
        (Remedy("", "run_units", folder="r"), "continual", "soulsgraph continual run --resume --out r"),
        (Remedy("", "adaptation_stages", run="r"), "retention", "soulsgraph adapt r --scenario NAME"),
        (Remedy("", "check_library", run="r"), "transfer", "soulsgraph skills r"),
        (Remedy("", "save_transfer", run="r", scenario="vordt"), "adapt", "soulsgraph transfer r --scenario vordt"),
        (
            Remedy("", "recover", run="r", scenario="vordt", budget=800),
            "retention",
            "soulsgraph recovery r --scenario vordt --budget 800",
        ),
    ],
)
def test_a_remedy_of_the_library_is_told_in_commands_and_options(message, command, told):
    calls = [message] if isinstance(message, Remedy) else []
    assert in_commands(message, command, calls) == told
    assert in_commands(SoulsGraphError("expected more", message), command) == f"expected more; {told}."


def test_an_error_keeps_its_remedies_between_processes_and_those_of_the_errors_that_it_repeats():
    errors = [SoulsGraphError("nothing", Remedy("begin: ", "RunFolder.create", path=name)) for name in "ab"]
    summary = SoulsGraphError("; ".join(map(str, errors)), repeated=pickle.loads(pickle.dumps(errors)))
    assert summary.calls == (errors[0].remedy, errors[1].remedy)
    words = (f"soulsgraph curriculum --run {name} or soulsgraph baseline --run {name}" for name in "ab")
    assert in_commands(summary, "train") == "; ".join(f"nothing; begin: {one}." for one in words)


def test_the_command_line_words_the_remedies_of_errors(refuse, tmp_path):
    run = RunFolder.create(tmp_path / "run", Plan())
    assert f"begin one with: soulsgraph curriculum --run {tmp_path / 'no'} or soulsgraph" in refuse(
        "table", tmp_path / "no"
    )
    assert "continue with --resume or name another folder with --run." in refuse("curriculum", "--run", run.path)
    assert "name another folder with --out." in refuse("reproduce", "--out", run.path)
    assert "error: --scenario: expected another" in refuse("adapt", run.path, "--scenario", "iudex-phase1")
    assert "error: --speed: expected a number" in refuse("standin", "--speed", "9")
    assert "expected --token-file for 0.0.0.0:0" in refuse("serve-siphon", "--address", "0.0.0.0:0")
    assert "other --seeds or --first-seed" in refuse("reproduce", "--first-seed", "499", "--out", tmp_path / "new")


def test_records_are_written_where_they_can_be(tmp_path):
    def remedy(folder: Path) -> str:
        with pytest.raises(SoulsGraphError) as caught:
            load_reproductions([folder])
        return in_commands(caught.value, "report").rpartition("; ")[2]

    assert remedy(tmp_path / "new") == f"write one with: soulsgraph reproduce --out {tmp_path / 'new'}."
    assert remedy(tmp_path) == "name the folder of a reproduction."
    (tmp_path / DESCRIPTION).write_text("{}")
    assert remedy(tmp_path) == f"write them again with: soulsgraph reproduce --resume --out {tmp_path}."
    records = tmp_path / "records" / "rows.parquet"
    records.parent.mkdir()
    records.write_bytes(b"nothing of the kind")
    assert remedy(tmp_path) == f"write them again with: soulsgraph reproduce --resume --out {tmp_path}."


@pytest.fixture
def forbidden(tmp_path):
    """A folder that this process may not read."""
    user = os.geteuid()
    (tmp_path / "run").mkdir()
    tmp_path.chmod(0)
    if user == 0:
        os.seteuid(_NOBODY)
    yield tmp_path / "run"
    os.seteuid(user)
    tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    "read",
    [
        RunFolder.open,
        lambda folder: RunFolder.create(folder, Plan()),
        lambda folder: read_file(Where(folder / "plan.json")),
        lambda folder: read_file(Where(folder / "scenario.toml")),
        lambda folder: read_rows(folder / "rows.parquet"),
        lambda folder: load_checkpoint(folder / "step-000001000.safetensors"),
        lambda folder: SkillLibrary(folder, PAPER_GRAPH).versions("camera"),
        lambda folder: SkillLibrary(folder, PAPER_GRAPH).card("camera", 1),
        read_training_state,
    ],
)
def test_a_refused_read_is_reported_as_one(forbidden, read):
    with pytest.raises(ReadError, match="found: Permission denied; allow reading it") as caught:
        read(forbidden)
    assert str(forbidden) in str(caught.value)


def test_a_refusal_that_nobody_expected_claims_no_write(tmp_path, monkeypatch, capsys):
    def forbid(run: RunFolder) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(run.path))

    RunFolder.create(tmp_path, Plan())
    monkeypatch.setattr(training.evaluating, "check_library", forbid)
    monkeypatch.setattr("sys.argv", ["soulsgraph", "skills", str(tmp_path)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert capsys.readouterr().err == (
        f"error: {tmp_path}: expected to read or write it, found: Permission denied; allow it, or name another place.\n"
    )


def test_a_path_in_a_table_is_never_broken_or_cut(capsys):
    path = f"/{'scenarios' * 20}/[mine]:x:.toml"
    console = OutputConsole()
    console.print(WinRateTable("", (WinRate(1, 2, f"{path}, start mid"),)).to_rich())
    show([Check("Games", "window", "fail", path, f"correct {path}")], console)
    printed = capsys.readouterr().out
    assert "…" not in printed
    assert printed.count(path) == 3


def test_a_command_line_is_quoted_for_the_systems_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    assert command_line("saves", "restore", "a copy") == "soulsgraph saves restore 'a copy'"
    monkeypatch.setattr(sys, "platform", "win32")
    assert command_line("saves", "restore", "saves\\one") == "soulsgraph saves restore saves\\one"
    for path in ("saves\\a copy", "C:\\R&D\\run", "it's", "a;b", "50%", "(1)", "a,b", "$home", "a^b", ""):
        assert command_line("saves", "restore", path) == f'soulsgraph saves restore "{path}"'
