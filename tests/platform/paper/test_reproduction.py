"""Reproductions: the study, its folder, what is recorded, and how jobs report."""

import json
from dataclasses import replace

import pytest
from rich.console import Console

from fakes.runs import pretend_training
from soulsgraph.paper.records import load_reproductions
from soulsgraph.paper.seed_job import BINS, REFERENCE_ROWS, curve_rows, do_units, evaluate_references, training_rows
from soulsgraph.paper.study import (
    CALIBRATION,
    CHOOSING,
    CONFIRMING,
    REFERENCES,
    REPORTING,
    ReproductionFolder,
    SeedJob,
    Study,
    evaluation_seed,
)
from soulsgraph.results.origin import source_commit
from soulsgraph.results.tables import read_rows, write_rows
from soulsgraph.runs.evaluate import EVALUATION_SEED
from soulsgraph.runs.lineage import stage_key
from soulsgraph.runs.plan import Stage
from soulsgraph.runs.progress import bars_on
from soulsgraph.runs.ray_runner import JobProgress, JobsDisplay, ProgressActor
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


def test_no_seed_is_both_reported_and_calibrated_or_chosen_on():
    assert len({*CALIBRATION, *CHOOSING, *REPORTING}) == len(CALIBRATION) + len(CHOOSING) + len(REPORTING)
    assert Study().seeds == tuple(REPORTING[:10])


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
        ({"preset": "slow"}, "preset"),
        ({"seeds": ()}, "seeds"),
        ({"seeds": (1, 1)}, "seeds"),
        ({"seeds": (1, 2.5)}, "seeds"),
        ({"scale": 0.0}, "scale"),
        ({"episodes": 0}, "episodes"),
        ({"learner": "keras"}, "learner"),
        ({"overrides": {"doubel": True}}, "doubel"),
        ({"overrides": {"double_q": 2}}, "double_q"),
        ({"skills": False, "baseline": False}, "baseline"),
    ],
)
def test_a_study_that_does_not_hold_is_refused(change, name):
    with pytest.raises(SoulsGraphError, match=name):
        Study(**change)


def test_a_folder_is_opened_as_it_was_begun_and_not_begun_twice(tmp_path):
    plan = Study(preset="paper", seeds=(100, 102), long_baseline=True, overrides={"double_q": True, "n_step": 3})
    folder = ReproductionFolder.create(tmp_path / "out", plan)
    assert ReproductionFolder.open(folder.path).plan == plan
    assert ReproductionFolder.open(folder.path).plan.plan(SKILLS).method.learning["double_q"] is True
    with pytest.raises(SoulsGraphError, match="out"):
        ReproductionFolder.create(folder.path, plan)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"scenarios": {"iudex-phase1": "of another boss"}}, "iudex-phase1"),
        ({"wall_time_s": "long"}, "wall_time_s"),
        ({"plan": []}, "plan"),
        ({"plan": to_table(SMALL) | {"seeds": [True]}}, r"plan\.seeds"),
        ({"plan": to_table(SMALL) | {"speed": 1}}, r"plan\.speed"),
        ({"sessions": [{}]}, r"sessions\[0\]\.wall_time_s"),
        ({"speed": 3}, "speed"),
    ],
)
def test_a_description_that_does_not_hold_is_refused_by_its_file_and_key(folder, change, name):
    file = folder.path / "reproduction.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(SoulsGraphError, match=rf"reproduction\.json.*{name}"):
        ReproductionFolder.open(folder.path)


def test_every_session_keeps_its_commit_versions_machine_and_time(folder):
    folder.begin_session()
    folder.add_wall_time(2.0)
    described = json.loads((folder.path / "reproduction.json").read_text())
    described["sessions"][0]["versions"]["torch"] = "0.1"
    (folder.path / "reproduction.json").write_text(json.dumps(described))
    again = ReproductionFolder.open(folder.path)
    again.begin_session()
    again.add_wall_time(3.5)
    described = json.loads((folder.path / "reproduction.json").read_text())
    first, second = described["sessions"]
    assert {"python", "ray", "torch"} <= second["versions"].keys()
    assert second["commit"] == source_commit()
    assert second["versions"]["torch"] != first["versions"]["torch"] == "0.1"
    assert min(session["machine"]["cores"] for session in (first, second)) >= 1
    assert (first["wall_time_s"], second["wall_time_s"], described["wall_time_s"]) == (2.0, 3.5, 5.5)
    assert described["started"] <= first["started"] <= second["started"]


def test_what_is_left_is_named_and_nothing_left_needs_no_ray(folder, monkeypatch):
    jobs = folder.plan.jobs()
    assert folder.left == [*jobs, REFERENCES]
    folder.record(REFERENCES, "rows", lambda: {"rows": []})
    for job in jobs:
        for piece in job.pieces:
            assert job in folder.left
            folder.record(job, piece, lambda: {})
        assert job not in folder.left
    assert folder.left == []
    monkeypatch.setattr("soulsgraph.runs.ray_runner.ray", None)
    do_units(folder, Console(quiet=True))
    assert read_rows(folder.path / "records" / "rows.parquet") == []


def test_a_piece_is_recorded_once_and_assembled(folder):
    folder.record(SKILLS, "rows", lambda: {"rows": [row(100, 9)]})
    folder.record(SKILLS, "rows", lambda: {"rows": [row(100, 20)]})
    folder.record(SeedJob(101, "skills"), "rows", lambda: {"rows": [row(101, 8)]})
    oracle = {**row(1, 20), "part": "reference", "label": "scripted oracle"}
    folder.record(REFERENCES, "rows", lambda: {"rows": [oracle]})
    folder.assemble()
    rows = read_rows(folder.path / "records" / "rows.parquet")
    assert {(row["seed"], row["wins"], row["preset"]) for row in rows} == {
        (100, 9, "paper"),
        (101, 8, "paper"),
        (1, 20, "paper"),
    }
    (table,) = (one.table for one in load_reproductions([folder.path]))
    assert table.rows[0][2] == f"{100 * 8.5 / 20:.1f} %"


@pytest.mark.parametrize("text", ["[", "[]", '{"rows": 5}', '{"rows": [{}]}'])
def test_a_damaged_piece_is_named(folder, text):
    folder.record(SKILLS, "rows", lambda: {"rows": [row(100, 9)]})
    (piece,) = (folder.path / "seeds" / "100" / "pieces").glob("*.json")
    piece.write_text(text)
    with pytest.raises(SoulsGraphError, match=r"skills-rows\.json"):
        folder.assemble()


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
    rows = evaluate_references(20)
    assert len(rows) == REFERENCE_ROWS
    assert {(row["scenario"], row["start"]) for row in rows} == {
        ("iudex-phase1", "mid"), ("iudex-phase2", "mid"), ("iudex-phase2", "long")
    }  # fmt: skip
    assert sum("16 actions" in row["label"] for row in rows) == 3
    assert all(row["wins"] >= 12 for row in rows)


def test_the_noticeboard_keeps_who_is_at_work_and_stops_them():
    board = ProgressActor()
    assert board.record("100 skills", JobProgress("dodge", 10, 80)) is False
    board.record("101 skills", JobProgress("camera", 1, 20))
    board.record("101 skills", None)
    assert board.read() == {"100 skills": JobProgress("dodge", 10, 80)}
    board.stop()
    assert board.record("100 skills", JobProgress("dodge", 20, 80)) is True


def test_where_no_bars_can_be_drawn_each_unit_has_a_line_now_and_then(tmp_path):
    now = [0.0]
    with (tmp_path / "log").open("w") as file, bars_on(Console(file=file, width=200)) as bars:
        display = JobsDisplay(bars, lambda: now[0])
        display.show({"100 skills": JobProgress("dodge", 0, 80_000)})
        now[0] = 10.0
        display.show({"100 skills": JobProgress("dodge", 20_000, 80_000, -4.5)})
        display.ended("100 skills", "done")
    progress, ended = (tmp_path / "log").read_text().splitlines()
    name, text = progress.split(": dodge: ")
    assert name == "100 skills"
    assert text.split("  ") == ["20,000/80,000 steps", "2,000 steps/s", "return -4.50", "left 0:00:30"]
    assert ended == "100 skills: done"


def test_every_purpose_is_evaluated_on_episodes_of_its_own() -> None:
    evaluated = {evaluation_seed(seeds[0]) for seeds in (CALIBRATION, CHOOSING, REPORTING, CONFIRMING, range(5))}
    assert len(evaluated) == 5
    assert evaluation_seed(REPORTING[-1]) == evaluation_seed(REPORTING[0]) == EVALUATION_SEED
