"""What errors advise can be followed: commands and options exist, and a refused read is no refused write."""

import ast
import errno
import os
import re
from pathlib import Path

import pytest
from rich.console import Console

from soulsgraph.cli import commands
from soulsgraph.cli.doctor import show
from soulsgraph.cli.main import main
from soulsgraph.curves import load_checkpoint
from soulsgraph.evaluation import allowed_rows
from soulsgraph.files import read_parquet
from soulsgraph.plan import Plan
from soulsgraph.reports.reproduction_records import DESCRIPTION, load_reproductions
from soulsgraph.reports.tables import WinRate, WinRateTable
from soulsgraph.run_folder import RunFolder
from soulsgraph_envs.doctor.check import Check
from soulsgraph_envs.errors import ReadError, SoulsGraphError
from soulsgraph_envs.schema import Where, read_file
from soulsgraph_policies.graph import PAPER_GRAPH
from soulsgraph_policies.library import SkillLibrary
from soulsgraph_policies.training_state import read_training_state

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("platform", "policies", "clusters")
#: Options of other programs that our texts name.
_FOREIGN = {"--block", "--head", "--logdir", "--resources"}
_NOBODY = 65534


def _texts():
    """Every text in the packages' code that is more than a word, and every command that is put together of words."""
    for file in sorted(file for package in _PACKAGES for file in (_ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            text = ""
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                text = node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "command_line":
                text = " ".join(["soulsgraph", *(word.value for word in node.args if isinstance(word, ast.Constant))])
            yield f"{file.name}:{getattr(node, 'lineno', 0)}", text


def _help(monkeypatch, capsys, *words) -> str:
    monkeypatch.setattr("sys.argv", ["soulsgraph", *words, "--help"])
    with pytest.raises(SystemExit):
        main()
    return capsys.readouterr().out


def test_every_command_and_option_that_a_text_names_exists(monkeypatch, capsys):
    known = set(commands.app._subcommands)
    named = [(place, word) for place, text in _texts() for word in re.findall(r"soulsgraph ([a-z][a-z-]*) --", text)]
    assert not [(place, word) for place, word in named if word not in known]
    options = {option for name in known for option in re.findall(r"--[a-z][a-z-]+", _help(monkeypatch, capsys, name))}
    used = [(place, option) for place, text in _texts() for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)]
    assert len(used) > 30
    assert not [(place, option) for place, option in used if option not in options | _FOREIGN]


def test_a_baseline_without_its_skill_is_trained_by_its_own_command(tmp_path):
    baseline = RunFolder.create(tmp_path / "base line", Plan(graph="end-to-end"))
    with pytest.raises(SoulsGraphError, match=f"first: soulsgraph baseline --resume --run '{baseline.path}'"):
        allowed_rows(baseline)


def test_records_are_written_where_they_can_be(tmp_path):
    def remedy(folder: Path) -> str:
        with pytest.raises(SoulsGraphError) as caught:
            load_reproductions([folder])
        return str(caught.value).rpartition("; ")[2]

    assert remedy(tmp_path / "new") == f"write one with: soulsgraph reproduce --out {tmp_path / 'new'}."
    assert remedy(tmp_path) == "name a folder that reproduce wrote."
    (tmp_path / DESCRIPTION).write_text("{}")
    assert remedy(tmp_path) == f"write them again with: soulsgraph reproduce --resume --out {tmp_path}."
    records = tmp_path / "records" / "rows.parquet"
    records.parent.mkdir()
    records.write_bytes(b"nothing of the kind")
    assert remedy(tmp_path) == f"write them again with: soulsgraph reproduce --resume --out {tmp_path}."


@pytest.fixture
def forbidden(tmp_path):
    """A folder that this process may not look into."""
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
        lambda folder: read_parquet(folder / "rows.parquet"),
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
    monkeypatch.setattr(commands, "check_library", forbid)
    monkeypatch.setattr("sys.argv", ["soulsgraph", "skills", str(tmp_path)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert capsys.readouterr().err == (
        f"error: {tmp_path}: expected to read or write it, found: Permission denied; allow it, or name another place.\n"
    )


def test_a_path_in_a_table_is_folded_and_never_cut(capsys):
    path = f"/{'scenarios' * 20}/[mine]:x:.toml"
    console = Console(width=80, markup=False, emoji=False)
    console.print(WinRateTable("", (WinRate(f"{path}, start mid", 1, 2),)).to_rich())
    show([Check("Games", "window", "fail", path, f"correct {path}")], console)
    printed = "".join(capsys.readouterr().out.split())
    assert "…" not in printed
    assert "[mine]:x:" in printed
