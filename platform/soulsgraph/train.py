"""Train stages: the setup, the loop, checkpoints and metrics of one stage, and the whole curriculum."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from ray.rllib.algorithms.dqn.dqn_learner import QF_LOSS_KEY, QF_MEAN_KEY
from ray.rllib.utils.metrics import LEARNER_RESULTS
from rich.console import Console

from soulsgraph.curves import CHECKPOINT_INTERVAL, EPISODES, CurveEvaluator, CurvePoint, checkpoint_weights
from soulsgraph.domains import finished_versions, frozen_versions, half_saved, jointly_with, save_version
from soulsgraph.plan import Stage
from soulsgraph.progress import Board, Display, Interrupted, StageProgress, Supervisor, interruptible, stage_progress
from soulsgraph.run_folder import RunFolder
from soulsgraph.tables import GrowingTable, Row
from soulsgraph.worker_process import WorkerProcess
from soulsgraph_clusters.env_runner import SkillGraphEnvRunner
from soulsgraph_clusters.session import Session, place_env_runners
from soulsgraph_envs.combat.episodes import Episodes
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.drivers.realtime.link import GameSettings
from soulsgraph_envs.skills import Mirror, Skill, make_skill, practice_ground
from soulsgraph_policies import library as artifacts
from soulsgraph_policies.agent import Agent
from soulsgraph_policies.algorithm import SkillDQN
from soulsgraph_policies.atomic import whole_folder
from soulsgraph_policies.hyperparameters import DQNHyperparameters
from soulsgraph_policies.inference import DEVIATION, MEAN, Weights, layer_names
from soulsgraph_policies.library import Artifact, SkillCard
from soulsgraph_policies.preprocess import RunningNormalizer
from soulsgraph_policies.training_state import read_training_state

#: Seconds between two checkpoints to resume from, written at the end of an iteration.
SAVE_EVERY_S = 10.0

#: Checkpoints kept: where the latest is damaged, the stage goes on from the one before.
_KEPT = 2


class StageSetup:
    """A stage with its skills made and its artifacts loaded; `skills` ends with the last that learns.

    `upstream` holds the frozen skills' artifacts, `parents` those that are continued.

    Raises:
        LibraryError: if an upstream skill or the parent is missing or damaged.
    """

    def __init__(self, run: RunFolder, stage: Stage) -> None:
        self.run, self.stage = run, stage
        plan, library = run.plan, run.library
        taking_part = {name for part in stage.parts for name in (*plan.skill_graph.upstream(part.skill), part.skill)}
        order = [name for name in plan.skill_graph.order if name in taking_part]
        self.skills = tuple(make_skill(name, plan.options) for name in order)
        self.scenario = practice_ground(load_scenario(stage.scenario), self.skills[-1])
        self.upstream = {name: library.load(name, version) for name, version in frozen_versions(run, stage).items()}
        for artifact in self.upstream.values():
            library.check_upstream(artifact.card)
        self.parents = {p.skill: library.load(p.skill, p.parent) for p in stage.parts if p.parent is not None}

    @property
    def parent(self) -> Artifact | None:
        """The version that the last skill continues."""
        return self.parents.get(self.stage.skill)

    @property
    def hyperparameters(self) -> DQNHyperparameters:
        """The last skill's as the run's plan has them."""
        return self.run.plan.hyperparameters(self.stage)

    @property
    def agent(self) -> Agent:
        """Who plays the stage: frozen skills by their networks, those that learn randomly until they have weights."""
        frozen = {name: kept.network(self.skill(name), self.scenario) for name, kept in self.upstream.items()}
        return Agent(self.scenario, self.skills, frozen, dict.fromkeys(self.stage.skills, "random"))

    def skill(self, name: str) -> Skill:
        """Return a skill that takes part."""
        return next(skill for skill in self.skills if skill.name == name)

    def build(self, session: Session, games: Sequence[GameSettings] = ()) -> SkillDQN:
        """Build the algorithm; remote env runners need a Ray session, and play real-time `games` if there are any.

        Raises:
            ClusterError: if the plan has remote env runners and the session no place for one.
        """
        plan = self.run.plan
        preset = plan.method
        config = SkillDQN.get_default_config().debugging(log_level="ERROR")
        mirrors = {name: Mirror.of(self.skill(name), self.scenario) for name in self.stage.skills}
        numbers = {part.skill: plan.hyperparameters(part) for part in self.stage.parts}
        # RLlib's own seed would load torch's compiler in every process: half of a runner's start.
        config = config.stage(self.skills, numbers, preset.decisions_per_round, mirror=mirrors, seed=self.stage.seed)
        runners = len(games) if len(games) > 1 else max(plan.env_runners, len(games))
        config = config.env_runners(env_runner_cls=SkillGraphEnvRunner, **place_env_runners(runners, session))
        lanes = 1 if games else min(plan.lanes or preset.lanes, config.decisions_per_sample)
        sampled = {"scenario": self.scenario, "lanes": lanes, "games": tuple(games)}
        algorithm: SkillDQN = config.environment(env_config=sampled).build_algo()
        algorithm.load_weights({name: artifact.playing for name, artifact in self.upstream.items()})
        for name, parent in self.parents.items():
            algorithm.load_weights({name: parent.weights})
            algorithm.load_normalizer(name, parent.card.normalizer.normalizer().get_state())
        return algorithm

    def verify_frozen(self, algorithm: SkillDQN) -> None:
        """Check that every copy of an upstream weight is bit for bit what the library holds.

        Raises:
            SoulsGraphError: naming the skill that changed.
        """
        for name, artifact in self.upstream.items():
            copies = algorithm.copies(name)
            for key, kept in artifact.playing.items():
                if not all(np.array_equal(now[key], kept.astype(now[key].dtype)) for now in copies):
                    raise SoulsGraphError(
                        f"stage {self.stage.name}: expected {name} v{artifact.card.version} frozen, found {key} "
                        "changed; this is a defect: report it with the run's plan.json."
                    )


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
        **artifacts.graph_fields(graph),
        observation=skill.observation.names,
        normalizer=artifacts.NormalizerStatistics.of(normalizer),
        observation_clip=setup.hyperparameters.observation_clip,
        layer_sizes=(skill.observation.size, *(len(weights[bias]) for _, bias in layer_names(weights))),
        training=artifacts.Training(
            scenario=stage.scenario,
            start=setup.scenario.start,
            preset=plan.preset,
            budget=stage.budget,
            steps=steps,
            seed=stage.seed,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            packages=artifacts.package_versions(),
            jointly=jointly_with(setup.stage),
        ),
        upstream=tuple(artifacts.UpstreamArtifact(card.skill, card.version, card.digest) for card in cards),
        parent=stage.parent,
    )
    return Artifact(card, parameters)


class StageRecords:
    """Write a stage's metrics as they come; `reached` is the step that a resumed stage continues from.

    The learning curve is evaluated by a `worker` while training goes on, or between iterations.
    """

    def __init__(self, setup: StageSetup, board: Board, reached: int, worker: WorkerProcess | None = None) -> None:
        self._setup, self._board = setup, board
        # Curves go on where those of the versions that the last skill continues ended.
        parent, library = setup.parent, setup.run.library
        lineage = [] if parent is None else library.lineage(parent.card.skill, parent.card.version)
        self._offset = sum(card.training.steps for card in lineage)
        self._training, self._curve = (GrowingTable(setup.run.results(name)) for name in ("training", "curves"))
        for table in (self._training, self._curve):
            table.forget(setup.stage.name, reached)
        folder = setup.run.path / "curves" / setup.stage.name
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
        if algorithm.config.num_env_runners:
            pace["env_runners"] = algorithm.live_runners
        figures: dict[str, float] = {}
        for skill in skills:
            episodes, learner = drained.get(skill), result.get(LEARNER_RESULTS, {}).get(skill, {})
            figures = {"exploration": algorithm.training[skill].exploration_rate, **pace}
            names = {"loss": QF_LOSS_KEY, "q": QF_MEAN_KEY}
            figures |= {name: float(learner[key]) for name, key in names.items() if key in learner}
            figures |= {} if episodes is None else self._play(skill, episodes)
            count = 0 if episodes is None else len(episodes)
            self._write(self._training, skill, done, figures, episodes=count)
        if done // CHECKPOINT_INTERVAL > before // CHECKPOINT_INTERVAL:
            self._evaluator.add(done, checkpoint_weights({skill: algorithm.weights(skill) for skill in skills}))
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
        last = max(self._points(), key=lambda row: int(row["step"] or 0), default=None)
        names = ("step", "return", "low", "high", "length", "seconds", "win_rate")
        return {} if last is None else {"episodes": EPISODES, **{name: float(last[name] or 0.0) for name in names}}

    def finish(self) -> None:
        """Wait for the learning curve's last points, and write everything to disk."""
        self._draw(self._evaluator.finish())
        self.flush()

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
            self._write(self._curve, self._setup.stage.skill, point.step, point.figures, "evaluation/")

    def _write(
        self, table: GrowingTable, skill: str, step: int, figures: dict[str, float], prefix: str = "", **counts: int
    ) -> None:
        table.add({"stage": self._setup.stage.name, "skill": skill, "step": step, **counts, **figures})
        values = {f"{prefix}{name}": value for name, value in figures.items()}
        self._board.log(skill, step + self._offset, values)


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
    setup = StageSetup(place.run, stage)
    latest = next(reversed(_checkpoints(place.run, stage)), None)
    if latest is not None:
        read_training_state(latest)  # A checkpoint that cannot be used is refused before anything starts.
    algorithm = setup.build(place.session, place.games)
    try:
        if latest is not None:
            algorithm.load_checkpoint(str(latest))
        records = StageRecords(setup, place.board, algorithm.decisions, place.worker)
        with place.watched(stage, algorithm.decisions) as (progress, interrupted):
            algorithm.stop_requested, saved_s = interrupted, time.monotonic()
            while not algorithm.finished:
                mean_return = records.add(algorithm, algorithm.train())
                progress.update(algorithm.decisions, mean_return)
                if time.monotonic() - saved_s >= SAVE_EVERY_S or algorithm.finished or interrupted():
                    records.flush()
                    _save_checkpoint(place.run, stage, algorithm)
                    saved_s = time.monotonic()
                if interrupted() and not algorithm.finished:
                    done = f"after {algorithm.decisions} of {stage.steps} steps"
                    raise Interrupted(f"stopped in stage {stage.name} {done}")
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
            raise Interrupted(f"stopped after stage {stage.name}")
        return [saved[skill] for skill in stage.skills]
    finally:
        algorithm.stop()


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
        shutil.rmtree(path)


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
