"""The page of continual learning: its methods are those of the code, its results those of the reports that are kept.

`pytest tests/platform/continual/test_page.py --rewrite-pages` writes both tables anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from soulsgraph.continual.methods import METHODS
from soulsgraph.continual.methods.method import MethodOptions
from soulsgraph.project.listing import methods
from soulsgraph.results.statistics import Interval
from soulsgraph.results.tables import markdown_table, with_interval

ROOT = Path(__file__).parents[3]
PAGE, KEPT = ROOT / "docs" / "continual.md", ROOT / "docs" / "results" / "continual"
SHOWN = ("average_performance", "forgetting", "forward_transfer")
NOTHING = "No results are kept yet."


def methods_table() -> str:
    """Return the table of methods as the page has it."""
    listed = methods()[0]
    return markdown_table(listed.headings, listed.rows, numbers=False)


def results_table(folder: Path) -> str:
    """Return the table of all reports below a folder, a row for each method of each."""
    rows = [row for path in sorted(folder.glob("*/report.json")) for row in _rows(path)]
    headings = ("report", "method", "seeds", *(name.replace("_", " ") for name in SHOWN), "commit")
    return markdown_table(headings, rows) if rows else NOTHING


def _rows(path: Path) -> Iterator[tuple[str, ...]]:
    report = json.loads(path.read_text(encoding="utf-8"))
    scores = {(one["method"], one["metric"]): one for one in report["scores"]}
    link = f"[{path.parent.name}](results/continual/{path.parent.name}/report.md)"
    for method in report["methods"]:
        cells = [_cell(scores.get((method, name))) for name in SHOWN]
        seeds = str(scores[method, SHOWN[0]]["seeds"])
        at = (report.get("trained_at") or [report["commit"] or "unknown"])[-1]
        commit, _, modified = at.partition("-")
        yield (link, method, seeds, *cells, commit[:7] + (modified and f" {modified}"))


def _cell(one: dict[str, Any] | None) -> str:
    if one is None or one["mean"] is None:
        return "-"
    bounds = (float("inf") if bound is None else bound for bound in (one["mean_low"], one["mean_high"]))
    return with_interval(one["mean"], Interval(*bounds), 3)


def written(text: str) -> str:
    """Return the page with both tables as they should be."""
    for heading, table in (("## Methods", methods_table()), ("## A result", results_table(KEPT))):
        before, found, part = text.partition(f"{heading}\n")
        assert found, heading
        block = re.search(rf"(?:^\|.*\n)+|^{re.escape(NOTHING)}\n", part, re.M)
        assert block, heading
        text = before + found + part[: block.start()] + table + "\n" + part[block.end() :]
    return text


def test_the_methods_and_results_of_the_page_are_those_of_the_code_and_of_the_kept_reports(
    request: pytest.FixtureRequest,
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    if request.config.getoption("rewrite_pages"):
        PAGE.write_text(written(text), encoding="utf-8")
    else:
        assert text == written(text), __doc__


def test_every_method_with_coefficients_had_three_tries_of_which_the_best_is_the_default() -> None:
    tries: dict[str, list[tuple[float, MethodOptions]]] = {}
    for file in sorted((ROOT / "docs" / "results" / "continual-choosing").glob("*/plan.json")):
        plan = json.loads(file.read_text(encoding="utf-8"))["plan"]
        report = json.loads(file.with_name("report.json").read_text(encoding="utf-8"))
        means = {one["method"]: one["mean"] for one in report["scores"] if one["metric"] == "average_performance"}
        if plan["seeds"] == [100] and plan.get("graph", "paper") == "paper":
            assert (plan["sequence"], plan["skills"]) == ("S20-choose", ["dodge", "heal_attack"])
            for method in plan["methods"]:
                if METHODS[method].coefficients:
                    tries.setdefault(method, []).append((means[method], MethodOptions(**plan["options"])))
    assert {name: len(those) for name, those in tries.items()} == {
        name: 3 for name, method in METHODS.items() if method.coefficients
    }
    for name, those in tries.items():
        _, best = max(those, key=lambda one: one[0])
        # Three methods share the reserve's share, which replay and base chose.
        own = set(METHODS[name].coefficients) - ({"reserve_share"} if name == "clonex" else set())
        assert {key: getattr(best, key) for key in own} == {key: getattr(MethodOptions(), key) for key in own}, name
