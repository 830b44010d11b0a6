"""Train agents of held-out seeds by a command, seed by seed, and collect what it says that they win.

    python benchmarks/held_out.py whole --first 1100 --seeds 10 --kept DIR --out docs/results/held-out/whole
    python benchmarks/held_out.py end-to-end --first 1200 --seeds 40 --kept DIR --out docs/results/held-out/end-to-end

`whole` is `soulsgraph curriculum --scenario S --preset whole` for three whole fights, beside a script that reads the
simulator's future; `end-to-end` is `soulsgraph train --graph end-to-end`. Each agent is trained in a folder below
`--kept`; its wins are the last row of the table that it prints, of 400 fights that all agents and the script have. The
same command goes on. Writes JSON with commit, machine and every seed, and a table as Markdown.
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

WHOLE = ("iudex-full", "vordt-whole", "margit")
#: The commands of each kind, by what their agents are called.
COMMANDS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "whole": {name: ("curriculum", "--scenario", name, "--preset", "whole") for name in WHOLE},
    "end-to-end": {"end-to-end": ("train", "--graph", "end-to-end")},
}
EPISODES = 400
HEADINGS = ("agents", "script wins", "median", "seeds above 0", "every seed")


def trained(kept: Path, name: str, command: Sequence[str], seed: int) -> dict[str, Any]:
    """Train an agent by its command and return its row, that of an earlier call if there is one."""
    folder = kept / f"{name}-{seed}"
    if (file := folder.with_suffix(".json")).exists():
        row: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return row
    begun = folder.exists()
    called = [sys.executable, "-m", "soulsgraph", *command, "--seed", str(seed), "--run", str(folder), "--json"]
    began_s, load = time.monotonic(), os.getloadavg()[0]
    printed = subprocess.run(called, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    (*_, last) = json.loads(printed)["rows"]
    taken = {"wall_s": time.monotonic() - began_s, "load": load, "resumed": begun}
    row = {"scenario": name, "seed": seed, "wins": last["wins"], "episodes": last["episodes"], **taken}
    write_json(file, row)
    return row


def script_wins(scenario: str) -> float:
    """Return the percentage of the agents' fights that the scripted reference wins."""
    fought, skills = load_scenario(scenario), tuple(map(make_skill, SKILL_NAMES))
    agent = Agent(fought, skills, replaced=references(SKILL_NAMES, fought))
    return 100.0 * play(agent, evaluation_seeds(EVALUATION_SEED, EPISODES)).win_rate


def table(script: Mapping[str, float], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a row for each kind of agent: the median over its seeds, then every seed, in percent."""
    made = []
    for name in dict.fromkeys(row["scenario"] for row in rows):
        own = [row for row in rows if row["scenario"] == name]
        percent = [100.0 * row["wins"] / row["episodes"] for row in own]
        every = ", ".join(f"{one:.1f}" for one in percent)
        beside, learned = f"{script[name]:.1f}" if name in script else "", sum(row["wins"] > 0 for row in own)
        made.append((name, beside, f"{median(percent):.1f}", f"{learned} of {len(own)}", every))
    return markdown_table(HEADINGS, made)


def main() -> None:
    """Train, play, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=COMMANDS, help="what to train")
    parser.add_argument("--first", type=int, required=True, help="first training seed")
    parser.add_argument("--seeds", type=int, default=10, help="training seeds of each")
    parser.add_argument("--jobs", type=int, default=1, help="agents to train at a time")
    parser.add_argument("--kept", type=Path, default=Path("runs/held_out"), help="folder of the runs")
    parser.add_argument("--out", type=Path, default=Path("held_out"), help="files to write, less .json and .md")
    asked = parser.parse_args()
    asked.kept.mkdir(parents=True, exist_ok=True)
    origin, commands = describe_origin(), COMMANDS[asked.kind]
    # Seed by seed, so that what was stopped has as many of each.
    planned = [(name, seed) for seed in range(asked.first, asked.first + asked.seeds) for name in commands]
    rows = []
    with ThreadPoolExecutor(asked.jobs) as pool:
        for row in pool.map(lambda one: trained(asked.kept, one[0], commands[one[0]], one[1]), planned):
            print(
                f"{row['scenario']} {row['seed']}: {row['wins']} of {row['episodes']}, {row['wall_s']:.0f} s",
                flush=True,
            )
            rows.append(row)
    script = {name: script_wins(name) for name in commands if name in WHOLE}
    write_json(asked.out.with_suffix(".json"), origin | {"jobs": asked.jobs, "script_percent": script, "agents": rows})
    made = table(script, rows)
    write_text(asked.out.with_suffix(".md"), f"{made}\n")
    print(made)


if __name__ == "__main__":
    main()
