"""How wrong shipped, fitted and true data are about fights of bosses that were altered at random.

Each draw alters 25 numbers of a shipped boss by 8 to 40 %. Fights of two agents are measured; the data are fitted to
fights of other players: python benchmarks/fidelity.py --draws 201 202 203 204 --out docs/results/fidelity

It writes the report of the first draw, and the errors after 2 s of all as `summary.json`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import common
from calibration_draws import draw_alterations
from soulsgraph.calibrate.boss_file import scenario_path_of, write_fitted
from soulsgraph.calibrate.calibration import calibrate
from soulsgraph.calibrate.comparison import HORIZONS_S, MEASURES, WITHIN
from soulsgraph.calibrate.fidelity import Fidelity, ScenarioFidelity, measure_fidelity
from soulsgraph.calibrate.fidelity_page import write_fidelity
from soulsgraph.calibrate.rows import read_alike, read_fights
from soulsgraph.recordings.recording import ORACLE, Fighter, record
from soulsgraph.results.origin import describe_run
from soulsgraph.runs.evaluate import Setting, evaluation_seeds
from soulsgraph.zoo import open_agent
from soulsgraph_envs.core.files import temporary_folder, write_json
from soulsgraph_envs.core.scenario import load_boss, load_player, load_scenario

SHIPPED = "iudex-phase1"
#: Who is measured and who the data are fitted to, with the fights of each.
MEASURED = {f"{SHIPPED}-paper-0": 10, f"{SHIPPED}-best-0": 10}
FITTED = {f"{SHIPPED}-paper-1": 20, f"{SHIPPED}-best-1": 20, ORACLE: 20}


def measure_draw(draw: int, folder: Path) -> tuple[Fidelity, float]:
    """Alter the boss, record, fit and measure; return how wrong each scenario is, and the CPU seconds of measuring."""
    boss, _ = draw_alterations(SHIPPED, draw, folder)
    true = folder / "true.toml"
    true.write_text(f'based_on = "{SHIPPED}"\nname = "true"\nboss = "{boss.name}"\n', encoding="utf-8")
    _record(MEASURED, str(true), folder / "measured", draw)
    _record(FITTED, str(true), folder / "fitted", draw + 1000)
    fought = read_fights(folder / "fitted", load_boss(SHIPPED), simulated=True)
    found = calibrate(fought, load_boss(SHIPPED), load_player(load_scenario(SHIPPED).player))
    write_fitted(folder / "fitted.toml", found, SHIPPED, SHIPPED, load_boss(SHIPPED))
    scenarios = (SHIPPED, str(scenario_path_of(folder / "fitted.toml")), str(true))
    began = time.process_time()
    fidelity = measure_fidelity(read_alike(folder / "measured"), scenarios)
    return fidelity, time.process_time() - began


def _record(players: dict[str, int], scenario: str, folder: Path, seed: int) -> None:
    for number, (name, fights) in enumerate(players.items()):
        if name == ORACLE:
            fighter = Fighter.oracle(scenario, random=0.2)
        else:
            fighter = Fighter.of_run(open_agent(name), Setting(scenario, SHIPPED))
        record(fighter, evaluation_seeds(seed, fights), folder / str(number))


def rows_of(draw: int, fidelity: Fidelity, cpu_s: float) -> list[dict[str, Any]]:
    """Return a row for each scenario: errors after 2 s within a move with their floor, blows, wins, CPU seconds."""
    return [
        {"draw": draw, "scenario": one.scenario, "cpu_s": round(cpu_s / len(fidelity.scenarios), 1), **_errors(one)}
        for one in fidelity.scenarios
    ]


def _errors(one: ScenarioFidelity) -> dict[str, Any]:
    span, floor = one.measured.spans[WITHIN, HORIZONS_S[-1]], one.floor.spans[WITHIN, HORIZONS_S[-1]]
    found: dict[str, Any] = {"rows": len(span)}
    for name in MEASURES:
        found |= {f"{name}_{key}": value for key, value in span.summary(name).items()}
        found |= {f"{name}_floor_{key}": value for key, value in floor.summary(name).items()}
    within = one.measured.spans[WITHIN, HORIZONS_S[1]]
    found["struck_in_both"] = within.struck_in_both
    return found | {f"wins {win.player}": win.predicted.wins for win in one.wins if win.predicted is not None}


def main(words: Sequence[str] | None = None) -> None:
    """Measure, write."""
    parser = common.make_parser(__doc__)
    parser.add_argument("--draws", type=int, nargs="+", default=[201], help="seeds of the alterations")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    asked = parser.parse_args(words)
    rows: list[dict[str, Any]] = []
    for place, draw in enumerate(asked.draws):
        with temporary_folder("soulsgraph-draw") as folder:
            fidelity, cpu_s = measure_draw(draw, folder)
        rows += rows_of(draw, fidelity, cpu_s)
        if not place:
            write_fidelity(asked.out / f"draw-{draw}", fidelity)
        write_json(asked.out / "summary.json", {"origin": describe_run(), "rows": rows})
        print(f"draw {draw}: {cpu_s:.1f} CPU seconds")


if __name__ == "__main__":
    main()
