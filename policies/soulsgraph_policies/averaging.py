"""The average of a network over the last part of its training, to play by."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn


class NetworkAverage:
    """Average parameters with equal weights (Polyak & Juditsky 1992; Izmailov et al. 2018)."""

    def __init__(self, network: nn.Sequential) -> None:
        self._network = copy.deepcopy(network).requires_grad_(False)
        self._count = 0

    @property
    def network(self) -> nn.Sequential | None:
        """The average as a network; None before the first one was added."""
        return self._network if self._count else None

    @torch.no_grad()
    def add(self, network: nn.Sequential) -> None:
        """Take a network of the same make in."""
        self._count += 1
        for mean, value in zip(self._network.parameters(), network.parameters(), strict=True):
            mean.add_((value - mean) / self._count)

    def get_state(self) -> dict[str, Any]:
        """Return everything that later averages depend on, as arrays and numbers; nothing but 0 before the first."""
        parameters = self._network.named_parameters() if self._count else ()
        return {"count": self._count, "network": {name: value.cpu().numpy().copy() for name, value in parameters}}

    @torch.no_grad()
    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state`."""
        self._count = int(state["count"])
        for name, value in self._network.named_parameters():
            if self._count:
                value.copy_(torch.from_numpy(state["network"][name]))
