"""The figures of the page on fitting are those that the benchmark of fidelity wrote."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[3] / "docs"


def _cell(rows: list[dict[str, Any]], name: str) -> str:
    errors = ", ".join(f"{row[f'{name}_p90']:.3f}" for row in rows)
    return f"{errors} ({rows[-1][f'{name}_floor_p90']:.3f})"


def test_the_table_of_altered_bosses_is_that_of_its_file() -> None:
    rows = json.loads((DOCS / "results" / "fidelity" / "summary.json").read_text(encoding="utf-8"))["rows"]
    draws = [rows[first : first + 3] for first in range(0, len(rows), 3)]
    for draw in draws:
        assert [row["scenario"] for row in draw] == ["iudex-phase1", "fitted-scenario.toml", "true.toml"]
    expected = [
        [
            str(draw[0]["draw"]),
            _cell(draw, "boss_place"),
            _cell(draw, "boss_heading"),
            ", ".join(f"{100 * row['struck_in_both']:.0f}" for row in draw),
        ]
        for draw in draws
    ]
    section = (DOCS / "fitting.md").read_text(encoding="utf-8").split("## How wrong the simulator is", 1)[1]
    table = re.findall(r"^\| (\d+) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", section, re.MULTILINE)
    assert [list(row) for row in table] == expected
    seconds = [row["cpu_s"] for row in rows]
    assert f"takes {min(seconds):.0f} to {max(seconds):.0f} s of CPU time" in section
