"""The gateways of a fleet from one stage to the next: games stay connected while what they play changes."""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError

from soulsgraph_clusters.fleet.gateway.gateway import STOP_WITHIN_S, Gateway
from soulsgraph_clusters.fleet.gateway.gateway_runner import FLEET, FleetStage, GatewayRunner
from soulsgraph_clusters.fleet.gateway.relay import Relays
from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetError
from soulsgraph_clusters.sessions.head import ClusterAwayError
from soulsgraph_clusters.sessions.session import (
    Mark,
    Session,
    check_nodes,
    check_own_node,
    marked,
    other_folder,
    place_gateway,
    place_relays,
    this_node,
)
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_policies.learning.env_runners import LocalRunnerGroup
from soulsgraph_policies.learning.stage_config import SkillDQNConfig

T = TypeVar("T")

_logger = logging.getLogger("soulsgraph")
#: A driver that looks whether a process began the stage again waits for it so long.
_LOOK_S = 0.5
#: A process that died as a stage was to begin has so long to be started again, tried at intervals.
_BACK_WITHIN_S, _RETRY_AFTER_S = 60.0, 0.5


class GatewayProcess:
    """A Ray actor that is the `GatewayRunner` of one stage after another, and is asked as RLlib asks one.

    Its games stay connected from stage to stage. One that was started again has no stage until `begin`.
    """

    def __init__(self) -> None:
        self._runner: GatewayRunner | None = None
        self._gateway: Gateway | None = None
        self._begun = ""

    def begin(self, key: str, config: SkillDQNConfig, mark: Mark | None = None) -> None:
        """Begin a stage, unless it is the one of this `key` that is under way.

        Raises:
            ClusterError: if the folder of the journals' `mark` is not the driver's here.
            SoulsGraphError: as `GatewayRunner`.
        """
        if self._runner is not None and self._begun == key:
            return
        if mark is not None and (found := mark.problem()):
            raise other_folder(mark.folder, f"{found} on {this_node()}")
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

    def has_stage(self) -> bool:
        """Return whether a stage is under way."""
        return self._runner is not None

    def ping(self) -> str:
        """Return what RLlib expects of an actor that is well."""
        return "pong"

    def apply(self, func: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call a function with the stage's runner, as RLlib's env runners do; raises FleetError between two stages."""
        result: T = self._playing.apply(func, *args, **kwargs)
        return result

    def answer(self, question: str, *words: Any) -> Any:
        """Answer another gateway by the `Desk` method of this name; raises FleetError between two stages."""
        return self._playing.answer(question, *words)

    @property
    def _playing(self) -> GatewayRunner:
        if self._runner is None:
            raise FleetError("gateway: expected a stage under way, found none; begin it.")
        return self._runner


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
        stage: FleetStage = config.env_config[FLEET]
        assert stage.process is not None, "a gateway in the driver is in a `LocalRunnerGroup`"
        self._process, self._key, self._config = stage.process, secrets.token_hex(8), config
        #: The call by which a process that was started again begins the stage, until that is done.
        self._begins: ray.ObjectRef | None = None
        self._begin()
        self._worker_manager.add_actors([self._process])

    def _begin(self) -> None:
        """Let the process begin the stage, and one that dies meanwhile once it is started again."""
        stage: FleetStage = self._config.env_config[FLEET]
        with marked(stage.journal.parent) as mark:
            self._begin_at(mark)

    def _begin_at(self, mark: Mark) -> None:
        until_s = time.monotonic() + _BACK_WITHIN_S
        while True:
            try:
                _answer(self._process.begin.remote(self._key, self._config, mark))
                return
            except RayError as error:
                check_own_node()
                if time.monotonic() > until_s:
                    reason = str(error).partition("\n")[0].strip(" .")
                    raise ClusterAwayError(
                        f"gateway: expected a process that serves games, found: {reason}; resume the run."
                    ) from error
            time.sleep(_RETRY_AFTER_S)

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
            _answer(begins)
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


def _answer(call: ray.ObjectRef) -> None:
    """Wait for a call's end; raises the SoulsGraphError that it raised, and RayError if its process died."""
    try:
        ray.get(call)
    except RayTaskError as error:
        if isinstance(error.cause, SoulsGraphError):
            raise error.cause from error
        raise


def _wait_for(method: Any) -> None:
    """Call a method of the process and wait for its end, not for one whose node ended."""
    with suppress(RayError, ClusterAwayError):
        check_own_node()
        ray.get(method.remote(), timeout=STOP_WITHIN_S)


class Gateways:
    """The gateways of a fleet in a Ray session, kept from stage to stage until they are closed."""

    def __init__(self, fleet: Fleet, session: Session) -> None:
        self.fleet, self._session = fleet, session
        self._process: ray.actor.ActorHandle | None = None
        self._relays: Relays | None = None

    def process(self) -> ray.actor.ActorHandle:
        """Return the process that writes the journal; the first call starts it, and the further gateways.

        Raises:
            ClusterError: as `check_nodes` and `place_relays`.
        """
        check_nodes(self._session)
        if self._process is None:
            self._relays = Relays(place_relays(self.fleet.relays, self._session))
            # Ray starts one that died; the driver then lets it begin the stage again.
            kept = ray.remote(max_restarts=-1, **place_gateway())(GatewayProcess)
            self._process = kept.remote()
            self._relays.serve(self._process)
        return self._process

    def close(self) -> None:
        """End them, the further ones first: each passes on what it received."""
        try:
            if self._relays is not None:
                self._relays.end()
        finally:
            if self._process is not None:
                _wait_for(self._process.stop)
                ray.kill(self._process)
