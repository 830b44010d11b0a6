"""A module's weights by name: what learner, library and inference call them."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

#: A module's parameters and normaliser by name, as numpy arrays; layers in torch's layout.
Weights = dict[str, npt.NDArray[Any]]

MEAN, DEVIATION = "observation_mean", "observation_deviation"
NETWORK, TARGET = "q_network", "target_network"
#: Parameters of a head in the form in which it is trained.
HEAD = "head"
