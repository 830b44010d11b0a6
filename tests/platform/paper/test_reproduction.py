"""Reproductions: the study, its folder, what is recorded, and how jobs report."""

import json
from dataclasses import replace

import pytest

from fakes.runs import pretend_training
from soulsgraph.paper.records import load_reproductions
from soulsgraph.paper.seed_job import BINS, REFERENCE_ROWS, curve_rows, evaluate_references, training_rows
from soulsgraph.paper.study import CALIBRATION, CHOOSING, CONFIRMING, REPORTING, ReproductionFolder, SeedJob, Study
from soulsgraph.results.tables import read_rows, write_rows
from soulsgraph.runs.lineage import stage_key
from soulsgraph.runs.plan import Stage
from soulsgraph_envs.core.config import to_table
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.skills import END_TO_END

SMALL = Study(seeds=(100, 101), episodes=20, scale=0.01)
SKILLS, BASELINE = SeedJob(100, "skills"), SeedJob(100, "end_to_end")


@pytest.fixture
def folder(tmp_path) -> ReproductionFolder:
    return ReproductionFolder.create(tmp_path / "out", SMALL)


def row(seed: int, wins: int) -> dict[str, object]:
    place = {"part": "a", "label": "heal-attack trained, dodge trained", "scenario": "iudex-phase1", "start": "mid"}
    outcome = {
        "paper_percent": 44.0,
        "wins": wins,
        "episodes": 20,
        "mean_return": -1.0,
        "mean_length": 100.0,
        "mean_seconds": 20.0,
    }
    return {"seed": seed, **place, **outcome}


@pytest.mark.parametrize("seeds", [range(195, 205), range(395, 405), range(499, 501), (100, 450)])
def test_seeds_of_several_purposes_are_refused_together(seeds):
    with pytest.raises(SoulsGraphError, match="seeds"):
        Study(seeds=tuple(seeds))


@pytest.mark.parametrize("seeds", [REPORTING, CALIBRATION, CHOOSING, CONFIRMING, range(300, 400), range(600, 605)])
def test_seeds_of_one_purpose_and_of_none_go_together(seeds):
    assert Study(seeds=tuple(seeds), scale=0.01).seeds == tuple(seeds)


def test_budgets_are_the_papers_and_the_long_baselines_twice_the_baselines():
    study = Study(preset="paper", seeds=(100,), long_baseline=True)
    budgets = {job.part: sum(stage.budget for stage in study.plan(job).stages()) for job in study.jobs()}
    assert budgets == {"skills": 230_000, "end_to_end": 250_000, "end_to_end_long": 500_000}


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"seeds": ()}, "seeds"),
        ({"seeds": (1, 1)}, "seeds"),
        ({"seeds": (1, 2.5)}, "seeds"),
        ({"scale": 0.0}, "scale"),
        ({"episodes": 0}, "episodes"),
        ({"learner": "keras"}, "learner"),
        ({"skills": False, "baseline": False}, "baseline"),
    ],
)
def test_a_study_that_does_not_hold_is_refused(change, name):
    with pytest.raises(SoulsGraphError, match=name):
        Study(**change)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"fights": {"iudex-phase1": "of another boss"}}, "iudex-phase1"),
        ({"plan": to_table(SMALL) | {"seeds": [True]}}, r"plan\.seeds"),
        ({"plan": to_table(SMALL) | {"speed": 1}}, r"plan\.speed"),
        ({"speed": 3}, "speed"),
    ],
)
def test_a_description_that_does_not_hold_is_refused_by_its_file_and_key(folder, change, name):
    file = folder.path / "reproduction.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(SoulsGraphError, match=rf"reproduction\.json.*{name}"):
        ReproductionFolder.open(folder.path)


def test_records_are_those_of_all_units_with_the_references_first(folder):
    references, *jobs = folder.units
    assert [unit.name for unit in folder.units] == [
        "references", "100 end_to_end", "100 skills", "101 end_to_end", "101 skills"
    ]  # fmt: skip
    # The longest are done first.
    assert folder.left == [jobs[1], jobs[0], jobs[3], jobs[2], references]
    for unit, wins in ((jobs[3], 8), (jobs[1], 9)):
        folder.keep(unit, {"rows": [{"preset": "paper", **row(unit.arguments[0].seed, wins)}], "curves": []})
    oracle = {"preset": "paper", **row(1, 20), "part": "reference", "label": "scripted oracle"}
    folder.keep(references, {"rows": [oracle]})
    folder.assemble()
    assert folder.left == [jobs[0], jobs[2]]
    rows = read_rows(folder.path / "records" / "rows.parquet")
    assert [(row["seed"], row["wins"]) for row in rows] == [(1, 20), (100, 9), (101, 8)]
    (table,) = (one.table for one in load_reproductions([folder.path]))
    assert f"{100 * 8.5 / 20:.1f} %" in [row[2] for row in table.rows]


def test_training_is_averaged_over_parts_of_the_budget_by_episodes(folder):
    run = folder.run(BASELINE)
    stage = Stage(END_TO_END, "iudex-phase1", budget=10 * BINS, seed=0)
    values = [(1, 2, 0.0), (10, 1, 3.0), (11, 1, 7.0), (12, 0, None)]
    rows = [
        {"stage": stage_key(run, stage), "skill": END_TO_END, "step": step, "episodes": n}
        | dict.fromkeys(("return", "length", "seconds", "win_rate"), value)
        for step, n, value in values
    ]
    write_rows(run.results("training"), [*rows, {**rows[0], "stage": "another", "return": 9.0}])
    told = training_rows(run, BASELINE, (stage,))
    assert [(part["step"], part["episode_return"]) for part in told] == [(10, 1.0), (11, 7.0)]
    assert {part["unit"] for part in told} == {"end_to_end"}
    assert curve_rows(run, BASELINE, (stage,)) == [], "nothing was played"


def test_skills_that_train_jointly_are_averaged_each_by_itself_over_parts_of_both_budgets(folder):
    run, dodge = folder.run(SKILLS), Stage("dodge", "iudex-phase1", budget=10 * BINS, seed=0)
    pretend_training(run, run.plan.stages())
    stage = replace(dodge, skill="heal_attack", jointly=(dodge,))
    means = dict.fromkeys(("length", "seconds", "win_rate"), 0.0)
    given = [("dodge", 20, 1.0), ("heal_attack", 20, 5.0), ("heal_attack", 21, 6.0)]
    key = stage_key(run, stage)
    rows = [{"stage": key, "skill": name, "step": at, "episodes": 1, "return": r} | means for name, at, r in given]
    write_rows(run.results("training"), rows)
    told = [(part["skill"], part["step"], part["episode_return"]) for part in training_rows(run, SKILLS, (stage,))]
    assert told == given


def test_references_are_both_oracles_in_every_fight():
    rows = evaluate_references(20, lambda count: None)
    assert len(rows) == REFERENCE_ROWS
    assert {(row["scenario"], row["start"]) for row in rows} == {
        ("iudex-phase1", "mid"), ("iudex-phase2", "mid"), ("iudex-phase2", "long")
    }  # fmt: skip
    assert sum("16 actions" in row["label"] for row in rows) == 3
    assert all(row["wins"] >= 12 for row in rows)
