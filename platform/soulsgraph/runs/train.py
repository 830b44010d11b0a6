"""Train stages: the loop, checkpoints and metrics of one stage, and the whole curriculum."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray.rllib.algorithms.dqn.dqn_learner import QF_LOSS_KEY, QF_MEAN_KEY
from ray.rllib.utils.metrics import LEARNER_RESULTS
from rich.console import Console

from soulsgraph.results.tables import GrowingTable, Row
from soulsgraph.runs.curves import CHECKPOINT_INTERVAL, EPISODES, CurveEvaluator, CurvePoint, checkpoint_weights
from soulsgraph.runs.identity import KEY, expect_fight, in_words, read_key, write_key
from soulsgraph.runs.lineage import (
    curve_folder,
    expect_own_fight,
    finished_versions,
    half_saved,
    save_version,
    stage_key,
    unrecorded,
)
from soulsgraph.runs.plan import Stage, check_learns, scenario_digest
from soulsgraph.runs.progress import (
    Display,
    Interruption,
    StageProgress,
    Supervisor,
    TensorBoardWriter,
    interruptible,
    stage_progress,
)
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.stage_setup import StageSetup, trained_artifact
from soulsgraph.runs.worker_process import WorkerProcess
from soulsgraph_clusters.sessions.session import Session
from soulsgraph_envs.combat.rollout import Episodes
from soulsgraph_envs.core.files import remove_folder, whole_folder
from soulsgraph_envs.games.link import GameSettings
from soulsgraph_policies.agents.library import SkillCard
from soulsgraph_policies.learning.algorithm import SkillDQN
from soulsgraph_policies.learning.checkpoint import read_training_state

if TYPE_CHECKING:
    from soulsgraph_clusters.fleet.gateway.process import Gateways

_logger = logging.getLogger("soulsgraph")

#: Seconds between two checkpoints to resume from, written at the end of an iteration; more where they take more than
#: this part of the time.
SAVE_EVERY_S, MOST_SAVING = 10.0, 0.02

#: Checkpoints kept: where the latest is damaged, the stage goes on from the one before.
_KEPT = 2


class StageRecords:
    """Write a stage's metrics as they come; `reached` is the step that a resumed stage continues from.

    The learning curve is evaluated by a `worker` while training goes on, or between iterations.
    """

    def __init__(
        self, setup: StageSetup, board: TensorBoardWriter, reached: int, worker: WorkerProcess | None = None
    ) -> None:
        self._setup, self._board = setup, board
        # Curves go on where those of the versions that the last skill continues ended.
        parent, library = setup.parent, setup.run.library
        lineage = [] if parent is None else library.lineage(parent.card.skill, parent.card.version)
        self._offset = sum(card.training.steps for card in lineage)
        self._training, self._curve = (GrowingTable(setup.run.results(name)) for name in ("training", "curves"))
        for table in (self._training, self._curve):
            table.forget(setup.stage.name, reached)
        folder = curve_folder(setup.run, setup.stage)
        self._evaluator = CurveEvaluator(folder, setup.agent, setup.hyperparameters.observation_clip, worker)
        self._evaluator.take_up({int(row["step"] or 0) for row in self._points()}, reached)
        #: When the last iteration ended, and with how many decisions.
        self._last = time.monotonic(), reached

    def add(self, algorithm: SkillDQN, result: Mapping[str, Any]) -> float | None:
        """Record one iteration, a row for each skill that learns; return the last one's mean return, if there is one.

        Steps are decisions of all skills that learn.
        """
        drained, skills, done = algorithm.drain_episodes(), self._setup.stage.skills, algorithm.decisions
        (since, before), self._last = self._last, (time.monotonic(), done)
        pace: dict[str, float] = {"steps_per_s": (done - before) / max(self._last[0] - since, 1e-9)}
        if algorithm.makes_runners or algorithm.config.num_env_runners:
            pace["env_runners"] = algorithm.live_runners
        metrics: dict[str, float] = {}
        for skill in skills:
            episodes, learner = drained.get(skill), result.get(LEARNER_RESULTS, {}).get(skill, {})
            metrics = {"exploration": algorithm.training[skill].exploration_rate, **pace}
            names = {"loss": QF_LOSS_KEY, "q": QF_MEAN_KEY}
            metrics |= {name: float(learner[key]) for name, key in names.items() if key in learner}
            metrics |= {} if episodes is None else self._play(skill, episodes)
            count = 0 if episodes is None else len(episodes)
            self._write(self._training, skill, done, metrics, episodes=count)
        if done // CHECKPOINT_INTERVAL > before // CHECKPOINT_INTERVAL:
            self._evaluator.add(done, checkpoint_weights({skill: algorithm.weights(skill) for skill in skills}))
        for owner, measured in algorithm.runner_metrics().items():
            self._board.log(owner, done + self._offset, measured)
        self._draw(self._evaluator.collect())
        return metrics.get("return")

    def flush(self) -> None:
        """Write the tables to disk, as before each checkpoint: a resumed stage forgets what is behind it there."""
        self._training.flush()
        self._curve.flush()

    def flush_board(self) -> None:
        """Write the TensorBoard's events to disk, as after each checkpoint: there nothing can be forgotten."""
        self._board.flush()

    @property
    def results(self) -> dict[str, float]:
        """Figures of the last checkpoint on the stage's learning curve; none where it was too short for one."""
        last = max(self._points(), key=lambda row: int(row["step"] or 0), default=None)
        names = ("step", "return", "low", "high", "length", "seconds", "win_rate")
        return {} if last is None else {"episodes": EPISODES, **{name: float(last[name] or 0.0) for name in names}}

    def finish(self) -> None:
        """Wait for the learning curve's last points, and write everything to disk."""
        self._draw(self._evaluator.finish())
        self.flush()
        self.flush_board()

    def _points(self) -> list[Row]:
        return [row for row in self._curve.rows if row["stage"] == self._setup.stage.name]

    def _play(self, skill: str, episodes: Episodes) -> dict[str, float]:
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
            self._write(self._curve, self._setup.stage.skill, point.step, point.metrics, "evaluation/")

    def _write(
        self, table: GrowingTable, skill: str, step: int, metrics: dict[str, float], prefix: str = "", **counts: int
    ) -> None:
        table.add({"stage": self._setup.stage.name, "skill": skill, "step": step, **counts, **metrics})
        values = {f"{prefix}{name}": value for name, value in metrics.items()}
        self._board.log(skill, step + self._offset, values)


@dataclass(frozen=True)
class Workplace:
    """Where stages are trained: a run, a session, a TensorBoard, a way to show progress.

    With a `supervisor` nothing is shown. Without a `worker` learning curves are played in the stage's own process.
    """

    run: RunFolder
    session: Session
    board: TensorBoardWriter
    display: Display = "auto"
    supervisor: Supervisor | None = None
    #: Where game PCs play, or games of this machine that do, in the place of env runners.
    gateways: Gateways | None = None
    games: Sequence[GameSettings] = ()
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


class CheckpointClock:
    """When the next checkpoint is due: every `SAVE_EVERY_S`, or so rarely that all take `MOST_SAVING` of the time."""

    def __init__(self) -> None:
        self._saved_s, self._took_s = time.monotonic(), 0.0

    def due(self) -> bool:
        """Return whether it is time to write one."""
        # The share of t seconds in t + rest is the bound where the rest is t * (1 / bound - 1).
        rest_s = max(SAVE_EVERY_S, self._took_s * (1.0 / MOST_SAVING - 1.0))
        return time.monotonic() - self._saved_s >= rest_s

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Note what the latest checkpoint took, which the block writes, and when it was there."""
        began_s = time.monotonic()
        yield
        self._saved_s = time.monotonic()
        self._took_s = self._saved_s - began_s


def train_stage(place: Workplace, stage: Stage) -> list[SkillCard]:
    """Train a stage, from its latest checkpoint if there is one, and save the next version of what learned.

    Raises:
        LibraryError: if an upstream skill is missing or damaged.
        TrainingStateError: if the latest checkpoint is damaged or of another format.
        Interruption: if a stop was asked for; a checkpoint to resume from is saved.
        WriteError: if the run folder cannot be written.
    """
    check_learns(place.run.plan, [stage])
    expect_own_fight(place.run, stage.scenario)
    setup = StageSetup(place.run, stage)
    # A checkpoint that cannot be used is refused before anything starts.
    latest = _take_up(setup)
    algorithm = setup.build(place.session, place.gateways, place.games)
    try:
        if latest is not None:
            algorithm.load_checkpoint(str(latest))
        records = StageRecords(setup, place.board, algorithm.decisions, place.worker)
        with place.watched(stage, algorithm.decisions) as (progress, interrupted):
            algorithm.stop_requested, saving = interrupted, CheckpointClock()
            while not algorithm.finished:
                mean_return = records.add(algorithm, algorithm.train())
                progress.update(algorithm.decisions, mean_return)
                if saving.due() or algorithm.checkpoint_due or algorithm.finished or interrupted():
                    with saving.measured():
                        records.flush()
                        _save_checkpoint(place.run, stage, algorithm)
                        records.flush_board()
                if interrupted() and not algorithm.finished:
                    done = f"after {algorithm.decisions} of {stage.steps} steps"
                    raise Interruption(f"stopped in stage {stage.name} {done}")
            stopped = interrupted()
        records.finish()
        setup.verify_frozen(algorithm)
        saved = half_saved(place.run, stage)
        for part in (part for part in stage.parts if part.skill not in saved):
            weights = algorithm.weights(part.skill) | algorithm.head_weights(part.skill)
            learned, beside = algorithm.training[part.skill], tuple(saved.values())
            artifact = trained_artifact(setup, weights, learned.normalizer, learned.decisions, part, beside)
            card = replace(artifact.card, results=records.results)
            saved[part.skill] = save_version(place.run, part, replace(artifact, card=card))
        if stopped:
            raise Interruption(f"stopped after stage {stage.name}")
        return [saved[skill] for skill in stage.skills]
    finally:
        algorithm.stop()


def _take_up(setup: StageSetup) -> Path | None:
    """Return the checkpoint to go on from; what another stage of the same name left is removed.

    Raises:
        SoulsGraphError: if the latest checkpoint, or what says which stage it is of, is damaged.
        WriteError: if the run folder cannot be written.
    """
    run, stage = setup.run, setup.stage
    key, file, curve = stage_key(run, stage), run.stage_key(stage.checkpoint_name), curve_folder(run, stage)
    latest, found = next(reversed(_checkpoints(run, stage)), None), read_key(file)
    differing = key.differing(found)
    fits = latest is None or bool(differing) or setup.fits(read_training_state(latest))
    if differing or not fits:
        upstream = not fits or all(name.startswith("version of") for name in differing)
        found_there = "skills upstream have other versions than its checkpoints"
        why = found_there if upstream else f"its checkpoints are of another {in_words(differing)}"
        _logger.warning("%s: %s; it begins anew", stage.name, why)
        # What games played for the other stage is of no use either.
        for folder in (run.journal, run.games, run.checkpoints):
            remove_folder(folder(stage.checkpoint_name))
        latest = None
    if latest is not None and key.unknown(found):
        _logger.warning("%s: its checkpoints do not say of which fight they are; taken for this one", stage.name)
        setup.fight = ""
    else:
        write_key(file, key)
    if key.differing(read_key(curve / KEY)):
        remove_folder(curve)
    write_key(curve / KEY, key)
    return latest


def _checkpoints(run: RunFolder, stage: Stage) -> list[Path]:
    """Return a stage's checkpoints to resume from, the newest last."""
    return sorted(run.checkpoints(stage.checkpoint_name).glob("step-*"))


def _save_checkpoint(run: RunFolder, stage: Stage, algorithm: SkillDQN) -> None:
    """Write a checkpoint at the algorithm's count of decisions, then remove all but the latest; raises WriteError."""
    target = run.checkpoints(stage.checkpoint_name) / f"step-{algorithm.decisions:09d}"
    if target.exists():
        return
    with whole_folder(target) as temporary:
        # RLlib takes a relative path for the address of a remote store.
        algorithm.save_checkpoint(str(temporary.absolute()))
    for path in _checkpoints(run, stage)[:-_KEPT]:
        remove_folder(path)


def train_stages(place: Workplace, stages: tuple[Stage, ...], console: Console) -> list[SkillCard]:
    """Train the stages that are not finished yet, one after another.

    Raises:
        SoulsGraphError: as `train_stage`; if one would learn nothing, or a fight changes meanwhile.
    """
    cards: list[SkillCard] = []
    fights = {stage.scenario: scenario_digest(stage.scenario) for stage in stages}
    check_learns(place.run.plan, [stage for stage in stages if not finished_versions(place.run, stage)])
    for stage in stages:
        expect_fight(stage.scenario, fights[stage.scenario], f"the training in {place.run.path}")
        finished = finished_versions(place.run, stage)
        for card in finished:
            missing = in_words(unrecorded(place.run, card))
            note = f" (its {missing} was not recorded: taken for the same)" if missing else ""
            console.print(f"{card.skill}: already trained, v{card.version}{note}", highlight=False, soft_wrap=True)
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
