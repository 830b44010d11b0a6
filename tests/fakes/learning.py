"""An env runner without a game, for tests of the learner: states are drawn, whatever is done."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

import numpy as np

from soulsgraph_envs.combat.rollout import Episodes, Floats, Integers
from soulsgraph_envs.core.state import STATE_SIZE
from soulsgraph_policies.agents.inference import DEVIATION, MEAN, Weights, layer_names
from soulsgraph_policies.learning.env_runners import ChunkRunner
from soulsgraph_policies.learning.sampler import Chunk, Transitions

_DEATH, _HORIZON = 0.02, 50
_SAVED = ("states", "lengths", "returns", "begun")


class DrawingRunner(ChunkRunner):
    """Sample lanes of drawn states for each module, episodes of 50 at most.

    A module named in `env_config["paces"]` decides only once in that number of rounds; a runner whose index is in
    `env_config["waits_s"]` waits so long before it samples.
    """

    def make_env(self) -> None:
        """Begin the lanes of every module."""
        paces = self.config.env_config.get("paces", {})
        self._lanes = {module: _Lanes(self, module, paces.get(module, 1)) for module in self.config.sampled_modules}
        self._rounds = 0

    def weights_changed(self, modules: Collection[str]) -> None:
        """Do nothing: weights are read anew for each decision."""

    def _learns(self, module: str) -> bool:
        finished = self.decisions.get(module, 0) >= self.config.hyperparameters_of(module).budget
        return module in self.config.trained_modules and not finished

    def sample(self, **_: Any) -> list[Chunk]:
        """Return rounds of the lanes until a module that learns has as many decisions as one sample may hold."""
        time.sleep(self.config.env_config.get("waits_s", {}).get(self.worker_index, 0.0))
        playing = [lanes for lanes in self._lanes.values() if self._learns(lanes.module)] or [*self._lanes.values()]
        most = max(self.config.steps_per_round, playing[0].count)
        parts: list[Chunk] = []
        collected = dict.fromkeys(self._lanes, 0)
        while max(collected.values()) + playing[0].count <= most:
            self._rounds += 1
            for lanes in playing:
                if self._rounds % lanes.pace == 0:
                    transitions, episodes = lanes.step()
                    parts.append(Chunk({lanes.module: transitions}, {lanes.module: episodes}, lanes.count))
                    collected[lanes.module] += lanes.count
        return [Chunk.join(parts)]

    def begin_streams(self, incarnation: int) -> None:
        """Draw from streams of this number."""
        for lanes in self._lanes.values():
            lanes.begin_streams(incarnation)

    def get_training_state(self) -> dict[str, Any]:
        """Return lanes and random state."""
        return {"rounds": self._rounds, "lanes": {module: lanes.get_state() for module, lanes in self._lanes.items()}}

    def set_training_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_training_state`."""
        self._rounds = int(state["rounds"])
        for module, lanes in self._lanes.items():
            lanes.set_state(state["lanes"][module])


class _Lanes:
    """The lanes of one module."""

    def __init__(self, runner: DrawingRunner, module: str, pace: int) -> None:
        self._runner, self.module, self.pace = runner, module, pace
        config = runner.config
        self._size = config.module_spaces()[module][0].shape[0]  # type: ignore[index]
        self._index = runner.worker_index or 0
        self._seed = config.stage_seed or 0
        self.count: int = config.num_envs_per_env_runner
        self._lengths = np.zeros(self.count, np.int64)
        self._returns = np.zeros(self.count, np.float32)
        self.begin_streams(0)

    def begin_streams(self, incarnation: int) -> None:
        """Begin with first states that are drawn from streams of this number."""
        self._random = np.random.default_rng([self._seed, self._index, *([incarnation] if incarnation else [])])
        self._states = self._draw(self.count)
        self._begun = np.full(self.count, incarnation << 24)

    def _draw(self, lanes: int) -> Floats:
        return self._random.standard_normal((lanes, self._size)).astype(np.float32)

    def step(self) -> tuple[Transitions, Episodes]:
        """Decide once in every lane."""
        actions, following = self._act(self._states), self._draw(self.count)
        rewards = (self._states[:, 0] * actions - np.abs(following[:, 0])).astype(np.float32)
        self._lengths += 1
        self._returns += rewards
        terminated = self._random.random(self.count) < _DEATH
        ended = np.flatnonzero(terminated | (self._lengths >= _HORIZON))
        transitions = Transitions(
            observations=self._states,
            next_observations=following.copy(),
            actions=actions,
            rewards=rewards,
            terminated=terminated,
            ticks=1 + actions,
            lanes=np.arange(self.count) + self._index * self.count,
            episodes=self._begun.copy(),
        )
        self._begun[ended] += 1
        episodes = Episodes(
            lanes=ended,
            lengths=self._lengths[ended],
            seconds=self._lengths[ended].astype(np.float64),
            won=np.zeros(len(ended), np.bool_),
            died=terminated[ended],
            rows=np.ones((len(ended), STATE_SIZE), np.float32),
            terms=self._returns[ended, None],
        )
        self._lengths[ended], self._returns[ended] = 0, 0.0
        self._states = following
        self._states[ended] = self._draw(len(ended))
        return transitions, episodes

    def _act(self, observations: Floats) -> Integers:
        numbers = self._runner.config.hyperparameters_of(self.module)
        values = q_values(self._runner.weights(self.module), observations, numbers.observation_clip)
        rate = numbers.exploration(self._runner.decisions[self.module])
        explores = self._random.random(self.count) < rate
        random = self._random.integers(0, values.shape[1], self.count)
        return np.where(explores, random, values.argmax(axis=1)).astype(np.int64)

    def get_state(self) -> dict[str, Any]:
        """Return everything that the next decision depends on."""
        arrays = {name: getattr(self, f"_{name}").copy() for name in _SAVED}
        return arrays | {"random": self._random.bit_generator.state}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state`."""
        for name in _SAVED:
            setattr(self, f"_{name}", state[name].copy())
        self._random.bit_generator.state = state["random"]


def q_values(weights: Weights, observations: Floats, clip: float) -> Floats:
    """Return the Q-values (n, actions) of raw observations (n, size), in plain numpy."""
    values = np.clip((observations - weights[MEAN]) / weights[DEVIATION], -clip, clip).astype(np.float32)
    *hidden, (last, last_bias) = layer_names(weights)
    for weight, bias in hidden:
        values = np.maximum(values @ weights[weight].T + weights[bias], 0.0)
    return values @ weights[last].T + weights[last_bias]
