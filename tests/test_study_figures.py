"""Tables of the study's pages are those of its files of results, cell by cell, and so are figures in the text.

A table is named by its page and the words above it; beside them stands what makes its rows of the files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from soulsgraph.results.statistics import mean_interval
from soulsgraph_envs.continual.families import load_family

DOCS = Path(__file__).parents[1] / "docs"
_RESULTS = DOCS / "results"

Rows = list[list[str]]


def _page(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def _table(page: str, above: str) -> Rows:
    """Return the cells of the first table below some words of a page, without its headings."""
    found = re.search(r"(?:^\|.*\n)+", _page(page).split(above, 1)[1], re.MULTILINE)
    assert found, (page, above)
    return [[cell.strip() for cell in line.strip().split("|")[1:-1]] for line in found[0].splitlines()[2:]]


def _read(file: str) -> Any:
    return json.loads((_RESULTS / file).read_text(encoding="utf-8"))


def _frame(folder: str, table: str) -> pd.DataFrame:
    return pd.read_parquet(_RESULTS / folder / "tables" / f"{table}.parquet")


def _interval(row: Mapping[str, Any], name: str = "", scale: float = 1.0) -> str:
    """Return a mean with its interval: of the columns `name`, `name_low` and `name_high`, or of plain ones."""
    keys = (name, f"{name}_low", f"{name}_high") if name else ("mean", "low", "high")
    mean, low, high = (scale * row[key] for key in keys)
    return f"{mean:z.1f} ({low:z.1f} to {high:z.1f})"


def _by(rows: Iterable[dict[str, Any]], name: str) -> dict[Any, dict[str, Any]]:
    return {row[name]: row for row in rows}


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
    rows = []
    for row in _frame("seeds-500-519", "aims").query(f"reproduction == {preset!r} and not inside").itertuples():
        found = re.match(r"\d+ of \d+|[\d.]+( %| points)?", str(row.found))
        assert found
        short = f"{float(found[0]):.0f}" if str(row.found).endswith("decisions") else found[0]
        expected = re.sub(r"(\d)-(\d)", r"\1 to \2", str(row.aim)).partition(" below")[0]
        rows.append([str(row.subject), expected, short])
    return rows


def _outside() -> Rows:
    return [[_OUTSIDE[name], *cells] for name, *cells in _found_outside("paper")]


def _one_file() -> Rows:
    percent = _read("one-file/one-file.json")["percent"]
    sides = "one_file", "fast", "difference"
    return [[row, *(_interval(found[side]) for side in sides)] for row, found in percent.items()]


_ABLATED = "heal-attack trained, dodge trained", "zero-shot, mid-range start", "dodge and heal-attack fine-tuned"


def _ablation() -> Rows:
    names = {
        "fast": "plain `fast`",
        "combined": "one-hot ids, double, target copied every 1,000 (A)",
        "combined+replay-ratio-2": "A, two decisions an update",
        "combined+averaged": "A, weights averaged over the last 20 %",
        "chosen+fraction-0.4": "A, weights averaged over the last 40 %",
        "chosen+semi-markov": "A, averaged over 20 %, semi-Markov discount: `best`",
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


def _updates() -> Rows:
    return _changed("updates", {"dpu2": "2", "dpu4": "4: `best-1`", "dpu8": "8: `best`", "dpu16": "16"})


def _fresh_updates() -> Rows:
    return _changed("seeds-600-609", {"best-1": "`best-1`", "best": "`best`"})


def _skills(name: str) -> str:
    """Return skills of a recommendation as the page names them."""
    words = {"none": "nothing", "dodge or heal_attack or dodge + heal_attack": "dodge, heal-attack or both"}
    return words.get(name, name.replace(" + ", " and ").replace("_", "-"))


def _transfer() -> Rows:
    shifts = {
        "no shift": "none",
        "camera speed": "a slow camera",
        "lock range": "a shorter lock range",
        "boss damage and timing": "harder and slower blows",
        "phase 1 to phase 2": "Phase 1 to Phase 2",
    }
    rows = []
    for row in _read("transfer/transfer-controls.json")["rows"]:
        (found,) = {one.partition(": ")[2] for one in row["each_seed"].split("; ")}
        rows.append([shifts[row["control"]], _skills(row["expected"]), _skills(found), row["seeds_right"]])
    return rows


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


def _recovery() -> Rows:
    names = {
        "nothing": "nothing",
        "recommended": "dodge, then heal-attack (recommended)",
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


def _jointly() -> Rows:
    names = {
        "nothing": "nothing",
        "jointly": "dodge and heal-attack, jointly",
        "one after another": "dodge, then heal-attack",
    }
    return _recovered(_JOINTLY, names, gain=False)


def _chain() -> Rows:
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


_NECESSITY, _SCRIPTED = "five-skills/necessity.json", "five-skills/necessity-scripted.json"
_SKILLS = ("camera", "lock_on", "movement", "dodge", "heal_attack")


def _settings(rows: Iterable[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["skill"], row["played"]): row for row in rows}


def _necessity() -> Rows:
    lost, scripted = _settings(_read(_NECESSITY)["rows"]), _settings(_read(_SCRIPTED)["rows"])
    return [
        [
            f"`{skill}`",
            *(_interval(lost[skill, played], "lost_points") for played in ("random", "idle", "untrained")),
            *(f"{scripted[skill, played]['lost_points']:.1f}" for played in ("random", "idle")),
        ]
        for skill in _SKILLS
    ]


#: Of each kept study the methods beside kept versions, the reference of its differences.
_CONTINUAL = {"S20": ("newest", "replay", "clonex"), "C20": ("newest", "clonex"), "S8": ("all-skills",)}
#: Kept versions in the same tasks and seeds by another choice of what learns: the study's report, and what it was.
_BESIDE = {
    "S8": ("S8-dodge-heal-attack", "kept", "S8, dodge and heal-attack to every shift"),
    "S20-clonex": ("S20-end-to-end", "kept", "S20, one policy over all actions, its versions kept"),
}


def _continual() -> Rows:
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


def _labelled() -> Rows:
    """Return for each kind of shift what the rule selected, and what training the named skill alone won."""
    shifts, rows = pd.DataFrame(_read("continual-selection/selection.json")["results"]), []
    for kind, found in shifts.groupby("kind", sort=False):
        named = load_family("labelled").kinds[str(kind)].skill
        selected = sum(named in skills for skills in found["skills"])
        others = sum(bool({*skills} - {named}) for skills in found["skills"])
        trained = [wins for wins in found["wins_of_200"] if isinstance(wins, dict)]
        skills = [named] if named != "none" else ["dodge", "heal_attack"]
        won = [f"{wins['before']} -> {', '.join(str(wins[skill]) for skill in skills)}" for wins in trained]
        rows.append(
            [f"`{kind}`", "" if named == "none" else f"{selected} of {len(found)}", str(others), "; ".join(won)]
        )
    return rows


_CLONING = "cloning/cloning.json"


def _cloning() -> Rows:
    rates, rows = _read(_CLONING)["percent"], []
    for name, budget in (("0", "0"), ("5,000", "5000"), ("whole budget", "full")):
        cloned, scratch = (rates[f"{kind}, {budget}"] for kind in ("cloned", "scratch"))
        nothing = _interval(scratch, "mean") if scratch["mean_high"] else "0.0"
        difference = rates.get(f"cloned, {budget} less scratch, {budget}")
        rows.append([name, _interval(cloned, "mean"), nothing, _interval(difference, "mean") if difference else ""])
    return rows


_TABLES: list[tuple[str, str, Callable[[], Rows]]] = [
    ("findings.md", "## The paper's results\n", _outside),
    ("findings.md", "## The one file\n", _one_file),
    ("findings.md", "## Ablation\n", _ablation),
    ("findings.md", "### Updates for a decision\n", _updates),
    ("findings.md", "On seeds 600 to 609, run after `best` was committed", _fresh_updates),
    ("findings_transfer.md", "## Transfer\n", _transfer),
    ("findings_transfer.md", "Recovery in Phase 2,", _recovery),
    ("findings_transfer.md", "Dodge and heal-attack adapted in the same fights,", _jointly),
    ("findings_transfer.md", "The chain Iudex 1 -> Iudex 2 -> Vordt", _chain),
    ("findings_transfer.md", "### Which skills a fight needs\n", _necessity),
    ("findings_transfer.md", "### Bosses one after another\n", _continual),
    ("generated_bosses.md", "## What the rule selects\n", _labelled),
    ("cloning.md", "## What it is worth\n", _cloning),
]


@pytest.mark.parametrize(("page", "above", "rows"), _TABLES, ids=[rows.__name__.strip("_") for *_, rows in _TABLES])
def test_a_table_is_what_its_files_say(page: str, above: str, rows: Callable[[], Rows]) -> None:
    assert _table(page, above) == rows()


def _of_fast_and_best() -> list[str]:
    wins, seeds, length, *ratios = (found for *_, found in _found_outside("fast"))
    assert [name for name, *_ in _found_outside("fast")] == list(_OUTSIDE)
    trained, zero_shot = (found.removesuffix(" points") for *_, found in _found_outside("best"))
    return [
        f"`fast` lies outside in the same ones: {wins}, {seeds} seeds, {length} decisions, "
        f"{ratios[0]}, {ratios[1]} and {ratios[2]}.",
        f"standard deviation {trained} points where both are trained, {zero_shot} from a mid-range start",
    ]


def _of_fresh_and_earlier_seeds() -> list[str]:
    agreement = _frame("seeds-500-519", "agreement").sort_values("adjusted_p")
    assert list(agreement["agree"]) == [False] + [True] * (len(agreement) - 1)
    first, second = agreement.iloc[0], agreement.iloc[1]
    assert first["label"] == "heal-attack trained, dodge random"
    medians = f"{first['median']:.1f} % against {first['earlier_median']:.1f} %"
    return [
        f"preset `{first['reproduction']}`, heal-attack trained and dodge random, {medians}, "
        f"adjusted p {first['adjusted_p']:.3f}. The smallest of the others is {second['adjusted_p']:.2f}."
    ]


def _of_whole_agents() -> list[str]:
    whole, scripted = (_settings(rows)["none", ""] for rows in (_read(_NECESSITY)["rows"], _read(_SCRIPTED)["rows"]))
    rate, low, high = (f"{whole[key]:.1f}" for key in ("win_percent", "win_percent_low", "win_percent_high"))
    return [
        f"The whole agents win {rate} % ({low} to {high}).",
        f"The scripted reference wins {scripted['wins']} of {scripted['episodes']} of these fights as it is",
    ]


_PLAY = "trained", "random", "idle"


def _of_survival() -> list[str]:
    measures = _frame("seeds-500-519", "measures").query("reproduction == 'paper'").set_index("measure")["median"]
    seconds, length = ({one: measures[f"dodge {kind} {one}"] for one in _PLAY} for kind in ("seconds", "length"))
    shares = [f"{seconds[one]:.1f} s" for one in _PLAY]
    return [
        f"Trained dodging lives {shares[0]} (median), random dodging {shares[1]}, never dodging {shares[2]}",
        f"In decisions the ratio is {length['trained'] / length['random']:.1f}",
        f"never dodging makes {length['idle']:.0f} decisions in the shortest life and random dodging "
        f"{length['random']:.0f}",
    ]


_VANILLA = "paper", "fast"


def _of_the_end_to_end_agent_and_the_oracle() -> list[str]:
    seeds = _frame("seeds-500-519", "seeds")
    alone = seeds[seeds["label"] == "single end-to-end agent"].sort_values("percent")
    took_off = {name: [*alone.query(f"reproduction == {name!r} and percent > 10")["percent"]] for name in _VANILLA}
    paper, fast = took_off["paper"], took_off["fast"]
    oracle = seeds[seeds["label"] == "scripted oracle"]["percent"]
    assert set(seeds[seeds["label"].str.startswith("scripted oracle,")]["percent"]) == {100.0}
    overlaps = _frame("seeds-400-409", "comparison").query("reproduction == 'stable-baselines3'")["overlap"]
    assert len(overlaps)
    assert all(overlaps)
    counts = {2: "two", 4: "four"}
    return [
        f"{counts[len(paper)]} with `paper` ({paper[0]:.0f} and {paper[-1]:.0f} % of the episodes won) and "
        f"{counts[len(fast)]} with `fast` ({fast[0]:.0f} to {fast[-1]:.0f} %)",
        f"The scripted oracle wins {oracle.min():.1f} to {oracle.max():.0f} % of every fight",
    ]


def _of_recovery() -> list[str]:
    found = _by(_read(_RECOVERY)["rows"], "setting")
    ahead = [_interval(found[arm], "recommended_ahead_points") for arm in ("heal_attack", "dodge", "all")]
    ahead[0] = ahead[0].replace(" (", " points (")
    arms = [row["adapted"] for row in _read(_RECOVERY)["seeds"] if row["setting"] == "recommended"]
    assert arms == ["dodge + heal_attack"] * 5
    jointly = _by(_read(_JOINTLY)["rows"], "setting")["one after another"]
    mean, *ends = (-jointly[f"jointly_ahead_points{end}"] for end in ("", "_high", "_low"))
    return [
        f"ahead of heal-attack alone by {ahead[0]}, of dodge alone by {ahead[1]}, of all five by {ahead[2]}.",
        f"One after another is ahead by {mean:.1f} points ({ends[0]:.1f} to {ends[1]:.1f})",
    ]


def _of_the_chain() -> list[str]:
    measures = _by(_read("chain/retention-measures.json")["rows"], "measure")
    lost = _interval(measures["backward transfer"], "mean", 100.0).replace(" (", " points with the adapted versions (")
    kept = [row for name, row in measures.items() if name.endswith("own versions")]
    assert [row[f"mean{end}"] for row in kept for end in ("", "_low", "_high")] == [0.0] * 6
    return [f"Backward transfer is {lost}, 0 with the kept ones."]


def _of_cloning() -> list[str]:
    told = _read(_CLONING)
    rates = told["percent"]
    assert (round(100.0 / rates["player"]["mean"]), told["delay_ticks"], told["random"]) == (7, 2, 0.1)
    before, compared = _read("cloning/autograd.json"), ("scratch, 5000", "cloned, 0", "scratch, full")
    assert before["seeds"] == told["seeds"]
    budgets = [f"cloned, {'full' if 'full' in other else '5000'} less {other}" for other in compared]
    earlier = [f"{before['percent'][name]['mean']:.1f}" for name in budgets]
    more = _interval(rates["cloned, 5000 less cloned, 0"], "mean").replace(" (", " points (")
    return [
        f"wins one fight in seven. Each seed clones {told['fights']} fights of its own",
        f"After 5,000 decisions the agents win {more} more than their clones",
        f"the same seeds differed by {earlier[0]}, {earlier[1]} and, at the whole budget, {earlier[2]} points",
    ]


def _of_decisions_for_shifts() -> list[str]:
    costs = _read("continual/S8/report.json")["tables"]["costs"]
    kept, others = (row["mean"] for row in costs if row["cost"] == "decisions")
    return [f"spends {kept:,.0f} decisions in all, where the others spend {others:,.0f}"]


def _of_transfer_over_labelled_shifts() -> list[str]:
    kinds = {"lock-view": "lock_on", "camera-reversed": "camera", "arena": "movement", "moves": "dodge"}
    found, beside = list[int](), dict[tuple[str, str], int]()
    for kind, skill in kinds.items():
        rows = _by(
            _read(f"continual-selection/transfer/transfer-generated-labelled-{kind}-20001.json")["rows"], "skill"
        )
        adapted = {name: int(row["seeds_adapt"].split()[0]) for name, row in rows.items()}
        found.append(adapted.pop(skill))
        beside |= {(kind, name): count for name, count in adapted.items() if count}
    assert (found[0], found[2]) == (0, 1)
    assert {name for _, name in beside} == {"heal_attack"}
    others = sum(beside.values())
    return [
        f"found {sum(found)} of {3 * len(found)} of the same kinds",
        f"recommended heal-attack {others} times beside, so {sum(found)} of its {sum(found) + others} recommendations",
    ]


def _of_the_rule_for_labelled_shifts() -> list[str]:
    family, results = load_family("labelled"), _read("continual-selection/selection.json")["results"]
    shares = {name: _won_back(results, name, kind.skill) for name, kind in family.kinds.items() if name != "none"}
    recoverable = {name: kind.recoverable for name, kind in family.kinds.items() if name != "none"}
    assert recoverable == {name: "yes" if beyond >= 0.5 else "no" for name, (_, beyond) in shares.items()}
    back = {name: kind.skill for name, kind in family.kinds.items() if kind.recoverable == "yes"}
    shown = [f"{100.0 * shares[name][1]:.0f} %" for name in back]
    least = {name: f"{100.0 * shares[name][1]:.0f} %" for name in ("reach", "blow", "camera-speed")}
    assert shares["run-speed"][1] < 0.0
    reach = sum("heal_attack" in row["skills"] for row in results if row["kind"] == "reach")
    whole, _ = _won_back(results, "moves", "heal_attack")
    shifts = [row for row in results if row["kind"] in back]
    found = sum(back[row["kind"]] in row["skills"] for row in shifts)
    selected = sum(len(row["skills"]) for row in results)
    beside = sum("heal_attack" in row["skills"] for row in results if row["kind"] == "moves")
    taken = [row["decisions"] for row in results]
    assert not any(row["skills"] for row in results if row["kind"] == "none")
    return [
        f"that is {shown[0]} (lock view), {shown[1]} (reversed camera), {shown[2]} (another place",
        f"{shown[3]} (other moves); of shorter reach {least['reach']}, of costlier blows {least['blow']}, of a slower",
        f"view {least['camera-speed']} of nine fights",
        f"shorter reach wins back {100.0 * shares['reach'][0]:.0f} %, and would count",
        f"finds {found} of {len(shifts)}; with shorter reach it would be {found + reach} of {len(shifts) + 6}",
        f"selects {selected} skills in all, so {100.0 * found / selected:.0f} % of its selections are right",
        f"The other {selected - found} are heal-attack in all {beside} shifts of other moves, where it alone wins back "
        f"{100.0 * whole:.0f} % of the loss, and {selected - found - beside} named skills",
        f"{min(taken):,} to {max(taken):,} decisions each",
    ]


def _won_back(results: list[dict[str, Any]], kind: str, skill: str) -> tuple[float, float]:
    """Return the share of lost fights that training a skill wins back over all agents.

    Also return it beyond what the same training wins in the unchanged fight.
    """
    trained = [row for row in results if "wins_of_200" in row]
    shifted, home = (
        {row["agent"]: row["wins_of_200"] for row in trained if row["kind"] == which} for which in (kind, "none")
    )
    lost = sum(home[agent]["before"] - wins["before"] for agent, wins in shifted.items())
    back = sum(wins[skill] - wins["before"] for wins in shifted.values())
    anyway = sum(home[agent][skill] - home[agent]["before"] for agent in shifted)
    return back / lost, (back - anyway) / lost


def _of_costs_in_ticks_and_bytes() -> list[str]:
    def mean(study: str, cost: str, method: str) -> float:
        rows = _read(f"continual/{study}/report.json")["tables"]["costs"]
        return next(row["mean"] for row in rows if (row["cost"], row["method"]) == (cost, method))

    millions = {
        (study, method): f"{mean(study, 'ticks', method) / 1e6:.2f}"
        for study, method in (("S20-clonex", "kept"), ("S20-clonex", "clonex"), ("C20", "kept"), ("C20", "clonex"))
    }
    one = mean("S20-end-to-end", "ticks", "kept") / 1e6
    shifts = [
        f"{mean('S8', cost, method):,.0f}" for method in ("kept", "all-skills") for cost in ("decisions", "ticks")
    ]
    stored = {name: mean("S20", "bytes", name) / 1e6 for name in ("kept", "newest", "clonex", "replay")}
    return [
        f"in S20 {millions['S20-clonex', 'kept']} million with kept versions and "
        f"{millions['S20-clonex', 'clonex']} million with `clonex`, in C20 {millions['C20', 'kept']} and "
        f"{millions['C20', 'clonex']} million; the single policy over all actions takes {one:.2f} million",
        f"{shifts[0]} decisions and {shifts[1]} ticks with kept versions, {shifts[2]} and {shifts[3]} with all skills",
        f"{stored['kept']:.1f} MB for kept versions, {stored['newest']:.1f} MB for the newest alone, "
        f"{stored['clonex']:.1f} MB for `clonex` and {stored['replay']:.1f} MB for `replay`",
    ]


def _of_held_out_bosses() -> list[str]:
    rates, _ = _held_out("S20-base")
    five, hundred = _held_out("S100")
    twenty, average = _held_out("S100-base-20")
    minutes = _read("continual/S100-base-20/report.json")["wall_time_s"] / 60.0
    after, first = (_interval(twenty[tasks], "mean", 100.0).replace(" (", " % (") for tasks in (20, 1))
    shown, hundred_5 = ({tasks: 100.0 * row["mean"] for tasks, row in found.items()} for found in (rates, five))
    return [
        f"in {shown[5]:.1f} % of fights after 10,000 decisions; from the first boss alone in {shown[1]:.1f} %",
        f"{hundred_5[5]:.1f} % against {hundred_5[1]:.1f} %, and ended with an average of {hundred:.1f} %",
        f"it is {after} against {first}, with an average of {average:.1f} % over the hundred",
        f"took {minutes:.0f} minutes on two cores, so one seed of a hundred bosses takes {minutes / 10.0:.1f}",
    ]


def _held_out(study: str) -> tuple[dict[int, dict[str, Any]], float]:
    """Return the win rates on held-out bosses by numbers of tasks, and the average performance in percent."""
    report = _read(f"continual/{study}/report.json")
    rates = {row["after"]: row for row in report["tables"]["plasticity"] if row["method"] == "base"}
    (average,) = (row["mean"] for row in report["scores"] if row["metric"] == "average_performance")
    return rates, 100.0 * average


def _of_the_monolith() -> list[str]:
    one, graph = _averages("S20-end-to-end", "kept"), _averages("S20-clonex", "kept")
    below = sum(one[seed] < graph[seed] for seed in one)
    tries = {}
    for name in ("graph-best", "graph-fast", "monolith-fast", "monolith-paper"):
        (average,) = _averages(f"../continual-choosing/{name}", "kept").values()
        tries[name] = f"{100.0 * average:.1f} % with `{name.partition('-')[2]}`"
    return [
        f"the graph won {tries['graph-best']} and {tries['graph-fast']}, the monolith {tries['monolith-fast']} and "
        f"{tries['monolith-paper']}",
        f"in {below} of {len(graph)} seeds",
        f"in the worst, {100.0 * min(one.values()):.1f} % on average",
    ]


def _of_packnet() -> list[str]:
    report = _read("continual/S20-packnet/report.json")
    (average,) = (
        row for row in report["scores"] if (row["metric"], row["method"]) == ("average_performance", "packnet")
    )
    (behind,) = (
        row
        for row in _read("continual/S20-clonex/report.json")["differences"]
        if (row["metric"], row["method"]) == ("average_performance", "clonex")
    )
    mean, low, high = (100.0 * behind[name] for name in ("mean", "mean_low", "mean_high"))
    return [
        f"wins {100.0 * average['mean']:.1f} % on average",
        f"`clonex`, is {-mean:.1f} points ({-high:.1f} to {-low:.1f}) behind kept versions",
    ]


#: Methods that play each task by versions of its own; every other one ends in a single network a skill.
_VERSIONED = {"kept", "packnet", "base", "scratch"}


def _of_thirteen_methods() -> list[str]:
    report = _read("continual/S8-all/report.json")
    scores = {(row["metric"], row["method"]): row for row in report["scores"]}
    averages = {method: row for (metric, method), row in scores.items() if metric == "average_performance"}
    single = max((name for name in averages if name not in _VERSIONED), key=lambda name: averages[name]["mean"])
    (behind,) = (
        row for row in report["differences"] if (row["metric"], row["method"]) == ("average_performance", single)
    )
    forgotten = [100.0 * scores["forgetting", name]["mean"] for name in ("kept", single)]
    return [
        f"{_interval(averages['kept'], 'mean', 100.0)} % on average with kept versions",
        f"{_interval(averages[single], 'mean', 100.0)} % with the best single network, `{single}`",
        f"a difference of {_interval(behind, 'mean', 100.0)} points",
        f"Both forget little, {forgotten[0]:.1f} and {forgotten[1]:.1f} points",
        f"`packnet` wins {100.0 * averages['packnet']['mean']:.1f} %",
        f"All units took {report['wall_time_s'] / 60.0:.0f} minutes",
    ]


_SENTENCES = [
    ("findings.md", _of_fast_and_best),
    ("findings.md", _of_fresh_and_earlier_seeds),
    ("findings.md", _of_survival),
    ("findings.md", _of_the_end_to_end_agent_and_the_oracle),
    ("findings_transfer.md", _of_recovery),
    ("findings_transfer.md", _of_the_chain),
    ("findings_transfer.md", _of_whole_agents),
    ("findings_transfer.md", _of_decisions_for_shifts),
    ("findings_transfer.md", _of_held_out_bosses),
    ("findings_transfer.md", _of_packnet),
    ("findings_transfer.md", _of_the_monolith),
    ("findings_transfer.md", _of_thirteen_methods),
    ("findings_transfer.md", _of_costs_in_ticks_and_bytes),
    ("generated_bosses.md", _of_the_rule_for_labelled_shifts),
    ("generated_bosses.md", _of_transfer_over_labelled_shifts),
    ("cloning.md", _of_cloning),
]


@pytest.mark.parametrize(
    ("page", "texts"), _SENTENCES, ids=[texts.__name__.removeprefix("_") for _, texts in _SENTENCES]
)
def test_a_figure_in_the_text_is_what_its_file_says(page: str, texts: Callable[[], list[str]]) -> None:
    page_text = " ".join(_page(page).split())
    assert [text for text in texts() if text not in page_text] == []
