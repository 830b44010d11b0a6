"""Runs of a project's graph: what their files hold, and that without the code they say what is missing."""

import json
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from fakes.projects import forget_project
from fakes.runs import pretend_run, pretend_training
from soulsgraph.runs.evaluate import Setting, allowed_rows, make_agent
from soulsgraph.runs.lineage import check_target, finished_versions
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.table import win_rates
from soulsgraph.runs.train import StageSetup, check_elsewhere
from soulsgraph_clusters.sessions.session import Session
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_policies.agents.projects import load_project


@pytest.fixture
def run(fencing, duel, tmp_path):
    return RunFolder.create(tmp_path / "run", Plan(scenario=duel, graph="fencing/forked", scale=0.01))


def test_a_plan_and_cards_hold_the_projects_name_and_digest_alone(run, fencing):
    written = json.loads((run.path / "plan.json").read_text())
    assert written["project"] == {"name": "fencing", "digest": fencing.digest}
    assert written["graph"]["name"] == written["plan"]["graph"] == "fencing/forked"
    for card in pretend_training(run, run.plan.stages()):
        file = run.path / "library" / card.skill / "v1" / "card.json"
        assert json.loads(file.read_text())["training"]["project"] == written["project"]
        assert run.library.card(card.skill, 1) == card
    assert RunFolder.open(run.path).plan == run.plan


def test_a_run_without_its_code_says_what_is_missing_and_with_other_code_that_it_changed(run, begun):
    forget_project("fencing")
    with pytest.raises(SoulsGraphError, match="fencing"):
        RunFolder.open(run.path)
    load_project(begun)
    assert RunFolder.open(run.path).plan == run.plan
    forget_project("fencing")
    skill = begun / "fencing" / "parry.py"
    skill.write_text(skill.read_text() + "# A comment changes nothing.\n")
    load_project(begun)
    RunFolder.open(run.path)
    forget_project("fencing")
    skill.write_text(skill.read_text().replace("tried: float = 0.3", "tried: float = 0.2"))
    load_project(begun)
    with pytest.raises(SoulsGraphError, match="fencing"):
        RunFolder.open(run.path)


def test_a_boss_of_a_file_is_refused_on_a_cluster_before_ray_is_asked(run):
    run = RunFolder.create(run.path.with_name("remote"), replace(run.plan, env_runners=1))
    setup = StageSetup(run, run.plan.stages()[0])
    with pytest.raises(SoulsGraphError, match=r"duellist\.toml"):
        setup.build(Session(local=False))
    shipped = load_scenario("iudex-full")
    check_elsewhere(shipped)
    with pytest.raises(SoulsGraphError, match=r"second\.toml"):
        check_elsewhere(replace(shipped, transition=replace(shipped.transition, boss="second.toml")))


HOSTILE = "import pathlib; (pathlib.Path(__file__).parent / 'ran').touch()\n"


@pytest.mark.parametrize("place", ["project", "graph"])
@pytest.mark.parametrize("name", ["hostile", "hostile:project", "../hostile"])
def test_a_hostile_plan_causes_no_import(tmp_path, monkeypatch, place, name):
    """Neither of a module on Python's path, nor of one beside the plan or in the present folder."""
    run = RunFolder.create(tmp_path / "run", Plan(scale=0.01)).path
    for folder in (tmp_path, run):
        (folder / "hostile").mkdir()
        (folder / "hostile" / "__init__.py").write_text(HOSTILE)
        (folder / "pyproject.toml").write_text(
            '[project.entry-points."soulsgraph.projects"]\nhostile="hostile:project"\n'
        )
    monkeypatch.chdir(run)
    monkeypatch.syspath_prepend(tmp_path)
    file = run / "plan.json"
    values = json.loads(file.read_text())
    if place == "project":
        values["project"] = {"name": name, "digest": "0" * 64}
    else:
        values["graph"]["name"] = values["plan"]["graph"] = f"{name}/graph"
    file.write_text(json.dumps(values))
    with pytest.raises(SoulsGraphError):
        RunFolder.open(run)
    assert "hostile" not in sys.modules
    assert not list(tmp_path.rglob("ran"))


def test_a_graph_is_refused_where_the_player_cannot_do_what_its_skill_does(run):
    with pytest.raises(SoulsGraphError, match="parry"):
        Plan(graph="fencing/forked", scenario="iudex-phase1")
    with pytest.raises(SoulsGraphError, match="PARRY"):
        check_target(run, "vordt")
    with pytest.raises(SoulsGraphError, match="PARRY"):
        make_agent(run, Setting("vordt", "vordt"))


def test_the_table_of_an_own_graph_has_its_own_skill_random(run):
    pretend_training(run, run.plan.stages())
    settings = [(row.label, row.ablated) for row in allowed_rows(run)]
    assert settings == [
        ("every skill trained", ()),
        ("parry random", ("parry",)),
        ("heal_attack random", ("heal_attack",)),
    ]
    assert [row.setting for row in win_rates(run, 2, 9, Console(quiet=True)).rows] == [label for label, _ in settings]


def test_a_version_of_other_data_files_is_not_taken(begun, duel):
    (begun / "fencing" / "angles.csv").write_text("1,2\n", encoding="utf-8")
    project = load_project(begun)
    run = pretend_run(begun.parent / "run", Plan(scenario=duel, graph="fencing/forked", scale=0.01))
    first = run.plan.stages()[0]
    (card,) = finished_versions(run, first)
    assert card.training.project.digest == project.digest
    file = run.library.folder / first.skill / "v1" / "inputs.json"
    inputs = json.loads(file.read_text(encoding="utf-8"))
    assert inputs["project"] == project.digest
    file.write_text(json.dumps(inputs | {"project": f"{project.digest[:-4]}0000"}), encoding="utf-8")
    assert finished_versions(run, first) == []
