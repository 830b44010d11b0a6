"""Tables of other tools in a report: many columns, few that differ between rows."""

from soulsgraph.results.statistics import Interval
from soulsgraph.results.tables import number, readable_table, with_interval

SKILLS = ("camera", "lock_on", "movement")


def wide_rows(columns=20):
    return [
        {"skill": skill, "scenario": "iudex-phase2", **{f"figure_{i}": float(i + row) for i in range(columns)}}
        for row, skill in enumerate(SKILLS)
    ]


def test_bounds_and_counts_share_a_cell_with_what_they_belong_to():
    row = {"arm": "dodge", "wins": 30, "episodes": 40, "rate": 0.75, "low": 0.6, "high": 0.86}
    row |= {"gain": 12.34, "gain_low": -1.0, "gain_high": 25.5, "drop": 0.3, "drop_low": 0.1}
    table = readable_table("", [row])
    assert table.headings == ("arm", "wins", "rate", "gain", "drop")
    assert table.rows == (("dodge", "30/40", "0.75 (0.6 to 0.86)", "12.3 (-1 to 25.5)", "0.3 (at least 0.1)"),)


def test_what_says_nothing_is_left_out_and_what_is_the_same_everywhere_said_once():
    rows = [{"a": i, **dict.fromkeys("bcdefgh", 7), "i": i, "empty": None} for i in range(12)]
    table = readable_table("", rows)
    assert table.headings == ("a", "i")
    assert "b 7" in table.note
    assert table.to_markdown().count("\n| ") == 1 + 1 + 12
    few = readable_table("", [{"a": 1, "b": 7}, {"a": 2, "b": 7}])
    assert few.headings == ("a", "b"), "a small table is left as it is"


def test_more_columns_than_fit_become_rows():
    table = readable_table("", wide_rows())
    assert table.headings == ("skill", *SKILLS)
    assert "scenario iudex-phase2" in table.note
    assert table.rows[3] == ("figure 3", "3", "4", "5")


def test_what_rounds_to_zero_has_no_sign():
    assert with_interval(0.02, Interval(-0.011, -0.06)) == "0.0 (0.0 to -0.1)"
    assert number(-0.004, 2) == "0.00"
    assert number(float("nan")) == "-"
    assert with_interval(1.25, Interval(float("-inf"), float("inf")), 2) == "1.25"
