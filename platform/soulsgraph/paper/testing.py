"""Records of a reproduction that never ran and runs whose skills were never trained, for tests of what reads them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from soulsgraph.domains import save_version
from soulsgraph.evaluate import TABLE_1
from soulsgraph.files import write_json
from soulsgraph.paper.records import DESCRIPTION
from soulsgraph.plan import ADAPTATION_BUDGET, BASELINE_BUDGET, BUDGETS, Plan, Stage
from soulsgraph.run_folder import RunFolder
from soulsgraph.tables import write_rows
from soulsgraph.train import StageSetup, trained_artifact
from soulsgraph_envs.skills import END_TO_END
from soulsgraph_policies.artifact import SkillCard
from soulsgraph_policies.inference import NETWORK, Weights
from soulsgraph_policies.preprocess import RunningNormalizer

#: First and last mean return of each skill; the middle follows an exponential.
_RETURNS = {
    "camera": (-180.0, 100.0),
    "lock_on": (-20.0, 42.0),
    "movement": (-45.0, -30.0),
    "dodge": (-9.0, -1.0),
    "heal_attack": (-9.0, 4.0),
    END_TO_END: (-11.0, -8.0),
}
_MEASURES = {
    "dodge length random": 150.0,
    "dodge length trained": 300.0,
    "dodge length idle": 200.0,
    "dodge seconds random": 25.0,
    "dodge seconds trained": 50.0,
    "dodge seconds idle": 20.0,
    "camera return random": -150.0,
    "camera return trained": 95.0,
    "camera return scripted": 110.0,
    "lock_on return random": -24.0,
    "lock_on return trained": 33.0,
    "lock_on return scripted": 50.0,
    "movement return random": -45.0,
    "movement return trained": -31.0,
    "movement return scripted": -29.0,
    "share of lock_on": 0.21,
    "share of dodge_back": 0.48,
}
_DESCRIPTION = {
    "format": "soulsgraph reproduction",
    "wall_time_s": 1234.5,
    "sessions": [
        {
            "wall_time_s": wall_time_s,
            "versions": {"soulsgraph": "0.1.0", "ray": "2.60.0", "torch": torch},
            "machine": {"processor": "a processor", "cores": 2, "system": "Linux"},
            "commit": "0123456789abcdef0123456789abcdef01234567",
        }
        for wall_time_s, torch in ((1000.0, "2.13.0"), (234.5, "2.14.0"))
    ],
}


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
    tables: dict[str, list[dict[str, Any]]] = {"rows": [], "curves": [], "training": [], "measures": []}
    for seed in seeds:
        common = {"preset": preset, "seed": seed}
        tables["rows"] += [common | row for row in _rows(generator, episodes, lift)]
        for unit, skill, scenario, budget in _stages():
            place = {"unit": unit, "skill": skill, "scenario": scenario}
            tables["curves"] += [common | place | point for point in _curve(generator, skill, budget)]
            tables["training"] += [common | place | point for point in _training(generator, skill, budget)]
        tables["measures"] += [
            common | {"name": name, "value": value * generator.normal(1.0, 0.04), "count": episodes}
            for name, value in _MEASURES.items()
        ]
    for name, rows in tables.items():
        write_rows(folder / "records" / f"{name}.parquet", rows)
    plan = {"preset": preset, "seeds": list(seeds), "episodes": episodes, **planned}
    write_json(folder / DESCRIPTION, {**_DESCRIPTION, "plan": plan})
    return folder


def _rows(generator: np.random.Generator, episodes: int, lift: float) -> list[dict[str, Any]]:
    rows = []
    for row in TABLE_1:
        rate = np.clip(generator.normal(row.paper_percent + lift, 5.0), 0.0, 100.0) / 100.0
        rows.append(_setting(row.label, row.part, row.scenario, row.start, int(generator.binomial(episodes, rate))))
        rows[-1]["paper_percent"] = row.paper_percent
    for scenario, start in (("iudex-phase1", "mid"), ("iudex-phase2", "mid"), ("iudex-phase2", "long")):
        rows.append(_setting("scripted oracle", "reference", scenario, start, int(0.97 * episodes)))
    rows.append(_setting("long-range start, fine-tuned", "extra", "iudex-phase2", "long", int(0.3 * episodes)))
    return [
        row | {"episodes": episodes, "mean_return": 1.0, "mean_length": 200.0, "mean_seconds": 25.0} for row in rows
    ]


def _setting(label: str, part: str, scenario: str, start: str, wins: int) -> dict[str, Any]:
    place = {"part": part, "label": label, "scenario": scenario, "start": start}
    return place | {"paper_percent": float("nan"), "wins": wins}


def _stages() -> list[tuple[str, str, str, int]]:
    stages = [("skills", skill, "iudex-phase1", budget) for skill, budget in BUDGETS.items()]
    stages += [("skills", skill, "iudex-phase2", ADAPTATION_BUDGET) for skill in ("dodge", "heal_attack")]
    return [*stages, ("end_to_end", END_TO_END, "iudex-phase1", BASELINE_BUDGET)]


def _curve(generator: np.random.Generator, skill: str, budget: int) -> list[dict[str, Any]]:
    return [
        {"step": step, "episode_return": value, "low": value - 5.0, "high": value + 5.0}
        | {"length": float(generator.normal(150.0 * (1.0 + step / budget), 20.0)), "win_rate": 0.2}
        | {"seconds": float(generator.normal(25.0 * (1.0 + step / budget), 2.0))}
        for step, value in _learning(generator, skill, budget, 1_000)
    ]


def _training(generator: np.random.Generator, skill: str, budget: int) -> list[dict[str, Any]]:
    return [
        {"step": step, "episode_return": value, "win_rate": 0.1}
        | {"episode_length": float(generator.normal(140.0 * (1.0 + step / budget), 12.0))}
        | {"episode_seconds": float(generator.normal(23.0 * (1.0 + step / budget), 2.0))}
        for step, value in _learning(generator, skill, budget, max(1_000, budget // 50))
    ]


def _learning(generator: np.random.Generator, skill: str, budget: int, every: int) -> list[tuple[int, float]]:
    first, last = _RETURNS[skill]
    reached = generator.normal(last, 0.1 * abs(last - first))
    steps = range(every, budget + 1, every)
    noise = generator.normal(0.0, 0.06 * abs(last - first), len(steps))
    return [
        (step, float(reached + (first - reached) * np.exp(-5.0 * step / budget) + wobble))
        for step, wobble in zip(steps, noise, strict=True)
    ]


def pretend_run(path: Path, plan: Plan) -> RunFolder:
    """Begin a run and pretend that every skill was trained."""
    run = RunFolder.create(path, plan)
    pretend_training(run, plan.stages())
    return run


def pretend_training(run: RunFolder, stages: Sequence[Stage]) -> list[SkillCard]:
    """Save a version for each stage as training would, with random weights (the stage's seed and budget decide)."""
    return [card for stage in stages for card in _pretend(run, stage)]


def _pretend(run: RunFolder, stage: Stage) -> list[SkillCard]:
    cards: list[SkillCard] = []
    setup = StageSetup(run, stage)
    for part in stage.parts:
        skill, random = setup.skill(part.skill), np.random.default_rng([part.seed, part.budget])
        sizes = (skill.observation.size, *setup.hyperparameters.hidden_sizes, len(skill.actions))
        weights: Weights = {}
        for index, (inputs, outputs) in enumerate(pairwise(sizes)):
            weights[f"{NETWORK}.{2 * index}.weight"] = random.normal(size=(outputs, inputs)).astype(np.float32)
            weights[f"{NETWORK}.{2 * index}.bias"] = random.normal(size=outputs).astype(np.float32)
        normalizer = RunningNormalizer(skill.observation.size)
        artifact = trained_artifact(setup, weights, normalizer, part.budget, part, cards)
        cards.append(save_version(run, part, artifact))
    return cards
