"""Run inside a Ray session, a small local one or a cluster joined by its address; place and run env runners there."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import ssl
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import ray

# A driver that imports torch only after ray.init() may die in the loader of oneMKL.
import torch  # noqa: F401
from ray._private import ray_constants
from ray._private.authentication.authentication_token_setup import _enable_token_auth
from ray.util.placement_group import placement_group, remove_placement_group

from soulsgraph_clusters.local_ray import SessionError, local_ray
from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.game import Game
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.streams import derive_seeds
from soulsgraph_envs.drivers.opening import make_game, open_live_game
from soulsgraph_envs.drivers.realtime.cycle_timer import stoppable
from soulsgraph_envs.drivers.realtime.link import GameSettings
from soulsgraph_envs.skills import Skill
from soulsgraph_policies.chunk_runner import ChunkRunner
from soulsgraph_policies.inference import FrozenNetwork, Weights
from soulsgraph_policies.real_time import RealTimeSampling
from soulsgraph_policies.sampler import Chunk, Sampled, Sampler

#: The address that means a session of one's own, whatever RAY_ADDRESS says.
LOCAL = "local"
PROBE_TIMEOUT_S = 5.0
#: Ray's own wait for a cluster that refuses the token is longer than anyone wants to look at it.
HEALTH_CHECK_TIMEOUT_S = 30.0

_MODE, _TOKEN = "RAY_AUTH_MODE", ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
_MODES = ("token", "disabled")
_CERTIFICATES = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")


class ClusterError(SoulsGraphError):
    """A cluster could not be joined, or lacks resources."""


@dataclass(frozen=True)
class Session:
    """Where Ray runs, or would run if it were needed."""

    local: bool

    @property
    def resources(self) -> dict[str, float]:
        """The present resources by name; a cluster's nodes come and go."""
        return dict(ray.cluster_resources())


@contextmanager
def connect(
    address: str | None = None,
    num_cpus: int | None = None,
    resources: Mapping[str, float] | None = None,
    needed: bool = True,
) -> Iterator[Session]:
    """Join or start Ray, and leave or stop it at the end.

    Args:
        address: `host:port` or `auto` joins a cluster; `local` starts a private session, and so
            does None unless RAY_ADDRESS names a cluster, as it does inside a Ray job.
        num_cpus: Processors the local session offers; a cluster knows its own.
        resources: Further resources of the local session, such as `game_pc`.
        needed: Whether a private session is started: training without remote env runners works without Ray.

    Raises:
        ClusterError: as `check_session`.
        SessionError: if a private session does not start; nothing of it is left then.
    """
    if ray.is_initialized():
        yield Session(local=False)
        return
    check_session(address)
    chosen = chosen_address(address)
    if chosen == LOCAL and not needed:
        yield Session(local=True)
        return
    with ExitStack() as stack:
        if local := chosen == LOCAL:
            _make_token()
            chosen = stack.enter_context(local_ray(num_cpus, resources))
        stack.callback(ray.shutdown)
        # `ray.init` would replace the loopback address of a private session by another one of this machine.
        clusters = ray_constants.ENABLE_RAY_CLUSTER
        ray_constants.ENABLE_RAY_CLUSTER = clusters and not local
        try:
            ray.init(chosen, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:
            if not local:
                raise
            raise SessionError(str(error).partition("\n")[0].strip(" .") or repr(error)) from error
        finally:
            ray_constants.ENABLE_RAY_CLUSTER = clusters
        yield Session(local)


def chosen_address(address: str | None) -> str:
    """Return where Ray runs: at the address, else at RAY_ADDRESS, else in a private session."""
    return address or os.environ.get("RAY_ADDRESS") or LOCAL


def check_session(address: str | None = None) -> None:
    """Check that `connect` can use the address, token and certificates it would get.

    Raises:
        ClusterError: if the cluster does not answer within seconds or refuses the token, or a file of the
            environment's cannot be used.
    """
    _check_token()
    _check_certificates()
    if (chosen := chosen_address(address)) != LOCAL:
        check_cluster(chosen, "`address`" if address else "RAY_ADDRESS")


def _make_token() -> None:
    if not any(os.environ.get(name) for name in _TOKEN):
        # Ray would leave a token in the home folder, readable by everyone; this one dies with us.
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    if _MODE not in os.environ:
        _enable_token_auth()


def _check_token() -> None:
    mode, path = os.environ.get(_MODE, "token"), os.environ.get("RAY_AUTH_TOKEN_PATH")
    if mode.lower() not in _MODES:
        raise ClusterError(
            f"{_MODE}: expected {' or '.join(_MODES)}, found {mode!r}, with which Ray demands no token; "
            "set it to token."
        )
    if mode.lower() == "disabled" or not path or os.environ.get("RAY_AUTH_TOKEN"):
        return
    try:
        found = "" if Path(path).read_text(encoding="utf-8").strip() else "an empty file"
    except (OSError, UnicodeDecodeError) as error:
        found = str(error)
    if found:
        raise ClusterError(
            f"RAY_AUTH_TOKEN_PATH: expected the file of a token, found {found}; copy the cluster's there, "
            "or unset it for a Ray on this machine alone."
        )


def _check_certificates() -> None:
    if os.environ.get("RAY_USE_TLS", "").lower() not in ("1", "true"):
        return
    certificate, key, authority = paths = [os.environ.get(name, "") for name in _CERTIFICATES]
    found = ", ".join(f"{name}={path or 'nothing'}" for name, path in zip(_CERTIFICATES, paths, strict=True))
    try:
        if not all(paths):
            raise FileNotFoundError("too few of them")
        # Without a password OpenSSL would ask for that of an encrypted key, which Ray cannot use.
        ssl.create_default_context(cafile=authority).load_cert_chain(certificate, key, password="")
    except OSError as error:
        raise ClusterError(
            f"RAY_USE_TLS: expected a certificate, its key and its authority as PEM files, found {error} ({found}); "
            "correct them or unset RAY_USE_TLS."
        ) from error


def check_cluster(address: str, source: str = "`address`") -> None:
    """Check that a cluster of this Ray version answers within seconds and accepts our token.

    `source` is what an error asks to correct.

    Raises:
        ClusterError: otherwise, with the check that failed.
    """
    if address != "auto":
        _probe(address, source)
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=HEALTH_CHECK_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise ClusterError(
            f"{address}: expected a Ray cluster to answer within {HEALTH_CHECK_TIMEOUT_S:g} s, found silence; "
            "check that the port is that of `ray start --head`."
        ) from error
    if answer.returncode:
        raise ClusterError(_refusal(address, answer.stderr, source))


def _probe(address: str, source: str) -> None:
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ClusterError(f"Ray address: expected host:port, 'auto' or 'local', found {address!r}; correct {source}.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), PROBE_TIMEOUT_S).close()
    # A host that cannot be encoded is a UnicodeError.
    except (OSError, UnicodeError) as error:
        raise ClusterError(
            f"{address}: expected a Ray cluster to answer within {PROBE_TIMEOUT_S:g} s, found: {error}; "
            f"start it with `ray start --head` or correct {source}."
        ) from error


def _refusal(address: str, output: str, source: str) -> str:
    if "AuthenticationError" in output:
        return (
            f"{address}: expected the cluster to take our token, found that it is missing or another; "
            "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH to the file the cluster was started with."
        )
    lines = [line for line in output.splitlines() if line.strip()]
    return (
        f"{address}: expected a healthy cluster of Ray {ray.__version__}, found: "
        f"{lines[-1].strip() if lines else 'no answer'}; start one with `ray start --head` or correct {source}."
    )


#: The resource a worker joins with (`ray start --resources '{"game_pc": 1}'`): one game, one runner.
GAME_PC = "game_pc"
#: Whole seconds. A node that is alive grants a place at once; one that died may stay on Ray's list for a minute.
RESERVATION_TIMEOUT_S = 30

_PROCESSOR = {"CPU": 1.0}

_logger = logging.getLogger("soulsgraph")


def place_env_runners(wanted: int, session: Session) -> dict[str, Any]:
    """Return the keyword arguments of RLlib's `AlgorithmConfig.env_runners` that place remote runners.

    With fewer places than `wanted` a stage continues with those available, so that a run survives the
    loss of a game PC. Without remote runners the driver samples itself; the learner always runs there.

    Raises:
        ClusterError: if there is no place at all.
    """
    if not wanted:
        return {"num_env_runners": 0}
    offered = session.resources
    one = _PROCESSOR | ({GAME_PC: 1.0} if offered.get(GAME_PC, 0.0) else {})
    most = min(wanted, *(int(offered.get(name, 0.0)) for name in one))
    count = next((count for count in range(most, 0, -1) if _answer(one, count)), 0)
    if not count:
        raise ClusterError(
            f"env runners: expected a free place that offers {_describe(one)}, found none among {_describe(offered)}; "
            "join a worker that offers it and go on with the run, or begin another without `env_runners` and `games`."
        )
    if count < wanted:
        _logger.warning("env runners: %d of %d have a place now; the stage goes on with those", count, wanted)
    return {
        "num_env_runners": count,
        "num_cpus_per_env_runner": 1,
        "custom_resources_per_env_runner": {GAME_PC: 1} if GAME_PC in one else {},
    }


def _answer(one: Mapping[str, float], count: int) -> bool:
    """Return whether `count` places are free now: RLlib would wait for a missing one forever."""
    reservation = placement_group([dict(one)] * count)
    try:
        return bool(reservation.wait(RESERVATION_TIMEOUT_S))
    finally:
        remove_placement_group(reservation)


def _describe(resources: Mapping[str, float]) -> str:
    shown = {name: amount for name, amount in resources.items() if name in (GAME_PC, *_PROCESSOR)}
    return ", ".join(f"{name} {amount:g}" for name, amount in shown.items()) or "nothing"


#: A drain of a real-time game comes back after so long, whether or not anything was collected.
REAL_TIME_WAIT_S = 5.0


class SkillGraphEnvRunner(ChunkRunner):
    """Sample one stage: the `scenario` of `env_config`, in `lanes` of the simulator or in real-time `games`.

    One of `games` serves every runner (each on a game PC of its own), more are one each. The tick loop is
    `Sampler.sample`, which knows nothing of Ray or of learning. In the simulator `sample` runs it; a real-time
    game runs it in a thread of its own, whose chunks `sample` returns.
    """

    def make_env(self) -> None:
        """Open the game; each runner has random streams of its own."""
        sampled, skills, index = self.config.env_config, self.config.skills, self.worker_index or 0
        learning = [self._sampled(module) for module in self.config.sampled_modules]
        self._scenario: Scenario = sampled["scenario"]
        lanes: int = sampled["lanes"]
        games: tuple[GameSettings, ...] = sampled.get("games", ())
        horizon = Horizon(skills[-1].name, skills[-1].horizon)
        seed = int(derive_seeds(np.uint64(self.config.stage_seed or 0), index)[0])

        def sampler(game: Game) -> Sampler:
            return Sampler(Combat(game, skills, self._scenario, horizon), seed, learning, index * lanes)

        self._sampler: Sampler | RealTimeSampling
        if games:
            # Remote runners are counted from 1.
            settings = games[(index - 1) % len(games)]
            self._sampler = RealTimeSampling(
                lambda stop: sampler(open_live_game(settings, stoppable(stop))), sampler(make_game())
            )
        else:
            self._sampler = sampler(make_game(lanes))

    def _sampled(self, module: str) -> Sampled:
        """Return how a module is sampled: one that does not learn explores nothing."""
        numbers = self.config.hyperparameters_of(module)
        skills = tuple(skill for skill, playing in self.modules.items() if playing == module)
        if module in self.config.trained_modules:
            return Sampled(module, skills, numbers.exploration_rate, numbers.budget)
        return Sampled(module, skills, lambda _: 0.0)

    def weights_changed(self, modules: Collection[str]) -> None:
        """Play the skills of `modules` by their weights from now on."""
        self._sampler.receive(self.decisions)
        skills = [skill for skill in self.config.skills if self.modules[skill.name] in modules]
        if isinstance(self._sampler, Sampler) and self._sampler.has_networks:
            for skill in skills:
                self._sampler.load(skill.name, self.weights(self.modules[skill.name]))
        else:
            self._sampler.set_networks([self._network(skill) for skill in skills])

    def played_weights(self, skill: str) -> Weights:
        """Return the weights in the sampler, which keeps a copy of them; the module's before it plays."""
        return (self._sampler.weights(skill) if self.samples else {}) or super().played_weights(skill)

    def _network(self, skill: Skill) -> FrozenNetwork:
        module = self.modules[skill.name]
        clip = self.config.hyperparameters_of(module).observation_clip
        return FrozenNetwork.of(skill, self._scenario, self.weights(module), clip)

    def sample(self, **_: Any) -> list[Chunk]:
        """Return a list of one chunk, empty if a real-time game had none in time."""
        most = self.config.decisions_per_sample
        if isinstance(self._sampler, Sampler):
            return [self._sampler.sample(most)]
        chunk = self._sampler.sample(most, REAL_TIME_WAIT_S)
        return [] if chunk is None else [chunk]

    def get_training_state(self) -> dict[str, Any]:
        """Return lanes, clocks, episode sums and random state; nothing of a real-time game, which cannot be saved."""
        return self._sampler.get_state() if isinstance(self._sampler, Sampler) else {}

    def set_training_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_training_state`."""
        if isinstance(self._sampler, Sampler):
            self._sampler.set_state(state)

    def stop(self) -> None:
        """Close the game."""
        if hasattr(self, "_sampler"):
            self._sampler.close()
