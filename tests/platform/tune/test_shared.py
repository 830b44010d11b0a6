"""Stages that trials have in common are trained once, and lead to what a run by itself leads to."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from soulsgraph.results.tables import read_rows
from soulsgraph.runs.lineage import own_stages
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import Workplace
from soulsgraph.tune.shared import SharedStages
from soulsgraph_clusters.sessions.session import Session


def plan_of(gamma: float, skill: str = "lock_on") -> Plan:
    return Plan(preset="fast", scale=0.01, episodes=4, overrides={f"{skill}.gamma": gamma})


def train(shared: SharedStages, run: RunFolder, skills: int = 2) -> None:
    with run.locked(), Workplace(run, Session(local=True), "silent") as place:
        for stage in own_stages(run)[:skills]:
            shared.train(place, stage)


def weights(run: RunFolder, skill: str) -> dict[str, np.ndarray[Any, Any]]:
    return {**run.library.load(skill).weights}


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_a_stage_upstream_is_taken_with_its_curve_and_what_follows_is_as_if_trained_alone(tmp_path: Path) -> None:
    shared = SharedStages(tmp_path / "shared")
    first, second, alone = (
        RunFolder.create(tmp_path / name, plan_of(gamma))
        for name, gamma in (("first", 0.9), ("second", 0.8), ("alone", 0.8))
    )
    train(shared, first)
    train(shared, second)
    train(SharedStages(tmp_path / "other"), alone)
    cards = [run.library.card("camera", 1) for run in (first, second)]
    assert cards[0].digest == cards[1].digest
    assert cards[0].training.created == cards[1].training.created
    assert len([path for path in (tmp_path / "shared").iterdir() if path.is_dir()]) == 3
    for skill in ("camera", "lock_on"):
        assert equal(weights(second, skill), weights(alone, skill))
    assert not equal(weights(first, "lock_on"), weights(second, "lock_on"))
    steps = [[row["step"] for row in read_rows(run.results("training"))] for run in (second, alone)]
    assert steps[0] == steps[1]
