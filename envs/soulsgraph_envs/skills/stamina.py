"""The stamina terms that dodge and heal-attack can choose from (Appendix A.3)."""

from __future__ import annotations

from typing import Literal

from soulsgraph_envs.skills.skill import RewardTerm
from soulsgraph_envs.state import Column

#: "change": the dense change of the stamina ratio; "indicator": minus one below a threshold.
StaminaTerm = Literal["change", "indicator", "none"]


def stamina_terms(kind: StaminaTerm, threshold: float) -> tuple[RewardTerm, ...]:
    """Return a tuple of the chosen stamina term, empty for none."""
    if kind == "change":
        return (RewardTerm("stamina", 1.0, lambda d: d.change(Column.STAMINA)),)
    if kind == "indicator":
        return (RewardTerm("stamina", -1.0, lambda d: d.after[:, Column.STAMINA] < threshold),)
    return ()
