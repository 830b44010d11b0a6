import json

import pytest

from fakes.runs import write_synthetic_records
from soulsgraph.paper.records import FINE_TUNED, MID, load_reproductions
from soulsgraph.paper.report import Attachment, write_report
from soulsgraph.paper.study import COLUMNS
from soulsgraph.results.tables import read_rows, write_rows
from soulsgraph.runs.evaluate import TABLE_1
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import WriteError


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


def test_a_report_holds_every_row_with_every_seeds_counts(paper, report):
    text = report.read_text()
    rows = read_rows(paper / "records" / "rows.parquet")
    for row in TABLE_1:
        assert f"| {row.label} | {row.paper_percent:.1f} (" in text
    for row in rows:
        assert f"{row['wins']}/{row['episodes']}" in text
    assert "33.3 (8/24; Wilson" in text
    assert "no multiples of 1/25" in text
    headings = "Expected ranges, preset paper", "Measures, preset paper", "What the end-to-end agent does", "processor"
    assert all(heading in text for heading in headings)


@pytest.mark.slow
def test_missing_seeds_are_told_and_how_many_each_row_has(report, tmp_path):
    folder = write_synthetic_records(tmp_path / "begun", seeds=range(300, 303))
    description = json.loads((folder / "reproduction.json").read_text())
    description["plan"]["seeds"] = list(range(300, 310))
    (folder / "reproduction.json").write_text(json.dumps(description))
    text = write_report([folder], tmp_path / "out").read_text()
    assert "### Table 1, preset paper: win rates in %, unfinished: 3 of 10 seeds" in text
    (row,) = (line for line in text.splitlines() if line.startswith(f"| {FINE_TUNED} | 52.0 ("))
    assert row.split(" | ")[2] == "3"
    assert "win rates in %, 4 seeds" in report.read_text()


def test_a_later_session_is_told_by_what_changed(report):
    lines = report.read_text().splitlines()
    told = [line for line in lines if line.startswith("| session")]
    assert "| session 1 machine processor | a processor |" in told
    assert [line for line in told if "session 2" in line] == [
        "| session 2 wall time s | 234.5 |",
        "| session 2 versions soulsgraph | 0.1.0 |",
        "| session 2 versions ray | 2.60.0 |",
        "| session 2 versions torch | 2.14.0 |",
    ]


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ('{"sessions": 5}', "sessions: expected a list"),
        ('{"sessions": [5]}', r"sessions\[0\]: expected a table"),
        ('{"plan": []}', "plan: expected a table"),
        ('{"plan": {"overrides": 5}}', "plan.overrides: expected a table"),
        ('{"wall_time_s": 1e400}', "wall_time_s: expected a finite number"),
        ("[]", "expected a table"),
    ],
)
def test_a_damaged_description_is_refused_with_file_and_key(description, message, tmp_path):
    folder = write_synthetic_records(tmp_path / "run", seeds=(300,))
    (folder / "reproduction.json").write_text(description)
    with pytest.raises(SoulsGraphError, match=rf"reproduction\.json: {message}"):
        load_reproductions([folder])


def test_machines_read_the_same(paper, report):
    described = json.loads(report.with_name("report.json").read_text())
    assert described["reproductions"]["paper"]["plan"]["seeds"] == [300, 301, 302, 303]
    seeds = read_rows(report.parent / "tables" / "seeds.parquet")
    assert len(seeds) == len(read_rows(paper / "records" / "rows.parquet"))
    for kept in seeds:
        assert kept["percent"] == 100.0 * kept["wins"] / kept["episodes"]
        assert kept["low"] <= kept["percent"] <= kept["high"]
    assert set(described["tables"]) == {"settings", "seeds", "expected_ranges", "measures", "differences"}


def test_every_figure_is_shown_and_on_the_board(report):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    text = report.read_text()
    files = sorted(file.name for file in (report.parent / "figures").iterdir())
    assert files == ["figure-5-paper.png", "figure-6-paper.png", "figures-2-3-paper.png", "table-1.png"]
    assert all(f"](figures/{name})" in text for name in files)
    events = EventAccumulator(str(report.parent / "tensorboard")).Reload()
    assert sorted(events.Tags()["images"]) == [name.removesuffix(".png") for name in files]


@pytest.mark.slow
def test_presets_stand_beside_each_other_paired_by_seed(paper, fast, tmp_path):
    text = write_report([paper, fast], tmp_path).read_text()
    assert "| row | paper | preset paper | preset fast |" in text
    comparison = {row["label"]: row for row in read_rows(tmp_path / "tables" / "comparison.parquet")}
    by_seed = [item.setting[MID].spread.by_seed for item in load_reproductions([paper, fast])]
    expected = sum(by_seed[1][seed] - by_seed[0][seed] for seed in (301, 302, 303)) / 3
    assert comparison[MID]["seeds"] == 3
    assert comparison[MID]["mean"] == pytest.approx(expected)
    assert not comparison[MID]["overlap"]
    assert "**apart**" in text
    assert "**outside**" in text


@pytest.mark.slow
def test_variants_make_an_ablation_table(paper, fast, tmp_path):
    text = write_report([paper], tmp_path, variants=[paper, fast]).read_text()
    first, second = read_rows(tmp_path / "tables" / "ablation.parquet")
    assert (first["variant"], second["variant"]) == ("paper", "fast")
    assert first["difference"] is None
    assert second["difference"] > 30.0
    assert first["score_low"] <= first["score"] <= first["score_high"]
    assert "| variant | seeds |" in text


@pytest.mark.parametrize("kept", COLUMNS)
@pytest.mark.slow
def test_any_records_alone_make_a_report(paper, tmp_path, kept):
    records = tmp_path / "run" / "records"
    records.mkdir(parents=True)
    (records / f"{kept}.parquet").write_bytes((paper / "records" / f"{kept}.parquet").read_bytes())
    text = write_report([tmp_path / "run"], tmp_path / "run").read_text()
    assert ("### Table 1" in text) == (kept == "rows")
    assert ("(figures/" in text) == (kept != "measures")


@pytest.mark.slow
def test_one_seed_without_baseline_has_no_intervals_over_seeds(tmp_path):
    write_synthetic_records(tmp_path, seeds=[300])
    rows = read_rows(tmp_path / "records" / "rows.parquet")
    write_rows(tmp_path / "records" / "rows.parquet", [row for row in rows if "end-to-end" not in row["label"]])
    text = write_report([tmp_path], tmp_path).read_text()
    assert "single end-to-end agent | at most 5 % | not measured" in text
    settings = json.loads((tmp_path / "report.json").read_text())["tables"]["settings"]
    assert {row["label"]: row["mean_high"] for row in settings}[FINE_TUNED] is None


@pytest.mark.slow
def test_a_report_written_again_is_the_same_and_leaves_nothing_old(paper, fast, tmp_path):
    # What others wrote into folders of these names stays, as a run's own events.
    mine = [
        tmp_path / name for name in ("figures/mine.png", "tables/mine.csv", "tensorboard/events.out.tfevents.1.mine")
    ]
    for file in mine:
        file.parent.mkdir()
        file.write_text("mine")
    write_report([paper, fast], tmp_path)
    first = write_report([paper], tmp_path).read_text()
    assert write_report([paper], tmp_path).read_text() == first
    assert not list((tmp_path / "figures").glob("*fast*"))
    assert not (tmp_path / "tables" / "comparison.parquet").exists()
    assert len(list((tmp_path / "tensorboard").iterdir())) == 2
    assert [file.read_text() for file in mine] == ["mine"] * 3
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")]


def test_tables_of_other_tools_are_attached(paper, tmp_path):
    write_rows(tmp_path / "transfer.parquet", [{"skill": "dodge", "drop": 0.25, "adapt": True}])
    attachment = Attachment("Transfer", tmp_path / "transfer.parquet")
    text = write_report([paper], tmp_path, attachments=[attachment]).read_text()
    assert "## Transfer\n\n| skill | drop | adapt |\n| --- | ---: | ---: |\n| dodge | 0.25 | yes |" in text


def test_presets_that_repeat_are_told_apart_by_their_folders(tmp_path):
    folders = [write_synthetic_records(tmp_path / name, seeds=[300]) for name in ("a", "b")]
    assert [item.title for item in load_reproductions(folders)] == ["a (preset paper)", "b (preset paper)"]


def test_another_learner_and_changed_options_do_not_read_as_a_preset(tmp_path):
    plans = {"own": {}, "other": {"learner": "stable-baselines3"}, "changed": {"overrides": {"double": True}}}
    folders = [write_synthetic_records(tmp_path / name, seeds=[300], **plan) for name, plan in plans.items()]
    titles = [item.title for item in load_reproductions(folders)]
    assert titles == ["preset paper", "stable-baselines3", "changed (preset paper with double=True)"]
    text = write_report([folders[1]], tmp_path / "report").read_text()
    assert "### Table 1, stable-baselines3" in text
    assert "preset paper" not in text
    twice = [write_synthetic_records(tmp_path / name, seeds=[300], learner="stable-baselines3") for name in "ab"]
    assert [item.title for item in load_reproductions(twice)] == ["a (stable-baselines3)", "b (stable-baselines3)"]


def test_a_folder_without_records_is_told(tmp_path):
    with pytest.raises(SoulsGraphError, match="expected the folder of a reproduction, found no records in it"):
        write_report([tmp_path], tmp_path)
    with pytest.raises(SoulsGraphError, match=r"found no such folder; write one with: `ReproductionFolder.create"):
        write_report([tmp_path / "gone"], tmp_path)


def test_a_place_that_cannot_be_written_is_told(paper, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match="expected a place to write to"):
        write_report([paper], tmp_path / "file" / "report")


def test_records_that_lack_a_column_or_repeat_a_seed_are_told(paper, tmp_path):
    rows = read_rows(paper / "records" / "rows.parquet")
    file = tmp_path / "records" / "rows.parquet"
    write_rows(file, [{name: value for name, value in row.items() if name != "wins"} for row in rows])
    with pytest.raises(SoulsGraphError, match=r"rows\.parquet: expected columns .*; found no wins"):
        write_report([tmp_path], tmp_path)
    write_rows(file, [rows[0], rows[0]])
    with pytest.raises(SoulsGraphError, match="expected each seed once, found 300, 300"):
        write_report([tmp_path], tmp_path)


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("rows", {"episodes": 0, "wins": 0}),
        ("rows", {"wins": 10_000}),
        ("rows", {"wins": None}),
        ("rows", {"seed": "first"}),
        ("measures", {"value": None}),
        ("curves", {"step": None}),
    ],
)
def test_records_that_no_statistics_can_be_made_of_are_refused(tmp_path, table, change):
    folder = write_synthetic_records(tmp_path / "run", seeds=range(300, 302))
    file = folder / "records" / f"{table}.parquet"
    write_rows(file, [{**row, **change} for row in read_rows(file)])
    with pytest.raises(SoulsGraphError, match=rf"{table}\.parquet: expected a seed"):
        load_reproductions([folder])


def test_a_folder_given_twice_is_refused(paper):
    with pytest.raises(SoulsGraphError, match="expected each folder once"):
        load_reproductions([paper, paper.parent / "." / paper.name])


def test_records_from_before_seconds_were_kept_are_still_reported(paper, tmp_path):
    folder = write_synthetic_records(tmp_path / "old", seeds=range(300, 303))
    for name, columns in COLUMNS.items():
        file = folder / "records" / f"{name}.parquet"
        kept = [column for column in columns if "seconds" not in column]
        write_rows(file, [{column: row[column] for column in kept} for row in read_rows(file)])
    assert "### Table 1" in write_report([folder], tmp_path / "report").read_text()
