"""The state of the fight as SoulsGym's agents know it."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass
class GameState:
    """The state of a fight at one moment; without arguments SoulsGym's defaults.

    Poses are (x, y, z, angle), z up and radians in [-pi, pi]; the camera's is (x, y, z) and the unit
    vector of where it looks. HP and stamina are points; stamina may be below 0. Durations are the
    seconds since an animation began. Frost is that of Vordt's blows: the shares of the resistance
    (1 where there is none) and of its effect that are left.
    """

    phase: int = 1
    player_hp: float = 0.0
    player_max_hp: float = 1.0
    player_sp: float = 0.0
    player_max_sp: float = 1.0
    boss_hp: float = 0.0
    boss_max_hp: float = 1.0
    player_pose: Floats = field(default_factory=lambda: np.zeros(4))
    boss_pose: Floats = field(default_factory=lambda: np.zeros(4))
    camera_pose: Floats = field(default_factory=lambda: np.zeros(6))
    player_animation: str = "NoAnimation"
    player_animation_duration: float = 0.0
    boss_animation: str = "NoAnimation"
    boss_animation_duration: float = 0.0
    lock_on: bool = False
    frost_resistance: float = 1.0
    frost_effect: float = 0.0

    def __call__(self) -> Self:
        """Return a copy: `env.game_state()` in newer SoulsGym is what `env.game_state` was in older."""
        return self.copy()

    def copy(self) -> Self:
        """Return an independent copy, arrays included."""
        return deepcopy(self)

    def as_dict(self, deepcopy: bool = True) -> dict[str, Any]:
        """Return the values by name; with `deepcopy=False` the arrays are the state's own."""
        return dict(vars(self.copy() if deepcopy else self))

    def as_json(self) -> dict[str, Any]:
        """Return the values by name, arrays as lists: `json` writes them and `from_dict` takes them back."""
        return {name: value.tolist() if hasattr(value, "tolist") else value for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, data_dict: Mapping[str, Any]) -> Self:
        """Make a state of values by name, lists taken for arrays; what is left out has its default."""
        values: dict[str, Any] = {
            name: np.array(value) if isinstance(value, list) else value for name, value in data_dict.items()
        }
        return cls(**values)
