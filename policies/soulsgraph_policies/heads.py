"""Last layers that are trained in another form than they play: dueling streams, quantiles of the return."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class QuantileHead(nn.Module):
    """Return quantiles of every action's return from the last hidden layer: (n, hidden) -> (n, actions, quantiles).

    With `dueling` the first half of the hidden layer feeds the value of the state and the rest the
    advantages, of which the mean is taken away (Wang et al. 2016, Eq. 9). One quantile is the return's
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
