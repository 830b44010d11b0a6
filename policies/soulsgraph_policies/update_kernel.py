"""The two update paths: the losses of a minibatch for autograd, and the compiled CPU kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.linalg  # noqa: F401 - numba's np.dot calls the BLAS that scipy brings
import torch
import torch.nn.functional as functional
from numba import njit
from threadpoolctl import threadpool_limits
from torch import Tensor

from soulsgraph_policies.hyperparameters import DQNHyperparameters
from soulsgraph_policies.module import QNetworkModule
from soulsgraph_policies.replay import Batch


@dataclass(frozen=True)
class TensorBatch:
    """A `Batch` as tensors on the learner's device."""

    observations: Tensor
    next_observations: Tensor
    actions: Tensor
    rewards: Tensor
    discounts: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Loss:
    """The loss of a minibatch, (); each row's Q-value and signed TD error, (n,), without gradients."""

    loss: Tensor
    values: Tensor
    errors: Tensor


def minibatch_loss(module: QNetworkModule, batch: TensorBatch, hyperparameters: DQNHyperparameters) -> Loss:
    """Return the weighted Huber loss of DQN, or the quantile Huber loss where quantiles are learned."""
    rows = torch.arange(len(batch.actions), device=batch.actions.device)
    targets = _double_q_targets(module, batch, rows, hyperparameters.double)
    predictions = module.quantiles(batch.observations)[rows, batch.actions]
    losses = _quantile_huber(predictions, targets) if hyperparameters.quantiles else _huber(predictions, targets)
    values, errors = predictions.detach().mean(dim=1), (predictions.detach() - targets).mean(dim=1)
    return Loss((batch.weights * losses).mean(), values, errors)


@torch.no_grad()
def _double_q_targets(module: QNetworkModule, batch: TensorBatch, rows: Tensor, double: bool) -> Tensor:
    """Return (n, quantiles); with `double` the network chooses the action (van Hasselt et al. 2016, Eq. 4)."""
    following = module.target_quantiles(batch.next_observations)
    online = module.quantiles(batch.next_observations) if double else following
    choices = online.mean(dim=2).argmax(dim=1)
    return batch.rewards[:, None] + batch.discounts[:, None] * following[rows, choices]


def _huber(predictions: Tensor, targets: Tensor) -> Tensor:
    return functional.smooth_l1_loss(predictions, targets, reduction="none").mean(dim=1)


def _quantile_huber(predictions: Tensor, targets: Tensor) -> Tensor:
    """Return each row's loss, (n,): Dabney et al. 2018, Eq. 10, with kappa = 1, at the quantiles' midpoints."""
    count = predictions.shape[1]
    midpoints = (torch.arange(count, device=predictions.device) + 0.5) / count
    errors = targets[:, None, :] - predictions[:, :, None]
    huber = torch.where(errors.abs() <= 1.0, 0.5 * errors.square(), errors.abs() - 0.5)
    losses = (midpoints[None, :, None] - (errors.detach() < 0.0).float()).abs() * huber
    return losses.mean(dim=2).sum(dim=1)


Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]

# torch.optim.Adam's defaults, and what clip_grad_norm_ adds to the norm.
_BETA_1, _BETA_2, _ADAM_EPSILON = 0.9, 0.999, 1e-8
_NORM_EPSILON = np.float32(1e-6)


@dataclass(frozen=True)
class FlatMemory:
    """Parameters, target parameters and Adam's two moments as flat float32 vectors, all (parameters,)."""

    network: Floats
    target: Floats
    first_moment: Floats
    second_moment: Floats


@dataclass(frozen=True)
class UpdateFigures:
    """Means over every row of every update of one call, and each row's absolute TD error, (n,)."""

    loss: float
    q_mean: float
    td_error: float
    errors: Floats


Sizes = tuple[int, int, int, int]
Layers = tuple[Floats, Floats, Floats, Floats, Floats, Floats]
Rows = tuple[Floats, Floats, Integers, Floats, Floats, Floats]
Memory = tuple[Floats, Floats, Floats, Floats]
Work = tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats, Integers]
#: Adam's steps, learning rate, greatest norm, share of Polyak averaging, whether the target is double.
Constants = tuple[int, float, float, float, bool]


@njit(cache=True)
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


@njit(cache=True)
def _rectify(values: Floats, bias: Floats) -> None:
    zero = np.float32(0.0)
    for row in range(values.shape[0]):
        for unit in range(values.shape[1]):
            value = values[row, unit] + bias[unit]
            values[row, unit] = value if value > zero else zero


@njit(cache=True)
def _forward(layers: Layers, inputs: Floats, h1: Floats, h2: Floats, values: Floats) -> None:
    """Compute both hidden layers and the output, the last without its bias."""
    w1, b1, w2, b2, w3, _ = layers
    np.dot(inputs, w1.T, h1)
    _rectify(h1, b1)
    np.dot(h1, w2.T, h2)
    _rectify(h2, b2)
    np.dot(h2, w3.T, values)


@njit(cache=True)
def _choose(values: Floats, bias: Floats, choices: Integers) -> None:
    """Return every row's greedy action, the first of equals."""
    for row in range(values.shape[0]):
        best = 0
        for action in range(1, values.shape[1]):
            if values[row, action] + bias[action] > values[row, best] + bias[best]:
                best = action
        choices[row] = best


@njit(cache=True)
def _targets(values: Floats, bias: Floats, batch: Rows, choices: Integers, targets: Floats) -> None:
    _, _, _, rewards, discounts, _ = batch
    for row in range(values.shape[0]):
        action = choices[row]
        targets[row] = rewards[row] + discounts[row] * (values[row, action] + bias[action])


@njit(cache=True, error_model="numpy")
def _output_gradients(
    layers: Layers,
    gradients: Layers,
    batch: Rows,
    work: tuple[Floats, Floats, Floats, Floats],
    sums: Doubles,
    errors: Floats,
) -> None:
    """Compute, from the TD errors, the gradients of the output layer and of the second layer's sums."""
    _, _, actions, _, _, weights = batch
    w3, b3, g2_bias, g3, g3_bias = layers[4], layers[5], gradients[3], gradients[4], gradients[5]
    h2, values, targets, delta2 = work
    one, zero, half = np.float32(1.0), np.float32(0.0), np.float32(0.5)
    scale = one / np.float32(len(actions))
    g2_bias[:], g3_bias[:] = zero, zero
    g3[:, :] = zero
    for row in range(len(actions)):
        action = actions[row]
        value = values[row, action] + b3[action]
        error = value - targets[row]
        size = abs(error)
        errors[row] = size
        sums[0] += weights[row] * (half * error * error if size < one else size - half)
        sums[1] += value
        sums[2] += size
        slope = min(max(error, -one), one) * scale * weights[row]
        g3_bias[action] += slope
        for unit in range(h2.shape[1]):
            active = h2[row, unit]
            g3[action, unit] += slope * active
            gradient = slope * w3[action, unit] if active > zero else zero
            delta2[row, unit] = gradient
            g2_bias[unit] += gradient


@njit(cache=True)
def _mask(delta: Floats, activations: Floats, bias_gradient: Floats) -> None:
    """Set the gradients of inactive units to 0, in place, and sum the rest over the rows."""
    zero = np.float32(0.0)
    bias_gradient[:] = zero
    for row in range(delta.shape[0]):
        for unit in range(delta.shape[1]):
            gradient = delta[row, unit] if activations[row, unit] > zero else zero
            delta[row, unit] = gradient
            bias_gradient[unit] += gradient


@njit(cache=True, error_model="numpy")
def _adam(
    memory: tuple[Floats, Floats, Floats], gradient: Floats, step: int, learning_rate: float, max_norm: float
) -> None:
    """Clip the gradient by its norm and take one Adam step in place; `step` counts from 1."""
    network, first, second = memory
    one = np.float32(1.0)
    norm = np.sqrt(np.dot(gradient, gradient))
    scale = min(np.float32(max_norm) / (norm + _NORM_EPSILON), one)
    keep_1, keep_2 = np.float32(1.0 - _BETA_1), np.float32(1.0 - _BETA_2)
    decay_2, epsilon = np.float32(_BETA_2), np.float32(_ADAM_EPSILON)
    rate = np.float32(learning_rate / (1.0 - _BETA_1**step))
    correction = np.float32(np.sqrt(1.0 - _BETA_2**step))
    for i in range(network.shape[0]):
        slope = gradient[i] * scale
        first[i] += keep_1 * (slope - first[i])
        second[i] = second[i] * decay_2 + keep_2 * slope * slope
        network[i] -= rate * first[i] / (np.sqrt(second[i]) / correction + epsilon)


@njit(cache=True)
def _average(network: Floats, target: Floats, share: float) -> None:
    """Move the target network a share of the way to the network."""
    tau = np.float32(share)
    rest = np.float32(1.0) - tau
    for i in range(network.shape[0]):
        target[i] = tau * network[i] + rest * target[i]


@njit(cache=True)
def _update(
    memory: Memory,
    sizes: Sizes,
    batch: Rows,
    work: Work,
    constants: Constants,
    figures: tuple[Doubles, Floats],
) -> None:
    network, target, first_moment, second_moment = memory
    observations, following = batch[0], batch[1]
    gradient, h1, h2, back, delta, values, targets, choices = work
    step, learning_rate, max_norm, target_rate, double = constants
    layers, target_layers, gradients = _layers(network, sizes), _layers(target, sizes), _layers(gradient, sizes)
    if double:
        _forward(layers, following, h1, h2, values)
        _choose(values, layers[5], choices)
    _forward(target_layers, following, h1, h2, values)
    if not double:
        _choose(values, target_layers[5], choices)
    _targets(values, target_layers[5], batch, choices, targets)
    _forward(layers, observations, h1, h2, values)
    _output_gradients(layers, gradients, batch, (h2, values, targets, delta), *figures)
    np.dot(delta.T, h1, gradients[2])
    np.dot(delta, layers[2], back)
    _mask(back, h1, gradients[1])
    np.dot(back.T, observations, gradients[0])
    _adam((network, first_moment, second_moment), gradient, step, learning_rate, max_norm)
    if target_rate > 0.0:
        _average(network, target, target_rate)


@njit(cache=True)
def _updates(
    memory: Memory,
    sizes: Sizes,
    batch: Rows,
    work: Work,
    constants: Constants,
    figures: tuple[Doubles, Floats],
) -> None:
    observations, following, actions, rewards, discounts, weights = batch
    steps, learning_rate, max_norm, target_rate, double = constants
    sums, errors = figures
    size = work[6].shape[0]
    for update in range(len(actions) // size):
        rows = slice(update * size, (update + 1) * size)
        part = (observations[rows], following[rows], actions[rows], rewards[rows], discounts[rows], weights[rows])
        numbers = (steps + update + 1, learning_rate, max_norm, target_rate, double)
        _update(memory, sizes, part, work, numbers, (sums, errors[rows]))


class CpuUpdater:
    """Run DQN updates on shared memory for a network of two hidden layers.

    `sizes` are (inputs, first hidden, second hidden, actions). Constructing one keeps this
    process's BLAS to a single thread: small products gain nothing from more, and results stay equal.
    """

    def __init__(self, memory: FlatMemory, sizes: Sizes, hyperparameters: DQNHyperparameters) -> None:
        threadpool_limits(limits=1, user_api="blas")
        self._memory = (memory.network, memory.target, memory.first_moment, memory.second_moment)
        self._sizes, self._hyperparameters = sizes, hyperparameters
        rows, (_, first, second, actions) = hyperparameters.batch_size, sizes
        shapes = ((rows, first), (rows, second), (rows, first), (rows, second), (rows, actions), (rows,))
        floats = (np.empty(shape, np.float32) for shape in shapes)
        self._work = (np.empty_like(memory.network), *floats, np.empty(rows, np.int64))

    def update(self, batch: Batch, steps: int) -> UpdateFigures:
        """Take one update for every `batch_size` rows of the batch; Adam has taken `steps` steps before."""
        numbers = self._hyperparameters
        sums, errors = np.zeros(3), np.empty(len(batch.actions), np.float32)
        constants = (steps, numbers.learning_rate, numbers.max_gradient_norm, numbers.target_rate, numbers.double)
        rows = tuple(vars(batch).values())
        _updates(self._memory, self._sizes, rows, self._work, constants, (sums, errors))
        loss, q_mean, td_error = (sums / len(batch.actions)).tolist()
        return UpdateFigures(loss, q_mean, td_error, errors)
