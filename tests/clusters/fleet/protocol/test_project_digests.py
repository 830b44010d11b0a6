"""Own skills in a fleet: a PC plays them by its own copy of the project, and is refused by name without it."""

import json
import subprocess
import sys

import pytest

from fakes.projects import forget_project
from soulsgraph.project import begin_project
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Hello
from soulsgraph_clusters.fleet.protocol.task import (
    StageTask,
    make_hello,
    project_digests,
    project_problem,
    projects_of_hello,
)
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_policies.agents.projects import load_project, loaded_projects, take_over
from soulsgraph_policies.learning.hyperparameters import skill_hyperparameters

PLAYS = {name: name for name in ("camera", "lock_on", "movement", "parry")}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of a new project that is loaded."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    begin_project(tmp_path / "fencing")
    load_project(tmp_path / "fencing")
    yield tmp_path / "fencing"
    for name in loaded_projects():
        forget_project(name)


@pytest.fixture
def task(folder):
    learns = {"parry": skill_hyperparameters(4000)}
    projects = {"fencing": loaded_projects()["fencing"].digest}
    return StageTask("iudex-phase1-whole", PLAYS, learns, 10.0, projects=projects)


def _change_code(folder):
    skill = folder / "fencing" / "parry.py"
    skill.write_text(skill.read_text().replace("tried: float = 0.3", "tried: float = 0.2"))
    forget_project("fencing")
    load_project(folder)


def test_a_task_names_a_project_by_its_digest_and_by_no_place(task, folder):
    text = task.to_json()
    assert json.loads(text)["projects"] == {"fencing": project_digests()["fencing"]}
    assert str(folder) not in text
    assert ".py" not in text
    assert StageTask.from_json(text) == task


def test_a_pc_without_the_code_or_with_other_code_refuses_a_task_by_the_projects_name(task, folder):
    text, digest = task.to_json(), task.projects["fencing"][:16]
    forget_project("fencing")
    with pytest.raises(SoulsGraphError, match=f"fencing.*{digest}"):
        StageTask.from_json(text)
    load_project(folder)
    assert StageTask.from_json(text) == task
    _change_code(folder)
    with pytest.raises(SoulsGraphError, match="fencing"):
        StageTask.from_json(text)


@pytest.mark.parametrize("name", ["hostile", "hostile:project", "../hostile", "os"])
def test_a_hostile_task_causes_no_import(task, tmp_path, monkeypatch, name):
    (tmp_path / "hostile").mkdir()
    (tmp_path / "hostile" / "__init__.py").write_text("raise SystemExit('imported')\n")
    sys.path.insert(0, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    values = json.loads(task.to_json())
    with pytest.raises(SoulsGraphError, match="project"):
        StageTask.from_json(json.dumps(values | {"projects": {name: "0" * 64}}))
    assert "hostile" not in sys.modules


def test_a_hello_names_what_is_loaded_and_what_is_no_name_or_digest_is_left_out(folder):
    said = make_hello("1", "simulator", 1).digests
    hostile = {"project/": "0" * 64, "project/../x": "0" * 64, "project/other": "\x1b[2J", "data": "0" * 64}
    assert projects_of_hello(Hello(digests=dict(said) | hostile)) == project_digests()
    assert str(folder) not in str(said)


@pytest.mark.parametrize(("needed", "lacks"), [("fencing", ""), ("other fencing", "fencing"), ("riding", "riding")])
def test_a_game_without_a_needed_project_is_told_which(folder, needed, lacks):
    wanted = project_digests() if needed == "fencing" else {needed.removeprefix("other "): "0" * 64}
    problem = project_problem(wanted, projects_of_hello(make_hello("1", "simulator", 1)))
    assert lacks in problem
    assert bool(problem) == bool(lacks)


def test_a_process_takes_over_a_project_by_value_once_and_refuses_other_code(folder):
    (loaded,) = loaded_projects().values()
    take_over([loaded])
    forget_project("fencing")
    take_over([loaded])
    assert project_digests() == {"fencing": loaded.digest}
    _change_code(folder)
    with pytest.raises(SoulsGraphError, match="fencing"):
        take_over([loaded])


def test_a_game_pc_loads_projects_without_torch_and_ray(folder):
    code = (
        "import sys; from pathlib import Path; from soulsgraph_clusters.fleet.actor import host; "
        f"host.load_projects([Path({str(folder)!r})], print); from soulsgraph_envs.skills import make_skill; "
        "print(make_skill('parry').name, sorted({'torch', 'ray'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "parry []"
