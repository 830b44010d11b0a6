import json

import pytest

from fakes.runs import write_synthetic_records
from soulsgraph.paper import report as module
from soulsgraph.paper.records import FINE_TUNED, MID, load_reproductions
from soulsgraph.paper.report import write_report
from soulsgraph.paper.study import COLUMNS
from soulsgraph.results.statistics import welch_interval
from soulsgraph.results.tables import read_rows, write_rows
from soulsgraph.runs.evaluate import TABLE_1
from soulsgraph_envs.core.errors import SoulsGraphError


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    return write_synthetic_records(tmp_path_factory.mktemp("runs") / "paper", seeds=range(300, 304))


@pytest.fixture(scope="module")
def report(paper, tmp_path_factory):
    """The file of the report that tests only read."""
    return write_report([paper], tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def fast(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "fast"
    return write_synthetic_records(folder, "fast", seeds=range(301, 305), lift=60.0)


@pytest.fixture
def undrawn(monkeypatch):
    """Draw no figures: most of a report's time goes there."""
    monkeypatch.setattr(module, "_pictures", lambda reproductions: {})


def test_a_report_holds_every_row_with_every_seeds_counts(paper, report):
    text = report.read_text()
    rows = read_rows(paper / "records" / "rows.parquet")
    for row in TABLE_1:
        assert f"| {row.label} | {row.paper_percent:.1f} (" in text
    for row in rows:
        assert f"{row['wins']}/{row['episodes']}" in text
    # The paper's own episodes: 8 of 24 round to its 33.3 %.
    assert "33.3 (8/24" in text


def test_missing_seeds_are_counted(paper, tmp_path):
    folder = write_synthetic_records(tmp_path / "begun", seeds=range(300, 303))
    description = json.loads((folder / "reproduction.json").read_text())
    description["plan"]["seeds"] = list(range(300, 310))
    (folder / "reproduction.json").write_text(json.dumps(description))
    begun, whole = load_reproductions([folder, paper])
    assert "3 of 10" in begun.seeds_told
    assert "of" not in whole.seeds_told


def test_machines_read_the_same(paper, report):
    described = json.loads(report.with_name("report.json").read_text())
    assert described["reproductions"]["paper"]["plan"]["seeds"] == [300, 301, 302, 303]
    seeds = read_rows(report.parent / "tables" / "seeds.parquet")
    assert len(seeds) == len(read_rows(paper / "records" / "rows.parquet"))
    for kept in seeds:
        assert kept["percent"] == 100.0 * kept["wins"] / kept["episodes"]
        assert kept["low"] <= kept["percent"] <= kept["high"]
    assert set(described["tables"]) == {"settings", "seeds", "expected_ranges", "measures", "differences"}


def test_every_figure_is_shown(report):
    text = report.read_text()
    files = sorted(file.name for file in (report.parent / "figures").iterdir())
    assert files == ["figure-5-paper.png", "figure-6-paper.png", "figures-2-3-paper.png", "table-1.png"]
    assert all(f"](figures/{name})" in text for name in files)
    assert report.with_name("page.html").read_text().count("data:image/png;base64,") == len(files)


@pytest.mark.usefixtures("undrawn")
def test_presets_stand_beside_each_other_paired_by_seed(paper, fast, tmp_path):
    write_report([paper, fast], tmp_path)
    comparison = {row["label"]: row for row in read_rows(tmp_path / "tables" / "comparison.parquet")}
    by_seed = [item.setting[MID].spread for item in load_reproductions([paper, fast])]
    expected = sum(by_seed[1][seed] - by_seed[0][seed] for seed in (301, 302, 303)) / 3
    assert comparison[MID]["seeds"] == 3
    assert comparison[MID]["mean"] == pytest.approx(expected)
    assert not comparison[MID]["overlap"]


@pytest.mark.usefixtures("undrawn")
def test_other_seeds_are_compared_by_their_means(paper, tmp_path):
    fresh = write_synthetic_records(tmp_path / "fresh", seeds=range(310, 330))
    write_report([paper, fresh], tmp_path / "report")
    rows = {row["label"]: row for row in read_rows(tmp_path / "report" / "tables" / "comparison.parquet")}
    first, second = (item.setting[MID].spread for item in load_reproductions([paper, fresh]))
    assert rows[MID]["seeds"] == 0
    assert rows[MID]["mean"] == pytest.approx(second.mean() - first.mean())
    assert (rows[MID]["mean_low"], rows[MID]["mean_high"]) == pytest.approx(welch_interval(second, first))


@pytest.mark.parametrize("kept", COLUMNS)
@pytest.mark.usefixtures("undrawn")
def test_any_records_alone_make_a_report(paper, tmp_path, kept):
    records = tmp_path / "run" / "records"
    records.mkdir(parents=True)
    (records / f"{kept}.parquet").write_bytes((paper / "records" / f"{kept}.parquet").read_bytes())
    text = write_report([tmp_path / "run"], tmp_path / "run").read_text()
    assert ("## Table 1" in text) == (kept == "rows")


@pytest.mark.usefixtures("undrawn")
def test_one_seed_without_baseline_has_no_intervals_over_seeds(tmp_path):
    write_synthetic_records(tmp_path, seeds=[300])
    rows = read_rows(tmp_path / "records" / "rows.parquet")
    write_rows(tmp_path / "records" / "rows.parquet", [row for row in rows if "end-to-end" not in row["label"]])
    write_report([tmp_path], tmp_path)
    settings = json.loads((tmp_path / "report.json").read_text())["tables"]["settings"]
    assert {row["label"]: row["mean_high"] for row in settings}[FINE_TUNED] is None


@pytest.mark.parametrize(
    ("plans", "titles"),
    [
        ({"a": {}, "b": {}}, ["a (preset paper)", "b (preset paper)"]),
        (
            {"own": {}, "other": {"learner": "stable-baselines3"}, "changed": {"overrides": {"double_q": True}}},
            ["preset paper", "stable-baselines3", "changed (preset paper with double_q=True)"],
        ),
        ({name: {"learner": "stable-baselines3"} for name in "ab"}, ["a (stable-baselines3)", "b (stable-baselines3)"]),
    ],
)
def test_what_repeats_or_learned_otherwise_does_not_read_as_a_preset(tmp_path, plans, titles):
    folders = [write_synthetic_records(tmp_path / name, seeds=[300], **plan) for name, plan in plans.items()]
    assert [item.title for item in load_reproductions(folders)] == titles


def test_folders_without_records_or_given_twice_are_refused_by_name(paper, tmp_path):
    for folders in ([tmp_path], [tmp_path / "gone"], [paper, paper.parent / "." / paper.name]):
        with pytest.raises(SoulsGraphError, match=folders[0].name):
            load_reproductions(folders)
