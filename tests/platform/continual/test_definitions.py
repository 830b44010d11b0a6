"""The worked examples of the page of definitions come out."""

import re
from pathlib import Path

import pandas as pd
import pytest

from soulsgraph.continual.files import EVALUATIONS
from soulsgraph.continual.report import RunTables
from soulsgraph.continual.scoring import METRICS, score

PAGE = Path(__file__).parents[3] / "docs" / "continual_metrics.md"
EPISODES = 1_000


def _table(first):
    """Return the rows of the page's table with this first heading, as cells."""
    text = PAGE.read_text(encoding="utf-8")
    (found,) = re.findall(rf"^\| {first} \|[^\n]*\n\|[-|: ]+\n((?:\|[^\n]*\n)+)", text, re.M)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found.splitlines()]


def _row(method, after, decisions, task, rate):
    counts = {"wins": round(float(rate) * EPISODES), "episodes": EPISODES}
    return {"method": method, "seed": 0, "after": after, "decisions": decisions, "task": task, **counts}


def _example():
    """Return the page's example as evaluations."""
    rows = [_row("mine", int(after), 0, task, rate) for after, *rates in _table("after")
            for task, rate in enumerate(rates, 1)]  # fmt: skip
    for name, *rates, _ in _table("curve"):
        task, method = int(name.split()[1].strip(",")), "scratch" if "scratch" in name else "mine"
        for decisions, rate in zip((0, 500, 1000), rates, strict=True):
            # The method's beginnings are in R.
            if decisions or method == "scratch":
                rows.append(_row(method, task - 1, decisions, task, rate))
    return pd.DataFrame(rows)


def test_the_worked_example_comes_out():
    scores = score(_example())
    shown = {name.strip("`"): float(value) for name, *_, value in _table("metric")}
    assert shown.keys() == METRICS.keys() - {"forward_transfer_ticks"}, "the example has no ticks"
    for name, value in shown.items():
        assert scores.scores[name, "mine"].values.mean() == pytest.approx(value, abs=5e-4), name


def test_the_example_of_a_task_that_comes_again_comes_out():
    rows = [{**_row("mine", int(after), 0, task, rate), "task_name": "aba"[task - 1]}
            for after, *rates in _table("finished") for task, rate in enumerate(rates, 1)]  # fmt: skip
    frame = pd.DataFrame(rows)
    found = RunTables({EVALUATIONS: frame}, score(frame)).summaries["returning"].to_dict("records")
    shown = {name.strip("`"): float(value) for name, *_, value in _table("quantity")}
    assert {row["quantity"]: row["mean"] for row in found} == pytest.approx(shown, abs=5e-4)
