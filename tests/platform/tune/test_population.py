"""A member of a population in this process: what it goes on from, by which options, and what it leaves."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from soulsgraph.results.tables import read_rows
from soulsgraph.runs.plan import Plan
from soulsgraph.tune.folder import RETURN, TRAINING_RETURN, Sweep, SweepFolder
from soulsgraph.tune.population import StageMember
from soulsgraph.tune.space import SearchSpace
from soulsgraph.tune.trial import OPTIONS, SEED, STEP

RATE = "camera.learning_rate"


def member_class(path: Path) -> type[StageMember]:
    class HereMember(StageMember):
        def setup(self, config: dict[str, Any], *_: Any) -> None:
            super().setup(config, path)

    return HereMember


def arrays(member: StageMember) -> dict[str, Any]:
    state = member._algorithm.get_training_state()
    found: dict[str, Any] = {}
    for part in ("training", "learner", "runner"):
        _flatten(state[part], part, found)
    return found


def _flatten(value: Any, name: str, found: dict[str, Any]) -> None:
    if isinstance(value, dict):
        for key, one in value.items():
            _flatten(one, f"{name}/{key}", found)
    else:
        found[name] = value


def test_a_member_goes_on_from_anothers_state_by_its_own_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("soulsgraph.tune.population.this_node", lambda: "here")
    plan = Plan(preset="fast", scale=0.15, episodes=4)
    sweep = Sweep(plan, SearchSpace({RATE: (1e-4, 1e-2)}), (7,), scheduler="pbt", stage="camera")
    folder = SweepFolder.create(tmp_path / "sweep", sweep)
    members = [member_class(folder.path)({OPTIONS: {RATE: rate}, SEED: 7}) for rate in (1e-4, 1e-2)]
    donor, other = members
    try:
        first = donor.step()
        assert not first["done"]
        assert first[RETURN] == first[TRAINING_RETURN]
        (checkpoint := tmp_path / "checkpoint").mkdir()
        donor.save_checkpoint(str(checkpoint))
        other.step()
        other.load_checkpoint(str(checkpoint))
        ours, theirs = arrays(other), arrays(donor)
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
        assert other._algorithm.learner.learning["camera"].optimizer.param_groups[0]["lr"] == 1e-2
        last = first
        while not last["done"]:
            last = other.step()
        assert last[STEP] == sweep.budget
        schedule = read_rows(other._run.results("schedule"))
        assert schedule == [{STEP: 0, RATE: 1e-4}, {STEP: first[STEP], RATE: 1e-2}]
        assert other._run.library.versions("camera") == [1]
        assert other.reset_config({OPTIONS: {RATE: 1e-4}, SEED: 7})
        assert other._algorithm.decisions == 0
    finally:
        for member in members:
            member.cleanup()
