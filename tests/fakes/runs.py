"""Records of a reproduction that never ran and runs whose skills were never trained, for tests of what reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from soulsgraph.paper.study import ADAPTED, COLUMNS, DESCRIPTION, HOME, REFERENCE, SHIFTED, Records
from soulsgraph.results.tables import write_rows
from soulsgraph.runs.evaluate import TABLE_1
from soulsgraph.runs.plan import ADAPTATION_BUDGET, Plan, Stage
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import StageSetup, trained_artifact
from soulsgraph_envs.core.config import Where, read_file
from soulsgraph_envs.core.files import write_json
from soulsgraph_envs.skills import END_TO_END, SKILL_NAMES, budget_of
from soulsgraph_policies.agents.inference import NETWORK, RunningNormalizer, Weights
from soulsgraph_policies.agents.library import SkillCard

#: First and last mean return of each skill, means of the measures, and what describes the folder.
_MADE_UP = read_file(Where(Path(__file__).with_name("runs.toml")))


def write_synthetic_records(
    folder: Path,
    preset: str = "paper",
    seeds: Sequence[int] = range(300, 310),
    episodes: int = 400,
    lift: float = 0.0,
    **planned: Any,
) -> Path:
    """Write records whose win rates scatter around the paper's, `lift` points above, and return the folder.

    `planned` are further values of the recorded plan.
    """
    generator = np.random.default_rng(7)
    tables: dict[str, Records] = {name: [] for name in COLUMNS}
    for seed in seeds:
        common = {"preset": preset, "seed": seed}
        tables["rows"] += [common | row for row in _rows(generator, episodes, lift)]
        for unit, skill, scenario, budget in _stages():
            place = {"unit": unit, "skill": skill, "scenario": scenario}
            for table, every in (("curves", 1_000), ("training", max(1_000, budget // 50))):
                tables[table] += [common | place | point for point in _learning(generator, skill, budget, every)]
        tables["measures"] += [
            common | {"name": f"{name} {of}", "value": value * generator.normal(1.0, 0.04), "count": episodes}
            for name, values in _MADE_UP["measures"].items()
            for of, value in values.items()
        ]
    for name, rows in tables.items():
        kept = [{column: row[column] for column in COLUMNS[name]} for row in rows]
        write_rows(folder / "records" / f"{name}.parquet", kept)
    plan = {"preset": preset, "seeds": list(seeds), "episodes": episodes, **planned}
    write_json(folder / DESCRIPTION, {**_MADE_UP["description"], "plan": plan})
    write_json(folder / "sessions.json", _MADE_UP["sessions"])
    return folder


def _rows(generator: np.random.Generator, episodes: int, lift: float) -> Records:
    wins = {}
    for row in TABLE_1:
        assert row.paper_percent is not None, "every row of Table 1 has one"
        rate = np.clip(generator.normal(row.paper_percent + lift, 5.0), 0.0, 100.0) / 100.0
        wins[row] = int(generator.binomial(episodes, rate))
    for scenario, start in ((HOME, "mid"), (SHIFTED, "mid"), (SHIFTED, "long")):
        oracle = replace(TABLE_1[0], label="scripted oracle", part=REFERENCE, paper_percent=None)
        wins[replace(oracle, scenario=scenario, start=start)] = int(0.97 * episodes)
    extra = replace(TABLE_1[-1], label="long-range start, fine-tuned", part="extra", start="long", paper_percent=None)
    wins[extra] = int(0.3 * episodes)
    outcome = {"episodes": episodes, "mean_return": 1.0, "mean_length": 200.0, "mean_seconds": 25.0}
    places = ("part", "label", "scenario", "start", "paper_percent")
    return [{name: getattr(row, name) for name in places} | {"wins": won, **outcome} for row, won in wins.items()]


def _stages() -> list[tuple[str, str, str, int]]:
    stages = [
        ("skills", skill, HOME, budget) for skill, budget in zip(SKILL_NAMES, map(budget_of, SKILL_NAMES), strict=True)
    ]
    stages += [("skills", skill, SHIFTED, ADAPTATION_BUDGET) for skill in ADAPTED]
    return [*stages, ("end_to_end", END_TO_END, HOME, budget_of(END_TO_END))]


def _learning(generator: np.random.Generator, skill: str, budget: int, every: int) -> Records:
    first, last = _MADE_UP["returns"][skill]
    reached = generator.normal(last, 0.1 * abs(last - first))
    steps = range(every, budget + 1, every)
    points = []
    for step, wobble in zip(steps, generator.normal(0.0, 0.06 * abs(last - first), len(steps)), strict=True):
        value = float(reached + (first - reached) * np.exp(-5.0 * step / budget) + wobble)
        length, seconds = (mean * (1.0 + step / budget) * float(generator.normal(1.0, 0.1)) for mean in (150.0, 25.0))
        lasted = {"length": length, "seconds": seconds, "episode_length": length, "episode_seconds": seconds}
        bounds = {"low": value - 5.0, "high": value + 5.0}
        points.append({"step": step, "episode_return": value, "win_rate": 0.2, **bounds, **lasted})
    return points


def of_stage(folder: Path, stage: str) -> Path:
    """Return the folder of the stage of a name below another one, as `curves`; without one a folder that is not there.

    Only one stage may have that name.
    """
    return next(folder.glob(f"{stage}-*"), folder / stage)


def pretend_run(path: Path, plan: Plan) -> RunFolder:
    """Begin a run and pretend that every skill was trained."""
    run = RunFolder.create(path, plan)
    pretend_training(run, plan.stages())
    return run


def pretend_training(run: RunFolder, stages: Sequence[Stage]) -> list[SkillCard]:
    """Save a version for each stage as training would, with random weights (the stage's seed and budget decide)."""
    saved: list[SkillCard] = []
    for stage in stages:
        setup, cards = StageSetup(run, stage), list[SkillCard]()
        for part in stage.parts:
            skill, random = setup.skill(part.skill), np.random.default_rng([part.seed, part.budget])
            sizes = (skill.observation.size, *setup.hyperparameters.fcnet_hiddens, len(skill.actions))
            weights: Weights = {}
            for index, (inputs, outputs) in enumerate(pairwise(sizes)):
                weights[f"{NETWORK}.{2 * index}.weight"] = random.normal(size=(outputs, inputs)).astype(np.float32)
                weights[f"{NETWORK}.{2 * index}.bias"] = random.normal(size=outputs).astype(np.float32)
            normalizer = RunningNormalizer(skill.observation.size)
            artifact = trained_artifact(setup, weights, normalizer, part.budget, part, cards)
            cards.append(run.library.save(artifact))
        saved += cards
    return saved
