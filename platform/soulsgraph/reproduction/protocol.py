"""The study of a reproduction: its units of work, the seeds of each purpose, the learners it can use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Annotated, Any, Literal

from soulsgraph.evaluation import EVALUATION_SEED
from soulsgraph.plan import Plan
from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_envs.schema import Between, check_fields
from soulsgraph_policies.hyperparameters import Preset

Part = Literal["skills", "end_to_end", "end_to_end_long"]
Learner = Literal["soulsgraph", "stable-baselines3"]

HOME, SHIFTED = "iudex-phase1", "iudex-phase2"
#: The skills that are fine-tuned for the shifted scenario (Table 1b).
ADAPTED = ("dodge", "heal_attack")
#: The long baseline's budget over the baseline's: 500,000 steps.
_LONG = 2.0


#: Boss data was calibrated on these.
CALIBRATION = range(100, 200)
#: Presets were chosen on these.
CHOOSING = range(200, 300)
#: Results were first reported on these, in this order.
REPORTING = range(400, 500)
#: Results are confirmed on these, which nobody had used when the presets were committed.
CONFIRMING = range(500, 600)

_PURPOSES = {
    "reporting": REPORTING,
    "calibration": CALIBRATION,
    "choosing": CHOOSING,
    None: (),
    "confirming": CONFIRMING,
}


@dataclass(frozen=True, order=True)
class Unit:
    """One independent piece of work: everything that one seed trains of one part."""

    seed: int
    part: Part

    @property
    def name(self) -> str:
        """Identify the unit for readers."""
        return f"{self.seed} {self.part}"


@dataclass(frozen=True)
class Study:
    """What a new reproduction trains and evaluates. One that exists keeps its own plan.

    It is checked on construction.

    Raises:
        UnknownNameError: for an unknown preset or option.
        SoulsGraphError: for a value of another type or out of its range, a seed given twice, or seeds of
            several purposes.
    """

    preset: str = Plan.preset
    """How the agents learn: paper, fast, best or extended."""
    seeds: tuple[Annotated[int, Between(0, 2**31 - 1)], ...] = tuple(REPORTING[:10])
    """Training seeds, in this order."""
    episodes: Annotated[int, Between(1, 1_000_000)] = Plan.episodes
    """Evaluation episodes for each row and measure."""
    scale: Annotated[float, Between(1e-3, 1e2)] = 1.0
    """Multiplies every budget."""
    baseline: bool = True
    """Train the end-to-end baseline."""
    long_baseline: bool = False
    """Train the baseline for 500,000 steps too."""
    skills: bool = True
    """Train the five skills."""
    learner: Learner = "soulsgraph"
    """stable-baselines3 trains every stage by that package's own DQN."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Options of the preset to change, as an ablation does: double=true n_step=3; the baseline takes lanes alone."""

    def __post_init__(self) -> None:
        check_fields(self)
        if len(set(self.seeds)) < len(self.seeds):
            raise SoulsGraphError(f"seeds: expected each once, found {list(self.seeds)}; correct them.")
        check_one_purpose(self.seeds)
        if not self.units():
            raise SoulsGraphError(
                "protocol: expected something to train, found neither skills nor a baseline; choose one of them."
            )
        # The units of other seeds differ in their seed alone.
        for unit in (unit for unit in self.units() if unit.seed == self.seeds[0]):
            plan = self.plan(unit)
            if self.learner == "stable-baselines3":
                check_stable_baselines(plan.method)

    def units(self) -> tuple[Unit, ...]:
        """Return the units, the longest of each seed first, so that all cores finish at about the same time."""
        wanted: dict[Part, bool] = {
            "end_to_end_long": self.long_baseline,
            "skills": self.skills,
            "end_to_end": self.baseline,
        }
        return tuple(Unit(seed, part) for seed in self.seeds for part, chosen in wanted.items() if chosen)

    def plan(self, unit: Unit) -> Plan:
        """Return the plan of the run that a unit trains."""
        return Plan(
            scenario=HOME,
            preset=self.preset,
            seed=unit.seed,
            scale=self.scale * (_LONG if unit.part == "end_to_end_long" else 1.0),
            episodes=self.episodes,
            graph="paper" if unit.part == "skills" else "end-to-end",
            overrides=dict(self.overrides),
        )


def evaluation_seed(training_seed: int) -> int:
    """Return the seed of the evaluation episodes for a training seed: one per purpose, one for other seeds."""
    return EVALUATION_SEED + [*_PURPOSES].index(_purpose(training_seed))


def check_one_purpose(seeds: Sequence[int]) -> None:
    """Refuse seeds of several purposes together.

    Raises:
        SoulsGraphError: naming the purposes and their seeds.
    """
    if len({*map(_purpose, seeds)}) > 1:
        known = ", ".join(f"{name} {group[0]}-{group[-1]}" for name, group in _PURPOSES.items() if name)
        raise SoulsGraphError(
            f"seeds: expected all for one purpose ({known}) or all for none of them, found {min(seeds)} to "
            f"{max(seeds)}; choose other `seeds`."
        )


def _purpose(training_seed: int) -> str | None:
    return next((name for name, group in _PURPOSES.items() if training_seed in group), None)


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
            f"{', '.join(preset.learning)}; use preset paper without `overrides` of the learner."
        )
