"""A unit goes through a sequence: the same with and without a stop, and back to a boss that it met before."""

import filecmp

import pandas as pd
import pytest

from soulsgraph.continual import unit
from soulsgraph.continual.files import COSTS, EVALUATIONS, SCRATCH, SKILLS
from soulsgraph.continual.selecting import Selection
from soulsgraph.continual.study import FIRST, LEFT, ContinualFolder, ContinualStudy, ContinualUnit, shares
from soulsgraph.continual.unit import UnitRun, train_first, worlds_of
from soulsgraph.runs.progress import Interruption
from soulsgraph_envs.core.errors import SoulsGraphError

SEQUENCE = """
name = "there and back"
tasks = [{ scenario = "iudex-phase1" }, { scenario = "vordt" }, { scenario = "iudex-phase1" }]
"""


class Watching:
    """A supervisor that asks for a stop after some reports."""

    def __init__(self, most=None):
        self.left = most

    def follow(self, name, total):
        return self

    def update(self, steps, mean_return=None):
        if self.left is not None:
            self.left -= 1

    def stop_requested(self):
        return self.left is not None and self.left <= 0


def study_of(tmp_path, **options):
    file = tmp_path / "sequence.toml"
    file.write_text(SEQUENCE)
    fixed = {"skills": ("dodge", "heal_attack"), "episodes": 20, "seeds": (3,), "scale": 0.02}
    return ContinualStudy(sequence=str(file), **{**fixed, **options})


def folder_of(tmp_path, name="study", **options):
    folder = ContinualFolder.create(tmp_path / name, study_of(tmp_path, **options))
    train_first(folder, 3, Watching())
    return folder


def done(folder, method, supervisor=None):
    UnitRun(folder, ContinualUnit(method, 3), supervisor or Watching()).run()
    return {name: folder.unit_path(ContinualUnit(method, 3)) / f"{name}.parquet" for name in LEFT}


@pytest.mark.parametrize("method", ["kept", "mas", "replay", "packnet"])
def test_a_unit_that_was_stopped_ends_as_one_that_was_not(tmp_path, method):
    whole = done(folder_of(tmp_path, "whole"), method)
    folder = folder_of(tmp_path, "stopped")
    with pytest.raises(Interruption):
        done(folder, method, Watching(3))
    parts = done(folder, method)
    for name in (EVALUATIONS, SKILLS):
        assert filecmp.cmp(whole[name], parts[name], shallow=False), name
    kept = ["task", "decisions", "selection_decisions", "ticks", "bytes"]
    assert pd.read_parquet(whole[COSTS])[kept].equals(pd.read_parquet(parts[COSTS])[kept])


def test_a_sequence_returns_to_a_boss_and_kept_versions_end_every_fight_as_before(tmp_path):
    folder = folder_of(tmp_path, identity="one-hot")
    table = pd.read_parquet(done(folder, "kept")[EVALUATIONS])
    ends = table[table["decisions"] == 0]
    for task in (1, 2, 3):
        of = ends[(ends["task"] == task) & (ends["after"] >= task)]
        assert of["wins"].nunique() == 1, task
    assert sorted(ends[ends["after"] == 3]["task"]) == [1, 2, 3]
    assert (table[table["decisions"] > 0].groupby("after")["task"].nunique() == 1).all()


def test_every_method_has_the_same_budget_and_the_same_first_task(tmp_path):
    folder = folder_of(tmp_path)
    costs = {name: pd.read_parquet(done(folder, name)[COSTS]) for name in ("newest", "all-skills", SCRATCH)}
    for table in costs.values():
        assert table["decisions"].tolist() == pytest.approx([4_600, 1_600, 1_600], abs=4)
    assert costs["newest"]["ticks"][0] == costs["all-skills"]["ticks"][0] > 0


def test_selection_is_charged_and_looks_at_each_skill_beside_the_task_that_it_learned_in(tmp_path, monkeypatch):
    asked = []

    def selected(homes, world, versions, most):
        asked.append(({skill: known[0].world.position for skill, known in homes.items()}, world.position, most))
        return Selection(("dodge",), 100, 150)

    monkeypatch.setattr(unit, "select", selected)
    folder = folder_of(tmp_path, skills=("auto",))
    costs = pd.read_parquet(done(folder, "newest")[COSTS])
    assert costs["selection_decisions"].tolist() == [0, 100, 100]
    assert costs["decisions"].tolist() == [4_600, 1_600, 1_600]
    nowhere = dict.fromkeys(("camera", "lock_on", "movement", "heal_attack"), 0)
    assert asked == [({**nowhere, "dodge": 0}, 1, 160), ({**nowhere, "dodge": 1}, 2, 160)]
    curve = pd.read_parquet(folder.unit_path(ContinualUnit("newest", 3)) / f"{EVALUATIONS}.parquet")
    points = curve[(curve["after"] == 1) & (curve["decisions"] > 0)]
    # The curve stands still while skills are selected.
    assert points["decisions"].tolist()[:2] == [1, 100]
    assert points["wins"].tolist()[0] == points["wins"].tolist()[1]
    assert points["ticks"].tolist()[:2] == [0, 150]
    assert points["ticks"].is_monotonic_increasing


def test_a_scale_at_which_no_skill_can_be_selected_is_refused(tmp_path):
    with pytest.raises(SoulsGraphError, match="expected a scale of 0"):
        study_of(tmp_path, skills=("auto",), scale=0.25).check_learns()
    study_of(tmp_path, skills=("auto",), scale=0.35).check_learns()
    study_of(tmp_path, skills=("auto",), scale=0.25, methods=("scratch",)).check_learns()


def test_an_agent_that_learned_nothing_is_evaluated_in_every_task(tmp_path):
    table = pd.read_parquet(done(folder_of(tmp_path), "newest")[EVALUATIONS])
    begin = table[(table["after"] == 0) & (table["decisions"] == 0)]
    assert begin["task"].tolist() == [1, 2, 3]
    assert (begin["wins"] <= 2).all()


@pytest.mark.parametrize("skills", [("dodge",), ("camera", "dodge", "heal_attack")])
def test_a_budget_is_shared_out(skills):
    assert sum(shares(skills, 80_000, False).values()) == pytest.approx(80_000, abs=len(skills))
    whole = shares(("camera", "heal_attack"), 110_000, True)
    assert whole == {"camera": 20_000, "heal_attack": 90_000}


def test_skills_observe_the_task_where_methods_know_it(tmp_path):
    known, unknown = (
        worlds_of(ContinualFolder(tmp_path, study_of(tmp_path, identity=identity)), 0)
        for identity in ("one-hot", "none")
    )
    assert [world.skills[3].observation.size for world in known] == [
        world.skills[3].observation.size + 2 for world in unknown
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ("kept", "kep")}, "kep"),
        ({"methods": ()}, "at least one entry"),
        ({"methods": ("kept", "kept")}, "each once"),
        ({"seeds": ()}, "seeds"),
        ({"skills": ("dodge", "parry")}, "parry"),
        ({"skills": ("auto", "dodge")}, "auto"),
        ({"skills": ("dodge", "dodge")}, "each once"),
        ({"preset": "pqn"}, "a replay"),
        ({"scale": 0.0}, "scale"),
        ({"episodes": 0}, "episodes"),
        ({"identity": "secret"}, "identity"),
    ],
)
def test_a_study_that_cannot_be_run_is_refused(tmp_path, options, message):
    with pytest.raises(SoulsGraphError, match=message):
        study_of(tmp_path, **options)


def test_a_study_is_opened_as_it_was_begun_and_not_where_a_fight_changed(tmp_path):
    folder = ContinualFolder.create(tmp_path / "study", study_of(tmp_path))
    assert ContinualFolder.open(folder.path).plan == folder.plan
    assert next(unit.name for unit in folder.left) == f"{FIRST} 3"
    (tmp_path / "sequence.toml").write_text(SEQUENCE.replace("vordt", "iudex-phase2"))
    with pytest.raises(SoulsGraphError, match="vordt changed"):
        ContinualFolder.open(folder.path)
    with pytest.raises(SoulsGraphError, match=r"no continual\.json"):
        ContinualFolder.open(tmp_path)
