"""The names of a module's weights in learner, library and inference."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy.typing as npt

#: A module's parameters and normaliser by name, as numpy arrays; layers in torch's layout, (outputs, inputs).
Weights = dict[str, npt.NDArray[Any]]

MEAN, DEVIATION = "observation_mean", "observation_deviation"
NETWORK, TARGET = "q_network", "target_network"
#: Parameters of a head in the form in which it is trained.
HEAD = "head"


def layer_names(weights: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the names of weight and bias of every linear layer of the network that plays, first to last."""
    return _ordered(tuple(weights))


def layer_names_at(index: int) -> tuple[str, str]:
    """Return the names of weight and bias of the linear layer at an index."""
    # A ReLU without parameters stands between two linear layers.
    return f"{NETWORK}.{2 * index}.weight", f"{NETWORK}.{2 * index}.bias"


@lru_cache
def _ordered(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    found = [name for name in names if name.startswith(f"{NETWORK}.") and name.endswith(".weight")]
    stems = sorted((name.removesuffix(".weight") for name in found), key=lambda stem: int(stem.rsplit(".", 1)[-1]))
    return tuple((f"{stem}.weight", f"{stem}.bias") for stem in stems)
