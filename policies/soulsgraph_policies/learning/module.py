"""A skill's Q-network as an RLlib module: a ReLU MLP behind a fixed observation normaliser, and its loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

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
from torch import Tensor, nn

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_policies.agents.inference import DEVIATION, MEAN, NETWORK, TARGET, Weights
from soulsgraph_policies.learning.hyperparameters import MARGIN_WEIGHT, DQNHyperparameters


def make_network(sizes: Sequence[int]) -> nn.Sequential:
    """Make a ReLU MLP of these layer sizes, the input's and output's included."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class QNetworkModule(TorchRLModule, QNetAPI, TargetNetworkAPI, InferenceOnlyAPI):
    """Compute the Q-values of one skill's actions.

    RLlib's calls (`forward_inference`, `forward_exploration`, `forward_train`) take raw observations (n, size); the
    others take them normalised, as the replay samples them. The model configuration may hold
    `fcnet_hiddens` (64, 64), `observation_clip` (10), `seed` (0) of the initial weights, and `exploration_rate`, the
    share of random actions when exploring: 0 unless given, so a frozen skill never explores. (RLlib's own `epsilon` is
    given to every module: it is not read.)
    """

    def setup(self) -> None:
        """Build the network; equal seeds give equal networks, whatever was drawn before."""
        assert isinstance(self.observation_space, gymnasium.spaces.Box)
        assert isinstance(self.action_space, gymnasium.spaces.Discrete)
        size = self.observation_space.shape[0]
        hidden = self.model_config.get("fcnet_hiddens", DQNHyperparameters.fcnet_hiddens)
        sizes = (size, *hidden, int(self.action_space.n))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.model_config.get("seed", 0))
            self.q_network = make_network(sizes)
        self.clip = float(self.model_config.get("observation_clip", DQNHyperparameters.observation_clip))
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
        return {QF_PREDS: self.q_network(batch[Columns.OBS])}

    @torch.no_grad()
    def forward_target(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the target network's Q-values (n, actions) of normalised observations (n, size)."""
        return {QF_PREDS: self.target_network(batch[Columns.OBS])}

    @torch.no_grad()
    def _forward_inference(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {Columns.ACTIONS: self.q_network(self.normalize(batch[Columns.OBS])).argmax(dim=-1)}

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

    def weights(self, network: nn.Sequential | None = None) -> Weights:
        """Return the parameters and the normaliser by name, without the target network.

        On a CPU the arrays share the module's memory: copy what must last. `network` is read in place of
        the module's own, which it resembles.
        """
        parameters = self._named if network is None else self._named | dict(network.named_parameters(prefix=NETWORK))
        return {name: tensor.numpy(force=True) for name, tensor in parameters.items()}

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, npt.NDArray[Any]]) -> None:
        """Copy weights of the same names and shapes in; the target network becomes equal to the network.

        Raises:
            SoulsGraphError: if a name or shape does not match.
        """
        own = self._named
        if weights.keys() != own.keys() or any(own[name].shape != weights[name].shape for name in own):
            expected, found = ({name: tuple(value.shape) for name, value in group.items()} for group in (own, weights))
            raise SoulsGraphError(
                f"network weights: expected {expected}, found {found}; load those of the same skill and layer sizes."
            )
        for name, tensor in own.items():
            values = weights[name]
            # Arrays that came through Ray are read-only, so torch may not share their memory.
            tensor.copy_(torch.from_numpy(values if values.flags.writeable else values.copy()))
        if hasattr(self, TARGET):
            self.target_network.load_state_dict(self.q_network.state_dict())

    def set_normalizer(self, mean: npt.NDArray[np.float64], deviation: npt.NDArray[np.float64]) -> None:
        """Normalise raw observations by this mean and deviation from now on, (size,) each."""
        assert mean.shape == deviation.shape == self._named[MEAN].shape
        self._named[MEAN].copy_(torch.from_numpy(mean))
        self._named[DEVIATION].copy_(torch.from_numpy(deviation))


class Loss(NamedTuple):
    """The loss of a minibatch, (); each row's Q-value and signed TD error, (n,), without gradients."""

    loss: Tensor
    values: Tensor
    errors: Tensor


def minibatch_loss(module: QNetworkModule, columns: Sequence[Tensor], hyperparameters: DQNHyperparameters) -> Loss:
    """Return the weighted Huber loss of DQN.

    `columns` are those of a `Batch`, in their order. Actions with a margin add the large-margin loss of DQfD (Hester et
    al. 2018, Eq. 2).
    """
    observations, next_observations, actions, rewards, discounts, weights, margins = columns
    rows = torch.arange(len(actions), device=actions.device)
    with torch.no_grad():
        following = module.target_network(next_observations)
        # With `double_q` the network chooses the action (van Hasselt et al. 2016, Eq. 4).
        online = module.q_network(next_observations) if hyperparameters.double_q else following
        targets = rewards + discounts * following[rows, online.argmax(dim=1)]
    values = module.q_network(observations)
    predictions = values[rows, actions]
    loss = (weights * functional.smooth_l1_loss(predictions, targets, reduction="none")).mean()
    if hyperparameters.margin or (margins > 0.0).any():
        loss = loss + MARGIN_WEIGHT * _margin_losses(values, actions, margins).mean()
    chosen = predictions.detach()
    return Loss(loss, chosen, chosen - targets)


def _margin_losses(values: Tensor, actions: Tensor, margins: Tensor) -> Tensor:
    """Return by how much another action's value comes within the margin of the action shown, (n,); 0 for own ones."""
    own = values.gather(1, actions[:, None])
    raised = (values + margins[:, None]).scatter(1, actions[:, None], own)
    return (raised - own).max(dim=1).values * (margins > 0.0)
