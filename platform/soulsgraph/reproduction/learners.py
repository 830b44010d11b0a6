"""Whether a run can be trained by stable-baselines3, told before anything starts."""

from __future__ import annotations

from importlib.util import find_spec

from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_policies.presets import Preset


def check_stable_baselines(preset: Preset) -> None:
    """Refuse what stable-baselines3's DQN cannot train.

    Raises:
        SoulsGraphError: if the package is not installed, or the preset asks for more than vanilla DQN.
    """
    if find_spec("stable_baselines3") is None:
        raise SoulsGraphError(
            "learner: expected stable-baselines3 installed, found no such package; pip install stable-baselines3."
        )
    if preset.learning:
        raise SoulsGraphError(
            f"learner stable-baselines3: expected a preset of vanilla DQN, found {preset.name!r} with "
            f"{', '.join(preset.learning)}; use preset paper without --set of the learner."
        )
