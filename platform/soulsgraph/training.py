"""Train one stage: the loop, and what becomes of it in the skill library."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from soulsgraph.checkpoints import SAVE_INTERVAL, StageCheckpoints
from soulsgraph.interruption import Interrupted, interruptible
from soulsgraph.plan import Stage
from soulsgraph.progress import Display, stage_progress
from soulsgraph.records import StageRecords
from soulsgraph.reports.tensorboard import Board
from soulsgraph.run_folder import RunFolder
from soulsgraph.stage_setup import StageSetup
from soulsgraph_clusters.session import Session
from soulsgraph_policies.algorithm import SkillDQN
from soulsgraph_policies.artifact import Artifact, SkillCard, Training, UpstreamArtifact, graph_fields, package_versions
from soulsgraph_policies.frozen import layers_of, statistics_of


@dataclass(frozen=True)
class Workplace:
    """Where stages are trained: a run, a Ray session, a TensorBoard, a way to show progress."""

    run: RunFolder
    session: Session
    board: Board
    display: Display = "auto"


def train_stage(place: Workplace, stage: Stage) -> SkillCard:
    """Train a stage, from its latest checkpoint if there is one, and save the skill's next version.

    Raises:
        LibraryError: if an upstream skill is missing or damaged.
        Interrupted: if a stop was asked for; a checkpoint to resume from is saved.
        WriteError: if the run folder cannot be written.
    """
    setup = StageSetup.of(place.run, stage)
    checkpoints = StageCheckpoints(place.run.checkpoints(stage.name))
    algorithm = setup.build(place.session)
    try:
        _resume(algorithm, checkpoints)
        records = StageRecords(setup, place.board, algorithm.decisions)
        progressing = stage_progress(stage.name, stage.budget, place.display, done=algorithm.decisions)
        with interruptible() as interrupted, progressing as progress:
            algorithm.stop_requested = interrupted
            while not algorithm.finished:
                before = algorithm.decisions
                mean_return = records.add(algorithm, algorithm.train())
                progress.update(algorithm.decisions, mean_return)
                due = algorithm.decisions // SAVE_INTERVAL > before // SAVE_INTERVAL
                if due or algorithm.finished or interrupted():
                    records.flush()
                    checkpoints.save(algorithm)
                if interrupted() and not algorithm.finished:
                    raise Interrupted(
                        f"stopped in stage {stage.name} after {algorithm.decisions} of {stage.budget} steps; "
                        f"the same command goes on from there (curriculum and baseline with --resume)"
                    )
            stopped = interrupted()
        records.finish()
        setup.verify_frozen(algorithm)
        card = place.run.library.save(_artifact(setup, algorithm))
        if stopped:
            raise Interrupted(f"stopped after stage {stage.name}; the same command goes on (with --resume).")
        return card
    finally:
        algorithm.stop()


def _resume(algorithm: SkillDQN, checkpoints: StageCheckpoints) -> None:
    latest = checkpoints.latest()
    if latest is not None:
        algorithm.load_checkpoint(str(latest))


def _artifact(setup: StageSetup, algorithm: SkillDQN) -> Artifact:
    skill, stage, plan = setup.skills[-1], setup.stage, setup.run.plan
    layers = layers_of(algorithm.weights(skill.name))
    cards = (artifact.card for artifact in setup.upstream.values())
    card = SkillCard(
        skill=skill.name,
        version=0,
        **graph_fields(plan.skill_graph),
        observation=tuple(column.name for column in skill.observation.columns),
        normalizer=statistics_of(algorithm.normalizer),
        observation_clip=setup.hyperparameters.observation_clip,
        layer_sizes=(skill.observation.size, *(len(bias) for _, bias in layers)),
        training=Training(
            scenario=stage.scenario,
            start=setup.scenario.start,
            preset=plan.preset,
            budget=stage.budget,
            steps=algorithm.decisions,
            seed=stage.seed,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            packages=package_versions(),
        ),
        upstream=tuple(UpstreamArtifact(card.skill, card.version, card.digest) for card in cards),
        parent=stage.parent,
    )
    return Artifact(card, layers)
