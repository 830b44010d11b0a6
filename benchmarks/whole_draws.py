"""How well a boss's data come back where all are altered at once: what is determined, and how much of it is wrong.

python benchmarks/whole_draws.py --first 600 --out docs/results/calibration

Twenty draws of `iudex-phase1`: twelve in which nearly every value is altered, four with another player too, and four
with waits beside the player, the length of chains and counters too. An agent of the zoo fights alone, or half of the
time with the probe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import common
from calibration import BOSS, PLAYED, RECORDED, SCENARIO, first_fights, record_fighter
from calibration_draws import ScoredValue, draw_player, draw_whole, score_values, truth_of
from soulsgraph.calibrate.boss_file import scenario_path_of, write_fitted, write_tables
from soulsgraph.calibrate.calibration import calibrate
from soulsgraph.calibrate.rows import FightSet
from soulsgraph.recordings.recording import Fighter
from soulsgraph.results.origin import describe_run
from soulsgraph.results.tables import write_rows
from soulsgraph.runs.evaluate import Setting, evaluation_seeds, make_agent, play
from soulsgraph.zoo import open_agent
from soulsgraph_envs.core.files import write_json
from soulsgraph_envs.core.scenario import load_boss, load_player, load_scenario
from soulsgraph_envs.simulator.layout import FRAME_S

KINDS = (*("all values",) * 12, *("player too",) * 4, *("others too",) * 4)
#: Minutes of game time, and whether the probe plays half of them.
CONDITIONS = ((5.0, False), (20.0, False), (5.0, True), (20.0, True))
#: Who plays for the win rates, and how often; the share of a point from which a prediction is off.
AGENTS, FIGHTS, CLOSE = (PLAYED[0], PLAYED[1], PLAYED[3]), 1000, 0.05
#: A determined value is wrong where it is off by more than this share of the truth, and a time by a frame.
WRONG = 0.08
#: Kinds of which a sample says little, whatever its length.
_APART = ("weights", "chains", "rear", "distances")
#: Kinds that are times, for which a frame is no error.
_TIMES = ("length", "tracking", "lunge times", "leap", "start", "end", "wait low", "wait high", "near waits")
#: The probe's seeds lie so far beside the agent's.
PROBE_SEED = 7


def measure(seed: int, kind: str, folder: Path) -> dict[str, Any]:
    """Return the scored values of one draw by condition, and win rates in the true and in the last fitted fight."""
    boss = draw_whole(BOSS, seed, folder, others=kind == KINDS[-1])
    shipped, scenario = load_boss(BOSS), folder / f"draw-{seed}-fight.toml"
    tables = {"based_on": SCENARIO, "name": f"draw-{seed}", "boss": boss.name}
    own = load_scenario(SCENARIO).player
    if kind == "player too":
        tables["player"] = draw_player(own, seed, folder).name
    write_tables(scenario, tables)
    agent = record_fighter(fighter_in(str(scenario)), seed, max(minutes for minutes, _ in CONDITIONS))
    probe = record_fighter(probe_in(str(scenario)), seed + PROBE_SEED, max(minutes for minutes, _ in CONDITIONS) / 2)
    truth, player, results = truth_of(load_boss(boss), shipped), load_player(own), []
    for minutes, probed in CONDITIONS:
        fights, begun = fights_of(agent, probe if probed else None, minutes), time.process_time()
        fitted = calibrate(fights, shipped, player)
        cpu_s, out = time.process_time() - begun, folder / f"fitted-{seed}-{minutes:g}-{probed}.toml"
        write_fitted(out, fitted, BOSS, SCENARIO, shipped)
        scored = [asdict(value) for value in score_values(fitted.boss, truth, shipped)]
        results.append({"minutes": minutes, "probed": probed, "cpu_s": cpu_s, "values": scored})
    won = {name: _won(place) for name, place in (("true", scenario), ("fitted", scenario_path_of(out)))}
    return {"seed": seed, "kind": kind, "conditions": results, "won": won}


def fighter_in(scenario: str) -> Fighter:
    """Return the agent of the zoo that is recorded, in a scenario."""
    return Fighter.of_run(open_agent(RECORDED[0]), Setting(scenario, SCENARIO))


def probe_in(scenario: str) -> Fighter:
    """Return the probe, in a scenario."""
    # It aims by the data that everybody has.
    probe = Fighter.probe(SCENARIO)
    return replace(probe, scenario=scenario, agent=replace(probe.agent, scenario=load_scenario(scenario)))


def fights_of(agent: FightSet, probe: FightSet | None, minutes: float) -> FightSet:
    """Return so much game time of an agent's fights, half of it the probe's where that played."""
    if probe is None:
        return first_fights(agent, minutes)
    halves = [first_fights(one, minutes / 2) for one in (agent, probe)]
    return replace(agent, fights=tuple(fight for half in halves for fight in half.fights))


def _won(scenario: Path) -> list[float]:
    seeds = evaluation_seeds(31, FIGHTS)
    return [
        float(play(make_agent(open_agent(name), Setting(str(scenario), SCENARIO)), seeds).won.mean()) for name in AGENTS
    ]


def is_wrong(value: ScoredValue) -> bool:
    """Return whether a value that is called determined is off by more than may be."""
    off = value.verdict == "determined" and value.error is not None and value.error > WRONG
    return off and not (value.kind in _TIMES and abs((value.estimate or 0.0) - value.truth) <= FRAME_S)


def summaries(draws: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield what all draws say of each condition."""
    for place, (minutes, probed) in enumerate(CONDITIONS):
        conditions = [draw["conditions"][place] for draw in draws]
        scored = [ScoredValue(**value) for one in conditions for value in one["values"]]
        sure = [value for value in scored if value.verdict == "determined" and value.error is not None]
        main = [value for value in scored if value.kind not in _APART]
        covered = [value.covered for value in scored if value.covered is not None]
        yield {
            "minutes": minutes,
            "probed": probed,
            "values": len(scored),
            "determined": len(sure) / len(scored),
            "determined_of_others": sum(value.verdict == "determined" for value in main) / len(main),
            "median_error": float(np.median([value.error for value in sure])),
            "largest_error": max(value.error or 0.0 for value in sure),
            "wrong": [value.key for value in sure if is_wrong(value)],
            "covered": float(np.mean(covered)),
            "cpu_s": float(np.median([one["cpu_s"] for one in conditions])),
        }


def page_rows(results: dict[str, Any]) -> list[str]:
    """Return the rows of the table of docs/fitting.md, a column for each condition."""
    names = {
        "values that are determined": lambda one: f"{100 * one['determined']:.1f} %",
        "without weights, chains, counters, distances": lambda one: f"{100 * one['determined_of_others']:.1f} %",
        "the median error of determined values": lambda one: f"{100 * one['median_error']:.1f} %",
        "the largest": lambda one: f"{100 * one['largest_error']:.1f} %",
        f"determined values off by more than {100 * WRONG:g} % and a frame": lambda one: str(len(one["wrong"])),
        "intervals that hold the truth": lambda one: f"{100 * one['covered']:.1f} %",
        "CPU seconds of a calibration": lambda one: f"{one['cpu_s']:.1f}",
    }
    return [f"| {name} | {' | '.join(cell(one) for one in results['conditions'])} |" for name, cell in names.items()]


def describe(draws: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the summaries of all conditions, and how near win rates in the fitted fights are, by kind of draw."""
    off: dict[str, list[float]] = {}
    for draw in draws:
        off.setdefault(draw["kind"], []).extend(np.abs(np.subtract(draw["won"]["fitted"], draw["won"]["true"])))
    close = {
        kind: {"count": len(own), "close": int((np.array(own) <= CLOSE).sum()), "median": float(np.median(own))}
        for kind, own in off.items()
    }
    return {"conditions": list(summaries(draws)), "won": close}


def measured_draws(measure: Callable[..., dict[str, Any]], asked: Iterable[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Return what is measured of each draw, by the arguments before the folder, of which the first is the seed."""
    draws = []
    with TemporaryDirectory() as folder:
        for words in asked:
            draws.append(measure(*words, Path(folder)))
            print(f"draw {words[0]} measured", flush=True)
    return draws


def main() -> None:
    """Measure, print, write."""
    parser = common.make_parser(__doc__)
    parser.add_argument("--first", type=int, default=600, help="the first of the twenty seeds")
    parser.add_argument("--out", type=Path, help="folder for the results")
    asked = parser.parse_args()
    draws = measured_draws(measure, ((asked.first + number, kind) for number, kind in enumerate(KINDS)))
    results = describe(draws)
    text = "\n".join(page_rows(results))
    print(text, results["won"], sep="\n")
    if asked.out is not None:
        rows = [
            {"seed": draw["seed"], "draw": draw["kind"], "minutes": one["minutes"], "probed": one["probed"], **value}
            for draw in draws
            for one in draw["conditions"]
            for value in one["values"]
        ]
        described = {**describe_run(), "first": asked.first, "results": results}
        write_rows(asked.out / "whole.parquet", rows)
        write_json(asked.out / "whole.json", described)


if __name__ == "__main__":
    main()
