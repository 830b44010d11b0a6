"""Make the observation fit libraries that want every Discrete space to begin at 0, such as stable-baselines3."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.spaces import Dict, Discrete, Space
from gymnasium.wrappers import TransformObservation


def zero_based(env: gymnasium.Env[Any, Any]) -> TransformObservation[Any, Any, Any]:
    """Shift every whole number of a dictionary observation so that its space begins at 0."""
    spaces = env.observation_space
    assert isinstance(spaces, Dict), f"expected a dictionary observation, found {spaces}"
    numbers = {name: space for name, space in spaces.items() if isinstance(space, Discrete)}
    shifted: dict[str, Space[Any]] = {name: Discrete(int(space.n)) for name, space in numbers.items()}

    def shift(shown: dict[str, Any]) -> dict[str, Any]:
        return {**shown, **{name: shown[name] - space.start for name, space in numbers.items()}}

    return TransformObservation(env, shift, Dict({**spaces, **shifted}))
