"""What keeps a network near what it learned before: a pull towards earlier parameters, and a mask of those that learn.

The pull is the gradient of the quadratic penalty of EWC (Kirkpatrick et al. 2017, Eq. 3), MAS (Aljundi et al. 2018,
Eq. 4) or, with equal importance, L2; the mask is PackNet's (Mallya & Lazebnik 2018).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from soulsgraph_envs.combat.rollout import Floats
from soulsgraph_envs.core.errors import SoulsGraphError, shown
from soulsgraph_policies.agents.inference import DEVIATION, MEAN, Weights

#: For every parameter of a network: strength * importance, the anchor, and 1 where it learns, else 0.
ConstraintParts = list[tuple[Floats, Floats, Floats]]


@dataclass(frozen=True)
class Constraint:
    """Let Adam see mask * (gradient + strength * importance * (parameter - anchor)) in place of the gradient.

    The norm is clipped after that. Keys are the names of `QNetworkModule.weights`; those of the normaliser are left
    out, so that all weights of a module can be its anchor. Every array is copied as float32.

    Raises:
        SoulsGraphError: for an importance below 0 or without an anchor, a mask of other numbers than 0 and 1, a number
            that is not finite, or a strength below 0.
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
                object.__setattr__(self, name, _copied(name, arrays))
        if not np.isfinite(self.strength) or self.strength < 0.0:
            raise _refused("strength", "a finite number of at least 0", self.strength)
        if self.importance is not None and self.anchor is None:
            raise _refused("importance", "an anchor with it", "none")
        for name, values in (self.importance or {}).items():
            if (values < 0.0).any():
                raise _refused(f"importance of {name}", "numbers of at least 0", float(values.min()))
        for name, values in (self.mask or {}).items():
            if (odd := values[(values != 0.0) & (values != 1.0)]).size:
                raise _refused(f"mask of {name}", "0 and 1 only", float(odd[0]))

    def parts(self, shapes: Mapping[str, Sequence[int]]) -> ConstraintParts:
        """Return what an update needs, for parameters of these names and shapes, in their order.

        Raises:
            SoulsGraphError: if a name or shape differs.
        """
        for name in ("importance", "anchor", "mask"):
            _check_shapes(name, getattr(self, name), shapes)
        found: ConstraintParts = []
        for name, shape in shapes.items():
            pull, anchor, mask = np.zeros(shape, np.float32), np.zeros(shape, np.float32), np.ones(shape, np.float32)
            if self.anchor is not None:
                anchor = self.anchor[name]
                pull += np.float32(self.strength) * (1.0 if self.importance is None else self.importance[name])
            found.append((pull, anchor, mask if self.mask is None else self.mask[name]))
        return found

    def get_state(self) -> dict[str, Any]:
        """Return the fields, of which `Constraint(**state)` is made again."""
        return dict(vars(self))


def _copied(what: str, arrays: Weights) -> Weights:
    copied = {name: np.array(values, np.float32) for name, values in arrays.items() if name not in (MEAN, DEVIATION)}
    for name, values in copied.items():
        if not np.isfinite(values).all():
            raise _refused(f"{what} of {name}", "finite numbers", "others")
    return copied


def _check_shapes(what: str, arrays: Weights | None, shapes: Mapping[str, Sequence[int]]) -> None:
    if arrays is None:
        return
    found = {name: values.shape for name, values in arrays.items()}
    expected = {name: tuple(shape) for name, shape in shapes.items()}
    if found != expected:
        raise SoulsGraphError(
            f"constraint: expected the {what} of {expected}, found {found}; use that of a network of the same skill "
            "and layer sizes."
        )


def _refused(what: str, expected: str, found: object) -> SoulsGraphError:
    return SoulsGraphError(f"constraint: expected {what} with {expected}, found {shown(found)}; correct it.")
