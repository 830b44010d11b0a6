"""DQN updates compiled for the CPU: targets, losses, gradients and Adam in one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
from numba import njit

from soulsgraph_envs.combat.rollout import Doubles, Floats, Integers
from soulsgraph_envs.core.compiling import cached
from soulsgraph_policies.agents.inference import PRODUCTS, SPAN, product, zeros
from soulsgraph_policies.learning.constraint import ConstraintParts
from soulsgraph_policies.learning.hyperparameters import MARGIN_WEIGHT, DQNHyperparameters
from soulsgraph_policies.learning.replay import Batch

#: Compiles a function that compiled ones alone call: what would call it from Python takes as long again.
_inner = njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


# torch.optim.Adam's defaults, and what clip_grad_norm_ adds to the norm.
_BETA_1, _BETA_2, _ADAM_EPSILON = 0.9, 0.999, 1e-8
_NORM_EPSILON = np.float32(1e-6)


class FlatMemory(NamedTuple):
    """Parameters, target parameters and Adam's two moments as flat float32 vectors, all (parameters,)."""

    network: Floats
    target: Floats
    first_moment: Floats
    second_moment: Floats


class FlatConstraint(NamedTuple):
    """A `Constraint`'s parts as flat float32 vectors in the order of `FlatMemory`; of no length without a constraint.

    `pull` is strength * importance, `mask` 1 where a parameter learns.
    """

    pull: Floats
    anchor: Floats
    mask: Floats


_UNCONSTRAINED = FlatConstraint(*(np.zeros(0, np.float32) for _ in range(3)))


@dataclass(frozen=True)
class UpdateMetrics:
    """Means over every row of every update of one call, and each row's absolute TD error, (n,)."""

    loss: float
    q_mean: float
    td_error: float
    errors: Floats


Sizes = tuple[int, int, int, int]
Layers = tuple[Floats, Floats, Floats, Floats, Floats, Floats]
Rows = tuple[Floats, Floats, Integers, Floats, Floats, Floats, Floats]
#: Adam's steps, learning rate, greatest norm, and whether the target is double, that is, whether the network chooses
#: the action that the target network values.
Constants = tuple[int, float, float, bool]


class PaddedNetwork(NamedTuple):
    """A network's layers as products take them: weights transposed, some as they are, all columns filled up."""

    first: Floats
    first_bias: Floats
    second: Floats
    second_bias: Floats
    output: Floats
    second_as_is: Floats
    output_as_is: Floats


class Work(NamedTuple):
    """The memory that updates work in, with the sizes of the networks.

    Columns of two dimensions are filled up with zeros to whole vectors. `slopes` are gradients of the Q-values,
    `delta1` and `delta2` those of the hidden layers' sums, `g1` (transposed) to `g3` those of all weights.
    """

    sizes: Sizes
    network: PaddedNetwork
    target: PaddedNetwork
    gradient: Floats
    h1: Floats
    h2: Floats
    values: Floats
    targets: Floats
    slopes: Floats
    delta1: Floats
    delta2: Floats
    g1: Floats
    g2: Floats
    g3: Floats
    choices: Integers


@_inner
def _layers(flat: Floats, sizes: Sizes) -> Layers:
    """Cut a flat vector into (W1, b1, W2, b2, W3, b3), in torch's order and layout."""
    inputs, first, second, actions = sizes
    a = first * inputs
    b = a + first
    c = b + second * first
    d = c + second
    e = d + actions * second
    return (
        flat[:a].reshape((first, inputs)),
        flat[a:b],
        flat[b:c].reshape((second, first)),
        flat[c:d],
        flat[d:e].reshape((actions, second)),
        flat[e:],
    )


# Loops, not slices: numba takes ten seconds to compile the error of an assignment between two shapes.
@_inner
def _copy(values: Floats, out: Floats) -> None:
    for row in range(values.shape[0]):
        for column in range(values.shape[1]):
            out[row, column] = values[row, column]


@_inner
def _transpose(values: Floats, out: Floats) -> None:
    for column in range(values.shape[1]):
        for row in range(values.shape[0]):
            out[column, row] = values[row, column]


@_inner
def _arrange(layers: Layers, arranged: PaddedNetwork) -> None:
    w1, b1, w2, b2, w3, _ = layers
    _transpose(w1, arranged.first)
    _transpose(w2, arranged.second)
    _transpose(w3, arranged.output)
    for unit in range(len(b1)):
        arranged.first_bias[unit] = b1[unit]
    for unit in range(len(b2)):
        arranged.second_bias[unit] = b2[unit]
    _copy(w2, arranged.second_as_is)
    _copy(w3, arranged.output_as_is)


@_inner
def _forward(arranged: PaddedNetwork, inputs: Floats, work: Work) -> None:
    """Compute both hidden layers and the output, the last without its bias."""
    product(work.h1, inputs, arranged.first, arranged.first_bias, None)
    product(work.h2, work.h1, arranged.second, arranged.second_bias, None)
    product(work.values, work.h2, arranged.output, None, None)


@_inner
def _choose(values: Floats, bias: Floats, choices: Integers) -> None:
    """Return every row's greedy action, the first of equals."""
    for row in range(values.shape[0]):
        best = 0
        for action in range(1, bias.shape[0]):
            if values[row, action] + bias[action] > values[row, best] + bias[best]:
                best = action
        choices[row] = best


@_inner
def _targets(values: Floats, bias: Floats, batch: Rows, choices: Integers, targets: Floats) -> None:
    _, _, _, rewards, discounts, _, _ = batch
    for row in range(values.shape[0]):
        action = choices[row]
        targets[row] = rewards[row] + discounts[row] * (values[row, action] + bias[action])


@_inner
def _raise_shown(
    values: Floats, bias: Floats, shown: int, margin: np.float32, slope: np.float32, slopes: Floats
) -> np.float32:
    """Add the gradient of one row's large-margin loss, as `minibatch_loss` has it, and return that loss."""
    best = shown
    highest = own = values[shown] + bias[shown]
    for action in range(bias.shape[0]):
        raised = values[action] + bias[action] + margin
        if action != shown and raised > highest:
            best, highest = action, raised
    slopes[best] += slope
    slopes[shown] -= slope
    loss: np.float32 = highest - own
    return loss


@_inner
def _output_gradients(
    values: Floats, bias: Floats, batch: Rows, targets: Floats, metrics: tuple[Doubles, Floats], slopes: Floats
) -> None:
    """Compute the TD errors and, from them, the gradient of every row's Q-values."""
    _, _, actions, _, _, weights, margins = batch
    sums, errors = metrics
    one, zero, half = np.float32(1.0), np.float32(0.0), np.float32(0.5)
    scale, raising = one / np.float32(len(actions)), np.float32(MARGIN_WEIGHT)
    slopes[:, :] = zero
    for row in range(len(actions)):
        action = actions[row]
        value = values[row, action] + bias[action]
        error = value - targets[row]
        size = abs(error)
        errors[row] = size
        sums[0] += weights[row] * (half * error * error if size < one else size - half)
        sums[1] += value
        sums[2] += size
        slopes[row, action] = min(max(error, -one), one) * scale * weights[row]
        if margins[row] > zero:
            sums[0] += raising * _raise_shown(values[row], bias, action, margins[row], raising * scale, slopes[row])


@_inner
def _add_rows(values: Floats, out: Floats) -> None:
    out[:] = np.float32(0.0)
    for row in range(values.shape[0]):
        for column in range(len(out)):
            out[column] += values[row, column]


@_inner
def _gradients(gradients: Layers, observations: Floats, work: Work) -> None:
    """Compute the gradients of all parameters from those of the Q-values."""
    product(work.g3, work.slopes.T, work.h2, None, None)
    product(work.delta2, work.slopes, work.network.output_as_is, None, work.h2)
    product(work.g2, work.delta2.T, work.h1, None, None)
    product(work.delta1, work.delta2, work.network.second_as_is, None, work.h1)
    product(work.g1, observations.T, work.delta1, None, None)
    w1, b1, w2, b2, w3, b3 = gradients
    _transpose(work.g1[:, : w1.shape[0]], w1)
    _add_rows(work.delta1, b1)
    _copy(work.g2[:, : w2.shape[1]], w2)
    _add_rows(work.delta2, b2)
    _copy(work.g3[:, : w3.shape[1]], w3)
    _add_rows(work.slopes, b3)


@_inner
def _constrain(constraint: FlatConstraint, network: Floats, gradient: Floats) -> None:
    """Pull the gradient of every parameter that learns to its anchor, and set that of the others to 0."""
    pull, anchor, mask = constraint
    for i in range(mask.shape[0]):
        gradient[i] = mask[i] * (gradient[i] + pull[i] * (network[i] - anchor[i]))


#: Sums beside each other: a single one would wait for its last addition.
_PARTS = 4 * SPAN


@_inner
def _norm(values: Floats) -> np.float32:
    """Return the Euclidean norm, summed in an order that no processor changes."""
    sums, whole = np.zeros(_PARTS, np.float32), len(values) - len(values) % _PARTS
    for start in range(0, whole, _PARTS):
        for place in range(_PARTS):
            sums[place] += values[start + place] * values[start + place]
    total: np.float32 = np.float32(0.0)
    for value in values[whole:]:
        total += value * value
    for part in sums:
        total += part
    norm: np.float32 = np.sqrt(total)
    return norm


@_inner
def _adam(
    memory: tuple[Floats, Floats, Floats], gradient: Floats, step: int, learning_rate: float, max_norm: float
) -> None:
    """Clip the gradient by its norm and take one Adam step in place; `step` counts from 1."""
    network, first, second = memory
    one = np.float32(1.0)
    scale = min(np.float32(max_norm) / (_norm(gradient) + _NORM_EPSILON), one)
    keep_1, keep_2 = np.float32(1.0 - _BETA_1), np.float32(1.0 - _BETA_2)
    decay_2, epsilon = np.float32(_BETA_2), np.float32(_ADAM_EPSILON)
    rate = np.float32(learning_rate / (1.0 - _BETA_1**step))
    correction = np.float32(1.0 / np.sqrt(1.0 - _BETA_2**step))
    for i in range(network.shape[0]):
        slope = gradient[i] * scale
        first[i] += keep_1 * (slope - first[i])
        second[i] = second[i] * decay_2 + keep_2 * slope * slope
        network[i] -= rate * first[i] / (np.sqrt(second[i]) * correction + epsilon)


@_inner
def _update(
    memory: FlatMemory,
    constraint: FlatConstraint,
    work: Work,
    batch: Rows,
    constants: Constants,
    metrics: tuple[Doubles, Floats],
) -> None:
    """Take one update; the target network stays arranged from one to the next."""
    network, target, first_moment, second_moment = memory
    observations, following = batch[0], batch[1]
    step, learning_rate, max_norm, double = constants
    layers, target_bias = _layers(network, work.sizes), _layers(target, work.sizes)[5]
    _arrange(layers, work.network)
    if double:
        _forward(work.network, following, work)
        _choose(work.values, layers[5], work.choices)
    _forward(work.target, following, work)
    if not double:
        _choose(work.values, target_bias, work.choices)
    _targets(work.values, target_bias, batch, work.choices, work.targets)
    _forward(work.network, observations, work)
    _output_gradients(work.values, layers[5], batch, work.targets, metrics, work.slopes)
    _gradients(_layers(work.gradient, work.sizes), observations, work)
    _constrain(constraint, network, work.gradient)
    _adam((network, first_moment, second_moment), work.gradient, step, learning_rate, max_norm)


def _build_updates(sources: int) -> Callable[..., int]:
    """Compile `updates`, cached on disk; `sources` is the checksum of the code that it calls."""

    @cached()
    def updates(
        memory: FlatMemory,
        constraint: FlatConstraint,
        work: Work,
        batch: Rows,
        constants: Constants,
        metrics: tuple[Doubles, Floats],
    ) -> int:
        observations, following, actions, rewards, discounts, weights, margins = batch
        steps, learning_rate, max_norm, double = constants
        sums, errors = metrics
        size = len(work.targets)
        _arrange(_layers(memory.target, work.sizes), work.target)
        for update in range(len(actions) // size):
            rows = slice(update * size, (update + 1) * size)
            transitions = (observations[rows], following[rows], actions[rows], rewards[rows], discounts[rows])
            numbers = (steps + update + 1, learning_rate, max_norm, double)
            drawn = (*transitions, weights[rows], margins[rows])
            _update(memory, constraint, work, drawn, numbers, (sums, errors[rows]))
        return sources

    return cast(Callable[..., int], updates)


_updates = _build_updates(PRODUCTS)


class CpuUpdater:
    """Run DQN updates on shared memory for a network of two hidden layers.

    `sizes` are (inputs, first hidden, second hidden, actions).
    """

    def __init__(self, memory: FlatMemory, sizes: Sizes, hyperparameters: DQNHyperparameters) -> None:
        self._memory, self._hyperparameters, self._constraint = memory, hyperparameters, _UNCONSTRAINED
        rows, (inputs, first, second, actions) = hyperparameters.train_batch_size_per_learner, sizes
        weights = (second, first), (actions, second)
        arranged = ((inputs, first), (first,), (first, second), (second,), (second, actions), *weights)
        self._work = Work(
            sizes,
            PaddedNetwork(*(zeros(*shape) for shape in arranged)),
            PaddedNetwork(*(zeros(*shape) for shape in arranged)),
            gradient=np.empty_like(memory.network),
            h1=zeros(rows, first),
            h2=zeros(rows, second),
            values=zeros(rows, actions),
            targets=np.empty(rows, np.float32),
            slopes=zeros(rows, actions),
            delta1=zeros(rows, first),
            delta2=zeros(rows, second),
            g1=zeros(inputs, first),
            g2=zeros(second, first),
            g3=zeros(actions, second),
            choices=np.empty(rows, np.int64),
        )

    def constrain(self, parts: ConstraintParts) -> None:
        """Constrain every later update by what `Constraint.parts` returned of the network; nothing lifts it."""
        columns = [np.concatenate([values.ravel() for values in column]) for column in zip(*parts, strict=True)]
        self._constraint = FlatConstraint(*columns) if columns else _UNCONSTRAINED

    def update(self, batch: Batch, steps: int) -> UpdateMetrics:
        """Take one update for every minibatch of the batch; Adam has taken `steps` steps before."""
        numbers = self._hyperparameters
        sums, errors = np.zeros(3), np.empty(len(batch.actions), np.float32)
        constants = (steps, numbers.lr, numbers.grad_clip, numbers.double_q)
        rows = tuple(vars(batch).values())
        _updates(self._memory, self._constraint, self._work, rows, constants, (sums, errors))
        loss, q_mean, td_error = (sums / len(batch.actions)).tolist()
        return UpdateMetrics(loss, q_mean, td_error, errors)
