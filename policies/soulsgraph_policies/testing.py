"""An env runner without a game, for tests of the learner: random linear dynamics, and checks of its caller."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.episodes import Episodes
from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_envs.state import STATE_SIZE
from soulsgraph_policies.chunk_runner import ChunkRunner
from soulsgraph_policies.transitions import Chunk, Transitions
from soulsgraph_policies.weights import DEVIATION, MEAN, NETWORK, Weights

Floats = npt.NDArray[np.float32]
#: Columns spread far apart, so that a learner that forgot to normalise would not learn.
_SPREAD = 20.0
_DEATH, _HORIZON = 0.02, 50


class LinearRunner(ChunkRunner):
    """Sample `env_config["lanes"]` lanes of x' = A x + B[action] + noise, episodes of at most 50 decisions.

    It checks what a real runner relies on: the count of decisions never falls, and frozen skills keep
    their weights.
    """

    def make_env(self) -> None:
        """Draw the dynamics, the same for every runner of a seed."""
        observation, action = self.config.skill_spaces()[self.config.trained]
        size, choices = observation.shape[0], int(action.n)  # type: ignore[index, attr-defined]
        fixed = np.random.default_rng(self.config.seed)
        self._drift = (0.9 * np.linalg.qr(fixed.standard_normal((size, size)))[0]).astype(np.float32)
        self._push = fixed.standard_normal((choices, size)).astype(np.float32)
        self._scale = np.geomspace(1.0, _SPREAD, size).astype(np.float32)
        self._random = np.random.default_rng([self.config.seed or 0, self.worker_index or 0])
        self._lanes = int(self.config.env_config["lanes"])
        self._states = self._draw(self._lanes)
        self._lengths = np.zeros(self._lanes, np.int64)
        self._returns = np.zeros(self._lanes, np.float32)
        self._begun = np.zeros(self._lanes, np.int64)
        self._seen = 0
        self._frozen: dict[str, Weights] = {}

    def _draw(self, lanes: int) -> Floats:
        return self._random.standard_normal((lanes, self._drift.shape[0])).astype(np.float32)

    def weights_changed(self, skills: Collection[str]) -> None:
        """Check that nothing frozen was changed.

        Raises:
            SoulsGraphError: if the count of decisions fell, or a frozen skill changed once learning had begun.
        """
        if self.decisions < self._seen:
            raise SoulsGraphError(f"runner: expected at least {self._seen} decisions, found {self.decisions}.")
        frozen = [skill.name for skill in self.config.skills[:-1]]
        if not self._seen:
            self._frozen = {skill: {name: w.copy() for name, w in self.weights(skill).items()} for skill in frozen}
        for skill in frozen:
            if any((self._frozen[skill][name] != values).any() for name, values in self.weights(skill).items()):
                raise SoulsGraphError(f"runner: expected {skill} to stay frozen, found other weights.")
        self._seen = self.decisions

    def sample(self, **_: Any) -> list[Chunk]:
        """Return a sample of as many whole rounds of the lanes as it may hold."""
        rounds = max(self.config.decisions_per_sample // self._lanes, 1)
        steps = [self._step() for _ in range(rounds)]
        episodes = Episodes.join([episodes for _, episodes in steps])
        return [Chunk(Transitions.join([part for part, _ in steps]), episodes, rounds * self._lanes)]

    def _step(self) -> tuple[Transitions, Episodes]:
        actions = self._act(self._states * self._scale)
        noise = 0.1 * self._draw(self._lanes)
        following = (self._states @ self._drift.T + 0.3 * self._push[actions] + noise).astype(np.float32)
        rewards = -np.abs(following[:, 0])
        self._lengths += 1
        self._returns += rewards
        terminated = self._random.random(self._lanes) < _DEATH
        ended = np.flatnonzero(terminated | (self._lengths >= _HORIZON))
        transitions = Transitions(
            observations=self._states * self._scale,
            next_observations=following * self._scale,
            actions=actions,
            rewards=rewards,
            terminated=terminated,
            ticks=1 + actions,
            lanes=np.arange(self._lanes) + (self.worker_index or 0) * self._lanes,
            episodes=self._begun.copy(),
        )
        self._begun[ended] += 1
        episodes = self._close(ended, terminated)
        self._states = following
        self._states[ended] = self._draw(len(ended))
        return transitions, episodes

    def _act(self, observations: Floats) -> npt.NDArray[np.int64]:
        values = q_values(self.weights(self.config.trained), observations, self.config.hyperparameters.observation_clip)
        explores = self._random.random(self._lanes) < self.config.hyperparameters.exploration_rate(self.decisions)
        random = self._random.integers(0, values.shape[1], self._lanes)
        return np.where(explores, random, values.argmax(axis=1)).astype(np.int64)

    def _close(self, ended: npt.NDArray[np.int64], died: npt.NDArray[np.bool_]) -> Episodes:
        episodes = Episodes(
            lanes=ended,
            lengths=self._lengths[ended],
            seconds=self._lengths[ended].astype(np.float64),
            won=np.zeros(len(ended), np.bool_),
            died=died[ended],
            rows=np.ones((len(ended), STATE_SIZE), np.float32),
            terms=self._returns[ended, None],
        )
        self._lengths[ended], self._returns[ended] = 0, 0.0
        return episodes

    def get_training_state(self) -> dict[str, Any]:
        """Return lanes and random state."""
        arrays = {"states": self._states.copy(), "lengths": self._lengths.copy(), "returns": self._returns.copy()}
        return {**arrays, "begun": self._begun.copy(), "random": self._random.bit_generator.state}

    def set_training_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_training_state`."""
        self._states, self._lengths = state["states"].copy(), state["lengths"].copy()
        self._returns, self._begun = state["returns"].copy(), state["begun"].copy()
        self._random.bit_generator.state = state["random"]


def q_values(weights: Weights, observations: Floats, clip: float) -> Floats:
    """Return the Q-values (n, actions) of raw observations (n, size), in plain numpy."""
    values = np.clip((observations - weights[MEAN]) / weights[DEVIATION], -clip, clip).astype(np.float32)
    layers = sorted(int(name.split(".")[1]) for name in weights if name.startswith(NETWORK) and name.endswith("weight"))
    for layer in layers:
        values = values @ weights[f"{NETWORK}.{layer}.weight"].T + weights[f"{NETWORK}.{layer}.bias"]
        if layer != layers[-1]:
            values = np.maximum(values, 0.0)
    return values
