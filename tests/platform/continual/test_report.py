"""The report of a continual run: every part that the run has, in Markdown and HTML, with its figures and tables."""

import json
import re
import shutil

import pytest
from PIL import Image

from fakes.continual import InventedRun
from soulsgraph.continual.report import RunTables
from soulsgraph.continual.scoring import score
from soulsgraph.results.seeds import records
from soulsgraph.results.tables import read_rows
from soulsgraph_envs.core.errors import SoulsGraphError

PARTS = (
    *("Scores", "Interquartile means", "Beside kept", "By other formulas", "Over the sequence"),
    *("By task", "Forgetting by skill", "Plasticity", "Dormant units", "Costs", "How this was made"),
)
PICTURES = {"matrices", "performance", "forward-transfer", "forgetting", "own-end", "costs"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = InventedRun.draw(("kept", "newest", "scratch"), seeds=3, tasks=3).write(
        tmp_path_factory.mktemp("c") / "run"
    )
    written(folder)
    return folder


@pytest.fixture
def undrawn(monkeypatch):
    """Leave pictures empty: most of a report's time goes into them."""
    monkeypatch.setattr("soulsgraph.results.figures.png_of", lambda figure: b"")


def written(path, out=None, against=None):
    return RunTables.read(path, against).write(out or path / "report")


def rows_of(tables, name):
    return tables.summaries[name].to_dict("records")


def tables_of(run, **tables):
    found = run.tables | tables
    return RunTables(found, score(found["evaluations"]))


def test_the_figures_of_a_report_can_be_computed_from_its_own_folder(run):
    first, again = RunTables.read(run), RunTables.read(run / "report")
    assert again.scores.to_dict() == first.scores.to_dict()
    assert {*again.summaries} == {*first.summaries} == {"skills", "plasticity", "dormant", "costs"}
    for name, frame in first.summaries.items():
        assert records(again.summaries[name]) == records(frame)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("named", ["", "results/evaluations.parquet"])
def test_a_report_beside_its_own_rows_leaves_them_as_they_were(named, tmp_path):
    run = InventedRun.draw(("newest",), seeds=1, tasks=1)
    run.tables["evaluations"]["of_its_owner"] = 1
    folder = run.write(tmp_path / "run")
    before = {path: path.read_bytes() for path in (folder / "results").iterdir()}
    written(folder / named, out=folder)
    assert {path: path.read_bytes() for path in (folder / "results").iterdir()} == before


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
    assert json.loads((run / "report" / "report.json").read_text())["against"] == "kept"


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


@pytest.mark.usefixtures("undrawn")
def test_a_report_says_at_which_commits_and_for_how_long_its_units_were_trained(run, tmp_path):
    shutil.copytree(run / "results", tmp_path / "results")
    took_s = {"aaa": 60.0, "bbb-modified": 3_540.0, None: 30.0}
    sessions = [{"commit": commit, "machine": {"cores": 2}, "wall_time_s": took_s} for commit, took_s in took_s.items()]
    (tmp_path / "sessions.json").write_text(json.dumps(sessions))
    report = written(tmp_path)
    found = json.loads(report.with_name("report.json").read_text())
    assert (found["trained_at"], found["wall_time_s"]) == (["aaa", "bbb-modified"], 3_630.0)
    assert "All units took 60 minutes, started on 2 cores" in report.read_text()


@pytest.mark.usefixtures("undrawn")
def test_a_run_of_evaluations_alone_has_a_report_without_the_rest(run, tmp_path):
    results = tmp_path / "run" / "results"
    results.mkdir(parents=True)
    shutil.copy(run / "results" / "evaluations.parquet", results)
    text = written(tmp_path / "run", tmp_path / "out", "newest").read_text()
    own = {"Forgetting by skill", "Plasticity", "Dormant units", "Costs"}
    assert {*re.findall(r"^## (.*)$", text, re.M)} == {"Beside newest", *PARTS} - {"Beside kept", *own}
    assert not (tmp_path / "run" / "report").exists()
    assert not (tmp_path / "out" / "tables" / "costs.parquet").exists()


@pytest.mark.usefixtures("undrawn")
def test_one_task_one_seed_and_names_with_signs_of_markup_have_a_report(tmp_path):
    tables = InventedRun.draw(("newest",), seeds=1, tasks=1).tables
    named = {name: table.assign(method="<b>$x_1$ | a") for name, table in tables.items()}
    report = written(InventedRun(named).write(tmp_path / "run"))
    assert "<b>$x_1$ \\| a" in report.read_text()
    assert "<b>" not in report.with_name("page.html").read_text()


def test_what_choosing_versions_took_is_reported_of_whoever_chose():
    run = InventedRun.draw(("kept", "newest", "scratch"), seeds=2, tasks=2)
    frame = run.evaluations
    last = (frame["after"] == 2) & (frame["decisions"] == 0)
    took = (frame["method"] == "kept") * (100 * frame["task"] + 10 * frame["seed"])
    tables = tables_of(run, evaluations=frame.assign(choosing_decisions=took.where(last)))
    whole = 300.0 + 20 * 0.5
    rows = {(one["cost"], one["method"]): one for one in rows_of(tables, "costs")}
    assert (rows["choosing_decisions", "kept"]["mean"], rows["choosing_decisions", "newest"]["mean"]) == (whole, 0.0)
    assert rows["decisions", "kept"]["mean"] == rows["decisions", "newest"]["mean"] == 2 * 80_000
    assert rows["played", "kept"]["mean"] == rows["played", "newest"]["mean"] + whole
    assert "choosing_decisions" not in {row["cost"] for row in rows_of(tables_of(run), "costs")}


@pytest.mark.parametrize("rows_every", [1, 4])
def test_tasks_that_come_again_are_compared_with_their_first_visit(rows_every):
    frame = InventedRun.draw(("kept", "newest"), seeds=3, tasks=4).evaluations
    names = frame["task"].map(lambda task: f"boss {(task - 1) % 2}")
    near = (frame["task"] - frame["after"]).isin([0, 1])
    kept = (frame["decisions"] > 0) | near | (frame["after"] % rows_every == 0)
    rows = rows_of(tables_of(InventedRun({"evaluations": frame.assign(task_name=names)[kept]})), "returning")
    means = {(row["quantity"], row["method"]): row["mean"] for row in rows}
    rates = (frame["wins"] / frame["episodes"])[frame["decisions"] == 0]
    own = [rates[(frame["method"] == "newest") & (frame["after"] == task) & (frame["task"] == task)].mean()
           for task in (1, 2, 3, 4)]  # fmt: skip
    assert means["first_end", "newest"] == pytest.approx((own[0] + own[1]) / 2)
    assert means["return_gain", "newest"] == pytest.approx((own[2] + own[3] - own[0] - own[1]) / 2)
    (row,) = (row for row in rows if (row["quantity"], row["method"]) == ("return_gain", "newest"))
    assert row["seeds"] == 3
    assert row["mean_low"] < row["mean"] < row["mean_high"]


@pytest.mark.usefixtures("undrawn")
def test_units_that_are_missing_and_tasks_that_come_again_are_in_every_form(tmp_path):
    frame = InventedRun.draw(("kept", "newest"), seeds=2, tasks=2).evaluations
    folder = InventedRun({"evaluations": frame.assign(task_name="boss")}).write(tmp_path / "run")
    # The fights of the plan are gone.
    plan = {"sequence": "gone.toml", "methods": ["kept", "clonex"], "seeds": [0, 1, 307]}
    (folder / "continual.json").write_text(json.dumps({"plan": plan}))
    report = written(folder)
    missing = json.loads(report.with_name("report.json").read_text())["missing"]
    named = [(one["method"], one["seed"]) for one in missing]
    assert named == [("kept", 307), ("clonex", 0), ("clonex", 1), ("clonex", 307)]
    for file in (report, report.with_name("page.html")):
        assert "kept 307, clonex 0, clonex 1, clonex 307" in file.read_text()
        assert "Tasks that come again" in file.read_text()


def test_a_damaged_plan_or_table_is_named(run, tmp_path):
    shutil.copytree(run / "results", tmp_path / "results")
    (tmp_path / "continual.json").write_text("[")
    with pytest.raises(SoulsGraphError, match=r"continual\.json"):
        written(tmp_path)
    (tmp_path / "results" / "costs.parquet").write_bytes(b"no Parquet")
    with pytest.raises(SoulsGraphError, match="costs"):
        written(tmp_path)
    assert not (tmp_path / "report").exists()
