"""Train agents for whole fights from nothing, seed by seed, and play what they learned beside a script that knows all.

    python benchmarks/whole_fights.py --first 1100 --seeds 10 --kept DIR --out docs/results/whole-fights/whole_fights

Each agent is what `soulsgraph curriculum --scenario S --preset whole --seed N` trains, in a folder below `--kept`; its
win rate is the last row of the table that the command prints, of 400 fights that all agents and the script have.
The same command goes on. Writes JSON with commit, machine and every seed, and the table as Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from soulsgraph.results.origin import describe_origin
from soulsgraph.results.tables import markdown_table
from soulsgraph.runs.evaluate import EVALUATION_SEED, evaluation_seeds, play
from soulsgraph_envs.combat.scripted import references
from soulsgraph_envs.core.files import write_json, write_text
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.skills import SKILL_NAMES, make_skill
from soulsgraph_policies.agents.agent import Agent

SCENARIOS, EPISODES = ("iudex-full", "vordt-whole", "margit"), 400
HEADINGS = ("scenario", "the script wins", "preset `whole` wins", "every seed", "seconds to train")


def trained(kept: Path, scenario: str, seed: int) -> dict[str, Any]:
    """Train an agent by the command and return its row, that of an earlier call if there is one."""
    folder = kept / f"{scenario}-{seed}"
    if (file := folder.with_suffix(".json")).exists():
        row: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return row
    asked = ["--run", str(folder), "--scenario", scenario, "--preset", "whole", "--seed", str(seed), "--json"]
    resumed = ["--run", str(folder), "--resume", "--json"]
    command = [sys.executable, "-m", "soulsgraph", "curriculum", *(resumed if folder.exists() else asked)]
    began_s, load = time.monotonic(), os.getloadavg()[0]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    (*_, last) = json.loads(printed)["rows"]
    taken = {"wall_s": time.monotonic() - began_s, "load": load, "resumed": command[-2] == "--resume"}
    row = {"scenario": scenario, "seed": seed, "wins": last["wins"], "episodes": last["episodes"], **taken}
    write_json(file, row)
    return row


def script_wins(scenario: str) -> float:
    """Return the percentage of the agents' fights that the scripted reference wins."""
    fought, skills = load_scenario(scenario), tuple(map(make_skill, SKILL_NAMES))
    agent = Agent(fought, skills, replaced=references(SKILL_NAMES, fought))
    return 100.0 * play(agent, evaluation_seeds(EVALUATION_SEED, EPISODES)).win_rate


def table(script: Mapping[str, float], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return one row a scenario: medians over the seeds, then every seed."""
    made = []
    for scenario in SCENARIOS:
        own = [row for row in rows if row["scenario"] == scenario]
        percent = [100.0 * row["wins"] / row["episodes"] for row in own]
        every, seconds = ", ".join(f"{one:.1f}" for one in percent), median(row["wall_s"] for row in own)
        made.append((scenario, f"{script[scenario]:.1f}", f"{median(percent):.1f}", every, f"{seconds:.0f}"))
    return markdown_table(HEADINGS, made)


def main() -> None:
    """Train, play, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=1_100, help="first training seed")
    parser.add_argument("--seeds", type=int, default=10, help="training seeds of each scenario")
    parser.add_argument("--jobs", type=int, default=1, help="agents to train at a time")
    parser.add_argument("--kept", type=Path, default=Path("runs/whole_fights"), help="folder of the runs")
    parser.add_argument("--out", type=Path, default=Path("whole_fights"), help="files to write, less .json and .md")
    asked = parser.parse_args()
    asked.kept.mkdir(parents=True, exist_ok=True)
    origin, seeds = describe_origin(), range(asked.first, asked.first + asked.seeds)
    # Seed by seed, so that what was stopped has as many of each.
    planned = [(scenario, seed) for seed in seeds for scenario in SCENARIOS]
    rows = []
    with ThreadPoolExecutor(asked.jobs) as pool:
        for row in pool.map(lambda one: trained(asked.kept, *one), planned):
            print(
                f"{row['scenario']} {row['seed']}: {row['wins']} of {row['episodes']}, {row['wall_s']:.0f} s",
                flush=True,
            )
            rows.append(row)
    script = {scenario: script_wins(scenario) for scenario in SCENARIOS}
    write_json(asked.out.with_suffix(".json"), origin | {"jobs": asked.jobs, "script_percent": script, "agents": rows})
    made = table(script, rows)
    write_text(asked.out.with_suffix(".md"), f"{made}\n")
    print(made)


if __name__ == "__main__":
    main()
