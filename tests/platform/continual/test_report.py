"""The report of a continual run: every part that the run has, in Markdown and HTML, with its figures and tables."""

import json
import re
import shutil

import pytest
from PIL import Image

from fakes.continual import InventedRun
from soulsgraph.continual.files import read_folder, read_results
from soulsgraph.continual.report import RunTables, write_continual_report
from soulsgraph.continual.scoring import score
from soulsgraph.results.tables import read_rows
from soulsgraph_envs.core.errors import SoulsGraphError

PARTS = (
    *("Scores", "Interquartile means", "Beside kept", "By other formulas", "Over the sequence"),
    *("Transfer and forgetting by task", "Forgetting by skill", "Plasticity", "Costs", "How this was made"),
)
PICTURES = {
    *("matrices", "performance", "forward-transfer-decisions", "forward-transfer-ticks", "forgetting"),
    *("skills", "plasticity", "costs"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = InventedRun.draw(("kept", "newest", "scratch"), seeds=3, tasks=3).write(
        tmp_path_factory.mktemp("c") / "run"
    )
    write_continual_report(folder)
    return folder


def test_every_part_is_in_both_forms_with_its_figures(run):
    text = (run / "report" / "report.md").read_text()
    assert re.findall(r"^## (.*)$", text, re.M) == [*PARTS]
    assert {*re.findall(r"\(figures/([\w-]+)\.png\)", text)} == PICTURES
    page = (run / "report" / "page.html").read_text()
    assert re.findall(r"<h2>(.*?)</h2>", page) == [*PARTS]
    assert page.count("data:image/png;base64,") == len(PICTURES)
    assert {path.stem for path in (run / "report" / "figures").iterdir()} == PICTURES
    for name in PICTURES:
        with Image.open(run / "report" / "figures" / f"{name}.png") as picture:
            assert len(picture.convert("RGB").getcolors(100_000)) > 10, name


def test_what_a_skill_forgot_is_what_its_kept_version_wins_back(run):
    rows = {
        (row["skill"], row["method"]): row["mean"] for row in read_rows(run / "report" / "tables" / "skills.parquet")
    }
    assert rows["dodge", "newest"] > rows["camera", "newest"] + 0.05
    assert rows["dodge", "kept"] == pytest.approx(0.0, abs=0.05)


def test_costs_are_totals_and_multiples_of_training_from_scratch(run):
    rows = {(row["cost"], row["method"]): row for row in read_rows(run / "report" / "tables" / "costs.parquet")}
    assert rows["decisions", "kept"]["mean"] == 3 * 80_000
    assert rows["selection_decisions", "kept"]["mean"] == 3 * 8_000
    assert rows["bytes", "kept"]["mean"] == 51_000 + 3 * 51_000, "what is kept at the end, not summed"
    assert rows["decisions", "kept"]["times_scratch"] == 1.0
    assert rows["bytes", "scratch"]["times_scratch"] == 1.0
    assert rows["bytes", "newest"]["times_scratch"] < rows["bytes", "kept"]["times_scratch"] < 1.0


def test_the_json_has_the_scores_and_where_they_come_from(run):
    found = json.loads((run / "report" / "report.json").read_text())
    assert {"commit", "scores", "differences", "tables"} <= found.keys()
    assert found["against"] == "kept"


@pytest.mark.parametrize("killed", [False, True])
def test_a_report_says_at_which_commits_and_for_how_long_its_units_were_trained(run, tmp_path, killed):
    shutil.copytree(run, tmp_path / "run")
    took_s = {"aaa": 60.0, "bbb-modified": 0.0 if killed else 3_540.0, None: 30.0}
    machine = {"processor": "one of ours", "cores": 2}
    sessions = [{"commit": commit, "machine": machine, "wall_time_s": took_s} for commit, took_s in took_s.items()]
    (tmp_path / "run" / "sessions.json").write_text(json.dumps(sessions))
    report = write_continual_report(tmp_path / "run")
    text, found = report.read_text(), json.loads(report.with_name("report.json").read_text())
    assert "trained at commit aaa, bbb-modified, written at commit" in text
    assert found["trained_at"] == ["aaa", "bbb-modified"]
    # How long a session took that was killed nobody knows.
    assert ("All units took 60 minutes, started on 2 cores (one of ours)." in text) is not killed
    assert found["wall_time_s"] == (None if killed else 3_630.0)


def test_a_run_of_evaluations_alone_has_a_report_without_the_rest(run, tmp_path):
    results = tmp_path / "run" / "results"
    results.mkdir(parents=True)
    shutil.copy(run / "results" / "evaluations.parquet", results)
    text = write_continual_report(tmp_path / "run", tmp_path / "out", "newest").read_text()
    assert "## Beside newest" in text
    assert "## Costs" not in text
    assert "## Forgetting by skill" not in text
    assert not (tmp_path / "run" / "report").exists()
    assert not (tmp_path / "out" / "tables" / "costs.parquet").exists()


def test_a_sequence_of_one_task_and_one_seed_has_a_report(tmp_path):
    folder = InventedRun.draw(("newest",), seeds=1, tasks=1).write(tmp_path / "run")
    text = write_continual_report(folder).read_text()
    assert "1 method, 1 task, 1 seed" in text
    assert "forward transfer is not defined" in text


def test_names_with_signs_of_markup_stay_text(tmp_path):
    frame = InventedRun.draw(("newest", "scratch"), seeds=2, tasks=2)
    tables = {
        name: table.assign(method=table["method"].replace("newest", "<b>$x_1$ | a"))
        for name, table in frame.tables.items()
    }
    folder = InventedRun(tables).write(tmp_path / "run")
    report = write_continual_report(folder)
    assert "<b>$x_1$ \\| a" in report.read_text()
    assert "<b>" not in report.with_name("page.html").read_text()


def test_a_damaged_table_beside_is_named(run, tmp_path):
    shutil.copytree(run / "results", tmp_path / "results")
    (tmp_path / "results" / "costs.parquet").write_bytes(b"no Parquet")
    with pytest.raises(SoulsGraphError, match=r"costs\.parquet: expected a Parquet file"):
        write_continual_report(tmp_path)
    assert not (tmp_path / "report").exists()


def test_a_table_over_a_long_sequence_has_a_few_moments(tmp_path):
    folder = InventedRun.draw(("newest",), seeds=1, tasks=24).write(tmp_path / "run")
    text = write_continual_report(folder).read_text()
    (heading,) = re.findall(r"^\| share of dormant units \|(.*)\|$", text, re.M)
    moments = [int(cell.removeprefix(" after ")) for cell in heading.split("|")]
    assert (moments[0], moments[-1], len(moments)) == (0, 24, 11)


def test_what_choosing_versions_took_is_reported_of_whoever_chose(tmp_path):
    folder = InventedRun.draw(("kept", "newest", "scratch"), seeds=2, tasks=2).write(tmp_path / "run")
    file = folder / "results" / "evaluations.parquet"
    frame = read_results(file)
    last = (frame["after"] == 2) & (frame["decisions"] == 0)
    took = (frame["method"] == "kept") * (100 * frame["task"] + 10 * frame["seed"])
    frame.assign(choosing_decisions=took.where(last)).to_parquet(file)
    report = write_continual_report(folder)
    (row,) = read_rows(report.parent / "tables" / "choosing.parquet")
    first = min(frame["seed"])
    whole = 300.0 + 20 * (first + 0.5)
    assert (row["method"], row["mean"]) == ("kept", whole)
    rows = {(one["cost"], one["method"]): one for one in read_rows(report.parent / "tables" / "costs.parquet")}
    assert (rows["choosing_decisions", "kept"]["mean"], rows["choosing_decisions", "newest"]["mean"]) == (whole, 0.0)
    assert rows["decisions", "kept"]["mean"] == rows["decisions", "newest"]["mean"] == 2 * 80_000
    assert f"| {whole:,.0f} (" in report.read_text()
    tables = RunTables(read_folder(folder), score(frame))
    played = {method: values.mean for method, values in tables.played.items()}
    assert played["kept"] == played["newest"] + whole
    nobody = RunTables({**read_folder(folder), "evaluations": frame}, score(frame))
    assert "choosing_decisions" not in nobody.totals


def test_a_report_replaces_what_an_earlier_one_wrote_and_nothing_else(run, tmp_path):
    out = tmp_path / "paper"
    mine = {out / "figures" / "mine.png": b"mine", out / "tables" / "mine.csv": b"1", tmp_path / "kept.txt": b"kept"}
    for file, content in mine.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    write_continual_report(run, out)
    assert (out / "tables" / "costs.parquet").exists()
    found = json.loads((out / "report.json").read_text())
    # A file that someone changed must not lead to others.
    found["files"] += ["../kept.txt", "figures/../../kept.txt", str(tmp_path / "kept.txt"), 3]
    (out / "report.json").write_text(json.dumps(found))
    fewer = InventedRun.draw(("newest",), seeds=1, tasks=1).write(tmp_path / "fewer")
    for name in ("costs", "plasticity", "dormant"):
        (fewer / "results" / f"{name}.parquet").unlink()
    write_continual_report(fewer, out)
    assert not (out / "tables" / "costs.parquet").exists(), "of the report before"
    assert {file: file.read_bytes() for file in mine} == mine
    (out / "report.json").write_text("no report")
    assert write_continual_report(fewer, out).exists()


@pytest.mark.parametrize("rows_every", [1, 4])
def test_tasks_that_come_again_have_a_section_in_every_form(tmp_path, rows_every):
    frame = InventedRun.draw(("kept", "newest"), seeds=3, tasks=4).evaluations
    names = frame["task"].map(lambda task: f"boss {(task - 1) % 2}")
    near = frame["task"].isin([1, 2, 3, 4]) & (frame["task"] - frame["after"]).isin([0, 1])
    kept = (frame["decisions"] > 0) | near | (frame["after"] % rows_every == 0)
    folder = InventedRun({"evaluations": frame.assign(task_name=names)[kept]}).write(tmp_path / "run")
    report = write_continual_report(folder)
    assert "the mean over 2 returns" in report.read_text()
    assert "<h2>Tasks that come again</h2>" in report.with_name("page.html").read_text()
    rows = read_rows(report.parent / "tables" / "returning.parquet")
    assert json.loads(report.with_name("report.json").read_text())["tables"]["returning"] == rows
    means = {(row["quantity"], row["method"]): row["mean"] for row in rows}
    rates = (frame["wins"] / frame["episodes"])[frame["decisions"] == 0]
    own = {task: rates[(frame["method"] == "newest") & (frame["after"] == task) & (frame["task"] == task)].mean()
           for task in (1, 2, 3, 4)}  # fmt: skip
    assert means["first_end", "newest"] == pytest.approx((own[1] + own[2]) / 2)
    assert means["return_gain", "newest"] == pytest.approx((own[3] + own[4] - own[1] - own[2]) / 2)
    (row,) = (row for row in rows if (row["quantity"], row["method"]) == ("return_gain", "newest"))
    assert row["seeds"] == 3
    assert row["mean_low"] < row["mean"] < row["mean_high"]


def test_units_that_are_missing_are_named_even_where_a_fight_changed_since(tmp_path):
    folder = InventedRun.draw(("kept", "newest", "scratch"), seeds=2, tasks=2).write(tmp_path / "run")
    seeds = sorted(set(read_results(folder / "results" / "evaluations.parquet")["seed"]))
    plan = {"sequence": "gone.toml", "methods": ["kept", "clonex", "ewc"], "seeds": [*seeds, 307]}
    (folder / "continual.json").write_text(json.dumps({"plan": plan}))
    report = write_continual_report(folder)
    named = ", ".join(map(str, plan["seeds"]))
    sentence = f"7 of 9 units are missing: kept 307; clonex {named}; ewc {named}. Scores are of those that are there."
    assert sentence in report.read_text()
    assert sentence in report.with_name("page.html").read_text()
    missing = json.loads(report.with_name("report.json").read_text())["missing"]
    assert missing[0] == {"method": "kept", "seed": 307}
    assert len(missing) == 7


def test_a_whole_study_names_no_missing_unit_and_a_damaged_plan_is_named(tmp_path):
    folder = InventedRun.draw(("kept",), seeds=1, tasks=2).write(tmp_path / "run")
    seeds = [int(seed) for seed in set(read_results(folder / "results" / "evaluations.parquet")["seed"])]
    file = folder / "continual.json"
    file.write_text(json.dumps({"plan": {"methods": ["kept"], "seeds": seeds}}))
    report = write_continual_report(folder)
    assert "missing" not in report.read_text()
    for damaged in ("[]", "{}", '{"plan": {"methods": 3}}'):
        file.write_text(damaged)
        with pytest.raises(SoulsGraphError, match=r"continual\.json"):
            write_continual_report(folder)
