"""A skill's Q-network as an RLlib module: a ReLU MLP behind a fixed observation normaliser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from ray.rllib.algorithms.dqn.dqn_learner import QF_PREDS, QF_TARGET_NEXT_PREDS
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.utils import make_target_network
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI, QNetAPI, TargetNetworkAPI
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from torch import Tensor, nn

from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_policies.weights import DEVIATION, MEAN, NETWORK, TARGET, Weights


def make_network(sizes: Sequence[int]) -> nn.Sequential:
    """Make a ReLU MLP of these layer sizes, the input's and output's included."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class QNetworkModule(TorchRLModule, QNetAPI, TargetNetworkAPI, InferenceOnlyAPI):
    """Give the Q-values of one skill's actions.

    Acting (`forward_inference`, `forward_exploration`) takes raw observations (n, size), training
    (`forward_train`) takes them normalised, as the replay samples them. The model configuration holds
    `hidden_sizes`, `observation_clip`, `seed` of the initial weights, and optionally
    `exploration_rate`, the share of random actions when exploring: 0 unless given, so a frozen skill
    never explores. (`epsilon` is RLlib's own and given to every module: it is not read.)
    """

    def setup(self) -> None:
        """Build the network, the same from the same seed whatever was drawn before."""
        assert isinstance(self.observation_space, gymnasium.spaces.Box)
        assert isinstance(self.action_space, gymnasium.spaces.Discrete)
        size = self.observation_space.shape[0]
        sizes = (size, *self.model_config["hidden_sizes"], int(self.action_space.n))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.model_config["seed"])
            self.q_network = make_network(sizes)
        self.clip = float(self.model_config["observation_clip"])
        self.register_buffer(MEAN, torch.zeros(size, dtype=torch.float64))
        self.register_buffer(DEVIATION, torch.ones(size, dtype=torch.float64))

    def make_target_networks(self) -> None:
        """Make the target network, a copy of the network."""
        self.target_network = make_target_network(self.q_network)

    def get_target_network_pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        """Give (network, target network)."""
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
        """Give the Q-values (n, actions) of normalised observations (n, size)."""
        return {QF_PREDS: self.q_network(batch[Columns.OBS])}

    def forward_target(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Give the target network's Q-values (n, actions) of normalised observations (n, size)."""
        with torch.no_grad():
            return {QF_PREDS: self.target_network(batch[Columns.OBS])}

    @torch.no_grad()
    def _forward_inference(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        values = self.q_network(self.normalize(batch[Columns.OBS]))
        return {Columns.ACTIONS: values.argmax(dim=-1)}

    @torch.no_grad()
    def _forward_exploration(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        greedy = self._forward_inference(batch)[Columns.ACTIONS]
        assert isinstance(self.action_space, gymnasium.spaces.Discrete)
        random = torch.randint_like(greedy, int(self.action_space.n))
        explores = torch.rand(greedy.shape, device=greedy.device) < self.model_config.get("exploration_rate", 0.0)
        return {Columns.ACTIONS: torch.where(explores, random, greedy)}

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        following = self.forward_target({Columns.OBS: batch[Columns.NEXT_OBS]})
        return self.compute_q_values(batch) | {QF_TARGET_NEXT_PREDS: following[QF_PREDS]}

    @cached_property
    def _named(self) -> dict[str, Tensor]:
        # Asking torch for the names takes longer than an update. The tensors stay the same once built.
        return {**dict(self.q_network.named_parameters(prefix=NETWORK)), **dict(self.named_buffers(recurse=False))}

    def weights(self) -> Weights:
        """Give the parameters and the normaliser by name, without the target network.

        On a CPU the arrays share the module's memory: copy what must last.
        """
        return {name: tensor.detach().cpu().numpy() for name, tensor in self._named.items()}

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
            # Arrays that came through Ray are read-only, so torch may not share their memory.
            tensor.copy_(torch.tensor(weights[name]))
        if hasattr(self, TARGET):
            self.target_network.load_state_dict(self.q_network.state_dict())

    def set_normalizer(self, mean: npt.NDArray[np.float64], deviation: npt.NDArray[np.float64]) -> None:
        """Normalise raw observations by these from now on, (size,) each."""
        self.get_buffer(MEAN).copy_(torch.from_numpy(mean))
        self.get_buffer(DEVIATION).copy_(torch.from_numpy(deviation))
