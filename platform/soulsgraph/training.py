"""Train one stage: the loop, and the version it saves in the skill library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from soulsgraph.checkpoints import SAVE_INTERVAL, StageCheckpoints
from soulsgraph.domains import jointly_with, save_version
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
            yield self.supervisor.follow(stage.name, stage.steps), self.supervisor.stop_requested
            return
        progressing = stage_progress(stage.name, stage.steps, self.display, done)
        with interruptible() as interrupted, progressing as progress:
            yield progress, interrupted


def train_stage(place: Workplace, stage: Stage) -> list[SkillCard]:
    """Train a stage, from its latest checkpoint if there is one, and save the next version of what learned.

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
                    done = f"after {algorithm.decisions} of {stage.steps} steps"
                    raise Interrupted(f"stopped in stage {stage.name} {done}")
            stopped = interrupted()
        records.finish()
        setup.verify_frozen(algorithm)
        cards: list[SkillCard] = []
        for part in stage.parts:
            artifact = _trained_part(setup, part, algorithm, cards)
            artifact = replace(artifact, card=replace(artifact.card, results=records.results))
            cards.append(save_version(place.run, part, artifact))
        if stopped:
            raise Interrupted(f"stopped after stage {stage.name}")
        return cards
    finally:
        algorithm.stop()


def _resume(algorithm: SkillDQN, checkpoints: StageCheckpoints) -> None:
    latest = checkpoints.latest()
    if latest is not None:
        algorithm.load_checkpoint(str(latest))


def _trained_part(setup: StageSetup, part: Stage, algorithm: SkillDQN, cards: Sequence[SkillCard]) -> Artifact:
    """Make the artifact of one of the skills that learned; `cards` are those of the ones before it."""
    weights = algorithm.weights(part.skill) | algorithm.head_weights(part.skill)
    training = algorithm.training[part.skill]
    return trained_artifact(setup, weights, training.normalizer, training.decisions, part, cards)


def trained_artifact(
    setup: StageSetup,
    weights: Weights,
    normalizer: RunningNormalizer,
    steps: int,
    part: Stage | None = None,
    beside: Sequence[SkillCard] = (),
) -> Artifact:
    """Make the artifact of a stage's skill from its module's weights, head included, after so many decisions.

    `part` is the stage of the skill, where it is another one than the last that learns; `beside` are the cards of
    those that learned in the same fights and are already saved.
    """
    stage, plan = part or setup.stage, setup.run.plan
    skill, graph = setup.skill(stage.skill), plan.skill_graph
    parameters = {name: values for name, values in weights.items() if name not in (MEAN, DEVIATION)}
    known = [*(artifact.card for artifact in setup.upstream.values()), *beside]
    cards = [card for card in known if card.skill in graph.upstream(skill.name)]
    card = SkillCard(
        skill=skill.name,
        version=0,
        **graph_fields(graph),
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
            jointly=jointly_with(setup.stage),
        ),
        upstream=tuple(UpstreamArtifact(card.skill, card.version, card.digest) for card in cards),
        parent=stage.parent,
    )
    return Artifact(card, parameters)
