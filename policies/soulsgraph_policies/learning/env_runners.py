"""What samples for the algorithm: the base of env runners, that of the simulator, a local group, and remote ones.

Each remote runner has one call under way, and a round takes whichever is ready first.
"""

from __future__ import annotations

import logging
import socket
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, ClassVar

import numpy as np
import ray
from ray.exceptions import RayError
from ray.rllib.callbacks.utils import make_callback
from ray.rllib.core import COMPONENT_RL_MODULE
from ray.rllib.env.env_context import EnvContext
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.env.env_runner_group import EnvRunnerGroup
from ray.rllib.utils import force_list
from ray.rllib.utils.actor_manager import FaultTolerantActorManager
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME, NUM_MODULE_STEPS_SAMPLED_LIFETIME
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.combat.rollout import Episodes
from soulsgraph_envs.core.errors import GameError, SoulsGraphError, UnavailableError, UnknownNameError, shown
from soulsgraph_envs.core.scenario import Scenario, load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.skills import training_scenario
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.inference import FrozenNetwork, Weights
from soulsgraph_policies.agents.projects import authors_traceback
from soulsgraph_policies.learning.sampler import Chunk, SampledModule, Sampler, finished_episodes
from soulsgraph_policies.learning.stage_config import SkillDQNConfig, Spaces, overridden

#: Chunks of one call: Ray takes as much of the driver's time for a call of one as for a call of these.
CHUNKS_PER_CALL = 4
#: A runner that has not answered for this time is not counted among those that play, until it does.
SILENT_AFTER_S = 5.0
#: The first answer may take longer: a process has to start.
START_WITHIN_S = 60.0
#: A runner whose call failed is asked again after this time: until Ray has restarted it every call fails.
RETRY_AFTER_S = 5.0
#: The stage fails after this time without any live runner.
ABANDONED_AFTER_S = 300.0
#: Where nobody has answered, it is looked again after this time.
_LOOK_EVERY_S = 0.005

_logger = logging.getLogger("soulsgraph")


class ChunkRunner(EnvRunner):
    """Hold the modules' weights and answer RLlib; a subclass opens the game and samples.

    `policy_mapping_fn` is asked once, here, which module plays each skill. Beside remote runners the driver keeps a
    runner of its own that only holds the weights, so the game is opened in `make_env`, which is called where sampling
    happens and nowhere else.
    """

    config: SkillDQNConfig
    #: RLlib's callbacks that `collect` calls in the runner's process.
    CALLBACKS: ClassVar[frozenset[str]] = frozenset(("on_environment_created", "on_sample_end", "on_episode_end"))
    #: Whether the runner can `evaluate`.
    evaluates: ClassVar[bool] = False

    def __init__(self, *, config: SkillDQNConfig, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        #: The module that plays each skill, by skill.
        self.modules: Mapping[str, str] = self.config.modules_of_skills()
        #: Decisions of each sampled module that the learner has received from all runners.
        self.decisions: dict[str, int] = dict.fromkeys(self.config.sampled_modules, 0)
        self._weights: dict[str, Weights] = {}
        self._callbacks = [one() for one in force_list(self.config.callbacks_class)]
        #: Whether there is any callback to call for what is sampled.
        self._calls = any(
            getattr(self.config, f"callbacks_{name}", None) or overridden(self._callbacks, name)
            for name in ("on_sample_end", "on_episode_end")
        )
        if self.samples:
            self.make_env()
            self._call("on_environment_created", env=self.env, env_context=self._env_context())

    def _env_context(self) -> EnvContext:
        place = {"worker_index": self.worker_index or 0, "num_workers": self.num_workers}
        return EnvContext(self.config.env_config, **place)

    def _call(self, name: str, **arguments: Any) -> None:
        if name in self.CALLBACKS:
            functions = getattr(self.config, f"callbacks_{name}", None)
            arguments = {"env_runner": self, "metrics_logger": self.metrics, **arguments}
            make_callback(name, self._callbacks, functions, kwargs=arguments)

    @classmethod
    def checked_env_config(cls, config: SkillDQNConfig, env_config: Mapping[str, Any]) -> dict[str, Any]:
        """Return an `env_config` as the runner reads it, with what it leaves out; raises SoulsGraphError."""
        return dict(env_config)

    def collect(self) -> list[Chunk]:
        """Sample, and call RLlib's callbacks for the chunks and for every episode that ended in them."""
        chunks = self.sample()
        if self._calls:
            for chunk in chunks:
                for skill, episodes in chunk.episodes.items():
                    for episode in finished_episodes(skill, episodes):
                        further = {"prev_episode_chunks": [], "env": self.env, "rl_module": None}
                        self._call("on_episode_end", episode=episode, env_index=episode.lane, **further)
            self._call("on_sample_end", samples=chunks)
        return chunks

    def evaluate(self, weights: Mapping[str, Weights], env_config: Mapping[str, Any], episodes: int) -> Episodes:
        """Play greedy episodes by the modules' weights, the same fights with every call.

        Raises:
            SoulsGraphError: if the runner has no simulator to do so.
        """
        raise SoulsGraphError(
            f"evaluate(): expected env runners of the simulator, found {type(self).__name__}; save what was learned "
            "and evaluate that."
        )

    def get_metrics(self) -> dict[str, Any]:
        """Return what callbacks logged since the last call, as RLlib merges it."""
        logged: dict[str, Any] = self.metrics.reduce()
        return logged

    @property
    def samples(self) -> bool:
        """Whether this runner samples: every remote one does, the driver's own only without remote ones."""
        return bool(self.worker_index) or not self.config.num_env_runners

    @property
    def has_weights(self) -> bool:
        """Whether the runner was given every module's weights."""
        return len(self._weights) == len(self.config.policies)

    @abstractmethod
    def make_env(self) -> None:
        """Open the game and make everything that sampling needs; weights come later."""

    @abstractmethod
    def sample(self, **kwargs: Any) -> list[Chunk]:
        """Return one chunk in a list: transitions, at most `config.steps_per_round` of each module.

        A runner whose decisions are fetched otherwise returns none.
        """

    @abstractmethod
    def weights_changed(self, modules: Collection[str]) -> None:
        """Play by the new `weights` of `modules` from now on, exploring as `decisions` tells.

        The first call names every module: a runner that Ray has restarted plays by nothing but what it was given.
        """

    def begin_streams(self, incarnation: int) -> None:
        """Draw from random streams of this number: what was lost with another runner of this index is not drawn again.

        Called once, before the first `weights_changed`, with the decisions that the learner had received by then: a
        counter that a runner in place of a lost one finds advanced, and 0 for the first ones of a stage. A state that
        is set afterwards has streams of its own.
        """

    def get_training_state(self) -> dict[str, Any]:
        """Return what the next chunk depends on, except networks and `decisions`, as nested arrays and plain values."""
        raise NotImplementedError

    def set_training_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_training_state`."""
        raise NotImplementedError

    def weights(self, module: str) -> Weights:
        """Return a module's weights and normaliser."""
        return dict(self._weights[module])

    def played_weights(self, skill: str) -> Weights:
        """Return the weights by which a skill is played, wherever a subclass keeps its own copy of them."""
        return self.weights(self.modules[skill])

    def get_spaces(self) -> dict[str, Spaces]:
        """Return the observation and action space of every module."""
        return self.config.module_spaces()

    def assert_healthy(self) -> None:
        """Raise if the runner was not built."""
        assert self.modules

    def set_state(self, state: dict[str, Any]) -> None:
        """Set weights (all or some modules) and the counts of decisions."""
        self.decisions |= state.get(NUM_MODULE_STEPS_SAMPLED_LIFETIME, {})
        incomplete, given = not self.has_weights, state.get(COMPONENT_RL_MODULE, {})
        for module, weights in given.items():
            # The learner's own arrays change with its next update.
            self._weights[module] = {name: values.copy() for name, values in weights.items()}
        if self.samples and self.has_weights:
            if incomplete:
                self.begin_streams(max(sum(self.decisions.values()), state.get(NUM_ENV_STEPS_SAMPLED_LIFETIME, 0)))
            self.weights_changed(tuple(self._weights) if incomplete else tuple(given))


#: The scenario that is played where none is named, as in `SkillGraphEnv`.
_SCENARIO = "iudex-phase1"
#: Where the seeds of evaluated fights lie apart from those of every runner.
_EVALUATED = 2**63


class SkillGraphEnvRunner(ChunkRunner):
    """Sample one stage in the simulator: the `scenario` of `env_config`.

    The scenario is a name, a path or a `Scenario`; fights begin on the last skill's training scenario. Lanes are
    RLlib's `num_envs_per_env_runner`. The tick loop is `Sampler.sample`, which knows nothing of Ray or of learning.
    """

    evaluates = True

    @classmethod
    def checked_env_config(cls, config: SkillDQNConfig, env_config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the scenario that is played; raises SoulsGraphError, for another key UnknownNameError."""
        for name in env_config:
            if name != "scenario":
                raise UnknownNameError("key of env_config", name, ("scenario",))
        scenario = env_config.get("scenario", _SCENARIO)
        if isinstance(scenario, str | PathLike):
            scenario = load_scenario(str(scenario))
        if not isinstance(scenario, Scenario):
            raise SoulsGraphError(
                f"env_config's scenario: expected a name, a path or a Scenario, found {shown(scenario)}; name one."
            )
        return {"scenario": training_scenario(scenario, config.skills[-1])}

    def make_env(self) -> None:
        """Open the simulator; each runner has random streams of its own."""
        skills, index, lanes = self.config.skills, self.worker_index or 0, self.config.num_envs_per_env_runner
        learning = [self._sampled(module) for module in self.config.sampled_modules]
        self._scenario: Scenario = self.config.env_config["scenario"]
        combat = Combat(make_game(lanes), skills, self._scenario, Horizon(skills[-1].name, skills[-1].horizon))
        seed = int(derive_seeds(np.uint64(self.config.stage_seed or 0), index)[0])
        self.env = self._sampler = Sampler(combat, seed, learning, index * lanes)

    def evaluate(self, weights: Mapping[str, Weights], env_config: Mapping[str, Any], episodes: int) -> Episodes:
        """Play greedy episodes by the modules' weights, the same fights with every call."""
        scenario, skills = env_config["scenario"], self.config.skills
        networks = self._networks(scenario, weights)
        game = make_game(min(self.config.num_envs_per_env_runner, episodes))
        try:
            seeds = derive_seeds(self.config.stage_seed or 0, _EVALUATED, np.arange(episodes))
            return Agent(scenario, skills, networks).rollout(game).play(seeds)
        finally:
            game.close()

    def _sampled(self, module: str) -> SampledModule:
        """Return how a module is sampled: one that does not learn explores nothing."""
        numbers = self.config.hyperparameters_of(module)
        skills = tuple(skill for skill, playing in self.modules.items() if playing == module)
        if module in self.config.trained_modules:
            return SampledModule(module, skills, numbers.exploration, numbers.budget)
        return SampledModule(module, skills, lambda _: 0.0)

    def begin_streams(self, incarnation: int) -> None:
        """Fight other fights than a runner that was lost, and explore otherwise."""
        self._sampler.begin_streams(incarnation)
        self._sampler.set_networks([*self._networks(self._scenario, self._weights).values()])

    def weights_changed(self, modules: Collection[str]) -> None:
        """Play the skills of `modules` by their weights from now on."""
        self._sampler.receive(self.decisions)
        for skill, module in self.modules.items():
            if module in modules:
                self._sampler.load(skill, self.weights(module))

    def played_weights(self, skill: str) -> Weights:
        """Return the weights in the sampler, which keeps a copy of them; the module's where nothing is sampled."""
        return self._sampler.weights(skill) if self.samples else super().played_weights(skill)

    def _networks(self, scenario: Scenario, weights: Mapping[str, Weights]) -> dict[str, FrozenNetwork]:
        return {
            skill.name: FrozenNetwork.of(skill, scenario, weights[module], self.config.clip_of(module))
            for skill, module in zip(self.config.skills, self.modules.values(), strict=True)
        }

    def sample(self, **_: Any) -> list[Chunk]:
        """Return a list of one chunk."""
        assert self.has_weights, "every module's weights come before sampling"
        return [self._sampler.sample(self.config.steps_per_round)]

    def get_training_state(self) -> dict[str, Any]:
        """Return lanes, clocks, episode sums and random state."""
        return self._sampler.get_state()

    def set_training_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_training_state`."""
        self._sampler.set_state(state)

    def stop(self) -> None:
        """Close the game."""
        if hasattr(self, "_sampler"):
            self._sampler.close()


class LocalRunnerGroup(EnvRunnerGroup):
    """One runner in the driver's process, and no Ray.

    RLlib's own constructor puts the configuration into Ray's object store for remote runners, even if there are none.
    """

    def __init__(self, config: SkillDQNConfig) -> None:
        self.env_runner_cls = config.env_runner_cls
        self._remote_config = config
        self._worker_manager = FaultTolerantActorManager(init_id=1)
        self._ignore_ray_errors_on_env_runners = False
        self._num_env_runners_dropped_lifetime = 0
        self._local_env_runner = config.env_runner_cls(config=config, worker_index=0)


class RemoteRunnerGroup(EnvRunnerGroup):
    """Remote runners, in the configuration's places if it has any, and one in the driver's process for the weights."""

    def __init__(self, config: SkillDQNConfig) -> None:
        super().__init__(config=config)

    def _make_worker(self, *, worker_index: int, **more: Any) -> Any:
        if worker_index and (places := self._remote_config.places):
            self._remote_args["scheduling_strategy"] = PlacementGroupSchedulingStrategy(places[worker_index - 1])
        return super()._make_worker(worker_index=worker_index, **more)


@dataclass(frozen=True)
class Failure:
    """What a runner failed by in one line, and whether it may be over once the runner is started again."""

    cause: str
    passes: bool

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return an error as it is reported; games, machines and connections come back, faults of code do not."""
        cause = str(error) if isinstance(error, SoulsGraphError) else authors_traceback(error)
        return cls(cause.rstrip("."), isinstance(error, (GameError, UnavailableError, OSError, RayError)))


@dataclass(frozen=True)
class RunnerReply:
    """What a runner answers: chunks, and where it runs."""

    chunks: list[Chunk]
    host: str
    #: What the runner's callbacks logged.
    metrics: Mapping[str, Any]
    failure: Failure | None = None


def sample_with(runner: ChunkRunner, state: dict[str, Any]) -> RunnerReply:
    """Set a runner's newer weights and sample; called in the runner's process.

    One call for both takes Ray half the time of two. A function of a module goes there by its name. An error is part of
    the answer: RLlib would end the runner without a word.
    """
    chunks: list[Chunk] = []
    failure = None
    try:
        runner.set_state(state)
        chunks = [chunk for _ in range(CHUNKS_PER_CALL) for chunk in runner.collect()]
    except Exception as error:
        chunks, failure = [], Failure.of(error)
    return RunnerReply(chunks, socket.gethostname(), runner.get_metrics(), failure)


@dataclass
class _Remote:
    """A remote runner as the driver knows it."""

    index: int
    host: str = ""
    #: When it was asked to sample; None while it is not.
    asked_s: float | None = None
    retry_s: float = 0.0
    #: Whether its last call failed, and whether it did not answer in time.
    lost: bool = False
    silent: bool = False
    #: What it failed by last, until it samples.
    failure: Failure | None = None

    @property
    def playing(self) -> bool:
        return not self.lost and not self.silent

    def __str__(self) -> str:
        return f"env runner {self.index}" + (self.host and f" on {self.host}")


class RemoteSampling:
    """Keep one call to sample under way in every remote runner of a group.

    `state` returns what runners play by, which goes with the next call. A runner that fails or does not answer is
    reported by name and cause, and plays again from its next answer on; a fault of code, and a failure of all runners
    before any has sampled, ends the stage at once. With `synchronous` chunks are returned when every runner has
    answered that is not lost, in the order of the runners.
    """

    def __init__(
        self, group: EnvRunnerGroup, state: Callable[[], dict[str, Any]], synchronous: bool, title: str
    ) -> None:
        self._state, self._synchronous, self._title = state, synchronous, title
        self._manager = group._worker_manager
        self._runners = {index: _Remote(index) for index in self._manager.actor_ids()}
        #: The chunks of runners that answered, until they are returned.
        self._answers: dict[int, list[Chunk]] = {}
        self._last_chunk_s, self._sampled = time.monotonic(), False
        #: What the runners' callbacks logged, and who came back after it was lost, until somebody takes it.
        self.metrics: list[Mapping[str, Any]] = []
        self.back: list[int] = []

    @property
    def playing(self) -> int:
        """How many runners play."""
        return sum(runner.playing for runner in self._runners.values())

    def sample(self) -> list[Chunk]:
        """Return the chunks that are ready; none if nobody answered in a moment.

        The runners that answered sample on before this returns: they do so while the driver learns.

        Raises:
            SoulsGraphError: with the cause, if a runner failed by a fault of code, or all before any sampled.
            UnavailableError: if nobody has sampled anything for `ABANDONED_AFTER_S`.
        """
        self._ask()
        self._fetch()
        runners, chunks = self._runners.values(), list[Chunk]()
        if not (self._synchronous and any(one.asked_s is not None and not one.lost for one in runners)):
            chunks = [chunk for index in sorted(self._answers) for chunk in self._answers.pop(index)]
            self._ask()
        now = time.monotonic()
        if any(chunk.env_steps() for chunk in chunks):
            self._last_chunk_s, self._sampled = now, True
        elif now - self._last_chunk_s > ABANDONED_AFTER_S:
            expected = "all" if self._synchronous else "one"
            missing = [
                f"{one} ({one.failure.cause})" if one.failure else str(one) for one in runners if not one.playing
            ]
            raise UnavailableError(
                f"env runners: expected {expected} to answer, found {ABANDONED_AFTER_S:g} s without "
                f"{', '.join(missing) or 'decisions'}; bring them back and resume the run."
            )
        return chunks

    def _ask(self) -> None:
        now = time.monotonic()
        asked = [
            one
            for one in self._runners.values()
            if one.asked_s is None and one.index not in self._answers and now >= one.retry_s
        ]
        if not asked:
            return
        for one in asked:
            one.asked_s = now
        self._manager.foreach_actor_async(
            sample_with,
            kwargs={"state": ray.put(self._state())},
            healthy_only=False,
            remote_actor_ids=[one.index for one in asked],
        )

    def _fetch(self) -> None:
        results = self._manager.fetch_ready_async_reqs(mark_healthy=True)
        for result in results:
            runner, answer = self._runners[result.actor_id], result.get()
            runner.asked_s = None
            if isinstance(answer, RunnerReply):
                self._take(runner, answer)
            else:
                # Ray does not start again what could not be made, and keeps why.
                unmade = getattr(answer, "actor_init_failed", False)
                self._lose(runner, replace(Failure.of(answer.args[0].cause), passes=False) if unmade else None)
        now = time.monotonic()
        for runner in self._runners.values():
            patience_s = SILENT_AFTER_S if runner.host else START_WITHIN_S
            if runner.playing and runner.asked_s is not None and now - runner.asked_s > patience_s:
                late = "does not answer" if runner.host else f"has not started within {START_WITHIN_S:g} s"
                self._note(runner, late, silent=True)
        if not len(results):
            time.sleep(_LOOK_EVERY_S)

    def _take(self, runner: _Remote, answer: RunnerReply) -> None:
        now = "is back" if runner.host or runner.lost else "has started"
        runner.host, runner.failure = answer.host, None
        if answer.failure is not None:
            self._lose(runner, answer.failure)
            if not answer.failure.passes:
                raise self._failed(runner, answer.failure)
            ray.kill(self._manager.actors()[runner.index], no_restart=False)
            return
        self._answers[runner.index] = answer.chunks
        if answer.metrics:
            self.metrics.append(answer.metrics)
        if runner.lost:
            self.back.append(runner.index)
        self._note(runner, now)

    def _lose(self, runner: _Remote, failure: Failure | None) -> None:
        """Ask a runner again later; raises where nobody is left who could sample."""
        runner.retry_s, runner.failure = time.monotonic() + RETRY_AFTER_S, failure or runner.failure
        self._note(runner, f"failed: {failure.cause}" if failure else "was lost", lost=True)
        failures = [one.failure for one in self._runners.values()]
        if failure and all(failures) and not (self._sampled and any(one and one.passes for one in failures)):
            raise self._failed(runner, failure)

    def _failed(self, runner: _Remote, failure: Failure) -> SoulsGraphError:
        kind = UnavailableError if failure.passes else SoulsGraphError
        return kind(
            f"{self._title}: expected {runner} to sample, found: {failure.cause}; correct that, and resume the run."
        )

    def _note(self, runner: _Remote, what: str, lost: bool = False, silent: bool = False) -> None:
        """Note how a runner does; log it if that is new."""
        changed = (lost, silent) != (runner.lost, runner.silent)
        runner.lost, runner.silent = lost, silent
        if changed:
            _logger.warning("%s: %s %s, %d of %d play", self._title, runner, what, self.playing, len(self._runners))
