from statistics import median

import pytest

from fakes.runs import write_synthetic_records
from soulsgraph.paper import report
from soulsgraph.paper.records import BOTH
from soulsgraph.paper.report import write_report
from soulsgraph.results.tables import read_rows
from soulsgraph_envs.core.errors import SoulsGraphError


@pytest.fixture(scope="module", autouse=True)
def without_figures():
    """Draw none: other tests look at them, and most of a report's time goes there."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(report, "_pictures", lambda reproductions: {})
        yield


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    root = tmp_path_factory.mktemp("earlier")
    write_report([write_synthetic_records(root / "paper", seeds=range(300, 310))], root / "report")
    return root / "report"


def _compared(tmp_path, earlier, lift):
    folder = write_synthetic_records(tmp_path / "paper", seeds=range(310, 330), lift=lift)
    write_report([folder], tmp_path / "report", earlier=[earlier])
    return {row["label"]: row for row in read_rows(tmp_path / "report" / "tables" / "agreement.parquet")}


def test_other_seeds_of_the_same_agents_agree(tmp_path, earlier):
    # The records scatter by a fixed generator: 8 rows, false alarms in 5 % of all generators.
    rows = _compared(tmp_path, earlier, lift=0.0)
    assert all(row["agree"] for row in rows.values())
    assert (rows[BOTH]["seeds"], rows[BOTH]["earlier_seeds"]) == (20, 10)
    assert rows[BOTH]["low"] <= rows[BOTH]["median"] <= rows[BOTH]["high"]
    assert rows[BOTH]["difference_low"] < 0.0 < rows[BOTH]["difference_high"]
    assert rows[BOTH]["difference_low"] < rows[BOTH]["difference"] < rows[BOTH]["difference_high"]


def test_seeds_of_better_agents_differ(tmp_path, earlier):
    rows = _compared(tmp_path, earlier, lift=30.0)
    assert not rows[BOTH]["agree"]
    assert rows[BOTH]["difference_low"] > 0.0


def test_the_seeds_of_several_earlier_reports_are_pooled_each_once(tmp_path, earlier):
    other = write_synthetic_records(tmp_path / "other", seeds=range(320, 324))
    write_report([other], tmp_path / "other-report")
    folder = write_synthetic_records(tmp_path / "paper", seeds=range(310, 314))
    write_report([folder], tmp_path / "report", earlier=[earlier, tmp_path / "other-report"])
    rows = {row["label"]: row for row in read_rows(tmp_path / "report" / "tables" / "agreement.parquet")}
    assert rows[BOTH]["earlier_seeds"] == 14
    both = [*_percents(earlier), *_percents(tmp_path / "other-report")]
    assert rows[BOTH]["earlier_median"] == pytest.approx(median(both))
    shared = write_synthetic_records(tmp_path / "shared", seeds=range(309, 312))
    for now, before, named in (
        (folder, [earlier, earlier], "300, 301"),
        (shared, [earlier], "309"),
        (folder, [tmp_path], r"seeds\.parquet"),
    ):
        with pytest.raises(SoulsGraphError, match=named):
            write_report([now], tmp_path / "refused", earlier=before)


def _percents(folder):
    return [row["percent"] for row in read_rows(folder / "tables" / "seeds.parquet") if row["label"] == BOTH]
