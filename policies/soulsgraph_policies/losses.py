"""The loss of a minibatch of transitions, for the autograd path."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as functional
from torch import Tensor

from soulsgraph_policies.hyperparameters import DQNHyperparameters
from soulsgraph_policies.module import QNetworkModule


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
    targets = _targets(module, batch, rows, hyperparameters.double)
    predictions = module.quantiles(batch.observations)[rows, batch.actions]
    losses = _quantile_huber(predictions, targets) if hyperparameters.quantiles else _huber(predictions, targets)
    values, errors = predictions.detach().mean(dim=1), (predictions.detach() - targets).mean(dim=1)
    return Loss((batch.weights * losses).mean(), values, errors)


@torch.no_grad()
def _targets(module: QNetworkModule, batch: TensorBatch, rows: Tensor, double: bool) -> Tensor:
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
