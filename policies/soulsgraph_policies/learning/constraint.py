"""What keeps a network near what it learned before: a pull towards earlier parameters, and a mask of those that learn.

The pull is the gradient of the quadratic penalty of EWC (Kirkpatrick et al. 2017, Eq. 3), MAS (Aljundi et al. 2018,
Eq. 4) or, with equal importance, L2; the mask is PackNet's (Mallya & Lazebnik 2018).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from soulsgraph_envs.combat.rollout import Floats
from soulsgraph_policies.agents.inference import DEVIATION, MEAN, Weights

#: For every parameter of a network: strength * importance, the anchor, and 1 where it learns, else 0.
ConstraintParts = list[tuple[Floats, Floats, Floats]]


@dataclass(frozen=True)
class Constraint:
    """Let Adam see mask * (gradient + strength * importance * (parameter - anchor)) in place of the gradient.

    The norm is clipped after that. Keys are the names of `QNetworkModule.weights`; those of the normaliser are left
    out, so that all weights of a module can be its anchor. Every array is copied as float32.
    """

    #: At least 0 each; None is 1 for every parameter, which is L2.
    importance: Weights | None = None
    #: What is pulled towards; None pulls nothing.
    anchor: Weights | None = None
    #: The factor of the pull: with the loss strength / 2 * importance * (parameter - anchor) ** 2.
    strength: float = 0.0
    #: 1 where a parameter learns, 0 where it stays bit-identical; None lets all learn.
    mask: Weights | None = None

    def __post_init__(self) -> None:
        for name in ("importance", "anchor", "mask"):
            if (arrays := getattr(self, name)) is not None:
                own = {key: np.array(part, np.float32) for key, part in arrays.items() if key not in (MEAN, DEVIATION)}
                object.__setattr__(self, name, own)

    def parts(self, shapes: Mapping[str, Sequence[int]]) -> ConstraintParts:
        """Return what an update needs, for parameters of these names and shapes, in their order."""
        found: ConstraintParts = []
        for name, shape in shapes.items():
            pull, anchor = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
            if self.anchor is not None:
                anchor = self.anchor[name]
                pull += np.float32(self.strength) * (1.0 if self.importance is None else self.importance[name])
            found.append((pull, anchor, np.ones(shape, np.float32) if self.mask is None else self.mask[name]))
        return found
