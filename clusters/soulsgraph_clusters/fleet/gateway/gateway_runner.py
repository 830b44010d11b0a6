"""The RLlib env runner of a fleet: an actor that serves any number of games and returns what its journal holds."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import ray

from soulsgraph_clusters.fleet.gateway.admission import Intake
from soulsgraph_clusters.fleet.gateway.coordinator import Desk
from soulsgraph_clusters.fleet.gateway.folder import HELD_FOR_S
from soulsgraph_clusters.fleet.gateway.gateway import Gateway
from soulsgraph_clusters.fleet.gateway.journal import Journal, JournalError
from soulsgraph_clusters.fleet.gateway.metrics import Exporter
from soulsgraph_clusters.fleet.gateway.status import FleetStatus, StatusWriter
from soulsgraph_clusters.fleet.protocol.arrays import decode_columns
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Record
from soulsgraph_clusters.fleet.protocol.security import ends_soon
from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetError
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.skills import SkillOptions
from soulsgraph_policies.agents.inference import Weights
from soulsgraph_policies.agents.projects import LoadedProject, take_over
from soulsgraph_policies.learning.env_runners import ChunkRunner
from soulsgraph_policies.learning.replay import check_even_draws
from soulsgraph_policies.learning.sampler import Chunk
from soulsgraph_policies.learning.stage_config import SkillDQNConfig

T = TypeVar("T")

#: `fetch` returns after so long, whatever has come.
FETCH_WITHIN_S = 0.05
_RETRY_AFTER_S = 0.2
#: Records of one `fetch`.
MOST_RECORDS = 256
#: The environment configuration's key of a `FleetStage`.
FLEET = "fleet"


@dataclass(frozen=True)
class FleetStage:
    """Where a stage meets its fleet: its journal, and what the games play.

    `process` is the Ray actor of a `GatewayProcess`; without one the gateway is in the driver.
    """

    fleet: Fleet
    journal: Path
    name: str
    scenario: str
    options: SkillOptions
    #: Whose skills take part; the gateway's process has not imported their code.
    projects: tuple[LoadedProject, ...] = ()
    process: ray.actor.ActorHandle | None = None

    def task(self, config: SkillDQNConfig) -> StageTask:
        """Return what the games play, as RLlib's configuration says who plays and who learns.

        Raises:
            SoulsGraphError: if a fleet cannot play it, as a scenario that is not shipped, or if its batches are to have
                shares by PC and a module does not draw them evenly.
        """
        trained = config.trained_modules
        learns = {module: config.hyperparameters_of(module) for module in trained}
        for module, numbers in learns.items() if self.fleet.settings.batch_shares else ():
            check_even_draws(module, numbers)
        clip, plays = config.hyperparameters.observation_clip, config.modules_of_skills()
        clips = {module: own for module in plays.values() if (own := config.clip_of(module)) != clip}
        digests = {loaded.project.name: loaded.digest for loaded in self.projects}
        return StageTask(self.scenario, plays, learns, clip, self.options, projects=digests, clips=clips)


@dataclass(frozen=True)
class JournalSlice:
    """The journal's records from a position on, as they were written, and what is to be logged.

    Bytes travel between processes at a tenth of what their arrays would take.

    `attempt` and `batch_shares` are the journal's, `decisions` what it holds by `PC/verdict`; `playing` counts the
    games that are connected, `status` describes them about once a second. `failure` is why nothing more can be fetched.
    """

    attempt: str = ""
    records: tuple[bytes, ...] = ()
    notes: tuple[str, ...] = ()
    playing: int = 0
    decisions: Mapping[str, int] = field(default_factory=dict)
    status: FleetStatus | None = None
    failure: str = ""
    batch_shares: Mapping[str, float] = field(default_factory=dict)


class GatewayRunner(ChunkRunner):
    """Serve the games of `env_config["fleet"]`; what they play goes through the stage's journal.

    With the `gateway` of the stage before, its games are connected already.
    """

    #: Nothing is sampled here: what comes is fetched from the journal.
    CALLBACKS = frozenset(("on_environment_created",))

    def __init__(self, *, config: SkillDQNConfig, gateway: Gateway | None = None, **kwargs: Any) -> None:
        self._before = gateway
        super().__init__(config=config, **kwargs)

    def make_env(self) -> None:
        """Open the journal and begin to listen."""
        stage: FleetStage = self.config.env_config[FLEET]
        take_over(stage.projects)
        self._task = stage.task(self.config)
        settings = stage.fleet.settings
        most_bytes, shares = settings.journal_bytes, settings.batch_shares
        self._journal = _patiently(
            lambda: Journal(stage.journal, stage.name, most_bytes=most_bytes, batch_shares=shares)
        )
        try:
            intake = self._intake = Intake(self._journal, self._task, self.config.stage_seed or 0, settings)
            if self._before is None:
                self._gateway = _patiently(lambda: Gateway(stage.fleet, intake))
            else:
                self._gateway = self._before
                self._gateway.begin_stage(intake)
            self._desk = Desk(stage.fleet, intake, self._gateway, stage.projects)
            self._status = StatusWriter(intake, self._gateway.sessions, self._desk.games)
            self._exporter = _patiently(lambda: self._export(stage.fleet)) if settings.metrics else None
        except BaseException:
            self.stop()
            raise
        if warning := ends_soon(settings, stage.fleet.folder):
            self._gateway.notes.add(warning)
        if self._journal.batch_shares != shares:
            kept = ", ".join(f"{name} {share:g}" for name, share in sorted(self._journal.batch_shares.items()))
            self._gateway.notes.add(
                f"batches keep the shares that the stage was begun with: {kept or 'none'}; those of the fleet's file "
                "count from the next stage on"
            )
        # The collector would look at all of RLlib's and torch's objects again and again: streams make many short ones.
        gc.collect()
        gc.freeze()

    def _export(self, fleet: Fleet) -> Exporter:
        return Exporter(fleet, lambda: self._status.describe(self._version))

    def weights_changed(self, modules: Collection[str]) -> None:
        """Offer the modules' weights to the games; their version counts the decisions learned from."""
        weights: dict[str, Weights] = {module: self.weights(module) for module in modules}
        self._intake.freeze(weights)
        self._gateway.publish(self._version, weights, self.decisions)

    @property
    def _version(self) -> int:
        """The version of the newest weights: they change with the decisions learned from."""
        return 1 + sum(self.decisions.values())

    def sample(self, **_: Any) -> list[Chunk]:
        """Return nothing: a fleet's transitions are fetched by their position in the journal."""
        return []

    def fetch(self, position: int) -> JournalSlice:
        """Return the journal's records from a position on, none if none come within a moment.

        A journal that is damaged, or begins after the position, is a `failure`: an actor that raises would only be
        started again.
        """
        try:
            return self._fetch(position)
        except SoulsGraphError as error:
            return JournalSlice(failure=str(error))

    def _fetch(self, position: int) -> JournalSlice:
        self._gateway.check()
        self._gateway.chunks.appended.clear()
        if self._journal.end <= position:
            self._gateway.chunks.appended.wait(FETCH_WITHIN_S)
        records = tuple(self._journal.read_bytes(position, MOST_RECORDS))
        notes = tuple(self._gateway.notes.take())
        playing = len(list(self._gateway.sessions.live)) + self._desk.playing
        decisions = dict(self._journal.decisions)
        status = self._status.update(self._version)
        shares = self._journal.batch_shares
        return JournalSlice(self._journal.attempt, records, notes, playing, decisions, status, batch_shares=shares)

    def answer(self, question: str, *words: Any) -> Any:
        """RunnerReply another gateway by the `Desk` method of this name."""
        return getattr(self._desk, question)(*words)

    def end_relays(self) -> None:
        """Let the other gateways end the stage, and show the games as they are now from here on."""
        self._status.keep()
        self._desk.end_stage()

    def relays_over(self) -> bool:
        """Return whether the other gateways that were heard recently have passed on what they received."""
        return self._desk.stage_over

    def prune(self, before: int) -> None:
        """Forget the journal's records before a position, as far as whole files hold nothing else."""
        self._journal.prune(before)

    def leave(self) -> Gateway:
        """End the stage and close its journal; return the gateway, whose games wait for the next stage."""
        self._end(self._gateway.end_stage)
        return self._gateway

    def stop(self) -> None:
        """End the stage for the games, close the journal, and serve no longer."""
        self._end(self._gateway.stop if hasattr(self, "_gateway") else None)

    def _end(self, end_gateway: Callable[[str], None] | None) -> None:
        if exporter := getattr(self, "_exporter", None):
            exporter.close()
        if end_gateway is not None:
            if status := getattr(self, "_status", None):
                status.keep()
            end_gateway("the stage is over")
            if status:
                status.end(self._version)
        if hasattr(self, "_intake"):
            self._intake.close()
        elif hasattr(self, "_journal"):
            self._journal.close()
        # Of what is frozen no stage that is over would ever be collected.
        gc.unfreeze()


def _patiently(open_it: Callable[[], T]) -> T:
    """Open what a gateway that was killed may hold for a moment more."""
    until_s = time.monotonic() + HELD_FOR_S
    while True:
        try:
            return open_it()
        except (FleetError, JournalError):
            if time.monotonic() > until_s:
                raise
        time.sleep(_RETRY_AFTER_S)


def read_chunk(record: Record, task: StageTask) -> Chunk | None:
    """Return what is to be learned from a journal's record, with lanes and episodes of its own; None if refused."""
    if record.refused:
        return None
    found = decode_columns(record.chunk.columns, task.spaces, task.terms)
    boot = int(record.chunk.boot[:7], 16) << 32
    for module, transitions in found.transitions.items():
        transitions.lanes[...] += record.first_lane * len(task.skills_of([module]))
        transitions.episodes[...] += boot
    return Chunk(found.transitions, found.episodes, record.chunk.lane_ticks)
