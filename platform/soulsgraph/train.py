"""Train stages: the loop, checkpoints and metrics of one stage, and the whole curriculum."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from ray.rllib.algorithms.dqn.dqn_learner import QF_LOSS_KEY, QF_MEAN_KEY
from ray.rllib.utils.metrics import LEARNER_RESULTS
from rich.console import Console

from soulsgraph.curves import CHECKPOINT_INTERVAL, EPISODES, CurveEvaluator, CurvePoint, checkpoint_weights
from soulsgraph.domains import finished_versions, half_saved, jointly_with, save_version
from soulsgraph.plan import Stage
from soulsgraph.progress import Board, Display, Interrupted, StageProgress, interruptible, stage_progress
from soulsgraph.run_folder import RunFolder
from soulsgraph.stage import StageSetup
from soulsgraph.tables import GrowingTable
from soulsgraph.worker_process import WorkerProcess
from soulsgraph_clusters.session import Session
from soulsgraph_envs.combat.episodes import Episodes
from soulsgraph_envs.drivers.realtime.link import GameSettings
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
from soulsgraph_policies.atomic import whole_folder
from soulsgraph_policies.inference import DEVIATION, MEAN, Weights, layer_names
from soulsgraph_policies.preprocess import RunningNormalizer
from soulsgraph_policies.training_state import read_training_state

#: Decisions between two checkpoints to resume from.
SAVE_INTERVAL = 10_000

#: Checkpoints kept: where the latest is damaged, the stage goes on from the one before.
_KEPT = 2
_PREFIX = "step-"


class StageCheckpoints:
    """Save and find the checkpoints of one stage."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def latest(self) -> Path | None:
        """Return the newest checkpoint, or None."""
        return next(reversed(self._all()), None)

    def save(self, algorithm: SkillDQN) -> None:
        """Write a checkpoint at the algorithm's count of decisions, then remove all but the latest two.

        Raises:
            WriteError: if the folder cannot be written; the older checkpoints stay.
        """
        target = self._folder / f"{_PREFIX}{algorithm.decisions:09d}"
        if target.exists():
            return
        with whole_folder(target) as temporary:
            # RLlib takes a relative path for the address of a remote store.
            algorithm.save_checkpoint(str(temporary.absolute()))
        for path in self._all()[:-_KEPT]:
            shutil.rmtree(path)

    def _all(self) -> list[Path]:
        return sorted(self._folder.glob(f"{_PREFIX}*"))


class StageRecords:
    """Write a stage's metrics as they come; `reached` is the step that a resumed stage continues from.

    The learning curve is evaluated by a `worker` while training goes on, or between iterations.
    """

    def __init__(self, setup: StageSetup, board: Board, reached: int, worker: WorkerProcess | None = None) -> None:
        self._setup, self._board = setup, board
        self._offset = setup.steps_before
        self._training = GrowingTable(setup.run.results("training"))
        self._curve = GrowingTable(setup.run.results("curves"))
        for table in (self._training, self._curve):
            table.forget(setup.stage.name, reached)
        known = {int(row["step"] or 0) for row in self._curve.rows if row["stage"] == setup.stage.name}
        folder: Path = setup.run.path / "curves" / setup.stage.name
        self._evaluator = CurveEvaluator(folder, setup.agent, setup.hyperparameters.observation_clip, worker)
        self._evaluator.take_up(known, reached)
        self._last_checkpoint = reached
        self._clock = (time.monotonic(), reached)

    def add(self, algorithm: SkillDQN, result: Mapping[str, Any]) -> float | None:
        """Record one iteration, a row for each skill that learns; return the last one's mean return, if there is one.

        Steps are decisions of all skills that learn.
        """
        drained, pace, skills = algorithm.drain_episodes(), self._pace(algorithm), self._setup.stage.skills
        figures: dict[str, float] = {}
        for skill in skills:
            episodes = drained.get(skill)
            explored = {"exploration": algorithm.training[skill].exploration_rate}
            figures = explored | pace | self._learning(skill, result) | self._play(skill, episodes)
            count = 0 if episodes is None else len(episodes)
            self._write(self._training, skill, algorithm.decisions, figures, episodes=count)
        if algorithm.decisions // CHECKPOINT_INTERVAL > self._last_checkpoint // CHECKPOINT_INTERVAL:
            self._last_checkpoint = algorithm.decisions
            weights = {skill: algorithm.weights(skill) for skill in skills}
            self._evaluator.add(algorithm.decisions, checkpoint_weights(weights))
        self._draw(self._evaluator.collect())
        return figures.get("return")

    def flush(self) -> None:
        """Write everything to disk, as at each checkpoint."""
        self._training.flush()
        self._curve.flush()
        self._board.flush()

    @property
    def results(self) -> dict[str, float]:
        """Figures of the last checkpoint on the stage's learning curve; none where it was too short for one."""
        points = [row for row in self._curve.rows if row["stage"] == self._setup.stage.name]
        last = max(points, key=lambda row: int(row["step"] or 0), default=None)
        names = ("step", "return", "low", "high", "length", "seconds", "win_rate")
        return {} if last is None else {"episodes": EPISODES, **{name: float(last[name] or 0.0) for name in names}}

    def finish(self) -> None:
        """Wait for the learning curve's last points, and write everything to disk."""
        self._draw(self._evaluator.finish())
        self.flush()

    def _pace(self, algorithm: SkillDQN) -> dict[str, float]:
        since, before = self._clock
        self._clock = (time.monotonic(), algorithm.decisions)
        figures = {"steps_per_s": (algorithm.decisions - before) / max(self._clock[0] - since, 1e-9)}
        return figures | ({"env_runners": algorithm.live_runners} if algorithm.config.num_env_runners else {})

    def _learning(self, skill: str, result: Mapping[str, Any]) -> dict[str, float]:
        learner = result.get(LEARNER_RESULTS, {}).get(skill, {})
        names = {"loss": QF_LOSS_KEY, "q": QF_MEAN_KEY}
        return {name: float(learner[key]) for name, key in names.items() if key in learner}

    def _play(self, skill: str, episodes: Episodes | None) -> dict[str, float]:
        if episodes is None:
            return {}
        terms = zip(self._setup.skill(skill).reward.names, episodes.terms.mean(axis=0), strict=True)
        return {
            "return": float(episodes.returns.mean()),
            "length": float(episodes.lengths.mean()),
            "seconds": float(episodes.seconds.mean()),
            "win_rate": float(episodes.won.mean()),
            **{f"reward/{name}": float(value) for name, value in terms},
        }

    def _draw(self, points: list[CurvePoint]) -> None:
        for point in points:
            self._write(self._curve, self._setup.stage.skill, point.step, point.figures, "evaluation/")

    def _write(
        self, table: GrowingTable, skill: str, step: int, figures: dict[str, float], prefix: str = "", **counts: int
    ) -> None:
        table.add({"stage": self._setup.stage.name, "skill": skill, "step": step, **counts, **figures})
        values = {f"{prefix}{name}": value for name, value in figures.items()}
        self._board.log(skill, step + self._offset, values)


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
    """Where stages are trained: a run, a session, a TensorBoard, a way to show progress.

    With a `supervisor` nothing is shown. Without a `worker` learning curves are played in the stage's own process.
    """

    run: RunFolder
    session: Session
    board: Board
    display: Display = "auto"
    supervisor: Supervisor | None = None
    #: Real-time games to sample; the simulator if there are none.
    games: tuple[GameSettings, ...] = ()
    #: Evaluates learning curves while training goes on.
    worker: WorkerProcess | None = None

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
        TrainingStateError: if the latest checkpoint is damaged or of another format.
        Interrupted: if a stop was asked for; a checkpoint to resume from is saved.
        WriteError: if the run folder cannot be written.
    """
    setup = StageSetup.of(place.run, stage)
    checkpoints = StageCheckpoints(place.run.checkpoints(stage.checkpoint_name))
    latest = checkpoints.latest()
    if latest is not None:
        read_training_state(latest)  # A checkpoint that cannot be used is refused before anything starts.
    algorithm = setup.build(place.session, place.games)
    try:
        if latest is not None:
            algorithm.load_checkpoint(str(latest))
        records = StageRecords(setup, place.board, algorithm.decisions, place.worker)
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
        saved = half_saved(place.run, stage)
        for part in (part for part in stage.parts if part.skill not in saved):
            artifact = _trained_part(setup, part, algorithm, tuple(saved.values()))
            artifact = replace(artifact, card=replace(artifact.card, results=records.results))
            saved[part.skill] = save_version(place.run, part, artifact)
        if stopped:
            raise Interrupted(f"stopped after stage {stage.name}")
        return [saved[skill] for skill in stage.skills]
    finally:
        algorithm.stop()


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
    """Make the artifact of a stage's skill from its module's weights, head included.

    `part` is the stage of the skill, by default the last that learns; `beside` are the cards of
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


def train_stages(place: Workplace, stages: tuple[Stage, ...], console: Console) -> list[SkillCard]:
    """Train the stages that are not finished yet, one after another."""
    cards: list[SkillCard] = []
    for stage in stages:
        finished = finished_versions(place.run, stage)
        for card in finished:
            console.print(f"{card.skill}: already trained, v{card.version}", highlight=False)
        if not finished:
            began = time.monotonic()
            finished = train_stage(place, stage)
            for card in finished:
                console.print(_closing_line(card, time.monotonic() - began), highlight=False, soft_wrap=True)
        cards += finished
    return cards


def _closing_line(card: SkillCard, wall_s: float) -> str:
    together = card.training.jointly
    frozen = ", ".join(f"{one.skill} v{one.version}" for one in card.upstream if one.skill not in together)
    verified = f"; frozen skills bit-identical: {frozen}" if frozen else ""
    return f"{card.skill} v{card.version}: {card.training.steps:,} steps in {wall_s:.0f} s{verified}"
