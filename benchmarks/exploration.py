"""What a probe gains that plays what earlier fights leave open: hidden draws with and without `--after`.

python benchmarks/exploration.py --seeds 60 61 62 63 --out docs/results/calibration

Agents and the probe fight an altered boss as in `calibration.py`, in the simulator; then the probe fights as long once
more, by drawing as before, and, from the same state, by what the first fights leave open. Data are fitted to all three.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import calibration
import common
from calibration_draws import score_kinds, score_values, truth_of
from soulsgraph.calibrate.calibration import calibrate
from soulsgraph.calibrate.exploration import focus_of, openness
from soulsgraph.calibrate.rows import FightSet
from soulsgraph.recordings.recording import Fighter
from soulsgraph.results.origin import describe_run
from soulsgraph_envs.combat.probe import Focus
from soulsgraph_envs.core.files import write_json
from soulsgraph_envs.core.scenario import load_boss, load_player, load_scenario

#: The kinds of values of windows, which alone differ between the two.
KINDS = ("start", "end", "reach", "arc", "damage")
#: The seeds of the second half begin so far behind those of the first.
_LATER = 500


def measure(seed: int, minutes: float) -> dict[str, Any]:
    """Return how well a draw's data come back after so much time, and after as much again in both ways."""
    with TemporaryDirectory() as place:
        draw = calibration.Draw.make(seed, Path(place))
        first = calibration.shortened(calibration.record_draw(draw, minutes), minutes)
        focus = focus_of_fights(first)
        sets = {"first": first}
        for name, own in (("drawn", None), ("after", focus)):
            more = probed(draw, minutes, own)
            sets[name] = replace(first, fights=(*first.fights, *more.fights))
        return {"seed": seed, "ways": {name: score(draw, fights) for name, fights in sets.items()}}


def focus_of_fights(fights: FightSet) -> Focus:
    """Return what fights leave open of the shipped boss."""
    shipped, scenario = load_boss(calibration.BOSS), load_scenario(calibration.SCENARIO)
    player = load_player(scenario.player)
    return focus_of(calibrate(fights, shipped, player), calibration.BOSS, calibration.SCENARIO, shipped, player)


def probed(draw: calibration.Draw, minutes: float, focus: Focus | None) -> FightSet:
    """Return so much game time of the probe's fights."""
    probe = Fighter.probe(calibration.SCENARIO, focus=focus)
    agent = replace(probe.agent, scenario=load_scenario(draw.scenario))
    fights = calibration.record_fighter(replace(probe, agent=agent), draw.seed + _LATER, minutes)
    return calibration.first_fights(fights, minutes)


def score(draw: calibration.Draw, fights: FightSet) -> dict[str, Any]:
    """Return counts of values, how much is open of each kind of value, and errors."""
    shipped, player = load_boss(calibration.BOSS), load_player(load_scenario(calibration.SCENARIO).player)
    found = calibrate(fights, shipped, player).boss
    kinds = {
        kind.kind: asdict(kind)
        for kind in score_kinds(score_values(found, truth_of(load_boss(draw.boss), shipped), shipped))
    }
    left = {kind: sum(openness(value) for value in found if value.kind == kind) for kind in KINDS}
    return {"game_minutes": fights.seconds / 60.0, "kinds": kinds, "open": left}


def text_of(draws: Sequence[dict[str, Any]], minutes: float) -> str:
    """Return means over draws as a table in Markdown: determined values, and in brackets what is open."""
    heads = {"first": f"{minutes:g} min", "drawn": "as much again, drawn", "after": "as much again, after the first"}
    lines = [f"| values | {' | '.join(heads.values())} |", "|---|--:|--:|--:|"]
    for kind in (*KINDS, "leap", "all"):
        cells = []
        for name in heads:
            ways = [draw["ways"][name] for draw in draws]
            left = f" ({np.mean([way['open'][kind] for way in ways]):.1f})" if kind in KINDS else ""
            cells.append(f"{np.mean([way['kinds'][kind]['determined'] for way in ways]):.1f}{left}")
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure the draws, and write what they say together."""
    parser = common.make_parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[60, 61, 62, 63], help="a draw each")
    parser.add_argument("--minutes", type=float, default=10.0, help="game time of each half")
    parser.add_argument("--out", type=Path, help="folder for exploration.json")
    asked = parser.parse_args()
    draws = []
    for seed in asked.seeds:
        draws.append(measure(seed, asked.minutes))
        print(f"draw {seed} measured", flush=True)
    print(text_of(draws, asked.minutes))
    if asked.out is not None:
        write_json(asked.out / "exploration.json", {**describe_run(), "minutes": asked.minutes, "draws": draws})


if __name__ == "__main__":
    main()
