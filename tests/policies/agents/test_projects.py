"""Projects of users: where they are loaded from, what they are held to, and that nothing else leads to an import."""

import sys
import textwrap
from importlib.metadata import EntryPoint, EntryPoints

import cloudpickle
import gymnasium
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.projects import forget_project
from soulsgraph_envs.combat.scripted import REFERENCES
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.skills import make_skill, skill_names
from soulsgraph_policies.agents import projects
from soulsgraph_policies.agents.projects import (
    PAPER_GRAPH,
    ProjectDigest,
    carried_by_value,
    find_graph,
    graph_names,
    is_name,
    load_installed,
    load_project,
    loaded_projects,
    project_digest,
)

CODE = """
from soulsgraph_envs.combat.scripted import ConstantScript
from soulsgraph_envs.core.state import Control
from soulsgraph_envs.core.state import Column
from soulsgraph_envs.skills import Action, TrainingScenario, RewardTerm, SkillDefinition, Task
from soulsgraph_policies.agents.projects import SkillGraph
from soulsgraph_policies.agents.projects import OwnSkill, Project


class Still:
    def terms(self):
        return (RewardTerm("still", 1.0, lambda d: d.actions == 1),)


HOP = SkillDefinition(
    "hop",
    Task(
        symbol="J", horizon=8, budget=100, training_scenario=TrainingScenario("mid", True), columns=(Column.DISTANCE,),
        actions=(Action("hop", presses=Control.JUMP), Action("stand")), precedence_over=Control.ROLL,
    ),
    Still(),
)
project = Project(
    "hops",
    (OwnSkill(HOP, lambda scenario: ConstantScript(1)),),
    (SkillGraph("pair", ("camera", "hop"), (("camera", "hop"),)),),
)
"""
POINT = '[project.entry-points."soulsgraph.projects"]\nhops = "hops:project"\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a project that is not loaded; whatever is loaded is forgotten at the end."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    _write(tmp_path, CODE)
    yield tmp_path
    for name in loaded_projects():
        forget_project(name)
    sys.modules.pop("hops", None)


def _write(folder, code, point=POINT):
    (folder / "hops").mkdir(exist_ok=True)
    (folder / "hops" / "__init__.py").write_text(textwrap.dedent(code))
    (folder / "pyproject.toml").write_text(point)


def test_a_project_adds_its_skills_and_graphs_as_the_shipped_ones_are_there(folder):
    with pytest.raises(UnknownNameError):
        make_skill("hop")
    assert load_project(folder).project.name == "hops"
    skill = make_skill("hop")
    assert [action.name for action in skill.actions] == ["hop", "stand"]
    assert skill_names()[-1] == "hop"
    assert "hop" in REFERENCES
    assert graph_names() == ("paper", "end-to-end", "hops/pair")
    graph = find_graph("hops/pair")
    assert graph.name == "hops/pair"
    assert graph.order == ("camera", "hop")
    assert find_graph("paper") is PAPER_GRAPH
    forget_project("hops")
    assert "hop" not in (*skill_names(), *REFERENCES)


def _installed(monkeypatch, folder, *points):
    found = EntryPoints(EntryPoint(name, target, projects.PROJECTS) for name, target in points)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(projects, "entry_points", lambda group: found.select(group=group))


def test_an_installed_project_is_found_by_its_entry_point_and_a_broken_one_reported(folder, monkeypatch):
    _installed(monkeypatch, folder, ("broken", "no_such_module:project"), ("hops", "hops:project"))
    (problem,) = load_installed()
    assert "no_such_module" in str(problem)
    assert [*loaded_projects()] == ["hops"]
    sys.modules.pop("soulsgraph_policies.agents.installed", None)
    with pytest.raises(SoulsGraphError, match="no_such_module"):
        gymnasium.make("soulsgraph_policies.agents.installed:soulsgraph/Hop-v0")


@pytest.mark.parametrize(
    ("point", "name"),
    [
        ("", "soulsgraph.projects"),
        (POINT + 'more = "hops:project"\n', "soulsgraph.projects"),
        (POINT.replace("hops:project", "hops"), "hops"),
        (POINT.replace("hops:project", "hops:nothing"), "nothing"),
        (POINT.replace("hops:project", "json:load"), "load"),
        (POINT.replace("hops:project", "missing:project"), "missing"),
        ("[[", "soulsgraph.projects"),
    ],
)
def test_a_folder_that_holds_no_project_is_refused(folder, point, name):
    _write(folder, CODE, point)
    with pytest.raises(SoulsGraphError, match=name):
        load_project(folder)
    assert not loaded_projects()


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ('"hop",\n', '"dodge",\n', "dodge"),
        ('("camera", "hop"), (("camera", "hop"),)', '("camera", "skip"), ()', "skip"),
        ("horizon=8", "horizon=0", "horizon"),
        ("Column.DISTANCE,", "Column.DISTANCE, Column.DISTANCE,", "columns"),
        ('TrainingScenario("mid"', 'TrainingScenario("middle"', "middle"),
        (', Action("stand")', ",", "actions"),
        ("presses=Control.JUMP", "presses=Control.JUMP, ticks=0", "ticks"),
        ("class Still", "raise RuntimeError('no\\nway')\nclass Still", "RuntimeError"),
        ("class Still", "raise SystemExit(3)\nclass Still", "SystemExit"),
        ('"hops",', '"../x",', r"\.\./x"),
        ("(OwnSkill(HOP, lambda scenario: ConstantScript(1)),)", "()", "hop"),
        ('(SkillGraph("pair", ("camera", "hop"), (("camera", "hop"),)),)', "()", "hops"),
    ],
)
def test_code_that_does_not_hold_is_refused_and_leaves_nothing(folder, old, new, name):
    assert old in CODE
    _write(folder, CODE.replace(old, new))
    with pytest.raises(SoulsGraphError, match=name):
        load_project(folder)
    assert not loaded_projects()
    assert skill_names() == (*PAPER_GRAPH.skills, "end_to_end")


def test_another_folders_package_of_that_name_is_not_taken_for_the_projects(folder, tmp_path_factory):
    assert load_project(folder).project is load_project(folder).project
    other = tmp_path_factory.mktemp("other")
    _write(other, CODE)
    with pytest.raises(SoulsGraphError, match="hops"):
        load_project(other)


def test_a_missing_project_and_a_changed_one_are_named(folder):
    digest = ProjectDigest("hops", "0" * 64)
    for ask in (lambda: digest.check("run"), lambda: find_graph("hops/pair")):
        with pytest.raises(SoulsGraphError, match="hops"):
            ask()
    load_project(folder)
    with pytest.raises(SoulsGraphError, match="hops"):
        digest.check("run")
    ProjectDigest.of("hops/pair").check("run")
    assert ProjectDigest.of("paper") is None
    with pytest.raises(UnknownNameError):
        find_graph("hops/pairs")


def test_comments_layout_and_line_ends_do_not_change_a_digest_but_code_and_data_do(folder):
    package = folder / "hops"
    found = [project_digest(package)]
    _write(folder, "# A comment.\n" + CODE.replace("horizon=8,", "horizon = 8,  # decisions\n"))
    assert project_digest(package) == found[0]
    (package / "__init__.py").write_text(textwrap.dedent(CODE), newline="\r\n")
    assert project_digest(package) == found[0]
    _write(folder, CODE.replace("horizon=8", "horizon=9"))
    found.append(project_digest(package))
    _write(folder, CODE)
    (package / "more.py").write_text("")
    found.append(project_digest(package))
    (package / "table.csv").write_text("a,b\n1,2\n", newline="\n")
    found.append(project_digest(package))
    assert len({*found}) == len(found)
    (package / "table.csv").write_text("a,b\n1,2\n", newline="\r\n")
    (package / "template.py").write_text("@NAME@")
    assert project_digest(package) not in found


def test_a_projects_reward_is_carried_to_processes_that_have_not_imported_it(folder):
    load_project(folder)
    with carried_by_value(cloudpickle):
        carried = cloudpickle.dumps(make_skill("hop"))
    forget_project("hops")
    sys.path[:] = [place for place in sys.path if place != str(folder)]
    assert cloudpickle.loads(carried).reward.names == ("still",)
    assert "hops" not in sys.modules


@given(st.text())
def test_names_are_short_plain_words(name):
    assert is_name(name) == (
        0 < len(name) <= 40
        and name[0] in "abcdefghijklmnopqrstuvwxyz"
        and name.isascii()
        and name.replace("_", "a").isalnum()
        and name == name.lower()
    )


def test_an_own_skill_is_an_environment_by_its_id_with_its_graphs_skills_upstream(folder, monkeypatch):
    _installed(monkeypatch, folder, ("hops", "hops:project"))
    sys.modules.pop("soulsgraph_policies.agents.installed", None)
    one = gymnasium.make("soulsgraph_policies.agents.installed:soulsgraph/Hop-v0")
    assert [skill.name for skill in one.unwrapped.rollout.combat.skills] == ["camera", "hop"]
    assert gymnasium.make_vec("soulsgraph/Hop-v0", 3).reset(seed=0)[0].shape == (3, 1)
    _, info = one.reset(seed=0)
    # The knight cannot jump.
    assert info["action_mask"].tolist() == [0, 1]
    forget_project("hops")
    with pytest.raises(gymnasium.error.Error):
        gymnasium.make("soulsgraph/Hop-v0")
