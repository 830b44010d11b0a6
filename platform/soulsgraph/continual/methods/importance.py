"""What the parameters and hidden units of a trained Q-network are worth on observations: EWC, MAS, dormant units.

Gradients are those of every single observation, exact and without torch: of a layer with the gradients d (n, outputs)
of its sums and the inputs x (n, inputs) they are d_i x_j, so that the sum of their squares over observations is the
product of the squares' matrices, and likewise that of their absolute values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from soulsgraph_envs.combat.rollout import Doubles, Floats
from soulsgraph_policies.agents.inference import DEVIATION, MEAN, Weights, layer_names

#: Below this share of their layer's mean activation units are dormant (Sokar et al. 2023).
DORMANT = 0.025


def layer_outputs(weights: Weights, observations: Floats, clip: float = 10.0) -> list[Doubles]:
    """Return what every layer passes on, from the normalised observations (n, size) to the Q-values (n, actions).

    `observations` are raw, clipped at plus and minus `clip` once normalised; `weights` are those of
    `QNetworkModule.weights`. Computed in float64.
    """
    normalized = np.clip((observations - weights[MEAN]) / weights[DEVIATION], -clip, clip)
    # The network reads float32.
    outputs: list[Doubles] = [normalized.astype(np.float32).astype(np.float64)]
    names = layer_names(weights)
    for place, (weight, bias) in enumerate(names):
        sums = outputs[-1] @ weights[weight].T.astype(np.float64) + weights[bias]
        outputs.append(np.maximum(sums, 0.0) if place < len(names) - 1 else sums)
    return outputs


def fisher_importance(weights: Weights, observations: Floats, clip: float = 10.0) -> Weights:
    """Return EWC's importance of every weight and bias, under their names (Kirkpatrick et al. 2017, Eq. 3).

    That is the diagonal of the Fisher information of a Gaussian of variance 1 around the Q-values, as Continual World
    takes it for its critics: over `observations` (n, size) the mean of the squared gradients of Q, summed over actions.
    They are best those that the skill met while it played; `clip` as for `layer_outputs`.
    """
    outputs = layer_outputs(weights, observations, clip)
    values = outputs[-1]
    # The gradient of each action's Q-value by all of them.
    slopes = (np.tile(action, (len(values), 1)) for action in np.eye(values.shape[1]))
    return _importance(weights, outputs, np.square, slopes)


def mas_importance(weights: Weights, observations: Floats, clip: float = 10.0) -> Weights:
    """Return MAS's importance of every weight and bias, under their names (Aljundi et al. 2018, Eq. 3).

    That is, over `observations` (n, size), the mean of the absolute gradients of the Q-values' squared Euclidean norm;
    otherwise as `fisher_importance`.
    """
    outputs = layer_outputs(weights, observations, clip)
    return _importance(weights, outputs, np.abs, [2.0 * outputs[-1]])


def _importance(
    weights: Weights, outputs: Sequence[Doubles], size: Callable[[Doubles], Doubles], slopes: Iterable[Doubles]
) -> Weights:
    """Sum over `slopes`, gradients (n, actions) by the Q-values, the mean size of every parameter's own gradients.

    `size` is that of a number, and of a product the product of the sizes.
    """
    names, count = layer_names(weights), len(outputs[0])
    found: Weights = {name: np.zeros(weights[name].shape) for pair in names for name in pair}
    for gradient in slopes:
        for place in reversed(range(len(names))):
            weight, bias = names[place]
            sizes = size(gradient)
            found[weight] += sizes.T @ size(outputs[place]) / count
            found[bias] += sizes.sum(axis=0) / count
            # A rectified unit passes gradients on where it is above 0.
            gradient = (gradient @ weights[weight].astype(np.float64)) * (outputs[place] > 0.0)
    return {name: values.astype(np.float32) for name, values in found.items()}


def dormant_share(weights: Weights, observations: Floats, clip: float = 10.0) -> tuple[float, ...]:
    """Return the share of dormant units in each hidden layer, from 0 to 1 (Sokar et al. 2023, Definition 3.1).

    A unit is dormant if its mean activation over `observations` (n, size) is at most `DORMANT` times that of its
    layer. `clip` as for `layer_outputs`.
    """
    activations = [hidden.mean(axis=0) for hidden in layer_outputs(weights, observations, clip)[1:-1]]
    return tuple(float((mean <= DORMANT * mean.mean()).mean()) for mean in activations)
