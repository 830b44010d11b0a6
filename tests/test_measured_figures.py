"""Tables of speed, of what an option costs, of scripts and of the first run are those of their files.

The two examples that write some of these files are run here at a small scale.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import pytest

from soulsgraph_envs.core.config import present_names

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
_RESULTS = DOCS / "results"

Rows = list[list[str]]


def _page(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def _tables(page: str, above: str) -> list[Rows]:
    """Return the cells of every table below some words of a page, without the headings."""
    found = re.findall(r"(?:^\|.*\n)+", _page(page).split(above, 1)[1], re.MULTILINE)
    lines = [table.splitlines()[2:] for table in found]
    return [[[cell.strip() for cell in line.strip().split("|")[1:-1]] for line in table] for table in lines]


def _read(file: str) -> Any:
    return json.loads((_RESULTS / file).read_text(encoding="utf-8"))


def _commit(file: str) -> str:
    return f"commit {_read(file)['commit'][:7]}"


def _interval(row: Mapping[str, Any]) -> str:
    return f"{row['mean']:z.1f} ({row['low']:z.1f} to {row['high']:z.1f})"


def _runners() -> Rows:
    results, rows = _read("speed/runners.json")["results"], []
    for alone, *remote in (results[first : first + 3] for first in range(0, len(results), 3)):
        assert [one["name"] for one in (alone, *remote)] == ["no env runner", "1 env runner", "2 env runners"]
        shares = [one["driver_cpu"] for one in remote]
        cells = [f"{one['median']:.2f} ({one['lowest']:.2f} to {one['highest']:.2f})" for one in shares]
        rows.append([f"{alone['skill']}, `{alone['preset']}`", f"{alone['per_cpu_s']['median']:,.0f}", *cells])
    return rows


def _staleness() -> Rows:
    rows = []
    for row in _read("fleet/staleness.json")["results"]:
        ages = [f"{row['age'][skill]:.1f}" for skill in ("dodge", "heal_attack")]
        rows.append([str(row["delay"]), *ages, _interval(row["percent"]), _interval(row["difference"])])
    return rows


def _speed() -> Rows:
    lanes, memory, *_ = _read("speed/sim.json")["results"]
    tick, composed = _read("speed/tick.json")["results"]
    rates = [f"{row['per_cpu_s']['median']:,.0f} lane ticks" for row in (lanes, memory, composed)]
    taken = [f"{tick['cpu_ms'][name]:.3f} ms" for name in ("median", "p99")]
    return [
        ["bare simulator, 256 lanes, random controls, resets included", f"{rates[0]} (0.1 s) per CPU second"],
        ["reading and writing those lanes' memory once a frame, and no more", f"{rates[1]} per CPU second"],
        ["composed agent, 256 lanes", f"{rates[2]} per CPU second"],
        ["one tick of the composed agent, 1 lane", f"median {taken[0]}, p99 {taken[1]} of CPU time"],
    ]


def _thousand_games() -> Rows:
    """Return what parts of a fleet take of a core for a game's chunk a second, and how many games fill one."""
    _, gateway, both = _read("fleet/driver-1000.json")["results"]
    few = _read("fleet/driver.json")["results"][2]
    updates = 7.0 * 1000.0 / _dodge_steps_per_cpu_s()
    driver, driver_of_thousand = (_driver_ms_a_chunk(one) for one in (few, both))
    core = gateway["cores"]["median"]

    def full(share: float) -> str:
        return f"{round(1000.0 / share, -2):,.0f}"

    return [
        ["the gateway's one thread", f"{core:.2f} of a core", f"{full(core)} games"],
        [
            "updates, at the measured [speed](findings_speed.md#speed)",
            f"{updates:.2f} of a core",
            f"{full(updates)} games, if they ran alone",
        ],
        [
            "the driver's fetching, decoding and storing",
            f"{driver:.2f} of a core, or {driver_of_thousand:.2f}",
            f"{full(driver)} games, if they ran alone, or {full(driver_of_thousand)}",
        ],
        [
            "the driver's process, both together",
            f"{updates + driver:.2f} of a core, or {updates + driver_of_thousand:.2f}",
            f"{full(updates + driver)} games, or {full(updates + driver_of_thousand)}",
        ],
        ["a gigabit line", "160 Mbit/s", "6,000 games"],
    ]


def _dodge_steps_per_cpu_s() -> float:
    results = _read("speed/train.json")["results"]
    (row,) = (one for one in results if (one["name"], one["skill"], one["lanes"]) == ("soulsgraph", "dodge", 32))
    return float(row["per_cpu_s"]["median"])


def _driver_ms_a_chunk(row: Mapping[str, Any]) -> float:
    rounds = [
        (1000.0 * one["driver_cpu_s"] * one["driven_s"], one["chunks"] * one["wall_s"]) for one in row["measured"]
    ]
    return float(median(spent / chunks for spent, chunks in rounds))


def _scripts() -> Rows:
    rows = []
    for scenario, row in _read("scripts/scripts.json")["scenarios"].items():
        wins, striking = (row[f"{name}_wins_percent"] for name in ("perfect", "random_dodging_perfect_striking"))
        seconds = [f"{row[f'{name}_s']:.0f} s" for name in ("perfect_win", "random_dodging_lasts", "no_dodging_lasts")]
        rows.append([f"`{scenario}`", f"{wins:.1f} %", *seconds, f"{striking:.1f} %"])
    return rows


_TABLES: list[tuple[str, str, Callable[[], Rows]]] = [
    ("findings_speed.md", "Not reached on either processor.\n", _speed),
    ("findings_speed.md", "## Env runners\n", _runners),
    ("findings_speed.md", "Cost of stale weights", _staleness),
    ("findings_fleet.md", "On paper, 1,000 PCs", _thousand_games),
    ("calibration.md", "**Margit**", _scripts),
]


@pytest.mark.parametrize(("page", "above", "rows"), _TABLES, ids=[rows.__name__.strip("_") for *_, rows in _TABLES])
def test_a_table_is_what_its_files_say(page: str, above: str, rows: Callable[[], Rows]) -> None:
    assert _tables(page, above)[0] == rows()


_OPTIONS = "options/options.json"


def test_what_an_option_costs_is_what_the_example_measured() -> None:
    measured = _read(_OPTIONS)
    results, tables = measured["results"], _tables("learning_options.md", "# The learner: which target")
    # Where nothing is measured the page has words.
    told = {
        row[0].strip("`"): row[-1] for table in tables for row in table if len(row) > 3 and re.search(r"\d", row[-1])
    }
    costs = {name: f"{one['sample_us']:.0f} + {one['update_us']:,.0f}" for name, one in present_names(results).items()}
    by_autograd, vanilla = costs.pop("none of these, by autograd").partition(" + ")[2], costs["none of these"]
    costs["n_step"] += f" ({results['n_step']['options']['n_step']} steps)"
    costs["quantiles"] += f" ({results['quantiles']['options']['quantiles']} quantiles)"
    assert told == costs
    page, load = " ".join(_page("learning_options.md").split()), measured["load"]
    assert f"Vanilla DQN takes {vanilla}." in page
    assert f"vanilla DQN itself takes {by_autograd}." in page
    assert f"{_commit(_OPTIONS)}, load {load:.1f} at the start" in page


def _of_speed() -> list[str]:
    train, amd = (_read(f"speed/{name}.json") for name in ("train", "train-amd"))
    assert _commit("speed/sim.json") == _commit("speed/tick.json") == _commit("speed/train.json")
    return [
        f"at {_commit('speed/train.json')} on two cores (Intel Xeon, {train['vector_bits']}-bit vectors), "
        f"load {train['load']:.1f} at the start",
        f"(AMD EPYC, {amd['vector_bits']}-bit vectors, two cores, {_commit('speed/train-amd.json')}, other work "
        f"beside, load {amd['load']:.0f} at the start",
    ]


def _of_starts() -> list[str]:
    before, now, idle = (
        {row["name"]: row["start_cpu_s"]["median"] for row in _read(f"start/{name}.json")["results"]}
        for name in ("before", "start", "idle")
    )
    both = [name for name in before if name in now and name.endswith("--help")]
    together = sum(now[name] for name in both) / sum(before[name] for name in both)
    highest = max(now[name] / before[name] for name in both)
    return [
        f"{_commit('start/start.json')} beside {_read('start/before.json')['commit']}",
        f"take {together:.2f} of the time before, the highest ratio is {highest:.2f}.",
        f"(load {_read('start/idle.json')['load']:.1f}, {_commit('start/idle.json')}, ",
        f"`--help` takes {idle['--help']:.2f} CPU seconds, and no command's help more than {max(idle.values()):.2f}.",
    ]


def _of_runners() -> list[str]:
    results = _read("speed/runners.json")["results"]
    rates = [[one["per_wall_s"]["median"] for one in results[first : first + 3]] for first in range(0, len(results), 3)]
    changes = [100.0 * (rate / alone - 1.0) for alone, *remote in rates for rate in remote]
    load = _read("speed/runners.json")["load"]
    return [
        f"at {_commit('speed/runners.json')} on two cores with other work beside, load {load:.1f} at the start",
        f"changed by between {min(changes):.0f} % and {max(changes):+.0f} %",
    ]


def _of_a_fleet() -> list[str]:
    bare, gateway, _ = _read("fleet/driver-1000.json")["results"]
    cores = [row["cores"]["median"] for row in (gateway, bare)]
    latest = [one["queue_age_p99_ms"] / 1000.0 for one in gateway["measured"]]
    assert all(one["refused_decisions"] == 0 for one in gateway["measured"])
    before = _read("fleet/driver-1000-before.json")["results"][2]["beyond_bare_ms_a_chunk"]["median"]
    amd = _read("fleet/driver-1000-amd.json")["results"][2]["beyond_bare_ms_a_chunk"]["median"]
    frozen = _read("fleet/disturbed.json")["results"][1]["reported_after_s"]
    return [
        f"the gateway takes {cores[0]:.2f} of a core, a bare gRPC server with the same messages {cores[1]:.2f}: "
        f"{gateway['to_bare']['median']:.2f} times ([{_commit('fleet/driver-1000.json')}]",
        f"after {min(latest):.2f} to {max(latest):.2f} s (p99).",
        f"it was {before:.2f} ms at {_commit('fleet/driver-1000-before.json')}",
        f"On an AMD EPYC it was {amd:.2f} ms at {_commit('fleet/driver-1000-amd.json')}",
        f"reported by name after {frozen['lowest']:.1f} to {frozen['highest']:.1f} s.",
    ]


def _of_scripts() -> list[str]:
    scripts = _read("scripts/scripts.json")
    whole = {name: row for name, row in scripts["scenarios"].items() if name != "iudex-phase1"}
    assert {row[f"{one}_wins_percent"] for row in whole.values() for one in ("random_play", "attack_spam")} == {0.0}
    won = {name: row["striking_without_a_dodge_wins_percent"] for name, row in whole.items()}
    assert [name for name, percent in won.items() if percent] == ["iudex-full"]
    return [
        f"Scripts, {scripts['fights']} fights each",
        f"striking without a dodge wins {won['iudex-full']:.1f} % of `iudex-full` and none of the others.",
    ]


_SENTENCES = [
    ("findings_speed.md", _of_speed),
    ("findings_speed.md", _of_starts),
    ("findings_speed.md", _of_runners),
    ("findings_fleet.md", _of_a_fleet),
    ("calibration.md", _of_scripts),
]


@pytest.mark.parametrize(
    ("page", "texts"), _SENTENCES, ids=[texts.__name__.removeprefix("_") for _, texts in _SENTENCES]
)
def test_a_figure_in_the_text_is_what_its_file_says(page: str, texts: Callable[[], list[str]]) -> None:
    text = " ".join(_page(page).split())
    assert [one for one in texts() if one not in text] == []


def _example(name: str, folder: str = "examples") -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / folder / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_scripts_fight_and_what_they_achieve_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts, out = _example("measure_scripts", "benchmarks"), tmp_path / "scripts"
    monkeypatch.setattr("sys.argv", ["measure_scripts", "--fights", "20", "--out", str(out)])
    scripts.main()
    found, kept = json.loads(out.with_suffix(".json").read_text(encoding="utf-8")), _read("scripts/scripts.json")
    assert found.keys() == kept.keys()
    assert list(found["scenarios"]) == list(kept["scenarios"]) == list(scripts.SCENARIOS)
    assert found["scenarios"]["iudex-phase1"]["perfect_wins_percent"] >= 80.0


@pytest.mark.slow
def test_the_cost_of_every_option_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options, out = _example("measure_options"), tmp_path / "options"
    small = "--rounds", "2", "--seconds", "0.01", "--decisions", "600"
    monkeypatch.setattr("sys.argv", ["measure_options", *small, "--out", str(out)])
    options.main()
    found, kept = json.loads(out.with_suffix(".json").read_text(encoding="utf-8")), _read(_OPTIONS)
    assert found.keys() == kept.keys()
    assert list(found["results"]) == list(present_names(kept["results"])) == list(options.OPTIONS)
    assert all(one["sample_us"] > 0.0 < one["update_us"] for one in found["results"].values())
    assert out.with_suffix(".md").read_text(encoding="utf-8").count("\n") == 2 + len(options.OPTIONS)
