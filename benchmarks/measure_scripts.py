"""Let scripts fight, and write what they achieve: perfect timing, random play, and players that leave something out.

python benchmarks/measure_scripts.py --fights 400 --out docs/results/scripts/scripts

Every scenario has the same seeds, and camera, lock-on and movement engage. Survival is measured without a strike, over
90 s at most, a win over five minutes. Writes JSON with commit and machine, and the table as Markdown.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import common  # noqa: F401 - finds fakes
from fakes.scripted import ScriptedTrials
from soulsgraph.results.origin import describe_origin
from soulsgraph.results.tables import markdown_table
from soulsgraph_envs.combat.scripted import DODGE_IDLE, STRIKE, ConstantScript, OracleDodge, OracleFight
from soulsgraph_envs.core.files import write_json, write_text
from soulsgraph_envs.core.scenario import load_scenario

SCENARIOS = ("iudex-phase1", "iudex-phase1-whole", "iudex-phase2-whole", "iudex-full", "vordt-whole", "margit")
FIRST_SEED = 40_000
#: A player who never rolls needs only the time to land a blow.
ROOTED_CLEAR_S = 0.4


def measure(scenario: str, fights: int) -> dict[str, float]:
    """Return wins in percent and mean seconds, by what plays."""
    trials = ScriptedTrials(load_scenario(scenario), fights, FIRST_SEED)
    perfect = trials.fights({"dodge": OracleDodge(), "heal_attack": OracleFight()})
    random, idle = trials.random("dodge"), ConstantScript(DODGE_IDLE)
    return {
        "perfect_wins_percent": 100.0 * perfect.win_rate,
        "perfect_win_s": float(perfect.seconds[perfect.won].mean()),
        "random_dodging_lasts_s": trials.survival_s(random),
        "no_dodging_lasts_s": trials.survival_s(idle),
        "random_dodging_perfect_striking_wins_percent": trials.win_percent(random, OracleFight()),
        "random_play_wins_percent": trials.win_percent(random, trials.random("heal_attack")),
        "attack_spam_wins_percent": trials.win_percent(idle, ConstantScript(STRIKE)),
        "striking_without_a_dodge_wins_percent": trials.win_percent(idle, OracleFight(ROOTED_CLEAR_S)),
    }


def main() -> None:
    """Fight, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fights", type=int, default=400, help="fights of each scenario and script")
    parser.add_argument("--out", type=Path, default=Path("scripts"), help="files to write, less .json and .md")
    asked = parser.parse_args()
    found, origin = {name: measure(name, asked.fights) for name in SCENARIOS}, describe_origin()
    seeds = {"fights": asked.fights, "first_seed": FIRST_SEED}
    write_json(asked.out.with_suffix(".json"), origin | seeds | {"scenarios": found})
    headings = ("scenario", *(name.replace("_", " ") for name in found[SCENARIOS[0]]))
    table = markdown_table(headings, [(name, *(f"{one:.1f}" for one in row.values())) for name, row in found.items()])
    write_text(asked.out.with_suffix(".md"), f"{table}\n")
    print(table)


if __name__ == "__main__":
    main()
