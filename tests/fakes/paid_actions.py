"""Whether an agent of another project learns: rewards that pay for actions alone, even ones or odd ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import gymnasium
import numpy as np

_PLAYED, _LEARNED = 40, 34


class PredictingAgent(Protocol):
    """An agent like stable-baselines3's: `predict` returns an action, drawn or greedy, and a state."""

    def predict(self, observation: Any) -> tuple[Any, Any]:
        """Choose an action."""


class PaidActions(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Replace an environment's reward: 1 for an action whose (first) number has the given parity, else 0."""

    def __init__(self, env: gymnasium.Env[Any, Any], parity: int) -> None:
        super().__init__(env)
        self.parity = parity

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step and pay."""
        observation, _, terminated, truncated, info = self.env.step(action)
        return observation, float(np.ravel(action)[0] % 2 == self.parity), terminated, truncated, info


def check_agent_learns(
    make_env: Callable[[], gymnasium.Env[Any, Any]], train: Callable[[gymnasium.Env[Any, Any]], PredictingAgent]
) -> None:
    """Train an agent where even actions pay and another where odd ones do: each plays 34 of 40 for its pay.

    False alarms: one that draws its actions without regard to its rewards passes with a probability of 2e-11
    (binomial, one half); one that plays the same whatever it is paid never does.

    Raises:
        AssertionError: if either plays fewer.
    """
    for parity in (0, 1):
        env = PaidActions(make_env(), parity)
        agent, paid = train(env), 0.0
        observation, _ = env.reset(seed=0)
        for _ in range(_PLAYED):
            observation, reward, terminated, truncated, _ = env.step(agent.predict(observation)[0])
            paid += reward
            if terminated or truncated:
                observation, _ = env.reset()
        env.close()  # type: ignore[no-untyped-call]
        if paid < _LEARNED:
            raise AssertionError(f"expected {_LEARNED} of {_PLAYED} actions that pay, found {paid:g}")
