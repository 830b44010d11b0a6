"""A reproduction: its jobs, the seeds of each purpose, its learners; and the folder it leaves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from soulsgraph.results.origin import describe_origin
from soulsgraph.results.tables import write_rows
from soulsgraph.runs.evaluate import EVALUATION_SEED
from soulsgraph.runs.plan import Plan, check_learns, differing, how_it_learns, scenario_digest
from soulsgraph.runs.run_folder import PlannedFolder, RunFolder, RunFolderError
from soulsgraph_envs.core.config import EACH_ONCE, Between, NonEmpty, Where, check_fields, read_file, to_table, validate
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import write_json
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

    @property
    def pieces(self) -> tuple[str, ...]:
        """The pieces of the job's records."""
        kept = {"references": ("rows",), "end_to_end_long": ("learning", "rows")}
        return kept.get(self.part, ("learning", "rows", "measures"))


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
    """How the agents learn: paper, fast, best or whole."""
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
        check_one_purpose(self.seeds)
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
            plan = self.plan(job)
            check_learns(plan, [*plan.stages(), *(plan.stage(skill, SHIFTED, 1) for skill in self.adapted(job))])

    @staticmethod
    def adapted(job: SeedJob) -> tuple[str, ...]:
        """Return the skills that a job adapts."""
        return ADAPTED if job.part == "skills" else ()

    def jobs(self) -> tuple[SeedJob, ...]:
        """Return the jobs, the longest of each seed first, so that all cores finish at about the same time."""
        wanted: dict[Part, bool] = {
            "end_to_end_long": self.long_baseline,
            "skills": self.skills,
            "end_to_end": self.baseline,
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


_AGAIN = "remove it and run the reproduction again"


@dataclass(frozen=True)
class _ReproductionFile:
    """What `reproduction.json` holds; each session has its `wall_time_s`, and where it ran."""

    plan: Study
    started: str
    wall_time_s: float
    scenarios: Mapping[str, str]
    sessions: list[Mapping[str, Any]]


#: Rows of each record table by the table's name.
Tables = Mapping[str, Records]


class ReproductionFolder(PlannedFolder[Study]):
    """Paths of a reproduction.

    Layout: `reproduction.json`, `seeds/<seed>/<part>/` (a run folder), `seeds/<seed>/pieces/<part>-<piece>.json`,
    `references.json` and `records/<table>.parquet`.
    """

    kind, plan_file, holds = "reproduction", DESCRIPTION, _ReproductionFile

    def check_memory(self) -> None:
        """Refuse a study whose replay would fill more than half of the memory; raises DataError."""
        for plan in self.plan.plans():
            plan.check_memory()

    def description(self) -> _ReproductionFile:
        """Return what `reproduction.json` holds when it is begun."""
        return _ReproductionFile(self.plan, _now(), 0.0, _fights(), [])

    @classmethod
    def open(cls, path: Path) -> ReproductionFolder:
        """Open a reproduction that `create` began.

        Raises:
            SoulsGraphError: if it is no reproduction, its plan does not hold, or the fights changed since it was begun.
        """
        file, begun = path / DESCRIPTION, _read_begun(path)
        # Results of different fights cannot be compared.
        if begun.scenarios != (now := _fights()):
            raise SoulsGraphError(
                f"{file}: expected the data of {', '.join(now)} that it was created with, found that they changed; "
                "restore them or begin another with `run`."
            )
        return cls(path, begun.plan)

    def run_path(self, job: SeedJob) -> Path:
        """Return the folder of the run that a job trains."""
        return self.path / "seeds" / str(job.seed) / job.part

    def run(self, job: SeedJob) -> RunFolder:
        """Open the job's run folder, begun if it is not there.

        Raises:
            SoulsGraphError: if another run is in it.
        """
        path, plan = self.run_path(job), self.plan.plan(job)
        file = path / "learner.json"
        if not (path / RunFolder.plan_file).exists():
            RunFolder.create(path, plan)
        run = RunFolder.open(path)
        if not file.exists():
            # Whoever was killed before it was written has trained nothing.
            write_json(file, {"learner": self.plan.learner})
        if run.plan != plan or read_file(Where(file, remedy=_AGAIN)) != {"learner": self.plan.learner}:
            found = "one by another plan or learner"
            raise RunFolderError(path, "a run by the plan of this reproduction", found, "remove it")
        return run

    def inputs(self, job: SeedJob) -> dict[str, Any]:
        """Return what determines a job's records: fights, and plan, learner and hyperparameters of what it trains."""
        if job == REFERENCES:
            return {"fights": _fights(), "episodes": self.plan.episodes}
        plan = self.plan.plan(job)
        stages = [*plan.stages(), *(plan.stage(skill, SHIFTED, 1) for skill in self.plan.adapted(job))]
        parts = [part for stage in stages for part in stage.parts]
        learning = {f"{part.skill} in {part.scenario}": how_it_learns(plan, part) for part in parts}
        return {"fights": _fights(), **to_table(plan), "learner": self.plan.learner, "learning": learning}

    def record(self, job: SeedJob, piece: str, make: Callable[[], Tables]) -> None:
        """Write what `make` returns as a piece of the job's records, unless it exists; raises as `is_recorded`."""
        if not self.is_recorded(job, piece):
            write_json(self.piece(job, piece), {"inputs": self.inputs(job), **make()})

    def is_recorded(self, job: SeedJob, piece: str) -> bool:
        """Return whether a piece of the job's records is there.

        Raises:
            SoulsGraphError: if it is damaged, or was recorded by another plan, learner or fight.
        """
        file = self.piece(job, piece)
        if not file.exists():
            return False
        found = read_file(Where(file, remedy=_AGAIN))
        if others := differing(self.inputs(job), found.get("inputs")):
            named = ", ".join(others)
            raise SoulsGraphError(
                f"{file}: expected a record of this reproduction, found one of another {named}; {_AGAIN}."
            )
        return True

    @property
    def left(self) -> list[SeedJob]:
        """The jobs whose records are not all there; raises as `is_recorded`."""
        jobs = (*self.plan.jobs(), REFERENCES)
        return [job for job in jobs if not all([self.is_recorded(job, piece) for piece in job.pieces])]

    def assemble(self) -> None:
        """Write the record tables from every piece there is.

        Raises:
            SoulsGraphError: if a piece is damaged.
            WriteError: if the folder cannot be written.
        """
        files = [self.piece(REFERENCES, "rows")]
        for seed in self.plan.seeds:
            files += sorted((self.path / "seeds" / str(seed) / "pieces").glob("*.json"))
        pieces = [_read_piece(file) for file in files if file.exists()]
        for table in COLUMNS:
            rows = [{"preset": self.plan.preset, **row} for piece in pieces for row in piece[table]]
            write_rows(self.path / "records" / f"{table}.parquet", rows)

    @contextmanager
    def session(self) -> Iterator[None]:
        """Record a session, and the time until its end."""
        began_s = time.monotonic()
        self.begin_session()
        try:
            yield
        finally:
            self.add_wall_time(time.monotonic() - began_s)

    def begin_session(self) -> None:
        """Record when, where, and from which commit and packages the work begins or continues."""
        begun = _read_begun(self.path)
        session = {"started": _now(), "wall_time_s": 0.0, **describe_origin()}
        self.write(replace(begun, sessions=[*begun.sessions, session]))

    def add_wall_time(self, seconds: float) -> None:
        """Add to the time that the last session has taken, and to that of all sessions together."""
        begun = _read_begun(self.path)
        *before, last = begun.sessions
        sessions = [*before, {**last, "wall_time_s": round(last["wall_time_s"] + seconds, 1)}]
        self.write(replace(begun, wall_time_s=round(begun.wall_time_s + seconds, 1), sessions=sessions))

    def piece(self, job: SeedJob, piece: str) -> Path:
        """Return the file of a piece of a job's records."""
        if job == REFERENCES:
            return self.path / "references.json"
        return self.path / "seeds" / str(job.seed) / "pieces" / f"{job.part}-{piece}.json"


def _read_begun(path: Path) -> _ReproductionFile:
    begun: _ReproductionFile = ReproductionFolder.read(path)
    where = Where(path / DESCRIPTION)
    for index, session in enumerate(begun.sessions):
        validate(float, session.get("wall_time_s"), where.at("sessions").at(index).at("wall_time_s"))
    return begun


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _fights() -> dict[str, str]:
    """Return the digest of everything that each fight's data says."""
    return {name: scenario_digest(name) for name in (HOME, SHIFTED)}


def _read_piece(file: Path) -> Tables:
    """Return a piece's rows with the columns of each record table but the preset, which comes first."""
    piece = read_file(Where(file, remedy=_AGAIN))
    try:
        return {
            table: [{name: row[name] for name in columns[1:]} for row in piece.get(table, [])]
            for table, columns in COLUMNS.items()
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise SoulsGraphError(f"{file}: expected an object of record tables, found {piece!r:.40}; {_AGAIN}.") from error
