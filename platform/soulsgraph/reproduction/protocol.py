"""The protocol of a reproduction: which units of work it has, and which run each of them trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from soulsgraph.plan import Plan, check_range
from soulsgraph.reproduction.learners import check_stable_baselines
from soulsgraph.reproduction.seeds import REPORTING, check_one_purpose
from soulsgraph_envs.errors import SoulsGraphError, UnknownNameError

Part = Literal["skills", "end_to_end", "end_to_end_long"]
Learner = Literal["soulsgraph", "stable-baselines3"]

HOME, SHIFTED = "iudex-phase1", "iudex-phase2"
#: The skills that are fine-tuned for the shifted scenario (Table 1b).
ADAPTED = ("dodge", "heal_attack")
#: The long baseline's budget over the baseline's: 500,000 steps.
_LONG = 2.0


@dataclass(frozen=True, order=True)
class Unit:
    """One piece of work that depends on no other: all that one seed trains of one part."""

    seed: int
    part: Part

    @property
    def name(self) -> str:
        """Identify the unit for readers."""
        return f"{self.seed} {self.part}"


@dataclass(frozen=True)
class Protocol:
    """What a reproduction trains and judges; checked on construction.

    `overrides` change single options of the preset by name, as an ablation does.

    Raises:
        UnknownNameError: for an unknown preset, option or learner.
        SoulsGraphError: for a number out of its range, a seed given twice, or seeds of several purposes.
    """

    preset: str = "fast"
    seeds: tuple[int, ...] = tuple(REPORTING[:10])
    episodes: int = 400
    scale: float = 1.0
    baseline: bool = True
    long_baseline: bool = False
    skills: bool = True
    learner: Learner = "soulsgraph"
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        whole = all(type(seed) is int for seed in self.seeds)
        if not self.seeds or not whole or len(set(self.seeds)) < len(self.seeds):
            raise SoulsGraphError(f"seeds: expected one or more, each once, found {list(self.seeds)}; correct --seeds.")
        check_one_purpose(self.seeds)
        if self.learner not in get_args(Learner):
            raise UnknownNameError("learner", self.learner, get_args(Learner))
        check_range("scale", self.scale, 1e-3, 1e2)
        if not self.units():
            raise SoulsGraphError(
                "reproduce: expected something to train, found neither skills nor a baseline; leave an option out."
            )
        for unit in self.units():
            plan = self.plan(unit)
            if self.learner == "stable-baselines3":
                check_stable_baselines(plan.method)

    def units(self) -> tuple[Unit, ...]:
        """Give the units, long ones of a seed first, so that the cores end their work together."""
        wanted: dict[Part, bool] = {
            "end_to_end_long": self.long_baseline,
            "skills": self.skills,
            "end_to_end": self.baseline,
        }
        return tuple(Unit(seed, part) for seed in self.seeds for part, chosen in wanted.items() if chosen)

    def plan(self, unit: Unit) -> Plan:
        """Give the plan of the run that a unit trains."""
        return Plan(
            scenario=HOME,
            preset=self.preset,
            seed=unit.seed,
            scale=self.scale * (_LONG if unit.part == "end_to_end_long" else 1.0),
            episodes=self.episodes,
            graph="paper" if unit.part == "skills" else "end-to-end",
            overrides=dict(self.overrides),
        )

    def to_dict(self) -> dict[str, Any]:
        """Give the protocol as plain values for JSON."""
        return asdict(self) | {"seeds": list(self.seeds), "overrides": dict(self.overrides)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: object) -> Protocol:
        """Read a protocol back from plain values.

        Raises:
            SoulsGraphError: if a value is missing, misspelt or out of range.
        """
        try:
            return cls(**{**values, "seeds": tuple(values["seeds"])})
        except (TypeError, KeyError, ValueError) as error:
            raise SoulsGraphError(
                f"{source}: expected a plan of this version of soulsgraph, found {error}; begin a new folder."
            ) from error
