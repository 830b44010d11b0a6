"""A unit goes through a sequence: the same with and without a stop, and back to a boss that it met before."""

import filecmp
import shutil
from contextlib import suppress

import pandas as pd
import pytest

from soulsgraph.continual import unit
from soulsgraph.continual.files import COSTS, EVALUATIONS, PLASTICITY, SCRATCH, SKILLS, TABLES
from soulsgraph.continual.selecting import Selection
from soulsgraph.continual.study import FIRST, ContinualFolder, ContinualStudy, ContinualUnit, shares
from soulsgraph.continual.unit import UnitRun
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


def study_of(tmp_path, sequence=SEQUENCE, **options):
    file = tmp_path / "sequence.toml"
    file.write_text(sequence)
    fixed = {"skills": ("dodge", "heal_attack"), "episodes": 20, "seeds": (3,), "scale": 0.02}
    return ContinualStudy(sequence=str(file), **{**fixed, **options})


@pytest.fixture(scope="module")
def begin(tmp_path_factory):
    """Return what begins a study, whose first task is trained: once for all."""
    first, trained = ContinualUnit(FIRST, 3), []

    def folder_of(**options):
        path = tmp_path_factory.mktemp("study")
        folder = ContinualFolder.create(path / "study", study_of(path, **options))
        if trained:
            shutil.copytree(trained[0].unit_path(first), folder.unit_path(first))
        else:
            UnitRun(folder, first, Watching()).learn_first()
            trained.append(folder)
        return folder

    return folder_of


def copy_of(folder):
    return ContinualFolder.open(shutil.copytree(folder.path, folder.path.with_name("copy")))


def done(folder, method, supervisor=None):
    unit = next(one for one in folder.units if one.arguments == (ContinualUnit(method, 3),))
    folder.keep(unit, UnitRun(folder, *unit.arguments, supervisor or Watching()).run())
    return {name: folder.rows_of(unit) / f"{name}.parquet" for name in TABLES}


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


def states_of(stages):
    """Return the names of the states of tasks, each with as many within it as it has stages, from 1 or from 0 on."""
    return [name for task, within in enumerate(stages)
            for name in (*(f"task-{task:04}-{stage:02}" for stage in within), f"task-{task + 1:04}")]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "stages", "selections"),
    [
        ("kept", [range(0), range(2), range(3)], [1, 2]),
        # It trains the first task by itself.
        ("packnet", [range(1, 6), range(2), range(3)], [1, 2]),
        (SCRATCH, [range(0), range(1, 6), range(1, 6)], []),
    ],
)
def test_a_unit_that_is_killed_after_every_state_ends_as_one_that_was_not(
    begin, method, stages, selections, monkeypatch
):
    asked = []

    def selected(homes, world, versions, known, most):
        asked.append(world.position)
        starts = {"dodge": homes["dodge"][-1]} if world.position > 1 else {}
        return Selection(("camera", "heal_attack") if starts else ("dodge",), 100, 150, starts=starts)

    monkeypatch.setattr(unit, "select", selected)
    folder = begin(skills=("auto",))
    copy = copy_of(folder)
    whole = done(folder, method)
    parts, saved = killed_after_every_state(copy, method, monkeypatch)
    assert saved == states_of(stages)
    assert asked == selections * 2, "what was selected is not played again"
    for name in (EVALUATIONS, SKILLS):
        assert filecmp.cmp(whole[name], parts[name], shallow=False), name
    kept = ["task", "decisions", "selection_decisions", "ticks", "adapted", "bytes"]
    costs = pd.read_parquet(whole[COSTS])
    assert costs[kept].equals(pd.read_parquet(parts[COSTS])[kept])
    assert costs["decisions"].tolist() == pytest.approx([4_600, 1_600, 1_600], abs=4)


def test_states_of_units_that_are_done_are_removed_and_what_units_share_stays(tmp_path):
    folder = ContinualFolder.create(tmp_path / "study", study_of(tmp_path, methods=("kept", "newest")))
    first, kept, newest = folder.units
    assert [(one.name, one.first) for one in folder.left] == [("first 3", True), ("kept 3", False), ("newest 3", False)]
    for one in folder.units:
        (folder.unit_path(*one.arguments) / "task-0001").mkdir(parents=True)
    for one in (first, kept):
        folder.keep(one, {})
    folder.assemble()
    assert folder.left == [newest]
    assert [len(folder.states(*one.arguments)) for one in folder.units] == [1, 0, 1]


def test_a_sequence_returns_to_a_boss_and_kept_versions_end_every_fight_as_before(begin):
    table = pd.read_parquet(done(begin(), "kept")[EVALUATIONS])
    ends = table[table["decisions"] == 0]
    assert ends[(ends["task"] == 2) & (ends["after"] >= 2)]["wins"].nunique() == 1
    # Nobody says which visit it is: both are played by the same versions.
    wins = ends.set_index(["after", "task"])["wins"]
    assert wins[3, 1] == wins[3, 3]
    assert wins[2, 3] == wins[2, 1]
    assert sorted(ends[ends["after"] == 3]["task"]) == [1, 2, 3]
    assert (table[table["decisions"] > 0].groupby("after")["task"].nunique() == 1).all()


def test_selection_is_charged_and_looks_at_each_skill_beside_the_task_that_it_learned_in(begin, monkeypatch):
    asked, kept = [], set()

    def selected(homes, world, versions, known, most):
        asked.append(({skill: own[0].world.position for skill, own in homes.items()}, world.position, most))
        kept.add(known)
        return Selection(("dodge",), 100, 150)

    monkeypatch.setattr(unit, "select", selected)
    folder = begin(skills=("auto",))
    found = done(folder, "newest")
    costs = pd.read_parquet(found[COSTS])
    assert costs["selection_decisions"].tolist() == [0, 100, 100]
    assert costs["decisions"].tolist() == [4_600, 1_600, 1_600]
    # What was played at home is kept from task to task.
    assert len(kept) == 1
    nowhere = dict.fromkeys(("camera", "lock_on", "movement", "heal_attack"), 0)
    assert asked == [({**nowhere, "dodge": 0}, 1, 160), ({**nowhere, "dodge": 1}, 2, 160)]
    table = pd.read_parquet(found[EVALUATIONS])
    points = table[(table["after"] == 1) & (table["decisions"] > 0)]
    # The curve stands still while skills are selected.
    assert points["decisions"].tolist()[:2] == [1, 100]
    assert points["wins"].tolist()[0] == points["wins"].tolist()[1]
    assert points["ticks"].tolist()[:2] == [0, 150]
    assert points["ticks"].is_monotonic_increasing
    # The agent that learned nothing is evaluated in every task.
    untrained = table[(table["after"] == 0) & (table["decisions"] == 0)]
    assert untrained["task"].tolist() == [1, 2, 3]
    assert (untrained["wins"] <= 2).all()


def test_a_scale_at_which_no_skill_can_be_selected_is_refused(tmp_path):
    with pytest.raises(SoulsGraphError, match="scale"):
        study_of(tmp_path, skills=("auto",), scale=0.25).check_learns()
    study_of(tmp_path, skills=("auto",), scale=0.35).check_learns()
    study_of(tmp_path, skills=("auto",), scale=0.25, methods=("scratch",)).check_learns()


@pytest.mark.slow
def test_held_out_bosses_are_learned_before_the_first_task_and_after_it_the_same_when_resumed(tmp_path):
    # Two bosses of the family that are easily told apart, and nothing is measured after the second.
    sequence = 'name = "of a family"\nfamily = "timing"\n'
    sequence += 'tasks = [{ scenario = "generated/timing/3" }, { scenario = "generated/timing/5" }]\n'
    plan = study_of(tmp_path, sequence, episodes=10, scale=0.01, held_out=2, methods=("newest",))
    folder = ContinualFolder.create(tmp_path / "study", plan)
    UnitRun(folder, ContinualUnit(FIRST, 3), Watching()).learn_first()
    whole = pd.read_parquet(done(copy_of(folder), "newest")[PLASTICITY])
    with pytest.raises(Interruption):
        done(folder, "newest", Watching(1))
    table = pd.read_parquet(done(folder, "newest")[PLASTICITY])
    pd.testing.assert_frame_equal(table, whole)
    # From nothing, then from what a task led to.
    assert table.groupby("after").size().to_dict() == {0: 2, 1: 2}
    assert set(table["episodes"]) == {10}


@pytest.mark.parametrize("skills", [("dodge",), ("camera", "dodge", "heal_attack")])
def test_a_budget_is_shared_out(skills):
    assert sum(shares(skills, 80_000, False).values()) == pytest.approx(80_000, abs=len(skills))
    whole = shares(("camera", "heal_attack"), 110_000, True)
    assert whole == {"camera": 20_000, "heal_attack": 90_000}


FIGHT = 'based_on = "vordt"\nname = "mine"\nboss_hp = [889.0, {}]\n'


@pytest.mark.parametrize(
    "changed",
    [
        {"fight.toml": FIGHT.format(400.0)},
        {"sequence.toml": 'name = "s"\ntasks = [{{ scenario = "{0}" }}, {{ scenario = "iudex-phase1" }}]'},
        {"sequence.toml": 'name = "s"\nbudget = 5\ntasks = [{{ scenario = "iudex-phase1" }}, {{ scenario = "{0}" }}]'},
    ],
)
def test_a_study_is_opened_as_it_was_begun_and_not_where_a_fight_changed(tmp_path, changed):
    fight = tmp_path / "fight.toml"
    fight.write_text(FIGHT.format(439.0))
    sequence = f'name = "s"\ntasks = [{{ scenario = "iudex-phase1" }}, {{ scenario = "{fight}" }}]'
    folder = ContinualFolder.create(tmp_path / "study", study_of(tmp_path, sequence))
    assert ContinualFolder.open(folder.path).plan == folder.plan
    for file, text in changed.items():
        (tmp_path / file).write_text(text.format(fight) if file == "sequence.toml" else text)
    with pytest.raises(SoulsGraphError, match="sequence"):
        ContinualFolder.open(folder.path)
