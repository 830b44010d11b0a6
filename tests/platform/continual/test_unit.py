"""A unit goes through a sequence: the same with and without a stop, and back to a boss that it met before."""

import filecmp
import shutil
from contextlib import suppress
from dataclasses import replace

import pandas as pd
import pytest

from soulsgraph.continual import study, unit
from soulsgraph.continual.files import COSTS, EVALUATIONS, PLASTICITY, SCRATCH, SKILLS
from soulsgraph.continual.methods.method import MethodOptions
from soulsgraph.continual.report import write_continual_report
from soulsgraph.continual.selecting import Selection
from soulsgraph.continual.study import FIRST, LEFT, ContinualFolder, ContinualStudy, ContinualUnit, sessions_of, shares
from soulsgraph.continual.unit import UnitRun, train_first
from soulsgraph.runs.progress import Interruption
from soulsgraph_envs.core.errors import DataError, SoulsGraphError
from soulsgraph_envs.core.machine import Memory
from soulsgraph_policies.learning.checkpoint import PARTS

#: Methods that are killed after every stage in the slow tests.
SLOW = ("ewc", "replay", "packnet")
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


def copy_of(folder):
    return ContinualFolder.open(shutil.copytree(folder.path, folder.path.with_name("copy")))


def done(folder, method, supervisor=None):
    UnitRun(folder, ContinualUnit(method, 3), supervisor or Watching()).run()
    return {name: folder.unit_path(ContinualUnit(method, 3)) / f"{name}.parquet" for name in LEFT}


class Killed(BaseException):
    """Ends a unit as a kill does, right after it has saved a state."""


def killed_after_every_state(folder, method, monkeypatch):
    """Run a unit that is killed whenever it has saved; return its tables and the names of all states."""
    saved, save = [], UnitRun._save

    def save_and_die(run):
        save(run)
        saved.append(run.folder.states(run.unit)[-1].name)
        raise Killed

    monkeypatch.setattr(UnitRun, "_save", save_and_die)
    while True:
        with suppress(Killed):
            return done(folder, method), saved


def assert_equal_tables(whole, parts):
    for name in (EVALUATIONS, SKILLS):
        assert filecmp.cmp(whole[name], parts[name], shallow=False), name
    kept = ["task", "decisions", "selection_decisions", "ticks", "adapted", "bytes"]
    assert pd.read_parquet(whole[COSTS])[kept].equals(pd.read_parquet(parts[COSTS])[kept])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["kept", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_unit_that_is_killed_after_every_stage_ends_as_one_that_was_not(tmp_path, method, monkeypatch):
    folder = folder_of(tmp_path)
    copy = copy_of(folder)
    whole = done(folder, method)
    parts, saved = killed_after_every_state(copy, method, monkeypatch)
    assert_equal_tables(whole, parts)
    first = ["task-0000-01", "task-0000-02", "task-0000-03", "task-0000-04", "task-0000-05"]
    later = ["task-0001-01", "task-0001-02", "task-0002", "task-0002-01", "task-0002-02", "task-0003"]
    assert saved == [*(first if method == "packnet" else []), "task-0001", *later]


@pytest.mark.slow
def test_a_unit_that_is_killed_after_a_selection_does_not_play_it_again(tmp_path, monkeypatch):
    asked = []

    def selected(homes, world, versions, most, known):
        asked.append(world.position)
        starts = {"dodge": homes["dodge"][-1]} if world.position > 1 else {}
        return Selection(("camera", "heal_attack") if starts else ("dodge",), 100, 150, starts=starts)

    monkeypatch.setattr(unit, "select", selected)
    folder = folder_of(tmp_path, skills=("auto",))
    copy = copy_of(folder)
    whole = done(folder, "kept")
    parts, saved = killed_after_every_state(copy, "kept", monkeypatch)
    assert_equal_tables(whole, parts)
    assert asked == [1, 2, 1, 2]
    assert saved[1:4] == ["task-0001-00", "task-0001-01", "task-0002"]


@pytest.mark.slow
def test_states_of_units_that_are_done_are_removed_and_what_units_share_stays(tmp_path):
    folder = folder_of(tmp_path, methods=("kept", "newest"))
    done(folder, "kept")
    with pytest.raises(Interruption, match="stopped in 2 vordt dodge"):
        done(folder, "newest", Watching(1))
    kept, newest = (ContinualUnit(name, 3) for name in ("kept", "newest"))
    assert folder.states(kept)
    folder.assemble()
    assert folder.states(kept) == []
    assert [path.name for path in folder.states(newest)] == ["task-0001"]
    again = ContinualFolder.open(folder.path)
    assert again.left == [newest]
    done(again, "newest")
    again.assemble()
    assert not [path for path in folder.path.rglob("*.safetensors") if path.parent.name != FIRST]
    assert again.left == []
    assert write_continual_report(again.path).is_file()


def test_a_sequence_returns_to_a_boss_and_kept_versions_end_every_fight_as_before(tmp_path):
    folder = folder_of(tmp_path, identity="one-hot")
    table = pd.read_parquet(done(folder, "kept")[EVALUATIONS])
    ends = table[table["decisions"] == 0]
    for task, until in ((1, 2), (2, 3)):
        of = ends[(ends["task"] == task) & ends["after"].between(task, until)]
        assert of["wins"].nunique() == 1, task
    # Whoever is shown the fight cannot tell its visits apart: both are played by the newest version of the fight.
    wins = ends.set_index(["after", "task"])["wins"]
    assert wins[3, 1] == wins[3, 3]
    assert wins[2, 3] == wins[2, 1]
    assert sorted(ends[ends["after"] == 3]["task"]) == [1, 2, 3]
    assert (table[table["decisions"] > 0].groupby("after")["task"].nunique() == 1).all()


@pytest.mark.slow
def test_every_method_has_the_same_budget_and_the_same_first_task(tmp_path):
    folder = folder_of(tmp_path)
    costs = {name: pd.read_parquet(done(folder, name)[COSTS]) for name in ("newest", "all-skills", SCRATCH)}
    for table in costs.values():
        assert table["decisions"].tolist() == pytest.approx([4_600, 1_600, 1_600], abs=4)
    assert costs["newest"]["ticks"][0] == costs["all-skills"]["ticks"][0] > 0


def test_selection_is_charged_and_looks_at_each_skill_beside_the_task_that_it_learned_in(tmp_path, monkeypatch):
    asked, kept = [], set()

    def selected(homes, world, versions, most, known):
        asked.append(({skill: own[0].world.position for skill, own in homes.items()}, world.position, most))
        kept.add(known)
        return Selection(("dodge",), 100, 150)

    monkeypatch.setattr(unit, "select", selected)
    folder = folder_of(tmp_path, skills=("auto",))
    costs = pd.read_parquet(done(folder, "newest")[COSTS])
    assert costs["selection_decisions"].tolist() == [0, 100, 100]
    assert costs["decisions"].tolist() == [4_600, 1_600, 1_600]
    # What was played at home is kept from task to task.
    assert len(kept) == 1
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


@pytest.mark.slow
def test_held_out_bosses_are_learned_before_the_first_task_and_after_it_the_same_when_resumed(tmp_path):
    options = {"sequence": "S20-choose", "skills": ("dodge", "heal_attack"), "episodes": 10, "seeds": (3,)}
    study = ContinualStudy(**options, scale=0.01, held_out=2, methods=("newest",))
    folder = ContinualFolder.create(tmp_path / "study", study)
    train_first(folder, 3, Watching())
    whole = pd.read_parquet(done(copy_of(folder), "newest")[PLASTICITY])
    with pytest.raises(Interruption):
        UnitRun(folder, ContinualUnit("newest", 3), Watching(1)).run()
    table = pd.read_parquet(done(folder, "newest")[PLASTICITY])
    pd.testing.assert_frame_equal(table, whole)
    # From nothing, then from what each number of tasks led to.
    assert table.groupby("after").size().to_dict() == {0: 2, 1: 2, 5: 2}
    assert set(table["episodes"]) == {10}


@pytest.mark.parametrize("skills", [("dodge",), ("camera", "dodge", "heal_attack")])
def test_a_budget_is_shared_out(skills):
    assert sum(shares(skills, 80_000, False).values()) == pytest.approx(80_000, abs=len(skills))
    whole = shares(("camera", "heal_attack"), 110_000, True)
    assert whole == {"camera": 20_000, "heal_attack": 90_000}


def test_skills_observe_the_task_where_methods_know_it(tmp_path):
    known, unknown = (study_of(tmp_path, identity=identity).worlds(0) for identity in ("one-hot", "none"))
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


def test_a_study_whose_reserves_do_not_fit_in_memory_is_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "usable_processors", lambda: 16)
    memory = Memory(4 << 30, 4 << 30)
    monkeypatch.setattr("soulsgraph_policies.learning.hyperparameters.usable_memory", lambda: memory)

    def begin(reserve, seeds=16, **options):
        plan = {"sequence": "S20", "methods": ("kept", "replay"), "seeds": tuple(range(seeds)), **options}
        return ContinualFolder.planned(
            tmp_path / "study", ContinualStudy(**plan, options=MethodOptions(reserve=reserve))
        )

    begin(1_000)
    begin(1_000_000, seeds=1)
    begin(1_000_000, methods=("kept", "ewc"))
    begin(1_000_000, methods=("base",))
    remedy = "in 16 units at once; lower the coefficient `reserve` or leave the method out"
    with pytest.raises(DataError, match=f"GiB of transitions and versions of replay, {remedy}"):
        begin(1_000_000)


def test_kept_versions_that_do_not_fit_in_memory_are_counted(tmp_path, monkeypatch):
    study_of_versions = ContinualStudy("S100", methods=("kept", "newest"), seeds=(0,))
    most = study_of_versions.unit_bytes("kept")
    # A version of every skill for each task.
    assert 100 * 100_000 < most - study_of_versions.unit_bytes("newest") < 100 * 130_000
    memory = Memory(2 * most - 2, 2 * most - 2)
    monkeypatch.setattr("soulsgraph_policies.learning.hyperparameters.usable_memory", lambda: memory)
    with pytest.raises(DataError, match=r"of kept, in [12] units at once"):
        ContinualFolder.planned(tmp_path / "study", study_of_versions)


def test_memory_is_counted_by_what_skills_observe_of_a_sequence():
    plain, own = (ContinualStudy(name, methods=("replay",), seeds=(0,)).unit_bytes("replay") for name in ("S20", "O20"))
    # Ids of one's own have an indicator each, up to 974.
    assert own > 15 * plain


@pytest.mark.slow
@pytest.mark.parametrize("method", ["kept", "replay"])
def test_what_a_unit_keeps_is_no_more_than_what_is_counted(method, tmp_path):
    plan = study_of(tmp_path, options=MethodOptions(reserve=100))
    folder = ContinualFolder.create(tmp_path / "study", plan)
    train_first(folder, 3, Watching())
    run = UnitRun(folder, ContinualUnit(method, 3), Watching())
    run.run()
    own = sum(values.nbytes for versions in run.own for one in versions.values() for values in one.weights.values())
    assert 0 < run.method.size_bytes + own <= plan.unit_bytes(method)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["kept", pytest.param("replay", marks=pytest.mark.slow)])
def test_what_does_not_change_is_written_once(method, tmp_path):
    folder = folder_of(tmp_path)
    done(folder, method)
    before, last = (
        {file.name: file.stat().st_ino for file in (state / PARTS).iterdir()}
        for state in folder.states(ContinualUnit(method, 3))
    )
    new = last.items() - before.items()
    # The last stage's version and what it kept: all else is a link.
    assert len(last) > 8
    assert len(new) <= (2 if method == "replay" else 1)


def test_a_study_is_opened_as_it_was_begun_and_not_where_a_fight_changed(tmp_path):
    folder = ContinualFolder.create(tmp_path / "study", study_of(tmp_path))
    assert ContinualFolder.open(folder.path).plan == folder.plan
    assert next(unit.name for unit in folder.left) == f"{FIRST} 3"
    (tmp_path / "sequence.toml").write_text(SEQUENCE.replace("vordt", "iudex-phase2"))
    with pytest.raises(SoulsGraphError, match="vordt changed"):
        ContinualFolder.open(folder.path)
    with pytest.raises(SoulsGraphError, match=r"no continual\.json"):
        ContinualFolder.open(tmp_path)


def test_a_session_is_recorded_when_it_begins(tmp_path):
    folder = ContinualFolder.create(tmp_path / "study", study_of(tmp_path))
    with folder.session():
        (begun,) = sessions_of(folder.path)
        assert begun.wall_time_s == 0.0
    (ended,) = sessions_of(folder.path)
    assert replace(ended, wall_time_s=0.0) == begun
    with folder.session():
        assert len(sessions_of(folder.path)) == 2
