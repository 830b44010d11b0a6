"""The remedies of errors can be followed: commands and options exist, and a refused read is no refused write."""

import os
import pickle
import re
import sys
from pathlib import Path

import pytest

from soulsgraph.cli.remedies import command_line, folder_of, going_on, in_commands
from soulsgraph.paper.records import load_reproductions
from soulsgraph.paper.study import DESCRIPTION
from soulsgraph.results.tables import read_rows
from soulsgraph.runs.evaluate import allowed_rows, load_checkpoint
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_envs.core.config import Where, read_file
from soulsgraph_envs.core.errors import ReadError, Remedy, SoulsGraphError
from soulsgraph_policies.agents.library import SkillLibrary
from soulsgraph_policies.agents.projects import PAPER_GRAPH
from soulsgraph_policies.learning.checkpoint import read_training_state

_NOBODY = 65534


@pytest.mark.parametrize(
    ("message", "command", "told"),
    [
        ("`RunFolder.open` or `path`", "train", "--resume or --run"),
        ("`path`, `budget`", "continual", "--out, a larger --scale"),
        ("`after`", "recovery", "--home"),
        ("`seeds`, `overrides`", "reproduce", "--seeds or --first-seed, --set"),
        ("`env_runners`", "train", "--env-runners"),
        ("`token_file`", "serve-siphon", "--token-file"),
        ("`token_file`, `train_stage`", "train", "`token_file`, `train_stage`"),
        (Remedy("", "train_stage", run=Path("a run"), skill="dodge"), "table", "train dodge --run 'a run'"),
        (Remedy("", "train_stage", run="r", skill="end_to_end"), "table", "baseline --resume --run r"),
        (Remedy("", "RunFolder.create", path="r"), "train", "curriculum --run r or soulsgraph baseline --run r"),
        (Remedy("", "ReproductionFolder.create", path="r"), "report", "reproduce --out r"),
        (Remedy("", "do_units", folder="r"), "report", "reproduce --resume --out r"),
        (Remedy("", "ContinualFolder.create", path="r"), "continual", "continual run --out r"),
        (Remedy("", "run_units", folder="r"), "continual", "continual run --resume --out r"),
        (Remedy("", "SweepFolder.create", path="r"), "sweep", "sweep SPACE.toml --run r"),
        (Remedy("", "run_sweep", folder="r"), "sweep", "sweep --resume --run r"),
        (Remedy("", "adaptation_stages", run="r"), "retention", "adapt r --scenario NAME"),
        (Remedy("", "check_library", run="r"), "transfer", "skills r"),
        (Remedy("", "copy_agent", name="a", path="r"), "adapt", "zoo copy a --run r"),
        (Remedy("", "save_transfer", run="r", scenario="vordt"), "adapt", "transfer r --scenario vordt"),
        (
            Remedy("", "recover", run="r", scenario="vordt", budget=800),
            "retention",
            "recovery r --scenario vordt --budget 800",
        ),
        (
            Remedy("", "evaluate", run="r", scenario="a", trained_on="b"),
            "table",
            "evaluate r --scenario a --trained-on b",
        ),
    ],
)
def test_a_remedy_of_the_library_is_told_in_commands_and_options(message, command, told):
    if isinstance(message, Remedy):
        assert in_commands(SoulsGraphError("expected more", message), command).endswith(f"soulsgraph {told}.")
    else:
        assert in_commands(message, command) == told


def test_an_error_keeps_its_remedies_between_processes_and_those_of_the_errors_that_it_repeats():
    errors = [SoulsGraphError("nothing", Remedy("begin: ", "RunFolder.create", path=name)) for name in "ab"]
    summary = SoulsGraphError("; ".join(map(str, errors)), repeated=pickle.loads(pickle.dumps(errors)))
    assert summary.calls == (errors[0].remedy, errors[1].remedy)
    assert re.findall(r"curriculum --run (\w)", in_commands(summary, "train")) == ["a", "b"]


def test_a_baseline_without_its_skill_is_trained_by_its_own_command(tmp_path):
    baseline = RunFolder.create(tmp_path / "baseline", Plan(graph="end-to-end"))
    with pytest.raises(SoulsGraphError) as caught:
        allowed_rows(baseline)
    assert caught.value.remedy.function == "train_stage"
    assert caught.value.remedy.arguments == {"run": str(baseline.path), "skill": "end_to_end"}


def test_records_are_written_where_they_can_be(tmp_path):
    def remedy(folder: Path) -> str:
        with pytest.raises(SoulsGraphError) as caught:
            load_reproductions([folder])
        return in_commands(caught.value, "report")

    assert f"soulsgraph reproduce --out {tmp_path / 'new'}" in remedy(tmp_path / "new")
    assert "soulsgraph" not in remedy(tmp_path)
    (tmp_path / DESCRIPTION).write_text("{}")
    again = f"soulsgraph reproduce --resume --out {tmp_path}"
    assert again in remedy(tmp_path)
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "rows.parquet").write_bytes(b"nothing of the kind")
    assert again in remedy(tmp_path)


@pytest.mark.parametrize(
    ("line", "folder"),
    [
        ("adapt iudex-phase1-best-0 --run /mine", "/mine"),
        ("recovery --run=/mine iudex-phase1-best-0", "/mine"),
        ("adapt --scenario vordt /data/r", "/data/r"),
        ("adapt --json /data/r", "/data/r"),
        ("adapt --games=/g.toml /data/r", "/data/r"),
        ("continual run S8", "runs/continual"),
        ("continual run S8 --out study", "study"),
    ],
)
def test_the_folder_that_a_command_writes_is_found_in_its_words(line, folder):
    assert folder_of(line.split()) == folder


def test_a_command_that_is_begun_goes_on_and_no_other(tmp_path):
    words = ["continual", "run", "S8", "--out", str(tmp_path)]
    assert going_on(words) == words
    (tmp_path / "continual.json").touch()
    assert going_on(words) == going_on([*words, "--resume"]) == [*words, "--resume"]
    assert going_on(["continual", "score", str(tmp_path)]) == ["continual", "score", str(tmp_path)]


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
        lambda folder: read_rows(folder / "rows.parquet"),
        lambda folder: load_checkpoint(folder / "step-000001000.safetensors"),
        lambda folder: SkillLibrary(folder, PAPER_GRAPH).versions("camera"),
        lambda folder: SkillLibrary(folder, PAPER_GRAPH).card("camera", 1),
        read_training_state,
    ],
)
def test_a_refused_read_is_reported_as_one(forbidden, read):
    with pytest.raises(ReadError, match=re.escape(str(forbidden))):
        read(forbidden)


def test_a_command_line_is_quoted_for_the_systems_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    assert command_line("saves", "restore", "a copy") == "soulsgraph saves restore 'a copy'"
    monkeypatch.setattr(sys, "platform", "win32")
    assert command_line("saves", "restore", "saves\\one") == "soulsgraph saves restore saves\\one"
    for path in ("saves\\a copy", "C:\\R&D\\run", "it's", "a;b", "50%", "(1)", "a,b", "$home", "a^b", ""):
        assert command_line("saves", "restore", path) == f'soulsgraph saves restore "{path}"'
