"""A skill's Q-network as an RLlib module: a ReLU MLP behind a fixed observation normaliser, its heads and losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as functional
from ray.rllib.algorithms.dqn.default_dqn_rl_module import QF_NEXT_PREDS, QF_PREDS, QF_TARGET_NEXT_PREDS
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.utils import make_target_network
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI, QNetAPI, TargetNetworkAPI
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from ray.rllib.utils.checkpoints import Checkpointable
from torch import Tensor, nn

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_policies.agents.inference import DEVIATION, HEAD, MEAN, NETWORK, TARGET, Weights
from soulsgraph_policies.learning.hyperparameters import MARGIN_WEIGHT, DQNHyperparameters

_HIDDEN_SIZES, _CLIP = (64, 64), 10.0


def make_network(sizes: Sequence[int], quantiles: int = 0, dueling: bool = False) -> nn.Sequential:
    """Make a ReLU MLP of these layer sizes, the input's and output's included, with the head asked for."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    if quantiles or dueling:
        layers[-2] = QuantileHead(sizes[-2], sizes[-1], max(quantiles, 1), dueling)
    return nn.Sequential(*layers[:-1])


def _quantiles(network: nn.Sequential, observations: Tensor) -> Tensor:
    """Return (n, actions, quantiles); the Q-value itself is the only quantile of a plain network."""
    values: Tensor = network(observations)
    return values if values.dim() == 3 else values.unsqueeze(2)


def absolute(path: Any) -> Any:
    """Return a folder of this machine by its whole path, which Arrow asks for; what is no such folder as it is."""
    if isinstance(path, str) and path.startswith("file://"):
        return Path(path.removeprefix("file://"))
    named = isinstance(path, Path) or (isinstance(path, str) and "://" not in path)
    return Path(path).expanduser().absolute() if named else path


class RelativePaths(Checkpointable):
    """Save and restore checkpoints of RLlib by relative paths, too."""

    def save_to_path(self, path: str | Path | None = None, **kwargs: Any) -> str:
        """Write a checkpoint and return its folder, a new one where none is named."""
        folder: str = super().save_to_path(absolute(path), **kwargs)
        return folder

    def restore_from_path(self, path: str | Path, **kwargs: Any) -> None:
        """Take up a checkpoint's state."""
        super().restore_from_path(absolute(path), **kwargs)

    @classmethod
    def from_checkpoint(cls, path: Any, *args: Any, **kwargs: Any) -> Self:
        """Make what a checkpoint holds."""
        made: Self = super().from_checkpoint(absolute(path), *args, **kwargs)
        return made


class QNetworkModule(RelativePaths, TorchRLModule, QNetAPI, TargetNetworkAPI, InferenceOnlyAPI):
    """Compute the Q-values of one skill's actions.

    RLlib's calls (`forward_inference`, `forward_exploration`, `forward_train`) take raw observations (n, size); the
    others take them normalised, as the replay samples them. The model configuration may hold
    `hidden_sizes` (64, 64), `observation_clip` (10), `seed` (0) of the initial weights, `head`, the number
    of quantiles and whether there are dueling streams (neither), and `exploration_rate`, the share of random
    actions when exploring: 0 unless given, so a frozen skill never explores. (`epsilon` and `dueling` are
    RLlib's own and given to every module: they are not read.) A module for acting has the plain layer
    that the head folds to.
    """

    def setup(self) -> None:
        """Build the network; equal seeds give equal networks, whatever was drawn before."""
        assert isinstance(self.observation_space, gymnasium.spaces.Box)
        assert isinstance(self.action_space, gymnasium.spaces.Discrete)
        size = self.observation_space.shape[0]
        sizes = (size, *self.model_config.get("hidden_sizes", _HIDDEN_SIZES), int(self.action_space.n))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.model_config.get("seed", 0))
            head = (0, False) if self.inference_only else self.model_config.get("head", (0, False))
            self.q_network = make_network(sizes, *head)
        self.clip = float(self.model_config.get("observation_clip", _CLIP))
        self.register_buffer(MEAN, torch.zeros(size, dtype=torch.float64))
        self.register_buffer(DEVIATION, torch.ones(size, dtype=torch.float64))

    def make_target_networks(self) -> None:
        """Make the target network, a copy of the network."""
        self.target_network = make_target_network(self.q_network)

    def get_target_network_pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        """Return (network, target network)."""
        return [(self.q_network, self.target_network)]

    def get_non_inference_attributes(self) -> list[str]:
        """Name what acting does not need."""
        return [TARGET]

    def normalize(self, observations: Tensor) -> Tensor:
        """Normalise raw observations (n, size) and clip them, float32."""
        mean, deviation = self.get_buffer(MEAN), self.get_buffer(DEVIATION)
        normalized: Tensor = ((observations - mean) / deviation).clamp(-self.clip, self.clip).float()
        return normalized

    def compute_q_values(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the Q-values (n, actions) of normalised observations (n, size)."""
        return {QF_PREDS: self.quantiles(batch[Columns.OBS]).mean(dim=2)}

    def quantiles(self, observations: Tensor) -> Tensor:
        """Return the quantiles (n, actions, quantiles) of normalised observations (n, size); one is the Q-value."""
        return _quantiles(self.q_network, observations)

    @torch.no_grad()
    def target_quantiles(self, observations: Tensor) -> Tensor:
        """Return the target network's quantiles (n, actions, quantiles) of normalised observations (n, size)."""
        return _quantiles(self.target_network, observations)

    def forward_target(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the target network's Q-values (n, actions) of normalised observations (n, size)."""
        return {QF_PREDS: self.target_quantiles(batch[Columns.OBS]).mean(dim=2)}

    @torch.no_grad()
    def _forward_inference(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        values = self.quantiles(self.normalize(batch[Columns.OBS])).mean(dim=2)
        return {Columns.ACTIONS: values.argmax(dim=-1)}

    @torch.no_grad()
    def _forward_exploration(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        greedy = self._forward_inference(batch)[Columns.ACTIONS]
        assert isinstance(self.action_space, gymnasium.spaces.Discrete)
        random = torch.randint_like(greedy, int(self.action_space.n))
        explores = torch.rand(greedy.shape, device=greedy.device) < self.model_config.get("exploration_rate", 0.0)
        return {Columns.ACTIONS: torch.where(explores, random, greedy)}

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        now, following = ({Columns.OBS: self.normalize(batch[name])} for name in (Columns.OBS, Columns.NEXT_OBS))
        with torch.no_grad():
            chosen = self.compute_q_values(following)[QF_PREDS]
        target = self.forward_target(following)[QF_PREDS]
        return self.compute_q_values(now) | {QF_NEXT_PREDS: chosen, QF_TARGET_NEXT_PREDS: target}

    @cached_property
    def _named(self) -> dict[str, Tensor]:
        # Asking torch for the names takes longer than an update. The tensors stay the same once built.
        return {**dict(self.q_network.named_parameters(prefix=NETWORK)), **dict(self.named_buffers(recurse=False))}

    @property
    def _last(self) -> str:
        return f"{NETWORK}.{len(self.q_network) - 1}."

    def weights(self, network: nn.Sequential | None = None) -> Weights:
        """Return the parameters and the normaliser by name as they play, without the target network.

        On a CPU the arrays share the module's memory: copy what must last. `network` is read in place of
        the module's own, which it resembles.
        """
        parameters = self._named if network is None else self._named | dict(network.named_parameters(prefix=NETWORK))
        head = (self.q_network if network is None else network)[-1]
        if isinstance(head, QuantileHead):
            parameters = {name: tensor for name, tensor in parameters.items() if not name.startswith(self._last)}
            parameters |= zip((f"{self._last}weight", f"{self._last}bias"), head.fold(), strict=True)
        return {name: tensor.numpy(force=True) for name, tensor in parameters.items()}

    def head_weights(self, network: nn.Sequential | None = None) -> Weights:
        """Return the parameters of the head that is trained, by name; nothing where it is the layer that plays."""
        head = (self.q_network if network is None else network)[-1]
        if not isinstance(head, QuantileHead):
            return {}
        return {f"{HEAD}.{name}": tensor.numpy(force=True) for name, tensor in head.named_parameters()}

    def get_state(self, *args: Any, inference_only: bool = False, **kwargs: Any) -> dict[str, Any]:
        """Return RLlib's state; for modules that only act it holds the weights that play."""
        if inference_only:
            return {name: values.copy() for name, values in self.weights().items()}
        state: dict[str, Any] = super().get_state(*args, inference_only=False, **kwargs)
        return state

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, npt.NDArray[Any]]) -> None:
        """Copy weights of the same names and shapes in; the target network becomes equal to the network.

        The weights are those that play. Those of a head (`head_weights`) may be added, which only a module
        with such a head needs.

        Raises:
            SoulsGraphError: if a name or shape does not match.
        """
        weights = self._as_trained(weights)
        own = self._named
        if weights.keys() != own.keys() or any(own[name].shape != weights[name].shape for name in own):
            expected, found = ({name: tuple(value.shape) for name, value in group.items()} for group in (own, weights))
            raise SoulsGraphError(
                f"network weights: expected {expected}, found {found}; load those of the same skill, layer sizes "
                "and head."
            )
        for name, tensor in own.items():
            values = weights[name]
            # Arrays that came through Ray are read-only, so torch may not share their memory.
            tensor.copy_(torch.from_numpy(values if values.flags.writeable else values.copy()))
        if hasattr(self, TARGET):
            self.target_network.load_state_dict(self.q_network.state_dict())

    def _as_trained(self, weights: Mapping[str, npt.NDArray[Any]]) -> Mapping[str, npt.NDArray[Any]]:
        """Return the weights without the head, or with it in place of the layer that it folds to."""
        plain = {name: values for name, values in weights.items() if not name.startswith(f"{HEAD}.")}
        if not isinstance(self.q_network[-1], QuantileHead) or len(plain) == len(weights):
            return plain
        return {
            name.replace(f"{HEAD}.", self._last, 1): values
            for name, values in weights.items()
            if not name.startswith(self._last)
        }

    def set_normalizer(self, mean: npt.NDArray[np.float64], deviation: npt.NDArray[np.float64]) -> None:
        """Normalise raw observations by this mean and deviation from now on, (size,) each."""
        assert mean.shape == deviation.shape == self._named[MEAN].shape
        self._named[MEAN].copy_(torch.from_numpy(mean))
        self._named[DEVIATION].copy_(torch.from_numpy(deviation))


class QuantileHead(nn.Module):
    """Compute quantiles of every action's return from the last hidden layer: (n, hidden) -> (n, actions, quantiles).

    With `dueling` the first half of the hidden layer feeds the value of the state and the rest the
    advantages, from which the mean is subtracted (Wang et al. 2016, Eq. 9). One quantile is the return's
    mean; more are those of Dabney et al. 2018.
    """

    def __init__(self, hidden: int, actions: int, quantiles: int, dueling: bool) -> None:
        super().__init__()
        self._shape = (actions, quantiles)
        self._split = hidden // 2 if dueling else 0
        self.advantage = nn.Linear(hidden - self._split, actions * quantiles)
        self.value = nn.Linear(self._split, quantiles) if dueling else None

    def forward(self, hidden: Tensor) -> Tensor:
        """Map the last hidden layer (n, hidden) to quantiles (n, actions, quantiles)."""
        advantages: Tensor = self.advantage(hidden[:, self._split :]).unflatten(1, self._shape)
        if self.value is None:
            return advantages
        value: Tensor = self.value(hidden[:, : self._split]).unsqueeze(1)
        return value + advantages - advantages.mean(dim=1, keepdim=True)

    @torch.no_grad()
    def fold(self) -> tuple[Tensor, Tensor]:
        """Return the plain layer of the same Q-values, the means over quantiles: (actions, hidden), (actions,)."""
        weight = self.advantage.weight.view(*self._shape, -1).mean(dim=1)
        bias = self.advantage.bias.view(self._shape).mean(dim=1)
        if self.value is None:
            return weight, bias
        value = self.value.weight.mean(dim=0).expand(len(weight), -1)
        weight = torch.cat([value, weight - weight.mean(dim=0)], dim=1)
        return weight, bias - bias.mean() + self.value.bias.mean()


class Loss(NamedTuple):
    """The loss of a minibatch, (); each row's Q-value and signed TD error, (n,), without gradients."""

    loss: Tensor
    values: Tensor
    errors: Tensor


def minibatch_loss(module: QNetworkModule, columns: Sequence[Tensor], hyperparameters: DQNHyperparameters) -> Loss:
    """Return the weighted Huber loss of DQN, or the quantile Huber loss where quantiles are learned.

    `columns` are those of a `Batch`, in their order. Actions with a margin add the large-margin loss of DQfD (Hester et
    al. 2018, Eq. 2).
    """
    observations, next_observations, actions, rewards, discounts, weights, margins = columns
    rows = torch.arange(len(actions), device=actions.device)
    with torch.no_grad():
        following = module.target_quantiles(next_observations)
        # With `double` the network chooses the action (van Hasselt et al. 2016, Eq. 4).
        online = module.quantiles(next_observations) if hyperparameters.double else following
        choices = online.mean(dim=2).argmax(dim=1)
        targets = rewards[:, None] + discounts[:, None] * following[rows, choices]
    quantiles = module.quantiles(observations)
    predictions = quantiles[rows, actions]
    if hyperparameters.quantiles:
        losses = _quantile_huber(predictions, targets)
    else:
        losses = functional.smooth_l1_loss(predictions, targets, reduction="none").mean(dim=1)
    loss = (weights * losses).mean()
    if hyperparameters.margin or (margins > 0.0).any():
        loss = loss + MARGIN_WEIGHT * _margin_losses(quantiles.mean(dim=2), actions, margins).mean()
    values, errors = predictions.detach().mean(dim=1), (predictions.detach() - targets).mean(dim=1)
    return Loss(loss, values, errors)


def _margin_losses(values: Tensor, actions: Tensor, margins: Tensor) -> Tensor:
    """Return by how much another action's value comes within the margin of the action shown, (n,); 0 for own ones."""
    own = values.gather(1, actions[:, None])
    raised = (values + margins[:, None]).scatter(1, actions[:, None], own)
    return (raised - own).max(dim=1).values * (margins > 0.0)


def _quantile_huber(predictions: Tensor, targets: Tensor) -> Tensor:
    """Return each row's loss, (n,): Dabney et al. 2018, Eq. 10, with kappa = 1, at the quantiles' midpoints."""
    count = predictions.shape[1]
    midpoints = (torch.arange(count, device=predictions.device) + 0.5) / count
    errors = targets[:, None, :] - predictions[:, :, None]
    huber = torch.where(errors.abs() <= 1.0, 0.5 * errors.square(), errors.abs() - 0.5)
    losses = (midpoints[None, :, None] - (errors.detach() < 0.0).float()).abs() * huber
    return losses.mean(dim=2).sum(dim=1)
