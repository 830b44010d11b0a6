"""What the domains before helped while a domain was trained, against training it from scratch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from soulsgraph.run_folder import RunFolder
from soulsgraph.transfer.branches import SCRATCH, arm_path
from soulsgraph.transfer.continual_measures import training_forward_transfer
from soulsgraph.transfer.success_curves import SuccessCurve, domain_cards, success_curve


@dataclass(frozen=True)
class TrainingTransfer:
    """Success over the steps in one domain beside the same from scratch; None where that was not trained.

    `remedy` is the command that trains it.
    """

    domain: str
    curve: SuccessCurve
    alone: SuccessCurve | None
    remedy: str

    @property
    def forward_transfer(self) -> float | None:
        """Continual World's forward transfer; None without the curve from scratch, or if that is 1 throughout."""
        return None if self.alone is None else training_forward_transfer(self.curve.area, self.alone.area)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        curves = {"": self.curve, "alone_": self.alone}
        areas = {f"{name}area": curve.area if curve else None for name, curve in curves.items()}
        points = {
            f"{name}curve": [curve.steps.tolist(), curve.rates.tolist()] if curve else None
            for name, curve in curves.items()
        }
        missing = self.remedy if self.alone is None else None
        return {"forward_transfer": self.forward_transfer, **areas, "missing": missing, **points}

    def line(self) -> str:
        """Return it as a line for the terminal."""
        begin = f"forward transfer while training in {self.domain} (Continual World): "
        if self.alone is None:
            return f"{begin}missing, for nothing was trained there from scratch; train it with: {self.remedy}"
        value = self.forward_transfer
        shown = "not defined, from scratch won throughout" if value is None else f"{value:+.3f}"
        return f"{begin}{shown}; mean success {self.curve.area:.3f}, from scratch {self.alone.area:.3f}"


def training_transfer(run: RunFolder, domain: str, seed: int) -> TrainingTransfer:
    """Play both curves of a domain that the run was adapted to; the other is the recovery's arm from scratch.

    Raises:
        SoulsGraphError: if a checkpoint or an artifact is damaged.
    """
    budget = sum(card.training.budget for card in domain_cards(run, domain))
    path = arm_path(run, domain, budget, SCRATCH)
    scratch = RunFolder.open(path) if (path / "plan.json").exists() else None
    trained = scratch and all(scratch.library.versions(skill) for skill in run.plan.skill_graph.order)
    alone = success_curve(scratch, domain, seed) if scratch and trained else None
    remedy = f"soulsgraph recovery {run.path} --scenario {domain} --budget {budget}"
    return TrainingTransfer(domain, success_curve(run, domain, seed), alone, remedy)
