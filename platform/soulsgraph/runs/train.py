"""Train stages: what a stage trains from, its loop, checkpoints and metrics, and the artifacts that it leaves.

A version that was cloned has the decisions it was cloned from beside it; a stage that continues the version keeps them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from ray.rllib.algorithms.dqn.dqn_learner import QF_LOSS_KEY, QF_MEAN_KEY
from ray.rllib.utils.metrics import LEARNER_RESULTS
from rich.console import Console

from soulsgraph.results.origin import package_versions, source_commit
from soulsgraph.results.tables import GrowingTable, OutputConsole, Row
from soulsgraph.runs import evaluate, lineage
from soulsgraph.runs.plan import Stage, expect_fight, scenario_digest
from soulsgraph.runs.progress import Interruption, StageProgress, Supervisor, interruptible, stage_progress
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.workers import WorkerProcess
from soulsgraph.tracking.board import USUAL, Board, identity_of, make_trackers
from soulsgraph.tracking.contract import Logged, TrackedRun, Tracker
from soulsgraph.tracking.metrics import ACTIONS, FIGHT, Q_VALUES, Kept, logged
from soulsgraph_clusters.sessions.head import ClusterAwayError
from soulsgraph_clusters.sessions.session import Session, find_places
from soulsgraph_envs.combat.rollout import Episodes
from soulsgraph_envs.core.config import digest_of, to_table
from soulsgraph_envs.core.errors import SoulsGraphError, shown
from soulsgraph_envs.core.extras import installed_version
from soulsgraph_envs.core.files import remove_folder, slug, whole_folder, write_json
from soulsgraph_envs.core.scenario import Scenario, load_scenario
from soulsgraph_envs.games.link import GameSettings
from soulsgraph_envs.skills import Skill, make_skill, training_scenario
from soulsgraph_policies.agents import library as artifacts
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.inference import DEVIATION, MEAN, FrozenNetwork, RunningNormalizer, Weights, layer_names
from soulsgraph_policies.agents.library import INPUTS, Artifact, SkillCard
from soulsgraph_policies.agents.projects import ProjectDigest, projects_of
from soulsgraph_policies.learning.algorithm import SkillDQN
from soulsgraph_policies.learning.checkpoint import TrainingStateError, read_training_state, write_training_state
from soulsgraph_policies.learning.env_runners import SkillGraphEnvRunner
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.own_learner import LearnerFactory, OwnTraining, find_learner, task_of
from soulsgraph_policies.learning.sampler import Transitions
from soulsgraph_policies.learning.stage_config import SkillDQNConfig

if TYPE_CHECKING:
    from soulsgraph_clusters.fleet.gateway.runner import FleetGateway, FleetStage
    from soulsgraph_clusters.fleet.protocol.settings import Fleet


_logger = logging.getLogger("soulsgraph")
#: Seconds between two checkpoints to resume from, written at the end of an iteration; more where they take more than
#: this part of the time.
SAVE_EVERY_S, MOST_SAVING = 10.0, 0.02
#: Checkpoints kept: where the latest is damaged, the stage goes on from the one before.
_KEPT = 2
#: Decisions between two fights that are logged.
FIGHT_INTERVAL = 5_000
#: A replay keeps no journal small: it saves nothing.
_NO_BOUND_MB = 1e6


class StageSetup:
    """A stage with its skills made and its artifacts loaded; `skills` ends with the last that learns.

    `upstream` holds the frozen skills' artifacts, `parents` those that are continued. A stage that was trained is set
    up as it was then, by the versions that it `made`.

    Raises:
        LibraryError: if an upstream skill or the parent is missing or damaged.
    """

    def __init__(self, run: RunFolder, stage: Stage, made: Sequence[SkillCard] = ()) -> None:
        self.run, self.stage = run, stage
        plan, library, graph = run.plan, run.library, run.plan.skill_graph
        self.graph, self.project = graph, ProjectDigest.of(plan.graph)
        taking_part = {name for part in stage.parts for name in (*graph.upstream(part.skill), part.skill)}
        order = [name for name in graph.order if name in taking_part]
        self.skills = tuple(make_skill(name, plan.options) for name in order)
        self.scenario = training_scenario(load_scenario(stage.scenario), self.skills[-1])
        known = {one.skill: one.version for card in made for one in card.upstream if one.skill not in stage.skills}
        frozen = {name: known[name] for name in order if name in known} if made else lineage.frozen_versions(run, stage)
        #: All that determines the stage, of which the fight's file may be edited while it is trained.
        self.inputs = lineage.stage_inputs(run, stage, frozen)
        self.key = lineage.stage_key(run, stage, self.inputs)
        self.upstream = {name: library.load(name, version) for name, version in frozen.items()}
        self.parents = {p.skill: library.load(p.skill, p.parent) for p in stage.parts if p.parent is not None}
        #: How each skill learns that does.
        self.numbers = {part.skill: plan.hyperparameters(part) for part in stage.parts}
        for name, parent in self.parents.items():
            # A version goes on with the observations that it has.
            self.numbers[name] = replace(self.numbers[name], observation_clip=parent.card.observation_clip)
        clips = {name: numbers.observation_clip for name, numbers in self.numbers.items()}
        if len({*clips.values()}) > 1:
            found = ", ".join(f"{name} {clip:g}" for name, clip in clips.items())
            raise SoulsGraphError(
                f"stage {stage.name}: expected versions of one observation clip to learn together, found {found}; "
                "adapt them one after the other."
            )

    @property
    def parent(self) -> Artifact | None:
        """The version that the last skill continues."""
        return self.parents.get(self.stage.skill)

    @property
    def hyperparameters(self) -> DQNHyperparameters:
        """Those of the last skill that learns."""
        return self.numbers[self.stage.skill]

    @property
    def checkpoints(self) -> list[Path]:
        """The checkpoints to resume from, the newest last."""
        return sorted(self.run.checkpoints(self.key).glob("step-*"))

    @property
    def networks(self) -> dict[str, FrozenNetwork]:
        """The networks of the frozen skills, in graph order."""
        return {name: kept.network(self.skill(name), self.scenario) for name, kept in self.upstream.items()}

    @property
    def agent(self) -> Agent:
        """Who plays the stage: frozen skills by their networks, those that learn randomly until they have weights."""
        return Agent(self.scenario, self.skills, self.networks, dict.fromkeys(self.stage.skills, "random"))

    def skill(self, name: str) -> Skill:
        """Return a skill that takes part."""
        return next(skill for skill in self.skills if skill.name == name)

    def build(
        self, session: Session, gateway: FleetGateway | None = None, games: Sequence[GameSettings] = ()
    ) -> SkillDQN:
        """Build the algorithm; remote env runners need a Ray session.

        Of a fleet its gateway is the one runner, and so is what plays `games` here, or on a cluster's nodes.

        Raises:
            ClusterError: if the plan has remote env runners and the session no place for one, or for one of those of
                a synchronous plan.
            SoulsGraphError: if a fleet or games cannot play the stage, or as `check_elsewhere`.
        """
        real_time = gateway is not None or games
        return self._built(self._sampled_in_real_time(gateway, games, session) if real_time else self._sampled(session))

    def build_own(self, factory: LearnerFactory) -> OwnTraining:
        """Build the training of the stage's skill by a learner of your own.

        Raises:
            SoulsGraphError: if the learner does not fit the skill.
        """
        plan, name = self.run.plan, self.stage.skill
        skill, parent, numbers = self.skill(name), self.parent, self.hyperparameters
        weights = None if parent is None else parent.weights
        task = task_of(skill, plan.lanes or plan.method.lanes, self.stage.seed, numbers, weights)
        training = OwnTraining(self.skills, self.scenario, self.networks, task, factory)
        if parent is not None:
            training.normalizer.set_state(parent.card.normalizer.normalizer().get_state())
        return training

    def replay(self) -> SkillDQN:
        """Build the algorithm that learns from what the stage's journal holds, in this process alone.

        Where the journal was pruned it goes on from the older of the checkpoints that are kept.

        Raises:
            SoulsGraphError: if the journal or the checkpoint is damaged, or there is none of the stage as it would be
                trained now.
        """
        from soulsgraph_clusters.fleet.gateway.runner import FLEET, JournalRunner
        from soulsgraph_clusters.fleet.learner.algorithm import FleetDQN
        from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetSettings

        if not (journal := self.run.journal(self.key)).is_dir():
            raise SoulsGraphError(
                f"{journal}: expected the journal of {self.stage.name} as it is trained now, found none; where its "
                "inputs changed since, replay it in a copy from before the change."
            )
        config, fleet = self._config(FleetDQN), Fleet(FleetSettings(journal_mb=_NO_BOUND_MB), self.run.path)
        fleet_stage = self._fleet_stage(fleet)
        config.env_runners(env_runner_cls=JournalRunner).environment(env_config={FLEET: fleet_stage})
        algorithm = self._built(config)
        if kept := self._kept_since(fleet_stage):
            algorithm.load_checkpoint(str(kept))
        return algorithm

    def _kept_since(self, stage: FleetStage) -> Path | None:
        """Return the oldest checkpoint from which the journal goes on; None where it begins with the stage."""
        from soulsgraph_clusters.fleet.store import Journal

        journal = Journal(stage.journal, stage.name, reading=True)
        first = journal.first
        journal.close()
        states = ((path, read_training_state(path).get("journal", {})) for path in (self.checkpoints if first else ()))
        return next((path for path, journal in states if int(journal.get("position", -1)) >= first), None)

    def _config(self, method: type[SkillDQN]) -> SkillDQNConfig:
        plan, config = self.run.plan, method.get_default_config().debugging(log_level="CRITICAL")
        most, seed = plan.method.steps_per_round, self.stage.seed
        clips = {name: artifact.card.observation_clip for name, artifact in self.upstream.items()}
        # RLlib's own seed would load torch's compiler in every process: half of a runner's start.
        staged: SkillDQNConfig = config.stage(
            self.skills, self.numbers, most, seed=seed, synchronous=plan.synchronous, clips=clips
        )
        return staged

    def _built(self, config: SkillDQNConfig) -> SkillDQN:
        algorithm: SkillDQN = config.build_algo()
        algorithm.load_weights({name: artifact.weights for name, artifact in self.upstream.items()})
        for name, parent in self.parents.items():
            algorithm.load_weights({name: parent.weights})
            algorithm.load_normalizer(name, parent.card.normalizer.normalizer().get_state())
            if next(part for part in self.stage.parts if part.skill == name).cloned:
                algorithm.training[name].replay.keep(kept_demonstrations(self.run, name, parent.card.version))
        return algorithm

    def _sampled(self, session: Session) -> SkillDQNConfig:
        plan, config = self.run.plan, self._config(SkillDQN)
        if plan.env_runners and not session.local:
            check_elsewhere(self.scenario)
        places = find_places(plan.env_runners, session) if plan.env_runners else []
        if plan.synchronous and len(places) < plan.env_runners:
            raise ClusterAwayError(
                f"env runners: expected a place for each of {plan.env_runners}, by which a synchronous run can be "
                f"repeated, found {len(places)}; join the missing machines and continue with the run."
            )
        config.places = tuple(places)
        config.env_runners(env_runner_cls=SkillGraphEnvRunner, num_env_runners=len(places), num_cpus_per_env_runner=1)
        config.env_runners(num_envs_per_env_runner=plan.lanes or plan.method.lanes)
        config.environment(env_config={"scenario": self.scenario})
        return config

    def _sampled_in_real_time(
        self, gateway: FleetGateway | None, games: Sequence[GameSettings], session: Session
    ) -> SkillDQNConfig:
        # Imported here: gRPC and what belongs to it take a moment that a run in the simulator need not wait for.
        from soulsgraph_clusters.fleet.gateway.runner import FLEET, GatewayRunner
        from soulsgraph_clusters.fleet.learner.algorithm import FleetDQN
        from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetSettings

        fleet = Fleet(FleetSettings(), self.run.path) if gateway is None else gateway.fleet
        config, stage = self._config(FleetDQN), self._fleet_stage(fleet)
        stage.task(config)  # What no game can play is refused before anything starts.
        if gateway is not None:
            stage = replace(stage, process=gateway.process())
        elif session.local:
            stage = replace(stage, games=tuple(games))
        else:
            # A single one is played on each game PC.
            games = [*games] * max(self.run.plan.env_runners, 1) if len(games) == 1 else games
            stage = replace(stage, games=tuple(games), places=tuple(find_places(len(games), session)))
        config.env_runners(env_runner_cls=GatewayRunner, num_env_runners=0 if stage.process is None else 1)
        config.environment(env_config={FLEET: stage})
        return config

    def _fleet_stage(self, fleet: Fleet) -> FleetStage:
        from soulsgraph_clusters.fleet.gateway.runner import FleetStage

        plan, journal = self.run.plan, self.run.journal(self.key).absolute()
        projects = tuple(projects_of(skill.name for skill in self.skills).values())
        return FleetStage(fleet, journal, self.stage.name, self.stage.scenario, plan.options, projects)

    def verify_frozen(self, algorithm: SkillDQN | OwnTraining) -> None:
        """Check that every copy of an upstream weight is bit for bit what the library holds.

        Raises:
            SoulsGraphError: naming the skill that changed.
        """
        for name, artifact in self.upstream.items():
            copies = algorithm.copies(name)
            for key, kept in artifact.weights.items():
                if not all(np.array_equal(now[key], kept.astype(now[key].dtype)) for now in copies):
                    raise SoulsGraphError(
                        f"stage {self.stage.name}: expected {name} v{artifact.card.version} frozen, found {key} "
                        "changed; this is a defect: report it with the run's plan.json."
                    )


def check_elsewhere(scenario: Scenario) -> None:
    """Refuse a fight whose boss or player is a file of this machine: the cluster's other machines do not have it.

    Raises:
        SoulsGraphError: naming the files.
    """
    named = [name for phase in scenario.phases() for name in (phase.boss, phase.player)]
    if files := list(dict.fromkeys(name for name in named if name.endswith(".toml"))):
        raise SoulsGraphError(
            f"scenario {slug(scenario.name)}: expected a shipped boss and player, which every machine of a cluster "
            f"has, found {', '.join(map(shown, files))}; train on this machine alone, without `address` or RAY_ADDRESS."
        )


def trained_artifact(
    setup: StageSetup,
    weights: Weights,
    normalizer: RunningNormalizer,
    steps: int,
    part: Stage | None = None,
    beside: Sequence[SkillCard] = (),
) -> Artifact:
    """Make the artifact of a stage's skill from its module's weights.

    `part` is the stage of the skill, by default the last that learns; `beside` are the cards of
    those that learned in the same fights and are already saved.
    """
    stage, graph = part or setup.stage, setup.graph
    skill = setup.skill(stage.skill)
    parameters = {name: values for name, values in weights.items() if name not in (MEAN, DEVIATION)}
    known = [*(artifact.card for artifact in setup.upstream.values()), *beside]
    cards = [card for card in known if card.skill in graph.upstream(skill.name)]
    card = SkillCard(
        skill=skill.name,
        version=0,
        graph=graph.name,
        graph_skills=graph.skills,
        graph_edges=graph.edges,
        graph_digest=graph.digest,
        observation=skill.observation.names,
        normalizer=artifacts.NormalizerStatistics.of(normalizer),
        observation_clip=setup.numbers[skill.name].observation_clip,
        layer_sizes=(skill.observation.size, *(len(weights[bias]) for _, bias in layer_names(weights))),
        training=artifacts.Training(
            scenario=stage.scenario,
            start=setup.scenario.start,
            preset=setup.run.plan.preset,
            budget=stage.budget,
            steps=steps,
            seed=stage.seed,
            created=datetime.now(UTC).isoformat(timespec="microseconds"),
            packages=package_versions(),
            jointly=setup.stage.skills if setup.stage.jointly else (),
            project=setup.project,
            fight=digest_of(setup.inputs["fight"]),
            learning=digest_of(setup.inputs["learns"][stage.skill]),
        ),
        upstream=tuple(artifacts.UpstreamArtifact(card.skill, card.version, card.digest) for card in cards),
        parent=stage.parent,
    )
    return Artifact(card, parameters, setup.inputs)


def keep_demonstrations(run: RunFolder, skill: str, version: int, transitions: Transitions) -> None:
    """Keep the decisions that a version is cloned from; raises WriteError."""
    with whole_folder(run.demonstrations(skill, version), replace=True) as temporary:
        write_training_state(temporary, vars(transitions))


def kept_demonstrations(run: RunFolder, skill: str, version: int) -> Transitions:
    """Return the decisions that a version was cloned from.

    Raises:
        SoulsGraphError: if they are missing or damaged.
    """
    folder = run.demonstrations(skill, version)
    try:
        state = read_training_state(folder)
        return Transitions(**{field.name: state[field.name] for field in fields(Transitions)})
    except (TrainingStateError, KeyError) as error:
        raise SoulsGraphError(
            f"{folder}: expected the decisions that {skill} v{version} was cloned from, found none or damaged ones; "
            "restore the folder from a copy, or clone the fights again."
        ) from error


class StageRecords:
    """Write a stage's metrics as they come; `reached` is the step that a resumed stage continues from.

    The learning curve is evaluated by a `worker` while training goes on, or between iterations.
    """

    def __init__(
        self, setup: StageSetup, board: Board, reached: int, worker: WorkerProcess | None = None, fights: bool = False
    ) -> None:
        self._setup, self._board, self._fights = setup, board, fights
        # Curves go on where those of the versions that the last skill continues ended.
        parent, library = setup.parent, setup.run.library
        continued = [] if parent is None else library.lineage(parent.card.skill, parent.card.version)
        self._offset = sum(card.training.steps for card in continued)
        self._training, self._curve = (GrowingTable(setup.run.results(name)) for name in ("training", "curves"))
        for table in (self._training, self._curve):
            table.forget(setup.key, reached)
        folder, clip = setup.run.curve(setup.key), setup.hyperparameters.observation_clip
        self._evaluator = evaluate.CurveEvaluator(folder, setup.agent, clip, worker)
        self._evaluator.take_up({int(row["step"] or 0) for row in self._points()}, reached)
        #: When the last iteration ended, and with how many decisions.
        self._last = time.monotonic(), reached

    def add(self, algorithm: SkillDQN | OwnTraining, result: Mapping[str, Any]) -> float | None:
        """Record one iteration, a row for each skill that learns; return the last one's mean return, if there is one.

        Steps are decisions of all skills that learn.
        """
        drained, skills, done = algorithm.drain_episodes(), self._setup.stage.skills, algorithm.decisions
        (since, before), self._last = self._last, (time.monotonic(), done)
        pace: dict[str, float] = {"steps_per_s": (done - before) / max(self._last[0] - since, 1e-9)}
        if algorithm.live_runners is not None:
            pace["env_runners"] = algorithm.live_runners
        metrics: dict[str, float] = {}
        for skill in skills:
            episodes, learner = drained.get(skill), result.get(LEARNER_RESULTS, {}).get(skill, {})
            metrics = {"exploration": algorithm.training[skill].epsilon, **pace}
            names = {"loss": QF_LOSS_KEY, "q": QF_MEAN_KEY}
            metrics |= {name: float(learner[key]) for name, key in names.items() if key in learner}
            metrics |= {} if episodes is None else self._play(skill, episodes)
            count = 0 if episodes is None else len(episodes)
            self._write("training", skill, done, metrics, episodes=count)
        if done // evaluate.CHECKPOINT_INTERVAL > before // evaluate.CHECKPOINT_INTERVAL:
            self._evaluator.add(done, {skill: algorithm.weights(skill) for skill in skills})
        if self._fights and (done // FIGHT_INTERVAL > before // FIGHT_INTERVAL or algorithm.finished):
            self._show_fight(algorithm.weights(skills[-1]), done)
        self._draw(self._evaluator.collect())
        return metrics.get("return")

    def flush(self) -> None:
        """Write the tables to disk, as before each checkpoint: a resumed stage forgets what is behind it there."""
        self._training.flush()
        self._curve.flush()

    def flush_board(self) -> None:
        """Pass what was logged to the trackers, as after each checkpoint: there nothing can be forgotten."""
        self._board.flush()

    @property
    def results(self) -> dict[str, float]:
        """Figures of the last checkpoint on the stage's learning curve; none where it was too short for one."""
        last = max(self._points(), key=lambda row: int(row["step"] or 0), default=None)
        names = ("step", "return", "low", "high", "length", "seconds", "win_rate")
        if last is None:
            return {}
        return {"episodes": evaluate.EPISODES, **{name: float(last[name] or 0.0) for name in names}}

    def finish(self) -> None:
        """Wait for the learning curve's last points, and write everything to disk."""
        self._draw(self._evaluator.finish())
        self.flush()
        self.flush_board()

    def _points(self) -> list[Row]:
        return [row for row in self._curve.rows if row["stage"] == self._setup.key]

    def _play(self, skill: str, episodes: Episodes) -> dict[str, float]:
        terms = zip(self._setup.skill(skill).reward.names, episodes.terms.mean(axis=0), strict=True)
        return evaluate.episode_means(episodes) | {f"reward/{name}": float(value) for name, value in terms}

    def _draw(self, points: list[evaluate.CurvePoint]) -> None:
        for point in points:
            self._write("curves", self._setup.stage.skill, point.step, point.metrics)

    def _write(self, kept: Kept, skill: str, step: int, metrics: dict[str, float], **counts: int) -> None:
        table = self._training if kept == "training" else self._curve
        table.add({"stage": self._setup.key, "skill": skill, "step": step, **counts, **metrics})
        self._board.log(skill, step + self._offset, logged(kept, metrics))

    def _show_fight(self, weights: Weights, done: int) -> None:
        """Log a greedy fight of the last skill, as it plays now: nothing that is trained depends on it."""
        # Imported here: few runs are tracked by their fights, and drawing takes a moment to load.
        from soulsgraph.tracking.fights import sample_fight

        setup, step, skill = self._setup, done + self._offset, self._setup.skills[-1]
        network = FrozenNetwork.of(skill, setup.scenario, weights, setup.hyperparameters.observation_clip)
        fight = sample_fight(setup.agent, network, evaluate.evaluation_seeds(evaluate.CURVE_SEED, 1))
        shown: dict[str, Logged] = {FIGHT: fight.pixels, Q_VALUES: fight.q_values.ravel(), ACTIONS: fight.actions}
        self._board.log(skill.name, step, shown)


def tracked_run(run: RunFolder, locally: bool) -> TrackedRun:
    """Return what trackers begin with; only where all of them are local it has no identity that lasts.

    Raises:
        DataError: if the file of its identity is damaged.
        WriteError: if it cannot be written.
    """
    plan = run.plan
    tags = {name: str(getattr(plan, name)) for name in ("scenario", "preset", "graph", "seed")}
    tags |= {} if locally else {"version": installed_version(), "commit": source_commit() or "unknown"}
    identity = "" if locally else identity_of(run.path)
    return TrackedRun(run.path, identity, to_table(plan), tags)


@dataclass
class Workplace:
    """Where stages of a run are trained: a session, a console for progress; within a `with` its trackers are open.

    With a `supervisor` nothing is shown. Without a `worker` learning curves are played in the stage's own process.
    """

    run: RunFolder
    session: Session
    console: Console = field(default_factory=OutputConsole)
    supervisor: Supervisor | None = None
    #: Where game PCs play, or games of this machine that do, in the place of env runners.
    gateway: FleetGateway | None = None
    games: Sequence[GameSettings] = ()
    #: Evaluates learning curves while training goes on.
    worker: WorkerProcess | None = None
    #: What the run is tracked by, as names or objects, and whether fights at checkpoints are logged as well.
    trackers: Sequence[str | Tracker] = (USUAL,)
    fights: bool = False
    #: Learners of your own by skill, where they are not imported by their names in the plan.
    learners: Mapping[str, LearnerFactory] = field(default_factory=dict)
    board: Board = field(init=False)

    def __enter__(self) -> Workplace:
        trackers = make_trackers(self.trackers)
        self.board = Board(tracked_run(self.run, all(tracker.local for tracker in trackers)), trackers)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.board.__exit__(kind)

    @contextmanager
    def watched(self, stage: Stage, done: int) -> Iterator[tuple[StageProgress, Callable[[], bool]]]:
        """Return the stage's progress, and a function that returns whether to stop."""
        if self.supervisor is not None:
            yield self.supervisor.follow(stage.name, stage.steps), self.supervisor.stop_requested
            return
        progressing = stage_progress(stage.name, stage.steps, self.console, done)
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


def train_stage(workplace: Workplace, stage: Stage) -> list[SkillCard]:
    """Train a stage, from its latest checkpoint if there is one, and save the next version of what learned.

    Raises:
        LibraryError: if an upstream skill is missing or damaged.
        TrainingStateError: if the latest checkpoint is damaged or of another format.
        Interruption: if a stop was asked for; a checkpoint to resume from is saved.
        WriteError: if the run folder cannot be written.
    """
    setup = StageSetup(workplace.run, stage)
    write_json(workplace.run.checkpoints(setup.key) / INPUTS, setup.inputs)
    latest = next(reversed(setup.checkpoints), None)
    algorithm = _learning(setup, workplace)
    try:
        if latest is not None:
            algorithm.load_checkpoint(str(latest))
        records = StageRecords(setup, workplace.board, algorithm.decisions, workplace.worker, workplace.fights)
        with workplace.watched(stage, algorithm.decisions) as (progress, interrupted):
            algorithm.stop_requested, saving = interrupted, CheckpointClock()
            while not algorithm.finished:
                mean_return = records.add(algorithm, algorithm.train())
                progress.update(algorithm.decisions, mean_return)
                if saving.due() or algorithm.checkpoint_due or algorithm.finished or interrupted():
                    with saving.measured():
                        records.flush()
                        _save_checkpoint(setup, algorithm)
                        records.flush_board()
                if interrupted() and not algorithm.finished:
                    done = f"after {algorithm.decisions} of {stage.steps} steps"
                    raise Interruption(f"stopped in stage {stage.name} {done}")
            stopped = interrupted()
        records.finish()
        setup.verify_frozen(algorithm)
        # Without a checkpoint what it saved before it was killed is of other fights.
        saved = {} if latest is None else lineage.made_by(workplace.run, stage)
        for part in (part for part in stage.parts if part.skill not in saved):
            weights = algorithm.weights(part.skill)
            learned, beside = algorithm.training[part.skill], tuple(saved.values())
            artifact = trained_artifact(setup, weights, learned.normalizer, learned.decisions, part, beside)
            card = replace(artifact.card, results=records.results)
            saved[part.skill] = workplace.run.library.save(replace(artifact, card=card))
        if stopped:
            raise Interruption(f"stopped after stage {stage.name}")
        return [saved[skill] for skill in stage.skills]
    finally:
        algorithm.stop()


def _learning(setup: StageSetup, workplace: Workplace) -> SkillDQN | OwnTraining:
    """Build what learns in a stage: RLlib's algorithm, or a learner of your own for one skill in this process."""
    stage, plan = setup.stage, setup.run.plan
    if not (own := [name for name in stage.skills if name in plan.learners]):
        return setup.build(workplace.session, workplace.gateway, workplace.games)
    if stage.jointly or plan.env_runners or workplace.gateway or workplace.games:
        raise SoulsGraphError(
            f"stage {stage.name}: expected {own[0]}, which a learner of your own trains, alone in this process's "
            "simulator, found env runners, games in real time, or skills that learn in the same fights; leave them out."
        )
    return setup.build_own(workplace.learners.get(stage.skill) or find_learner(plan.learners[stage.skill]))


def _save_checkpoint(setup: StageSetup, algorithm: SkillDQN | OwnTraining) -> None:
    """Write a checkpoint at the algorithm's count of decisions, then remove all but the latest; raises WriteError."""
    target = setup.run.checkpoints(setup.key) / f"step-{algorithm.decisions:09d}"
    if target.exists():
        return
    with whole_folder(target) as temporary:
        # RLlib takes a relative path for the address of a remote store.
        algorithm.save_checkpoint(str(temporary.absolute()))
    for path in setup.checkpoints[:-_KEPT]:
        remove_folder(path)


def train_stages(workplace: Workplace, stages: tuple[Stage, ...]) -> list[SkillCard]:
    """Train the stages that are not finished yet, one after another.

    Raises:
        SoulsGraphError: as `train_stage`, or if a fight changes meanwhile.
    """
    cards: list[SkillCard] = []
    run, console = workplace.run, workplace.console
    fights = {stage.scenario: scenario_digest(stage.scenario) for stage in stages} | {run.plan.scenario: run.fight}
    for stage in stages:
        expect_fight(stage.scenario, fights[stage.scenario], f"the training in {run.path}")
        finished = lineage.finished_versions(run, stage)
        for card in finished:
            console.print(f"{card.skill}: already trained, v{card.version}")
        if not finished:
            began = time.monotonic()
            finished = train_stage(workplace, stage)
            for card in finished:
                together = card.training.jointly
                frozen = ", ".join(f"{one.skill} v{one.version}" for one in card.upstream if one.skill not in together)
                verified = f"; frozen skills bit-identical: {frozen}" if frozen else ""
                took = f"{card.training.steps:,} steps in {time.monotonic() - began:.0f} s"
                console.print(f"{card.skill} v{card.version}: {took}{verified}")
        cards += finished
    return cards


def train_unit(
    run: RunFolder,
    stages: tuple[Stage, ...],
    supervisor: Supervisor | None,
    worker: WorkerProcess | None = None,
    trackers: Sequence[Tracker] = (),
) -> None:
    """Train what a unit of a study trains, in this process; raises as `train_stages`."""
    here, quiet = Session(local=False), Console(quiet=True)
    with Workplace(run, here, quiet, supervisor, worker=worker, trackers=(USUAL, *trackers)) as workplace:
        train_stages(workplace, stages)
