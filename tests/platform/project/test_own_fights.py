"""Fights of skills of your own: recorded, checked, exported and cloned as the paper's are."""

import json

import pyarrow.parquet as pq
import pytest

from fakes.projects import forget_project
from fakes.runs import pretend_training
from soulsgraph.recordings.cloning import graph_of
from soulsgraph.recordings.files import RecordingError, read_header, recording_files
from soulsgraph.runs.evaluate import Setting
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.zoo.conversion import export_onnx
from soulsgraph_policies.agents.projects import load_project


@pytest.fixture
def run(fencing, duel, tmp_path):
    run = RunFolder.create(tmp_path / "run", Plan(scenario=duel, graph="fencing/forked", scale=0.01))
    pretend_training(run, run.plan.stages())
    return run


@pytest.fixture
def fights(run, begun, printed, tmp_path):
    """Two fights of an agent of six skills, recorded by the command."""
    printed("data", "record", run.path, "--episodes", 2, "--out", tmp_path / "fights", "--project", begun)
    return tmp_path / "fights"


def test_a_recording_has_its_skills_columns_and_is_checked_with_the_code_that_it_names_alone(
    fights, fencing, begun, printed
):
    for path in recording_files(fights):
        header = read_header(path)
        assert (header.project.name, header.project.digest) == ("fencing", fencing.digest)
        assert "parry" in [skill.name for skill in header.skills]
        assert {"parry/action", "parry/values", "parry/reward"} <= {*pq.read_schema(path).names}

    def verdicts(*project: object) -> list[str]:
        found = json.loads(printed("check", fights, "--json", *project))
        assert all("fencing" in one["note"] for one in found if one["verdict"] == "refused")
        return [one["verdict"] for one in found]

    assert verdicts("--project", begun) == ["same", "same"]
    forget_project("fencing")
    assert verdicts() == ["refused", "refused"]
    assert "project" in printed("check", fights)
    skill = begun / "fencing" / "parry.py"
    skill.write_text(skill.read_text().replace("tried: float = 0.3", "tried: float = 0.2"))
    load_project(begun)
    assert verdicts() == ["refused", "refused"]


@pytest.mark.slow
def test_decisions_of_an_own_skill_are_exported_and_cloned(fights, begun, duel, printed, tmp_path):
    printed("data", "export", fights, "--rllib", "parry", "--out", tmp_path / "parry.parquet")
    rows = pq.read_table(tmp_path / "parry.parquet")
    decided = [pq.read_table(path, columns=["parry/decides"]).column(0).to_pylist() for path in recording_files(fights)]
    assert 0 < len(rows) <= sum(map(sum, decided))
    options = ("--scenario", duel, "--project", begun)
    # Without its name the graph is that of the fights.
    shown = printed("data", "clone", fights, "--run", tmp_path / "unnamed", *options)
    assert f"soulsgraph evaluate {tmp_path / 'unnamed'} --project {begun}" in shown
    unnamed = RunFolder.open(tmp_path / "unnamed")
    assert unnamed.plan.graph == "fencing/forked"
    assert unnamed.library.versions("parry") == [1]
    forget_project("fencing")
    with pytest.raises(RecordingError, match="fencing"):
        graph_of(fights)


def test_an_own_skill_becomes_a_model_that_chooses_as_we_do(run, tmp_path):
    found = export_onnx(run, tmp_path / "onnx", Setting(run.plan.scenario, run.plan.scenario), 100)
    assert [one.clear_differing for one in found if one.skill == "parry"] == [0]
    assert (tmp_path / "onnx" / "parry.onnx").is_file()
