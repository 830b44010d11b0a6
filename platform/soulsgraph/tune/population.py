"""Populations: one skill's stage, whose members go on from the weights and replay of those ahead as options change.

A member trains from one comparison to the next as a task of Ray. What all have reached is written at each, so that a
population that was stopped goes on from its last comparison, and comes out as if it had not been stopped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError

from soulsgraph.results.tables import GrowingTable, write_rows
from soulsgraph.runs import evaluate as evaluating
from soulsgraph.runs.progress import interruptible
from soulsgraph.runs.train import StageSetup, Workplace, trained_artifact
from soulsgraph.tune.folder import RETURN, TRAINING_RETURN, SweepFolder
from soulsgraph.tune.shared import SharedStages
from soulsgraph.tune.space import SearchSpace
from soulsgraph.tune.trial import EPISODES, FAILED, NODE, STEP, TrialLines, evaluated, this_node
from soulsgraph_clusters.sessions.nodes import describe_loss
from soulsgraph_clusters.sessions.session import Session
from soulsgraph_envs.core.config import NonEmpty, Where, load, to_table
from soulsgraph_envs.core.files import make_folder, remove_folder, whole_folder, write_json
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.inference import FrozenNetwork
from soulsgraph_policies.agents.projects import LoadedProject, loaded_projects, take_over
from soulsgraph_policies.learning.stage_config import DECISIONS_PER_ITERATION

#: Greedy episodes by which members are compared while they learn; they are reported on others.
_EPISODES = 40
#: Members are compared after each such share of the budget, and the last quarter go on as others.
_CHANGES, _QUANTILE = 10, 0.25
#: The schedule's file in the results of a member's run, and what a population keeps beside its checkpoints.
SCHEDULE, _STATE = "schedule", "population.json"
#: How often a wait for members looks whether a stop was asked for.
_LOOK_S = 0.2


@dataclass(frozen=True)
class Member:
    """What a member of a population goes on from."""

    setting: Mapping[str, Any]
    """Its present options."""
    schedule: tuple[Mapping[str, Any], ...] = ()
    """By which options its weights came about, those of the members included from which it went on."""
    checkpoint: str | None = None
    """The folder of its exact state, in that of the population."""
    reported: Mapping[str, Any] = field(default_factory=dict)
    """Its figures at the last comparison."""
    curve: tuple[Mapping[str, Any], ...] = ()
    """Its greedy play at each comparison, until it went on from another member that of the other."""
    error: str = ""
    """What it failed by since then; empty if it did not."""
    failures: int = 0
    """How often in a row it failed."""

    @property
    def finished(self) -> bool:
        """Whether it was trained to the end."""
        return EPISODES in self.reported

    @property
    def hopeless(self) -> bool:
        """Whether it failed again where it had failed before."""
        return bool(self.error) and self.failures > 1

    def noted(self, step: int) -> Member:
        """Return it with its options in the schedule, where they changed."""
        last = {name: value for name, value in self.schedule[-1].items() if name != STEP} if self.schedule else None
        return (
            self
            if last == dict(self.setting)
            else replace(self, schedule=(*self.schedule, {STEP: step, **self.setting}))
        )


@dataclass(frozen=True)
class Population:
    """The members of one seed at a comparison."""

    round: int
    """Comparisons so far."""
    members: NonEmpty[Member]
    ended: tuple[int, ...] = ()
    """The numbers of those that were trained further since then, where another one failed."""

    @property
    def finished(self) -> bool:
        """Whether every member was trained to the end, but for those that fail each time."""
        return all(member.finished or member.hopeless for member in self.members)

    @property
    def due(self) -> list[int]:
        """The numbers of the members that are to be trained to the next comparison."""
        left = enumerate(self.members)
        return [number for number, member in left if number not in self.ended and not member.finished]

    @property
    def failed(self) -> bool:
        """Whether a member failed since the last comparison."""
        return any(member.error for member in self.members)

    @classmethod
    def begin(cls, folder: SweepFolder, seed: int) -> Population:
        """Return the members that the search asks for, drawn by the seed."""
        asked, drawn = folder.plan, np.random.default_rng((seed, 0))
        grid = asked.search == "grid"
        settings = asked.space.grid() if grid else (asked.space.draw(drawn) for _ in range(asked.samples))
        return cls(0, tuple(map(Member, settings)))

    @classmethod
    def of(cls, folder: SweepFolder, seed: int) -> Population:
        """Return what a population has reached, the beginning where nothing is written.

        Raises:
            DataError: if what is written is damaged.
        """
        file = population_path(folder, seed) / _STATE
        if not file.exists():
            return cls.begin(folder, seed)
        return load(cls, Where(file, remedy="begin another sweep with `run`"))

    def compared(self, space: SearchSpace, seed: int) -> Population:
        """Return it with those behind as those ahead are, by changed options; all draws depend on seed and round.

        Whoever fails each time is behind.
        """
        drawn, members = np.random.default_rng((seed, self.round)), [*self.members]
        order = sorted(range(len(members)), key=lambda number: _score(members[number]))
        ahead = order[len(order) - self.behind :]
        for number in order[: self.behind]:
            other = self.members[int(drawn.choice(ahead))]
            members[number] = replace(other, setting=space.changed(other.setting, drawn))
        return replace(self, members=tuple(members))

    @property
    def behind(self) -> int:
        """How many go on as others at a comparison."""
        return min(math.ceil(_QUANTILE * len(self.members)), len(self.members) // 2)

    def begun_again(self) -> Population:
        """Return it without what members failed by: they are trained anew."""
        return replace(self, members=tuple(replace(member, error="") for member in self.members))


def _score(member: Member) -> float:
    if member.error:
        return -math.inf
    value = float(member.reported[TRAINING_RETURN])
    return value if math.isfinite(value) else -math.inf


def population_path(folder: SweepFolder, seed: int) -> Path:
    """Return the folder of the checkpoints of a population."""
    return folder.tune / f"{seed}"


def train_population(folder: SweepFolder, seed: int, lines: TrialLines) -> bool:
    """Train the members of one seed from their last comparison on; return False if a stop was asked for, or one failed.

    One that fails again goes on as another one does, or at the end is left.

    Raises:
        SoulsGraphError: if the folder cannot be read or written.
    """
    path, population = population_path(folder, seed), Population.of(folder, seed)
    make_folder(path)
    if population.failed:
        population = population.begun_again()
        write_json(path / _STATE, to_table(population))
    with interruptible() as stopping:
        while not population.finished:
            ended = _trained_round(folder, seed, population, stopping)
            if ended is None:
                return False
            before, population = population, _next(population, ended, folder.plan.space, seed)
            write_json(path / _STATE, to_table(population))
            _remove_others(path, population)
            _show(lines, seed, before, ended, population)
            if population.failed and not population.finished:
                return False
    return True


def _show(lines: TrialLines, seed: int, before: Population, ended: tuple[Member, ...], population: Population) -> None:
    """Print the lines of the members that a round finished, or that failed in it."""
    for number in before.due:
        member, now = before.members[number], ended[number]
        if now.error and not population.members[number].error:
            lines.note(f"member {number}, seed {seed} failed again, and goes on as one that is ahead: {now.error}")
        elif now.error:
            lines.show(member.setting, seed, {}, FAILED)
        elif now.finished:
            lines.show(now.setting, seed, now.reported)


def _next(population: Population, ended: tuple[Member, ...], space: SearchSpace, seed: int) -> Population:
    """Return what follows a round: the members compared, or where some have to be tried again all as they are.

    Of those that failed again no more go on as others than do at any comparison: where more fail it is no member's own
    fault. After the last round there is nobody to go on as.
    """
    members = tuple(
        replace(before, error=now.error, failures=before.failures + 1) if now.error else replace(now, failures=0)
        for before, now in zip(population.members, ended, strict=True)
    )
    there = [number for number, member in enumerate(members) if not member.error]
    failed, last = [member for member in members if member.error], all(members[number].finished for number in there)
    if failed and (last or len(failed) > population.behind or not all(member.hopeless for member in failed)):
        return replace(population, members=members, ended=tuple(there))
    trained = Population(population.round + 1, members)
    return trained if trained.finished else trained.compared(space, seed)


def _trained_round(folder: SweepFolder, seed: int, population: Population, stopping: Any) -> tuple[Member, ...] | None:
    """Return the members after one more interval; None if a stop was asked for."""
    task = ray.remote(num_cpus=1)(train_member)
    common = folder.path.absolute(), tuple(loaded_projects().values()), seed, population.round
    references = {number: task.remote(*common, number, population.members[number]) for number in population.due}
    waiting = [*references.values()]
    while waiting:
        if stopping():
            for reference in waiting:
                ray.cancel(reference, force=True)
            return None
        _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=_LOOK_S)
    return tuple(
        _ended(references[number], member) if number in references else member
        for number, member in enumerate(population.members)
    )


def _ended(reference: Any, member: Member) -> Member:
    try:
        ended: Member = ray.get(reference)
    except RayError as error:
        cause = getattr(error, "cause", None)
        return replace(member, error=str(cause or describe_loss(error)).strip().rpartition("\n")[2])
    return ended


def _remove_others(path: Path, population: Population) -> None:
    """Remove checkpoints that no member goes on from."""
    kept = {member.checkpoint for member in population.members}
    for checkpoint in path.iterdir():
        if checkpoint.is_dir() and checkpoint.name not in kept:
            remove_folder(checkpoint)


def train_member(
    path: Path, projects: tuple[LoadedProject, ...], seed: int, round_: int, number: int, member: Member
) -> Member:
    """Train a member to the next comparison, and return it with what it reached; at the end save its version.

    Raises:
        SoulsGraphError: if the run cannot be trained.
    """
    take_over(projects)
    folder = SweepFolder.open(path)
    training = MemberTraining(folder, seed, number, member)
    try:
        return training.train(population_path(folder, seed), f"{round_}-{number}")
    finally:
        training.algorithm.stop()


class MemberTraining:
    """A member's stage, by its present options and from its checkpoint: weights, optimizer, replay and clocks."""

    def __init__(self, folder: SweepFolder, seed: int, number: int, member: Member) -> None:
        self._folder, self._run = folder, folder.member(number, member.setting, seed)
        *upstream, self._stage = folder.plan.stages(self._run)
        with self._run.locked(), Workplace(self._run, Session(local=False), "silent", trackers=()) as place:
            for stage in upstream:
                SharedStages(folder.shared).train(place, stage)
        self._setup = StageSetup(self._run, self._stage)
        self.algorithm = self._setup.build(Session(local=False))
        if member.checkpoint is not None:
            self.algorithm.load_checkpoint(str(population_path(folder, seed) / member.checkpoint))
        self._member = member.noted(self.algorithm.decisions)

    def train(self, path: Path, checkpoint: str) -> Member:
        """Train to the next comparison, write the checkpoint, and return the member with its figures."""
        for _ in range(_iterations(self._stage.budget)):
            if not self.algorithm.finished:
                self.algorithm.train()
        played = evaluating.play(self._agent(), evaluating.evaluation_seeds(evaluating.CURVE_SEED, _EPISODES))
        point, decisions = evaluating.curve_metrics(played), self.algorithm.decisions
        reported: dict[str, Any] = {RETURN: point["return"], TRAINING_RETURN: point["return"], STEP: decisions}
        self._member = replace(self._member, curve=(*self._member.curve, {"step": decisions, **point}))
        if self.algorithm.finished:
            self._save_version()
            reported |= {**evaluated(self._run, self._folder.plan), NODE: this_node()}
            return replace(self._member, checkpoint=None, reported=reported)
        with whole_folder(path / checkpoint, replace=True) as temporary:
            self.algorithm.save_checkpoint(str(temporary))
        return replace(self._member, checkpoint=checkpoint, reported=reported)

    def _agent(self) -> Agent:
        setup, name = self._setup, self._stage.skill
        weights, clip = self.algorithm.weights(name), setup.hyperparameters.observation_clip
        own = FrozenNetwork.of(setup.skill(name), setup.scenario, weights, clip)
        return Agent(setup.scenario, setup.skills, {**setup.agent.networks, name: own})

    def _save_version(self) -> None:
        name, setup = self._stage.skill, self._setup
        setup.verify_frozen(self.algorithm)
        learned = self.algorithm.training[name]
        artifact = trained_artifact(setup, self.algorithm.weights(name), learned.normalizer, learned.decisions)
        with self._run.locked():
            # A population that was killed before its state was written has trained the same version once.
            if not self._run.library.versions(name):
                self._run.library.save(artifact)
            write_rows(self._run.results(SCHEDULE), [dict(row) for row in self._member.schedule])
            self._write_curve()

    def _write_curve(self) -> None:
        table = GrowingTable(self._run.results("curves"))
        table.forget(self._setup.key, 0)
        for point in self._member.curve:
            table.add({"stage": self._setup.key, "skill": self._stage.skill, **point})
        table.flush()


def _iterations(budget: int) -> int:
    return max(budget // (_CHANGES * DECISIONS_PER_ITERATION), 1)
