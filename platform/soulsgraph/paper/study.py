"""A reproduction: its jobs, the seeds of each purpose, its learners; and the folder it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Annotated, Any, Literal

from soulsgraph.runs.evaluate import EVALUATION_SEED
from soulsgraph.runs.plan import Plan, Stage, check_learns, how_it_learns, scenario_digest
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.study_folder import StudyFile, StudyFolder, Unit
from soulsgraph_envs.core.config import EACH_ONCE, Between, NonEmpty, check_fields, digest_of, to_table
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_policies.learning.hyperparameters import Preset

Records = list[dict[str, Any]]

#: Columns of each table under `records/`.
COLUMNS = {
    "rows": (
        "preset", "seed", "part", "label", "scenario", "start", "paper_percent",
        "wins", "episodes", "mean_return", "mean_length", "mean_seconds",
    ),
    "curves": (
        "preset", "seed", "unit", "skill", "scenario", "step",
        "episode_return", "low", "high", "length", "seconds", "win_rate",
    ),
    "training": (
        "preset", "seed", "unit", "skill", "scenario", "step",
        "episode_return", "episode_length", "episode_seconds", "win_rate",
    ),
    "measures": ("preset", "seed", "name", "value", "count"),
}  # fmt: skip
#: Parts of Table 1; the other settings are `extra` or `reference`.
TABLE_1_PARTS, REFERENCE = ("a", "b"), "reference"
DESCRIPTION = "reproduction.json"
_WORK = "soulsgraph.paper.seed_job:do_job"

Part = Literal["skills", "end_to_end", "end_to_end_long", "references"]
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
class SeedJob:
    """One independent piece of work: everything that one seed trains of one part."""

    seed: int
    part: Part

    @property
    def name(self) -> str:
        """Identify the job for readers."""
        return self.part if self.part == "references" else f"{self.seed} {self.part}"


#: What is evaluated without training, on the evaluation episodes alone.
REFERENCES = SeedJob(EVALUATION_SEED, "references")


@dataclass(frozen=True)
class Study:
    """What a new reproduction trains and evaluates. One that exists keeps its own plan.

    It is checked on construction.

    Raises:
        UnknownNameError: for an unknown preset or option.
        SoulsGraphError: for a value of another type or out of its range, a seed given twice, or seeds of
            several purposes.
    """

    preset: str = "paper"
    """How the agents learn: the name of a preset."""
    seeds: Annotated[NonEmpty[Annotated[int, Between(0, 2**31 - 1)]], EACH_ONCE] = tuple(REPORTING[:10])
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
    """Options of the preset to change, as an ablation does: double_q=true n_step=3; the baseline uses lanes alone."""

    def __post_init__(self) -> None:
        check_fields(self)
        if len({*map(_purpose, self.seeds)}) > 1:
            known = ", ".join(f"{name} {group[0]}-{group[-1]}" for name, group in _PURPOSES.items() if name)
            raise SoulsGraphError(
                f"seeds: expected all for one purpose ({known}) or all for none of them, found {min(self.seeds)} to "
                f"{max(self.seeds)}; choose other `seeds`."
            )
        if not self.jobs():
            raise SoulsGraphError(
                "study: expected something to train, found neither skills nor a baseline; choose one of them."
            )
        for plan in self.plans():
            if self.learner == "stable-baselines3":
                check_stable_baselines(plan.method)

    def check_learns(self) -> None:
        """Refuse a scale by which a skill would take no update; raises SoulsGraphError."""
        for job in self.jobs():
            check_learns(self.plan(job), self.stages(job))

    def stages(self, job: SeedJob) -> list[Stage]:
        """Return what a job trains, its adaptations included."""
        plan, adapted = self.plan(job), ADAPTED if job.part == "skills" else ()
        return [*plan.stages(), *(plan.stage(skill, SHIFTED, 1) for skill in adapted)]

    def jobs(self) -> tuple[SeedJob, ...]:
        """Return the jobs, in the order of the records."""
        wanted: dict[Part, bool] = {
            "end_to_end": self.baseline,
            "end_to_end_long": self.long_baseline,
            "skills": self.skills,
        }
        return tuple(SeedJob(seed, part) for seed in self.seeds for part, chosen in wanted.items() if chosen)

    def plans(self) -> list[Plan]:
        """Return the plans of the first seed's jobs: those of other seeds differ in their seed alone."""
        return [self.plan(job) for job in self.jobs() if job.seed == self.seeds[0]]

    def plan(self, job: SeedJob) -> Plan:
        """Return the plan of the run that a job trains."""
        return Plan(
            scenario=HOME,
            preset=self.preset,
            seed=job.seed,
            scale=self.scale * (_LONG if job.part == "end_to_end_long" else 1.0),
            episodes=self.episodes,
            graph="paper" if job.part == "skills" else "end-to-end",
            overrides=dict(self.overrides),
        )


def evaluation_seed(training_seed: int) -> int:
    """Return the seed of the evaluation episodes for a training seed: one per purpose, one for other seeds."""
    return EVALUATION_SEED + [*_PURPOSES].index(_purpose(training_seed))


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


class ReproductionFolder(StudyFolder[Study]):
    """Paths of a reproduction: beside a study's, `seeds/<seed>/<part>/` (run folders); its tables are in `records/`."""

    kind, plan_file, holds, tables = "reproduction", DESCRIPTION, StudyFile[Study], "records"

    @staticmethod
    def fights(plan: Study) -> dict[str, str]:
        """Return the digest of everything that each fight's data says."""
        return {name: scenario_digest(name) for name in (HOME, SHIFTED)}

    def check_memory(self) -> None:
        """Refuse a study whose replay would fill more than half of the memory; raises DataError."""
        for plan in self.plan.plans():
            plan.check_memory()

    @property
    def units(self) -> tuple[Unit, ...]:
        """The scripted references, and the jobs of every seed, known again by their inputs."""
        jobs = (REFERENCES, *self.plan.jobs())
        return tuple(Unit(job.name, _WORK, (job,), digest_of(self._inputs(job))) for job in jobs)

    @property
    def left(self) -> list[Unit]:
        """The units that are not done, the longest of each seed first: so all cores finish at about the same time."""
        seeds, longest = (*self.plan.seeds, REFERENCES.seed), ("end_to_end_long", "skills", "end_to_end", "references")

        def place(unit: Unit) -> tuple[int, int]:
            (job,) = unit.arguments
            return seeds.index(job.seed), longest.index(job.part)

        return sorted(super().left, key=place)

    def _inputs(self, job: SeedJob) -> dict[str, Any]:
        """Return what determines a job's records: its plan, who learns, and by which hyperparameters."""
        if job == REFERENCES:
            return {"episodes": self.plan.episodes}
        plan = self.plan.plan(job)
        parts = [part for stage in self.plan.stages(job) for part in stage.parts]
        learning = {f"{part.skill} in {part.scenario}": how_it_learns(plan, part) for part in parts}
        return {**to_table(plan), "learner": self.plan.learner, "learning": learning}

    def run(self, job: SeedJob) -> RunFolder:
        """Open the job's run folder, begun if it is not there.

        Raises:
            SoulsGraphError: if another run is in it.
        """
        return RunFolder.of_plan(self.path / "seeds" / str(job.seed) / job.part, self.plan.plan(job))
