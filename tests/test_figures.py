"""Figures on the pages are those in the files of results, which commands wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import pytest

from soulsgraph.runs.evaluate import TABLE_1
from soulsgraph.zoo import AGENTS, agent_names
from soulsgraph.zoo.card import agents_table, read_card

PageRows = Callable[[str, str], dict[str, list[str]]]
DOCS = Path(__file__).parents[1] / "docs"
_RESULTS = DOCS / "results"


def _result_tables() -> pd.DataFrame:
    folders = ("seeds-500-519", "seeds-860-869")
    tables = [pd.read_parquet(_RESULTS / folder / "tables" / "seeds.parquet") for folder in folders]
    rates = pd.concat(tables)
    return rates[rates["part"].isin(["a", "b"])]


def test_the_readmes_win_rates_are_those_of_the_reports() -> None:
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8").split("## Results\n", 1)[1]
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


def test_the_page_of_the_zoo_has_the_rates_of_the_cards_and_every_agent_was_played_again() -> None:
    cards = {name: read_card(AGENTS / name) for name in agent_names()}
    assert agents_table(cards.values()) in (DOCS / "zoo.md").read_text(encoding="utf-8")
    verified = json.loads((_RESULTS / "zoo" / "verify.json").read_text(encoding="utf-8"))["agents"]
    assert [one["agent"] for one in verified] == list(cards)
    for one in verified:
        assert one["holds"]
        assert one["changed"] == []
        assert one["card"]["won"] == cards[one["agent"]].reached.won


def test_the_figures_of_own_skills_are_what_compare_wrote() -> None:
    table = (_RESULTS / "own-skills" / "comparison.md").read_text(encoding="utf-8")
    page = (DOCS / "own_skills.md").read_text(encoding="utf-8")
    assert table.strip() in page
    written = json.loads((_RESULTS / "own-skills" / "comparison.json").read_text(encoding="utf-8"))
    assert [agent["seed"] for agent in written["agents"]] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert f"{sum(agent['trained_cpu_s'] for agent in written['agents']):.1f} s of CPU time together" in page
    taken = json.loads((_RESULTS / "pages" / "blocks.json").read_text(encoding="utf-8"))["taken_s"]
    seconds = [value for block, value in taken.items() if block.startswith("docs/own_skills.md:")]
    assert " | ".join(f"{value:.1f}" for value in (*seconds, sum(seconds))) in page


@pytest.mark.parametrize(("file", "above"), [("train", "## Speed\n"), ("train-amd", "On another processor (AMD EPYC,")])
def test_the_speeds_are_those_that_the_benchmark_printed(page_rows: PageRows, file: str, above: str) -> None:
    printed = json.loads((_RESULTS / "speed" / f"{file}.json").read_text(encoding="utf-8"))["results"]
    told = page_rows("findings_speed.md", above)
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


def test_the_differences_between_groups_of_seeds_are_the_reports(page_rows: PageRows) -> None:
    found, seeds = {}, {}
    # The later report has more seeds of one preset.
    for folder in ("seeds-720-739", "seeds-720-759"):
        report = (_RESULTS / folder / "report.md").read_text(encoding="utf-8")
        for line in re.findall(r"^\|.*agree \|$", report, re.M):
            row = [cell.strip() for cell in line.strip("|").split("|")]
            found[row[0], row[1]] = row[4]
            seeds[row[1]] = " and ".join(cell.rpartition(", ")[2] for cell in row[2:4])
    rows = "heal-attack trained, dodge trained", "zero-shot, mid-range start", "dodge and heal-attack fine-tuned"
    told = page_rows("findings.md", "## Updates of our own\n")
    assert len(told) == 3
    for preset, cells in told.items():
        name = preset.strip("`")
        assert [cell.strip("| ") for cell in cells] == [*(found[row, name] for row in rows), seeds[name]], preset


def test_what_a_fleet_learned_is_what_the_example_wrote(page_rows: PageRows) -> None:
    written = (_RESULTS / "fleet" / "learning.md").read_text(encoding="utf-8")
    told = page_rows("findings_fleet.md", "### Dodge trained by a fleet\n")
    assert len(told) == 3
    for row, cells in told.items():
        assert f"| {row} | {' | '.join(cell.strip('| ') for cell in cells)} |" in written


def test_the_fleets_figures_are_those_that_the_benchmark_printed(page_rows: PageRows) -> None:
    printed = json.loads((_RESULTS / "fleet" / "bench.json").read_text(encoding="utf-8"))["results"]
    told = page_rows("findings_fleet.md", "## A fleet\n")
    assert len(told) == 4
    by_name = {row["name"]: row for row in printed}
    for title, cells in told.items():
        row = by_name[title.replace(" at", " paced games at", 1)]
        medians = {name: value["median"] for name, value in row.items() if isinstance(value, dict)}
        expected = [
            f"{row['load']:.1f}",
            f"{medians['share_of_bare_ticks']:.1%}".replace("%", " %"),
            f"{medians['lateness_p99_beyond_bare_ms']:+.1f} ms",
            f"{medians['cpu_ms_a_tick']:.2f} ms",
        ]
        assert [cell.strip("| ") for cell in cells] == expected, title


def test_what_one_game_costs_the_others_is_what_the_benchmark_printed(page_rows: PageRows) -> None:
    printed = json.loads((_RESULTS / "fleet" / "disturbed.json").read_text(encoding="utf-8"))["results"]
    told = page_rows("findings_fleet.md", "### One game that resets or is frozen\n")
    assert len(told) == len(printed) == 2
    for (title, cells), row in zip(told.items(), printed, strict=True):
        assert row["name"].endswith(title)
        expected = [
            f"{one['median']:.1%} ({one['lowest']:.1%} to {one['highest']:.1%})".replace("%", " %")
            for one in (row["others_ticks"], row["learned_a_game"])
        ]
        assert [cell.strip("| ") for cell in cells] == expected, title


def test_what_the_driver_takes_is_what_the_benchmark_printed(page_rows: PageRows) -> None:
    told = page_rows("findings_fleet.md", "### The driver's share\n")
    for file, streams in (("driver", "300"), ("driver-1000", "1,000")):
        printed = json.loads((_RESULTS / "fleet" / f"{file}.json").read_text(encoding="utf-8"))
        bare, gateway, both = printed["results"]
        rates = [1000.0 * one["driven_s"] / (one["chunks"] * one["wall_s"]) for one in bare["measured"]]
        alone = median(one["cpu_s"] * rate for one, rate in zip(bare["measured"], rates, strict=True))
        driver = median(
            1000.0 * one["driver_cpu_s"] * one["driven_s"] / (one["chunks"] * one["wall_s"]) for one in both["measured"]
        )
        beyond = [row["beyond_bare_ms_a_chunk"]["median"] for row in (gateway, both)]
        assert told[streams] == [f"{value:.2f} ms" for value in (alone, *beyond, driver)]
        # It received all that came: ten decisions of each chunk, in the seconds that were measured.
        for one in both["measured"]:
            assert one["received_decisions"] > 9.8 * one["chunks"] * one["wall_s"] / one["driven_s"]


def test_the_figures_of_resets_are_those_that_the_benchmark_printed(page_rows: PageRows) -> None:
    before, now = (
        json.loads((_RESULTS / "resets" / f"{name}.json").read_text(encoding="utf-8"))["results"]
        for name in ("before", "reset")
    )
    told = page_rows("games_driver.md", "`python benchmarks/games.py reset` prints")
    assert len(told) == len(before) == len(now) == 6
    for (title, cells), old, new in zip(told.items(), before, now, strict=True):
        hastened = new["map"] == "stand-in"
        assert title == new["name"].removeprefix("resets ") + (", hastened" if hastened else "")
        assert (old["name"], old["map"]) == (new["name"], new["map"])
        seconds = [row[share]["mean"] for share in ("whole_s", "ours_s") for row in (old, new)]
        expected = [*(f"{one:.2f} s" for one in seconds), f"{seconds[3] / seconds[2]:.0%}".replace("%", " %")]
        assert [cell.strip("| ") for cell in cells] == expected, title


def test_the_chaos_run_that_is_kept_had_every_fault_at_least_five_times(page_rows: PageRows) -> None:
    run = json.loads((_RESULTS / "chaos" / "chaos.json").read_text(encoding="utf-8"))["run"]
    found = [row["fault"] for row in run["faults"]]
    rows = page_rows("guarantees.md", "four things hold")
    assert len(found) >= 100
    assert all(found.count(cells[-1].strip("`| ")) >= 5 for cells in rows.values())
    assert run["replay"] == "the same bits"


def test_how_long_a_fleet_is_away_after_a_fault_is_what_the_chaos_run_measured(page_rows: PageRows) -> None:
    chaos = json.loads((_RESULTS / "chaos" / "chaos.json").read_text(encoding="utf-8"))
    told = page_rows("findings_fleet.md", "until decisions reached the journal again")
    assert len(told) == 8
    for fault, cells in told.items():
        column = "back_s" if fault.startswith("cut") else "seconds"
        taken = [row[column] for row in chaos["run"]["faults"] if row["fault"] == fault]
        assert cells[1:] == [str(len(taken)), f"{median(taken):.1f} s", f"{max(taken):.1f} s"], fault


def test_what_the_page_says_of_onnx_is_what_the_exports_of_the_zoo_wrote() -> None:
    files = {name: _RESULTS / "onnx" / f"{name}.json" for name in agent_names()}
    found = [one for file in files.values() for one in json.loads(file.read_text(encoding="utf-8"))["skills"]]
    assert {one["observations"] for one in found} == {500_000}
    assert sum(one["clear_differing"] for one in found) == 0
    whole, near, other = (sum(one[name] for one in found) for name in ("observations", "near", "near_differing"))
    page = " ".join((DOCS / "exchange.md").read_text(encoding="utf-8").split())
    told = f"{len(found) // 2} skills, {whole:,} observations, none with another action beyond a near tie; "
    assert f"{told}{near:,} near ties, {other:,} of them with another action" in page


def test_what_is_read_back_from_controls_is_what_the_test_counted() -> None:
    counted = json.loads((_RESULTS / "cloning" / "read_back.json").read_text(encoding="utf-8"))
    made, returned = counted["made"], counted["returned"]
    shares = {name.replace("_", "-"): returned[name] / made[name] for name in made}
    lowest = min(shares, key=lambda name: shares[name])
    page = " ".join((DOCS / "cloning.md").read_text(encoding="utf-8").split())
    together = f"{sum(returned.values()) / sum(made.values()):.1%}".replace("%", " %")
    assert f"{together} of all skills' decisions are reconstructed this way" in page
    assert f"The lowest share is {shares.pop(lowest):.1%} for {lowest}".replace("%", " %") in page
    assert set(shares.values()) == {1.0}


def test_what_a_page_of_a_fight_takes_to_draw_is_what_was_measured() -> None:
    measured = json.loads((_RESULTS / "pages" / "drawing.json").read_text(encoding="utf-8"))
    page = " ".join((DOCS / "fight_pages.md").read_text(encoding="utf-8").split())
    p50, p95 = (measured[name] for name in ("p50_ms", "p95_ms"))
    drawn = f"{median(p50):.1f} ms in the median and {median(p95):.1f} ms at the 95th percentile"
    rounds = f"medians of {len(p95)} rounds ({min(p95):.1f} to {max(p95):.1f} ms at the 95th percentile)"
    where = f"Chromium {measured['chromium'].partition('.')[0]} without a graphics card"
    machine = f"on {measured['machine']['cores']} cores that other work kept busy (load {measured['load_average']})"
    assert f"is drawn in the flat view in {drawn}, {rounds}, in {where}, {machine}" in page
    assert measured["ticks"] == 3_000


def test_what_commands_take_to_start_is_what_the_benchmark_printed(page_rows: PageRows) -> None:
    before, now = (
        {row["name"]: row["start_cpu_s"]["median"] for row in json.loads(file.read_text(encoding="utf-8"))["results"]}
        for file in (_RESULTS / "start" / f"{name}.json" for name in ("before", "start"))
    )
    told = page_rows("findings_speed.md", "### What a command takes to start\n")
    assert len(told) > 4
    for name, cells in told.items():
        expected = [f"{before[name]:.2f} s", f"{now[name]:.2f} s", f"{now[name] / before[name]:.2f}"]
        assert [cell.strip("| ") for cell in cells] == expected, name


def test_the_efficiency_of_learners_is_what_the_benchmark_printed(page_rows: PageRows) -> None:
    printed = json.loads((_RESULTS / "efficiency" / "summary.json").read_text(encoding="utf-8"))["results"]
    told = page_rows("findings_speed.md", "## Efficiency\n")
    assert len(told) == len(printed) == 5
    for row in printed:
        (cells,) = (cells for title, cells in told.items() if title.startswith(row["name"]))
        until = [
            "none" if row["decisions"] is None else f"{row['decisions']:,.0f}",
            "none" if row["cpu_s"] is None else f"{row['cpu_s']:.1f}",
        ]
        expected = [f"{row['reached']} of {len(row['seeds'])}", *until, f"{row['trained_cpu_s']:.1f}"]
        assert cells == expected


def test_what_whole_commands_take_is_what_the_benchmark_printed(page_rows: PageRows) -> None:
    printed = json.loads((_RESULTS / "start" / "commands.json").read_text(encoding="utf-8"))
    told = [*page_rows("findings_speed.md", "### What whole commands take\n").values()]
    assert len(told) == len(printed["results"]) == 3
    for cells, row in zip(told, printed["results"], strict=True):
        wall, (cpu, first, second) = row["wall_s"], (row[name] for name in ("cpu_s", "first_line_s", "second_line_s"))
        seconds = [f"{one['median']:.1f} s" for one in (cpu, first, second)]
        spread = f"{wall['lowest']:.1f} to {wall['highest']:.1f}"
        assert cells == [f"{wall['median']:.1f} s", spread, *seconds, f"{row['memory_mib']['median']:.0f} MiB"]
    assert f"at commit {printed['commit'][:7]} (" in (DOCS / "findings_speed.md").read_text(encoding="utf-8")
    best = printed["results"][-1]["wall_s"]["median"]
    assert f"`soulsgraph curriculum` ends after {best:.1f} s" in (DOCS.parent / "README.md").read_text()


def test_the_long_baselines_win_rates_are_those_of_its_report() -> None:
    rates = pd.read_parquet(_RESULTS / "end-to-end-500k" / "tables" / "seeds.parquet")
    rates = rates[rates["label"] == "single end-to-end agent, 500,000 steps"]
    assert [*rates["seed"]] == [*range(820, 830)]
    percent = rates["percent"]
    told = f"it won {percent.median():.1f} % in the median, from {percent.min():.1f} to {percent.max():.1f} %"
    assert told in (DOCS / "findings.md").read_text(encoding="utf-8")


def test_what_was_played_in_running_games_is_what_evaluate_saved(page_rows: PageRows) -> None:
    told = page_rows("findings_fleet.md", "hundred seeds of fights, with mid-range starts in Phase 1")
    assert len(told) == 9
    for title, (shown, link) in told.items():
        file = re.search(r"\(results/(.*)\)", link)
        assert file
        found = json.loads((_RESULTS / file[1]).read_text(encoding="utf-8"))
        if title.startswith("a whole reading"):
            shares = [[row["cpu_ms"][name] for row in found["results"]] for name in ("median", "p99")]
            lowest, highest = ([f"{each(share):.3f}" for share in shares] for each in (min, max))
            assert shown == (
                f"three rounds: median {lowest[0]} to {highest[0]} ms of CPU time, p99 {lowest[1]} to {highest[1]}"
            )
        elif "reading" in title:
            (read,) = (game["timing"]["sections"]["read"] for game in found["games"])
            assert shown == f"median {read['p50_ms']:.1f} ms, p99 {read['p99_ms']:.1f}"
        elif "control loop" in title:
            assert shown == _control_loops([game["timing"] for game in found["games"]])
            assert title.endswith(f"{sum(game['timing']['ticks'] for game in found['games']):,} ticks")
        else:
            assert shown == f"{found['wins']} of {found['episodes']}"


def _control_loops(timings: list[dict[str, Any]]) -> str:
    """Return how punctual games were, as the page says it: of each figure that of the worst game."""
    p50, p99, highest = (max(one["lateness"][name] for one in timings) for name in ("p50_ms", "p99_ms", "max_ms"))
    count = sum(one["overruns"] for one in timings)
    overruns = f"{count or 'no'} overrun{'s' * (count > 1)}"
    rate_hz = min(one["rate_hz"] for one in timings)
    return f"{rate_hz:.2f} Hz, late by p50 {p50:.2f}, p99 {p99:.1f}, max {highest:.1f} ms; {overruns}"
