"""Pages agree with code and results: settings, writes, misbehaviours, keys, unverified entries, win rates."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import pandas as pd
import pytest

from soulsgraph.evaluate import TABLE_1
from soulsgraph_envs.core.data_files import shipped_names
from soulsgraph_envs.drivers.keyboard.device import load_bindings
from soulsgraph_envs.drivers.memory.address_map import load_address_map
from soulsgraph_envs.drivers.realtime.link import GameSettings
from soulsgraph_envs.drivers.realtime.operations import ELDENGYM_OPERATIONS, OPERATIONS, Operation
from soulsgraph_envs.standin.program import KINDS

_DOCS = Path(__file__).parents[1] / "docs"


def _rows(page: str, above: str) -> dict[str, list[str]]:
    """Return the rows of the first table after a heading or phrase of a page, by the code in their first cell."""
    text = (_DOCS / page).read_text(encoding="utf-8").split(above, 1)[1]
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[0].splitlines()[2:]]
    return {row[0].strip("`| "): row[1:] for row in rows}


def test_every_key_of_the_games_file_is_told() -> None:
    assert list(_rows("real_games.md", "# The games file\n")) == [field.name for field in fields(GameSettings)]


@pytest.mark.parametrize(
    ("above", "operations"),
    [("# What is written\n", OPERATIONS), ("by the names of its attributes,", ELDENGYM_OPERATIONS)],
)
def test_every_write_operation_is_told_with_its_fields(above: str, operations: Mapping[str, Operation]) -> None:
    told = _rows("real_games.md", above)
    assert list(told) == list(operations)
    for name, (purpose, written, optional) in told.items():
        operation = operations[name]
        assert purpose == operation.purpose
        assert tuple(re.findall(r"`(\w+)`", written)) == operation.fields
        assert (optional.strip("| ") == "yes") == operation.optional


def test_every_misbehaviour_of_the_stand_in_is_told() -> None:
    assert set(_rows("real_games.md", "# When the stand-in misbehaves\n")) == set(KINDS)


def test_every_unverified_entry_is_on_the_checklist_with_its_fallback() -> None:
    maps = [load_address_map(name) for name in shipped_names("address map")]
    unverified = {
        name: one.entry(name).fallback for one in maps for name in one.readable() if not one.entry(name).verified
    }
    told = _rows("game_pc.md", "# Entries that are not verified\n")
    assert {name: cells[-1].strip("| ") for name, cells in told.items()} == unverified


def test_the_keys_to_set_are_those_of_the_bindings() -> None:
    bindings = load_bindings("dark-souls-3")
    text = (_DOCS / "game_pc.md").read_text(encoding="utf-8").split("# Keys\n", 1)[1].split("\n\nThey", 1)[0]
    cells = [cell.strip() for line in text.splitlines()[3:] for cell in line.strip("|").split(" | ")]
    keys = {key for cell in cells[1::2] for key in cell.strip("| ").split()}
    assert keys == set(bindings.keys)


def _result_tables() -> pd.DataFrame:
    folders = ("seeds-500-519", "seeds-400-409")
    tables = [pd.read_parquet(_DOCS / "results" / folder / "tables" / "seeds.parquet") for folder in folders]
    rates = pd.concat(tables)
    return rates[rates["part"].isin(["a", "b"])]


def test_the_readmes_win_rates_are_those_of_the_reports() -> None:
    text = (_DOCS.parent / "README.md").read_text(encoding="utf-8").split("## Results\n", 1)[1]
    heading, _, *lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*", text, re.MULTILINE)[:10]
    ]
    rates = _result_tables()
    assert [line[0] for line in lines] == [row.label for row in TABLE_1]
    groups = re.findall(r"`(\w+)`, (\d+)-(\d+)", " ".join(heading))
    assert len(groups) == len(heading) - 3 > 0
    for column, (name, first, last) in enumerate(groups, 3):
        of_seeds = rates[(rates["reproduction"] == name) & rates["seed"].between(int(first), int(last))]
        assert (of_seeds["seed"].min(), of_seeds["seed"].max()) == (int(first), int(last))
        for line in lines:
            percent = of_seeds[of_seeds["label"] == line[0]]["percent"]
            expected = "" if percent.empty else f"{percent.median():.1f} ({percent.min():.1f}-{percent.max():.1f})"
            assert line[column] == expected, (name, line[0])


def test_every_link_between_pages_leads_somewhere() -> None:
    root = _DOCS.parent
    pages = [*root.glob("*.md"), *_DOCS.glob("*.md"), _DOCS / "results" / "README.md"]
    links = [
        (page, link.partition("#")[0])
        for page in pages
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
        if not link.startswith(("http", "#"))
    ]
    assert len(links) > 50
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []


def test_the_speeds_are_those_that_the_benchmark_printed() -> None:
    printed = json.loads((_DOCS / "results" / "speed" / "train.json").read_text(encoding="utf-8"))["results"]
    told = _rows("findings.md", "## Speed\n")
    assert len(told) == 4
    for title, cells in told.items():
        skill, lanes = title.split(", ")
        medians = {
            row["name"]: row["per_cpu_s"]["median"]
            for row in printed
            if (row["skill"], row["lanes"]) == (skill, int(lanes))
        }
        ours, theirs = medians["soulsgraph"], medians["stable-baselines3"]
        stock = f"{medians['stock RLlib DQN']:.0f}" if lanes == "1" else ""
        bare = f"{medians['limit: BLAS products']:,.0f}"
        expected = [f"{ours:,.0f}", f"{theirs:,.0f}", f"{ours / theirs:.1f}", stock, bare]
        assert [cell.strip("| ") for cell in cells] == expected, title
