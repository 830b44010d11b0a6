"""A skill's network as acting needs it, and the names of weights that every module of this package uses."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.state import STATE_SIZE
from soulsgraph_envs.skills.base import BoundObservation, Skill

#: A module's parameters and normaliser by name, as numpy arrays; layers in torch's layout, (outputs, inputs).
Weights = dict[str, npt.NDArray[Any]]

MEAN, DEVIATION = "observation_mean", "observation_deviation"
NETWORK, TARGET = "q_network", "target_network"
#: Parameters of a head in the form in which it is trained.
HEAD = "head"


def layer_names_at(index: int) -> tuple[str, str]:
    """Return the names of weight and bias of the linear layer at an index."""
    # A ReLU without parameters stands between two linear layers.
    return f"{NETWORK}.{2 * index}.weight", f"{NETWORK}.{2 * index}.bias"


def layer_names(weights: Container[str]) -> tuple[tuple[str, str], ...]:
    """Return the names of weight and bias of every linear layer of the network that plays, first to last."""
    return tuple(takewhile(lambda names: names[0] in weights, map(layer_names_at, count())))


Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Layers = tuple[tuple[Floats, Floats], ...]


@dataclass(frozen=True)
class FrozenNetwork:
    """One skill's network as acting needs it.

    The observation (size,) is normalised with `mean` and `deviation` in float64 and clipped at plus
    and minus `clip`. `layers` are (W, b) in torch's layout: W is (outputs, inputs).

    Raises:
        SoulsGraphError: if shapes do not fit each other.
    """

    skill: str
    observation: BoundObservation
    mean: Doubles
    deviation: Doubles
    clip: float
    layers: Layers

    def __post_init__(self) -> None:
        columns = self.observation.columns
        size = inputs = len(columns)
        fits = all(len(part) == size for part in (*vars(self.observation).values(), self.mean, self.deviation))
        for weight, bias in self.layers:
            fits = fits and weight.shape == (len(bias), inputs)
            inputs = len(bias)
        if not fits or not self.layers or size < 1 or not all(0 <= c < STATE_SIZE for c in columns):
            found = [weight.shape for weight, _ in self.layers]
            raise SoulsGraphError(
                f"network of {self.skill}: expected layers and statistics that fit {size} observed values, "
                f"found layers {found} and {len(self.mean)} means; load the weights of the same skill."
            )

    @classmethod
    def of(
        cls, skill: Skill, scenario: Scenario, weights: Mapping[str, npt.NDArray[np.generic]], clip: float
    ) -> FrozenNetwork:
        """Make a skill's network for a scenario from `QNetworkModule.weights`.

        Raises:
            SoulsGraphError: if a weight is missing or of another shape than the skill's.
        """
        try:
            mean, deviation = weights["observation_mean"], weights["observation_deviation"]
            layers = _linear_layers(weights)
        except KeyError as error:
            raise SoulsGraphError(
                f"network of {skill.name}: expected a weight {error}, found {', '.join(weights)}; "
                "load the weights of a Q-network module."
            ) from error
        observation = skill.observation.bind(scenario)
        network = cls(skill.name, observation, _double(mean), _double(deviation), clip, layers)
        if len(layers[-1][1]) != len(skill.actions):
            raise SoulsGraphError(
                f"network of {skill.name}: expected {len(skill.actions)} actions, found {len(layers[-1][1])}; "
                "load the weights of the same skill."
            )
        return network

    @property
    def weights(self) -> Weights:
        """The layers and statistics under the names of `QNetworkModule.weights`."""
        weights: Weights = {MEAN: self.mean, DEVIATION: self.deviation}
        for index, layer in enumerate(self.layers):
            weights |= zip(layer_names_at(index), layer, strict=True)
        return weights


def _double(values: npt.NDArray[np.generic]) -> Doubles:
    return np.array(values, np.float64)


def _linear_layers(weights: Mapping[str, npt.NDArray[np.generic]]) -> Layers:
    return tuple(
        (np.array(weights[weight], np.float32), np.array(weights[bias], np.float32))
        for weight, bias in layer_names(weights)
    )
