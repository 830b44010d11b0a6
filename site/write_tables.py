"""Write the tables of README and docs from the files of results, and the pages that are made of the code.

    python site/write_tables.py            # every table below a mark `<!-- table: NAME -->`

A table's heading and the titles of its rows stay as they are on the page; what this writes are the rows' cells. Each
function here makes the rows of one table, from those on the page where their titles say what they are about.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from calibration import page_rows
from environment_pages import environment_pages
from misspecified_draws import page_rows as page_rows_of_misspecified
from soulsgraph.project import listing
from soulsgraph.recordings.format import FIGHT_COLUMNS, MEANING, UNIT
from soulsgraph.results.statistics import Interval, mean_interval
from soulsgraph.results.tables import with_interval
from soulsgraph.tracking.metrics import METRICS
from soulsgraph.zoo import AGENTS, agent_names
from soulsgraph.zoo.card import agents_table, read_card
from soulsgraph_envs.continual.families import load_family
from soulsgraph_envs.core.files import write_text
from toml_fields import toml_fields
from whole_draws import page_rows as page_rows_of_whole

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"

Rows = list[list[str]]


def _read(file: str) -> Any:
    return json.loads((RESULTS / file).read_text(encoding="utf-8"))


def _frame(folder: str, table: str) -> pd.DataFrame:
    return pd.read_parquet(RESULTS / folder / "tables" / f"{table}.parquet")


def _interval(row: Mapping[str, Any], name: str = "", scale: float = 1.0) -> str:
    """Return a mean with its interval: of the columns `name`, `name_low` and `name_high`, or of plain ones."""
    keys = (name, f"{name}_low", f"{name}_high") if name else ("mean", "low", "high")
    mean, low, high = (scale * row[key] for key in keys)
    return f"{mean:z.1f} ({low:z.1f} to {high:z.1f})"


def _share(value: float, digits: int = 1) -> str:
    return f"{value:.{digits}%}".replace("%", " %")


def _by(rows: Iterable[dict[str, Any]], name: str) -> dict[Any, dict[str, Any]]:
    return {row[name]: row for row in rows}


def _cells(markdown: str) -> Rows:
    """Return the cells of a table in Markdown, without its heading."""
    return [[cell.strip() for cell in line.strip().split("|")[1:-1]] for line in markdown.splitlines()[2:]]


# README and the zoo


def win_rates(rows: Rows) -> Rows:
    tables = [_frame(folder, "seeds") for folder in ("seeds-500-519", "seeds-860-869")]
    rates = pd.concat(tables).query("part in ('a', 'b')")
    made = []
    for title, paper, expected, *_ in rows:
        cells = []
        for preset, first, last in (("paper", 500, 519), ("best", 860, 869)):
            seeds = rates[(rates["reproduction"] == preset) & rates["seed"].between(first, last)]
            percent = seeds[seeds["label"] == title]["percent"]
            cells.append("" if percent.empty else f"{percent.median():.1f} ({percent.min():.1f}-{percent.max():.1f})")
        made.append([title, paper, expected, *cells])
    return made


def whole_fights(rows: Rows) -> Rows:
    kept, made = _read("held-out/whole.json"), []
    for title, what, *_ in rows:
        scenario = title.strip("`")
        percent = [100 * row["wins"] / row["episodes"] for row in kept["agents"] if row["scenario"] == scenario]
        agents = f"{median(percent):.1f} ({min(percent):.1f}-{max(percent):.1f})"
        made.append([title, what, f"{kept['script_percent'][scenario]:.1f}", agents])
    return made


def end_to_end_seeds(rows: Rows) -> Rows:
    """Return how many seeds win at most so many percent, and more than those of the row before."""
    agents, made, before = _read("held-out/end-to-end.json")["agents"], [], -1.0
    percent = [100 * row["wins"] / row["episodes"] for row in agents]
    for title, *_ in rows:
        most = float(title.split()[-1])
        made.append([title, str(sum(before < one <= most for one in percent))])
        before = most
    return made


def imported_dodges(_: Rows) -> Rows:
    beside = {"scripts": "scripts", "own": "the agent's skills"}
    return [
        [
            f"{row['by']}, seed {row['seed']}",
            beside[row["trained_among"]],
            f"{row['return_scripts']:.1f}",
            f"{row['return_own']:.1f}",
            f"{row['wins'] / 4:.1f}",
        ]
        for row in _read("imported-dodge.json")["dodges"]
    ]


def zoo(_: Rows) -> Rows:
    return _cells(agents_table(read_card(AGENTS / name) for name in agent_names()))


def own_skills(_: Rows) -> Rows:
    return _cells((RESULTS / "own-skills" / "comparison.md").read_text(encoding="utf-8"))


# Findings: speed


def speed_of_training(rows: Rows) -> Rows:
    medians: dict[str, dict[str, float]] = {}
    for row in _read("speed/train.json")["results"]:
        medians.setdefault(f"{row['skill']}, {row['lanes']}", {})[row["name"]] = row["per_cpu_s"]["median"]
    made = []
    for title, *_ in rows:
        found = medians[title]
        ours, theirs = found["soulsgraph"], found["stable-baselines3"]
        stock = f"{found['stock RLlib DQN']:.0f}" if title.endswith(", 1") else ""
        bare = f"{found['limit: BLAS products']:,.0f}"
        made.append([title, f"{ours:,.0f}", f"{theirs:,.0f}", f"{ours / theirs:.1f}", stock, bare])
    return made


def efficiency(rows: Rows) -> Rows:
    made = []
    for row in _read("efficiency/summary.json")["results"]:
        (title,) = (title for title, *_ in rows if title.strip("`").startswith(row["name"]))
        decisions = "none" if row["decisions"] is None else f"{row['decisions']:,.0f}"
        cpu = "none" if row["cpu_s"] is None else f"{row['cpu_s']:.1f}"
        reached = f"{row['reached']} of {len(row['seeds'])}"
        made.append([title, reached, decisions, cpu, f"{row['trained_cpu_s']:.1f}"])
    return made


def whole_commands(rows: Rows) -> Rows:
    made = []
    for (title, *_), row in zip(rows, _read("start/commands.json")["results"], strict=True):
        wall = row["wall_s"]
        seconds = [f"{row[name]['median']:.1f} s" for name in ("cpu_s", "first_line_s", "second_line_s")]
        spread = f"{wall['lowest']:.1f} to {wall['highest']:.1f}"
        made.append([title, f"{wall['median']:.1f} s", spread, *seconds, f"{row['memory_mib']['median']:.0f} MiB"])
    return made


def speed_of_the_simulator(_: Rows) -> Rows:
    lanes, memory, *_ = _read("speed/sim.json")["results"]
    tick, composed = _read("speed/tick.json")["results"]
    rates = [f"{row['per_cpu_s']['median']:,.0f} ticks" for row in (lanes, memory, composed)]
    taken = [f"{tick['cpu_ms'][name]:.3f} ms" for name in ("median", "p99")]
    return [
        ["bare simulator, 256 parallel envs, random controls, resets included", f"{rates[0]} (0.1 s) per CPU second"],
        ["reading and writing their memory once a frame, and no more", f"{rates[1]} per CPU second"],
        ["composed agent, 256 parallel envs", f"{rates[2]} per CPU second"],
        ["one tick of the composed agent, alone", f"median {taken[0]}, p99 {taken[1]} of CPU time"],
    ]


def env_runners(_: Rows) -> Rows:
    results, rows = _read("speed/runners.json")["results"], []
    for alone, *remote in (results[first : first + 3] for first in range(0, len(results), 3)):
        assert [one["name"] for one in (alone, *remote)] == ["no env runner", "1 env runner", "2 env runners"]
        shares = [one["driver_cpu"] for one in remote]
        cells = [f"{one['median']:.2f} ({one['lowest']:.2f} to {one['highest']:.2f})" for one in shares]
        rows.append([f"{alone['skill']}, `{alone['preset']}`", f"{alone['per_cpu_s']['median']:,.0f}", *cells])
    return rows


def stale_weights(_: Rows) -> Rows:
    rows = []
    for row in _read("fleet/staleness.json")["results"]:
        ages = [f"{row['age'][skill]:.1f}" for skill in ("dodge", "heal_attack")]
        rows.append([str(row["delay"]), *ages, _interval(row["percent"]), _interval(row["difference"])])
    return rows


# Findings: a fleet


def learned_by_a_fleet(rows: Rows) -> Rows:
    found = {row[0]: row for row in _cells((RESULTS / "fleet" / "learning.md").read_text(encoding="utf-8"))}
    return [found[title] for title, *_ in rows]


def paced_games(rows: Rows) -> Rows:
    found, made = _by(_read("fleet/bench.json")["results"], "name"), []
    for title, *_ in rows:
        row = found[title.replace(" at", " paced games at", 1)]
        share, late, cpu = (
            row[name]["median"] for name in ("share_of_bare_ticks", "lateness_p99_beyond_bare_ms", "cpu_ms_a_tick")
        )
        made.append([title, f"{row['load']:.1f}", _share(share), f"{late:+.1f} ms", f"{cpu:.2f} ms"])
    return made


def one_game_disturbed(rows: Rows) -> Rows:
    made = []
    for (title, *_), row in zip(rows, _read("fleet/disturbed.json")["results"], strict=True):
        cells = [
            f"{_share(one['median'])} ({_share(one['lowest'])} to {_share(one['highest'])})"
            for one in (row["others_ticks"], row["learned_a_game"])
        ]
        made.append([title, *cells])
    return made


def times_away(rows: Rows) -> Rows:
    faults, made = _read("chaos/chaos.json")["run"]["faults"], []
    for title, words, *_ in rows:
        name = title.strip("`")
        column = "back_s" if name.startswith("cut") else "seconds"
        taken = [row[column] for row in faults if row["fault"] == name]
        made.append([title, words, str(len(taken)), f"{median(taken):.1f} s", f"{max(taken):.1f} s"])
    return made


def thousand_games(_: Rows) -> Rows:
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
            "updates, at the measured [speed](#speed)",
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


def running_games(rows: Rows) -> Rows:
    made = []
    for title, _, link in rows:
        (file,) = re.findall(r"\(results/(.*)\)", link)
        found = _read(file)
        if title.startswith("a whole reading"):
            shares = [[row["cpu_ms"][name] for row in found["results"]] for name in ("median", "p99")]
            lowest, highest = ([f"{each(share):.3f}" for share in shares] for each in (min, max))
            cell = f"three rounds: median {lowest[0]} to {highest[0]} ms of CPU time, p99 {lowest[1]} to {highest[1]}"
        elif "control loop" in title:
            cell = _control_loops([game["timing"] for game in found["games"]])
        else:
            cell = f"{found['wins']} of {found['episodes']}"
        made.append([title, cell, link])
    return made


def _control_loops(timings: list[dict[str, Any]]) -> str:
    """Return how punctual games were: of each figure that of the worst game."""
    p50, p99, highest = (max(one["lateness"][name] for one in timings) for name in ("p50_ms", "p99_ms", "max_ms"))
    count = sum(one["overruns"] for one in timings)
    overruns = f"{count or 'no'} overrun{'s' * (count > 1)}"
    rate_hz = min(one["rate_hz"] for one in timings)
    return f"{rate_hz:.2f} Hz, late by p50 {p50:.2f}, p99 {p99:.1f}, max {highest:.1f} ms; {overruns}"


def resets(rows: Rows) -> Rows:
    # The rows of one map are of resets at another speed than the fight's.
    results = [row for row in _read("resets/reset.json")["results"] if row["map"] != "stand-in"]
    return [
        [title, *(f"{row[share]['mean']:.2f} s" for share in ("whole_s", "ours_s"))]
        for (title, *_), row in zip(rows, results, strict=True)
    ]


# Calibration and cloning


def scripted_play(_: Rows) -> Rows:
    rows = []
    for scenario, row in _read("scripts/scripts.json")["scenarios"].items():
        wins, striking = (row[f"{name}_wins_percent"] for name in ("perfect", "random_dodging_perfect_striking"))
        seconds = [f"{row[f'{name}_s']:.0f} s" for name in ("perfect_win", "random_dodging_lasts", "no_dodging_lasts")]
        rows.append([f"`{scenario}`", f"{wins:.1f} %", *seconds, f"{striking:.1f} %"])
    return rows


_CLONING = "cloning/cloning.json"


def cloned_agents(_: Rows) -> Rows:
    rates, rows = _read(_CLONING)["percent"], []
    for name, budget in (("0", "0"), ("5,000", "5000"), ("whole budget", "full")):
        cloned, scratch = (rates[f"{kind}, {budget}"] for kind in ("cloned", "scratch"))
        nothing = _interval(scratch, "mean") if scratch["mean_high"] else "0.0"
        difference = rates.get(f"cloned, {budget} less scratch, {budget}")
        rows.append([name, _interval(cloned, "mean"), nothing, _interval(difference, "mean") if difference else ""])
    return rows


# Findings: the paper's results


#: Rows of the first table by the name of what the report expects.
_OUTSIDE = {
    "heal-attack random, dodge trained": "heal-attack random, dodge trained: wins",
    "no seed collapses in fine-tuning": "seeds that end below their own zero-shot rate after fine-tuning",
    "dodge: episode length, random": "a random dodge episode lasts",
    "dodge: seconds survived, trained over random": "trained dodging survives, in seconds, over random dodging",
    "end-to-end: seconds of an episode, end over beginning of training": (
        "the end-to-end agent's episodes, in seconds, end over beginning of training"
    ),
    "movement: gain over random as a share of the scripted policy's": (
        "movement: gain over random, as a share of always walking at the boss"
    ),
}


def _found_outside(preset: str) -> Rows:
    """Return what lies outside of a preset's expected ranges: its name in the report, expected, found."""
    rows, ranges = [], _frame("seeds-500-519", "expected_ranges")
    for row in ranges.query(f"reproduction == {preset!r} and not inside").itertuples():
        found = re.match(r"\d+ of \d+|[\d.]+( %| points)?", str(row.found))
        assert found
        short = f"{float(found[0]):.0f}" if str(row.found).endswith("decisions") else found[0]
        expected = re.sub(r"(\d)-(\d)", r"\1 to \2", str(row.expected)).partition(" below")[0]
        rows.append([str(row.subject), expected, short])
    return rows


def outside_of_expected(_: Rows) -> Rows:
    return [[_OUTSIDE[name], *cells] for name, *cells in _found_outside("paper")]


def one_file_agent(_: Rows) -> Rows:
    percent = _read("one-file/one-file.json")["percent"]
    sides = "one_file", "fast", "difference"
    return [[row, *(_interval(found[side]) for side in sides)] for row, found in percent.items()]


_ABLATED = "heal-attack trained, dodge trained", "zero-shot, mid-range start", "dodge and heal-attack fine-tuned"


def ablation(_: Rows) -> Rows:
    names = {
        "fast": "plain `fast`",
        "combined": "one-hot ids, double, target copied every 1,000 (A)",
        "combined+replay-ratio-2": "A, two decisions an update",
        "combined+averaged": "A, weights averaged over the last 20 %",
        "chosen+fraction-0.4": "A, weights averaged over the last 40 %",
        "chosen+semi-markov": "A, averaged over 20 %, semi-Markov discount: `best-1`",
    }
    table = _frame("seeds-400-409", "ablation")
    assert set(table["seeds"]) == {3}
    rows = table.to_dict("records")
    return [[names[row["variant"]], *(f"{row[f'{one}: median']:.1f}" for one in _ABLATED)] for row in rows]


def _changed(folder: str, names: Mapping[str, str]) -> Rows:
    """Return medians with standard deviations, and differences from the first variant."""
    rows = []
    found = _by(_frame(folder, "ablation").to_dict("records"), "variant")
    for variant, name in names.items():
        row = found[variant]
        cells = [f"{row[f'{one}: median']:.1f} ({row[f'{one}: deviation']:.1f})" for one in _ABLATED]
        rows.append([name, *cells, "" if pd.isna(row["difference"]) else _interval(row, "difference")])
    return rows


def updates_for_a_decision(_: Rows) -> Rows:
    return _changed("updates", {"dpu2": "2", "dpu4": "4: `best-1`", "dpu8": "8: `best`", "dpu16": "16"})


# Findings: transfer and continual learning


def _recovered(file: str, names: Mapping[str, str], gain: bool) -> Rows:
    """Return medians and means of the arms of an adaptation, and what they gained."""
    found, rows = _by(_read(file)["rows"], "setting"), []
    for setting, name in names.items():
        row = found[setting]
        gained = _interval(row, "gain_points") if "gain_points" in row else ""
        cells = [f"{row['median_percent']:.1f}", _interval(row, "win_percent"), *([gained] if gain else [])]
        rows.append([name, *cells, row.get("seeds_that_gained", "")])
    return rows


_RECOVERY = "recovery/recovery-iudex-phase2-80000.json"
_JOINTLY = "recovery/jointly-iudex-phase2-80000.json"


def recovered_in_phase_2(_: Rows) -> Rows:
    names = {
        "nothing": "nothing",
        "recommended": "dodge, then heal-attack",
        "heal_attack": "heal-attack",
        "dodge": "dodge",
        "movement": "movement",
        "all": "all five",
        "from scratch": "all five from scratch",
    }
    rows, found = _recovered(_RECOVERY, names, gain=True), _by(_read(_RECOVERY)["rows"], "setting")
    # Neither of the two changed a fight: they share a row, without intervals.
    both = [found["camera"], found["lock_on"]]
    shown = {"median_percent": "{:.1f}", "win_percent": "{:.1f}", "gain_points": "{:g}", "seeds_that_gained": "{}"}
    cells = ["; ".join(form.format(row[name]) for row in both) for name, form in shown.items()]
    return [*rows[:5], ["camera; lock-on", *cells], *rows[5:]]


def adapted_jointly(_: Rows) -> Rows:
    names = {
        "nothing": "nothing",
        "jointly": "dodge and heal-attack, jointly",
        "one after another": "dodge, then heal-attack",
    }
    return _recovered(_JOINTLY, names, gain=False)


def chain_of_bosses(_: Rows) -> Rows:
    names = {
        "nothing (chance)": "nothing (random play)",
        "iudex-phase1": "Iudex, Phase 1",
        "iudex-phase2": "Iudex, Phase 2",
        "vordt": "Vordt",
    }
    rows: dict[str, list[str]] = {}
    for row in _read("chain/retention.json")["rows"]:
        cell = "0.0" if row["win_percent_high"] == 0.0 else _interval(row, "win_percent")
        rows.setdefault(row["after"], [names[row["after"]]]).append(cell)
    return list(rows.values())


_NECESSITY = "five-skills/wide-1/report.json"
_SKILLS = ("camera", "lock_on", "movement", "dodge", "heal_attack")


def _settings(rows: Iterable[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["skill"], row["played"]): row for row in rows}


def needed_skills(_: Rows) -> Rows:
    lost, scripted = (_settings(_read(_NECESSITY)[name]) for name in ("rows", "scripted"))
    return [
        [
            f"`{skill}`",
            *(_interval(lost[skill, played], "lost_points") for played in ("random", "idle", "untrained")),
            *(f"{scripted[skill, played]['lost_points']:.1f}" for played in ("random", "idle")),
        ]
        for skill in _SKILLS
    ]


#: Of each kept study the methods beside kept versions, the reference of its differences.
_CONTINUAL = {
    "S20": ("newest", "replay", "clonex"),
    "C20": ("newest", "clonex"),
    "R20": ("newest", "clonex"),
    "O20": ("newest", "clonex"),
    "S8": ("newest", "clonex", "all-skills"),
}
#: Kept versions in the same tasks and seeds by another choice of what learns: the study's report, and what it was.
_BESIDE = {
    "S8": ("S8-dodge-heal-attack", "kept", "S8, dodge and heal-attack to every shift"),
    "S20": ("S20-end-to-end", "kept", "S20, one policy over all actions, its versions kept"),
}


def bosses_in_sequence(_: Rows) -> Rows:
    rows = []
    for study, methods in _CONTINUAL.items():
        report = _read(f"continual/{study}/report.json")
        found = {(row["metric"], row["method"]): row for row in report["differences"]}
        rows += [
            [f"{study}, `{method}`", _interval(found["average_performance", method], "mean", 100.0)]
            for method in methods
        ]
    for study, (other, method, words) in _BESIDE.items():
        values, reference = _averages(other, method), _averages(study, "kept")
        seeds = sorted(values.keys() & reference.keys())
        differences = [100.0 * (values[seed] - reference[seed]) for seed in seeds]
        interval = mean_interval(differences)
        spread = {"mean": sum(differences) / len(seeds), "low": interval.low, "high": interval.high}
        rows.append([words, _interval(spread)])
    return rows


def _averages(study: str, method: str) -> dict[int, float]:
    rows = _read(f"continual/{study}/report.json")["seeds"]
    return {
        row["seed"]: row["value"] for row in rows if (row["metric"], row["method"]) == ("average_performance", method)
    }


def labelled_shifts(_: Rows) -> Rows:
    """Return for each kind of shift what the rule selected, and what training the named skill alone won."""
    names = ("kinds", "truth", "truth-fights")
    shifts, *trained_again = (pd.DataFrame(_read(f"continual-selection/{name}.json")["results"]) for name in names)
    truth = pd.concat(trained_again)
    rows = []
    for kind, found in shifts.groupby("kind", sort=False):
        named = load_family("labelled").kinds[str(kind)].skill
        selected = sum(named in skills for skills in found["skills"])
        others = sum(bool({*skills} - {named}) for skills in found["skills"])
        trained = [wins for wins in truth.loc[truth["kind"] == kind, "wins_of_200"] if isinstance(wins, dict)]
        skills = [named] if named != "none" else ["dodge", "heal_attack"]
        won = [f"{wins['before']} -> {', '.join(str(wins[skill]) for skill in skills)}" for wins in trained]
        rows.append(
            [f"`{kind}`", "" if named == "none" else f"{selected} of {len(found)}", str(others), "; ".join(won)]
        )
    return rows


# Options


def option_costs(rows: Rows) -> Rows:
    """Return what options cost in their tables' last column; where nothing is measured it has words, which stay."""
    results = _read("options/options.json")["results"]
    costs = {name: f"{one['sample_us']:.0f} + {one['update_us']:,.0f}" for name, one in results.items()}
    costs["n_step"] += f" ({results['n_step']['options']['n_step']} steps)"
    return [[*row[:-1], costs[row[0].strip("`")] if re.search(r"\d", row[-1]) else row[-1]] for row in rows]


def continual_methods(_: Rows) -> Rows:
    return [list(row) for row in listing.methods().rows]


def continual_results(_: Rows) -> Rows:
    """Return a row for each method of each kept report."""
    rows = []
    for path in sorted((RESULTS / "continual").glob("*/report.json")):
        report = _read(f"continual/{path.parent.name}/report.json")
        scores = {(one["method"], one["metric"]): one for one in report["scores"]}
        commit, _, modified = (report.get("trained_at") or [report["commit"] or "unknown"])[-1].partition("-")
        for method in report["methods"]:
            shown = [scores.get((method, name)) for name in ("average_performance", "forgetting", "forward_transfer")]
            rows.append(
                [
                    f"[{path.parent.name}](results/continual/{path.parent.name}/report.md)",
                    method,
                    str(scores[method, "average_performance"]["seeds"]),
                    *map(_score, shown),
                    commit[:7] + (modified and f" {modified}"),
                ]
            )
    return rows


def _score(row: Mapping[str, Any] | None) -> str:
    if row is None or row["mean"] is None:
        return "-"
    low, high = (inf if bound is None else bound for bound in (row["mean_low"], row["mean_high"]))
    return with_interval(row["mean"], Interval(low, high), 3)


# Fitting


def calibrated_values(_: Rows) -> Rows:
    return _cells("\n\n" + "\n".join(page_rows(_read("calibration/calibration.json")["results"])))


def whole_draws(_: Rows) -> Rows:
    return _cells("\n\n" + "\n".join(page_rows_of_whole(_read("calibration/whole.json")["results"])))


def misspecified_draws(_: Rows) -> Rows:
    return _cells("\n\n" + "\n".join(page_rows_of_misspecified(_read("calibration/misspecified.json")["results"])))


def altered_bosses(_: Rows) -> Rows:
    rows, made = _read("fidelity/summary.json")["rows"], []
    for draw in (rows[first : first + 3] for first in range(0, len(rows), 3)):
        cells = []
        for name in ("boss_place", "boss_heading"):
            errors = ", ".join(f"{row[f'{name}_p90']:.3f}" for row in draw)
            cells.append(f"{errors} ({draw[-1][f'{name}_floor_p90']:.3f})")
        struck = ", ".join(f"{100 * row['struck_in_both']:.0f}" for row in draw)
        made.append([str(draw[0]["draw"]), *cells, struck])
    return made


# Reference tables, of the code


def logged_metrics(rows: Rows) -> Rows:
    """Return a row for each metric, with its unit and meaning on the page, above that of reward terms."""
    meanings = {name: cells for name, _, *cells in rows}
    columns = [(f"`{name}`", table, column) for table, names in METRICS.items() for column, name in names.items()]
    return [*([name, f"`{table}`: `{column}`", *meanings[name]] for name, table, column in columns), rows[-1]]


def recorded_columns(rows: Rows) -> Rows:
    """Return a row for each column of every fight; those of skills say on the page what their files name."""
    read = [one for one in FIGHT_COLUMNS if not one.name.startswith("control/")]
    held = [f"`{one.name.removeprefix('control/')}`" for one in FIGHT_COLUMNS if one.name.startswith("control/")]
    controls = ["`control/<control>`", "", f"whether it is held or pressed in this tick: {', '.join(held)}"]
    return [
        *([f"`{one.name}`", *(one.metadata[key].decode() for key in (UNIT, MEANING))] for one in read),
        controls,
        *(row for row in rows if row[0].startswith("`<skill>")),
    ]


#: Every table by the name in its mark.
TABLES: dict[str, Callable[[Rows], Rows]] = {
    table.__name__: table
    for table in (
        *(win_rates, whole_fights, end_to_end_seeds, zoo, own_skills, imported_dodges, speed_of_training, efficiency),
        *(whole_commands, speed_of_the_simulator, env_runners, stale_weights, learned_by_a_fleet, paced_games),
        one_game_disturbed,
        *(times_away, thousand_games, running_games, resets, scripted_play, cloned_agents),
        *(outside_of_expected, one_file_agent, ablation, updates_for_a_decision),
        *(recovered_in_phase_2, adapted_jointly, chain_of_bosses),
        *(needed_skills, bosses_in_sequence, labelled_shifts, option_costs, continual_methods, continual_results),
        *(calibrated_values, whole_draws, misspecified_draws, altered_bosses, logged_metrics, recorded_columns),
    )
}
_MARKED = re.compile(r"(?P<above>^<!-- table: (?P<name>\w+) -->\n(?:\|.*\n){2})(?P<rows>(?:\|.*\n)*)", re.M)


def rewritten(page: str) -> str:
    """Return a page with the rows below every mark written anew."""

    def table(found: re.Match[str]) -> str:
        rows = TABLES[found["name"]](_cells(found["above"].partition("\n")[2] + found["rows"]))
        return found["above"] + "".join(f"| {' | '.join(row)} |\n" for row in rows)

    return _MARKED.sub(table, page)


def main() -> None:
    """Write every table of every page, and name the pages that changed."""
    docs = ROOT / "docs"
    pages = {page: rewritten(page.read_text(encoding="utf-8")) for page in (ROOT / "README.md", *docs.glob("*.md"))}
    pages |= {docs / "environments" / f"{name}.md": text for name, text in environment_pages().items()}
    above, first, _ = pages[docs / "toml_fields.md"].partition("## ")
    fields = "\n\n".join(table.to_markdown(numbers=False) for table in toml_fields())
    pages[docs / "toml_fields.md"] = above + first + fields.removeprefix("## ") + "\n"
    for page, text in sorted(pages.items()):
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            write_text(page, text)
            print(f"wrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
