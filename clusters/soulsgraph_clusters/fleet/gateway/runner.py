"""The gateway as RLlib's env runner of a stage, its process from one stage to the next, and a journal that is replayed.

A runner serves any number of games and returns what its journal holds. Games stay connected while what they play
changes.
"""

from __future__ import annotations

import gc
import logging
import os
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup

from soulsgraph_clusters.fleet.gateway.admission import Admission
from soulsgraph_clusters.fleet.gateway.games import RunGames, games_here, games_of_cluster
from soulsgraph_clusters.fleet.gateway.gateway import STOP_WITHIN_S, Gateway
from soulsgraph_clusters.fleet.gateway.metrics import Exporter
from soulsgraph_clusters.fleet.gateway.status import FleetStatus, StatusWriter
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Chunk as ChunkMessage
from soulsgraph_clusters.fleet.protocol.messages import decode_columns
from soulsgraph_clusters.fleet.protocol.settings import HELD_FOR_S, Fleet, FleetError, InUseError
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_clusters.fleet.store import Journal, StoredChunk
from soulsgraph_clusters.sessions.head import ClusterAwayError
from soulsgraph_clusters.sessions.nodes import answer_of, check_own_node, describe_loss
from soulsgraph_clusters.sessions.session import Session, place_gateway
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.games.link import GameSettings
from soulsgraph_envs.skills import SkillOptions
from soulsgraph_policies.agents.inference import Weights
from soulsgraph_policies.agents.projects import LoadedProject, take_over
from soulsgraph_policies.learning.env_runners import ChunkRunner, LocalRunnerGroup
from soulsgraph_policies.learning.sampler import Chunk
from soulsgraph_policies.learning.stage_config import SkillDQNConfig

_logger = logging.getLogger("soulsgraph")
T = TypeVar("T")

#: `fetch` returns after so long, whatever has come.
FETCH_WITHIN_S = 0.05
_RETRY_AFTER_S = 0.2
#: Chunks of one `fetch`.
MOST_CHUNKS = 256
#: The environment configuration's key of a `FleetStage`.
FLEET = "fleet"
#: A driver that looks whether a process began the stage again waits for it so long.
_LOOK_S = 0.5
#: A process that died as a stage was to begin has so long to be started again, tried at intervals.
_BACK_WITHIN_S, _BEGIN_AGAIN_S = 60.0, 0.5


class GatewayProcess:
    """A Ray actor that is the `GatewayRunner` of one stage after another, and is asked as RLlib asks one.

    Its games stay connected from stage to stage. One that was started again has no stage until `begin`.
    """

    def __init__(self) -> None:
        self._runner: GatewayRunner | None = None
        self._gateway: Gateway | None = None
        self._begun = ""

    def begin(self, key: str, config: SkillDQNConfig) -> None:
        """Begin a stage, unless it is the one of this `key` that is under way; raises as `GatewayRunner`."""
        if self._runner is not None and self._begun == key:
            return
        self.end()
        before, self._gateway = self._gateway, None
        try:
            self._runner, self._begun = GatewayRunner(config=config, gateway=before, worker_index=1), key
        except BaseException:
            if before is not None:
                before.stop("the stage could not begin")
            raise

    def end(self) -> None:
        """End the stage; its games wait for the next one."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            try:
                self._gateway = runner.leave()
            except BaseException:
                # It may listen on, and hold the journal: Ray starts a process without that.
                _logger.exception("gateway: it cannot end the stage")
                os._exit(1)

    def stop(self) -> None:
        """End the stage if there is one, and let the games go."""
        self.end()
        if self._gateway is not None:
            self._gateway.stop("the run is over")

    def ping(self) -> str:
        """Return what RLlib expects of an actor that is well."""
        return "pong"

    def apply(self, func: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call a function with the stage's runner, as RLlib's env runners do; raises FleetError between two stages."""
        if self._runner is None:
            raise FleetError("gateway: expected a stage under way, found none; begin it.")
        result: T = self._runner.apply(func, *args, **kwargs)
        return result


class GatewayGroup(LocalRunnerGroup):
    """The runner in the driver's process, which holds the weights, and the gateway's process as the one that samples.

    Raises:
        SoulsGraphError: if the gateway cannot begin the stage, as where it cannot listen.
        ClusterAwayError: if its process died and none took its place in time, or the Ray node of this machine ended.
    """

    def __init__(self, config: SkillDQNConfig) -> None:
        super().__init__(config)
        # A process that dies is started again.
        self._ignore_ray_errors_on_env_runners = True
        stage = FleetStage.of(config)
        assert stage.process is not None, "a gateway in the driver is in a `LocalRunnerGroup`"
        self._process, self._key, self._config = stage.process, secrets.token_hex(8), config
        #: The call by which a process that was started again begins the stage, until that is done.
        self._begins: ray.ObjectRef | None = None
        self._begin()
        self._worker_manager.add_actors([self._process])

    def _begin(self) -> None:
        """Let the process begin the stage, and one that dies meanwhile once it is started again."""
        until_s = time.monotonic() + _BACK_WITHIN_S
        while True:
            try:
                answer_of(self._process.begin.remote(self._key, self._config))
                return
            except RayError as error:
                check_own_node()
                if time.monotonic() > until_s:
                    raise ClusterAwayError(
                        "gateway: expected a process that serves games, found that "
                        f"{describe_loss(error)}; resume the run."
                    ) from error
            time.sleep(_BEGIN_AGAIN_S)

    def probe_unhealthy_env_runners(self) -> list[int]:
        """Let a process that was started again begin the stage, before it counts as well.

        Raises:
            SoulsGraphError: if it cannot.
            ClusterAwayError: if the Ray node of this machine ended, where alone it could be started.
        """
        if not set(self._worker_manager.actor_ids()) - set(self._worker_manager.healthy_actor_ids()):
            return []
        check_own_node()
        self._begins = self._begins or self._process.begin.remote(self._key, self._config)
        if not ray.wait([self._begins], timeout=_LOOK_S)[0]:
            return []
        begins, self._begins = self._begins, None
        try:
            answer_of(begins)
        except RayError:
            return []
        restored: list[int] = super().probe_unhealthy_env_runners()
        return restored

    def stop(self) -> None:
        """End the stage; the process goes on to the next one."""
        for actor in self._worker_manager.actor_ids():
            self._worker_manager.remove_actor(actor)
            _wait_for(self._process.end)
        self._local_env_runner.stop()


def _wait_for(method: Any) -> None:
    """Call a method of the process and wait for its end, not for one whose node ended."""
    with suppress(RayError, ClusterAwayError):
        check_own_node()
        ray.get(method.remote(), timeout=STOP_WITHIN_S)


class FleetGateway:
    """The gateway of a fleet, kept from stage to stage until it is closed.

    With `without_ray` it is in the driver's own process, for each stage anew.
    """

    def __init__(self, fleet: Fleet, session: Session, without_ray: bool = False) -> None:
        self.fleet, self._session, self._without_ray = fleet, session, without_ray
        self._process: ray.actor.ActorHandle | None = None

    def process(self) -> ray.actor.ActorHandle | None:
        """Return the process that writes the journal, None where the driver itself does; the first call starts it.

        Raises:
            ClusterError: as `Session.check_nodes`.
        """
        if self._without_ray:
            return None
        self._session.check_nodes()
        if self._process is None:
            # Ray starts one that died; the driver then lets it begin the stage again.
            kept = ray.remote(max_restarts=-1, **place_gateway())(GatewayProcess)
            self._process = kept.remote()
        return self._process

    def close(self) -> None:
        """End it, once what came is written."""
        if self._process is not None:
            _wait_for(self._process.stop)
            ray.kill(self._process)


@dataclass(frozen=True)
class FleetStage:
    """Where a stage meets what plays it: its journal, and what the games play.

    A fleet's PCs play, or the `games` of the run itself: those of this machine, or of a cluster that has `places` for
    them. `process` is the Ray actor of a `GatewayProcess`; without one the gateway is in the driver.
    """

    fleet: Fleet
    journal: Path
    name: str
    scenario: str
    options: SkillOptions
    #: Whose skills take part; the gateway's process has not imported their code.
    projects: tuple[LoadedProject, ...] = ()
    process: ray.actor.ActorHandle | None = None
    games: tuple[GameSettings, ...] = ()
    places: tuple[PlacementGroup, ...] | None = None

    @classmethod
    def of(cls, config: SkillDQNConfig) -> FleetStage:
        """Return the stage that an environment configuration has."""
        stage: FleetStage = config.env_config[FLEET]
        return stage

    def task(self, config: SkillDQNConfig) -> StageTask:
        """Return what the games play, as RLlib's configuration says who plays and who learns.

        Raises:
            SoulsGraphError: if a fleet cannot play it, as a scenario that is not shipped.
        """
        return StageTask.of(config, self.scenario, self.options, self.projects)


@dataclass(frozen=True)
class JournalSlice:
    """The journal's chunks from a position on, and what is to be logged.

    Bytes travel between processes at a tenth of what their arrays would take.

    `attempt` is the journal's, `decisions` what it holds by `PC/verdict`; `status` describes the games about once a
    second. `failure` is why nothing more can be fetched.
    """

    attempt: str = ""
    chunks: Sequence[StoredChunk] = ()
    notes: tuple[str, ...] = ()
    decisions: Mapping[str, int] = field(default_factory=dict)
    status: FleetStatus | None = None
    failure: str = ""

    @classmethod
    def of(cls, journal: Journal, position: int, **more: Any) -> JournalSlice:
        """Return what a journal holds from a position on."""
        chunks, decisions = journal.read(position, MOST_CHUNKS), dict(journal.decisions)
        return cls(journal.attempt, chunks, decisions=decisions, **more)

    @property
    def is_full(self) -> bool:
        """Whether the journal may hold more."""
        return len(self.chunks) == MOST_CHUNKS


class FetchedRunner(ChunkRunner):
    """Sample nothing: transitions are fetched by their position in a stage's journal."""

    CALLBACKS = frozenset(("on_environment_created",))

    def sample(self, **_: Any) -> list[Chunk]:
        """Return nothing."""
        return []

    def get_training_state(self) -> dict[str, Any]:
        """Return nothing: the position is the driver's."""
        return {}

    def set_training_state(self, state: dict[str, Any]) -> None:
        """Do nothing."""


#: A journal up to this size forgets nothing: a short stage can be learned again, and exported, whole. It is
#: a quarter of what `journal_mb` may be at least.
_KEPT_BYTES = 64 * 2**20


class GatewayRunner(FetchedRunner):
    """Serve the games of `env_config["fleet"]`; what they play goes through the stage's journal.

    With the `gateway` of the stage before, its games are connected already.
    """

    #: Whether the stage has ended, and the journal is closed.
    _over = False

    def __init__(self, *, config: SkillDQNConfig, gateway: Gateway | None = None, **kwargs: Any) -> None:
        self._before = gateway
        super().__init__(config=config, **kwargs)

    def make_env(self) -> None:
        """Open the journal and begin to listen."""
        stage = FleetStage.of(self.config)
        take_over(stage.projects)
        self._task = stage.task(self.config)
        settings = stage.fleet.settings
        self._journal = _patiently(lambda: Journal(stage.journal, stage.name, most_bytes=settings.journal_bytes))
        try:
            admission = self._admission = Admission(self._journal, self._task, self.config.stage_seed or 0, settings)
            self._gateway: Gateway | RunGames
            if stage.games and stage.places is None:
                self._gateway = RunGames(admission, games_here(stage.games, stage.journal.parent))
            elif stage.games:
                self._gateway = RunGames(admission, games_of_cluster(stage.games, stage.projects, stage.places or ()))
            elif self._before is None:
                self._gateway = _patiently(lambda: Gateway(stage.fleet, admission))
            else:
                self._gateway = self._before
                self._before.begin_stage(admission)
            self._status = StatusWriter(admission, self._gateway.connections)
            self._exporter = _patiently(lambda: self._export(stage.fleet)) if settings.metrics else None
        except BaseException:
            self.stop()
            raise
        # The collector would look at all of RLlib's and torch's objects again and again: streams make many short ones.
        gc.collect()
        gc.freeze()

    def _export(self, fleet: Fleet) -> Exporter:
        return Exporter(fleet, lambda: self._status.describe(self._version))

    def weights_changed(self, modules: Collection[str]) -> None:
        """Offer the modules' weights to the games; their version counts the decisions learned from."""
        weights: dict[str, Weights] = {module: self.weights(module) for module in modules}
        self._admission.freeze(weights)
        self._gateway.publish(self._version, weights, self.decisions)

    @property
    def _version(self) -> int:
        """The version of the newest weights: they change with the decisions learned from."""
        return 1 + sum(self.decisions.values())

    def fetch(self, position: int) -> JournalSlice:
        """Return the journal's chunks from a position on, none if none come within a moment.

        A journal that is damaged, or begins after the position, is a `failure`: an actor that raises would only be
        started again.
        """
        try:
            return self._fetch(position)
        except SoulsGraphError as error:
            return JournalSlice(failure=str(error))

    def _fetch(self, position: int) -> JournalSlice:
        self._gateway.check()
        self._gateway.appended.clear()
        if self._journal.end <= position:
            self._gateway.appended.wait(FETCH_WITHIN_S)
        notes = tuple(self._gateway.notes.take())
        status = self._status.update(self._version)
        return JournalSlice.of(self._journal, position, notes=notes, status=status)

    def prune(self, before: int) -> None:
        """Forget what a large journal's chunks before a position hold."""
        if self._journal.size_bytes > _KEPT_BYTES:
            self._journal.prune(before)

    def get_training_state(self) -> dict[str, Any]:
        """Return nothing, in the driver's process too: the journal holds what was played."""
        return {}

    def set_training_state(self, state: dict[str, Any]) -> None:
        """Do nothing."""

    def leave(self) -> Gateway:
        """End the stage and close its journal; return the gateway, whose games wait for the next stage."""
        assert isinstance(self._gateway, Gateway), "a run's own games end with the stage"
        self._end(self._gateway.end_stage)
        return self._gateway

    def stop(self) -> None:
        """End the stage for the games, close the journal, and serve no longer."""
        self._end(self._gateway.stop if hasattr(self, "_gateway") else None)

    def _end(self, end_gateway: Callable[[str], None] | None) -> None:
        if self._over:
            return
        self._over = True
        if exporter := getattr(self, "_exporter", None):
            exporter.close()
        if end_gateway is not None:
            if status := getattr(self, "_status", None):
                status.keep()
            end_gateway("the stage is over")
            if status:
                status.end(self._version)
        if hasattr(self, "_admission"):
            self._admission.close()
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
        except InUseError:
            if time.monotonic() > until_s:
                raise
        time.sleep(_RETRY_AFTER_S)


def read_chunk(stored: StoredChunk, task: StageTask, frozen: bytes) -> Chunk | None:
    """Return what is to be learned from a journal's chunk, with lanes and episodes of its own; None if nothing.

    That is so where it was refused, or played by other weights of frozen skills than those of the digest `frozen`: a
    stage that begins anew, for a skill upstream has another version, may find the journal of the earlier one.
    """
    if stored.content is None:
        return None
    message = ChunkMessage.FromString(stored.content)
    if message.frozen not in (b"", frozen):
        return None
    found = decode_columns(message.columns)
    task.number(found.transitions, stored.first_lane, int(stored.boot[:7], 16) << 32)
    return Chunk(found.transitions, found.episodes, message.lane_ticks)


class JournalRunner(FetchedRunner):
    """Return a stage's journal and nothing else: a replay of it in the driver's own process."""

    def make_env(self) -> None:
        """Open the journal for reading."""
        stage = FleetStage.of(self.config)
        self._journal = Journal(stage.journal, stage.name, reading=True)

    def weights_changed(self, modules: Collection[str]) -> None:
        """Do nothing: everything was played already."""

    def fetch(self, position: int) -> JournalSlice:
        """Return the journal's chunks from a position on.

        Raises:
            SoulsGraphError: at the end of the journal, or if what was there is forgotten.
        """
        found = JournalSlice.of(self._journal, position)
        if not found.chunks:
            raise SoulsGraphError(f"journal: expected chunks from {position} on, found its end; replay fewer.")
        return found

    def prune(self, before: int) -> None:
        """Do nothing: a replay changes no journal."""

    def stop(self) -> None:
        """Close the journal."""
        if hasattr(self, "_journal"):
            self._journal.close()
