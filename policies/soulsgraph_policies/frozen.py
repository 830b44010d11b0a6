"""From a skill's module to an artifact of the library, and from an artifact to a network that plays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.scenario import Scenario
from soulsgraph_envs.skills import Skill
from soulsgraph_policies.artifact import Artifact, Layers, NormalizerStatistics
from soulsgraph_policies.inference import FrozenNetwork
from soulsgraph_policies.normalizer import RunningNormalizer
from soulsgraph_policies.weights import DEVIATION, HEAD, MEAN, NETWORK, Weights


def layers_of(weights: Mapping[str, npt.NDArray[np.generic]]) -> Layers:
    """Give a module's layers as (W (inputs, outputs), b (outputs,)), copied."""
    indices = sorted(
        int(name.split(".")[1]) for name in weights if name.startswith(NETWORK) and name.endswith("weight")
    )
    return tuple(
        (
            np.array(weights[f"{NETWORK}.{index}.weight"].T, np.float32),
            np.array(weights[f"{NETWORK}.{index}.bias"], np.float32),
        )
        for index in indices
    )


def weights_of(artifact: Artifact) -> Weights:
    """Give an artifact's weights under the names `QNetworkModule.load_weights` takes."""
    normalizer = normalizer_of(artifact.card.normalizer)
    weights: Weights = {MEAN: normalizer.mean, DEVIATION: normalizer.deviation}
    for index, (weight, bias) in enumerate(artifact.layers):
        # A ReLU without parameters stands between two linear layers.
        weights[f"{NETWORK}.{2 * index}.weight"] = np.ascontiguousarray(weight.T)
        weights[f"{NETWORK}.{2 * index}.bias"] = bias
    return weights


def trained_weights_of(artifact: Artifact) -> Weights:
    """Give an artifact's weights as `weights_of` does, and those of the head that it was trained with."""
    return weights_of(artifact) | head_of(artifact.extras)


def head_of(weights: Mapping[str, npt.NDArray[Any]]) -> Weights:
    """Give those of some weights that are a trained head's: an artifact keeps them among its extras."""
    return {name: values for name, values in weights.items() if name.startswith(f"{HEAD}.")}


def normalizer_of(statistics: NormalizerStatistics) -> RunningNormalizer:
    """Give a normaliser that continues the statistics of a card."""
    normalizer = RunningNormalizer(len(statistics.mean))
    mean, variance = np.array(statistics.mean), np.array(statistics.variance)
    normalizer.set_state({"mean": mean, "variance": variance, "count": statistics.count})
    return normalizer


def statistics_of(normalizer: RunningNormalizer) -> NormalizerStatistics:
    """Give a normaliser's statistics as a card holds them."""
    return NormalizerStatistics(
        tuple(normalizer.mean.tolist()), tuple(normalizer.variance.tolist()), float(normalizer.count)
    )


def network_of(artifact: Artifact, skill: Skill, scenario: Scenario) -> FrozenNetwork:
    """Give an artifact as the network that plays its skill in a scenario."""
    return FrozenNetwork.of(skill, scenario, weights_of(artifact), artifact.card.observation_clip)
