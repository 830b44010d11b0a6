"""One stage: its card, that a changed frozen skill is detected, and what goes on from a checkpoint."""

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import ray
from rich.console import Console

from fakes.runs import of_stage, pretend_run, pretend_training
from soulsgraph.results.tables import read_rows
from soulsgraph.runs.lineage import adaptation_stages, finished_versions, own_stage, own_stages
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import CheckpointClock, StageSetup, Workplace, tracked_run, train_stage
from soulsgraph.tracking.board import Board
from soulsgraph.tracking.tensorboard_tracker import TensorBoardTracker
from soulsgraph_clusters.sessions.head import ClusterError
from soulsgraph_clusters.sessions.session import Session, connect
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_policies.agents.inference import _INVERSE, NETWORK
from soulsgraph_policies.agents.library import SkillCard
from soulsgraph_policies.learning.algorithm import SkillDQN
from soulsgraph_policies.learning.checkpoint import FILE_NAME, TrainingStateError
from soulsgraph_policies.learning.env_runners import SkillGraphEnvRunner

#: 1,200 decisions of camera and lock-on: one checkpoint on their learning curves.
PLAN = Plan(scale=0.06)
#: Without env runners nothing of Ray is started.
HERE = Session(local=True)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    begun = RunFolder.create(tmp_path / "run", PLAN)
    pretend_training(begun, [PLAN.stage("camera")])
    return begun


def _train(run: RunFolder, skill: str) -> SkillCard:
    with Workplace(run, HERE, Console(quiet=True)) as workplace:
        (card,) = train_stage(workplace, run.plan.stage(skill))
        return card


def in_the_learner(algorithm: SkillDQN) -> np.ndarray:
    return algorithm.learner.module["camera"].unwrapped().weights()[f"{NETWORK}.0.bias"]


def in_what_is_played(algorithm: SkillDQN) -> np.ndarray:
    return algorithm.env_runner_group.local_env_runner._sampler._networks._parameters


def test_a_changed_weight_of_a_frozen_skill_is_found_out_wherever_it_is(run):
    setup = StageSetup(run, PLAN.stage("lock_on"))
    algorithm = setup.build(HERE)
    try:
        algorithm.training_step()
        for place in (in_the_learner, in_what_is_played):
            setup.verify_frozen(algorithm)
            # Camera is the first network; the arrays share the memory that is computed with.
            kept = place(algorithm)[0]
            place(algorithm)[0] = kept + np.float32(1e-3)
            with pytest.raises(SoulsGraphError, match="camera"):
                setup.verify_frozen(algorithm)
            place(algorithm)[0] = kept
    finally:
        algorithm.stop()


def alter(runner: SkillGraphEnvRunner, packed: str, back: bool = False) -> None:
    # Camera is the first network; the arrays share the memory that is computed with. Twice as much is exact.
    place = (_INVERSE, 0) if packed == "_affine" else 0
    getattr(runner._sampler._networks, packed)[place] *= np.float32(0.5 if back else 2.0)


@pytest.mark.slow
def test_a_remote_runner_that_plays_a_frozen_skill_by_other_weights_is_found_out(tmp_path):
    run = RunFolder.create(tmp_path / "run", Plan(scale=0.06, env_runners=1, synchronous=True))
    pretend_training(run, [PLAN.stage("camera")])
    setup = StageSetup(run, PLAN.stage("lock_on"))
    with connect("local", num_cpus=1) as session:
        # Ray's workers import from no folder of the tests.
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        algorithm = setup.build(session)
        try:
            assert algorithm.config.synchronous
            # As where a stage is resumed whose budget is spent: no runner was asked to sample.
            setup.verify_frozen(algorithm)
            algorithm.training_step()
            setup.verify_frozen(algorithm)
            for packed in ("_affine", "_parameters"):
                algorithm.env_runner_group.foreach_env_runner(
                    lambda runner, packed=packed: alter(runner, packed), local_env_runner=False
                )
                with pytest.raises(SoulsGraphError, match="camera"):
                    setup.verify_frozen(algorithm)
                algorithm.env_runner_group.foreach_env_runner(
                    lambda runner, packed=packed: alter(runner, packed, back=True), local_env_runner=False
                )
                setup.verify_frozen(algorithm)
        finally:
            ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
            algorithm.stop()


def test_a_synchronous_plan_needs_a_place_for_each_of_its_runners(tmp_path, monkeypatch):
    run = RunFolder.create(tmp_path / "run", Plan(scale=0.06, env_runners=2, synchronous=True))
    monkeypatch.setattr("soulsgraph.runs.train.find_places", lambda wanted, session: [None])
    with pytest.raises(ClusterError, match="env runners"):
        StageSetup(run, PLAN.stage("camera")).build(HERE)


def test_where_the_latest_checkpoint_is_damaged_the_one_before_leads_to_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setattr("soulsgraph.runs.train.SAVE_EVERY_S", 0.0)
    monkeypatch.setattr("soulsgraph.runs.train.MOST_SAVING", 1.0)
    first, second = (RunFolder.create(tmp_path / name, Plan(scale=0.11)) for name in ("first", "second"))
    wanted = _train(first, "camera").sha256
    kept = of_stage(first.path / "checkpoints", "camera")
    assert sorted(path.name for path in kept.glob("step-*")) == ["step-000002048", "step-000002200"]

    latest = shutil.copytree(kept, second.checkpoints(kept.name)) / "step-000002200"
    (latest / FILE_NAME).write_bytes(b"nothing of the kind")
    with pytest.raises(TrainingStateError, match=str(latest)):
        _train(second, "camera")
    shutil.rmtree(latest)
    assert _train(second, "camera").sha256 == wanted


def test_skills_that_adapt_jointly_become_versions_of_one_another(tmp_path):
    run = pretend_run(tmp_path / "run", Plan(scale=0.01))
    (stage,) = adaptation_stages(run, "iudex-phase2", ("dodge", "heal_attack"), 600, jointly=True)
    with Workplace(run, HERE, Console(quiet=True)) as workplace:
        dodge, heal = train_stage(workplace, stage)
    assert [(card.version, card.parent, card.training.steps) for card in (dodge, heal)] == [(2, 1, 600)] * 2
    assert {one.skill: one.version for one in heal.upstream}["dodge"] == 2
    assert [one.skill for one in dodge.upstream] == ["camera", "lock_on", "movement"]
    assert finished_versions(run, stage) == [dodge, heal]
    for card in (dodge, heal):  # both continued what they had learned: neither began anew, and both changed
        before, after = (run.library.load(card.skill, version) for version in (1, 2))
        assert any((before.parameters[name] != after.parameters[name]).any() for name in after.parameters)
    rows = [row for row in read_rows(run.results("training")) if row["stage"] == StageSetup(run, stage).key]
    assert {row["skill"] for row in rows} == {"dodge", "heal_attack"}
    assert max(row["step"] for row in rows) == 1_200
    shutil.rmtree(run.path / "library" / "heal_attack" / "v2")  # as if killed between the two saves
    (again,) = adaptation_stages(run, "iudex-phase2", ("dodge", "heal_attack"), 600, jointly=True)
    assert again == stage
    with Workplace(run, HERE, Console(quiet=True)) as workplace:
        assert train_stage(workplace, again)[0] == dodge
    assert run.library.versions("dodge") == run.library.versions("heal_attack") == [1, 2]
    assert run.library.card("heal_attack", 2).digest == heal.digest


def test_skills_that_learn_jointly_from_nothing_are_one_stage_of_the_curriculum_whichever_is_named(tmp_path):
    run = RunFolder.create(tmp_path / "run", Plan(preset="whole", scale=0.001))
    *alone, together = own_stages(run)
    pretend_training(run, alone)
    assert own_stage(run, "dodge") == own_stage(run, "heal_attack") == together
    assert not finished_versions(run, together)
    with Workplace(run, HERE, Console(quiet=True)) as workplace:
        dodge, heal = train_stage(workplace, together)
    assert {one.skill: one.version for one in heal.upstream}["dodge"] == 1
    steps = {card.skill: card.training.steps for card in (dodge, heal)}
    assert steps == {part.skill: part.budget for part in together.parts}
    assert all(card.training.jointly == ("dodge", "heal_attack") and card.parent is None for card in (dodge, heal))
    assert finished_versions(run, together) == [dodge, heal]


def test_checkpoints_are_spaced_by_what_they_cost(monkeypatch):
    now_s, written, spent_s = 0.0, 0, 0.0
    monkeypatch.setattr("soulsgraph.runs.train.time", SimpleNamespace(monotonic=lambda: now_s))
    for took_s, expected in ((0.01, 1000), (2.0, 100), (50.0, 4)):
        clock, begun_s, written, spent_s = CheckpointClock(), now_s, 0, 0.0
        while now_s < begun_s + 10_000.0:
            now_s += 1.0
            if clock.due():
                with clock.measured():
                    now_s += took_s
                written, spent_s = written + 1, spent_s + took_s
        # The first is written before anybody knows what one takes.
        assert (spent_s - took_s) / (now_s - begun_s) <= 0.02
        assert written == pytest.approx(expected, rel=0.15)


class Killed(Exception):  # noqa: N818 - what a test raises
    """The process ends here."""


class Killing:
    """A supervisor under which a process is killed at the end of its first iteration."""

    def follow(self, name: str, total: int) -> "Killing":
        return self

    def update(self, steps: int, mean_return: float | None) -> None:
        raise Killed

    def stop_requested(self) -> bool:
        return False


def test_a_killed_stage_goes_on_in_another_thread_and_no_step_has_two_values_on_the_board(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with pytest.raises(Killed), Workplace(run, HERE, Console(quiet=True), Killing()) as workplace:
        train_stage(workplace, run.plan.stage("lock_on"))
    left = Board(tracked_run(run, locally=True), [TensorBoardTracker()])  # of a process that cannot close it
    left.log("lock_on", 1_000, {"charts/episodic_return": -1.0})
    with ThreadPoolExecutor(1) as threads:  # Signals are the main thread's alone.
        card = threads.submit(_train, run, "lock_on").result()
    assert card.training.steps == 1_200
    events = EventAccumulator(str(run.tensorboard), purge_orphaned_data=False).Reload()
    for tag in events.Tags()["scalars"]:
        steps = [event.step for event in events.Scalars(tag)]
        assert len(steps) == len({*steps}), tag
    assert max(event.step for event in events.Scalars("lock_on/charts/epsilon")) == 1_200
    # The card has the last point of the learning curve.
    (point,) = (row for row in read_rows(run.results("curves")) if row["skill"] == "lock_on")
    assert point["step"] >= 1_000
    figures = ("step", "return", "low", "high", "length", "seconds", "win_rate")
    assert card.results == {"episodes": 5, **{name: point[name] for name in figures}}
    assert run.library.card("lock_on", 1) == card
