"""Train one stage: the loop, and the version it saves in the skill library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from soulsgraph.checkpoints import SAVE_INTERVAL, StageCheckpoints
from soulsgraph.domains import save_version
from soulsgraph.plan import Stage
from soulsgraph.progress import Display, Interrupted, StageProgress, interruptible, stage_progress
from soulsgraph.records import StageRecords
from soulsgraph.reports.tensorboard import Board
from soulsgraph.run_folder import RunFolder
from soulsgraph.stage_setup import StageSetup
from soulsgraph_clusters.session import Session
from soulsgraph_envs.live.settings import GameSettings
from soulsgraph_policies.algorithm import SkillDQN
from soulsgraph_policies.artifact import (
    Artifact,
    NormalizerStatistics,
    SkillCard,
    Training,
    UpstreamArtifact,
    graph_fields,
    package_versions,
)
from soulsgraph_policies.normalizer import RunningNormalizer
from soulsgraph_policies.weights import DEVIATION, MEAN, Weights, layer_names


class Supervisor(Protocol):
    """Receives the reports of a stage that is one of many, in place of a terminal."""

    def follow(self, name: str, total: int) -> StageProgress:
        """Return the progress of the stage that begins now."""
        ...

    def stop_requested(self) -> bool:
        """Return whether the stage is to save a checkpoint and stop."""
        ...


@dataclass(frozen=True)
class Workplace:
    """Where stages are trained: a run, a Ray session, a TensorBoard, a way to show progress.

    With a `supervisor` nothing is shown, and learning curves are played in the stage's own process.
    """

    run: RunFolder
    session: Session
    board: Board
    display: Display = "auto"
    supervisor: Supervisor | None = None
    #: Real-time games to sample; the simulator if there are none.
    games: tuple[GameSettings, ...] = ()

    @contextmanager
    def watched(self, stage: Stage, done: int) -> Iterator[tuple[StageProgress, Callable[[], bool]]]:
        """Return the stage's progress, and a function that returns whether to stop."""
        if self.supervisor is not None:
            yield self.supervisor.follow(stage.name, stage.budget), self.supervisor.stop_requested
            return
        progressing = stage_progress(stage.name, stage.budget, self.display, done)
        with interruptible() as interrupted, progressing as progress:
            yield progress, interrupted


def train_stage(place: Workplace, stage: Stage) -> SkillCard:
    """Train a stage, from its latest checkpoint if there is one, and save the skill's next version.

    Raises:
        LibraryError: if an upstream skill is missing or damaged.
        Interrupted: if a stop was asked for; a checkpoint to resume from is saved.
        WriteError: if the run folder cannot be written.
    """
    setup = StageSetup.of(place.run, stage)
    checkpoints = StageCheckpoints(place.run.checkpoints(stage.checkpoint_name))
    algorithm = setup.build(place.session, place.games)
    try:
        _resume(algorithm, checkpoints)
        records = StageRecords(setup, place.board, algorithm.decisions, beside=place.supervisor is None)
        with place.watched(stage, algorithm.decisions) as (progress, interrupted):
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
                    done = f"after {algorithm.decisions} of {stage.budget} steps"
                    raise Interrupted(f"stopped in stage {stage.name} {done}")
            stopped = interrupted()
        records.finish()
        setup.verify_frozen(algorithm)
        weights, normalizer = algorithm.weights(stage.skill) | algorithm.head_weights(), algorithm.normalizer
        artifact = trained_artifact(setup, weights, normalizer, algorithm.decisions)
        artifact = replace(artifact, card=replace(artifact.card, results=records.results))
        card = save_version(place.run, stage, artifact)
        if stopped:
            raise Interrupted(f"stopped after stage {stage.name}")
        return card
    finally:
        algorithm.stop()


def _resume(algorithm: SkillDQN, checkpoints: StageCheckpoints) -> None:
    latest = checkpoints.latest()
    if latest is not None:
        algorithm.load_checkpoint(str(latest))


def trained_artifact(setup: StageSetup, weights: Weights, normalizer: RunningNormalizer, steps: int) -> Artifact:
    """Make the artifact of a stage's skill from its module's weights, head included, after `steps` decisions."""
    skill, stage, plan = setup.skills[-1], setup.stage, setup.run.plan
    parameters = {name: values for name, values in weights.items() if name not in (MEAN, DEVIATION)}
    cards = (artifact.card for artifact in setup.upstream.values())
    card = SkillCard(
        skill=skill.name,
        version=0,
        **graph_fields(plan.skill_graph),
        observation=skill.observation.names,
        normalizer=NormalizerStatistics.of(normalizer),
        observation_clip=setup.hyperparameters.observation_clip,
        layer_sizes=(skill.observation.size, *(len(weights[bias]) for _, bias in layer_names(weights))),
        training=Training(
            scenario=stage.scenario,
            start=setup.scenario.start,
            preset=plan.preset,
            budget=stage.budget,
            steps=steps,
            seed=stage.seed,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            packages=package_versions(),
        ),
        upstream=tuple(UpstreamArtifact(card.skill, card.version, card.digest) for card in cards),
        parent=stage.parent,
    )
    return Artifact(card, parameters)
