"""The figures of the page on fitting are those that the benchmark of fidelity wrote."""

from __future__ import annotations

import json
import re
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"
_DATA = {"iudex-phase1": "shipped", "fitted-scenario.toml": "fitted", "true.toml": "true"}


def test_the_table_of_altered_bosses_is_that_of_its_file() -> None:
    rows = json.loads((DOCS / "results" / "fidelity" / "summary.json").read_text(encoding="utf-8"))["rows"]
    expected = [
        [
            str(row["draw"]),
            _DATA[row["scenario"]],
            *(f"{row[f'{name}_p90']:.3f} ({row[f'{name}_floor_p90']:.3f})" for name in ("boss_place", "boss_heading")),
            f"{100 * row['struck_in_both']:.1f} %",
        ]
        for row in rows
    ]
    page = (DOCS / "fitting.md").read_text(encoding="utf-8")
    section = page.split("## How wrong the simulator is", 1)[1]
    table = re.findall(r"^\| (\d+) \| (\w+) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", section, re.MULTILINE)
    assert [list(row) for row in table] == expected
    lowest, highest = min(row["cpu_s"] for row in rows), max(row["cpu_s"] for row in rows)
    assert f"takes {lowest:.0f} to {highest:.0f} s of CPU time" in section
    # In every draw the true data are at least as near as the fitted ones' order of error, the shipped ones far off.
    for shipped, fitted, true in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
        assert max(true["boss_heading_p90"], fitted["boss_heading_p90"]) < 0.1 * shipped["boss_heading_p90"]
