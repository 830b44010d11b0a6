"""The names that are logged, and that a training logs nothing else whatever its trackers do."""

import numpy as np
import pytest
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fakes.runs import pretend_training
from fakes.trackers import KeptCalls, RaisingTracker
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import Workplace, train_stage
from soulsgraph.tracking.metrics import ACTIONS, FIGHT, METRICS, Q_VALUES, TERM, logged
from soulsgraph_clusters.sessions.session import Session

#: 1,200 decisions: one checkpoint on the learning curve.
PLAN = Plan(scale=0.06)


def test_columns_without_a_name_are_not_logged():
    assert logged("training", {"return": 1.0, "reward/alive": 2.0, "other": 3.0}) == {
        "charts/episodic_return": 1.0, "rewards/alive": 2.0,
    }  # fmt: skip
    assert logged("curves", {"return": 1.0}) == {"eval/episodic_return": 1.0}


def _trained(path, *trackers, fights=False):
    run = RunFolder.create(path, PLAN)
    pretend_training(run, [PLAN.stage("camera")])
    place = Workplace(run, Session(local=True), Console(quiet=True), trackers=trackers, fights=fights)
    with place:
        train_stage(place, PLAN.stage("lock_on"))
    return run


@pytest.mark.slow
def test_a_training_logs_what_the_page_names_and_learns_the_same_whatever_its_trackers_do(tmp_path):
    kept = KeptCalls(local=False)
    tracked = _trained(tmp_path / "tracked", "tensorboard", RaisingTracker(ConnectionError("away")), kept, fights=True)
    silent = _trained(tmp_path / "silent")
    weights, others = (run.library.load("lock_on", 1).weights for run in (tracked, silent))
    assert all(np.array_equal(values, others[name]) for name, values in weights.items())
    tags = EventAccumulator(str(tracked.tensorboard)).Reload().Tags()
    known = {name for names in METRICS.values() for name in names.values()}
    names = {tag.removeprefix("lock_on/") for tag in tags["scalars"]}
    assert {"losses/td_loss", "charts/SPS", "charts/epsilon", "eval/win_rate"} <= names
    assert {name for name in names if not name.startswith(TERM)} <= known
    assert {*tags["images"], *tags["histograms"]} == {f"lock_on/{name}" for name in (FIGHT, Q_VALUES, ACTIONS)}
    assert {name for _, _, values in kept.logged for name in values} == names | {FIGHT, Q_VALUES, ACTIONS}
    assert (kept.runs[0].tags["scenario"], kept.ended) == ("iudex-phase1", [True])
    assert not silent.tensorboard.exists()
