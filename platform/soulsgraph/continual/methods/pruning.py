"""PackNet: several tasks in one network, each in weights of its own (Mallya & Lazebnik 2018).

A task is trained in what is free, pruned to the largest of these weights, and trained on in them; what was pruned is 0
and free for the next task, and what was kept never changes again:

    for each task:
        free = free_mask(weights, all that was kept)
        train with Constraint(mask=free)
        kept, weights = free_weights(weights, free, share)
        train on from `weights` with Constraint(mask=kept)

A task plays by its own weights and those of the tasks before it (`task_weights`). Biases, which the publication does
not prune, are the first task's, as in Continual World: all tasks have them in common. Masks are 1 or 0 for each number
of every weight and bias, under their names; the normaliser has none, and must stay as the first task left it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from soulsgraph_envs.combat.rollout import Floats
from soulsgraph_policies.agents.inference import Weights, layer_names


def free_mask(weights: Weights, kept: Sequence[Weights]) -> Weights:
    """Return the mask of what is free in a network (`QNetworkModule.weights`) of which tasks kept some."""
    free = {name: np.ones_like(weights[name]) for pair in layer_names(weights) for name in pair}
    for mask in kept:
        for name, values in free.items():
            values[mask[name] > 0] = 0.0
    return free


def free_weights(weights: Weights, free: Weights, share: float) -> tuple[Weights, Weights]:
    """Keep the largest of the free weights and free the others; return the mask of the kept, and the weights.

    Of every layer this `share` of the free weights is kept by magnitude, rounded, and at least one if one is free; of
    equal ones the first. The others are 0 in the returned copy of the weights. All biases that are free are kept, so
    that after the first task none is.
    """
    kept: Weights = {}
    pruned = {name: values.copy() for name, values in weights.items()}
    for weight, bias in layer_names(weights):
        kept[weight], kept[bias] = _largest(weights[weight], free[weight], share), free[bias].copy()
        pruned[weight][(free[weight] > 0.0) & (kept[weight] == 0.0)] = 0.0
    return kept, pruned


def _largest(values: Floats, free: Floats, share: float) -> Floats:
    """Return the mask of the largest free values of a layer, of its shape."""
    places = np.flatnonzero(free)
    count = max(round(share * len(places)), min(len(places), 1))
    order = np.argsort(-np.abs(values.ravel()[places]), kind="stable")
    mask = np.zeros_like(values)
    mask.ravel()[places[order[:count]]] = 1.0
    return mask


def task_weights(weights: Weights, kept: Sequence[Weights]) -> Weights:
    """Return the weights that a task plays by: those kept by it and the tasks before it, the others 0.

    `kept` are the masks of these tasks, the first one's among them. The normaliser is returned as it is.
    """
    own = {name: np.maximum.reduce([mask[name] for mask in kept]) for name in kept[0]}
    return {name: values * own[name] if name in own else values.copy() for name, values in weights.items()}
